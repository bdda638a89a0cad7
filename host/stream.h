/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a guest command's output goes: a descriptor of ours, written without ever blocking, or a bounded buffer.
 *
 * Descriptors 1 and 2 are shared with other processes, so O_NONBLOCK must not be set on them. A pipe or terminal is
 * opened anew through /proc with O_NONBLOCK; where that is not allowed, poll and writes of PIPE_BUF bytes do
 * (POLLOUT promises as much for pipes). Sockets take MSG_DONTWAIT; files do not block.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct stream {
	int fd;          /* what is written and polled; -1: captured */
	int own_fd;      /* opened anew, or -1 */
	bool is_socket;
	bool can_hang_up; /* poll tells that the reader is gone */
	size_t chunk;    /* at most so many bytes at once */
	bool closed;     /* nobody reads: what comes is dropped */
	int error;       /* -errno of a write that failed, but EPIPE */
	char *capture;   /* owned */
	size_t captured, capture_max;
	bool truncated;
};

void stream_open_fd(struct stream *s, int fd); /* fd is borrowed */
int stream_open_capture(struct stream *s, size_t max); /* 0 or -ENOMEM */
void stream_close(struct stream *s);

/* Take up to n bytes: how many were taken (or dropped), 0 when it would block. Sets closed and error. */
size_t stream_write(struct stream *s, const void *data, size_t n);
