/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clipboard of a VM's desktop: see clipboard.h.
 *
 * get and set run the guest's program to its end; watch keeps it running and takes apart what it writes: le32 length and text.
 * Its stdout is the agent's frames, its stderr the reason when it fails.
 */
#include "host/clipboard.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/control_client.h"
#include "lib/fd.h"
#include "lib/le.h"
#include "lib/text.h"
#include "lib/util.h"

enum { HEAD = 4, REASON_MAX = 200 };

/* One run of the guest's program. */
struct job {
	struct agent_conn *c;
	size_t max, len;          /* of its output: more is an error */
	char *out;
	char reason[REASON_MAX];  /* the beginning of its stderr */
	size_t reason_len;
	int64_t window;           /* bytes of stdin that may be sent */
	bool ended;
	uint32_t kind, value;     /* then */
};

bool clipboard_is_text(const char *text, size_t n)
{
	uint32_t c;
	int len;

	while ((len = text_utf8_next(text, n, &c)) > 0) {
		if (c == 0)
			return false;
		text += len;
		n -= (size_t)len;
	}
	return len == 0;
}

int clipboard_connect_vm(void *arg, struct agent_conn **ret, struct err *err)
{
	return vm_connect_agent(arg, -1, ret, err);
}

/* ---- a run ---- */

