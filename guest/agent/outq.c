/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a command: see outq.h. */
#include "guest/agent/outq.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "guest/agent/frame.h"
#include "lib/util.h"

void outq_init(struct outq *q)
{
	ring_init(&q->ring, q->buf, sizeof(q->buf));
	q->sent = q->whole = 0;
	q->taken = q->lost = 0;
	q->keep = false;
}

static size_t room(const struct outq *q)
{
	size_t n = ring_room(&q->ring), overhead = sizeof(struct agent_frame) + OUTQ_RESERVE;

	return n > overhead ? n - overhead : 0;
}

bool outq_can_read(const struct outq *q)
{
	return room(q) >= OUTQ_READ_MIN;
}

ssize_t outq_read(struct outq *q, uint8_t type, int fd, size_t max)
{
	size_t n = MIN(room(q), max);
	struct agent_frame h;
	struct iovec iov[2];
	ssize_t got;
	int pieces;

	n = MIN(n, (size_t)AGENT_FRAME_MAX);
	pieces = ring_iov(&q->ring, q->ring.len + sizeof(h), n, iov);
	do
		got = readv(fd, iov, pieces);
	while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got < 0 ? -errno : 0;
	h = frame_header(type, (size_t)got);
	ring_write(&q->ring, &h, sizeof(h));
	q->ring.len += (size_t)got;
	return got;
}

void outq_put(struct outq *q, uint8_t type, const void *payload, size_t n)
{
	struct agent_frame h = frame_header(type, n);

	if (ring_room(&q->ring) < sizeof(h) + n)
		return; /* the reserve covers every caller */
	ring_write(&q->ring, &h, sizeof(h));
	if (n > 0)
		ring_write(&q->ring, payload, n);
}

/* Length of the frame that begins `at` bytes from the head. */
static size_t frame_at(const struct outq *q, size_t at)
{
	struct agent_frame h;

	ring_load(&q->ring, at, &h, sizeof(h));
	return sizeof(h) + le32_get(h.length);
}

static void consume(struct outq *q, size_t n)
{
	ring_consume(&q->ring, n);
	q->taken += n;
}

void outq_drop(struct outq *q)
{
	outq_rewind(q);
	while (!outq_can_read(q)) {
		struct agent_frame h;

		ring_load(&q->ring, 0, &h, sizeof(h));
		consume(q, sizeof(h) + le32_get(h.length));
		q->lost += le32_get(h.length);
		if (le32_get(h.length) == 0) /* the end of a stream is never lost, it only moves back */
			outq_put(q, h.type, NULL, 0);
	}
}

bool outq_pending(const struct outq *q)
{
	return q->sent < q->ring.len;
}

bool outq_mid_frame(const struct outq *q)
{
	return q->sent > q->whole;
}

ssize_t outq_send(struct outq *q, int fd, bool one)
{
	size_t end = one ? q->whole + frame_at(q, q->whole) : q->ring.len;
	struct iovec iov[2];
	struct msghdr m = { .msg_iov = iov };
	ssize_t n;

	m.msg_iovlen = (size_t)ring_iov(&q->ring, q->sent, end - q->sent, iov);
	do
		n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	q->sent += (size_t)n;
	while (q->whole < q->sent && q->whole + frame_at(q, q->whole) <= q->sent)
		q->whole += frame_at(q, q->whole);
	if (!q->keep) {
		consume(q, q->whole);
		q->sent -= q->whole;
		q->whole = 0;
	}
	return n;
}

int outq_take(struct outq *q, uint64_t total)
{
	size_t n = 0;

	if (total < q->taken || total - q->taken > q->whole)
		return -ERANGE;
	while (n < total - q->taken)
		n += frame_at(q, n);
	if (n != total - q->taken)
		return -ERANGE;
	consume(q, n);
	q->sent -= n;
	q->whole -= n;
	return 0;
}

void outq_rewind(struct outq *q)
{
	q->sent = q->whole = 0;
}
