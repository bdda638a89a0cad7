/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock: packets to the guest.
 *
 * How it works: connections with something to send stand in a list and get turns round robin. A turn sends the
 * connection's control packets, then one read's worth of data: up to VSOCK_RX_BATCH guest buffers are taken at once
 * and filled by one readv straight from the socket, each becoming a packet; those not needed are put back. So
 * no bytes are copied in between, and guests with small buffers do not cost a system call each.
 *
 * When the guest gives no buffers everything stays where it is: data in the sockets, control packets as flags, owed resets
 * in a short list that holds up the guest's own packets once it is full. Nothing grows.
 *
 * Credit is kept to the byte. When it runs out the guest is asked once, and again after a while.
 * Threads: main under the device lock.
 */
/* syscalls(main): readv */
#include <errno.h>
#include <sys/uio.h>

#include "devices/virtio_vsock.h"
#include "lib/util.h"

enum turn { TURN_DONE, TURN_AGAIN, TURN_NO_BUFFER };

bool vsock_reply_rst(struct virtio_vsock *vs, const struct virtio_vsock_header *to)
{
	struct vsock_host *h = &vs->host;

	if (h->nreplies == VSOCK_REPLIES)
		return false;
	h->reply[(h->first_reply + h->nreplies++) % VSOCK_REPLIES] = (struct vsock_reply){
		.host_cid = le64_get(to->dst_cid),
		.host_port = le32_get(to->dst_port),
		.guest_port = le32_get(to->src_port),
		.type = le16_get(to->type),
	};
	return true;
}

static void push(struct virtio_vsock *vs, const struct vq_chain *chain, uint32_t written)
{
	vq_push(&vs->vd.vq[VSOCK_Q_RX], chain->head, written);
	vs->host.unsignalled |= 1u << VSOCK_Q_RX;
}

/* A guest buffer with room for a header and `more`: false when there is none. Useless ones are returned empty. */
static bool take_buffer(struct virtio_vsock *vs, struct vq_chain *chain, uint64_t more)
{
	int r;

	while ((r = vq_pop(&vs->vd.vq[VSOCK_Q_RX], chain)) > 0) {
		if (chain->write_len >= sizeof(struct virtio_vsock_header) + more)
			return true;
		push(vs, chain, 0);
	}
	if (r < 0)
		virtio_fail(&vs->vd, "malformed receive buffer");
	return false;
}

static void put_header(struct virtio_vsock *vs, const struct vq_chain *chain, struct vsock_conn *c, uint16_t op,
		       uint32_t flags, uint32_t len)
{
	struct virtio_vsock_header h = {
		.src_cid = le64_make(VSOCK_HOST_CID),
		.dst_cid = le64_make(vs->state.guest_cid),
		.src_port = le32_make(c->host_port),
		.dst_port = le32_make(c->guest_port),
		.len = le32_make(len),
		.type = le16_make(VIRTIO_VSOCK_TYPE_STREAM),
		.op = le16_make(op),
		.flags = le32_make(flags),
		.buf_alloc = le32_make(c->alloc),
		.fwd_cnt = le32_make(c->forwarded),
	};

	c->told_alloc = c->alloc;
	c->told_forwarded = c->forwarded;
	c->send &= (uint8_t)~VSOCK_SEND_CREDIT_UPDATE;
	vq_chain_write(&vs->vd.vq[VSOCK_Q_RX], chain, 0, &h, sizeof(h));
	push(vs, chain, (uint32_t)sizeof(h) + len);
}

