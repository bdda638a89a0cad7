/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent as a child process, on a Unix socket in the test's home. It takes no rights that the test has not. */
#pragma once
#include <sys/types.h>

#include "host/agent_client.h"
#include "tests/harness/home.h"

struct test_agent {
	pid_t pid;
	char socket[128];
};

/* Starts $B/coffer-agent and waits for its ready line. Aborts the test when it cannot. */
void test_agent_start(struct test_agent *a, const struct home *home);
/* The same with a session to keep: a program. */
void test_agent_start_session(struct test_agent *a, const struct home *home, const char *session);
void test_agent_stop(struct test_agent *a);

/* A fresh connection; copy_guest's connect with a struct test_agent as argument. */
int test_agent_connect(void *agent, struct agent_conn **ret, struct err *err);
