/* SPDX-License-Identifier: Apache-2.0 */
/* A running command: see command.h. Starting it and the other operations on commands are in command_ops.c. */
#include "guest/agent/command_loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "guest/agent/cgroup.h"
#include "guest/agent/kill.h"
#include "guest/agent/supervisor.h"
#include "lib/fd.h"

enum { CREDIT_STEP = AGENT_STDIN_WINDOW / 4 };

/* ---- the command's processes ---- */

static size_t bytes_waiting(int fd)
{
	int n = 0;

	return fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0 ? (size_t)n : 0;
}

static void ended(struct command *c, int status)
{
	c->running = false;
	c->status = status;
	c->deadline = 0;
	c->out_due = bytes_waiting(c->io.out);
	c->err_due = bytes_waiting(c->io.err);
	c->drain_until = agent_now_ms() + COMMAND_DRAIN_MS;
}

/* Orphans of the command come to us as well (handler.c: child subreaper). */
static void reap(struct command *c)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == c->group && c->running)
			ended(c, status);
}

static void kill_all(struct command *c)
{
	int status = 0;

	c->killed = true;
	if (c->running)
		kill(-c->group, SIGKILL);
	if (c->cgroup >= 0 && cgroup_kill(c->cgroup) == 0)
		return;
	if (kill_descendants(c->group, &status) && c->running)
		ended(c, status);
}

static void signal_command(struct command *c, int signal)
{
	if (signal == SIGKILL)
		kill_all(c);
	else if (c->running)
		kill(-c->group, signal);
}

static void timers(struct command *c)
{
	if (!c->deadline || agent_now_ms() < c->deadline)
		return;
	if (!c->timeout_signal) {
		c->timeout_signal = SIGTERM;
		c->deadline = agent_now_ms() + (uint64_t)c->grace_ms;
		signal_command(c, SIGTERM);
		signal_command(c, SIGCONT); /* stopped processes have to hear of it */
	} else {
		c->timeout_signal = SIGKILL;
		c->deadline = 0;
		kill_all(c);
	}
}

/* ---- stdin ---- */

static void drop_input(struct command *c)
{
	c->uncredited += c->input.len;
	ring_consume(&c->input, c->input.len);
	c->io.in = fd_close(c->io.in);
}

/* With a terminal, "end of file" is a character; a line that is not finished needs it twice. */
static void type_end(struct command *c)
{
	struct termios t;
	char end[2] = { 4, 4 };

	if (tcgetattr(c->io.in, &t) == 0 && t.c_cc[VEOF])
		end[0] = end[1] = (char)t.c_cc[VEOF];
	if (write(c->io.in, end, c->last_input == '\n' || !c->last_input ? 1 : 2) < 0)
		errno = 0;
	c->io.in = fd_close(c->io.in);
}

static void feed_stdin(struct command *c)
{
	while (c->io.in >= 0 && c->input.len > 0) {
		struct iovec iov[2];
		int pieces = ring_iov(&c->input, 0, c->input.len, iov);
		ssize_t n = writev(c->io.in, iov, pieces);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) { /* the command has closed it */
			drop_input(c);
			return;
		}
		ring_load(&c->input, (size_t)n - 1, &c->last_input, 1);
		ring_consume(&c->input, (size_t)n);
		c->uncredited += (size_t)n;
	}
	if (c->io.in >= 0 && c->input_ended) {
		if (c->tty)
			type_end(c);
		else
			c->io.in = fd_close(c->io.in);
	}
}

/* ---- output ---- */

static void end_stream(struct command *c, uint8_t type)
{
	bool *flag = type == AGENT_STDOUT ? &c->out_ended : &c->err_ended;
	int *fd = type == AGENT_STDOUT ? &c->io.out : &c->io.err;

	if (*flag)
		return;
	*flag = true;
	*fd = fd_close(*fd);
	outq_put(&c->out, type, NULL, 0);
}