static bool send_reply(struct virtio_vsock *vs)
{
	struct vsock_host *host = &vs->host;
	const struct vsock_reply *r = &host->reply[host->first_reply];
	struct vq_chain *chain = &host->chain[0];
	struct virtio_vsock_header h = {
		.src_cid = le64_make(r->host_cid),
		.dst_cid = le64_make(vs->state.guest_cid),
		.src_port = le32_make(r->host_port),
		.dst_port = le32_make(r->guest_port),
		.type = le16_make(r->type),
		.op = le16_make(VIRTIO_VSOCK_OP_RST),
	};

	if (!take_buffer(vs, chain, 0))
		return false;
	vq_chain_write(&vs->vd.vq[VSOCK_Q_RX], chain, 0, &h, sizeof(h));
	push(vs, chain, sizeof(h));
	host->first_reply = (host->first_reply + 1) % VSOCK_REPLIES;
	host->nreplies--;
	return true;
}

/* In the order in which they may go out. */
static const struct {
	uint8_t bit;
	uint16_t op;
} controls[] = {
	{ VSOCK_SEND_RST, VIRTIO_VSOCK_OP_RST },
	{ VSOCK_SEND_REQUEST, VIRTIO_VSOCK_OP_REQUEST },
	{ VSOCK_SEND_RESPONSE, VIRTIO_VSOCK_OP_RESPONSE },
	{ VSOCK_SEND_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_UPDATE },
	{ VSOCK_SEND_CREDIT_REQUEST, VIRTIO_VSOCK_OP_CREDIT_REQUEST },
	{ VSOCK_SEND_SHUTDOWN, VIRTIO_VSOCK_OP_SHUTDOWN },
};

/* All control packets; false when the buffers ran out. The connection is gone when a RST was among them. */
static bool send_controls(struct virtio_vsock *vs, struct vsock_conn *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(controls); i++) {
		uint8_t bit = controls[i].bit;
		struct vq_chain *chain = &vs->host.chain[0];

		if (!(c->send & bit))
			continue;
		if (!take_buffer(vs, chain, 0))
			return false;
		c->send &= (uint8_t)~bit;
		put_header(vs, chain, c, controls[i].op, bit == VSOCK_SEND_SHUTDOWN ? c->host_shut : 0, 0);
		if (bit == VSOCK_SEND_RST) {
			vsock_conn_free(vs, c);
			break;
		}
	}
	return true;
}

/* Take buffers for up to `want` bytes; fills host.chain, host.iov and room[]. Returns how many. */
static int take_batch(struct virtio_vsock *vs, uint32_t want, uint32_t *room, int *ret_niov)
{
	struct virtio_queue *q = &vs->vd.vq[VSOCK_Q_RX];
	struct vsock_host *h = &vs->host;
	int n = 0, niov = 0;

	while (n < VSOCK_RX_BATCH && want) {
		struct vq_chain *chain = &h->chain[n];
		int k, max = (int)ARRAY_SIZE(h->iov) - niov;

		/* A useless buffer may be returned only while none is held, since those held may be put back. */
		if (n == 0) {
			if (!take_buffer(vs, chain, 1))
				break;
		} else if (vq_pop(q, chain) <= 0) {
			break;
		} else if (chain->write_len <= sizeof(struct virtio_vsock_header)) {
			vq_unpop(q);
			break;
		}
		room[n] = (uint32_t)MIN(chain->write_len - sizeof(struct virtio_vsock_header),
					(uint64_t)MIN(want, (uint32_t)VSOCK_PACKET_MAX));
		k = vq_chain_iov(q, chain, true, sizeof(struct virtio_vsock_header), room[n], h->iov + niov, max);
		if (k < 0 && n == 0) {
			push(vs, chain, 0);
			continue;
		}
		if (k < 0) {
			vq_unpop(q);
			break;
		}
		niov += k;
		want -= room[n++];
	}
	*ret_niov = niov;
	return n;
}

/* The peer will send no more. */
static void end_of_stream(struct virtio_vsock *vs, struct vsock_conn *c)
{
	c->readable = false;
	if (c->hung_up) {
		vsock_conn_host_gone(vs, c);
	} else if (!(c->host_shut & VIRTIO_VSOCK_SHUTDOWN_SEND)) {
		c->host_shut |= VIRTIO_VSOCK_SHUTDOWN_SEND;
		c->send |= VSOCK_SEND_SHUTDOWN;
		vsock_conn_ready(vs, c);
	}
}

