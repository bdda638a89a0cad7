/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restoring with a monitor that is this program itself (COFFER_VMM): it says that it is ready, takes disks and memory,
 * and has an agent that drops its first connection. What it was given is in files of the VM's directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/control_client.h"
#include "host/restore.h"
#include "host/snapshot_host.h"
#include "host/snapshot_record.h"
#include "host/sock.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/home.h"
#include "tests/harness/remote_blob.h"
#include "tests/harness/snapshot_vm.h"

/* ---- the monitor ---- */

static void note(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(const char *name, const char *fmt, ...)
{
	FILE *f = fopen(name, "a");
	va_list ap;

	va_start(ap, fmt);
	vfprintf(f, fmt, ap);
	va_end(ap);
	fclose(f);
}

static void serve_control(int listener)
{
	struct control_request q;
	struct control_reply r = { 0 };
	int conn = accept(listener, NULL, NULL), fd[64];
	size_t nfds = 0;

	if (fd_recv(conn, &q, sizeof(q), fd, 64, &nfds) != sizeof(q)) {
		close(conn);
		return;
	}
	r.seq = q.seq;
	if (le16_get(q.op) == CONTROL_DISK_ATTACH)
		note("attached", "%d:%d base %d top %d, %zu descriptors\n", (int)le64_get(q.arg[0]),
		     (int)le64_get(q.arg[1]),
		     (int)le64_get(q.arg[2]), (int)le64_get(q.arg[3]), nfds);
	if (le16_get(q.op) == CONTROL_RESTORE) {
		note("restored", "mode %d chain %d flags %d, %zu descriptors\n", (int)le64_get(q.arg[0]),
		     (int)le64_get(q.arg[1]),
		     (int)le64_get(q.arg[3]), nfds);
		if (le64_get(q.arg[2]) < 3 || le64_get(q.arg[2]) >= 1ull << 31)
			r.status = le32_make((uint32_t)-EINVAL);
		if (getenv("RESTORE_FAILS")) {
			r.status = le32_make((uint32_t)-EINVAL);
			strcpy(r.text, "state is damaged");
		}
	}
	if (le16_get(q.op) == CONTROL_CLOCK) {
		r.status = le32_make(getenv("COUNTER") ? 0 : (uint32_t)-ENOTSUP);
		r.value[CONTROL_CV_REALTIME_NS] = le64_make(1764488685000000000);
		r.value[CONTROL_CV_COUNTER] = le64_make(strtoull(getenv("COUNTER") ?: "0", NULL, 10));
		r.value[CONTROL_CV_KHZ] = le64_make(2000000);
	}
	send(conn, &r, sizeof(r), MSG_NOSIGNAL);
	if (le16_get(q.op) == CONTROL_KILL)
		_exit(0);
	if (le16_get(q.op) != CONTROL_DISK_ATTACH) /* those are kept open, as disks are */
		for (size_t i = 0; i < nfds; i++)
			close(fd[i]);
	close(conn);
}

static void read_line(int fd, char *out, size_t size)
{
	size_t n = 0;

	while (n < size - 1 && read(fd, out + n, 1) == 1 && out[n] != '\n')
		n++;
	out[n] = 0;
}

static void serve_agent(int listener)
{
	static int connections;
	int conn = accept(listener, NULL, NULL);
	char line[4096];

	if (connections++ > 0) {
		read_line(conn, line, sizeof(line));
		dprintf(conn, "OK 7\n");
		read_line(conn, line, sizeof(line));
		note("configured", "%s\n", line);
		if (getenv("AGENT_SILENT") && connections == 2) { /* dies over the first */
			close(conn);
			return;
		}
		if (getenv("AGENT_SLOW") && connections <= 1 + atoi(getenv("AGENT_SLOW")))
			usleep(20000);
		if (strstr(line, "\"counter\"") && getenv("AGENT_OLD"))
			dprintf(conn, "{\"error\":\"request: field 'counter' is not known\",\"errno\":95,\"code\":\"unsupported\"}\n");
		else
			dprintf(conn, "{\"ok\":true,\"clock_exact\":%s}\n", getenv("CLOCK_EXACT") ? "true" : "false");
	}
	close(conn);
}

static int monitor(int argc, char **argv)
{
	int ready = -1;

	for (int i = 1; i < argc; i++) {
		if (!strncmp(argv[i], "--dir=", 6) && chdir(argv[i] + 6) < 0)
			return 1;
		if (!strncmp(argv[i], "--ready-fd=", 11))
			ready = atoi(argv[i] + 11);
	}
	for (int i = 1; i < argc; i++)
		note("arguments", "%s\n", argv[i]);
	if (getenv("MONITOR_FAILS")) {
		dprintf(2, "coffer-vmm: no such machine\n");
		return 1;
	}
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct pollfd p[] = { { .fd = sock_listen_at(here, CONTROL_SOCKET, SOCK_SEQPACKET, NULL), .events = POLLIN },
			      { .fd = sock_listen_at(here, VMDIR_VSOCK, SOCK_STREAM, NULL), .events = POLLIN } };

	if (write(ready, "ready\n", 6) != 6)
		return 1;
	close(ready);
	while (poll(p, 2, -1) > 0) {
		if (p[0].revents)
			serve_control(p[0].fd);
		if (p[1].revents)
			serve_agent(p[1].fd);
	}
	return 1;
}

/* ---- a snapshot ---- */

static struct home home;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	setenv("COFFER_VMM", "/proc/self/exe", 1);
	setenv("COFFER_FETCH", "/bin/true", 1); /* it ends at once */
	unsetenv("RESTORE_FAILS");
	unsetenv("MONITOR_FAILS");
	unsetenv("AGENT_SLOW");
	unsetenv("AGENT_SILENT");
	unsetenv("AGENT_OLD");
	unsetenv("CLOCK_EXACT");
	unsetenv("COUNTER");
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	home_remove(&home);
	return 0;
}