/* Read what one stream has, as far as there is room. */
static void take_output(struct command *c, uint8_t type)
{
	int *fd = type == AGENT_STDOUT ? &c->io.out : &c->io.err;
	size_t *due = type == AGENT_STDOUT ? &c->out_due : &c->err_due;
	ssize_t n;

	if (*fd < 0)
		return;
	if (!outq_can_read(&c->out)) {
		if (c->connected || c->resume)
			return;
		outq_drop(&c->out);
	}
	n = outq_read(&c->out, type, *fd, AGENT_FRAME_MAX);
	if (n == -EAGAIN)
		return;
	if (n <= 0) { /* a terminal says EIO when everybody has closed it */
		end_stream(c, type);
		return;
	}
	*due -= *due < (size_t)n ? *due : (size_t)n;
}

static bool drained(const struct command *c, uint64_t now)
{
	bool late = now >= c->drain_until;

	return (c->out_ended || (late && c->out_due == 0)) && (c->err_ended || (late && c->err_due == 0));
}

/* What EXIT says. A shell reports a child killed by SIGKILL as status 137. */
static uint32_t exit_kind(const struct command *c, uint32_t *ret_value)
{
	bool oom = c->cgroup >= 0 && cgroup_oom_kills(c->cgroup) > 0;

	if (c->timeout_signal) {
		*ret_value = c->timeout_signal;
		return AGENT_EXIT_TIMEOUT;
	}
	if (WIFSIGNALED(c->status)) {
		*ret_value = (uint32_t)WTERMSIG(c->status);
		return oom && !c->killed && *ret_value == SIGKILL ? AGENT_EXIT_OOM : AGENT_EXIT_SIGNAL;
	}
	*ret_value = (uint32_t)WEXITSTATUS(c->status);
	if (oom && !c->killed && *ret_value == 128 + SIGKILL) {
		*ret_value = SIGKILL;
		return AGENT_EXIT_OOM;
	}
	return AGENT_EXIT_STATUS;
}

static void put_exit(struct handler *h)
{
	le32 payload[2] = { le32_make(atomic_load(&h->slot->command.kind)), le32_make(atomic_load(&h->slot->command.value)) };

	outq_put(&h->u.command.out, AGENT_EXIT, payload, sizeof(payload));
}

static void end_command(struct handler *h)
{
	struct command *c = &h->u.command;
	uint32_t value, kind = exit_kind(c, &value);

	if (c->killed || c->timeout_signal)
		kill_all(c);
	end_stream(c, AGENT_STDOUT);
	end_stream(c, AGENT_STDERR);
	c->exit_queued = true;
	c->io.in = fd_close(c->io.in);
	atomic_store(&h->slot->command.kind, kind);
	atomic_store(&h->slot->command.value, value);
	put_exit(h);
	atomic_store(&h->slot->command.ended_ms, agent_now_ms());
	atomic_store(&h->slot->command.pid, 0);
	atomic_store(&h->slot->command.ended, true);
}

/* ---- the connection ---- */

static void note_progress(struct handler *h)
{
	struct command *c = &h->u.command;

	atomic_store(&h->slot->progress.torn, outq_mid_frame(&c->out) || (c->credit_sent > 0 && c->credit_sent < c->credit_len));
}

static void make_credit(struct command *c)
{
	struct agent_frame f = frame_header(AGENT_CREDIT, 4);

	memcpy(c->credit, &f, sizeof(f));
	le32_store(c->credit + sizeof(f), (uint32_t)c->uncredited);
	c->credit_len = sizeof(f) + 4;
	c->credit_sent = 0;
	c->uncredited = 0;
}

