/* SPDX-License-Identifier: Apache-2.0 */
/* Output without blocking: see stream.h. */
#include "host/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { FIRST_CAPTURE = 4096 };

void stream_open_fd(struct stream *s, int fd)
{
	struct stat st;
	char path[64];

	*s = (struct stream){ .fd = fd, .own_fd = -1, .chunk = SSIZE_MAX };
	if (fstat(fd, &st) < 0)
		return; /* the first write says what is wrong */
	s->is_socket = S_ISSOCK(st.st_mode);
	s->can_hang_up = s->is_socket || S_ISFIFO(st.st_mode);
	if (!S_ISFIFO(st.st_mode) && !isatty(fd))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	s->own_fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (s->own_fd >= 0)
		s->fd = s->own_fd;
	else
		s->chunk = PIPE_BUF;
}

int stream_open_capture(struct stream *s, size_t max)
{
	*s = (struct stream){ .fd = -1, .own_fd = -1, .capture_max = max };
	s->capture = malloc(MIN(max, (size_t)FIRST_CAPTURE));
	return s->capture ? 0 : -ENOMEM;
}

void stream_close(struct stream *s)
{
	s->own_fd = fd_close(s->own_fd);
	free(s->capture);
	s->capture = NULL;
	s->fd = -1;
}

/* The buffer doubles up to capture_max, so its size is always a power of two times the first. */
static void capture(struct stream *s, const char *data, size_t n)
{
	size_t size = MIN(s->capture_max, (size_t)FIRST_CAPTURE);

	while (size < s->captured)
		size = MIN(size * 2, s->capture_max);
	if (n > s->capture_max - s->captured) {
		n = s->capture_max - s->captured;
		s->truncated = true;
	}
	size_t wanted = size;

	while (wanted < s->captured + n)
		wanted = MIN(wanted * 2, s->capture_max);
	if (wanted > size) {
		char *bigger = realloc(s->capture, wanted);

		if (!bigger) {
			s->truncated = true;
			return;
		}
		s->capture = bigger;
	}
	memcpy(s->capture + s->captured, data, n);
	s->captured += n;
}

size_t stream_write(struct stream *s, const void *data, size_t n)
{
	if (s->closed)
		return n;
	if (s->fd < 0 && s->capture) {
		capture(s, data, n);
		return n;
	}
	size_t m = MIN(n, s->chunk);
	ssize_t r = s->is_socket ? send(s->fd, data, m, MSG_DONTWAIT | MSG_NOSIGNAL) : write(s->fd, data, m);

	if (r >= 0)
		return (size_t)r;
	if (errno == EAGAIN || errno == EINTR)
		return 0;
	if (errno != EPIPE && errno != ECONNRESET)
		s->error = -errno;
	s->closed = true;
	return n;
}
