/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of snapshots: whole or not there, found by name, path and id, swept after a crash; and the pairs of a
 * VM's disks. */
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

#include "host/snapshot_store.h"
#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/home.h"

static struct home home;

static const char *below(const char *name)
{
	static char path[4][300];
	static int next;
	char *p = path[next++ % 4];

	snprintf(p, 300, "%s/%s", home.path, name);
	return p;
}

static char *string(const char *s)
{
	return strdup(s);
}

static struct snapshot_manifest make_manifest(char id)
{
	struct snapshot_manifest m = {
		.version = string("1"), .parent_path = string(""), .cpus = 1, .memory = MIB(64), .cmdline = string(""),
		.cpu = { "Vendor", 1, 2, 3, "0123456789abcdef" }, .kvm = string("kvm_amd"), .state = { 3,
												       "0000000000000000" },
		.ram = { 3, "" }, .ram_index = { 3, "0000000000000000" }, .image = string("none"), .user = string(""),
				.cwd = string(""),
		.kernel = string("/k"), .hostname = string("h"),
	};

	memset(m.id, id, SNAPSHOT_ID_LEN);
	return m;
}

static int begin(const char *to, struct snapshot_draft *d, struct err *err)
{
	static const char *const files[] = { SNAPSHOT_STATE, SNAPSHOT_RAM, SNAPSHOT_RAM_INDEX };
	int r = snapshot_draft_begin(to, false, d, err);

	for (size_t i = 0; i < 3 && r == 0; i++) {
		int fd = snapshot_draft_create(d, files[i], NULL);

		assert_int_equal(fd_write_full(fd, "abc", 3), 0);
		close(fd);
	}
	return r;
}

