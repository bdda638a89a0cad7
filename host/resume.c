/* SPDX-License-Identifier: Apache-2.0 */
/* A guest command whose connection can be made again: see resume.h. */
#include "host/resume.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/loop.h"
#include "lib/text.h"
#include "lib/util.h"

enum { ATTACH_MS = 60000 };

int64_t resume_make_key(void)
{
	int64_t key = 0;

	if (getrandom(&key, sizeof(key), 0) != sizeof(key))
		key = (int64_t)loop_now_ns();
	key &= INT64_MAX;
	return key ? key : 1;
}

struct resume *resume_new(const struct resume_source *source, int64_t id, int64_t key)
{
	struct resume *r = malloc(sizeof(*r));

	if (r) {
		memset(r, 0, offsetof(struct resume, kept));
		r->source = source;
		r->id = id;
		r->key = key;
	}
	return r;
}

void resume_keep(struct resume *r, const uint8_t *data, size_t n)
{
	size_t at = r->sent % AGENT_STDIN_WINDOW, first = MIN(n, (size_t)AGENT_STDIN_WINDOW - at);

	memcpy(r->kept + at, data, first);
	memcpy(r->kept, data + first, n - first);
	r->again += r->again == r->sent ? n : 0;
	r->sent += n;
}

int resume_credit(struct resume *r, uint32_t n, struct err *err)
{
	if (n > r->sent - r->taken)
		return err_set(err, -EPROTO, "the agent gave credit for %u bytes of stdin that were not sent", n);
	r->taken += n;
	return 0;
}

void resume_count(struct resume *r, const struct agent_received *f)
{
	if (f->type == AGENT_STDOUT || f->type == AGENT_STDERR || f->type == AGENT_EXIT)
		r->received += sizeof(struct agent_frame) + f->length;
}

bool resume_put(struct resume *r, struct agent_conn *c)
{
	if (r->received - r->acked >= AGENT_ACK_STEP) {
		le64 total = le64_make(r->received);

		r->acked = r->received;
		agent_frame_put(c, AGENT_ACK, &total, sizeof(total));
		return true;
	}
	if (r->again < r->sent) {
		size_t at = r->again % AGENT_STDIN_WINDOW;
		size_t n = MIN(MIN(r->sent - r->again, (uint64_t)AGENT_FRAME_MAX), (uint64_t)AGENT_STDIN_WINDOW - at);

		agent_frame_put(c, AGENT_STDIN, r->kept + at, n);
		r->again += n;
		return true;
	}
	return false;
}

static int stale(struct err *err, const char *why)
{
	return err_set(err, -ESTALE,
		       "the VM was restored from an earlier moment, or from another snapshot: this command's output "
		       "cannot be continued (%s)",
		       why);
}

/* What the agent has of our stdin decides from where it goes on. */
static int take_stdin(struct resume *r, const struct agent_line *line, uint64_t *ret_window, bool *ret_ended,
		      struct err *err)
{
	int64_t taken = -1, window = -1;
	bool open = false;

	agent_line_int(line, "stdin_taken", &taken);
	agent_line_int(line, "stdin_window", &window);
	agent_line_bool(line, "stdin", &open);
	if (taken < 0 || window < 0 || window > AGENT_STDIN_WINDOW)
		return err_set(err, -EPROTO, "the agent's answer to attach makes no sense: '%s'", TEXT_CUT(line->text));
	uint64_t unread = (uint64_t)(AGENT_STDIN_WINDOW - window);

	if ((uint64_t)taken < r->taken + unread || (uint64_t)taken > r->sent)
		return stale(err, "its input was another");
	if (!open && (uint64_t)taken != r->sent)
		return err_set(err, -EPROTO, "the agent ended stdin before its end");
	r->taken = (uint64_t)taken - unread;
	r->again = (uint64_t)taken;
	*ret_window = r->taken + AGENT_STDIN_WINDOW - r->sent;
	*ret_ended = !open;
	return 0;
}

static int attach(struct resume *r, struct agent_conn *c, uint64_t *ret_window, bool *ret_ended, struct err *err)
{
	struct agent_line line;
	char request[128];
	int n = snprintf(request, sizeof(request), "{\"op\":\"attach\",\"id\":%lld,\"resume\":%lld,\"received\":%llu}",
			 (long long)r->id, (long long)r->key, (unsigned long long)r->received);
	int code = agent_request(c, request, (size_t)n, loop_now_ns() / 1000000 + ATTACH_MS, &line, err);

	if (code == -ESTALE || code == -ENOENT || code == -ESRCH) {
		struct err why = *err;

		return stale(err, why.text);
	}
	if (code < 0)
		return code;
	r->acked = r->received;
	return take_stdin(r, &line, ret_window, ret_ended, err);
}

int resume_again(struct resume *r, struct agent_conn *c, uint64_t *ret_window, bool *ret_ended, int *ret_signal,
		 struct err *err)
{
	for (;;) {
		struct agent_conn *fresh;
		int code = r->source->connect(r->source->arg, c->signal_fd, &fresh, ret_signal, err);

		if (code < 0)
			return code;
		fresh->signal_fd = c->signal_fd;
		code = attach(r, fresh, ret_window, ret_ended, err);
		agent_replace(c, fresh);
		if (code == -ECANCELED)
			*ret_signal = c->signal;
		if (code != -ECONNRESET && code != -EPIPE)
			return code;
		/* Gone again already: connect knows whether the VM is to come back once more. */
	}
}
