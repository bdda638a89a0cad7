/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-gpu's loop: requests come one by one and are carried out at once; fences are told when the renderer's own thread says that
 * something has passed. Both wait in one poll, so an idle process sleeps.
 *
 * Trust: the monitor is held to the protocol (a packet of another size ends the conversation); what its requests ask for is the guest's.
 */
#include "host/gpu/serve.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "lib/fd.h"

#define MIB_SHIFT 20

int serve_gpu_start(struct serve_gpu *s, struct err *err)
{
	struct gpu_request q;
	_cleanup_close_ int fd = -1;
	struct stat st;
	size_t nfds = 0;
	ssize_t n = fd_recv(s->sock, &q, sizeof(q), &fd, 1, &nfds);

	if (n < 0)
		return err_errno(err, (int)n, "the monitor's first message");
	if (n != sizeof(q) || nfds != 1 || le16_get(q.op) != GPU_START)
		return err_set(err, -EPROTO, "the monitor's first message is no start");
	if (le32_get(q.arg[GPU_START_VERSION]) != GPU_VERSION)
		return err_set(err, -EPROTO, "the monitor speaks version %u, this is %d: both must be of one release",
			       le32_get(q.arg[GPU_START_VERSION]), GPU_VERSION);
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "the display's memory");
	s->renderer.limit = (uint64_t)le32_get(q.arg[GPU_START_MEMORY]) << MIB_SHIFT;
	s->renderer.memory_size = (uint64_t)st.st_size;
	s->renderer.memory = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s->renderer.memory == MAP_FAILED) {
		s->renderer.memory = NULL;
		return err_errno(err, -errno, "map the display's memory");
	}
	return 0;
}

static int answer(struct serve_gpu *s, enum gpu_op op, uint32_t seq, int status)
{
	const struct gpu_reply a = { .op = le16_make(op), .seq = le32_make(seq), .status = le32_make((uint32_t)status) };

	return send(s->sock, &a, sizeof(a), MSG_NOSIGNAL) == (ssize_t)sizeof(a) ? 0 : -errno;
}

static int say_ready(struct serve_gpu *s, const struct err *failed)
{
	struct gpu_ready *a = &s->ready;

	a->h.op = le16_make(GPU_READY);
	a->version = le32_make(GPU_VERSION);
	if (failed) {
		a->h.status = le32_make((uint32_t)failed->code);
		snprintf(a->text, sizeof(a->text), "%.*s", (int)sizeof(a->text) - 1, failed->text);
	}
	return send(s->sock, a, sizeof(*a), MSG_NOSIGNAL) == (ssize_t)sizeof(*a) ? 0 : -errno;
}

static int tell_fences(struct serve_gpu *s)
{
	uint32_t seq;

	if (!renderer_poll(&s->renderer, &seq) || seq == s->told_fence)
		return 0;
	s->told_fence = seq;
	return answer(s, GPU_FENCED, seq, 0);
}

/* 1: another may be there; 0: the monitor has gone. */
static int serve_one(struct serve_gpu *s, struct err *err)
{
	struct gpu_request q;
	ssize_t n = recv(s->sock, &q, sizeof(q), MSG_TRUNC);
	int status;

	if (n < 0)
		return errno == EINTR ? 1 : err_errno(err, -errno, "read from the monitor");
	if (n == 0)
		return 0;
	if (n != sizeof(q))
		return err_set(err, -EPROTO, "a request of %zd bytes instead of %zu", n, sizeof(q));
	status = renderer_request(&s->renderer, &q);
	if (answer(s, GPU_DONE, le32_get(q.seq), status) < 0)
		return 0;
	return tell_fences(s) < 0 ? 0 : 1;
}

int serve_gpu_run(struct serve_gpu *s, const struct err *failed, struct err *err)
{
	struct pollfd p[2] = {
		{ .fd = s->sock, .events = POLLIN },
		{ .fd = renderer_poll_fd(&s->renderer), .events = POLLIN },
	};
	int r = say_ready(s, failed) < 0 || failed ? 0 : 1;

	while (r > 0) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		if (p[1].revents && tell_fences(s) < 0)
			return 0;
		if (p[0].revents)
			r = serve_one(s, err);
	}
	return r;
}