static void write_file(const struct snapshot_draft *d, const char *name, mode_t mode)
{
	int fd = snapshot_draft_create(d, name, NULL);

	assert_int_equal(fd_write_full(fd, name, strlen(name)), 0);
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void add_layer(const struct snapshot_draft *d, struct snapshot_disk *disk)
{
	struct lsmt_info info;
	int fd = snapshot_draft_create(d, "disk0-0.lsmt", NULL), log = snapshot_draft_create(d, "log", NULL);

	assert_int_equal(lsmt_create(fd, log, MIB(1), NULL, NULL, NULL), 0);
	assert_int_equal(lsmt_seal_pair(fd, log, "it", NULL), 0);
	assert_int_equal(lsmt_inspect(fd, "it", &info, NULL), 0);
	disk->layer = calloc(1, sizeof(*disk->layer));
	disk->nlayers = 1;
	disk->layer[0] = (struct snapshot_layer){ .file = strdup("disk0-0.lsmt"), .size = info.file_size, .index_hash = info.index_hash };
	assert_int_equal(snapshot_digest_file(fd, "it", disk->layer[0].digest, NULL), 0);
	assert_int_equal(unlinkat(d->fd, "log", 0), 0);
	close(fd);
	close(log);
}

enum lowest { NO_LAYER, FAR_LAYER, NEAR_LAYER }; /* below the one that is a file: a remote one, or one the cache has */

static void add_remote(struct snapshot_disk *disk, bool whole)
{
	disk->layer = realloc(disk->layer, 2 * sizeof(*disk->layer));
	disk->layer[1] = disk->layer[0];
	disk->nlayers = 2;
	remote_blob_make(MIB(1), whole, &disk->layer[0]);
}

static void make_snapshot_on(const char *name, uint64_t level, mode_t mode, enum lowest lowest)
{
	struct snapshot_draft d;
	const char *kvm;
	struct snapshot_manifest m = {
		.version = strdup("1"), .id = "0123456789abcdef0123456789abcdef", .parent_path = strdup(""), .cpus = 2,
				.memory = MIB(64),
		.cmdline = strdup(""), .state = { 5, "0000000000000000" }, .ram = { 3, "" }, .ram_index = { 9,
													    "0000000000000000" },
		.level = level, .image = strdup("none"), .user = strdup("me"), .cwd = strdup("/srv"), .kernel =
				strdup("/k"), .hostname = strdup("h"),
	};

	snapshot_host_identify(&m.cpu, &kvm);
	m.kvm = strdup(kvm);
	assert_int_equal(snapshot_record_add_device(&m, "vsock,path=vsock.sock", NULL), 0);
	m.disk = calloc(1, sizeof(*m.disk));
	m.ndisks = 1;
	m.disk[0] = (struct snapshot_disk){ .kind = SNAPSHOT_DISK_LAYERS, .size = MIB(1), .path = strdup(""),
					    .image = strdup("") };
	assert_int_equal(snapshot_draft_begin(name, false, &d, NULL), 0);
	write_file(&d, SNAPSHOT_STATE, 0400);
	write_file(&d, SNAPSHOT_RAM, mode);
	write_file(&d, SNAPSHOT_RAM_INDEX, 0400);
	add_layer(&d, &m.disk[0]);
	if (lowest != NO_LAYER)
		add_remote(&m.disk[0], lowest == NEAR_LAYER);
	assert_int_equal(snapshot_draft_publish(&d, &m, false, NULL), 0);
	snapshot_draft_end(&d);
	snapshot_manifest_finish(&m);
}

static void make_snapshot(const char *name, uint64_t level, mode_t mode)
{
	make_snapshot_on(name, level, mode, NO_LAYER);
}

static int restore(struct launch *l, const char *name, const struct restore_options *o, struct err *err)
{
	struct restore_source src;
	int r = restore_source_open(name, &src, err);

	if (r == 0)
		r = restore_source_check(&src, err);
	if (r == 0)
		r = restore_shell_start(l, &src, o, &GUARDIAN_NONE, err);
	if (r == 0)
		r = restore_shell_wait(l, &src, -1, err);
	if (r == 0)
		r = restore_run(l, &src, o, err);
	if (r == 0 && !o->paused)
		r = restore_settle(l, -1, err);
	restore_source_close(&src);
	return r;
}

static const char *text_of(const struct launch *l, const char *name)
{
	static char *data;

	free(data);
	data = NULL;
	return vmdir_read_file(l->dir.fd, name, 65536, &data, NULL) < 0 ? "" : data;
}

/* ---- the tests ---- */

static void a_vm_gets_its_name_its_disks_and_its_memory(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true, .track = true };
	struct snapshot_manifest m;
	struct launch l;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_string_equal(l.dir.id, "work");
	assert_string_equal(text_of(&l, "attached"), "0:1 base 0 top 1, 3 descriptors\n");
	assert_string_equal(text_of(&l, "restored"), "mode 0 chain 1 flags 2, 3 descriptors\n");
	assert_non_null(strstr(text_of(&l, "arguments"), "blk,backend=layers,size=1048576"));
	assert_non_null(strstr(text_of(&l, "arguments"), "--memory=64M\n"));
	assert_non_null(strstr(text_of(&l, "arguments"), "--device\nvsock,path=vsock.sock\n"));
	assert_string_equal(l.image.cwd, "/srv");
	assert_int_equal(faccessat(l.dir.fd, VMDIR_READY, F_OK, 0), 0);
	assert_int_equal(snapshot_record_read(l.dir.fd, &m, NULL), 0);
	assert_string_equal(m.parent_id, "0123456789abcdef0123456789abcdef");
	assert_string_equal(m.disk[0].layer[0].file, "disk0-base0.lsmt");
	snapshot_manifest_finish(&m);
	assert_int_equal(launch_end(&l, false, NULL), 0);
}

