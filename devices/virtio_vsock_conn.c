/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock connections: the table, their credit, how they end.
 *
 * How it works: a fixed array of slots, made at open and touched only as far as it was ever used; a hash table from
 * (guest port, host port) to a slot; a list of slots that have something to send to the guest, served round robin.
 * A slot that is freed while it stands in that list stays there and is skipped or taken over by its next user.
 *
 * Credit from the guest: the window (alloc) is what its connection may have received and not forwarded. Every window is
 * backed by blocks of the pool, so memory is bounded: all connections have a small one, and the first few that move
 * much data get a large one. Windows never shrink: some guests compute the free space without looking at its sign.
 *
 * Ends: see each function. A key is given up as early as the guest may use it again.
 */
/* syscalls(main, vcpu): close
 * syscalls(main): shutdown sendmsg */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "devices/virtio_vsock.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { BUCKETS = VSOCK_MAX_CONNS, FORWARD_IOVS = 64 };

int vsock_table_init(struct virtio_vsock *vs, struct err *err)
{
	struct vsock_host *h = &vs->host;

	h->conn = calloc(VSOCK_MAX_CONNS, sizeof(*h->conn));
	h->bucket = malloc(BUCKETS * sizeof(*h->bucket));
	if (!h->conn || !h->bucket)
		return err_errno(err, -ENOMEM, "%d connections", VSOCK_MAX_CONNS);
	memset(h->bucket, 0xff, BUCKETS * sizeof(*h->bucket));
	h->free = h->ready_head = h->ready_tail = VSOCK_NONE;
	return vsock_pool_init(&h->pool, VSOCK_POOL_BLOCKS, err);
}

void vsock_table_finish(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;

	if (h->conn)
		vsock_free_all(vs);
	vsock_pool_finish(&h->pool);
	free(h->conn);
	free(h->bucket);
	h->conn = NULL;
	h->bucket = NULL;
}

static uint16_t index_of(const struct virtio_vsock *vs, const struct vsock_conn *c)
{
	return (uint16_t)(c - vs->host.conn);
}

static uint16_t *bucket_of(struct virtio_vsock *vs, uint32_t guest_port, uint32_t host_port)
{
	uint64_t h = ((uint64_t)guest_port << 32 | host_port) * 0x9e3779b97f4a7c15ull;

	return &vs->host.bucket[h >> 52];
}
_Static_assert(BUCKETS == 1 << 12, "bucket_of takes the upper 12 bits");

struct vsock_conn *vsock_conn_find(struct virtio_vsock *vs, uint32_t guest_port, uint32_t host_port)
{
	for (uint16_t i = *bucket_of(vs, guest_port, host_port); i != VSOCK_NONE; i = vs->host.conn[i].hash_next) {
		struct vsock_conn *c = &vs->host.conn[i];

		if (c->guest_port == guest_port && c->host_port == host_port)
			return c;
	}
	return NULL;
}

void vsock_conn_set_key(struct virtio_vsock *vs, struct vsock_conn *c, uint32_t guest_port, uint32_t host_port)
{
	uint16_t *b = bucket_of(vs, guest_port, host_port);

	c->guest_port = guest_port;
	c->host_port = host_port;
	c->hash_next = *b;
	c->keyed = true;
	*b = index_of(vs, c);
}

void vsock_conn_drop_key(struct virtio_vsock *vs, struct vsock_conn *c)
{
	uint16_t *p;

	if (!c->keyed)
		return;
	for (p = bucket_of(vs, c->guest_port, c->host_port); *p != index_of(vs, c); p = &vs->host.conn[*p].hash_next)
		assert(*p != VSOCK_NONE);
	*p = c->hash_next;
	c->keyed = false;
}

bool vsock_pick_port(struct virtio_vsock *vs, uint32_t guest_port, uint32_t *ret_port)
{
	for (uint32_t tries = 0; tries <= VSOCK_MAX_CONNS; tries++) {
		uint32_t port = vs->state.next_port;

		vs->state.next_port = port + 1 < 2u * VSOCK_PORT_FIRST ? port + 1 : VSOCK_PORT_FIRST;
		if (!vsock_conn_find(vs, guest_port, port)) {
			*ret_port = port;
			return true;
		}
	}
	return false;
}

struct vsock_conn *vsock_conn_new(struct virtio_vsock *vs, enum vsock_conn_state state, int fd)
{
	struct vsock_host *h = &vs->host;
	struct vsock_conn *c;

	if (h->nconns == h->max_conns) {
		fd_close(fd);
		return NULL;
	}
	if (h->free != VSOCK_NONE) {
		c = &h->conn[h->free];
		h->free = c->hash_next;
	} else {
		c = &h->conn[h->fresh++];
		c->ready_next = VSOCK_NONE;
	}
	h->nconns++;
	*c = (struct vsock_conn){
		.fd = fd,
		.state = (uint8_t)state,
		.queued = c->queued,
		.ready_next = c->ready_next,
		.generation = c->generation + 1,
		.alloc = VSOCK_WINDOW,
		.told_alloc = VSOCK_WINDOW,
	};
	return c;
}

void vsock_conn_ready(struct virtio_vsock *vs, struct vsock_conn *c)
{
	struct vsock_host *h = &vs->host;
	uint16_t i = index_of(vs, c);

	if (c->queued)
		return;
	c->queued = true;
	c->ready_next = VSOCK_NONE;
	if (h->ready_head == VSOCK_NONE)
		h->ready_head = i;
	else
		h->conn[h->ready_tail].ready_next = i;
	h->ready_tail = i;
}

