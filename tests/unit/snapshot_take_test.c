/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking snapshots of a VM whose monitor is a program of this test: it has the disk's pair open, takes new pairs, seals
 * old ones, or fails at one of the moments where a real one can.
 */
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/control_client.h"
#include "host/launch_disks.h"
#include "host/snapshot_flatten.h"
#include "host/snapshot_record.h"
#include "host/snapshot_take.h"
#include "host/sock.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/home.h"
#include "tests/harness/remote_blob.h"

enum behaviour { GOOD, REFUSES, FAILS_AFTER_THE_CUT, FAILS_TO_SEAL, IS_AT_IT };

static struct home home;
static struct launch vm;

/* ---- the monitor ---- */

struct monitor {
	int data, index; /* the top */
	int old[16];     /* data files of layers: kept open, as a monitor does */
	size_t nold;
	uint8_t id;
	bool tracking, paused;
};

static int write_files(int *fd)
{
	return fd_write_full(fd[0], "state", 5) | fd_write_full(fd[1], "ram", 3) | fd_write_full(fd[2], "index", 5);
}

static int snapshot(struct monitor *m, const struct control_request *q, int *fd, size_t nfds, enum behaviour how,
		    struct control_reply *r)
{
	int old_index = m->index;

	if (how == REFUSES || nfds != 5 || le64_get(q->arg[2]) != 1 || (le64_get(q->arg[0]) & CONTROL_SNAPSHOT_DIFF &&
									!m->tracking)) {
		for (size_t i = 0; i < nfds; i++)
			close(fd[i]);
		return -ENOSPC;
	}
	if (how == IS_AT_IT) { /* before the cut: the pair is open, and not yet the top */
		m->old[m->nold++] = fd[3];
		for (int i = 0; i < 5; i++)
			if (i != 3)
				close(fd[i]);
		return -ECANCELED;
	}
	m->old[m->nold++] = m->data;
	m->data = fd[3];
	m->index = fd[4];
	int status = how == FAILS_TO_SEAL ? 0 : lsmt_seal_pair(m->old[m->nold - 1], old_index, "old", NULL);

	if (status == 0)
		status = write_files(fd);
	close(old_index);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
	if (how == FAILS_AFTER_THE_CUT || how == FAILS_TO_SEAL)
		return -ENOSPC;
	r->value[CONTROL_SV_PARENT_LOW] = le64_make(le64_get(q->arg[0]) & CONTROL_SNAPSHOT_DIFF ? m->id : 0);
	r->value[CONTROL_SV_ID_LOW] = le64_make(++m->id);
	r->value[CONTROL_SV_PAUSE_NS] = le64_make(1234);
	m->tracking = le64_get(q->arg[0]) & CONTROL_SNAPSHOT_TRACK;
	return status;
}

/* Each request for a snapshot is served as the next byte of the pipe says. */
static void __attribute__((noreturn)) serve(struct monitor *m, int listener, int how_fd)
{
	for (;;) {
		struct control_request q;
		struct control_reply r = { 0 };
		int conn = accept(listener, NULL, NULL), fd[8], status = 0;
		size_t nfds = 0;

		if (fd_recv(conn, &q, sizeof(q), fd, 8, &nfds) == sizeof(q)) {
			r.seq = q.seq;
			if (le16_get(q.op) == CONTROL_PAUSE || le16_get(q.op) == CONTROL_RESUME)
				m->paused = le16_get(q.op) == CONTROL_PAUSE;
			r.value[CONTROL_V_STATE] = le64_make(m->paused ? VM_PAUSED : VM_RUNNING);
			if (le16_get(q.op) == CONTROL_SNAPSHOT) {
				uint8_t how = 0;

				if (read(how_fd, &how, 1) != 1)
					_exit(1);
				status = snapshot(m, &q, fd, nfds, (enum behaviour)how, &r);
			}
			r.status = le32_make((uint32_t)status);
			send(conn, &r, sizeof(r), MSG_NOSIGNAL);
		}
		close(conn);
	}
}

static int how_fd;
static pid_t monitor_pid;

