/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Console backend: see console.h.
 *
 * How it works: writers put bytes into the ring and, unless they did already, wake the main loop by an eventfd. Main
 * takes them out in chunks and writes without ever blocking: it opens pipes and terminals anew through /proc to set
 * O_NONBLOCK on a description of its own (the one it inherited is shared with the caller's shell), sends to
 * sockets with MSG_DONTWAIT, and where neither works asks poll first. A chunk that cannot go waits for EPOLLOUT.
 *
 * Rotation copies: renaming would need names, which an isolated monitor does not have.
 *
 * Trust: bytes are passed on as they are; whoever shows them on a terminal must expect control sequences.
 */
/* syscalls(main): read write sendto pread64 pwrite64 ftruncate poll epoll_ctl close
 * syscalls(vcpu): write */
#include "devices/backend/console.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

/* A write of at most PIPE_BUF does not block on a pipe that poll calls writable. */
enum { CAREFUL_WRITE = 512, CLOSE_WAIT_MS = 100, LOST_TEXT = 80 };

static void kick(struct console *c)
{
	const uint64_t one = 1;

	if (c->kicked)
		return;
	c->kicked = true;
	ssize_t ignored = write(c->kick_fd, &one, sizeof(one));

	(void)ignored;
}

void console_write(struct console *c, const void *buf, size_t n)
{
	const uint8_t *p = buf;

	if (c->sink == CONSOLE_NONE)
		return;
	pthread_mutex_lock(&c->lock);
	if (n > CONSOLE_RING) {
		c->lost += n - CONSOLE_RING;
		p += n - CONSOLE_RING;
		n = CONSOLE_RING;
	}
	if (n > CONSOLE_RING - c->ring_len) {
		uint32_t drop = (uint32_t)n - (CONSOLE_RING - c->ring_len);

		c->ring_at = (c->ring_at + drop) % CONSOLE_RING;
		c->ring_len -= drop;
		c->lost += drop;
	}
	uint32_t at = (c->ring_at + c->ring_len) % CONSOLE_RING;
	uint32_t first = MIN((uint32_t)n, CONSOLE_RING - at);

	memcpy(c->ring + at, p, first);
	memcpy(c->ring, p + first, n - first);
	c->ring_len += (uint32_t)n;
	kick(c);
	pthread_mutex_unlock(&c->lock);
}

size_t console_read(struct console *c, void *buf, size_t n)
{
	if (!c->on_input)
		return 0;
	pthread_mutex_lock(&c->lock);
	uint32_t len = (uint32_t)MIN(n, (size_t)c->input_len);

	memcpy(buf, c->input + c->input_at, len);
	c->input_at += len;
	c->input_len -= len;
	if (c->input_len == 0) {
		c->input_at = 0;
		if (c->input_full)
			kick(c);
	}
	pthread_mutex_unlock(&c->lock);
	return len;
}

/* The next bytes to go out; the note about lost ones stands where they would have been. */
static void take_chunk(struct console *c)
{
	pthread_mutex_lock(&c->lock);
	c->chunk_at = c->chunk_len = 0;
	if (c->lost) {
		c->chunk_len = (uint32_t)snprintf((char *)c->chunk, LOST_TEXT, "\r\n[coffer: %llu bytes of console output lost]\r\n",
						  (unsigned long long)c->lost);
		c->lost = 0;
	}
	while (c->ring_len && c->chunk_len < CONSOLE_CHUNK) {
		uint32_t n = MIN(MIN(c->ring_len, CONSOLE_RING - c->ring_at), CONSOLE_CHUNK - c->chunk_len);

		memcpy(c->chunk + c->chunk_len, c->ring + c->ring_at, n);
		c->ring_at = (c->ring_at + n) % CONSOLE_RING;
		c->ring_len -= n;
		c->chunk_len += n;
	}
	pthread_mutex_unlock(&c->lock);
}

static void rotate(struct console *c)
{
	uint8_t buf[CONSOLE_CHUNK];
	off_t at = 0;

	if (ftruncate(c->old_fd, 0) == 0)
		for (;;) {
			ssize_t n = fd_pread_full(c->log_fd, buf, sizeof(buf), at);

			if (n <= 0 || fd_pwrite_full(c->old_fd, buf, (size_t)n, at) < 0)
				break;
			at += n;
		}
	/* Also when the copy failed (a full disk): the bound is kept before the contents are. */
	if (ftruncate(c->log_fd, 0) == 0)
		c->log_len = 0;
}

static ssize_t write_log(struct console *c, const uint8_t *p, uint32_t n)
{
	int r;

	if (c->log_len + n > c->log_limit)
		rotate(c);
	r = fd_pwrite_full(c->log_fd, p, n, (off_t)c->log_len);
	if (r < 0)
		return r;
	c->log_len += n;
	return n;
}

static ssize_t write_stdout(struct console *c, const uint8_t *p, uint32_t n)
{
	ssize_t r;

	if (c->out_socket) {
		r = send(c->out_fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	} else {
		struct pollfd pfd = { .fd = c->out_fd, .events = POLLOUT };

		if (c->out_careful && poll(&pfd, 1, 0) == 0)
			return -EAGAIN;
		r = write(c->out_fd, p, c->out_careful ? MIN(n, (uint32_t)CAREFUL_WRITE) : n);
	}
	return r < 0 ? -errno : r;
}

static void stop_output(struct console *c)
{
	loop_remove(c->loop, &c->out);
	if (c->out_owned)
		fd_close(c->out_fd);
	c->out_fd = -1;
	c->out_owned = false;
}

/* Empty the ring as far as the sink takes it: true when all is gone. */
static bool drain(struct console *c)
{
	for (;;) {
		ssize_t n;

		if (c->chunk_at == c->chunk_len)
			take_chunk(c);
		if (c->chunk_len == 0)
			return true;
		if (c->sink == CONSOLE_LOG)
			n = write_log(c, c->chunk + c->chunk_at, c->chunk_len - c->chunk_at);
		else
			n = c->out_fd < 0 ? -EPIPE : write_stdout(c, c->chunk + c->chunk_at, c->chunk_len - c->chunk_at);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return false;
		if (n < 0 && c->sink == CONSOLE_LOG) { /* a full disk may recover: try again with the next output */
			pthread_mutex_lock(&c->lock);
			c->lost += c->chunk_len - c->chunk_at;
			pthread_mutex_unlock(&c->lock);
			c->chunk_at = c->chunk_len;
			return true;
		}
		if (n < 0) { /* a reader that went away does not come back */
			stop_output(c);
			c->chunk_at = c->chunk_len;
			continue;
		}
		c->chunk_at += (uint32_t)n;
	}
}

static void on_writable(struct loop_fd *w, uint32_t events)
{
	struct console *c = container_of(w, struct console, out);

	(void)events;
	if (drain(c))
		loop_remove(c->loop, &c->out);
}

static void output(struct console *c)
{
	if (c->out.added || drain(c))
		return;
	/* Cannot be watched (a special file): try again with the next output. */
	loop_add(c->loop, &c->out, c->out_fd, EPOLLOUT, on_writable);
}

static void on_readable(struct loop_fd *w, uint32_t events);

/* Read while there is room. An input that epoll cannot watch (a file) is always ready. */
static void input(struct console *c)
{
	while (c->in_fd >= 0) {
		uint32_t room;
		ssize_t n;

		pthread_mutex_lock(&c->lock);
		room = c->input_len ? 0 : CONSOLE_INPUT;
		c->input_full = room == 0;
		pthread_mutex_unlock(&c->lock);
		if (room == 0) {
			loop_remove(c->loop, &c->in);
			break;
		}
		if (!c->in.added) {
			int r = loop_add(c->loop, &c->in, c->in_fd, EPOLLIN, on_readable);

			if (r == 0)
				break; /* called again when there is something */
			if (r != -EPERM) {
				c->in_fd = -1;
				break;
			}
		}
		/* Nobody else puts anything in: the buffer stays empty until we are done. */
		n = read(c->in_fd, c->input, CONSOLE_INPUT);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			break;
		if (n <= 0) {
			loop_remove(c->loop, &c->in);
			c->in_fd = -1;
			break;
		}
		pthread_mutex_lock(&c->lock);
		c->input_at = 0;
		c->input_len = (uint32_t)n;
		pthread_mutex_unlock(&c->lock);
		c->on_input(c);
		if (c->in.added)
			break;
	}
}

static void on_readable(struct loop_fd *w, uint32_t events)
{
	(void)events;
	input(container_of(w, struct console, in));
}

static void on_kick(struct loop_fd *w, uint32_t events)
{
	struct console *c = container_of(w, struct console, kick);
	uint64_t v;
	ssize_t ignored = read(c->kick_fd, &v, sizeof(v));
	bool want_input;

	(void)ignored;
	(void)events;
	pthread_mutex_lock(&c->lock);
	c->kicked = false;
	want_input = c->input_full && c->input_len == 0;
	pthread_mutex_unlock(&c->lock);
	output(c);
	if (want_input)
		input(c);
}

static int open_log_file(const char *path, uint64_t *ret_len, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "log '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "log '%s' is not a regular file: use 'stdio' for a terminal or a pipe", path);
	*ret_len = (uint64_t)st.st_size;
	return TAKE_FD(fd);
}

static int open_log(struct console *c, const char *path, uint64_t limit, struct err *err)
{
	_cleanup_free_ char *old = NULL;
	uint64_t ignored;

	if (asprintf(&old, "%s.1", path) < 0) {
		old = NULL;
		return err_errno(err, -ENOMEM, "log '%s'", path);
	}
	c->log_limit = limit ? limit : CONSOLE_LIMIT_DEFAULT;
	c->log_fd = open_log_file(path, &c->log_len, err);
	if (c->log_fd < 0)
		return c->log_fd;
	c->old_fd = open_log_file(old, &ignored, err);
	return c->old_fd < 0 ? c->old_fd : 0;
}

static int open_stdio(struct console *c, struct err *err)
{
	struct stat st;

	c->in_fd = c->on_input ? STDIN_FILENO : -1;
	c->out_fd = STDOUT_FILENO;
	if (fstat(STDOUT_FILENO, &st) < 0)
		return err_errno(err, -errno, "standard output");
	if (S_ISSOCK(st.st_mode)) {
		c->out_socket = true;
	} else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)) {
		int fd = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);

		c->out_careful = fd < 0;
		c->out_owned = fd >= 0;
		c->out_fd = fd >= 0 ? fd : STDOUT_FILENO;
	}
	return 0;
}

