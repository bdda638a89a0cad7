/* SPDX-License-Identifier: Apache-2.0 */
/* The streams of one guest command: see session.h. */
#include "host/session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "host/signals.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { SIGNALS_QUEUED = 16 };

enum { SLOT_CONN, SLOT_IN, SLOT_OUT, SLOT_ERR, SLOT_SIGNAL, SLOT_COUNT };

struct pump {
	struct session *s;
	struct session_result *ret;
	bool done;

	/* The output frame being delivered; its bytes stay in the connection's buffer until then. */
	struct stream *to;
	const uint8_t *data;
	size_t left;

	/* What is to be sent, most urgent first. */
	uint8_t signals[SIGNALS_QUEUED];
	unsigned nsignals;
	bool winsize;
	bool told_out, told_err; /* that a stream is closed */
	bool in_eof, told_in_eof;
	bool send_closed;        /* the agent does not take anything any more */

	int end_signals;         /* requests to end so far */
	uint64_t hangup_ms;      /* when to give up after a hangup; 0: none */
};

static uint64_t now_ms(void)
{
	return loop_now_ns() / 1000000;
}

static void finish(struct pump *p, enum session_end end)
{
	p->ret->end = end;
	p->done = true;
}

static int take_frame(struct pump *p, const struct agent_received *f, struct err *err)
{
	struct session *s = p->s;

	switch ((enum agent_frame_type)f->type) {
	case AGENT_STDOUT:
	case AGENT_STDERR:
		p->to = f->type == AGENT_STDOUT ? s->out : s->err;
		p->data = f->payload;
		p->left = f->length;
		return 0;
	case AGENT_CREDIT:
		s->window += le32_load(f->payload);
		return s->resume ? resume_credit(s->resume, le32_load(f->payload), err) : 0;
	case AGENT_EXIT:
		p->ret->kind = le32_load(f->payload);
		p->ret->value = le32_load(f->payload + 4);
		finish(p, SESSION_ENDED);
		return 0;
	case AGENT_ERROR:
		return agent_frame_error(f, err);
	case AGENT_STDIN:
	case AGENT_SIGNAL:
	case AGENT_WINSIZE:
	case AGENT_DATA:
	case AGENT_ACK:
		break;
	}
	return err_set(err, -EPROTO, "the agent sent a frame of type %u during exec", f->type);
}

/* Take frames until one has bytes to deliver, or no whole one is left. */
static int take_frames(struct pump *p, struct err *err)
{
	while (!p->left && !p->done) {
		struct agent_received f;
		int r = agent_frame_next(p->s->conn, &f, err);

		if (r > 0) {
			if (p->s->resume)
				resume_count(p->s->resume, &f);
			r = take_frame(p, &f, err);
		} else if (r == 0)
			return 0;
		if (r < 0)
			return r;
	}
	return 0;
}

static void deliver(struct pump *p)
{
	size_t n = stream_write(p->to, p->data, p->left);

	p->data += n;
	p->left -= n;
}

static void queue_signal(struct pump *p, int signal)
{
	if (p->nsignals < SIGNALS_QUEUED)
		p->signals[p->nsignals++] = (uint8_t)signal;
}

static void take_signal(struct pump *p, int signal)
{
	if (signal == SIGWINCH || signal == SIGCONT) {
		if (signal == SIGCONT && p->s->term)
			term_raw_again(p->s->term);
		p->winsize = p->s->term != NULL;
		return;
	}
	if (signals_is_end(signal) && ++p->end_signals >= SESSION_FORCE_COUNT) {
		p->ret->signal = signal;
		finish(p, SESSION_FORCED);
		return;
	}
	if (signal == SIGHUP && !p->hangup_ms)
		p->hangup_ms = now_ms() + SESSION_HANGUP_MS;
	queue_signal(p, signal);
}

static void read_stdin(struct pump *p)
{
	struct session *s = p->s;
	void *room = agent_frame_room(s->conn);

	if (!room)
		return;
	ssize_t n = read(s->in_fd, room, MIN((uint64_t)AGENT_FRAME_MAX, s->window));

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		p->in_eof = true;
		return;
	}
	if (s->resume)
		resume_keep(s->resume, room, (size_t)n);
	agent_frame_put_filled(s->conn, AGENT_STDIN, (size_t)n);
	s->window -= (uint64_t)n;
}

/* Put the most urgent thing into the connection's buffer, if that is free. */
static void put_next(struct pump *p)
{
	struct agent_conn *c = p->s->conn;

	if (!agent_frame_room(c) || p->send_closed)
		return;
	if (p->nsignals > 0) {
		le32 signal = le32_make(p->signals[0]);

		memmove(p->signals, p->signals + 1, --p->nsignals);
		agent_frame_put(c, AGENT_SIGNAL, &signal, sizeof(signal));
	} else if (p->winsize) {
		uint16_t rows, cols;

		p->winsize = false;
		if (term_size(&rows, &cols)) {
			le16 size[4] = { le16_make(rows), le16_make(cols), le16_make(0), le16_make(0) };

			agent_frame_put(c, AGENT_WINSIZE, size, sizeof(size));
		}
	} else if (p->s->out->closed && !p->told_out) {
		p->told_out = true;
		agent_frame_put(c, AGENT_STDOUT, NULL, 0);
	} else if (p->s->err->closed && !p->told_err) {
		p->told_err = true;
		agent_frame_put(c, AGENT_STDERR, NULL, 0);
	} else if (p->s->resume && resume_put(p->s->resume, c)) {
		/* done */
	} else if (p->in_eof && !p->told_in_eof) {
		p->told_in_eof = true;
		agent_frame_put(c, AGENT_STDIN, NULL, 0);
	}
}

