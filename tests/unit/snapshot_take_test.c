/* SPDX-License-Identifier: Apache-2.0 */
/* Taking snapshots of a VM whose monitor is a program of the test (tests/harness/snapshot_vm.h). */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/control_client.h"
#include "host/snapshot_flatten.h"
#include "host/snapshot_record.h"
#include "host/snapshot_take.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/remote_blob.h"
#include "tests/harness/snapshot_vm.h"

static struct snapshot_vm vm;

static int set_up(void **s)
{
	(void)s;
	snapshot_vm_start(&vm);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	snapshot_vm_end(&vm);
	return 0;
}

static int take(const char *to, bool diff, enum behaviour how, struct err *err)
{
	snapshot_vm_serve(&vm, how, 1);
	return snapshot_vm_take(to, diff, err);
}

static unsigned generations(unsigned *last)
{
	unsigned g[VM_DISK_GENERATIONS_MAX];
	int n = vm_disk_generations(vm.launch.dir.disk_dir_fd, 0, g, NULL);

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
	assert_int_equal(snapshot_vm_layers_of("one"), 1);
	assert_int_equal(snapshot_vm_layers_of("two"), 2);
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
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/two/disk0-0.lsmt", vm.home.path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_nlink, 3); /* in both, and the VM's own */
}

/* The VM's root has a layer more, the lowest. */
static void begin_with_remote(bool whole)
{
	struct snapshot_manifest m;
	struct snapshot_layer l;

	remote_blob_make(MIB(1), whole, &l);
	assert_int_equal(snapshot_record_read(vm.launch.dir.fd, &m, NULL), 0);
	assert_int_equal(m.disk[0].nlayers, 0);
	m.disk[0].layer = realloc(m.disk[0].layer, sizeof(l));
	m.disk[0].layer[0] = l;
	m.disk[0].nlayers = 1;
	assert_int_equal(snapshot_record_write(vm.launch.dir.fd, &m, NULL), 0);
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
	assert_int_equal(snapshot_vm_layers_of("one"), 2);
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_null(snap.m.disk[0].layer[0].url);
	assert_int_equal(strlen(snap.m.disk[0].layer[0].sha256), SNAPSHOT_SHA256_LEN);
	assert_int_equal(fstatat(snap.fd, "disk0-0.lsmt", &st, 0), 0);
	assert_int_equal(st.st_nlink, 2); /* with the cache's */
	assert_int_equal(snapshot_record_read(vm.launch.dir.fd, &record, NULL), 0);
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
	assert_int_equal(snapshot_record_read(vm.launch.dir.fd, &m, NULL), 0);
	snprintf(path, sizeof(path), "%s/cache/coffer/blobs/sha256-%s/data", vm.home.path, m.disk[0].layer[0].sha256);
	assert_int_equal(access(path, F_OK), 0);
	free(m.disk[0].layer[0].file);
	m.disk[0].layer[0].file = strdup(path);
	m.disk[0].layer[0].index_hash = 1;
	assert_int_equal(snapshot_record_write(vm.launch.dir.fd, &m, NULL), 0);
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
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/one/ram", vm.home.path);
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
	assert_int_equal(snapshot_vm_layers_of("one"), 1);
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
	assert_int_equal(snapshot_vm_layers_of("one"), 2);
}

static enum vm_state state_of_vm(void)
{
	struct control_reply r;

	assert_int_equal(control_call(vm.launch.dir.fd, CONTROL_STATUS, 0, 0, &r, NULL), 0);
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

		assert_int_equal(write(vm.how_fd, &byte, 1), 1);
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
	assert_int_equal(write(vm.how_fd, &byte, 1), 1);
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
	assert_int_equal(snapshot_vm_layers_of("one"), 2);
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
	assert_int_equal(snapshot_vm_layers_of("two"), 1);
	assert_int_equal(snapshot_vm_layers_of("one"), 1);
	assert_int_equal(snapshot_open("two", &after, NULL), 0);
	assert_string_equal(before.m.id, after.m.id);
	assert_string_equal(before.m.disk[0].path, after.m.disk[0].path);
	snapshot_close(&before);
	snapshot_close(&after);
	/* The VM has its own layers. */
	assert_int_equal(take("three", false, GOOD, NULL), 0);
	assert_int_equal(snapshot_vm_layers_of("three"), 3);
}