static void a_disk_with_remote_layers_gets_all_of_them_from_the_start(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct snapshot_manifest m;
	struct launch l;
	int layer[2], table, remote, top[2];

	(void)s;
	launch_init(&l);
	make_snapshot_on("one", 0, 0400, FAR_LAYER);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	const char *disk = strstr(text_of(&l, "arguments"), "blk,backend=layers,");

	assert_non_null(disk);
	assert_int_equal(sscanf(disk, "blk,backend=layers,size=1048576,cache=unsafe,layers=%d~%d:%d,remote=%d,top=%d:%d", &layer[0], &table,
				&layer[1], &remote, &top[0], &top[1]), 6);
	assert_int_equal(faccessat(l.dir.fd, "attached", F_OK, 0), -1);
	assert_int_equal(snapshot_record_read(l.dir.fd, &m, NULL), 0);
	assert_true(snapshot_layer_is_remote(&m.disk[0].layer[0]));
	assert_string_equal(m.disk[0].layer[0].url, REMOTE_BLOB_URL);
	assert_string_equal(m.disk[0].layer[1].file, "disk0-base1.lsmt");
	snapshot_manifest_finish(&m);
	assert_int_equal(launch_end(&l, false, NULL), 0);
}

static void a_remote_layer_that_has_arrived_is_attached_like_a_file(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct snapshot_manifest m;
	struct launch l;

	(void)s;
	launch_init(&l);
	make_snapshot_on("one", 0, 0400, NEAR_LAYER);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_string_equal(text_of(&l, "attached"), "0:2 base 0 top 1, 4 descriptors\n");
	assert_null(strstr(text_of(&l, "arguments"), "remote="));
	assert_int_equal(snapshot_record_read(l.dir.fd, &m, NULL), 0);
	assert_string_equal(m.disk[0].layer[0].file, "disk0-base0.lsmt");
	assert_int_equal(strlen(m.disk[0].layer[0].sha256), SNAPSHOT_SHA256_LEN);
	snapshot_manifest_finish(&m);
	assert_int_equal(launch_end(&l, false, NULL), 0);
}

