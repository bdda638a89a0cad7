/* SPDX-License-Identifier: Apache-2.0 */
/* Killing without cgroups: see kill.h. */
#include "guest/agent/kill.h"

#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/proc.h"

struct children {
	int count, signal;
};

static void one_child(const struct proc *p, void *arg)
{
	struct children *c = arg;

	if (p->parent != getpid())
		return;
	c->count++;
	if (c->signal)
		kill(p->pid, c->signal);
}

int kill_children(int signal)
{
	struct children c = { .signal = signal };

	proc_each(one_child, &c);
	return c.count;
}

bool kill_descendants(pid_t watch, int *ret_status)
{
	bool seen = false;

	for (int round = 0; round < KILL_ROUNDS; round++) {
		int status, options = 0; /* wait for one: all have been sent SIGKILL. Then take those that are there. */
		pid_t pid;

		if (kill_children(SIGKILL) == 0)
			break;
		while ((pid = waitpid(-1, &status, options)) > 0) {
			if (pid == watch) {
				seen = true;
				*ret_status = status;
			}
			options = WNOHANG;
		}
	}
	return seen;
}
