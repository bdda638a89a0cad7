/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot that lacks something, has a file that was cut or changed, or is of another machine: refused before anything is
 * started, in words that name the thing. (Damage inside of state, ram.index and ram as the monitor finds it: their own tests.)
 */
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
#include <unistd.h>

#include <cmocka.h>

#include "host/restore.h"
#include "host/vmdir.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/snapshot_vm.h"

/* "two" is a diff of "one", and has two layers. */
static const char *const files[] = { "manifest.json", "state", "ram", "ram.index", "disk0-0.lsmt", "disk0-1.lsmt" };

static struct snapshot_vm vm;

static int set_up(void **s)
{
	(void)s;
	snapshot_vm_start(&vm);
	snapshot_vm_serve(&vm, GOOD, 2);
	assert_int_equal(snapshot_vm_take("one", false, NULL), 0);
	assert_int_equal(snapshot_vm_take("two", true, NULL), 0);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	snapshot_vm_end(&vm);
	return 0;
}

static void path_of(const char *snapshot, const char *file, char out[300])
{
	snprintf(out, 300, "%s/data/coffer/snapshots/%s/%s", vm.home.path, snapshot, file);
}

/* What a restore does before it starts anything; whole: with --verify. */
static int check(const char *name, bool whole, struct err *err)
{
	struct restore_source src;
	int r = restore_source_open(name, &src, err);

	if (r < 0)
		return r;
	r = restore_source_check(&src, err);
	if (r == 0 && whole)
		r = restore_source_verify(&src, NULL, err);
	restore_source_close(&src);
	return r;
}

static void must_say(int r, const struct err *err, const char *what, const char *text)
{
	if (r == 0)
		fail_msg("%s: it is not refused", what);
	if (!strstr(err->text, text))
		fail_msg("%s: '%s' does not say '%s'", what, err->text, text);
}

static void what_is_whole_is_accepted(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	if (check("two", true, &err) < 0)
		fail_msg("%s", err.text);
}

static void a_file_that_is_missing_is_named(void **s)
{
	char path[300], away[310];

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct err err = ERR_INIT;

		path_of("two", files[i], path);
		snprintf(away, sizeof(away), "%s.away", path);
		assert_int_equal(rename(path, away), 0);
		int r = check("two", false, &err);

		/* Without its manifest it is no snapshot. */
		must_say(r, &err, files[i], i == 0 ? "two" : files[i]);
		assert_int_equal(rename(away, path), 0);
	}
	assert_int_equal(check("two", true, NULL), 0);
}

static void a_file_of_the_parent_that_is_missing_is_named(void **s)
{
	struct err err = ERR_INIT;
	char path[300];

	(void)s;
	path_of("one", "ram", path);
	assert_int_equal(unlink(path), 0);
	must_say(check("two", false, &err), &err, "one/ram", "snapshot 'one': its file 'ram' is missing");
}

static void a_file_that_is_cut_or_longer_is_named(void **s)
{
	char path[300], last;
	struct stat st;

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		path_of("two", files[i], path);
		int fd = open(path, O_RDWR | O_CLOEXEC);

		assert_true(fd >= 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(pread(fd, &last, 1, st.st_size - 1), 1);
		for (off_t by = -1; by <= 1; by += 2) {
			struct err err = ERR_INIT;

			assert_int_equal(ftruncate(fd, st.st_size + by), 0);
			must_say(check("two", false, &err), &err, files[i], files[i]);
		}
		assert_int_equal(ftruncate(fd, st.st_size), 0);
		assert_int_equal(pwrite(fd, &last, 1, st.st_size - 1), 1);
		close(fd);
	}
	assert_int_equal(check("two", true, NULL), 0);
}

static void flip(int fd, off_t at)
{
	uint8_t b;

	assert_int_equal(pread(fd, &b, 1, at), 1);
	b ^= 0x20;
	assert_int_equal(pwrite(fd, &b, 1, at), 1);
}

/* Of large files and of manifests, which other tests flip whole, a byte here and there. */
static void a_flipped_byte_is_found_by_verify(void **s)
{
	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		char path[300], what[400];
		struct stat st;

		path_of("two", files[i], path);
		int fd = open(path, O_RDWR | O_CLOEXEC);

		assert_true(fd >= 0);
		assert_int_equal(fstat(fd, &st), 0);
		for (off_t at = 0; at < st.st_size; at += st.st_size > 1000 ? 61 : 1) {
			struct err err = ERR_INIT;

			at = lseek(fd, at, SEEK_DATA); /* in a hole there are too many */
			if (at < 0)
				break;
			snprintf(what, sizeof(what), "byte %d of %s", (int)at, files[i]);
			flip(fd, at);
			must_say(check("two", true, &err), &err, what, i == 0 ? "manifest" : files[i]);
			flip(fd, at);
		}
		close(fd);
	}
	assert_int_equal(check("two", true, NULL), 0);
}

static void damage_of_the_parent_s_memory_is_found_by_verify(void **s)
{
	struct err err = ERR_INIT;
	char path[300];

	(void)s;
	path_of("one", "ram", path);
	int fd = open(path, O_RDWR | O_CLOEXEC);

	flip(fd, 65536 + 3 * 4096 + 5); /* the page that "one" alone has */
	close(fd);
	assert_int_equal(check("two", false, NULL), 0);
	must_say(check("two", true, &err), &err, "one/ram", "ram of parent 1: damaged");
}

/* ---- another machine ---- */

static void other_model(struct snapshot_manifest *m)
{
	m->cpu.model += 1;
}

static void other_features(struct snapshot_manifest *m)
{
	m->cpu.features[0] = m->cpu.features[0] == '0' ? '1' : '0';
}

static void other_kvm(struct snapshot_manifest *m)
{
	free(m->kvm);
	m->kvm = strdup("kvm_other");
}

static void one_of_another_machine_says_so(void **s)
{
	static const struct {
		void (*fn)(struct snapshot_manifest *m);
		const char *text;
	} cases[] = {
		{ other_kvm, "snapshot 'one': it was taken with kvm_other, this machine has " },
		{ other_features, "snapshot 'one': it was taken on a processor that offers other features" },
		{ other_model, "snapshot 'one': it was taken on another processor" },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_INIT;

		snapshot_vm_change("one", cases[i].fn);
		must_say(check("one", false, &err), &err, cases[i].text, cases[i].text);
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_is_whole_is_accepted),
		T(a_file_that_is_missing_is_named),
		T(a_file_of_the_parent_that_is_missing_is_named),
		T(a_file_that_is_cut_or_longer_is_named),
		T(a_flipped_byte_is_found_by_verify),
		T(damage_of_the_parent_s_memory_is_found_by_verify),
		T(one_of_another_machine_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
