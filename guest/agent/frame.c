/* SPDX-License-Identifier: Apache-2.0 */
/* Frames from the host: see frame.h. */
#include "guest/agent/frame.h"

#include <errno.h>

void frame_reader_init(struct frame_reader *f, unsigned allowed)
{
	f->allowed = allowed;
	f->have = 0;
	f->complete = false;
}

size_t frame_reader_space(struct frame_reader *f, void **ret)
{
	if (f->complete) {
		f->complete = false;
		f->have = 0;
	}
	if (f->have < sizeof(f->header)) {
		*ret = (char *)&f->header + f->have;
		return sizeof(f->header) - f->have;
	}
	*ret = f->payload + (f->have - sizeof(f->header));
	return f->length - (f->have - sizeof(f->header));
}

static int check_header(struct frame_reader *f, struct err *err)
{
	uint32_t length = le32_get(f->header.length);
	uint8_t type = f->header.type;
	uint32_t min = 0, max = AGENT_FRAME_MAX;

	if (f->header.zero[0] || f->header.zero[1] || f->header.zero[2])
		return err_set(err, -EPROTO, "frame of type %u: reserved bytes are not zero", type);
	if (type >= 32 || !(f->allowed & 1u << type))
		return err_set(err, -EPROTO, "frame of type %u does not belong to this operation", type);
	if (type == AGENT_SIGNAL)
		min = max = 4;
	else if (type == AGENT_WINSIZE || type == AGENT_ACK)
		min = max = 8;
	else if (type == AGENT_STDOUT || type == AGENT_STDERR || type == AGENT_EXIT)
		max = 0; /* "nobody reads it any more", "I have it" */
	if (length < min || length > max)
		return err_set(err, -EPROTO, "frame of type %u has %u bytes; %u to %u are possible", type, length, min, max);
	f->type = type;
	f->length = length;
	return 0;
}

int frame_reader_commit(struct frame_reader *f, size_t n, struct err *err)
{
	size_t before = f->have;
	int rc;

	f->have += n;
	if (f->have < sizeof(f->header))
		return 0;
	if (before < sizeof(f->header)) {
		rc = check_header(f, err);
		if (rc < 0)
			return rc;
	}
	f->complete = f->have == sizeof(f->header) + f->length;
	return f->complete;
}

struct agent_frame frame_header(uint8_t type, size_t length)
{
	return (struct agent_frame){ .length = le32_make((uint32_t)length), .type = type };
}
