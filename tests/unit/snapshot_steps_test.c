/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands about snapshots, killed at every step, and with a disk that is full from every step on: what is there is whole,
 * what is not whole is not to be seen and is removed by the next command, and the VM's disk has every layer that was cut.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/restore.h"
#include "host/snapshot_flatten.h"
#include "host/snapshot_store.h"
#include "lib/util.h"
#include "tests/harness/snapshot_vm.h"
#include "tests/harness/steps.h"

enum { STEPS_MAX = 5000 };

typedef void check_fn(const struct steps_result *r);

static struct snapshot_vm vm;

static size_t leftovers(void)
{
	char pattern[200];
	glob_t g;

	snprintf(pattern, sizeof(pattern), "%s/data/coffer/snapshots/.coffer-snapshot-*", vm.home.path);
	int r = glob(pattern, 0, NULL, &g);
	size_t n = r == 0 ? g.gl_pathc : 0;

	assert_true(r == 0 || r == GLOB_NOMATCH);
	if (r == 0)
		globfree(&g);
	return n;
}

/* Whole, or not there. */
static bool is_there(const char *name)
{
	struct restore_source src;
	struct err err = ERR_INIT;
	int r = restore_source_open(name, &src, &err);

	if (r == -ENOENT)
		return false;
	if (r < 0)
		fail_msg("'%s' is there and not whole: %s", name, err.text);
	if (restore_source_verify(&src, NULL, &err) < 0)
		fail_msg("'%s' is there and damaged: %s", name, err.text);
	restore_source_close(&src);
	snapshot_vm_layers_of(name);
	return true;
}

static void must(int r, const struct err *err)
{
	if (r < 0)
		fail_msg("%s", err->text);
}

static int take_it(void *arg, struct err *err)
{
	return snapshot_vm_take(arg, true, err);
}

static int flatten_it(void *arg, struct err *err)
{
	struct restore_source src;
	struct progress progress;
	int r = restore_source_open(arg, &src, err);

	if (r < 0)
		return r;
	progress_init(&progress, -1, -1);
	r = snapshot_flatten(&src, NULL, 0, &progress, err);
	restore_source_close(&src);
	return r;
}

static int remove_it(void *arg, struct err *err)
{
	struct snapshot s;
	int r = snapshot_open_damaged(arg, &s, err);

	if (r < 0)
		return r;
	r = snapshot_remove(&s, err);
	snapshot_close(&s);
	return r;
}

/* Afterwards the VM can be saved again, with all its layers, and what was left is gone. */
static void goes_on(const char *other, size_t layers)
{
	struct err err = ERR_INIT;

	must(snapshot_vm_take("after", false, &err), &err);
	assert_int_equal(snapshot_vm_layers_of("after"), *vm.cuts);
	assert_int_equal(leftovers(), 0);
	assert_true(is_there(other));
	assert_int_equal(snapshot_vm_layers_of(other), layers);
}

/* One step; false when there is none any more. Before it: a snapshot "old" of one layer, and "two" of two, a diff of it. */
static bool step(enum steps_what what, steps_fn *fn, char *name, unsigned n, check_fn *check)
{
	struct steps_result r;
	struct err err = ERR_INIT;

	snapshot_vm_start(&vm);
	snapshot_vm_serve(&vm, GOOD, 4);
	must(snapshot_vm_take("old", false, &err), &err);
	must(snapshot_vm_take("two", true, &err), &err);
	steps_run(what, n, fn, name, &r);
	if (what == STEPS_FULL) { /* it was alive to clear up, which takes no space */
		assert_int_equal(leftovers(), 0);
		if (r.status < 0 && !strstr(r.err.text, "No space left on device"))
			fail_msg("step %u: '%s' does not say that the disk is full", n, r.err.text);
	}
	if (!r.reached)
		must(r.status, &r.err);
	check(&r);
	goes_on("old", 1);
	snapshot_vm_end(&vm);
	return r.reached;
}

static void every_step(enum steps_what what, steps_fn *fn, char *name, unsigned least, check_fn *check)
{
	const char *why = steps_impossible();
	unsigned n = 0;

	if (why) {
		print_message("%s\n", why);
		skip();
	}
	while (step(what, fn, name, n, check))
		assert_true(++n < STEPS_MAX);
	print_message("# %u steps\n", n);
	assert_true(n >= least);
}

static bool said_done(const struct steps_result *r)
{
	return !r->reached || r->status == 0;
}

static void is_taken_or_not(const struct steps_result *r)
{
	bool there = is_there("new");

	if (there)
		assert_int_equal(snapshot_vm_layers_of("new"), 3);
	if (!r->reached)
		assert_true(there);
}

static void is_taken_when_it_says_so(const struct steps_result *r)
{
	if (said_done(r))
		assert_true(is_there("new"));
	is_taken_or_not(r);
}

static void is_flattened_or_not(const struct steps_result *r)
{
	struct snapshot s;

	assert_true(is_there("two"));
	size_t n = snapshot_vm_layers_of("two");

	assert_true(n == 1 || (n == 2 && r->reached));
	assert_int_equal(snapshot_open("two", &s, NULL), 0);
	assert_string_equal(s.m.id + 2, "000000000000000000000000000000"); /* the monitor's second */
	assert_int_equal(s.m.id[1], '2');
	snapshot_close(&s);
}

static void is_removed_or_whole(const struct steps_result *r)
{
	bool there = is_there("two");

	if (!r->reached)
		assert_false(there);
}

static void a_snapshot_killed_at_any_step_is_whole_or_not_there(void **s)
{
	(void)s;
	every_step(STEPS_KILL, take_it, (char[]){ "new" }, 20, is_taken_or_not);
}

static void a_disk_full_at_any_step_of_a_snapshot_is_said(void **s)
{
	(void)s;
	every_step(STEPS_FULL, take_it, (char[]){ "new" }, 20, is_taken_when_it_says_so);
}

static void a_flatten_killed_at_any_step_leaves_the_old_or_the_new(void **s)
{
	(void)s;
	every_step(STEPS_KILL, flatten_it, (char[]){ "two" }, 20, is_flattened_or_not);
}

static void a_disk_full_at_any_step_of_a_flatten_leaves_the_old_or_the_new(void **s)
{
	(void)s;
	every_step(STEPS_FULL, flatten_it, (char[]){ "two" }, 20, is_flattened_or_not);
}

static void a_removal_killed_at_any_step_leaves_all_or_nothing_to_be_seen(void **s)
{
	(void)s;
	every_step(STEPS_KILL, remove_it, (char[]){ "two" }, 5, is_removed_or_whole);
}

/* One that failed leaves it. */
static int tear_down(void **s)
{
	(void)s;
	if (vm.monitor > 0)
		snapshot_vm_end(&vm);
	return 0;
}

#define T(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_snapshot_killed_at_any_step_is_whole_or_not_there),
		T(a_disk_full_at_any_step_of_a_snapshot_is_said),
		T(a_flatten_killed_at_any_step_leaves_the_old_or_the_new),
		T(a_disk_full_at_any_step_of_a_flatten_leaves_the_old_or_the_new),
		T(a_removal_killed_at_any_step_leaves_all_or_nothing_to_be_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