static int set_up(void **s)
{
	struct launch_options o = { .cpus = 1, .memory = MIB(64) };
	char disk[200], option[220];
	int pipes[2];

	(void)s;
	home_make(&home);
	snprintf(disk, sizeof(disk), "%s/disk", home.path);
	int fd = open(disk, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	assert_int_equal(ftruncate(fd, MIB(1)), 0);
	close(fd);
	snprintf(option, sizeof(option), "%s,cow", disk);
	o.disks = (struct opt_strv){ { option }, 1 };
	launch_init(&vm);
	assert_int_equal(vmdir_create("vm", &vm.dir, NULL), 0);
	const struct vm_config c = { .cpus = 1, .memory = MIB(64), .image = (char[]){ "none" } };

	assert_int_equal(vmdir_write_config(&vm.dir, &c, NULL), 0);
	assert_int_equal(launch_disks_make(&vm, &o, NULL), 0);
	o.image = (char[]){ "none" };
	assert_int_equal(launch_disks_record(&vm, &o, NULL), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	int listener = sock_listen_at(vm.dir.fd, CONTROL_SOCKET, SOCK_SEQPACKET, NULL);

	monitor_pid = fork();
	if (monitor_pid == 0) {
		struct monitor m = { .data = vm.disks.disk[0]->top_data_fd, .index = vm.disks.disk[0]->top_index_fd };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipes[1]);
		serve(&m, listener, pipes[0]);
	}
	close(listener);
	close(pipes[0]);
	how_fd = pipes[1];
	vm_disks_finish(&vm.disks);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	kill(monitor_pid, SIGKILL);
	waitpid(monitor_pid, NULL, 0);
	close(how_fd);
	launch_end(&vm, false, NULL);
	home_remove(&home);
	return 0;
}

static int take(const char *to, bool diff, enum behaviour how, struct err *err)
{
	struct snapshot_take t = { .to = to, .diff = diff, .track = true };
	struct vm_handle handle;
	uint8_t byte = (uint8_t)how;

	assert_int_equal(write(how_fd, &byte, 1), 1);
	assert_int_equal(vm_open("vm", &handle, NULL), 0);
	int r = snapshot_take(&handle, &t, err);

	if (r == 0)
		assert_int_equal(snapshot_draft_publish(&t.draft, &t.m, false, NULL), 0);
	if (r == 0)
		assert_int_equal(snapshot_take_remember(&handle, &t, NULL), 0);
	snapshot_take_finish(&t);
	vm_close(&handle);
	return r;
}

static size_t layers_of(const char *name)
{
	struct snapshot s;

	assert_int_equal(snapshot_open(name, &s, NULL), 0);
	size_t n = s.m.disk[0].nlayers;

	for (size_t i = 0; i < n; i++) {
		const struct snapshot_layer *l = &s.m.disk[0].layer[i];
		int fd = snapshot_open_file(&s, l->file, l->size, NULL);
		char digest[SNAPSHOT_DIGEST_LEN + 1];
		struct lsmt_info info;

		assert_true(fd >= 0);
		assert_int_equal(lsmt_inspect(fd, "layer", &info, NULL), 0);
		assert_int_equal(info.index_hash, l->index_hash);
		assert_int_equal(snapshot_digest_file(fd, "layer", digest, NULL), 0);
		assert_string_equal(digest, l->digest);
		close(fd);
	}
	snapshot_close(&s);
	return n;
}

static unsigned generations(unsigned *last)
{
	unsigned g[VM_DISK_GENERATIONS_MAX];
	int n = vm_disk_generations(vm.dir.disk_dir_fd, 0, g, NULL);

	assert_true(n > 0);
	*last = g[n - 1];
	return (unsigned)n;
}

/* ---- the tests ---- */

static void each_snapshot_adds_the_layer_that_was_the_top(void **s)
{
	unsigned last;

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("one"), 1);
	assert_int_equal(layers_of("two"), 2);
	assert_int_equal(generations(&last), 3);
	assert_int_equal(last, 2);
}

static void layers_are_links_of_one_file(void **s)
{
	struct stat st;
	char path[300];

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/two/disk0-0.lsmt", home.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_nlink, 3); /* in both, and the VM's own */
}

/* The VM's root has a layer more, the lowest. */
static void begin_with_remote(bool whole)
{
	struct snapshot_manifest m;
	struct snapshot_layer l;

	remote_blob_make(MIB(1), whole, &l);
	assert_int_equal(snapshot_record_read(vm.dir.fd, &m, NULL), 0);
	assert_int_equal(m.disk[0].nlayers, 0);
	m.disk[0].layer = realloc(m.disk[0].layer, sizeof(l));
	m.disk[0].layer[0] = l;
	m.disk[0].nlayers = 1;
	assert_int_equal(snapshot_record_write(vm.dir.fd, &m, NULL), 0);
	snapshot_manifest_finish(&m);
}