struct vsock_conn *vsock_next_ready(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;
	struct vsock_conn *c;

	if (h->ready_head == VSOCK_NONE)
		return NULL;
	c = &h->conn[h->ready_head];
	h->ready_head = c->ready_next;
	c->queued = false;
	return c;
}

/* Close the host's side: descriptor, buffer, large window. */
static void release(struct virtio_vsock *vs, struct vsock_conn *c)
{
	struct vsock_host *h = &vs->host;

	if ((c->state == VSOCK_OPEN || c->state == VSOCK_LINGER) && c->buffer.bytes)
		vsock_buffer_consume(&h->pool, &c->buffer, c->buffer.bytes);
	if (c->large)
		h->nlarge--;
	c->large = c->readable = c->blocked = false;
	if (c->fd >= 0) {
		c->fd = fd_close(c->fd); /* leaves the epoll set with it */
		if (h->out_of_fds) {
			h->out_of_fds = false;
			vsock_update_listener(vs);
		}
	}
	c->generation++;
	c->deadline = 0;
}

void vsock_conn_free(struct virtio_vsock *vs, struct vsock_conn *c)
{
	struct vsock_host *h = &vs->host;

	vsock_conn_drop_key(vs, c);
	release(vs, c);
	c->state = VSOCK_FREE;
	c->send = 0;
	c->hash_next = h->free;
	h->free = index_of(vs, c);
	h->nconns--;
}

void vsock_conn_reset(struct virtio_vsock *vs, struct vsock_conn *c)
{
	release(vs, c);
	c->state = VSOCK_RESET;
	c->send = VSOCK_SEND_RST;
	vsock_conn_ready(vs, c);
}

void vsock_conn_host_gone(struct virtio_vsock *vs, struct vsock_conn *c)
{
	bool both = c->host_shut == VIRTIO_VSOCK_SHUTDOWN_BOTH && !(c->send & VSOCK_SEND_SHUTDOWN);

	release(vs, c);
	c->state = VSOCK_CLOSING;
	c->host_shut = VIRTIO_VSOCK_SHUTDOWN_BOTH;
	if (!both)
		c->send |= VSOCK_SEND_SHUTDOWN;
	vsock_conn_ready(vs, c);
	vsock_set_deadline(vs, c, VSOCK_CLOSE_NS);
}

void vsock_free_all(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;

	for (uint32_t i = 0; i < h->fresh; i++)
		if (h->conn[i].state != VSOCK_FREE)
			vsock_conn_free(vs, &h->conn[i]);
	h->nreplies = 0;
	h->tx_stalled = false;
}

uint32_t vsock_credit(const struct vsock_conn *c)
{
	uint32_t in_flight = c->sent - c->peer_fwd;

	/* More in flight than there is room for: the guest took a promise back, or its counter is made up. */
	return in_flight < c->peer_alloc ? c->peer_alloc - in_flight : 0;
}

void vsock_tell_credit(struct virtio_vsock *vs, struct vsock_conn *c)
{
	struct vsock_host *h = &vs->host;
	uint32_t known, now;

	if (!c->large && c->received > VSOCK_LARGE_AFTER && h->nlarge < VSOCK_MAX_LARGE) {
		c->large = true;
		c->alloc = VSOCK_WINDOW_LARGE;
		h->nlarge++;
	}
	known = c->told_alloc - (c->received - c->told_forwarded);
	now = c->alloc - (c->received - c->forwarded);
	/* Below half of the window, so that a guest that has used all it knows of always hears of more. */
	if (now != known && known < c->alloc / 2) {
		c->send |= VSOCK_SEND_CREDIT_UPDATE;
		vsock_conn_ready(vs, c);
	}
}

/* The peer takes nothing any more: what is buffered is lost, and the guest is told once. */
static void peer_stopped_reading(struct virtio_vsock *vs, struct vsock_conn *c)
{
	c->forwarded += c->buffer.bytes;
	vsock_buffer_consume(&vs->host.pool, &c->buffer, c->buffer.bytes);
	vsock_set_blocked(vs, c, false);
	if (c->state == VSOCK_LINGER) {
		vsock_conn_free(vs, c);
		return;
	}
	if (!(c->host_shut & VIRTIO_VSOCK_SHUTDOWN_RCV)) {
		c->host_shut |= VIRTIO_VSOCK_SHUTDOWN_RCV;
		c->send |= VSOCK_SEND_SHUTDOWN;
		vsock_conn_ready(vs, c);
	}
}

static void all_forwarded(struct virtio_vsock *vs, struct vsock_conn *c)
{
	vsock_set_blocked(vs, c, false);
	if (c->state == VSOCK_LINGER) {
		vsock_conn_free(vs, c);
		return;
	}
	if (c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND)
		shutdown(c->fd, SHUT_WR);
}

void vsock_forward(struct virtio_vsock *vs, struct vsock_conn *c)
{
	while (c->buffer.bytes) {
		struct iovec iov[FORWARD_IOVS];
		struct msghdr msg = { .msg_iov = iov };
		ssize_t n;

		msg.msg_iovlen = (size_t)vsock_buffer_iov(&vs->host.pool, &c->buffer, iov, FORWARD_IOVS);
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			vsock_set_blocked(vs, c, true);
			break;
		}
		if (n < 0) {
			peer_stopped_reading(vs, c);
			return;
		}
		vsock_buffer_consume(&vs->host.pool, &c->buffer, (uint32_t)n);
		c->forwarded += (uint32_t)n;
		if (c->state == VSOCK_LINGER)
			vsock_set_deadline(vs, c, VSOCK_LINGER_NS);
	}
	if (c->state == VSOCK_OPEN)
		vsock_tell_credit(vs, c);
	if (c->buffer.bytes == 0)
		all_forwarded(vs, c);
}
