/* SPDX-License-Identifier: Apache-2.0 */
/* Files and trees to a real agent and back, where things land, and a guest that sends what nobody asked for. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/copy.h"
#include "host/copy_internal.h"
#include "host/file.h"
#include "lib/fd.h"
#include "lib/tar.h"
#include "tests/harness/agent.h"
#include "tests/harness/home.h"

static struct home home;
static struct test_agent agent;
static struct copy_guest guest = { .connect = test_agent_connect, .arg = &agent };

static int start(void **s)
{
	(void)s;
	home_make(&home);
	test_agent_start(&agent, &home);
	return 0;
}

static int stop(void **s)
{
	(void)s;
	test_agent_stop(&agent);
	home_remove(&home);
	return 0;
}

static char *in_home(const char *below)
{
	static char path[4][256];
	static unsigned next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", home.path, below);
	return p;
}

/* Two directories: the host's and the guest's. Both are on this machine: the agent serves a Unix socket. */
static int fresh(void **s)
{
	(void)s;
	file_remove_tree(AT_FDCWD, in_home("host"));
	file_remove_tree(AT_FDCWD, in_home("guest"));
	return mkdir(in_home("host"), 0755) | mkdir(in_home("guest"), 0755);
}

static void make(const char *below, const char *text, mode_t mode)
{
	assert_int_equal(file_write_atomic(in_home(below), text, strlen(text), mode, false, NULL), 0);
	assert_int_equal(chmod(in_home(below), mode), 0);
}

