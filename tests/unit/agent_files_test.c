/* SPDX-License-Identifier: Apache-2.0 */
/* put, get and stat over a Unix socket. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/tar_extract.h"
#include "lib/tar_pack.h"
#include "tests/harness/agent_guest.h"

static struct agent_guest guest;
static struct agent_result r;
static struct agent_peer peer;
static char top[64];

static int setup(void **s)
{
	(void)s;
	strcpy(top, "/tmp/coffer-files-XXXXXX");
	assert_non_null(mkdtemp(top));
	agent_guest_start(&guest, NULL);
	return 0;
}

static int teardown(void **s)
{
	char command[128];

	(void)s;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	assert_int_equal(agent_guest_stop(&guest), 0);
	return system(command);
}

static void run(const char *command)
{
	char full[1024];

	snprintf(full, sizeof(full), "cd %s && %s", top, command);
	assert_int_equal(system(full), 0);
}

/* A request about `name` below the directory; `more` are further fields. */
static void request(const char *op, const char *name, const char *more)
{
	char text[512];

	snprintf(text, sizeof(text), "{\"op\":\"%s\",\"path\":\"%s/%s\"%s}", op, top, name, more);
	agent_peer_request(&peer, &guest, text);
}

/* Pack `name` on our side and put it into the connection that was just answered. */
static void send_tree(const char *name, const char *as)
{
	struct tar_pack *p = malloc(sizeof(*p));
	char *buf = malloc(AGENT_FRAME_MAX), path[128];
	struct stat st;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	assert_int_equal(tar_pack_init(p, path, as, false, &st, NULL), 0);
	do {
		n = tar_pack_read(p, buf, AGENT_FRAME_MAX, NULL);
		assert_true(n >= 0);
		agent_peer_put(&peer, AGENT_DATA, buf, (size_t)n);
	} while (n > 0);
	tar_pack_finish(p);
	free(p);
	free(buf);
}

/* Unpack what the agent sends into `name`, which exists. */
static void receive_tree(const char *name)
{
	struct tar_extract_options o = { .uid = geteuid(), .gid = getegid() };
	struct tar_extract *x = malloc(sizeof(*x));
	char path[128];
	int dir;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	dir = open(path, O_RDONLY | O_DIRECTORY);
	tar_extract_init(x, dir, &o);
	while (agent_peer_frame(&peer) && peer.type == AGENT_DATA && peer.length > 0)
		assert_int_equal(tar_extract_feed(x, peer.payload, peer.length, NULL), 0);
	assert_int_equal(peer.type, AGENT_DATA);
	assert_int_equal(tar_extract_finish(x, NULL), 0);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_EXIT);
	assert_int_equal(r.kind | r.value, 0);
	agent_peer_close(&peer);
	close(dir);
	free(x);
}

static void finish_put(void)
{
	agent_peer_collect(&peer, &r);
	if (r.final != AGENT_EXIT)
		fail_msg("put: %s", r.error);
	assert_int_equal(r.kind | r.value, 0);
	agent_peer_close(&peer);
}

#define TREE                                                                                                        \
	"rm -rf src dst back && mkdir -p src/sub/deep && echo hello >src/f && chmod 4750 src/f && : >src/zero && "  \
	"head -c 1000001 /dev/urandom >src/sub/big && ln -s ../f src/sub/l && mkfifo -m 640 src/p && chmod 1777 src/sub/deep && " \
	"n=$(printf %0200d 1) && echo x >src/sub/$n && ln -s $n$n src/longlink && touch -d @1234567890.5 src/f src/sub src/sub/deep"

#define LISTING(dir) "(cd " dir " && find . -printf '%p %y %m %T@ %l\\n' | sort)"

static void trees_come_through_both_ways(void **s)
{
	(void)s;
	run(TREE);
	request("put", "dst", ",\"mkdir\":true");
	assert_string_equal(peer.line, "{\"ok\":true}");
	send_tree("src", "tree");
	finish_put();
	run("mkdir back");
	request("get", "dst/tree", ",\"name\":\"again\"");
	assert_non_null(strstr(peer.line, "\"type\":\"dir\""));
	receive_tree("back");
	run(LISTING("src") ">a; " LISTING("dst/tree") ">b; " LISTING("back/again") ">c; diff a b && diff a c && "
			   "cmp src/sub/big back/again/sub/big && cmp src/f back/again/f");
}

static void a_large_file_comes_through_both_ways(void **s)
{
	(void)s;
	run("rm -rf dst back && mkdir dst back && head -c 100M /dev/urandom >big");
	request("put", "dst", "");
	send_tree("big", "copy");
	finish_put();
	request("get", "dst/copy", "");
	assert_int_equal(agent_peer_number(&peer, "size"), 100 << 20);
	receive_tree("back");
	run("cmp big dst/copy && cmp big back/copy && rm -r big dst back");
}