static void ask_for_credit(struct virtio_vsock *vs, struct vsock_conn *c)
{
	if (c->asked)
		return;
	c->asked = true;
	c->send |= VSOCK_SEND_CREDIT_REQUEST;
	vsock_conn_ready(vs, c);
	vsock_set_deadline(vs, c, VSOCK_ASK_NS << MIN(c->tries, (uint8_t)VSOCK_ASK_DOUBLE));
}

static enum turn send_data(struct virtio_vsock *vs, struct vsock_conn *c)
{
	struct vsock_host *h = &vs->host;
	uint32_t want = MIN(vsock_credit(c), (uint32_t)VSOCK_READ_MAX), room[VSOCK_RX_BATCH];
	int niov, used = 0, n;
	ssize_t got;
	uint32_t left;

	if (want == 0) {
		ask_for_credit(vs, c);
		return TURN_DONE;
	}
	n = take_batch(vs, want, room, &niov);
	if (n == 0)
		return TURN_NO_BUFFER;
	do
		got = readv(c->fd, h->iov, niov);
	while (got < 0 && errno == EINTR);
	left = got > 0 ? (uint32_t)got : 0;
	for (; left && used < n; used++) {
		uint32_t len = MIN(left, room[used]);

		put_header(vs, &h->chain[used], c, VIRTIO_VSOCK_OP_RW, 0, len);
		left -= len;
	}
	for (int i = used; i < n; i++)
		vq_unpop(&vs->vd.vq[VSOCK_Q_RX]);
	if (got > 0) {
		c->sent += (uint32_t)got;
		return TURN_AGAIN;
	}
	if (got == 0)
		end_of_stream(vs, c);
	else if (errno == EAGAIN)
		c->readable = false;
	else
		vsock_conn_reset(vs, c);
	return TURN_DONE;
}

static enum turn take_turn(struct virtio_vsock *vs, struct vsock_conn *c)
{
	if (c->state == VSOCK_FREE)
		return TURN_DONE;
	if (!send_controls(vs, c))
		return TURN_NO_BUFFER;
	if (c->state != VSOCK_OPEN || !c->readable || c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV)
		return TURN_DONE;
	return send_data(vs, c);
}

/* Put it back where it was: first. */
static void back_to_front(struct virtio_vsock *vs, struct vsock_conn *c)
{
	struct vsock_host *h = &vs->host;

	if (c->queued)
		return;
	if (h->ready_head == VSOCK_NONE) {
		vsock_conn_ready(vs, c);
		return;
	}
	c->queued = true;
	c->ready_next = h->ready_head;
	h->ready_head = (uint16_t)(c - h->conn);
}

void vsock_run_rx(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;
	struct virtio_queue *q = &vs->vd.vq[VSOCK_Q_RX];
	uint32_t burst = VSOCK_RX_BURST;

	vq_disable_notify(q);
	while (h->nreplies || h->ready_head != VSOCK_NONE) {
		struct vsock_conn *c;
		enum turn t;

		if (!vq_has_work(q)) {
			if (vq_enable_notify(q))
				continue;
			return;
		}
		if (burst-- == 0) {
			virtio_kick(&vs->vd, VSOCK_Q_RX);
			return;
		}
		if (h->nreplies) {
			if (!send_reply(vs))
				return;
			burst++;
			continue;
		}
		c = vsock_next_ready(vs);
		t = take_turn(vs, c);
		if (t == TURN_AGAIN) {
			vsock_conn_ready(vs, c);
			/* Now, so that the guest works on this while the next is read. */
			virtio_signal_queue(&vs->vd, VSOCK_Q_RX);
		} else if (t == TURN_NO_BUFFER) {
			back_to_front(vs, c);
		}
	}
}
