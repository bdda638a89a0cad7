/* SPDX-License-Identifier: Apache-2.0 */
/* The real agent as a child process: see agent.h. */
#include "tests/harness/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/sock.h"
#include "lib/fd.h"

/* Beside the directory of tests that this program is in: B/tests/unit/x is B/coffer-agent. */
static void find_agent(char *path, size_t size)
{
	char self[512];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	self[n > 0 ? n : 0] = 0;
	char *tests = strstr(self, "/tests/");

	if (!tests)
		abort();
	*tests = 0;
	snprintf(path, size, "%s/coffer-agent", self);
}

void test_agent_start(struct test_agent *a, const struct home *home)
{
	test_agent_start_session(a, home, NULL);
}

void test_agent_start_session(struct test_agent *a, const struct home *home, const char *session)
{
	char program[600], ready[128], line[256];
	int dir = open(home->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	unlinkat(dir, "ready", 0);
	unlinkat(dir, "agent", 0);
	int listener = sock_listen_at(dir, "ready", SOCK_STREAM, NULL);

	if (listener < 0)
		abort();
	find_agent(program, sizeof(program));
	snprintf(a->socket, sizeof(a->socket), "%s/agent", home->path);
	snprintf(ready, sizeof(ready), "%s/ready", home->path);
	a->pid = fork();
	if (a->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(program, "coffer-agent", "--listen-unix", a->socket, "--ready-unix", ready, session ? "--session" : NULL, session, NULL);
		perror(program);
		kill(getppid(), SIGABRT);
		_exit(1);
	}
	int conn = accept(listener, NULL, NULL);

	if (conn < 0 || read(conn, line, sizeof(line)) <= 0)
		abort();
	close(conn);
	close(listener);
	close(dir);
}

void test_agent_stop(struct test_agent *a)
{
	kill(a->pid, SIGKILL);
	waitpid(a->pid, NULL, 0);
}

int test_agent_connect(void *agent, struct agent_conn **ret, struct err *err)
{
	const struct test_agent *a = agent;

	return agent_connect_unix(a->socket, ret, err);
}