int console_open(struct console *c, struct loop *loop, const char *log, uint64_t limit, bool use_stdio,
		 console_input_fn *on_input, struct err *err)
{
	int r = 0;

	memset(c, 0, sizeof(*c));
	c->log_fd = c->old_fd = c->in_fd = c->out_fd = c->kick_fd = -1;
	if (log && use_stdio)
		return err_set(err, -EINVAL, "'log' and 'stdio' exclude each other");
	if (limit && (limit < CONSOLE_LIMIT_MIN || limit > CONSOLE_LIMIT_MAX))
		return err_set(err, -EINVAL, "limit of %llu bytes: use %llu KiB to %llu MiB", (unsigned long long)limit,
			       CONSOLE_LIMIT_MIN >> 10, CONSOLE_LIMIT_MAX >> 20);
	if (!log && !use_stdio)
		return 0;
	c->loop = loop;
	pthread_mutex_init(&c->lock, NULL);
	c->sink = log ? CONSOLE_LOG : CONSOLE_STDIO;
	c->on_input = use_stdio ? on_input : NULL;
	c->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->kick_fd < 0)
		r = err_errno(err, -errno, "eventfd");
	if (r == 0)
		r = log ? open_log(c, log, limit, err) : open_stdio(c, err);
	if (r == 0)
		r = loop_add(loop, &c->kick, c->kick_fd, EPOLLIN, on_kick);
	if (r < 0) {
		console_close(c);
		return r;
	}
	if (c->on_input) { /* from the loop, once the device is complete */
		c->input_full = true;
		kick(c);
	}
	return 0;
}

void console_close(struct console *c)
{
	if (c->sink == CONSOLE_NONE)
		return;
	while (c->kick.added && !drain(c)) {
		struct pollfd pfd = { .fd = c->out_fd, .events = POLLOUT };

		if (poll(&pfd, 1, CLOSE_WAIT_MS) <= 0)
			break;
	}
	loop_remove(c->loop, &c->in);
	loop_remove(c->loop, &c->kick);
	stop_output(c);
	fd_close(c->log_fd);
	fd_close(c->old_fd);
	fd_close(c->kick_fd);
	pthread_mutex_destroy(&c->lock);
	memset(c, 0, sizeof(*c));
}