static void a_damaged_layer_is_not_merged(void **s)
{
	struct err err = ERR_INIT;
	char path[300];

	(void)s;
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(take("two", false, GOOD, NULL), 0);
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/two/disk0-1.lsmt", vm.home.path);
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

	assert_int_equal(snapshot_record_read(vm.launch.dir.fd, &m, NULL), 0);
	d = &m.disk[0];
	d->layer = realloc(d->layer, n * sizeof(*d->layer));
	for (; d->nlayers < n; d->nlayers++) {
		d->layer[d->nlayers] = d->layer[0];
		d->layer[d->nlayers].file = strdup(d->layer[0].file);
	}
	assert_int_equal(snapshot_record_write(vm.launch.dir.fd, &m, NULL), 0);
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
	assert_int_equal(snapshot_vm_layers_of("last"), 1);
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

static void a_chain_that_is_too_long_goes_on_when_it_is_flattened(void **s)
{
	struct err err = ERR_INIT;
	struct restore_source src;
	char name[16];

	(void)s;
	for (int i = 0; i < RAM_CHAIN_MAX; i++) {
		snprintf(name, sizeof(name), "s%d", i);
		if (take(name, i > 0, GOOD, &err) < 0)
			fail_msg("%s: %s", name, err.text);
	}
	assert_int_equal(restore_source_open(name, &src, NULL), 0);
	assert_int_equal(src.nchain, RAM_CHAIN_MAX);
	assert_int_equal(restore_source_verify(&src, NULL, &err), 0);
	restore_source_close(&src);
	assert_int_equal(snapshot_vm_take("more", true, &err), -EMLINK);
	assert_non_null(strstr(err.text, "/snapshots/s63' makes them one, or take one without --diff"));
	assert_int_equal(flatten(name, NULL), 0);
	if (take("more", true, GOOD, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(restore_source_open("more", &src, NULL), 0);
	assert_int_equal(src.nchain, 2);
	assert_int_equal(restore_source_verify(&src, NULL, &err), 0);
	restore_source_close(&src);
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

		if (write(vm.how_fd, &byte, 1) != 1 || vm_open("vm", &handle, NULL) < 0)
			_exit(1);
		_exit(snapshot_take(&handle, &t, NULL) == 0 ? 0 : 2); /* neither published nor remembered */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(take("one", false, GOOD, NULL), 0);
	assert_int_equal(snapshot_vm_layers_of("one"), 2);
}

/* The first command ends while the monitor is at it; the monitor refuses the second. */
static void the_top_is_not_touched_while_the_monitor_is_at_a_snapshot(void **s)
{
	struct lsmt_info info;

	(void)s;
	assert_int_equal(take("one", false, IS_AT_IT, NULL), -ECANCELED);
	assert_int_equal(take("two", false, REFUSES, NULL), -ENOSPC);
	_cleanup_close_ int top = openat(vm.launch.dir.disk_dir_fd, "disk0-0.data", O_RDONLY | O_CLOEXEC);

	assert_true(top >= 0);
	assert_true(lsmt_inspect(top, "top", &info, NULL) < 0);
}

static void a_disk_written_in_place_is_refused_by_name(void **s)
{
	struct snapshot_manifest m;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(snapshot_record_read(vm.launch.dir.fd, &m, NULL), 0);
	m.disk[0].kind = SNAPSHOT_DISK_RAW;
	assert_int_equal(snapshot_record_write(vm.launch.dir.fd, &m, NULL), 0);
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
		T(a_chain_that_is_too_long_goes_on_when_it_is_flattened),
		T(a_killed_command_that_had_its_answer_loses_no_layer),
		T(the_top_is_not_touched_while_the_monitor_is_at_a_snapshot),
		T(a_disk_written_in_place_is_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
