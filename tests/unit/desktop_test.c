/* SPDX-License-Identifier: Apache-2.0 */
/* The session of a desktop as the host sees it, with the real agent, whose session is a script. */
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/control_client.h"
#include "host/desktop.h"
#include "lib/fd.h"
#include "tests/harness/agent.h"

struct fixture {
	struct home home;
	struct test_agent agent;
	struct desktop_guest guest;
	struct err err;
};

static int setup(void **ctx)
{
	static struct fixture f;

	f = (struct fixture){ .err = ERR_INIT };
	home_make(&f.home);
	f.guest = (struct desktop_guest){ test_agent_connect, &f.agent };
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	if (f->agent.pid)
		test_agent_stop(&f->agent);
	home_remove(&f->home);
	return 0;
}

/* An agent that keeps this script; $go is a file that does not exist yet. */
static void start(struct fixture *f, const char *script)
{
	char path[256];
	FILE *s;

	snprintf(path, sizeof(path), "%s/session", f->home.path);
	s = fopen(path, "w");
	assert_non_null(s);
	fprintf(s, "#!/bin/sh\ngo=%s/go\n%s\n", f->home.path, script);
	assert_int_equal(fclose(s), 0);
	assert_int_equal(chmod(path, 0755), 0);
	test_agent_start_session(&f->agent, &f->home, path);
}

static void go(struct fixture *f)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/go", f->home.path);
	FILE *s = fopen(path, "w");

	assert_non_null(s);
	fclose(s);
}

static void late(struct fixture *f, const char *text)
{
	assert_int_equal(desktop_wait_ready(&f->guest, control_deadline(100), &f->err), -ETIMEDOUT);
	if (!strstr(f->err.text, text))
		fail_msg("'%s' does not say '%s'", f->err.text, text);
}

static void ready(struct fixture *f, unsigned long long deadline)
{
	if (desktop_wait_ready(&f->guest, deadline, &f->err) < 0)
		fail_msg("%s", f->err.text);
}

static void a_session_is_ready_when_it_says_so(void **ctx)
{
	struct fixture *f = *ctx;

	start(f, "until [ -e $go ]; do sleep 0.05; done; echo ready >&$COFFER_READY_FD; exec sleep 1000");
	late(f, "its session runs and has not said yet that it is");
	go(f);
	ready(f, 0);
	ready(f, control_deadline(1)); /* and stays so */
}

static void one_that_ends_is_not_ready_any_more_until_the_next_is(void **ctx)
{
	struct fixture *f = *ctx;

	start(f, "[ -e $go ] || { echo ready >&3; until [ -e $go ]; do sleep 0.05; done; exit; }; rm $go; echo ready >&3; exec sleep 1000");
	ready(f, 0);
	go(f);
	do
		f->err.text[0] = 0;
	while (desktop_wait_ready(&f->guest, control_deadline(1), &f->err) == 0 && (poll(NULL, 0, 10), true));
	assert_non_null(strstr(f->err.text, "its session has ended 1 times"));
	ready(f, 0);
}

static void a_session_that_fails_is_said(void **ctx)
{
	struct fixture *f = *ctx;

	start(f, "exit 1");
	do
		late(f, "the desktop is not ready: its session");
	while (!strstr(f->err.text, "has ended"));
	late(f, "/var/log/coffer-session.log");
}

static void what_a_session_leaves_behind_does_not_keep_it(void **ctx)
{
	struct fixture *f = *ctx;

	/* The descriptor is open in a process that lives on, in a group of its own. */
	start(f, "setsid sleep 10 & exit 1");
	do
		late(f, "the desktop is not ready: its session");
	while (!strstr(f->err.text, "has ended"));
}

static void an_image_without_a_session_is_said(void **ctx)
{
	struct fixture *f = *ctx;

	test_agent_start(&f->agent, &f->home);
	assert_int_equal(desktop_wait_ready(&f->guest, 0, &f->err), -ENOENT);
	assert_non_null(strstr(f->err.text, "has no desktop session (/usr/lib/coffer/session)"));
}

/* An agent that answers at once, whatever it is asked. */
struct words {
	const char *text;
	int peer;
};

static int connect_to_words(void *arg, struct agent_conn **ret, struct err *err)
{
	struct words *w = arg;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(fd_write_full(pair[1], w->text, strlen(w->text)), 0);
	shutdown(pair[1], SHUT_WR);
	fd_close(w->peer); /* of the connection before: a request has to be taken */
	w->peer = pair[1];
	return agent_conn_new(pair[0], ret, err);
}

static void words_that_are_no_state_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct words w = { .peer = -1 };
	static const struct {
		const char *answer;
		int r;
		const char *text;
	} cases[] = {
		{ "{\"ok\":true}\n", -EPROTO, "says nothing of a session" },
		{ "{\"ok\":true,\"state\":\"ready\"}\n", -EPROTO, "says nothing of a session" },
		{ "{\"ok\":true,\"state\":\"ready to explode at any moment\",\"ended\":0}\n", -EPROTO, "that the session is 'ready to explod'" },
		{ "{\"error\":\"request: operation 'session' is not known\",\"errno\":95,\"code\":\"unsupported\"}\n", -EOPNOTSUPP, "older than this" },
		{ "{\"ok\":true,\"state\":\"ended\",\"ended\":-9}\n", -ETIMEDOUT, "the desktop is not ready" },
		{ "", -ECONNRESET, "" },
	};

	f->guest = (struct desktop_guest){ connect_to_words, &w };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		w.text = cases[i].answer;
		assert_int_equal(desktop_wait_ready(&f->guest, control_deadline(50), &f->err), cases[i].r);
		if (!strstr(f->err.text, cases[i].text))
			fail_msg("'%s' does not say '%s'", f->err.text, cases[i].text);
	}
	fd_close(w.peer);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_session_is_ready_when_it_says_so),
		TEST(one_that_ends_is_not_ready_any_more_until_the_next_is),
		TEST(a_session_that_fails_is_said),
		TEST(what_a_session_leaves_behind_does_not_keep_it),
		TEST(an_image_without_a_session_is_said),
		TEST(words_that_are_no_state_are_refused),
	};

	return cmocka_run_group_tests_name("desktop", tests, NULL, NULL);
}
