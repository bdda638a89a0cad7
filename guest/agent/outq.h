/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of one command: frames in a ring, ready for the wire.
 *
 * What the command writes is read straight into the ring behind room for a header (outq_read) and leaves it as it is
 * (outq_send). While nobody is connected the oldest frames make room for new ones (outq_drop): the size is fixed.
 * Nothing but whole frames is dropped, and a frame that was sent in part to a connection that died is sent again from
 * its start.
 *
 * With `keep` a frame stays when it has been sent, until the host says that it has it (outq_take); a ring full of such
 * frames is full. What the host has is counted in bytes of whole frames with their headers, from the first one on.
 *
 * OUTQ_RESERVE bytes are kept free for the ends of both streams and the EXIT frame, so these always fit.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/agent/ring.h"
#include "guest/proto.h"

enum { OUTQ_SIZE = 256 * 1024, OUTQ_RESERVE = 64, OUTQ_READ_MIN = 4096 };

struct outq {
	struct ring ring;
	size_t sent, whole; /* bytes from the head that are out; of these, the ones in whole frames */
	uint64_t taken;     /* bytes that have left the ring */
	uint64_t lost;      /* bytes of payload dropped; the owner resets it */
	bool keep;
	unsigned char buf[OUTQ_SIZE];
};

void outq_init(struct outq *q);
bool outq_can_read(const struct outq *q); /* room for a frame of at least OUTQ_READ_MIN bytes */

/* Read up to max bytes from fd (non-blocking) into one frame. Bytes read, 0 at end of file, or -errno. Needs outq_can_read. */
ssize_t outq_read(struct outq *q, uint8_t type, int fd, size_t max);
void outq_put(struct outq *q, uint8_t type, const void *payload, size_t n); /* a small frame out of the reserve */
void outq_drop(struct outq *q); /* drop the oldest data until outq_can_read */

bool outq_pending(const struct outq *q);
bool outq_mid_frame(const struct outq *q); /* another frame must not come in between */
/* Send what the socket takes, or with `one` at most the rest of the frame at the head: bytes, -EAGAIN or another -errno. Only
 * while pending. */
ssize_t outq_send(struct outq *q, int fd, bool one);
/* With `keep`: the host has `total` bytes since the beginning. -ERANGE: that is no end of a frame that is kept and was
 * sent. */
int outq_take(struct outq *q, uint64_t total);
void outq_rewind(struct outq *q); /* the connection is another one: what is there is sent from its beginning */
