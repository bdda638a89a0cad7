/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to coffer-agent: the handshake, the request and its answer, frames (guest/proto.h,
 * docs/agent-protocol.md).
 *
 * The descriptor is non-blocking. In each direction there is room for one frame and no more: a caller that does not take
 * what came does not read on, and the sender feels it.
 *
 * Trust: the agent and whatever else answers on that port in the guest are hostile. Lines are bounded and must be JSON,
 * headers are checked before any payload is taken, types the host does not take end the connection, and
 * texts are made printable before anybody sees them.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "guest/proto.h"
#include "lib/err.h"

struct agent_conn {
	int fd;
	int signal_fd;           /* signals.h: one that asks for an end interrupts waiting; -1: none */
	int signal;              /* the one that did */
	size_t in_pos, in_len;   /* bytes not yet taken are in[in_pos .. in_len) */
	size_t out_pos, out_len; /* bytes not yet sent */
	bool eof;
	uint8_t in[sizeof(struct agent_frame) + AGENT_FRAME_MAX];
	uint8_t out[sizeof(struct agent_frame) + AGENT_FRAME_MAX];
};

/* The answer to a request, or the ready line: one line of JSON. */
struct agent_line {
	size_t len;
	char text[AGENT_REPLY_MAX + 1];
};

struct agent_received {
	uint8_t type; /* enum agent_frame_type */
	uint32_t length;
	const uint8_t *payload; /* in the connection's buffer, until the next agent_fill */
};

/* Connect through a VM's vsock.sock in dirfd. Times are CLOCK_MONOTONIC ms, 0 for none. The result is freed by
 * agent_close. -ECONNREFUSED: nobody serves the port in the guest (yet). Whatever waits ends with -ECANCELED when a
 * signal that asks for an end comes from signal_fd (-1: none). */
int agent_connect(int dirfd, uint32_t port, int signal_fd, uint64_t deadline_ms, struct agent_conn **ret, struct err *err);
/* Connect to an agent's own Unix socket (coffer-agent --listen-unix). */
int agent_connect_unix(const char *path, struct agent_conn **ret, struct err *err);
/* Take over a connected socket; it is closed on failure too. */
int agent_conn_new(int fd, struct agent_conn **ret, struct err *err);
void agent_close(struct agent_conn *c); /* NULL too */
/* `c` is dead: it becomes what `fresh` is, which is freed. */
void agent_replace(struct agent_conn *c, struct agent_conn *fresh);

/* Send a request (a JSON object without the newline) and take the answer. An answer that is an error fails with its
 * errno and text. */
int agent_request(struct agent_conn *c, const char *request, size_t len, uint64_t deadline_ms, struct agent_line *ret,
		  struct err *err);

/* Take one line, e.g. the ready line. -ECONNRESET when the connection ends first, -ETIMEDOUT. */
int agent_read_line(struct agent_conn *c, uint64_t deadline_ms, struct agent_line *ret, struct err *err);

/* A member of a line's object: 0, or -ENOENT when it is absent or of another type; ret is untouched then. */
int agent_line_int(const struct agent_line *l, const char *key, int64_t *ret);
int agent_line_bool(const struct agent_line *l, const char *key, bool *ret);
int agent_line_string(const struct agent_line *l, const char *key, char *ret, size_t size); /* cut to size */

/* Read what is there: bytes, 0 when nothing came (or the buffer is full), -ECONNRESET at the end, -errno. */
int agent_fill(struct agent_conn *c, struct err *err);
/* Take the next frame out of the buffer: 1, 0 when it is not whole yet, -EPROTO. */
int agent_frame_next(struct agent_conn *c, struct agent_received *ret, struct err *err);
/* Wait for the next frame: 0 or -errno. */
int agent_frame_wait(struct agent_conn *c, uint64_t deadline_ms, struct agent_received *ret, struct err *err);
/* What an AGENT_ERROR frame says, as an error. */
int agent_frame_error(const struct agent_received *f, struct err *err);

/* Put a frame into the buffer: 0, or -EAGAIN when the one before is still there. */
int agent_frame_put(struct agent_conn *c, uint8_t type, const void *payload, size_t n);
/* Room for a payload to be filled in by the caller, then agent_frame_put_filled; NULL when the buffer is in use. */
void *agent_frame_room(struct agent_conn *c);
void agent_frame_put_filled(struct agent_conn *c, uint8_t type, size_t n);
/* Send: 1 when all is out, 0 when the socket is full, -errno. */
int agent_flush(struct agent_conn *c);
/* Wait until all is out. */
int agent_flush_wait(struct agent_conn *c, uint64_t deadline_ms, struct err *err);

/* A JSON string of a request. Bytes above 0x7f go as they are: what a user types need not be UTF-8, and the agent takes it. */
void agent_put_string(FILE *f, const char *s);
