/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The framing of WebSocket, server's side (RFC 6455, 5): what comes is a stream of bytes once its frames are taken off, what goes
 * is put into binary frames. Messages have no meaning here, only their bytes.
 *
 * Trust: a frame that is not masked, has a reserved bit or an unknown opcode, or is a control frame of more than 125 bytes ends
 * the stream. Payloads are passed on as they come, so their announced length costs nothing.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEBSOCKET_HEADER_MAX = 4, WEBSOCKET_CONTROL_MAX = 125 };

struct websocket {
	uint8_t header[14];
	uint8_t header_used;
	uint8_t opcode; /* of the frame that is being read */
	uint8_t mask[4];
	uint64_t left, at; /* bytes of its payload to come; those that came */
	uint8_t control[WEBSOCKET_CONTROL_MAX];
	/* A pong that is to be sent, as soon as there is room. */
	uint8_t pong[WEBSOCKET_CONTROL_MAX];
	uint8_t pong_len;
	bool pong_due, closed, failed;
};

/* Takes the frames off n bytes at buf, in place. Returns how many bytes of the stream are at buf now (maybe 0), or -EPROTO, from then
 * on always. After the other side's close frame (w->closed) nothing more is taken. */
long websocket_decode(struct websocket *w, uint8_t *buf, size_t n);

/* The header of a frame of opcode (2: binary, 10: pong, 8: close) with n <= 65535 bytes: its length. */
size_t websocket_header(uint8_t out[WEBSOCKET_HEADER_MAX], unsigned opcode, size_t n);