static void expect(const char *below, const char *text, mode_t mode)
{
	uint8_t *data = NULL;
	size_t n;
	struct stat st;

	assert_int_equal(file_read(in_home(below), 1 << 20, &data, &n, NULL), 0);
	assert_string_equal((char *)data, text);
	free(data);
	assert_int_equal(lstat(in_home(below), &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 07777, mode);
}

static bool exists(const char *below)
{
	struct stat st;

	return lstat(in_home(below), &st) == 0;
}

static void a_file_goes_in_under_its_name_into_a_directory(void **s)
{
	(void)s;
	make("host/f", "x", 0751);
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest"), NULL), 0);
	expect("guest/f", "x", 0751);
}

static void a_file_goes_in_under_another_name(void **s)
{
	(void)s;
	make("host/f", "x", 0600);
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest/g"), NULL), 0);
	expect("guest/g", "x", 0600);
	make("host/f", "longer", 0644);
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest/g"), NULL), 0);
	expect("guest/g", "longer", 0644);
}

static void a_tree_goes_in_and_comes_out_the_same(void **s)
{
	struct stat st;
	char link[16] = "";

	(void)s;
	mkdir(in_home("host/t"), 0755);
	mkdir(in_home("host/t/d"), 0700);
	make("host/t/d/f", "deep", 0400);
	make("host/t/exe", "#!", 04755);
	assert_int_equal(symlink("d/f", in_home("host/t/l")), 0);
	assert_int_equal(copy_in(&guest, in_home("host/t"), in_home("guest/t"), NULL), 0);
	expect("guest/t/d/f", "deep", 0400);
	expect("guest/t/exe", "#!", 04755);
	assert_int_equal(copy_out(&guest, in_home("guest/t"), in_home("host/back"), NULL), 0);
	expect("host/back/d/f", "deep", 0400);
	expect("host/back/exe", "#!", 04755);
	assert_int_equal(stat(in_home("host/back/d"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat(in_home("host/back"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(readlink(in_home("host/back/l"), link, sizeof(link)), 3);
	assert_string_equal(link, "d/f");
}

static void a_tree_lands_in_a_directory_that_exists(void **s)
{
	(void)s;
	mkdir(in_home("host/t"), 0755);
	make("host/t/f", "x", 0644);
	assert_int_equal(copy_in(&guest, in_home("host/t"), in_home("guest"), NULL), 0);
	expect("guest/t/f", "x", 0644);
	mkdir(in_home("host/to"), 0755);
	assert_int_equal(copy_out(&guest, in_home("guest/t"), in_home("host/to"), NULL), 0);
	expect("host/to/t/f", "x", 0644);
}

static void a_dot_at_the_end_means_the_content(void **s)
{
	(void)s;
	mkdir(in_home("host/t"), 0755);
	make("host/t/f", "x", 0644);
	assert_int_equal(copy_in(&guest, in_home("host/t/."), in_home("guest"), NULL), 0);
	expect("guest/f", "x", 0644);
	mkdir(in_home("host/to"), 0755);
	assert_int_equal(copy_out(&guest, in_home("guest/."), in_home("host/to"), NULL), 0);
	expect("host/to/f", "x", 0644);
}

static void a_directory_that_exists_is_merged_into(void **s)
{
	(void)s;
	mkdir(in_home("guest/t"), 0755);
	make("guest/t/new", "n", 0644);
	mkdir(in_home("host/t"), 0755);
	make("host/t/old", "o", 0644);
	assert_int_equal(copy_out(&guest, in_home("guest/t"), in_home("host"), NULL), 0);
	expect("host/t/new", "n", 0644);
	expect("host/t/old", "o", 0644);
}

static void a_link_that_is_named_is_followed(void **s)
{
	(void)s;
	make("host/f", "x", 0644);
	assert_int_equal(symlink("f", in_home("host/l")), 0);
	assert_int_equal(copy_in(&guest, in_home("host/l"), in_home("guest"), NULL), 0);
	expect("guest/l", "x", 0644);
	assert_int_equal(symlink("l", in_home("guest/m")), 0);
	assert_int_equal(copy_out(&guest, in_home("guest/m"), in_home("host"), NULL), 0);
	expect("host/m", "x", 0644);
}

static void a_file_that_is_a_link_here_is_written_through(void **s)
{
	(void)s;
	make("guest/f", "new", 0644);
	make("host/real", "old", 0644);
	assert_int_equal(symlink("real", in_home("host/l")), 0);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host/l"), NULL), 0);
	expect("host/real", "new", 0644);
}

static void an_empty_file_and_an_empty_directory_arrive(void **s)
{
	struct stat st;

	(void)s;
	make("host/f", "", 0644);
	mkdir(in_home("host/d"), 0711);
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest"), NULL), 0);
	assert_int_equal(copy_in(&guest, in_home("host/d"), in_home("guest"), NULL), 0);
	expect("guest/f", "", 0644);
	assert_int_equal(stat(in_home("guest/d"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
}

static void a_large_file_compares_equal_there_and_back(void **s)
{
	enum { N = 9 << 20 };
	uint8_t *data = malloc(N), *back = NULL;
	size_t n;

	(void)s;
	for (size_t at = 0; at < N; at += 4096)
		assert_int_equal(getrandom(data + at, 4096, 0), 4096);
	assert_int_equal(file_write_atomic(in_home("host/f"), data, N - 5, 0644, false, NULL), 0);
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest/f"), NULL), 0);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host/g"), NULL), 0);
	assert_int_equal(file_read(in_home("host/g"), N, &back, &n, NULL), 0);
	assert_int_equal(n, N - 5);
	assert_memory_equal(back, data, n);
	free(data);
	free(back);
}

static void files_whose_size_says_nothing_arrive_whole(void **s)
{
	(void)s;
	uint8_t *want, *got;
	size_t n;
	static const char *const paths[] = { "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled" };

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		char want_path[256];
		int fd = open(paths[i], O_RDONLY);

		assert_true(fd >= 0);
		want = calloc(1, 4096);
		assert_true(read(fd, want, 4095) > 0);
		close(fd);
		snprintf(want_path, sizeof(want_path), "%s", paths[i]);
		assert_int_equal(copy_in(&guest, want_path, in_home("guest/v"), NULL), 0);
		assert_int_equal(copy_out(&guest, want_path, in_home("host/v"), NULL), 0);
		for (int side = 0; side < 2; side++) {
			assert_int_equal(file_read(in_home(side ? "guest/v" : "host/v"), 1 << 20, &got, &n, NULL), 0);
			assert_int_equal(n, strlen((char *)want));
			assert_memory_equal(got, want, n);
			free(got);
		}
		free(want);
	}
}

static void times_are_kept(void **s)
{
	const struct timespec t[2] = { { 1000000000, 0 }, { 1234567890, 0 } };
	struct stat st;

	(void)s;
	make("host/f", "x", 0644);
	assert_int_equal(utimensat(AT_FDCWD, in_home("host/f"), t, 0), 0);
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest/f"), NULL), 0);
	assert_int_equal(stat(in_home("guest/f"), &st), 0);
	assert_int_equal(st.st_mtime, 1234567890);
}

static void errors_name_what_is_wrong(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	make("host/f", "x", 0644);
	mkdir(in_home("host/d"), 0755);
	make("guest/f", "x", 0644);
	assert_int_equal(copy_in(&guest, in_home("host/none"), in_home("guest"), &err), -ENOENT);
	assert_non_null(strstr(err.text, "host/none"));
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest/no/f"), &err), -ENOENT);
	assert_non_null(strstr(err.text, "guest/no"));
	assert_int_equal(copy_in(&guest, in_home("host/f"), in_home("guest/new/"), &err), -ENOENT);
	assert_int_equal(copy_in(&guest, in_home("host/d"), in_home("guest/f"), &err), -ENOTDIR);
	assert_int_equal(copy_out(&guest, in_home("guest/none"), in_home("host"), &err), -ENOENT);
	assert_non_null(strstr(err.text, "guest/none"));
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host/no/f"), &err), -ENOENT);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host/new/"), &err), -ENOENT);
	assert_int_equal(copy_out(&guest, in_home("guest"), in_home("host/f"), &err), -ENOTDIR);
}

static void what_a_killed_copy_left_is_removed_by_the_next(void **s)
{
	(void)s;
	make("guest/f", "x", 0644);
	mkdir(in_home("host/.coffer-cp-abc123"), 0700);
	make("host/.coffer-cp-abc123/file", "half", 0600);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host"), NULL), 0);
	assert_false(exists("host/.coffer-cp-abc123"));
	expect("host/f", "x", 0644);
}

static void what_a_copy_still_uses_is_not_removed_by_another(void **s)
{
	char name[COPY_TEMP_NAME], below[64];
	int parent = open(in_home("host"), O_RDONLY | O_DIRECTORY);
	int temp = copy_temp_make(parent, in_home("host"), name, NULL);

	(void)s;
	assert_true(parent >= 0 && temp >= 0);
	snprintf(below, sizeof(below), "host/%s", name);
	make("guest/f", "x", 0644);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host"), NULL), 0);
	assert_true(exists(below));
	close(temp);
	copy_temp_sweep(parent);
	assert_false(exists(below));
	close(parent);
}

static void what_only_looks_like_a_left_over_is_kept(void **s)
{
	(void)s;
	make("guest/f", "x", 0644);
	mkdir(in_home("host/.coffer-cp-public"), 0755);
	mkdir(in_home("host/.coffer-cp-longer-name"), 0700);
	make("host/.coffer-cp-a-file", "x", 0700);
	assert_int_equal(symlink("d", in_home("host/.coffer-cp-a-link")), 0);
	mkdir(in_home("host/d"), 0700);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host"), NULL), 0);
	assert_true(exists("host/.coffer-cp-public") && exists("host/.coffer-cp-longer-name"));
	assert_true(exists("host/.coffer-cp-a-file") && exists("host/.coffer-cp-a-link") && exists("host/d"));
}

static void a_device_there_is_called_one(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(copy_out(&guest, "/dev/null", in_home("host"), &err), -EINVAL);
	assert_string_equal(err.text, "'/dev/null' in the guest is a character device and is not copied");
}

static void what_cannot_be_made_there_is_named_in_full(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	make("host/f", "x", 0644);
	assert_int_equal(copy_in(&guest, in_home("host/f"), "/proc/x", &err), -ENOENT);
	assert_string_equal(err.text, "in the guest: unpack '/proc/x': create: No such file or directory");
}

static void what_cannot_be_read_there_is_named_in_full(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(copy_out(&guest, "/proc/self/pagemap", in_home("host"), &err), -EFBIG);
	assert_non_null(strstr(err.text, "'/proc/self/pagemap'"));
}

static void a_device_here_is_never_replaced(void **s)
{
	struct err err = ERR_INIT;
	struct stat st;

	(void)s;
	make("guest/f", "x", 0644);
	assert_int_equal(mkfifo(in_home("host/fifo"), 0600), 0);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host/fifo"), &err), -EINVAL);
	assert_int_equal(lstat(in_home("host/fifo"), &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
}

/* ---- links that an earlier copy left ---- */

/* guest/out/sl was a link out of the target when out was copied to host/target; now it is a directory with a file. */
static void leave_a_link(void)
{
	mkdir(in_home("host/victim"), 0755);
	mkdir(in_home("guest/out"), 0755);
	assert_int_equal(symlink(in_home("host/victim"), in_home("guest/out/sl")), 0);
	assert_int_equal(copy_out(&guest, in_home("guest/out"), in_home("host/target"), NULL), 0);
	assert_int_equal(unlink(in_home("guest/out/sl")), 0);
	mkdir(in_home("guest/out/sl"), 0755);
	make("guest/out/sl/f", "bad", 0644);
}

static void a_directory_does_not_go_through_a_link_that_an_earlier_copy_left(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	leave_a_link();
	assert_int_equal(copy_out(&guest, in_home("guest/out/sl"), in_home("host/target"), &err), -ENOTDIR);
	assert_non_null(strstr(err.text, "host/target/sl' is a symbolic link and not a directory: remove it first"));
	assert_int_equal(rmdir(in_home("host/victim")), 0); /* so it is empty */
}

static void a_tree_does_not_go_through_a_link_that_an_earlier_copy_left(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	leave_a_link();
	assert_true(copy_out(&guest, in_home("guest/out/."), in_home("host/target"), &err) < 0);
	assert_non_null(strstr(err.text, "symbolic link"));
	assert_non_null(strstr(err.text, "remove it first"));
	assert_int_equal(rmdir(in_home("host/victim")), 0);
}

static void a_file_takes_the_place_of_a_link_that_an_earlier_copy_left(void **s)
{
	(void)s;
	leave_a_link();
	make("host/victim/v", "precious", 0644);
	assert_int_equal(symlink("../victim/v", in_home("host/target/f")), 0);
	assert_int_equal(copy_out(&guest, in_home("guest/out/sl/f"), in_home("host/target"), NULL), 0);
	expect("host/victim/v", "precious", 0644);
	expect("host/target/f", "bad", 0644);
}

static void a_file_never_takes_the_place_of_a_directory(void **s)
{
	(void)s;
	make("guest/f", "x", 0644);
	mkdir(in_home("host/f"), 0755);
	assert_int_equal(copy_out(&guest, in_home("guest/f"), in_home("host"), NULL), -EISDIR);
	assert_int_equal(rmdir(in_home("host/f")), 0);
	assert_int_equal(rmdir(in_home("host")), 0);
}

static void a_directory_that_the_user_named_may_be_a_link(void **s)
{
	(void)s;
	mkdir(in_home("host/d"), 0755);
	assert_int_equal(symlink("d", in_home("host/l")), 0);
	mkdir(in_home("guest/t"), 0755);
	make("guest/t/f", "x", 0644);
	assert_int_equal(copy_out(&guest, in_home("guest/t"), in_home("host/l"), NULL), 0);
	expect("host/d/t/f", "x", 0644);
	assert_int_equal(copy_out(&guest, in_home("guest/t/."), in_home("host/l"), NULL), 0);
	expect("host/d/f", "x", 0644);
}

/* ---- a hostile guest ---- */

struct stream {
	uint8_t data[64 * 1024];
	size_t n;
};

static void add_entry(struct stream *t, enum tar_type type, const char *name, const char *link_or_text)
{
	struct tar_entry *e = calloc(1, sizeof(*e));

	e->type = type;
	e->mode = 0777;
	snprintf(e->name, sizeof(e->name), "%s", name);
	if (type == TAR_FILE)
		e->size = strlen(link_or_text);
	else if (link_or_text)
		snprintf(e->link, sizeof(e->link), "%s", link_or_text);
	ssize_t n = tar_header_make(e, t->data + t->n, sizeof(t->data) - t->n);

	assert_true(n > 0);
	t->n += (size_t)n;
	if (e->size) {
		memcpy(t->data + t->n, link_or_text, e->size);
		t->n += 512;
	}
	free(e);
}

struct hostile {
	const char *stat_reply;
	struct stream *stream;
	bool no_end;
};

static void serve(int fd, const struct hostile *h)
{
	char request[1024] = "", c = 0;

	for (size_t n = 0; c != '\n' && n < sizeof(request) - 1 && read(fd, &c, 1) == 1; n++)
		request[n] = c;
	if (strstr(request, "\"stat\"")) {
		fd_write_full(fd, h->stat_reply, strlen(h->stat_reply));
	} else {
		struct agent_frame f = { .length = le32_make((uint32_t)h->stream->n), .type = AGENT_DATA };

		fd_write_full(fd, "{\"ok\":true}\n", 12);
		fd_write_full(fd, &f, sizeof(f));
		fd_write_full(fd, h->stream->data, h->stream->n);
		if (!h->no_end)
			fd_write_full(fd, "\0\0\0\0\7\0\0\0\10\0\0\0\4\0\0\0\0\0\0\0\0\0\0\0", 24);
	}
	shutdown(fd, SHUT_WR);
	while (read(fd, request, sizeof(request)) > 0)
		;
	_exit(0);
}

static int connect_hostile(void *arg, struct agent_conn **ret, struct err *err)
{
	int pair[2];

	signal(SIGCHLD, SIG_IGN); /* nobody waits for them */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	if (fork() == 0) {
		close(pair[0]);
		serve(pair[1], arg);
	}
	close(pair[1]);
	return agent_conn_new(pair[0], ret, err);
}

static int get_hostile(struct hostile *h, const char *target)
{
	struct copy_guest g = { .connect = connect_hostile, .arg = h };
	struct err err = ERR_INIT;
	return copy_out(&g, "/thing", in_home(target), &err);
}

#define STAT_FILE "{\"ok\":true,\"type\":\"file\",\"size\":3}\n"
#define STAT_DIR "{\"ok\":true,\"type\":\"dir\",\"size\":0}\n"

static void a_tree_cannot_leave_its_target(void **s)
{
	static const char *const names[] = { "../evil", "/evil", "./../evil", "a/../../evil", "up/evil", "here/../../evil" };

	(void)s;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		static struct stream t;
		struct hostile h = { STAT_DIR, &t, false };

		t.n = 0;
		add_entry(&t, TAR_DIR, ".", NULL);
		add_entry(&t, TAR_SYMLINK, "up", "..");
		add_entry(&t, TAR_SYMLINK, "here", ".");
		add_entry(&t, TAR_FILE, names[i], "bad");
		get_hostile(&h, "host/t");
		assert_false(exists("host/evil"));
		assert_false(exists("evil"));
		assert_int_not_equal(access("/evil", F_OK), 0);
	}
}

static void a_file_gets_the_name_that_was_asked_for(void **s)
{
	static struct stream t;
	struct hostile h = { STAT_FILE, &t, false };

	(void)s;
	t.n = 0;
	add_entry(&t, TAR_FILE, ".bashrc", "bad");
	assert_int_equal(get_hostile(&h, "host/f"), -EPROTO);
	assert_false(exists("host/.bashrc"));
	assert_false(exists("host/f"));
	t.n = 0;
	add_entry(&t, TAR_SYMLINK, "file", "/etc/passwd");
	assert_int_equal(get_hostile(&h, "host/f"), -EPROTO);
	assert_false(exists("host/f"));
}

static void nothing_is_left_of_a_file_that_did_not_come_whole(void **s)
{
	static struct stream t;
	struct hostile h = { STAT_FILE, &t, true };

	(void)s;
	t.n = 0;
	add_entry(&t, TAR_FILE, "file", "bad");
	t.n -= 512;
	assert_true(get_hostile(&h, "host/f") < 0);
	assert_false(exists("host/f"));
	assert_int_equal(rmdir(in_home("host")), 0); /* so it is empty */
}

static void a_thing_without_content_is_refused(void **s)
{
	static struct stream t;
	struct hostile h = { "{\"ok\":true,\"type\":\"socket\"}\n", &t, false };

	(void)s;
	assert_int_equal(get_hostile(&h, "host/f"), -EINVAL);
}

#define T(name) cmocka_unit_test_setup(name, fresh)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_file_goes_in_under_its_name_into_a_directory),
		T(a_file_goes_in_under_another_name),
		T(a_tree_goes_in_and_comes_out_the_same),
		T(a_tree_lands_in_a_directory_that_exists),
		T(a_dot_at_the_end_means_the_content),
		T(a_directory_that_exists_is_merged_into),
		T(a_link_that_is_named_is_followed),
		T(a_file_that_is_a_link_here_is_written_through),
		T(an_empty_file_and_an_empty_directory_arrive),
		T(a_large_file_compares_equal_there_and_back),
		T(files_whose_size_says_nothing_arrive_whole),
		T(times_are_kept),
		T(errors_name_what_is_wrong),
		T(what_a_killed_copy_left_is_removed_by_the_next),
		T(what_a_copy_still_uses_is_not_removed_by_another),
		T(what_only_looks_like_a_left_over_is_kept),
		T(a_device_there_is_called_one),
		T(what_cannot_be_made_there_is_named_in_full),
		T(what_cannot_be_read_there_is_named_in_full),
		T(a_device_here_is_never_replaced),
		T(a_directory_does_not_go_through_a_link_that_an_earlier_copy_left),
		T(a_tree_does_not_go_through_a_link_that_an_earlier_copy_left),
		T(a_file_takes_the_place_of_a_link_that_an_earlier_copy_left),
		T(a_file_never_takes_the_place_of_a_directory),
		T(a_directory_that_the_user_named_may_be_a_link),
		T(a_tree_cannot_leave_its_target),
		T(a_file_gets_the_name_that_was_asked_for),
		T(nothing_is_left_of_a_file_that_did_not_come_whole),
		T(a_thing_without_content_is_refused),
	};

	return cmocka_run_group_tests(tests, start, stop);
}