static void the_agent_is_told_until_it_answers(void **s)
{
	const struct restore_options o = { .id = "work_1", .keep = true };
	struct launch l;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	const char *text = text_of(&l, "configured");

	assert_non_null(strstr(text, "\"hostname\":\"work-1\""));
	assert_non_null(strstr(text, "\"entropy\":\""));
	assert_non_null(strstr(text, "\"clock_ns\":"));
	assert_null(strstr(text, "\"env\""));
	launch_end(&l, false, NULL);
}

static void a_clock_that_was_told_slowly_is_told_again(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;
	long long first, again;

	(void)s;
	setenv("AGENT_SLOW", "1", 1);
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	const char *text = text_of(&l, "configured"), *line = strchr(text, '\n');

	assert_int_equal(sscanf(text, "{\"op\":\"configure\",\"clock_ns\":%lld,", &first), 1);
	assert_non_null(line);
	assert_int_equal(sscanf(line, "\n{\"op\":\"configure\",\"clock_ns\":%lld}\n", &again), 1);
	assert_true(again > first);
	launch_end(&l, false, NULL);
}

static void a_guest_that_is_always_slow_is_told_the_clock_four_times(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;
	int lines = 0;

	(void)s;
	setenv("AGENT_SLOW", "99", 1);
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	for (const char *p = text_of(&l, "configured"); (p = strchr(p, '\n')); p++)
		lines++;
	assert_int_equal(lines, 4);
	launch_end(&l, false, NULL);
}