static char *make_request(const struct clipboard_guest *g, const char *verb, bool input, size_t *ret_n)
{
	char *text = NULL;
	FILE *f = open_memstream(&text, ret_n);

	if (!f)
		return NULL;
	fputs("{\"op\":\"exec\",\"argv\":[", f);
	agent_put_string(f, g->program ? g->program : CLIPBOARD_PROGRAM);
	fprintf(f, ",\"%s\"],\"stdin\":%s}", verb, input ? "true" : "false");
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

static int job_start(const struct clipboard_guest *g, const char *verb, bool input, size_t max, struct job *j, uint64_t deadline,
		     struct err *err)
{
	size_t n;
	_cleanup_free_ char *request = make_request(g, verb, input, &n);
	struct agent_line line;
	int r;

	*j = (struct job){ .max = max, .out = malloc(max + 1) };
	if (!request || !j->out)
		return err_set(err, -ENOMEM, "out of memory");
	r = g->connect(g->arg, &j->c, err);
	if (r == 0)
		r = agent_request(j->c, request, n, deadline, &line, err);
	if (r == 0 && input)
		agent_line_int(&line, "stdin_window", &j->window);
	return r;
}

static void job_finish(struct job *j)
{
	agent_close(j->c);
	free(j->out);
	*j = (struct job){ 0 };
}

/* Lengths that have to be right are: agent_frame_next has seen to it. */
static int take_frame(struct job *j, const struct agent_received *f, struct err *err)
{
	switch (f->type) {
	case AGENT_STDOUT:
		if (f->length > j->max - j->len)
			return err_set(err, -E2BIG, "clipboard: the guest says more than %zu bytes", j->max);
		memcpy(j->out + j->len, f->payload, f->length);
		j->len += f->length;
		return 0;
	case AGENT_STDERR: {
		size_t n = MIN((size_t)f->length, sizeof(j->reason) - 1 - j->reason_len);

		memcpy(j->reason + j->reason_len, f->payload, n);
		j->reason_len += n;
		return 0;
	}
	case AGENT_CREDIT:
		j->window += le32_load(f->payload);
		return 0;
	case AGENT_ERROR: return agent_frame_error(f, err);
	case AGENT_EXIT:
		j->ended = true;
		j->kind = le32_load(f->payload);
		j->value = le32_load(f->payload + 4);
		return 0;
	default: break;
	}
	return err_set(err, -EPROTO, "clipboard: the agent sent a frame of type %u and %u bytes", f->type, f->length);
}

/* How it ended, as an error unless that was well. */
static int job_result(const struct job *j, struct err *err)
{
	if (j->kind == AGENT_EXIT_STATUS && j->value == 0)
		return 0;
	if (j->kind == AGENT_EXIT_NOEXEC && j->value == ENOENT)
		return err_set(err, -ENOENT, "clipboard: the VM's image has no desktop (" CLIPBOARD_PROGRAM " is missing): 'coffer image build desktop' makes one");
	if (j->reason_len)
		return err_set(err, -EIO, "%.*s", (int)strcspn(j->reason, "\n"), j->reason);
	return err_set(err, -EIO, "clipboard: " CLIPBOARD_PROGRAM " in the guest failed (%u, %u)", j->kind, j->value);
}

static int job_run(struct job *j, uint64_t deadline, struct err *err)
{
	while (!j->ended) {
		struct agent_received f;
		int r = agent_frame_wait(j->c, deadline, &f, err);

		if (r == 0)
			r = take_frame(j, &f, err);
		if (r < 0)
			return r;
	}
	return job_result(j, err);
}

/* ---- get ---- */

long clipboard_get(const struct clipboard_guest *g, char **ret_text, struct err *err)
{
	uint64_t deadline = control_deadline(CLIPBOARD_MS);
	struct job j;
	int r = job_start(g, "get", false, CLIPBOARD_MAX, &j, deadline, err);
	long n = r;

	if (r == 0)
		r = job_run(&j, deadline, err);
	if (r == 0) {
		n = clipboard_is_text(j.out, j.len) ? (long)j.len : 0;
		j.out[n] = '\0';
		*ret_text = TAKE_PTR(j.out);
	}
	job_finish(&j);
	return r < 0 ? r : n;
}

/* ---- set ---- */

/* The next frame, whatever it is. */
static int job_step(struct job *j, uint64_t deadline, struct err *err)
{
	struct agent_received f;
	int r = agent_frame_wait(j->c, deadline, &f, err);

	return r < 0 ? r : take_frame(j, &f, err);
}

static int send_piece(struct job *j, const char *text, size_t n, uint64_t deadline, struct err *err)
{
	int r = agent_frame_put(j->c, AGENT_STDIN, text, n);

	j->window -= (int64_t)n;
	return r < 0 ? err_errno(err, r, "clipboard") : agent_flush_wait(j->c, deadline, err);
}

/* As much as the agent has given credit for is under way at a time. A program that has ended takes no more. */
static int send_text(struct job *j, const char *text, size_t n, uint64_t deadline, struct err *err)
{
	size_t sent = 0;
	int r = 0;

	while (sent < n && !j->ended && r == 0) {
		size_t piece = MIN(n - sent, (size_t)AGENT_FRAME_MAX);

		if (j->window <= 0) {
			r = job_step(j, deadline, err);
			continue;
		}
		piece = MIN(piece, (size_t)j->window);
		r = send_piece(j, text + sent, piece, deadline, err);
		sent += piece;
	}
	return r < 0 || j->ended ? r : send_piece(j, NULL, 0, deadline, err);
}

int clipboard_set(const struct clipboard_guest *g, const char *text, size_t n, struct err *err)
{
	uint64_t deadline = control_deadline(CLIPBOARD_MS);
	struct job j;
	int r;

	if (n > CLIPBOARD_MAX)
		return err_set(err, -E2BIG, "clipboard: the text has %zu bytes, it may have %d", n, CLIPBOARD_MAX);
	if (!clipboard_is_text(text, n))
		return err_set(err, -EINVAL, "clipboard: the text is not UTF-8, or has a zero byte in it");
	r = job_start(g, "set", true, 0, &j, deadline, err);
	if (r == 0)
		r = send_text(&j, text, n, deadline, err);
	if (r == 0)
		r = job_run(&j, deadline, err);
	job_finish(&j);
	return r;
}

/* ---- watch ---- */

struct clipboard_watch {
	struct job j;
	size_t taken; /* bytes of j.out that the caller has had */
};

int clipboard_watch_start(const struct clipboard_guest *g, struct clipboard_watch **ret, struct err *err)
{
	struct clipboard_watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return err_set(err, -ENOMEM, "out of memory");
	r = job_start(g, "watch", false, HEAD + CLIPBOARD_MAX + AGENT_FRAME_MAX, &w->j, control_deadline(CLIPBOARD_MS), err);
	if (r < 0) {
		clipboard_watch_close(w);
		return r;
	}
	*ret = w;
	return 0;
}

int clipboard_watch_fd(const struct clipboard_watch *w)
{
	return w->j.c->fd;
}

/* A whole text at the beginning of the buffer? What was told before it goes. */
static int watch_take(struct clipboard_watch *w, const char **ret_text, size_t *ret_n, struct err *err)
{
	struct job *j = &w->j;
	size_t n;

	memmove(j->out, j->out + w->taken, j->len - w->taken);
	j->len -= w->taken;
	w->taken = 0;
	if (j->len < HEAD)
		return 0;
	n = le32_load(j->out);
	if (n > CLIPBOARD_MAX)
		return err_set(err, -EPROTO, "clipboard: the guest announces a text of %zu bytes", n);
	if (j->len < HEAD + n)
		return 0;
	w->taken = HEAD + n;
	*ret_text = j->out + HEAD;
	*ret_n = clipboard_is_text(j->out + HEAD, n) ? n : 0;
	return 1;
}

int clipboard_watch_next(struct clipboard_watch *w, const char **ret_text, size_t *ret_n, struct err *err)
{
	for (;;) {
		struct agent_received f;
		int r = watch_take(w, ret_text, ret_n, err);

		if (r != 0)
			return r;
		if (w->j.ended) {
			r = job_result(&w->j, err);
			return r < 0 ? r : err_set(err, -EIO, "clipboard: the guest's program has ended");
		}
		r = agent_frame_next(w->j.c, &f, err);
		if (r > 0) {
			r = take_frame(&w->j, &f, err);
		} else if (r == 0) {
			r = agent_fill(w->j.c, err);
			if (r == 0)
				return 0;
		}
		if (r < 0)
			return r;
	}
}

void clipboard_watch_close(struct clipboard_watch *w)
{
	if (!w)
		return;
	job_finish(&w->j);
	free(w);
}