static void a_layer_that_has_not_arrived_is_captured_as_what_it_is(void **s)
{
	struct snapshot snap;

	(void)s;
	begin_with_remote(false);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	assert_int_equal(snapshot_open("two", &snap, NULL), 0);
	assert_int_equal(snap.m.disk[0].nlayers, 3);
	assert_true(snapshot_layer_is_remote(&snap.m.disk[0].layer[0]));
	assert_string_equal(snap.m.disk[0].layer[0].url, REMOTE_BLOB_URL);
	assert_false(snapshot_layer_is_remote(&snap.m.disk[0].layer[1]));
	assert_int_equal(faccessat(snap.fd, "disk0-0.lsmt", F_OK, 0), -1);
	assert_int_equal(faccessat(snap.fd, "disk0-2.lsmt", F_OK, 0), 0);
	snapshot_close(&snap);
}

static void a_layer_that_has_arrived_meanwhile_is_a_file_of_the_snapshot(void **s)
{
	struct snapshot_manifest record;
	struct snapshot snap;
	struct stat st;

	(void)s;
	begin_with_remote(true);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("one"), 2);
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_null(snap.m.disk[0].layer[0].url);
	assert_int_equal(strlen(snap.m.disk[0].layer[0].sha256), SNAPSHOT_SHA256_LEN);
	assert_int_equal(fstatat(snap.fd, "disk0-0.lsmt", &st, 0), 0);
	assert_int_equal(st.st_nlink, 2); /* with the cache's */
	assert_int_equal(snapshot_record_read(vm.dir.fd, &record, NULL), 0);
	assert_string_equal(record.disk[0].layer[0].digest, snap.m.disk[0].layer[0].digest);
	assert_string_equal(record.disk[0].layer[0].url, REMOTE_BLOB_URL);
	snapshot_manifest_finish(&record);
	snapshot_close(&snap);
}

/* The path of a blob that was removed and begun anew leads to something with holes. */
static void a_path_into_the_cache_is_not_believed(void **s)
{
	struct snapshot_manifest m;
	struct snapshot snap;
	char path[400];

	(void)s;
	begin_with_remote(false);
	assert_int_equal(snapshot_record_read(vm.dir.fd, &m, NULL), 0);
	snprintf(path, sizeof(path), "%s/cache/coffer/blobs/sha256-%s/data", home.path, m.disk[0].layer[0].sha256);
	assert_int_equal(access(path, F_OK), 0);
	free(m.disk[0].layer[0].file);
	m.disk[0].layer[0].file = strdup(path);
	m.disk[0].layer[0].index_hash = 1;
	assert_int_equal(snapshot_record_write(vm.dir.fd, &m, NULL), 0);
	snapshot_manifest_finish(&m);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_true(snapshot_layer_is_remote(&snap.m.disk[0].layer[0]));
	snapshot_close(&snap);
}

static void flattening_leaves_a_remote_layer_remote(void **s)
{
	struct restore_source src;
	struct snapshot snap;

	(void)s;
	begin_with_remote(false);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	assert_int_equal(restore_source_open("two", &src, NULL), 0);
	assert_int_equal(snapshot_flatten(&src, "flat", 0, NULL, NULL), 0);
	restore_source_close(&src);
	assert_int_equal(snapshot_open("flat", &snap, NULL), 0);
	assert_int_equal(snap.m.disk[0].nlayers, 2);
	assert_true(snapshot_layer_is_remote(&snap.m.disk[0].layer[0]));
	assert_false(snapshot_layer_is_remote(&snap.m.disk[0].layer[1]));
	snapshot_close(&snap);
}

static void memory_can_be_written_by_nobody(void **s)
{
	struct stat st;
	char path[300];

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/one/ram", home.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0400);
}

static void a_refusal_changes_nothing(void **s)
{
	struct err err = ERR_INIT;
	struct snapshot snap;
	unsigned last;

	(void)s;
	assert_int_equal(take("one", false, REFUSES, &err), -ENOSPC);
	assert_int_equal(snapshot_open("one", &snap, NULL), -ENOENT);
	assert_int_equal(generations(&last), 1);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("one"), 1);
}

static void a_failure_after_the_cut_loses_no_layer(void **s)
{
	struct snapshot snap;
	unsigned last;

	(void)s;
	assert_int_equal(take("one", false, FAILS_AFTER_THE_CUT, NULL), -ENOSPC);
	assert_int_equal(snapshot_open("one", &snap, NULL), -ENOENT);
	assert_int_equal(generations(&last), 2);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("one"), 2);
}

static enum vm_state state_of_vm(void)
{
	struct control_reply r;

	assert_int_equal(control_call(vm.dir.fd, CONTROL_STATUS, 0, 0, &r, NULL), 0);
	return (enum vm_state)le64_get(r.value[CONTROL_V_STATE]);
}