static void put(const char *to, struct snapshot_manifest m)
{
	struct snapshot_draft d;

	assert_int_equal(begin(to, &d, NULL), 0);
	assert_int_equal(snapshot_draft_publish(&d, &m, false, NULL), 0);
	snapshot_draft_end(&d);
	snapshot_manifest_finish(&m);
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static int entries(const char *dir)
{
	char command[400];

	snprintf(command, sizeof(command), "exit $(find '%s' -mindepth 1 -maxdepth 1 | wc -l)", dir);
	int r = system(command);

	return WEXITSTATUS(r);
}

static void names_are_checked(void **s)
{
	static const char *const good[] = { "a", "0", "work-20260101-000000", "a.b_c-d" };
	static const char *const bad[] = { "", ".", "..", ".a", "-a", "A", "a b", "\303\244" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(snapshot_name_check(good[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(snapshot_name_check(bad[i], NULL), -EINVAL);
}

static void one_is_there_when_it_is_published(void **s)
{
	struct snapshot_draft d;
	struct snapshot_manifest m = make_manifest('a');
	struct snapshot snap;

	(void)s;
	assert_int_equal(begin("one", &d, NULL), 0);
	assert_int_equal(snapshot_open("one", &snap, NULL), -ENOENT);
	assert_int_equal(snapshot_draft_publish(&d, &m, false, NULL), 0);
	snapshot_draft_end(&d);
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_string_equal(snap.name, "one");
	int fd = snapshot_open_file(&snap, SNAPSHOT_STATE, 3, NULL);

	assert_true(fd >= 0);
	close(fd);
	snapshot_close(&snap);
	snapshot_manifest_finish(&m);
	assert_int_equal(entries(below("data/coffer/snapshots")), 1);
}

static void a_path_is_a_directory_anywhere(void **s)
{
	struct snapshot snap;

	(void)s;
	put(below("any/"), make_manifest('a'));
	assert_int_equal(snapshot_open(below("any"), &snap, NULL), 0);
	assert_string_equal(snap.path, below("any"));
	snapshot_close(&snap);
}

static void what_is_there_is_not_replaced(void **s)
{
	struct snapshot_draft d;
	struct err err = ERR_INIT;

	(void)s;
	put("one", make_manifest('a'));
	assert_int_equal(begin("one", &d, &err), -EEXIST);
	assert_non_null(strstr(err.text, "snapshots/one' already"));
}

static void one_that_comes_meanwhile_is_not_replaced(void **s)
{
	struct snapshot_draft d;
	struct snapshot_manifest m = make_manifest('b');
	struct snapshot snap;

	(void)s;
	assert_int_equal(begin("one", &d, NULL), 0);
	put("one", make_manifest('a'));
	assert_int_equal(snapshot_draft_publish(&d, &m, false, NULL), -EEXIST);
	snapshot_draft_end(&d);
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_int_equal(snap.m.id[0], 'a');
	snapshot_close(&snap);
	snapshot_manifest_finish(&m);
	assert_int_equal(entries(below("data/coffer/snapshots")), 1);
}

static void what_a_killed_command_left_is_swept_by_the_next(void **s)
{
	int status;
	pid_t pid = fork();

	(void)s;
	if (pid == 0) {
		struct snapshot_draft d;

		_exit(begin("lost", &d, NULL) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(entries(below("data/coffer/snapshots")), 1);
	put("one", make_manifest('a'));
	assert_int_equal(entries(below("data/coffer/snapshots")), 1);
	assert_true(exists(below("data/coffer/snapshots/one")));
}

static void one_that_is_being_made_is_not_swept(void **s)
{
	struct snapshot_draft d;
	struct snapshot_manifest m = make_manifest('a');

	(void)s;
	assert_int_equal(begin("slow", &d, NULL), 0);
	put("one", make_manifest('b'));
	assert_int_equal(snapshot_draft_publish(&d, &m, false, NULL), 0);
	snapshot_draft_end(&d);
	snapshot_manifest_finish(&m);
	assert_int_equal(entries(below("data/coffer/snapshots")), 2);
}

static void one_that_is_removed_is_gone(void **s)
{
	struct snapshot snap;

	(void)s;
	put("one", make_manifest('a'));
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_int_equal(snapshot_remove(&snap, NULL), 0);
	snapshot_close(&snap);
	assert_int_equal(entries(below("data/coffer/snapshots")), 0);
}

static struct snapshot_manifest child(const char *parent_path)
{
	struct snapshot_manifest m = make_manifest('c');

	memset(m.parent_id, 'a', SNAPSHOT_ID_LEN);
	free(m.parent_path);
	m.parent_path = string(parent_path);
	return m;
}

static void expect_parent(const char *name, const char *path)
{
	struct snapshot s, parent;

	assert_int_equal(snapshot_open(name, &s, NULL), 0);
	assert_int_equal(snapshot_open_parent(&s, &parent, NULL), 0);
	assert_string_equal(parent.path, path);
	snapshot_close(&parent);
	snapshot_close(&s);
}

static void a_parent_is_found_beside_its_child_when_both_were_moved(void **s)
{
	(void)s;
	assert_int_equal(mkdir(below("here"), 0700), 0);
	put(below("here/p"), make_manifest('a'));
	put(below("here/c"), child("p"));
	expect_parent(below("here/c"), below("here/p"));
	assert_int_equal(rename(below("here"), below("there")), 0);
	expect_parent(below("there/c"), below("there/p"));
}

static void a_parent_is_found_in_the_store_by_its_id(void **s)
{
	(void)s;
	put("renamed", make_manifest('a'));
	put(below("c"), child("/nowhere/p"));
	expect_parent(below("c"), below("data/coffer/snapshots/renamed"));
}

static void a_parent_that_is_another_now_is_not_taken(void **s)
{
	struct snapshot c, parent;
	struct err err = ERR_INIT;

	(void)s;
	put("p", make_manifest('b'));
	put("c", child("p"));
	assert_int_equal(snapshot_open("c", &c, NULL), 0);
	assert_int_equal(snapshot_open_parent(&c, &parent, &err), -ENOENT);
	assert_non_null(strstr(err.text, "its parent"));
	snapshot_close(&c);
}

static void a_file_that_is_cut_or_a_link_is_refused(void **s)
{
	struct snapshot snap;
	struct err err = ERR_INIT;

	(void)s;
	put("one", make_manifest('a'));
	assert_int_equal(snapshot_open("one", &snap, NULL), 0);
	assert_int_equal(snapshot_open_file(&snap, SNAPSHOT_RAM, 4, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'ram' has 3 bytes, not the 4"));
	assert_int_equal(unlinkat(snap.fd, SNAPSHOT_RAM, 0), 0);
	assert_int_equal(symlinkat("state", snap.fd, SNAPSHOT_RAM), 0);
	assert_int_equal(snapshot_open_file(&snap, SNAPSHOT_RAM, 3, NULL), -ELOOP);
	assert_int_equal(unlinkat(snap.fd, SNAPSHOT_RAM, 0), 0);
	assert_int_equal(mkfifoat(snap.fd, SNAPSHOT_RAM, 0600), 0);
	assert_int_equal(snapshot_open_file(&snap, SNAPSHOT_RAM, 0, NULL), -EINVAL);
	assert_int_equal(unlinkat(snap.fd, SNAPSHOT_RAM, 0), 0);
	assert_int_equal(snapshot_open_file(&snap, SNAPSHOT_RAM, 3, &err), -ENOENT);
	assert_non_null(strstr(err.text, "'ram' is missing"));
	snapshot_close(&snap);
}

/* ---- pairs ---- */

static void a_pair_that_nobody_took_is_removed(void **s)
{
	unsigned generation[VM_DISK_GENERATIONS_MAX];
	int dir = open(home.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), first[2], second[2];

	(void)s;
	assert_int_equal(vm_disk_create_pair(dir, 1, 0, MIB(1), first, NULL), 0);
	assert_int_equal(vm_disk_create_pair(dir, 1, 1, MIB(1), second, NULL), 0);
	assert_int_equal(vm_disk_generations(dir, 1, generation, NULL), 2);
	assert_int_equal(generation[1], 1);
	close(second[0]);
	close(second[1]);
	assert_int_equal(vm_disk_generations(dir, 1, generation, NULL), 1);
	assert_int_equal(generation[0], 0);
	assert_false(exists(below("disk1-1.data")));
	assert_false(exists(below("disk1-1.index")));
	assert_int_equal(vm_disk_generations(dir, 0, generation, NULL), 0);
	assert_true(exists(below("disk1-0.data")));
	close(first[0]);
	close(first[1]);
	close(dir);
}

static void a_pair_is_kept_by_whoever_has_its_descriptor(void **s)
{
	unsigned generation[VM_DISK_GENERATIONS_MAX];
	int dir = open(home.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), pair[2], pipes[2];

	(void)s;
	assert_int_equal(vm_disk_create_pair(dir, 1, 7, MIB(1), pair, NULL), 0);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		char byte;

		close(pipes[1]);
		_exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(pair[0]);
	close(pair[1]);
	assert_int_equal(vm_disk_generations(dir, 1, generation, NULL), 1);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(vm_disk_generations(dir, 1, generation, NULL), 0);
	close(dir);
}

#define T(name) cmocka_unit_test_prestate_setup_teardown(name, home_set_up, home_tear_down, &home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(names_are_checked),
		T(one_is_there_when_it_is_published),
		T(a_path_is_a_directory_anywhere),
		T(what_is_there_is_not_replaced),
		T(one_that_comes_meanwhile_is_not_replaced),
		T(what_a_killed_command_left_is_swept_by_the_next),
		T(one_that_is_being_made_is_not_swept),
		T(one_that_is_removed_is_gone),
		T(a_parent_is_found_beside_its_child_when_both_were_moved),
		T(a_parent_is_found_in_the_store_by_its_id),
		T(a_parent_that_is_another_now_is_not_taken),
		T(a_file_that_is_cut_or_a_link_is_refused),
		T(a_pair_that_nobody_took_is_removed),
		T(a_pair_is_kept_by_whoever_has_its_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