/* Or a request that is done late after all takes away the machine-id that a later one gave. */
static void told_again_the_guest_gets_the_same_identity(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	char first[129] = "", again[129] = "";
	struct launch l;

	(void)s;
	setenv("AGENT_SILENT", "1", 1);
	setenv("COUNTER", "77", 1);
	setenv("CLOCK_EXACT", "1", 1);
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	const char *text = text_of(&l, "configured"), *line = strchr(text, '\n');

	assert_non_null(line);
	assert_int_equal(sscanf(strstr(text, "\"entropy\""), "\"entropy\":\"%128[0-9a-f]\"", first), 1);
	assert_int_equal(sscanf(strstr(line, "\"entropy\""), "\"entropy\":\"%128[0-9a-f]\"", again), 1);
	assert_int_equal(strlen(first), 128);
	assert_string_equal(first, again);
	launch_end(&l, false, NULL);
}

static void a_clock_that_is_exact_is_told_once_with_the_counter(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;

	(void)s;
	setenv("AGENT_SLOW", "99", 1);
	setenv("COUNTER", "77", 1);
	setenv("CLOCK_EXACT", "1", 1);
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	const char *text = text_of(&l, "configured");

	assert_non_null(strstr(text, "\"clock_ns\":1764488685000000000,\"counter\":77,\"counter_khz\":2000000,"));
	assert_string_equal(strchr(text, '\n'), "\n");
	launch_end(&l, false, NULL);
}

static void an_agent_that_knows_no_counter_is_told_the_clock_alone(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;

	(void)s;
	setenv("AGENT_OLD", "1", 1);
	setenv("COUNTER", "77", 1);
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	const char *line = strchr(text_of(&l, "configured"), '\n');

	assert_non_null(strstr(line, "\"clock_ns\":"));
	assert_non_null(strstr(line, "\"hostname\":"));
	assert_null(strstr(line, "\"counter\""));
	launch_end(&l, false, NULL);
}

static void a_counter_that_has_no_number_in_json_is_not_told(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;

	(void)s;
	setenv("COUNTER", "9223372036854775808", 1);
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_null(strstr(text_of(&l, "configured"), "\"counter\""));
	launch_end(&l, false, NULL);
}

static void a_paused_one_settles_when_it_is_resumed(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true, .paused = true };
	struct launch l;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_string_equal(text_of(&l, "configured"), "");
	assert_int_not_equal(faccessat(l.dir.fd, VMDIR_READY, F_OK, 0), 0);
	assert_int_equal(restore_settle_resumed(&l.dir, NULL), 0);
	assert_string_not_equal(text_of(&l, "configured"), "");
	assert_int_equal(faccessat(l.dir.fd, VMDIR_READY, F_OK, 0), 0);
	assert_int_not_equal(faccessat(l.dir.fd, VMDIR_UNSETTLED, F_OK, 0), 0);
	launch_end(&l, false, NULL);
}

static void two_of_one_name_are_refused(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch a, b;
	struct err err = ERR_INIT;

	(void)s;
	launch_init(&a);
	launch_init(&b);
	make_snapshot("one", 0, 0400);
	assert_int_equal(restore(&a, "one", &o, NULL), 0);
	assert_int_equal(restore(&b, "one", &o, &err), -EEXIST);
	assert_non_null(strstr(err.text, "'work' is running"));
	launch_end(&b, false, NULL);
	assert_int_equal(faccessat(a.dir.fd, VMDIR_READY, F_OK, 0), 0);
	launch_end(&a, false, NULL);
}

static void what_the_monitor_says_about_damage_is_passed_on(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;
	struct err err = ERR_INIT;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	setenv("RESTORE_FAILS", "1", 1);
	assert_int_equal(restore(&l, "one", &o, &err), -EINVAL);
	assert_string_equal(err.text, "snapshot 'one': state is damaged");
	assert_int_equal(launch_end(&l, false, NULL), 0);
}

static void a_monitor_that_does_not_start_is_explained(void **s)
{
	const struct restore_options o = { .id = "work", .keep = true };
	struct launch l;
	struct err err = ERR_INIT;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 0, 0400);
	setenv("MONITOR_FAILS", "1", 1);
	assert_int_equal(restore(&l, "one", &o, &err), -EIO);
	assert_non_null(strstr(err.text, "no such machine"));
	launch_end(&l, false, NULL);
}

