/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to coffer-agent: see agent_client.h. */
#include "host/agent_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/signals.h"
#include "host/sock.h"
#include "host/vmdir.h"
#include "lib/fd.h"
#include "lib/json.h"
#include "lib/text.h"
#include "lib/util.h"

int agent_conn_new(int fd, struct agent_conn **ret, struct err *err)
{
	struct agent_conn *c = malloc(sizeof(*c));
	int r = c ? fd_set_nonblock(fd, 1) : -ENOMEM;

	if (r < 0) {
		free(c);
		fd_close(fd);
		err_errno(err, r, "connection to the agent");
		return r;
	}
	c->fd = fd;
	c->in_pos = c->in_len = c->out_pos = c->out_len = 0;
	c->eof = false;
	c->signal_fd = -1;
	c->signal = 0;
	*ret = c;
	return 0;
}

void agent_close(struct agent_conn *c)
{
	if (!c)
		return;
	fd_close(c->fd);
	free(c);
}

void agent_replace(struct agent_conn *c, struct agent_conn *fresh)
{
	fd_close(c->fd);
	*c = *fresh;
	free(fresh);
}

int agent_connect_unix(const char *path, struct agent_conn **ret, struct err *err)
{
	int fd = sock_connect_path(path, SOCK_STREAM, err);

	return fd < 0 ? fd : agent_conn_new(fd, ret, err);
}

static int take_handshake(struct agent_conn *c, uint32_t port, uint64_t deadline_ms, struct err *err)
{
	struct agent_line line;
	char text[32];
	int n = snprintf(text, sizeof(text), "CONNECT %u\n", port);

	memcpy(c->out, text, (size_t)n);
	c->out_len = (size_t)n;
	int r = agent_flush_wait(c, deadline_ms, err);

	if (r == 0)
		r = agent_read_line(c, deadline_ms, &line, err);
	if (r == -ECONNRESET || r == -EPIPE)
		return err_set(err, -ECONNREFUSED, "nothing listens on port %u in the guest", port);
	if (r < 0)
		return r;
	if (strncmp(line.text, "OK ", 3) != 0)
		return err_set(err, -EPROTO, "the monitor answered '%s' instead of OK", TEXT_CUT(line.text));
	return 0;
}

int agent_connect(int dirfd, uint32_t port, int signal_fd, uint64_t deadline_ms, struct agent_conn **ret, struct err *err)
{
	struct agent_conn *c;
	int fd = sock_connect_at(dirfd, VMDIR_VSOCK, SOCK_STREAM, err);
	int r = fd < 0 ? fd : agent_conn_new(fd, &c, err);

	if (r < 0)
		return r;
	c->signal_fd = signal_fd;
	r = take_handshake(c, port, deadline_ms, err);
	if (r < 0) {
		agent_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* An end that comes as a reset, or is noticed when something is sent, is the same to whoever reads of it. */
static int transfer_failed(int code, const char *what, struct err *err)
{
	if (code == -ECONNRESET || code == -EPIPE)
		return err_set(err, code, "the agent closed the connection");
	return err_errno(err, code, "%s the agent", what);
}

int agent_fill(struct agent_conn *c, struct err *err)
{
	if (c->in_pos > 0) {
		memmove(c->in, c->in + c->in_pos, c->in_len - c->in_pos);
		c->in_len -= c->in_pos;
		c->in_pos = 0;
	}
	if (c->in_len == sizeof(c->in))
		return 0;
	ssize_t n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < 0)
		return transfer_failed(-errno, "read from", err);
	if (n == 0) {
		c->eof = true;
		return transfer_failed(-ECONNRESET, "read from", err);
	}
	c->in_len += (size_t)n;
	return (int)n;
}

/* Wait for `events` on the connection: the ones that came, or -errno. */
static int wait_for(struct agent_conn *c, short events, uint64_t deadline_ms, struct err *err)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = c->fd, .events = events }, { .fd = c->signal_fd, .events = POLLIN } };
		int r = sock_poll(p, 2, deadline_ms);

		if (r == 0)
			return err_set(err, -ETIMEDOUT, "the agent does not answer");
		if (r < 0)
			return err_errno(err, r, "wait for the agent");
		for (int signal; p[1].revents && (signal = signals_next(c->signal_fd)) > 0;)
			if (signals_is_end(signal)) {
				c->signal = signal;
				return err_set(err, -ECANCELED, "interrupted");
			}
		if (p[0].revents)
			return p[0].revents;
	}
}

