/* SPDX-License-Identifier: Apache-2.0 */
/* coffer-gpu from the monitor's side: see gpu_worker.h. */
/* syscalls(main): sendto recvfrom poll close */
#include "devices/backend/gpu_worker.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/fd.h"
#include "lib/util.h"

/* Where struct virgl_caps_v2 has its capability_bits and capability_bits_v2, and the bits that are taken away: transfers inside command
 * streams, and memory that is mapped by both sides at once. Mesa takes copies in both directions for a promise of COPY_TRANSFER, too, and
 * ends at its first texture when only that one is missing. */
enum gpu_caps_bit { CAPS_TRANSFER = 1 << 17, CAPS_COPY_TRANSFER = 1 << 26, CAPS_BUFFER_STORAGE = (int)(1u << 31) };
enum gpu_caps_bit_v2 { CAPS_COPY_TRANSFER_BOTH_DIRECTIONS = 1 << 7 };
enum { CAPSET_VIRGL2 = 2, CAPS_V2_BITS_AT = 392, CAPS_V2_BITS_V2_AT = 688 };

static void give_up(struct gpu_worker *w, const char *why)
{
	if (!gpu_worker_alive(w))
		return;
	if (w->loop)
		loop_remove(w->loop, &w->watch);
	w->sock = fd_close(w->sock);
	w->ops->died(w->opaque, why);
}

/* ---- start ---- */

static void mask_caps(struct gpu_capset *c)
{
	uint8_t *bits = c->data + CAPS_V2_BITS_AT, *bits_v2 = c->data + CAPS_V2_BITS_V2_AT;

	if (le32_get(c->id) != CAPSET_VIRGL2)
		return;
	if (le32_get(c->size) >= CAPS_V2_BITS_AT + sizeof(le32))
		le32_store(bits, le32_load(bits) & ~(uint32_t)(CAPS_TRANSFER | CAPS_COPY_TRANSFER | CAPS_BUFFER_STORAGE));
	if (le32_get(c->size) >= CAPS_V2_BITS_V2_AT + sizeof(le32))
		le32_store(bits_v2, le32_load(bits_v2) & ~(uint32_t)CAPS_COPY_TRANSFER_BOTH_DIRECTIONS);
}

