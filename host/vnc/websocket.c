/* SPDX-License-Identifier: Apache-2.0 */
/* WebSocket frames: see websocket.h. */
#include "host/vnc/websocket.h"

#include <errno.h>
#include <string.h>

#include "lib/util.h"

enum { OP_CONTINUE = 0, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10, FIN = 0x80, RESERVED = 0x70, MASKED = 0x80 };

/* The length of the header that begins as this one does. */
static size_t header_size(const struct websocket *w)
{
	unsigned len = w->header_used < 2 ? 0 : w->header[1] & 127;

	return 2 + (len == 126 ? 2 : len == 127 ? 8 : 0) + 4;
}

/* 0 or -EPROTO. */
static int header_done(struct websocket *w)
{
	unsigned len = w->header[1] & 127, more = len == 126 ? 2 : len == 127 ? 8 : 0;
	bool control;

	w->opcode = w->header[0] & 15;
	control = w->opcode >= 8;
	if (w->header[0] & RESERVED || !(w->header[1] & MASKED))
		return -EPROTO;
	if (w->opcode != OP_CONTINUE && w->opcode != OP_BINARY && w->opcode != OP_CLOSE && w->opcode != OP_PING && w->opcode != OP_PONG)
		return -EPROTO;
	if (control && (len > WEBSOCKET_CONTROL_MAX || !(w->header[0] & FIN)))
		return -EPROTO;
	w->left = more ? 0 : len;
	for (unsigned i = 0; i < more; i++)
		w->left = w->left << 8 | w->header[2 + i];
	if (w->left > INT64_MAX)
		return -EPROTO;
	memcpy(w->mask, w->header + 2 + more, sizeof(w->mask));
	w->at = 0;
	return 0;
}

static void frame_done(struct websocket *w)
{
	w->header_used = 0;
	if (w->opcode == OP_CLOSE)
		w->closed = true;
	if (w->opcode == OP_PING) { /* of several the newest is answered (5.5.3) */
		memcpy(w->pong, w->control, w->at);
		w->pong_len = (uint8_t)w->at;
		w->pong_due = true;
	}
}

long websocket_decode(struct websocket *w, uint8_t *buf, size_t n)
{
	size_t in = 0, out = 0;

	if (w->failed)
		return -EPROTO;
	while (!w->closed) {
		if (w->header_used < header_size(w)) {
			if (in == n)
				break;
			w->header[w->header_used++] = buf[in++];
			if (w->header_used < 2 || w->header_used < header_size(w))
				continue;
			if (header_done(w) < 0) {
				w->failed = true; /* the fields are those of two frames now */
				return -EPROTO;
			}
		}
		for (; in < n && w->left > 0; w->left--, w->at++) {
			uint8_t byte = buf[in++] ^ w->mask[w->at & 3];

			if (w->opcode >= 8)
				w->control[w->at] = byte;
			else
				buf[out++] = byte;
		}
		if (w->left > 0)
			break;
		frame_done(w);
	}
	return (long)out;
}

size_t websocket_header(uint8_t out[WEBSOCKET_HEADER_MAX], unsigned opcode, size_t n)
{
	out[0] = (uint8_t)(FIN | opcode);
	if (n <= WEBSOCKET_CONTROL_MAX) {
		out[1] = (uint8_t)n;
		return 2;
	}
	out[1] = 126;
	out[2] = (uint8_t)(n >> 8);
	out[3] = (uint8_t)n;
	return 4;
}