static void stat_describes_what_is_there(void **s)
{
	(void)s;
	run("rm -rf st && mkdir st && echo 12345 >st/f && chmod 4640 st/f && touch -d @1234567890.123456789 st/f && ln -s f st/l && mkfifo st/p");
	request("stat", "st/f", "");
	assert_non_null(strstr(peer.line, "\"type\":\"file\",\"mode\":2464,\"size\":6,"));
	assert_int_equal(agent_peer_number(&peer, "mtime_ns"), 1234567890123456789);
	assert_int_equal(agent_peer_number(&peer, "uid"), geteuid());
	assert_int_equal(agent_peer_number(&peer, "nlink"), 1);
	agent_peer_close(&peer);
	request("stat", "st/l", "");
	assert_non_null(strstr(peer.line, "\"type\":\"file\""));
	agent_peer_close(&peer);
	request("stat", "st/l", ",\"follow\":false");
	assert_non_null(strstr(peer.line, "\"type\":\"symlink\""));
	assert_non_null(strstr(peer.line, "\"target\":\"f\""));
	agent_peer_close(&peer);
	request("stat", "st/p", "");
	assert_non_null(strstr(peer.line, "\"type\":\"fifo\""));
	agent_peer_close(&peer);
	request("stat", "st", "");
	assert_non_null(strstr(peer.line, "\"type\":\"dir\""));
	agent_peer_close(&peer);
	request("stat", "st/none", "");
	assert_non_null(strstr(peer.line, "\"errno\":2,\"code\":\"not-found\""));
	agent_peer_close(&peer);
}

static void put_needs_its_directory(void **s)
{
	(void)s;
	run("rm -rf dst; echo x >plain");
	request("put", "dst", "");
	assert_non_null(strstr(peer.line, "\"code\":\"not-found\""));
	agent_peer_close(&peer);
	request("put", "plain", "");
	assert_non_null(strstr(peer.line, "\"code\":\"not-directory\""));
	agent_peer_close(&peer);
	request("put", "plain/x", ",\"mkdir\":true");
	assert_non_null(strstr(peer.line, "\"code\":\"not-directory\""));
	agent_peer_close(&peer);
	request("put", "n/b/c", ",\"mkdir\":true");
	assert_string_equal(peer.line, "{\"ok\":true}");
	agent_peer_put(&peer, AGENT_DATA, NULL, 0);
	finish_put();
	run("test -d n/b/c && test $(stat -c %a n/b) = 755 && rm -r n");
}

static void put_gives_things_to_their_owner(void **s)
{
	(void)s;
	if (geteuid() != 0) {
		print_message("giving files away needs root\n");
		skip();
	}
	run("rm -rf dst; echo x >plain; chown 5:6 plain");
	request("put", "dst/new", ",\"mkdir\":true,\"owner\":\"daemon:33\"");
	send_tree("plain", "f");
	finish_put();
	run("test $(stat -c %u:%g dst/new/f) = 1:33 && test $(stat -c %u:%g dst/new) = 1:33");
	request("put", "dst/new", ",\"keep_owner\":true");
	send_tree("plain", "g");
	finish_put();
	run("test $(stat -c %u:%g dst/new/g) = 5:6");
	request("put", "dst/new", "");
	send_tree("plain", "h");
	finish_put();
	run("test $(stat -c %u:%g dst/new/h) = 0:0");
	request("put", "dst/new", ",\"owner\":\"no-such-user\"");
	assert_non_null(strstr(peer.line, "\"code\":\"not-found\""));
	agent_peer_close(&peer);
}

/* One file entry by hand. */
static void put_entry(const char *name, const char *content)
{
	struct tar_entry *e = calloc(1, sizeof(*e));
	char *buf = calloc(1, TAR_HEADER_MAX + TAR_BLOCK);
	ssize_t n;

	strcpy(e->name, name);
	e->mode = 0644;
	e->size = strlen(content);
	n = tar_header_make(e, buf, TAR_HEADER_MAX);
	assert_true(n > 0);
	memcpy(buf + n, content, strlen(content));
	agent_peer_put(&peer, AGENT_DATA, buf, (size_t)n + TAR_BLOCK);
	free(e);
	free(buf);
}

static void a_hostile_stream_gets_nowhere(void **s)
{
	static const char *const names[] = { "../evil", "/tmp/coffer-evil", "l/evil" };

	(void)s;
	run("rm -rf dst out; mkdir dst out; ln -s ../out dst/l");
	for (size_t i = 0; i < 3; i++) {
		request("put", "dst", "");
		put_entry(names[i], "x");
		agent_peer_collect(&peer, &r);
		assert_int_equal(r.final, AGENT_ERROR);
		assert_int_equal(r.error_errno, i == 2 ? EXDEV : EINVAL);
		agent_peer_close(&peer);
	}
	run("test -z \"$(ls -A out)\" && test ! -e evil && test ! -e /tmp/coffer-evil");
}