/* Send what there is. 0: all is out, -EAGAIN: the rest has to wait, -errno: the connection is dead. */
static int send_output(struct handler *h)
{
	struct command *c = &h->u.command;
	ssize_t n = 0;

	while (n >= 0) {
		bool credit_due = c->uncredited >= CREDIT_STEP && !c->input_ended;

		if (c->credit_len == 0 && credit_due && !outq_mid_frame(&c->out))
			make_credit(c);
		if (c->credit_len > 0 && !outq_mid_frame(&c->out)) {
			n = send(h->channel.fd, c->credit + c->credit_sent, c->credit_len - c->credit_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
			n = n < 0 ? -errno : n;
			if (n > 0 && (c->credit_sent += (size_t)n) == c->credit_len)
				c->credit_len = c->credit_sent = 0;
		} else if (outq_pending(&c->out)) {
			n = outq_send(&c->out, h->channel.fd, credit_due);
		} else {
			break;
		}
		if (n == -EINTR)
			n = 0;
	}
	note_progress(h);
	if (n < 0 && n != -EAGAIN)
		channel_note_failure(&h->channel, (int)n);
	return n < 0 ? (int)n : 0;
}

static unsigned allowed_frames(const struct command *c)
{
	return 1u << AGENT_SIGNAL | 1u << AGENT_WINSIZE | 1u << AGENT_STDOUT | 1u << AGENT_STDERR |
	       (c->stdin_allowed && !c->input_ended ? 1u << AGENT_STDIN : 0) |
	       (c->detached || c->resume ? 1u << AGENT_EXIT : 0) | (c->resume ? 1u << AGENT_ACK : 0);
}

static size_t window(const struct command *c)
{
	return AGENT_STDIN_WINDOW - c->input.len - c->uncredited;
}

void command_connected(struct handler *h)
{
	struct command *c = &h->u.command;

	c->connected = true;
	frame_reader_init(&c->in, allowed_frames(c));
	atomic_store(&h->slot->command.attached, true);
}

void command_disconnect(struct handler *h)
{
	struct command *c = &h->u.command;

	h->channel.fd = fd_close(h->channel.fd);
	c->connected = false;
	c->credit_len = c->credit_sent = 0;
	if (!c->resume) /* else attach says from where on */
		outq_rewind(&c->out);
	if (!c->resume && c->exit_queued && !outq_pending(&c->out)) { /* it may not have arrived */
		if (!c->tty)
			outq_put(&c->out, AGENT_STDERR, NULL, 0);
		outq_put(&c->out, AGENT_STDOUT, NULL, 0);
		put_exit(h);
	}
	atomic_store(&h->slot->progress.torn, false);
	atomic_store(&h->slot->command.attached, false);
	supervisor_tell(h->supervisor, c->resume ? SUPERVISOR_ORPHAN : SUPERVISOR_DROP);
}

/* The host is gone. -ECONNRESET ends the handler, 0 goes on without a host. */
static int lost_host(struct handler *h)
{
	struct command *c = &h->u.command;

	if (c->detached || (c->resume && h->channel.reset)) {
		command_disconnect(h);
		return 0;
	}
	if (!c->exit_queued)
		kill_all(c);
	return -ECONNRESET;
}

/* Something to say to the host comes last on this connection; what is queued goes before it. */
static int refuse_host(struct handler *h, int code)
{
	struct command *c = &h->u.command;
	uint64_t deadline = agent_now_ms() + COMMAND_FLUSH_MS, now;
	int rc;

	if (!c->detached)
		kill_all(c);
	while ((rc = send_output(h)) == -EAGAIN && (now = agent_now_ms()) < deadline) {
		struct pollfd p = { .fd = h->channel.fd, .events = POLLOUT };

		poll(&p, 1, (int)(deadline - now));
	}
	if (rc == 0)
		channel_send_error(&h->channel, code, h->err.text);
	if (!c->detached)
		return -ECONNABORTED; /* said already; the caller finishes */
	shutdown(h->channel.fd, SHUT_RDWR);
	command_disconnect(h);
	return 0;
}

static int on_frame(struct handler *h)
{
	struct command *c = &h->u.command;
	const struct frame_reader *f = &c->in;
	uint32_t signal;

	switch ((enum agent_frame_type)f->type) {
	case AGENT_STDIN:
		if (f->length == 0) {
			c->input_ended = true;
			c->in.allowed = allowed_frames(c);
		} else if (f->length > window(c)) {
			return err_set(&h->err, -EPROTO, "STDIN of %u bytes is beyond the window of %zu", f->length, window(c));
		} else {
			ring_write(&c->input, f->payload, f->length);
			c->input_taken += f->length;
			if (c->io.in < 0)
				drop_input(c);
		}
		feed_stdin(c);
		return 0;
	case AGENT_SIGNAL:
		signal = le32_load(f->payload);
		if (signal < 1 || signal > 64)
			return err_set(&h->err, -EPROTO, "SIGNAL %u: 1 to 64 are possible", signal);
		signal_command(c, (int)signal);
		return 0;
	case AGENT_WINSIZE:
		if (c->tty && c->io.out >= 0)
			spawn_resize(c->io.out, le16_load(f->payload), le16_load(f->payload + 2), le16_load(f->payload + 4),
				     le16_load(f->payload + 6));
		return 0;
	case AGENT_STDOUT: /* nobody reads it any more; with a terminal that is the master's last descriptor: it hangs up */
		if (c->tty)
			c->io.in = fd_close(c->io.in);
		end_stream(c, AGENT_STDOUT);
		return 0;
	case AGENT_STDERR: end_stream(c, AGENT_STDERR); return 0;
	case AGENT_ACK:
		if (outq_take(&c->out, le64_load(f->payload)) < 0)
			return err_set(&h->err, -EPROTO, "ACK of %llu bytes: that many were not sent",
				       (unsigned long long)le64_load(f->payload));
		return 0;
	case AGENT_EXIT:
		if (!c->exit_queued || outq_pending(&c->out))
			return err_set(&h->err, -EPROTO, "EXIT from the host before it was sent one");
		c->exit_taken = true;
		return 0;
	case AGENT_DATA:
	case AGENT_ERROR:
	case AGENT_CREDIT: break;
	}
	return err_set(&h->err, -EPROTO, "frame of type %u does not belong to this operation", f->type);
}

/* 0, or -errno when the handler is done for. */
static int on_host(struct handler *h)
{
	struct command *c = &h->u.command;
	int rc = 0;

	while (c->connected && !c->exit_taken && (rc = channel_receive_frame(&h->channel, &c->in, &h->err)) == 1) {
		rc = on_frame(h);
		if (rc < 0)
			break;
	}
	if (rc == -EPROTO)
		return refuse_host(h, rc);
	return rc < 0 ? lost_host(h) : 0;
}

/* The connection was for nothing; the command goes on. */
static void refuse_connection(int fd, int code, const char *text)
{
	char buf[AGENT_REPLY_MAX];
	size_t n = channel_format_error(buf, code, text);

	if (send(fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		errno = 0;
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

/*
 * Another connection for a command that outlives its own; `received` matters for one that is resumed. The old one hears
 * of it if that needs no waiting. A host that has more output than was ever sent to it has it from a later moment than
 * this guest is at.
 */
static void on_connection(struct handler *h, int fd, uint64_t received)
{
	struct command *c = &h->u.command;
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;

	if (c->resume && outq_take(&c->out, received) < 0) {
		refuse_connection(fd, -ESTALE,
				  "the output that is to be continued is not the one that this command has");
		return;
	}
	if (c->connected) {
		size_t n = channel_format_error_frame(buf, -EBUSY, "another client attached");

		if (!outq_mid_frame(&c->out) && c->credit_sent == 0 && send(h->channel.fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
			errno = 0;
		shutdown(h->channel.fd, SHUT_RDWR);
		command_disconnect(h);
	}
	channel_init(&h->channel, fd, &h->slot->progress);
	c->uncredited = 0;
	outq_rewind(&c->out);
	channel_answer_begin(&w, buf);
	json_write_uint(&w, "id", atomic_load(&h->slot->command.id));
	json_write_int(&w, "pid", c->group);
	json_write_bool(&w, "tty", c->tty);
	json_write_bool(&w, "stdin", c->stdin_allowed && !c->input_ended);
	json_write_uint(&w, "stdin_window", window(c));
	json_write_uint(&w, "lost", c->out.lost);
	if (c->resume)
		json_write_uint(&w, "stdin_taken", c->input_taken);
	if (channel_answer_end(&h->channel, &w) < 0) {
		h->channel.fd = fd_close(h->channel.fd);
		return;
	}
	c->out.lost = 0;
	atomic_store(&h->slot->command.detached, c->detached);
	command_connected(h);
}

/* 0, or -ECONNRESET: over. */
static int on_supervisor(struct handler *h)
{
	struct command *c = &h->u.command;
	struct supervisor_message m;
	int fd, rc = supervisor_receive(h->supervisor, &m, &fd);

	if (rc < 0) { /* the agent ends: so does everything it runs */
		kill_all(c);
		return -ECONNRESET;
	}
	if (rc == 0)
		return 0;
	if (m.type == SUPERVISOR_CONNECTION && fd >= 0 && (m.value ? c->resume : c->detached)) {
		on_connection(h, TAKE_FD(fd), m.received);
	} else if (m.type == SUPERVISOR_SIGNAL) {
		signal_command(c, m.value);
	} else if (m.type == SUPERVISOR_QUIT && !c->connected && (c->exit_queued || c->resume)) {
		if (!c->exit_queued)
			kill_all(c);
		rc = -ECONNRESET;
	}
	fd_close(fd);
	return rc < 0 ? rc : 0;
}

/* ---- the loop ---- */

enum { HOST, IN, OUT, ERR, SIGNAL, SUPERVISOR, POLLS };

static int poll_timeout(const struct command *c)
{
	uint64_t now = agent_now_ms(), until = c->deadline;

	if (!c->running && !c->exit_queued && now < c->drain_until && (!until || c->drain_until < until))
		until = c->drain_until;
	if (!until)
		return -1;
	return until > now ? (int)(until - now) : 0;
}

static void set_polls(const struct handler *h, struct pollfd p[POLLS])
{
	const struct command *c = &h->u.command;
	bool room = outq_can_read(&c->out) || (!c->connected && !c->resume);
	bool output = outq_pending(&c->out) || c->credit_len > 0 || c->uncredited >= CREDIT_STEP;

	p[HOST] = (struct pollfd){ .fd = c->connected ? h->channel.fd : -1, .events = (short)(POLLIN | (output ? POLLOUT : 0)) };
	p[IN] = (struct pollfd){ .fd = c->input.len > 0 ? c->io.in : -1, .events = POLLOUT };
	p[OUT] = (struct pollfd){ .fd = room ? c->io.out : -1, .events = POLLIN };
	p[ERR] = (struct pollfd){ .fd = room ? c->io.err : -1, .events = POLLIN };
	p[SIGNAL] = (struct pollfd){ .fd = c->signal_fd, .events = POLLIN };
	p[SUPERVISOR] = (struct pollfd){ .fd = h->supervisor, .events = POLLIN };
}

static void empty_signals(int fd)
{
	char buf[128 * 4];

	while (read(fd, buf, sizeof(buf)) > 0)
		;
}

/* One round. 0, or -errno when it is over for the handler. */
static int step(struct handler *h)
{
	struct command *c = &h->u.command;
	struct pollfd p[POLLS];
	int rc = 0;

	set_polls(h, p);
	if (poll(p, POLLS, channel_has_input(&h->channel) && c->connected ? 0 : poll_timeout(c)) < 0 && errno != EINTR)
		return err_errno(&h->err, -errno, "poll");
	if (p[SIGNAL].revents) {
		empty_signals(c->signal_fd);
		reap(c);
	}
	if (p[SUPERVISOR].revents)
		rc = on_supervisor(h);
	if (rc == 0 && c->connected && (p[HOST].revents || channel_has_input(&h->channel)))
		rc = on_host(h);
	if (rc < 0)
		return rc;
	if (p[IN].revents & (POLLERR | POLLHUP) && !(p[IN].revents & POLLOUT))
		drop_input(c);
	feed_stdin(c);
	if (p[OUT].revents)
		take_output(c, AGENT_STDOUT);
	if (p[ERR].revents)
		take_output(c, AGENT_STDERR);
	timers(c);
	if (!c->running && !c->exit_queued && drained(c, agent_now_ms()))
		end_command(h);
	if (c->connected) {
		rc = send_output(h);
		if (rc < 0 && rc != -EAGAIN)
			return lost_host(h);
	}
	return 0;
}

/* EXIT is out, and for a command that outlives its connection the host has said that it has it. */
static bool is_over(const struct command *c)
{
	if (c->detached || c->resume)
		return c->exit_taken;
	return c->exit_queued && !outq_pending(&c->out) && c->credit_len == 0;
}

int command_loop(struct handler *h)
{
	struct command *c = &h->u.command;
	int rc = 0;

	while (rc == 0 && !is_over(c))
		rc = step(h);
	if (rc == 0)
		atomic_store(&h->slot->progress.finished, true);
	return rc;
}
