/* SPDX-License-Identifier: Apache-2.0 */
/* The connection of one operation: see channel.h. */
#include "guest/agent/channel.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "guest/agent/agent.h"
#include "lib/fd.h"
#include "lib/util.h"

void channel_init(struct channel *c, int fd, struct channel_progress *progress)
{
	c->fd = fd;
	c->progress = progress;
	c->have = c->taken = 0;
	c->reset = false;
	fd_set_nonblock(fd, 1);
}

/* Wait for events; 0, -ETIMEDOUT or -errno. timeout_ms < 0: for ever. */
static int wait_for(const struct channel *c, short events, int timeout_ms)
{
	struct pollfd p = { .fd = c->fd, .events = events };
	int n;

	do
		n = poll(&p, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

static ssize_t receive(const struct channel *c, void *buf, size_t n)
{
	ssize_t got;

	do
		got = recv(c->fd, buf, n, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

ssize_t channel_read_request(struct channel *c, struct err *err)
{
	uint64_t deadline = agent_now_ms() + CHANNEL_REQUEST_MS;

	for (;;) {
		uint64_t now = agent_now_ms();
		ssize_t got;
		char *end;
		int rc = now < deadline ? wait_for(c, POLLIN, (int)(deadline - now)) : -ETIMEDOUT;

		if (rc < 0)
			return err_errno(err, rc, "request");
		got = receive(c, c->text + c->have, sizeof(c->text) - c->have);
		if (got == -EAGAIN)
			continue;
		if (got == 0)
			return err_set(err, -ECONNRESET, "request: the connection ended before its newline");
		if (got < 0)
			return err_errno(err, (int)got, "request");
		end = memchr(c->text + c->have, '\n', (size_t)got);
		c->have += (size_t)got;
		if (end) {
			c->taken = (size_t)(end - c->text) + 1;
			return end - c->text;
		}
		if (c->have == sizeof(c->text))
			return err_set(err, -E2BIG, "request: no newline within %d bytes", AGENT_REQUEST_MAX);
	}
}

int channel_next_request(struct channel *c, struct err *err)
{
	if (channel_has_input(c))
		return err_set(err, -EPROTO, "a request came before the answer to the one before it");
	c->have = c->taken = 0;
	atomic_store(&c->progress->finished, false);
	atomic_store(&c->progress->answered, false);
	return 0;
}

/*
 * After a transport reset a vsock socket says ENOTCONN (or ECONNRESET to one who waits); after the peer's close it says
 * end of file and EPIPE. A Unix socket whose peer left with bytes unread says EPIPE too, but knows of the reset.
 */
void channel_note_failure(struct channel *c, int code)
{
	int pending = 0;
	socklen_t len = sizeof(pending);

	if (code == -EPIPE && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &pending, &len) == 0)
		c->reset |= pending != 0;
	else
		c->reset |= code != -EPIPE;
}

bool channel_has_input(const struct channel *c)
{
	return c->taken < c->have;
}

int channel_receive_frame(struct channel *c, struct frame_reader *f, struct err *err)
{
	for (;;) {
		void *dst;
		size_t n = frame_reader_space(f, &dst);
		ssize_t got;
		int rc;

		if (channel_has_input(c)) {
			got = (ssize_t)MIN(n, c->have - c->taken);
			memcpy(dst, c->text + c->taken, (size_t)got);
			c->taken += (size_t)got;
		} else {
			got = receive(c, dst, n);
		}
		if (got == -EAGAIN)
			return 0;
		if (got == 0 || got == -EPIPE)
			return err_set(err, -ECONNRESET, "the host closed the connection");
		if (got < 0) {
			channel_note_failure(c, (int)got);
			return err_errno(err, (int)got, "receive");
		}
		rc = frame_reader_commit(f, (size_t)got, err);
		if (rc != 0)
			return rc;
	}
}

int channel_wait_frame(struct channel *c, struct frame_reader *f, struct err *err)
{
	for (;;) {
		int rc = channel_receive_frame(c, f, err);

		if (rc != 0)
			return rc < 0 ? rc : 0;
		rc = wait_for(c, POLLIN, -1);
		if (rc < 0)
			return err_errno(err, rc, "wait for the host");
	}
}

/* ---- sending ---- */

/* Both pieces, however long it takes. */
static int send_all(struct channel *c, const void *a, size_t na, const void *b, size_t nb)
{
	size_t done = 0;

	atomic_store(&c->progress->torn, true);
	while (done < na + nb) {
		struct iovec iov[2];
		struct msghdr m = { .msg_iov = iov };
		ssize_t n;

		if (done < na)
			iov[m.msg_iovlen++] = (struct iovec){ (char *)a + done, na - done };
		if (nb > 0)
			iov[m.msg_iovlen++] = done < na ? (struct iovec){ (void *)b, nb } :
							  (struct iovec){ (char *)b + (done - na), nb - (done - na) };
		n = sendmsg(c->fd, &m, MSG_NOSIGNAL);
		if (n < 0 && errno == EAGAIN) {
			int rc = wait_for(c, POLLOUT, -1);

			if (rc < 0)
				return rc;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	atomic_store(&c->progress->torn, false);
	return 0;
}

void channel_answer_begin(struct json_writer *w, char *buf)
{
	json_writer_init(w, buf, AGENT_REPLY_MAX - 1);
	json_write_object(w, NULL);
	json_write_bool(w, "ok", true);
}

int channel_answer_end(struct channel *c, struct json_writer *w)
{
	int n, rc;

	json_write_object_end(w);
	n = json_writer_finish(w);
	if (n < 0)
		return n;
	w->buf[n] = '\n'; /* its place was kept free */
	rc = send_all(c, w->buf, (size_t)n + 1, NULL, 0);
	if (rc == 0)
		atomic_store(&c->progress->answered, true);
	return rc;
}

int channel_answer_ok(struct channel *c)
{
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;

	channel_answer_begin(&w, buf);
	return channel_answer_end(c, &w);
}

const char *channel_error_code(int code)
{
	switch (-code) {
	case EINVAL:
	case EPROTO: return "bad-request";
	case EOPNOTSUPP:
	case ENOSYS:
	case ENOTTY: return "unsupported";
	case ENOENT:
	case ESRCH: return "not-found";
	case EEXIST: return "exists";
	case EACCES:
	case EPERM:
	case EXDEV: return "denied";
	case ENOTDIR: return "not-directory";
	case EISDIR: return "is-directory";
	case ENOTEMPTY: return "not-empty";
	case EROFS: return "read-only";
	case ENOSPC:
	case EDQUOT: return "no-space";
	case E2BIG:
	case EFBIG:
	case ENAMETOOLONG: return "too-large";
	case EBUSY:
	case ETXTBSY: return "busy";
	case EUSERS:
	case EMFILE:
	case ENFILE: return "limit";
	case ENOMEM:
	case EAGAIN: return "no-memory";
	case ESTALE: return "stale";
	default: return "failed";
	}
}

size_t channel_format_error(char buf[AGENT_REPLY_MAX], int code, const char *text)
{
	struct json_writer w;
	int n;

	json_writer_init(&w, buf, AGENT_REPLY_MAX - 1);
	json_write_object(&w, NULL);
	json_write_string_n(&w, "error", text, strnlen(text, 600)); /* at most six bytes each */
	json_write_int(&w, "errno", -code);
	json_write_string(&w, "code", channel_error_code(code));
	json_write_object_end(&w);
	n = json_writer_finish(&w);
	if (n < 0)
		return 0;
	buf[n] = '\n';
	return (size_t)n + 1;
}

size_t channel_format_error_frame(char buf[AGENT_REPLY_MAX], int code, const char *text)
{
	size_t n = strnlen(text, AGENT_ERROR_TEXT_MAX);
	struct agent_frame h = frame_header(AGENT_ERROR, 4 + n);

	memcpy(buf, &h, sizeof(h));
	le32_store(buf + sizeof(h), (uint32_t)-code);
	memcpy(buf + sizeof(h) + 4, text, n);
	return sizeof(h) + 4 + n;
}

int channel_answer_error(struct channel *c, int code, const char *text)
{
	char buf[AGENT_REPLY_MAX];
	size_t n = channel_format_error(buf, code, text);
	int rc = send_all(c, buf, n, NULL, 0);

	if (rc == 0) {
		atomic_store(&c->progress->answered, true);
		atomic_store(&c->progress->finished, true);
	}
	return rc;
}

int channel_send_frame(struct channel *c, uint8_t type, const void *payload, size_t n)
{
	struct agent_frame h = frame_header(type, n);

	return send_all(c, &h, sizeof(h), payload, n);
}

int channel_send_exit(struct channel *c, uint32_t kind, uint32_t value)
{
	le32 payload[2] = { le32_make(kind), le32_make(value) };
	int rc = channel_send_frame(c, AGENT_EXIT, payload, sizeof(payload));

	if (rc == 0)
		atomic_store(&c->progress->finished, true);
	return rc;
}

int channel_send_error(struct channel *c, int code, const char *text)
{
	char buf[AGENT_REPLY_MAX];
	int rc;

	if (!atomic_load(&c->progress->answered))
		return channel_answer_error(c, code, text);
	rc = send_all(c, buf, channel_format_error_frame(buf, code, text), NULL, 0);
	if (rc == 0)
		atomic_store(&c->progress->finished, true);
	return rc;
}

void channel_finish(struct channel *c)
{
	uint64_t now = agent_now_ms(), deadline = now + CHANNEL_LINGER_MS;

	if (c->fd < 0)
		return;
	atomic_store(&c->progress->finished, true);
	shutdown(c->fd, SHUT_WR);
	while (now < deadline && wait_for(c, POLLIN, (int)(deadline - now)) == 0) {
		ssize_t n = receive(c, c->text, sizeof(c->text));

		if (n <= 0 && n != -EAGAIN)
			break;
		now = agent_now_ms();
	}
	c->fd = fd_close(c->fd);
}
