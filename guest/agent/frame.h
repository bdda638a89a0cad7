/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames from the host, put together from a byte stream and checked.
 *
 * The caller asks where the next bytes go and how many may be read (frame_reader_space), reads at most that many there, and
 * says how many came (frame_reader_commit). So a frame is never read beyond its end, and nothing is copied.
 *
 * Trust: hostile. The header is checked as soon as it is there: a type that is not in `allowed`, a length that the type
 * cannot have and bytes that must be zero are errors before any payload is taken.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/proto.h"
#include "lib/err.h"

struct frame_reader {
	unsigned allowed; /* bit per enum agent_frame_type */
	size_t have;      /* bytes of the frame, with its header */
	bool complete;    /* frame.. below are valid until the next frame_reader_space */
	uint8_t type;
	uint32_t length;
	struct agent_frame header;
	unsigned char payload[AGENT_FRAME_MAX];
};

void frame_reader_init(struct frame_reader *f, unsigned allowed);
size_t frame_reader_space(struct frame_reader *f, void **ret); /* at least 1 */
/* 1: a frame is complete, 0: more is needed, -EPROTO. */
int frame_reader_commit(struct frame_reader *f, size_t n, struct err *err);

struct agent_frame frame_header(uint8_t type, size_t length);