/* The one that is to end the VM pauses it first. */
static void a_last_snapshot_that_fails_lets_the_vm_go_on(void **s)
{
	const enum behaviour how[] = { REFUSES, FAILS_AFTER_THE_CUT };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		struct snapshot_take t = { .to = "last", .stop = true };
		struct vm_handle handle;
		uint8_t byte = (uint8_t)how[i];

		assert_int_equal(write(how_fd, &byte, 1), 1);
		assert_int_equal(vm_open("vm", &handle, NULL), 0);
		assert_int_equal(snapshot_take(&handle, &t, NULL), -ENOSPC);
		vm_close(&handle);
		assert_int_equal(state_of_vm(), VM_RUNNING);
	}
}

static void a_last_snapshot_leaves_the_vm_paused_until_it_has_its_name(void **s)
{
	struct snapshot_take t = { .to = "last", .stop = true };
	struct vm_handle handle;
	uint8_t byte = GOOD;

	(void)s;
	assert_int_equal(write(how_fd, &byte, 1), 1);
	assert_int_equal(vm_open("vm", &handle, NULL), 0);
	assert_int_equal(snapshot_take(&handle, &t, NULL), 0);
	assert_int_equal(state_of_vm(), VM_PAUSED);
	snapshot_take_resume(&handle, &t);
	assert_int_equal(state_of_vm(), VM_RUNNING);
	snapshot_take_finish(&t);
	vm_close(&handle);
}

static void a_layer_that_could_not_be_sealed_is_sealed_by_the_next(void **s)
{
	(void)s;
	assert_int_equal(take("one", false, FAILS_TO_SEAL, NULL), -ENOSPC);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("one"), 2);
}

static int flatten(const char *name, struct err *err)
{
	struct restore_source src;
	struct progress progress;

	progress_init(&progress, -1, -1);
	assert_int_equal(restore_source_open(name, &src, NULL), 0);
	int r = snapshot_flatten(&src, NULL, 0, &progress, err);

	restore_source_close(&src);
	return r;
}

