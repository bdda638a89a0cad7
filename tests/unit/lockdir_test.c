/* SPDX-License-Identifier: Apache-2.0 */
/* Directories with living owners: who holds a child, what a sweep removes and what it leaves. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/lockdir.h"
#include "lib/fd.h"
#include "tests/harness/home.h"

static struct home home;
static struct lockdir dir;

static int set_up(void **s)
{
	char path[128];

	(void)s;
	home_make(&home);
	snprintf(path, sizeof(path), "%s/run/a/b", home.path);
	return lockdir_open(&dir, path, NULL);
}

static int tear_down(void **s)
{
	(void)s;
	lockdir_close(&dir);
	home_remove(&home);
	return 0;
}

static bool exists(const char *name)
{
	return faccessat(dir.fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void a_child_is_live_while_its_maker_holds_it(void **s)
{
	int fd, lock;

	(void)s;
	assert_int_equal(lockdir_create(&dir, "x", &fd, &lock, NULL), 0);
	assert_int_equal(lockdir_probe(&dir, "x", NULL, NULL), 1);
	close(lock);
	assert_int_equal(lockdir_probe(&dir, "x", NULL, NULL), 0);
	close(fd);
}

static void a_live_child_is_not_made_again(void **s)
{
	struct err err = ERR_INIT;
	int fd, lock, fd2, lock2;

	(void)s;
	assert_int_equal(lockdir_create(&dir, "x", &fd, &lock, NULL), 0);
	assert_int_equal(lockdir_create(&dir, "x", &fd2, &lock2, &err), -EEXIST);
	assert_non_null(strstr(err.text, "in use"));
	close(fd);
	close(lock);
}

static void a_stale_child_of_the_same_name_is_replaced(void **s)
{
	int fd, lock;

	(void)s;
	assert_int_equal(lockdir_create(&dir, "x", &fd, &lock, NULL), 0);
	close(openat(fd, "old", O_CREAT | O_WRONLY, 0600));
	close(fd);
	close(lock);
	assert_int_equal(lockdir_create(&dir, "x", &fd, &lock, NULL), 0);
	assert_int_equal(faccessat(fd, "old", F_OK, 0), -1);
	close(fd);
	close(lock);
}

static void a_child_stays_live_while_a_heir_of_the_descriptor_lives(void **s)
{
	int fd, lock, wake[2];
	char byte;

	(void)s;
	assert_int_equal(pipe(wake), 0);
	assert_int_equal(lockdir_create(&dir, "x", &fd, &lock, NULL), 0);
	pid_t pid = fork();

	if (pid == 0) { /* the monitor: it only keeps the descriptor */
		close(wake[1]);
		_exit(read(wake[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(wake[0]);
	close(lock);
	assert_int_equal(lockdir_probe(&dir, "x", NULL, NULL), 1);
	close(wake[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(lockdir_probe(&dir, "x", NULL, NULL), 0);
	close(fd);
}

static void a_killed_holder_leaves_a_stale_child(void **s)
{
	int ready[2];
	char byte;

	(void)s;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();

	if (pid == 0) {
		int fd, lock;
		ssize_t ignored = lockdir_create(&dir, "x", &fd, &lock, NULL) == 0 ? write(ready[1], "x", 1) : 0;

		(void)ignored;
		pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(lockdir_probe(&dir, "x", NULL, NULL), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(lockdir_probe(&dir, "x", NULL, NULL), 0);
	close(ready[0]);
	close(ready[1]);
}

static void count_visit(const char *name, int dirfd, int live, void *arg)
{
	int *counts = arg;

	(void)name;
	assert_true(dirfd >= 0);
	counts[live]++;
}

static void a_sweep_removes_stale_children_with_all_that_is_in_them_and_no_others(void **s)
{
	int fd, lock, fd2, lock2, counts[2] = { 0 };

	(void)s;
	assert_int_equal(lockdir_create(&dir, "live", &fd, &lock, NULL), 0);
	assert_int_equal(lockdir_create(&dir, "stale", &fd2, &lock2, NULL), 0);
	mkdirat(fd2, "sub", 0700);
	assert_int_equal(symlinkat("/", fd2, "link"), 0);
	close(openat(fd2, "sub/file", O_CREAT | O_WRONLY, 0600));
	close(fd2);
	close(lock2);
	assert_int_equal(mkdirat(dir.fd, "without-lock", 0700), 0);
	close(openat(dir.fd, "stray-file", O_CREAT | O_WRONLY, 0600));

	assert_int_equal(lockdir_sweep(&dir, count_visit, counts, NULL), 0);
	assert_int_equal(counts[1], 1);
	assert_int_equal(counts[0], 2);
	assert_true(exists("live"));
	assert_false(exists("stale"));
	assert_false(exists("without-lock"));
	assert_true(exists("stray-file"));
	close(fd);
	close(lock);
}

static void only_its_holder_removes_a_live_child(void **s)
{
	struct err err = ERR_INIT;
	int fd, lock;

	(void)s;
	assert_int_equal(lockdir_create(&dir, "x", &fd, &lock, NULL), 0);
	assert_int_equal(lockdir_remove(&dir, "x", -1, &err), -EBUSY);
	assert_true(exists("x"));
	assert_int_equal(lockdir_remove(&dir, "x", lock, NULL), 0);
	assert_false(exists("x"));
	assert_int_equal(lockdir_remove(&dir, "x", -1, NULL), 0);
	close(fd);
	close(lock);
}

static void a_symbolic_link_is_no_child(void **s)
{
	(void)s;
	assert_int_equal(symlinkat("/tmp", dir.fd, "x"), 0);
	assert_true(lockdir_probe(&dir, "x", NULL, NULL) < 0);
	assert_int_equal(lockdir_sweep(&dir, NULL, NULL, NULL), 0);
	assert_true(exists("x"));
}

static void a_directory_that_others_can_write_is_refused(void **s)
{
	struct err err = ERR_INIT;
	struct lockdir d;
	char path[128];

	(void)s;
	snprintf(path, sizeof(path), "%s/open", home.path);
	mkdir(path, 0700);
	chmod(path, 0777);
	assert_int_equal(lockdir_open(&d, path, &err), -EPERM);
	assert_non_null(strstr(err.text, "chmod 700"));
	assert_int_equal(d.fd, -1);
}

static void two_makers_at_once_get_one_child(void **s)
{
	enum { MAKERS = 8 };
	pid_t pid[MAKERS];
	int go[2], winners = 0;

	(void)s;
	assert_int_equal(pipe(go), 0);
	for (int i = 0; i < MAKERS; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct lockdir d;
			int fd, lock;
			char byte;

			close(go[1]);
			if (lockdir_open(&d, dir.path, NULL) < 0 || read(go[0], &byte, 1) != 0)
				_exit(2);
			int r = lockdir_create(&d, "x", &fd, &lock, NULL);

			/* Whoever wins holds it until all others have tried: the test collects the losers first. */
			if (r == 0)
				pause();
			_exit(r == -EEXIST ? 1 : 3);
		}
	}
	close(go[0]);
	close(go[1]);
	for (int i = 0; i < MAKERS - 1; i++) {
		int status;

		assert_true(waitpid(-1, &status, 0) > 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 1);
	}
	for (int i = 0; i < MAKERS; i++)
		if (waitpid(pid[i], NULL, WNOHANG) == 0) {
			winners++;
			kill(pid[i], SIGKILL);
			waitpid(pid[i], NULL, 0);
		}
	assert_int_equal(winners, 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_child_is_live_while_its_maker_holds_it),
		T(a_live_child_is_not_made_again),
		T(a_stale_child_of_the_same_name_is_replaced),
		T(a_child_stays_live_while_a_heir_of_the_descriptor_lives),
		T(a_killed_holder_leaves_a_stale_child),
		T(a_sweep_removes_stale_children_with_all_that_is_in_them_and_no_others),
		T(only_its_holder_removes_a_live_child),
		T(a_symbolic_link_is_no_child),
		T(a_directory_that_others_can_write_is_refused),
		T(two_makers_at_once_get_one_child),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