static int send_out(struct pump *p)
{
	int r;

	do {
		put_next(p);
		if (agent_frame_room(p->s->conn))
			return 0;
		r = agent_flush(p->s->conn);
	} while (r > 0);
	if (r < 0) {
		/* The agent does not listen any more; what it said last is still to be read. */
		p->send_closed = true;
		p->s->conn->out_pos = p->s->conn->out_len = 0;
	}
	return 0;
}

static void want(struct pollfd *f, int fd, short events, bool anyway)
{
	*f = (struct pollfd){ .fd = events || anyway ? fd : -1, .events = events };
}

static void want_stream(struct pollfd *f, const struct stream *s, bool pending)
{
	want(f, s->closed ? -1 : s->fd, pending ? POLLOUT : 0, s->can_hang_up);
}

static void prepare(struct pump *p, struct pollfd *f)
{
	struct session *s = p->s;
	bool room = agent_frame_room(s->conn) != NULL && !p->send_closed;
	short conn = (short)((p->left ? 0 : POLLIN) | (room || p->send_closed ? 0 : POLLOUT));

	want(&f[SLOT_CONN], s->conn->fd, conn, false);
	bool stdin_wanted = s->in_fd >= 0 && !p->in_eof && room && s->window > 0;

	want(&f[SLOT_IN], s->in_fd, stdin_wanted && !(s->resume && resume_sends_again(s->resume)) ? POLLIN : 0, false);
	want_stream(&f[SLOT_OUT], s->out, p->left && p->to == s->out);
	want_stream(&f[SLOT_ERR], s->err, p->left && p->to == s->err);
	want(&f[SLOT_SIGNAL], s->signal_fd, POLLIN, false);
}

static int timeout_ms(const struct pump *p)
{
	uint64_t at = p->s->deadline_ms, now = now_ms();

	if (p->hangup_ms && (!at || p->hangup_ms < at))
		at = p->hangup_ms;
	if (!at)
		return -1;
	return at <= now ? 0 : (int)MIN(at - now, (uint64_t)3600000);
}

static void check_deadlines(struct pump *p)
{
	uint64_t now = now_ms();

	if (p->hangup_ms && now >= p->hangup_ms) {
		p->ret->signal = SIGHUP;
		finish(p, SESSION_FORCED);
	} else if (p->s->deadline_ms && now >= p->s->deadline_ms) {
		finish(p, SESSION_OVERDUE);
	}
}

static void check_stream(struct pump *p, struct stream *s, const struct pollfd *f)
{
	if (f->revents & (POLLERR | POLLHUP | POLLNVAL) && s->can_hang_up) {
		s->closed = true;
		if (p->to == s)
			p->left = 0;
	} else if (f->revents && p->left && p->to == s) {
		deliver(p);
	}
}

/*
 * The connection is gone: get it back if that is possible. Whole frames that had come have been delivered; what was on
 * its way out is lost, and said again. Returns 0 when the loop goes on (or p->done), -errno as session_run.
 */
static int come_back(struct pump *p, struct err *err)
{
	struct session *s = p->s;
	struct agent_frame unsent;
	uint64_t start = now_ms();
	bool ended = false;

	if (!s->resume) {
		finish(p, SESSION_LOST);
		return 0;
	}
	memcpy(&unsent, s->conn->out, sizeof(unsent));
	if (s->conn->out_len > 0 && unsent.type == AGENT_SIGNAL)
		queue_signal(p, (int)le32_load(s->conn->out + sizeof(unsent)));
	int r = resume_again(s->resume, s->conn, &s->window, &ended, &p->ret->signal, err);

	if (r == -ECANCELED)
		finish(p, SESSION_FORCED);
	else if (r == -ENOTCONN)
		finish(p, SESSION_LOST);
	else if (r < 0)
		return r;
	p->told_out = p->told_err = p->send_closed = false;
	p->told_in_eof = ended;
	p->winsize = s->term != NULL;
	if (s->deadline_ms) /* the guest's clock stood still */
		s->deadline_ms += now_ms() - start;
	return 0;
}

int session_run(struct session *s, struct session_result *ret, struct err *err)
{
	struct pump p = { .s = s, .ret = ret };
	struct pollfd f[SLOT_COUNT];

	*ret = (struct session_result){ 0 };
	for (;;) {
		int r = take_frames(&p, err);

		if (r < 0)
			return r;
		/* A captured stream, or one that is closed, takes all at once. */
		if (p.left && (p.to->fd < 0 || p.to->closed)) {
			deliver(&p);
			continue;
		}
		if (p.done)
			return 0;
		send_out(&p);
		prepare(&p, f);
		if (poll(f, SLOT_COUNT, timeout_ms(&p)) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		if (f[SLOT_SIGNAL].revents)
			for (int signal; (signal = signals_next(s->signal_fd)) > 0 && !p.done;)
				take_signal(&p, signal);
		check_stream(&p, s->out, &f[SLOT_OUT]);
		check_stream(&p, s->err, &f[SLOT_ERR]);
		if (f[SLOT_IN].revents)
			read_stdin(&p);
		if (f[SLOT_CONN].revents & (POLLIN | POLLHUP | POLLERR) && !p.left) {
			r = agent_fill(s->conn, err);
			if (r < 0 && !p.done) {
				r = come_back(&p, err);
				if (r < 0 || p.done)
					return r;
			}
		}
		if (!p.done)
			check_deadlines(&p);
	}
}
