/* SPDX-License-Identifier: Apache-2.0 */
/* The process between viewers and a guest's clipboard, over the real agent with a shell script as the guest's program. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/vnc_clipboard.h"
#include "tests/harness/agent.h"

enum { LIMIT_MS = 60000, STEP_MS = 20 };

struct fixture {
	struct home home;
	struct test_agent agent;
	struct clipboard_guest guest;
	char program[400];
	pid_t pid;
	int sock;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	home_make(&f->home);
	test_agent_start(&f->agent, &f->home);
	f->guest = (struct clipboard_guest){ .connect = test_agent_connect, .arg = &f->agent, .program = f->program };
	snprintf(f->program, sizeof(f->program), "%s/clipboard", f->home.path);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	if (f->pid > 0) {
		kill(f->pid, SIGKILL);
		waitpid(f->pid, NULL, 0);
	}
	test_agent_stop(&f->agent);
	home_remove(&f->home);
	free(f);
	return 0;
}

/* The guest's program: shell that has the verb in $1 and the home of the test in $d. */
static void begin(struct fixture *f, const char *script)
{
	int fd = open(f->program, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755), pair[2];

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "#!/bin/sh\nd='%s'\n%s\n", f->home.path, script) > 0);
	close(fd);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	f->pid = fork();
	if (f->pid == 0) {
		close(pair[0]);
		_exit(vnc_clipboard_run(pair[1], &f->guest, NULL) == -ECONNRESET ? 0 : 1);
	}
	assert_true(f->pid > 0);
	close(pair[1]);
	f->sock = pair[0];
}

static void say(struct fixture *f, const char *text)
{
	assert_int_equal(send(f->sock, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

/* The guest's program was called with it and is at its end. */
static void wait_for_set(struct fixture *f, const char *text)
{
	char path[500];

	snprintf(path, sizeof(path), "%s/was-%s", f->home.path, text);
	for (int waited = 0; access(path, F_OK) < 0; waited += STEP_MS) {
		if (waited >= LIMIT_MS)
			fail_msg("the guest was not told '%s' within %d s", text, LIMIT_MS / 1000);
		poll(NULL, 0, STEP_MS);
	}
}

static void assert_told(struct fixture *f, const char *text)
{
	struct pollfd p = { .fd = f->sock, .events = POLLIN };
	char got[100] = "";

	if (poll(&p, 1, LIMIT_MS) != 1)
		fail_msg("'%s' did not come within %d s", text, LIMIT_MS / 1000);
	assert_true(recv(f->sock, got, sizeof(got) - 1, 0) > 0);
	assert_string_equal(got, text);
}

static void texts_go_both_ways_and_none_comes_back(void **state)
{
	struct fixture *f = *state;

	begin(f, "case $1 in watch) mkfifo $d/told; printf '\\003\\0\\0\\0one'; cat <>$d/told;;\n"
		 "set) t=$(cat); printf '\\003\\0\\0\\0two\\005\\0\\0\\0three' >$d/told; : >$d/was-$t;; esac");
	assert_told(f, "one");
	say(f, "one"); /* what it has told itself */
	say(f, "two");
	wait_for_set(f, "two");
	assert_told(f, "three"); /* and not two */
	close(f->sock);
	int status;

	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	f->pid = 0;
	assert_int_equal(status, 0);
}

static void a_text_that_the_guest_does_not_take_ends_nothing(void **state)
{
	struct fixture *f = *state;

	begin(f, "case $1 in watch) printf '\\005\\0\\0\\0begin'; exec sleep 1000;;\n"
		 "set) t=$(cat); : >$d/was-$t; [ $t != first ] || exit 3;; esac");
	assert_told(f, "begin");
	say(f, "first");
	wait_for_set(f, "first");
	say(f, "second");
	wait_for_set(f, "second");
	close(f->sock);
}

static void what_is_no_text_is_not_told_to_the_guest(void **state)
{
	struct fixture *f = *state;

	begin(f, "case $1 in watch) printf '\\005\\0\\0\\0begin'; exec sleep 1000;; set) t=$(cat); : >$d/was-$t;; esac");
	assert_told(f, "begin");
	say(f, "\xff\xfe");
	say(f, "good");
	wait_for_set(f, "good");
	say(f, "\xc3");
	say(f, "better");
	wait_for_set(f, "better");
	close(f->sock);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(texts_go_both_ways_and_none_comes_back),
		T(a_text_that_the_guest_does_not_take_ends_nothing),
		T(what_is_no_text_is_not_told_to_the_guest),
	};

	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests_name("vnc_clipboard", tests, NULL, NULL);
}