/* Wait for bytes and take them. 0 or -errno. */
static int fill_wait(struct agent_conn *c, uint64_t deadline_ms, struct err *err)
{
	for (;;) {
		int r = wait_for(c, POLLIN, deadline_ms, err);

		if (r < 0)
			return r;
		r = agent_fill(c, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
}

int agent_read_line(struct agent_conn *c, uint64_t deadline_ms, struct agent_line *ret, struct err *err)
{
	for (;;) {
		size_t have = c->in_len - c->in_pos;
		const uint8_t *start = c->in + c->in_pos;
		const uint8_t *end = memchr(start, '\n', MIN(have, (size_t)AGENT_REPLY_MAX));

		if (end) {
			ret->len = (size_t)(end - start);
			memcpy(ret->text, start, ret->len);
			ret->text[ret->len] = 0;
			c->in_pos += ret->len + 1;
			return 0;
		}
		if (have >= AGENT_REPLY_MAX)
			return err_set(err, -EPROTO, "the agent sent a line of more than %d bytes", AGENT_REPLY_MAX);
		int r = fill_wait(c, deadline_ms, err);

		if (r < 0)
			return r;
	}
}

/* One JSON object and nothing else. */
static bool is_object(const struct agent_line *l)
{
	char copy[AGENT_REPLY_MAX + 1];
	struct json_token t;
	struct json j;

	memcpy(copy, l->text, l->len + 1);
	json_init(&j, copy, l->len);
	if (json_next(&j, &t) != JSON_TOKEN_OBJECT)
		return false;
	while (json_next(&j, &t) == JSON_TOKEN_KEY)
		if (!json_skip(&j))
			return false;
	return t.type == JSON_TOKEN_OBJECT_END && json_next(&j, &t) == JSON_TOKEN_END;
}

/* Position the reader on the value of `key`; `copy` holds the text while the token is used. */
static bool find_member(const struct agent_line *l, const char *key, char *copy, struct json_token *t)
{
	struct json j;

	if (!is_object(l))
		return false;
	memcpy(copy, l->text, l->len + 1);
	json_init(&j, copy, l->len);
	json_next(&j, t);
	while (json_next(&j, t) == JSON_TOKEN_KEY) {
		if (json_token_is(t, key)) {
			json_next(&j, t);
			return true;
		}
		if (!json_skip(&j))
			return false;
	}
	return false;
}

int agent_line_int(const struct agent_line *l, const char *key, int64_t *ret)
{
	char copy[AGENT_REPLY_MAX + 1];
	struct json_token t;

	if (!find_member(l, key, copy, &t) || t.type != JSON_TOKEN_NUMBER || !t.is_int)
		return -ENOENT;
	*ret = t.i;
	return 0;
}

int agent_line_bool(const struct agent_line *l, const char *key, bool *ret)
{
	char copy[AGENT_REPLY_MAX + 1];
	struct json_token t;

	if (!find_member(l, key, copy, &t) || (t.type != JSON_TOKEN_TRUE && t.type != JSON_TOKEN_FALSE))
		return -ENOENT;
	*ret = t.type == JSON_TOKEN_TRUE;
	return 0;
}

int agent_line_string(const struct agent_line *l, const char *key, char *ret, size_t size)
{
	char copy[AGENT_REPLY_MAX + 1];
	struct json_token t;

	if (!find_member(l, key, copy, &t) || t.type != JSON_TOKEN_STRING)
		return -ENOENT;
	snprintf(ret, size, "%s", t.s);
	return 0;
}

/* Linux errno from the guest, or EIO for what is none. */
static int guest_errno(int64_t v)
{
	return v > 0 && v < 4096 ? -(int)v : -EIO;
}

/* Send all of the request unless the agent speaks up before: then its error is what matters. */
static int send_request(struct agent_conn *c, const char *data, size_t n, uint64_t deadline_ms, struct err *err)
{
	size_t done = 0;

	while (done < n) {
		int events = wait_for(c, POLLIN | POLLOUT, deadline_ms, err);

		if (events < 0)
			return events;
		if (events & POLLIN)
			return 0;
		ssize_t r = send(c->fd, data + done, n - done, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (r < 0 && (errno == EPIPE || errno == ECONNRESET))
			return 0; /* the answer, or the end, is there to be read */
		if (r < 0 && errno != EAGAIN && errno != EINTR)
			return err_errno(err, -errno, "send to the agent");
		if (r > 0)
			done += (size_t)r;
	}
	return 0;
}

int agent_request(struct agent_conn *c, const char *request, size_t len, uint64_t deadline_ms, struct agent_line *ret,
		  struct err *err)
{
	bool ok = false;

	if (len + 1 > AGENT_REQUEST_MAX)
		return err_set(err, -E2BIG, "arguments and environment of more than %d bytes", AGENT_REQUEST_MAX);
	int r = send_request(c, request, len, deadline_ms, err);

	if (r == 0)
		r = send_request(c, "\n", 1, deadline_ms, err);
	if (r == 0)
		r = agent_read_line(c, deadline_ms, ret, err);
	if (r < 0)
		return r;
	if (agent_line_bool(ret, "ok", &ok) == 0 && ok)
		return 0;
	char text[ERR_MAX];
	int64_t code = EIO;

	if (agent_line_string(ret, "error", text, sizeof(text)) < 0)
		return err_set(err, -EPROTO, "the agent's answer makes no sense: '%s'", TEXT_CUT(ret->text));
	agent_line_int(ret, "errno", &code);
	return err_set(err, guest_errno(code), "%s", text);
}

int agent_frame_next(struct agent_conn *c, struct agent_received *ret, struct err *err)
{
	static const uint32_t longest[] = {
		[AGENT_STDOUT] = AGENT_FRAME_MAX,
		[AGENT_STDERR] = AGENT_FRAME_MAX,
		[AGENT_DATA] = AGENT_FRAME_MAX,
		[AGENT_EXIT] = 8,
		[AGENT_ERROR] = 4 + AGENT_ERROR_TEXT_MAX,
		[AGENT_CREDIT] = 4,
	};
	static const uint32_t shortest[ARRAY_SIZE(longest)] = { [AGENT_EXIT] = 8, [AGENT_ERROR] = 4, [AGENT_CREDIT] = 4 };
	struct agent_frame h;

	if (c->in_len - c->in_pos < sizeof(h))
		return 0;
	memcpy(&h, c->in + c->in_pos, sizeof(h));
	uint32_t length = le32_get(h.length);

	if (h.type >= ARRAY_SIZE(longest) || (longest[h.type] == 0))
		return err_set(err, -EPROTO, "the agent sent a frame of type %u", h.type);
	if (length > longest[h.type] || length < shortest[h.type] || h.zero[0] || h.zero[1] || h.zero[2])
		return err_set(err, -EPROTO, "the agent sent a frame of type %u with a bad header (length %u)", h.type, length);
	if (c->in_len - c->in_pos - sizeof(h) < length)
		return 0;
	*ret = (struct agent_received){ .type = h.type, .length = length, .payload = c->in + c->in_pos + sizeof(h) };
	c->in_pos += sizeof(h) + length;
	return 1;
}

int agent_frame_wait(struct agent_conn *c, uint64_t deadline_ms, struct agent_received *ret, struct err *err)
{
	for (;;) {
		int r = agent_frame_next(c, ret, err);

		if (r != 0)
			return r < 0 ? r : 0;
		r = fill_wait(c, deadline_ms, err);
		if (r < 0)
			return r;
	}
}

int agent_frame_error(const struct agent_received *f, struct err *err)
{
	return err_set(err, guest_errno(le32_load(f->payload)), "%.*s", (int)(f->length - 4), (const char *)f->payload + 4);
}

void *agent_frame_room(struct agent_conn *c)
{
	return c->out_len > 0 ? NULL : c->out + sizeof(struct agent_frame);
}

void agent_frame_put_filled(struct agent_conn *c, uint8_t type, size_t n)
{
	struct agent_frame h = { .length = le32_make((uint32_t)n), .type = type };

	memcpy(c->out, &h, sizeof(h));
	c->out_pos = 0;
	c->out_len = sizeof(h) + n;
}

int agent_frame_put(struct agent_conn *c, uint8_t type, const void *payload, size_t n)
{
	void *room = agent_frame_room(c);

	if (!room)
		return -EAGAIN;
	if (n > 0)
		memcpy(room, payload, n);
	agent_frame_put_filled(c, type, n);
	return 0;
}

int agent_flush(struct agent_conn *c)
{
	while (c->out_pos < c->out_len) {
		ssize_t n = send(c->fd, c->out + c->out_pos, c->out_len - c->out_pos, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		c->out_pos += (size_t)n;
	}
	c->out_pos = c->out_len = 0;
	return 1;
}

int agent_flush_wait(struct agent_conn *c, uint64_t deadline_ms, struct err *err)
{
	for (;;) {
		int r = agent_flush(c);

		if (r != 0)
			return r < 0 ? transfer_failed(r, "send to", err) : 0;
		r = wait_for(c, POLLOUT, deadline_ms, err);
		if (r < 0)
			return r;
	}
}

void agent_put_string(FILE *f, const char *s)
{
	fputc('"', f);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			fprintf(f, "\\%c", c);
		else if (c < 0x20)
			fprintf(f, "\\u%04x", c);
		else
			fputc(c, f);
	}
	fputc('"', f);
}