static void flattening_makes_one_layer_of_a_disk(void **s)
{
	struct snapshot before, after;

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	assert_int_equal(snapshot_open("two", &before, NULL), 0);
	assert_int_equal(flatten("two", NULL), 0);
	assert_int_equal(layers_of("two"), 1);
	assert_int_equal(layers_of("one"), 1);
	assert_int_equal(snapshot_open("two", &after, NULL), 0);
	assert_string_equal(before.m.id, after.m.id);
	assert_string_equal(before.m.disk[0].path, after.m.disk[0].path);
	snapshot_close(&before);
	snapshot_close(&after);
	/* The VM has its own layers. */
	assert_int_equal(take("three", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("three"), 3);
}

static void a_damaged_layer_is_not_merged(void **s)
{
	struct err err = ERR_INIT;
	char path[300];

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/two/disk0-1.lsmt", home.path);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	assert_int_equal(pwrite(fd, "x", 1, 1000), 1);
	close(fd);
	assert_int_equal(flatten("two", &err), -EINVAL);
	assert_non_null(strstr(err.text, "disk0-1.lsmt' is damaged"));
}

/* In the record, the lowest layer so many times: a file is a file. */
static void repeat_layer(size_t n)
{
	struct snapshot_manifest m;
	struct snapshot_disk *d;

	assert_int_equal(snapshot_record_read(vm.dir.fd, &m, NULL), 0);
	d = &m.disk[0];
	d->layer = realloc(d->layer, n * sizeof(*d->layer));
	for (; d->nlayers < n; d->nlayers++) {
		d->layer[d->nlayers] = d->layer[0];
		d->layer[d->nlayers].file = strdup(d->layer[0].file);
	}
	assert_int_equal(snapshot_record_write(vm.dir.fd, &m, NULL), 0);
	snapshot_manifest_finish(&m);
}

/* As many as there can be: the last ones are for the snapshot that ends the VM, from which it goes on with one. */
static void too_many_layers_are_said_with_the_remedy(void **s)
{
	struct snapshot_take t = { .to = "last", .stop = true };
	struct vm_handle handle;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	repeat_layer(232);
	assert_int_equal(take("two", false, GOOD, &err), -E2BIG);
	assert_non_null(strstr(err.text, "'coffer snapshot vm --stop --to NAME', 'coffer snapshot flatten NAME'"));
	/* The monitor was not asked: what it is to do is still to be read. */
	assert_int_equal(vm_open("vm", &handle, NULL), 0);
	if (snapshot_take(&handle, &t, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(snapshot_draft_publish(&t.draft, &t.m, false, NULL), 0);
	snapshot_take_finish(&t);
	vm_close(&handle);
	assert_int_equal(flatten("last", NULL), 0);
	assert_int_equal(layers_of("last"), 1);
}

static void a_diff_needs_one_before_it(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(take("one", true, GOOD, &err), -EINVAL);
	assert_non_null(strstr(err.text, "without --diff first"));
}

static void a_diff_names_its_parent_by_id_and_place(void **s)
{
	struct snapshot one, two, parent;

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", true, GOOD, NULL), 0);
	assert_int_equal(snapshot_open("one", &one, NULL), 0);
	assert_int_equal(snapshot_open("two", &two, NULL), 0);
	assert_string_equal(two.m.parent_id, one.m.id);
	assert_string_equal(two.m.parent_path, "one");
	assert_int_equal(snapshot_open_parent(&two, &parent, NULL), 0);
	snapshot_close(&parent);
	snapshot_close(&one);
	snapshot_close(&two);
}

static void a_diff_of_one_that_is_gone_is_refused(void **s)
{
	struct snapshot one;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(snapshot_open("one", &one, NULL), 0);
	assert_int_equal(snapshot_remove(&one, NULL), 0);
	snapshot_close(&one);
	assert_int_equal(take("two", true, GOOD, &err), -ENOENT);
	assert_non_null(strstr(err.text, "not there any more"));
}

static void a_killed_command_that_had_its_answer_loses_no_layer(void **s)
{
	pid_t pid = fork();
	int status;

	(void)s;
	if (pid == 0) {
		struct snapshot_take t = { .to = "lost", .track = true };
		struct vm_handle handle;
		uint8_t byte = GOOD;

		if (write(how_fd, &byte, 1) != 1 || vm_open("vm", &handle, NULL) < 0)
			_exit(1);
		_exit(snapshot_take(&handle, &t, NULL) == 0 ? 0 : 2); /* neither published nor remembered */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(layers_of("one"), 2);
}

/* The first command ends while the monitor is at it; the monitor refuses the second. */
static void the_top_is_not_touched_while_the_monitor_is_at_a_snapshot(void **s)
{
	struct lsmt_info info;

	(void)s;
	assert_int_equal(take("one", false, IS_AT_IT, NULL), -ECANCELED);
	assert_int_equal(take("two", false, REFUSES, NULL), -ENOSPC);
	_cleanup_close_ int top = openat(vm.dir.disk_dir_fd, "disk0-0.data", O_RDONLY | O_CLOEXEC);

	assert_true(top >= 0);
	assert_true(lsmt_inspect(top, "top", &info, NULL) < 0);
}

static void a_disk_written_in_place_is_refused_by_name(void **s)
{
	struct snapshot_manifest m;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(snapshot_record_read(vm.dir.fd, &m, NULL), 0);
	m.disk[0].kind = SNAPSHOT_DISK_RAW;
	assert_int_equal(snapshot_record_write(vm.dir.fd, &m, NULL), 0);
	snapshot_manifest_finish(&m);
	assert_int_equal(take("one", false, GOOD, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "/disk,cow'"));
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(each_snapshot_adds_the_layer_that_was_the_top),
		T(layers_are_links_of_one_file),
		T(a_layer_that_has_not_arrived_is_captured_as_what_it_is),
		T(a_layer_that_has_arrived_meanwhile_is_a_file_of_the_snapshot),
		T(a_path_into_the_cache_is_not_believed),
		T(flattening_leaves_a_remote_layer_remote),
		T(memory_can_be_written_by_nobody),
		T(a_refusal_changes_nothing),
		T(a_failure_after_the_cut_loses_no_layer),
		T(a_last_snapshot_that_fails_lets_the_vm_go_on),
		T(a_last_snapshot_leaves_the_vm_paused_until_it_has_its_name),
		T(a_layer_that_could_not_be_sealed_is_sealed_by_the_next),
		T(flattening_makes_one_layer_of_a_disk),
		T(a_damaged_layer_is_not_merged),
		T(too_many_layers_are_said_with_the_remedy),
		T(a_diff_needs_one_before_it),
		T(a_diff_names_its_parent_by_id_and_place),
		T(a_diff_of_one_that_is_gone_is_refused),
		T(a_killed_command_that_had_its_answer_loses_no_layer),
		T(the_top_is_not_touched_while_the_monitor_is_at_a_snapshot),
		T(a_disk_written_in_place_is_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
