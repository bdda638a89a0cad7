/* SPDX-License-Identifier: Apache-2.0 */
/* What is put right when a command is killed: the terminal, the monitor, the VM's directory. And what is not touched. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
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
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/guardian.h"
#include "host/term.h"
#include "host/vmdir.h"
#include "tests/harness/home.h"

static struct home home;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	/* Guardians of the children below come to us, so that their end can be awaited. */
	return prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static int tear_down(void **s)
{
	(void)s;
	home_remove(&home);
	return 0;
}

/* Collect every child, grandchildren included: nothing of the test runs after that. */
static void wait_for_all(void)
{
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
}

/* A process that ends only by a signal, and its pidfd. */
static pid_t start_monitor(int *ret_pidfd)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	*ret_pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return pid;
}

enum way { KILLED, GOODBYE, FORGOTTEN };

/* A command with a VM directory and a monitor, that ends in one of the ways. */
static pid_t run_command(int monitor, enum way way)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct guardian g;
		struct vmdir d;

		if (guardian_start(&g, -1, NULL) < 0 || vmdir_create("x", &d, NULL) < 0 || vmdir_create_disks(&d, NULL) < 0)
			_exit(1);
		guardian_watch_monitor(&g, 1, monitor);
		if (way == GOODBYE) {
			guardian_finish(&g);
			_exit(0);
		}
		if (way == FORGOTTEN)
			guardian_forget_monitor(&g, 0);
		raise(SIGKILL);
	}
	return pid;
}

static bool exists(const char *below)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", home.path, below);
	return access(path, F_OK) == 0;
}

static bool has_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void a_killed_command_takes_its_monitor_and_its_directories_along(void **s)
{
	int monitor;

	(void)s;
	start_monitor(&monitor);
	run_command(monitor, KILLED);
	wait_for_all(); /* the monitor too: it is a child of ours */
	assert_false(exists("run/coffer/x"));
	assert_false(exists("state/coffer/vms/x"));
	close(monitor);
}

static void after_a_goodbye_nothing_is_touched(void **s)
{
	int monitor;
	pid_t pid;

	(void)s;
	pid = start_monitor(&monitor);
	assert_int_equal(waitpid(run_command(monitor, GOODBYE), NULL, 0) > 0, 1);
	assert_false(has_ended(monitor));
	assert_true(exists("run/coffer/x")); /* stale by now, but not the guardian's business */
	kill(pid, SIGKILL);
	wait_for_all();
	close(monitor);
}

static void a_monitor_that_is_to_stay_stays(void **s)
{
	int monitor;
	pid_t pid, command;

	(void)s;
	pid = start_monitor(&monitor);
	command = run_command(monitor, FORGOTTEN);
	waitpid(command, NULL, 0);
	/* The guardian is the other child that ends by itself. */
	assert_true(waitpid(-1, NULL, 0) > 0);
	assert_false(has_ended(monitor));
	kill(pid, SIGKILL);
	wait_for_all();
	close(monitor);
}

static void the_terminal_is_put_back(void **s)
{
	struct termios before, now;
	int master, slave;

	(void)s;
	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	assert_int_equal(tcgetattr(slave, &before), 0);
	if (fork() == 0) {
		struct guardian g;
		struct term t;

		if (guardian_start(&g, slave, NULL) < 0 || term_raw(&t, slave, NULL) < 0)
			_exit(1);
		guardian_watch_terminal(&g, &t);
		raise(SIGKILL);
	}
	wait_for_all();
	assert_int_equal(tcgetattr(slave, &now), 0);
	assert_int_equal(now.c_lflag, before.c_lflag);
	assert_int_equal(now.c_iflag, before.c_iflag);
	assert_int_equal(now.c_oflag, before.c_oflag);
	close(master);
	close(slave);
}

static void the_guardian_holds_no_descriptor_of_the_command_s(void **s)
{
	int p[2];
	char byte;

	(void)s;
	assert_int_equal(pipe(p), 0);
	pid_t pid = fork();

	if (pid == 0) {
		struct guardian g;

		dup2(p[1], STDOUT_FILENO);
		close(p[0]);
		close(p[1]);
		if (guardian_start(&g, -1, NULL) < 0)
			_exit(1);
		close(STDOUT_FILENO);
		for (;;)
			pause();
	}
	close(p[1]);
	/* End of file comes while command and guardian live: a reader of the output does not wait for them. */
	assert_int_equal(read(p[0], &byte, 1), 0);
	kill(pid, SIGKILL);
	wait_for_all();
	close(p[0]);
}

static void raw_and_back_is_the_same(void **s)
{
	struct termios before, now;
	struct term t;
	int master, slave;

	(void)s;
	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	assert_int_equal(tcgetattr(slave, &before), 0);
	assert_int_equal(term_raw(&t, slave, NULL), 0);
	assert_int_equal(tcgetattr(slave, &now), 0);
	assert_int_equal(now.c_lflag & (ICANON | ECHO | ISIG), 0);
	term_restore(&t);
	term_restore(&t); /* twice does no harm */
	assert_int_equal(tcgetattr(slave, &now), 0);
	assert_int_equal(now.c_lflag, before.c_lflag);
	close(master);
	close(slave);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_killed_command_takes_its_monitor_and_its_directories_along),
		T(after_a_goodbye_nothing_is_touched),
		T(a_monitor_that_is_to_stay_stays),
		T(the_terminal_is_put_back),
		T(the_guardian_holds_no_descriptor_of_the_command_s),
		T(raw_and_back_is_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