static void memory_that_others_can_write_is_not_mapped(void **s)
{
	struct restore_options o = { .id = "work", .keep = true };
	struct launch l;
	struct err err = ERR_INIT;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 0, 0600);
	assert_int_equal(restore(&l, "one", &o, &err), -EPERM);
	assert_non_null(strstr(err.text, "chmod a-w"));
	launch_end(&l, false, NULL);
	o.mode = RESTORE_EAGER;
	launch_init(&l);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_non_null(strstr(text_of(&l, "restored"), "mode 1 "));
	launch_end(&l, false, NULL);
}

static void compressed_memory_is_not_mapped(void **s)
{
	struct restore_options o = { .id = "work", .keep = true, .mode = RESTORE_MAP };
	struct launch l;
	struct err err = ERR_INIT;

	(void)s;
	launch_init(&l);
	make_snapshot("one", 3, 0400);
	assert_int_equal(restore(&l, "one", &o, &err), -EINVAL);
	assert_non_null(strstr(err.text, "compressed"));
	launch_end(&l, false, NULL);
}

/* The only one in the cache. */
static int open_order_file(void)
{
	char path[300];
	glob_t found;

	snprintf(path, sizeof(path), "%s/*/coffer/order/*", home.path);
	assert_int_equal(glob(path, 0, NULL, &found), 0);
	int fd = open(found.gl_pathv[0], O_RDWR | O_CLOEXEC);

	globfree(&found);
	assert_true(fd >= 0);
	return fd;
}

static void write_order(void)
{
	int fd = open_order_file();

	assert_int_equal(fd_pwrite_full(fd, "\0\0\0\0", 4, 0), 0);
	close(fd);
}

static void the_order_of_pages_is_recorded_once_and_then_used(void **s)
{
	struct restore_options o = { .id = "work", .keep = true, .mode = RESTORE_LAZY };
	struct launch l;

	(void)s;
	make_snapshot("one", 3, 0400);
	launch_init(&l);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_string_equal(text_of(&l, "restored"), "mode 2 chain 1 flags 8, 4 descriptors\n");
	launch_end(&l, false, NULL);
	write_order();
	launch_init(&l);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_string_equal(text_of(&l, "restored"), "mode 2 chain 1 flags 4, 4 descriptors\n");
	launch_end(&l, false, NULL);
}

static void an_order_that_was_never_written_is_recorded_again(void **s)
{
	struct restore_options o = { .id = "work", .keep = true, .mode = RESTORE_LAZY };
	struct launch l;

	(void)s;
	make_snapshot("one", 3, 0400);
	for (int i = 0; i < 2; i++) {
		launch_init(&l);
		assert_int_equal(restore(&l, "one", &o, NULL), 0);
		assert_string_equal(text_of(&l, "restored"), "mode 2 chain 1 flags 8, 4 descriptors\n");
		launch_end(&l, false, NULL);
	}
}

static void an_order_that_another_records_is_left_to_it(void **s)
{
	struct restore_options o = { .id = "work", .keep = true, .mode = RESTORE_LAZY };
	struct launch l;

	(void)s;
	make_snapshot("one", 3, 0400);
	launch_init(&l);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	launch_end(&l, false, NULL);
	int fd = open_order_file();

	assert_int_equal(flock(fd, LOCK_EX), 0);
	launch_init(&l);
	assert_int_equal(restore(&l, "one", &o, NULL), 0);
	assert_string_equal(text_of(&l, "restored"), "mode 2 chain 1 flags 4, 4 descriptors\n");
	launch_end(&l, false, NULL);
	close(fd);
}