static void errors_come_while_data_is_still_sent(void **s)
{
	char *garbage = malloc(AGENT_FRAME_MAX);

	(void)s;
	memset(garbage, 'g', AGENT_FRAME_MAX);
	run("rm -rf dst; mkdir dst");
	request("put", "dst", "");
	for (int i = 0; i < 100; i++) /* 6 MiB: the agent must go on reading, or this would block */
		agent_peer_put(&peer, AGENT_DATA, garbage, AGENT_FRAME_MAX);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_non_null(strstr(r.error, "checksum"));
	agent_peer_close(&peer);
	free(garbage);
}

static void a_put_that_breaks_off_leaves_no_part_of_a_file(void **s)
{
	(void)s;
	run("rm -rf dst; mkdir dst");
	request("put", "dst", "");
	{
		struct tar_entry *e = calloc(1, sizeof(*e));
		char *buf = calloc(1, TAR_HEADER_MAX + 1000);
		ssize_t n;

		strcpy(e->name, "f");
		e->size = 100000;
		n = tar_header_make(e, buf, TAR_HEADER_MAX);
		agent_peer_put(&peer, AGENT_DATA, buf, (size_t)n + 1000);
		free(e);
		free(buf);
	}
	run("while test -z \"$(ls -A dst)\"; do sleep 0.001; done"); /* until the agent has begun to write it */
	agent_peer_close(&peer);
	for (;;) { /* until its handler has cleaned up */
		agent_peer_request(&peer, &guest, "{\"op\":\"ping\"}");
		agent_peer_close(&peer);
		if (strstr(peer.line, "\"connections\":1,"))
			break;
	}
	run("test -z \"$(ls -A dst)\"");
}

static void a_full_disk_is_reported(void **s)
{
	(void)s;
	if (geteuid() != 0) {
		print_message("a small file system to fill needs root\n");
		skip();
	}
	run("rm -rf dst; mkdir dst; mount -t tmpfs -o size=64k none dst; head -c 200000 /dev/zero >big");
	request("put", "dst", "");
	send_tree("big", "big");
	agent_peer_collect(&peer, &r);
	agent_peer_close(&peer);
	run("ls -A dst >left; umount dst; test ! -s left");
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, ENOSPC);
	assert_non_null(strstr(r.error, "/dst/big': write: No space left on device"));
}

static void get_of_what_is_not_there_is_an_error_line(void **s)
{
	(void)s;
	request("get", "none", "");
	assert_non_null(strstr(peer.line, "none': No such file or directory\",\"errno\":2"));
	agent_peer_close(&peer);
	agent_peer_request(&peer, &guest, "{\"op\":\"get\",\"path\":\"/dev/null\"}");
	assert_non_null(strstr(peer.line, "\"code\":\"unsupported\""));
	agent_peer_close(&peer);
}

static void get_names_the_root_a_dot(void **s)
{
	(void)s;
	run("rm -rf back; mkdir back; mkdir -p g/h; echo x >g/h/f");
	request("get", "g/h///", "");
	receive_tree("back");
	run("test -f back/h/f");
	agent_peer_request(&peer, &guest, "{\"op\":\"get\",\"path\":\"/\"}");
	assert_true(agent_peer_frame(&peer));
	assert_int_equal(peer.type, AGENT_DATA);
	assert_non_null(memmem(peer.payload, peer.length, "./", 3));
	agent_peer_close(&peer); /* and it stops at once */
}

static void frames_that_do_not_belong_end_a_put(void **s)
{
	(void)s;
	run("rm -rf dst; mkdir dst");
	request("put", "dst", "");
	agent_peer_put(&peer, AGENT_STDIN, "x", 1);
	agent_peer_collect(&peer, &r);
	assert_int_equal(r.final, AGENT_ERROR);
	assert_int_equal(r.error_errno, EPROTO);
	agent_peer_close(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trees_come_through_both_ways),
		cmocka_unit_test(a_large_file_comes_through_both_ways),
		cmocka_unit_test(stat_describes_what_is_there),
		cmocka_unit_test(put_needs_its_directory),
		cmocka_unit_test(put_gives_things_to_their_owner),
		cmocka_unit_test(a_hostile_stream_gets_nowhere),
		cmocka_unit_test(errors_come_while_data_is_still_sent),
		cmocka_unit_test(a_put_that_breaks_off_leaves_no_part_of_a_file),
		cmocka_unit_test(a_full_disk_is_reported),
		cmocka_unit_test(get_of_what_is_not_there_is_an_error_line),
		cmocka_unit_test(get_names_the_root_a_dot),
		cmocka_unit_test(frames_that_do_not_belong_end_a_put),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
