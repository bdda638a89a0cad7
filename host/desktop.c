/* SPDX-License-Identifier: Apache-2.0 */
/* The session of a VM's desktop: see desktop.h. */
#include "host/desktop.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "host/control_client.h"
#include "lib/util.h"

/* The agent waits so long at a time, then it is asked again. ANSWER_MS: for a busy guest to say that the time is over. */
enum { ASK_MS = 60000, ANSWER_MS = 5000, PAUSE_MS = 100 };

struct state {
	char name[16];
	int64_t ended;
};

static int ask(const struct desktop_guest *g, uint64_t wait_ms, struct state *ret, struct err *err)
{
	struct agent_conn *c = NULL;
	struct agent_line line;
	char request[64];
	int n = snprintf(request, sizeof(request), "{\"op\":\"session\",\"timeout_ms\":%llu}", (unsigned long long)wait_ms);
	int r = g->connect(g->arg, &c, err);

	if (r < 0)
		return r;
	r = agent_request(c, request, (size_t)n, control_deadline(wait_ms + ANSWER_MS), &line, err);
	agent_close(c);
	if (r == -EOPNOTSUPP)
		return err_set(err, r, "the VM's agent is older than this: it knows nothing of sessions; start the VM anew, or use 'wait --stable'");
	if (r < 0)
		return r;
	if (agent_line_string(&line, "state", ret->name, sizeof(ret->name)) < 0 || agent_line_int(&line, "ended", &ret->ended) < 0)
		return err_set(err, -EPROTO, "the agent's answer says nothing of a session");
	return 0;
}

static int late(const struct state *s, struct err *err)
{
	if (s->ended > 0)
		return err_set(err, -ETIMEDOUT, "the desktop is not ready: its session has ended %lld times; /var/log/coffer-session.log in the VM says why",
			       (long long)s->ended);
	return err_set(err, -ETIMEDOUT, "the desktop is not ready: its session runs and has not said yet that it is");
}

int desktop_wait_ready(const struct desktop_guest *g, unsigned long long deadline_ms, struct err *err)
{
	struct state s = { .name = "" };

	for (;;) {
		unsigned long long now = control_deadline(0), left = deadline_ms > now ? deadline_ms - now : 0;
		int r = ask(g, deadline_ms ? MIN(left, (unsigned long long)ASK_MS) : ASK_MS, &s, err);

		if (r < 0)
			return r;
		if (strcmp(s.name, "ready") == 0)
			return 0;
		if (strcmp(s.name, "none") == 0)
			return err_set(err, -ENOENT, "the VM's image has no desktop session (/usr/lib/coffer/session): 'coffer image build desktop' makes "
						     "one; for other pictures there is 'wait --stable'");
		if (strcmp(s.name, "starting") != 0 && strcmp(s.name, "ended") != 0)
			return err_set(err, -EPROTO, "the agent says that the session is '%s'", s.name);
		if (deadline_ms && control_deadline(0) >= deadline_ms)
			return late(&s, err);
		poll(NULL, 0, PAUSE_MS); /* an agent that does not wait as it was told costs us no processor */
	}
}