static void a_layer_that_was_changed_is_refused(void **s)
{
	struct restore_options o = { .id = "work" };
	struct launch l;
	struct err err = ERR_INIT;
	char path[300];
	struct stat st;

	(void)s;
	make_snapshot("one", 0, 0400);
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/one/disk0-0.lsmt", home.path);
	assert_int_equal(stat(path, &st), 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_int_equal(fd_pwrite_full(fd, "x", 1, 40), 0);
	close(fd);
	launch_init(&l);
	assert_true(restore(&l, "one", &o, &err) < 0);
	assert_non_null(strstr(err.text, "disk0-0.lsmt"));
	launch_end(&l, false, NULL);
}

static void name_a_parent(struct snapshot_manifest *m)
{
	strcpy(m->parent_id, "ffffffffffffffffffffffffffffffff");
	free(m->parent_path);
	m->parent_path = strdup("mother");
}

static void a_parent_that_is_not_there_is_named(void **s)
{
	struct restore_source src;
	struct err err = ERR_INIT;

	(void)s;
	make_snapshot("one", 0, 0400);
	snapshot_vm_change("one", name_a_parent);
	assert_int_equal(restore_source_open("one", &src, &err), -ENOENT);
	assert_non_null(strstr(err.text, "is a diff, and its parent (id ffffffffffffffffffffffffffffffff, then at mother)"));
}

static char base_path[300];

static void name_a_base(struct snapshot_manifest *m)
{
	int fd = open(base_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, MIB(1)), 0);
	free(m->disk[0].path);
	m->disk[0].path = strdup(base_path);
	assert_int_equal(vm_disk_file_facts(fd, &m->disk[0].path_size, &m->disk[0].path_mtime_ns), 0);
	close(fd);
}

static void a_base_that_has_changed_is_named(void **s)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1000000000 } };
	struct restore_source src;
	struct err err = ERR_INIT;

	(void)s;
	snprintf(base_path, sizeof(base_path), "%s/base", home.path);
	make_snapshot("one", 0, 0400);
	snapshot_vm_change("one", name_a_base);
	assert_int_equal(restore_source_open("one", &src, NULL), 0);
	assert_int_equal(restore_source_check(&src, &err), 0);
	assert_int_equal(utimensat(AT_FDCWD, base_path, times, 0), 0);
	assert_int_equal(restore_source_check(&src, &err), -ESTALE);
	assert_non_null(strstr(err.text, base_path));
	assert_int_equal(unlink(base_path), 0);
	assert_int_equal(restore_source_check(&src, &err), -ENOENT);
	assert_non_null(strstr(err.text, base_path));
	restore_source_close(&src);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_vm_gets_its_name_its_disks_and_its_memory),
		T(a_disk_with_remote_layers_gets_all_of_them_from_the_start),
		T(a_remote_layer_that_has_arrived_is_attached_like_a_file),
		T(the_agent_is_told_until_it_answers),
		T(a_clock_that_was_told_slowly_is_told_again),
		T(a_guest_that_is_always_slow_is_told_the_clock_four_times),
		T(told_again_the_guest_gets_the_same_identity),
		T(a_clock_that_is_exact_is_told_once_with_the_counter),
		T(an_agent_that_knows_no_counter_is_told_the_clock_alone),
		T(a_counter_that_has_no_number_in_json_is_not_told),
		T(a_paused_one_settles_when_it_is_resumed),
		T(two_of_one_name_are_refused),
		T(what_the_monitor_says_about_damage_is_passed_on),
		T(a_monitor_that_does_not_start_is_explained),
		T(memory_that_others_can_write_is_not_mapped),
		T(compressed_memory_is_not_mapped),
		T(the_order_of_pages_is_recorded_once_and_then_used),
		T(an_order_that_was_never_written_is_recorded_again),
		T(an_order_that_another_records_is_left_to_it),
		T(a_layer_that_was_changed_is_refused),
		T(a_parent_that_is_not_there_is_named),
		T(a_base_that_has_changed_is_named),
	};

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--restore"))
			return monitor(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