static int take_ready(struct gpu_worker *w, struct gpu_ready *a, struct err *err)
{
	a->text[sizeof(a->text) - 1] = '\0';
	for (char *c = a->text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	if (le16_get(a->h.op) != GPU_READY || le32_get(a->version) != GPU_VERSION)
		return err_set(err, -EPROTO, "coffer-gpu: its first word is not understood: both must be of one release");
	if (le32_get(a->h.status) != 0)
		return err_set(err, -ENODEV, "coffer-gpu: %s", a->text);
	w->ncapsets = le32_get(a->ncapsets);
	if (w->ncapsets > GPU_CAPSETS_MAX)
		return err_set(err, -EPROTO, "coffer-gpu: %u capability sets", w->ncapsets);
	for (uint32_t i = 0; i < w->ncapsets; i++) {
		if (le32_get(a->capset[i].size) > GPU_CAPSET_SIZE_MAX)
			return err_set(err, -EPROTO, "coffer-gpu: a capability set of %u bytes", le32_get(a->capset[i].size));
		w->capset[i] = a->capset[i];
		mask_caps(&w->capset[i]);
	}
	return 0;
}

static int start(struct gpu_worker *w, int memory_fd, uint32_t memory, struct err *err)
{
	struct gpu_request q = { .op = le16_make(GPU_START) };
	struct pollfd p = { .fd = w->sock, .events = POLLIN };
	struct gpu_ready a;
	ssize_t n;

	q.arg[GPU_START_VERSION] = le32_make(GPU_VERSION);
	q.arg[GPU_START_MEMORY] = le32_make(memory);
	n = fd_send(w->sock, &q, sizeof(q), &memory_fd, 1);
	if (n < 0)
		return err_errno(err, (int)n, "coffer-gpu");
	n = poll(&p, 1, GPU_WORKER_START_MS);
	if (n <= 0)
		return err_set(err, -ETIMEDOUT, "coffer-gpu is not ready after %d s", GPU_WORKER_START_MS / 1000);
	n = recv(w->sock, &a, sizeof(a), MSG_DONTWAIT);
	if (n != sizeof(a))
		return err_set(err, -EPROTO, "coffer-gpu ended before it was ready");
	return take_ready(w, &a, err);
}

int gpu_worker_open(struct gpu_worker *w, int sock, int memory_fd, uint32_t memory, const struct gpu_worker_ops *ops, void *opaque, struct err *err)
{
	int r;

	*w = (struct gpu_worker){ .sock = sock, .ops = ops, .opaque = opaque };
	r = start(w, memory_fd, memory, err);
	if (r < 0)
		w->sock = fd_close(w->sock);
	return r;
}

/* ---- answers ---- */

static void told_done(struct gpu_worker *w, const struct gpu_reply *a)
{
	int status = (int)le32_get(a->status);

	if (w->last_done == w->last_sent || le32_get(a->seq) != w->last_done + 1 || status > 0) {
		give_up(w, "it answered what nobody asked");
		return;
	}
	w->last_done++;
	w->ops->done(w->opaque, w->last_done, status);
	if (w->want_room) {
		w->want_room = false;
		w->ops->room(w->opaque);
	}
}

static void told_fenced(struct gpu_worker *w, const struct gpu_reply *a)
{
	uint32_t seq = le32_get(a->seq);

	/* Numbers go round: it must lie between the last one told and the last one done. */
	if (seq - w->last_fenced > w->last_done - w->last_fenced) {
		give_up(w, "it told a fence that cannot have passed");
		return;
	}
	w->last_fenced = seq;
	w->ops->fenced(w->opaque, seq);
}

/* One answer: 1, or 0 when there is none now. */
static int take_one(struct gpu_worker *w)
{
	struct gpu_reply a;
	ssize_t n = recv(w->sock, &a, sizeof(a), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0)
		give_up(w, "it has ended");
	else if (n == sizeof(a) && le16_get(a.op) == GPU_DONE)
		told_done(w, &a);
	else if (n == sizeof(a) && le16_get(a.op) == GPU_FENCED)
		told_fenced(w, &a);
	else
		give_up(w, "it said something that is not understood");
	return gpu_worker_alive(w);
}

static void on_readable(struct loop_fd *watch, uint32_t events)
{
	struct gpu_worker *w = container_of(watch, struct gpu_worker, watch);

	(void)events;
	if (w->ops->turn)
		w->ops->turn(w->opaque, true);
	for (int i = 0; i < GPU_INFLIGHT_MAX && take_one(w) > 0; i++)
		;
	if (w->ops->turn)
		w->ops->turn(w->opaque, false);
}

int gpu_worker_attach(struct gpu_worker *w, struct loop *loop, struct err *err)
{
	int r = loop_add(loop, &w->watch, w->sock, EPOLLIN, on_readable);

	if (r < 0)
		return err_errno(err, r, "coffer-gpu: epoll");
	w->loop = loop;
	return 0;
}

void gpu_worker_close(struct gpu_worker *w)
{
	if (w->loop) {
		if (gpu_worker_alive(w))
			loop_remove(w->loop, &w->watch);
		w->loop = NULL;
	}
	if (w->ops)
		w->sock = fd_close(w->sock);
}

/* ---- requests ---- */

int gpu_worker_send(struct gpu_worker *w, struct gpu_request *q)
{
	if (!gpu_worker_alive(w))
		return -EPIPE;
	if (w->last_sent - w->last_done >= GPU_INFLIGHT_MAX) {
		w->want_room = true;
		return -EAGAIN;
	}
	q->seq = le32_make(w->last_sent + 1);
	if (send(w->sock, q, sizeof(*q), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*q)) {
		w->last_sent++;
		return 0;
	}
	if (errno == EAGAIN && w->last_sent != w->last_done) {
		w->want_room = true;
		return -EAGAIN;
	}
	give_up(w, "it does not listen");
	return -EPIPE;
}

static bool still(const struct gpu_worker *w, bool fences, uint32_t last_fence)
{
	return w->last_done == w->last_sent && (!fences || (int32_t)(w->last_fenced - last_fence) >= 0);
}

int gpu_worker_drain(struct gpu_worker *w, bool fences, uint32_t last_fence, int ms)
{
	uint64_t end = loop_now_ns() + (uint64_t)ms * 1000000u;

	while (gpu_worker_alive(w) && !still(w, fences, last_fence)) {
		struct pollfd p = { .fd = w->sock, .events = POLLIN };
		uint64_t now = loop_now_ns();

		if (now >= end) {
			give_up(w, "it does not come to an end");
			break;
		}
		if (poll(&p, 1, (int)((end - now) / 1000000u) + 1) > 0)
			take_one(w);
	}
	return gpu_worker_alive(w) ? 0 : -EPIPE;
}
