/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock: packets from the guest, and the two ways a connection begins.
 *
 * Guest contract: virtio 1.2, 5.10.6. A packet with a header or payload cut short, or from a CID that is not the
 * guest's, is dropped. A packet to another CID than the host's, of a type that is not a stream, or for a connection that
 * does not exist gets a RST (a RST gets nothing). So does data beyond the credit, and that connection ends.
 *
 * How it works: payload goes from guest memory into the socket by one sendmsg; only what the socket does not take is
 * copied to the connection's buffer. Each packet is returned to the guest at once, so that nobody's slow peer
 * occupies the queue. A reset owed for a packet needs room in a short list; without room the queue waits.
 *
 * Trust: the header is copied once, then checked. Threads: main under the device lock.
 */
/* syscalls(main): sendmsg recvfrom shutdown */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "devices/virtio_vsock.h"
#include "lib/util.h"

/* A connection the guest asked for reached its listener. */
static void dialed(struct virtio_vsock *vs, struct vsock_conn *c, int fd)
{
	c->fd = fd;
	c->state = VSOCK_OPEN;
	memset(&c->buffer, 0, sizeof(c->buffer));
	vsock_set_deadline(vs, c, 0);
	if (vsock_watch(vs, c) < 0) {
		vsock_conn_reset(vs, c);
		return;
	}
	c->send |= VSOCK_SEND_RESPONSE;
	vsock_conn_ready(vs, c);
}

void vsock_redial(struct virtio_vsock *vs, struct vsock_conn *c)
{
	int fd = vsock_unix_connect(vs->host.name, c->host_port);

	if (fd >= 0)
		dialed(vs, c, fd);
	else if (fd == -EAGAIN && c->tries++ < VSOCK_DIAL_RETRIES)
		vsock_set_deadline(vs, c, VSOCK_DIAL_NS);
	else
		vsock_conn_reset(vs, c);
}

static void on_request(struct virtio_vsock *vs, const struct virtio_vsock_header *h)
{
	struct vsock_conn *c;
	int fd;

	if (!vs->host.name[0]) {
		vsock_reply_rst(vs, h);
		return;
	}
	/* First the slot: a listener must not see a connection that is dropped again at once. */
	c = vsock_conn_new(vs, VSOCK_DIALING, -1);
	if (!c) {
		vsock_log(vs, "too many connections", le32_get(h->src_port), le32_get(h->dst_port));
		vsock_reply_rst(vs, h);
		return;
	}
	fd = vsock_unix_connect(vs->host.name, le32_get(h->dst_port));
	if (fd < 0 && fd != -EAGAIN) {
		if (fd != -ENOENT && fd != -ECONNREFUSED)
			vsock_log(vs, strerror(-fd), le32_get(h->src_port), le32_get(h->dst_port));
		vsock_conn_free(vs, c);
		vsock_reply_rst(vs, h);
		return;
	}
	vsock_conn_set_key(vs, c, le32_get(h->src_port), le32_get(h->dst_port));
	c->peer_alloc = le32_get(h->buf_alloc);
	c->peer_fwd = le32_get(h->fwd_cnt);
	if (fd >= 0)
		dialed(vs, c, fd);
	else
		vsock_set_deadline(vs, c, VSOCK_DIAL_NS);
}

/* The guest accepted a connection that a client of ours asked for. */
static void on_response(struct virtio_vsock *vs, struct vsock_conn *c)
{
	if (c->state == VSOCK_CLOSING)
		return;
	if (c->state != VSOCK_REQUESTED || c->send & VSOCK_SEND_REQUEST) {
		vsock_conn_reset(vs, c);
		return;
	}
	c->state = VSOCK_OPEN;
	memset(&c->buffer, 0, sizeof(c->buffer));
	vsock_set_deadline(vs, c, 0);
	if (vsock_unix_welcome(c->fd, c->host_port) < 0) {
		vsock_conn_reset(vs, c);
		return;
	}
	/* Data may have come behind the CONNECT line. */
	c->readable = true;
	vsock_conn_ready(vs, c);
}

static void on_shutdown(struct virtio_vsock *vs, struct vsock_conn *c, const struct virtio_vsock_header *h)
{
	uint32_t flags = le32_get(h->flags) & VIRTIO_VSOCK_SHUTDOWN_BOTH;

	if (c->state != VSOCK_OPEN && c->state != VSOCK_CLOSING) {
		vsock_conn_reset(vs, c);
		return;
	}
	c->guest_shut |= (uint8_t)flags;
	if (c->guest_shut == VIRTIO_VSOCK_SHUTDOWN_BOTH) {
		/* The end, as the guest sees it: it gets its RST and may use the ports again. The peer still gets
		 * what was sent before. */
		vsock_reply_rst(vs, h);
		vsock_conn_drop_key(vs, c);
		c->send = 0;
		if (c->state != VSOCK_OPEN || c->buffer.bytes == 0) {
			vsock_conn_free(vs, c);
			return;
		}
		c->state = VSOCK_LINGER;
		vsock_set_deadline(vs, c, VSOCK_LINGER_NS);
		return;
	}
	if (c->state != VSOCK_OPEN)
		return;
	if (flags & VIRTIO_VSOCK_SHUTDOWN_RCV) {
		shutdown(c->fd, SHUT_RD);
		c->readable = false;
	}
	if (flags & VIRTIO_VSOCK_SHUTDOWN_SEND && c->buffer.bytes == 0)
		shutdown(c->fd, SHUT_WR);
}

/* Straight from guest memory to the socket: bytes taken, or -errno. */
static ssize_t send_payload(struct virtio_vsock *vs, struct vsock_conn *c, const struct vq_chain *chain, uint32_t len)
{
	struct virtio_queue *q = &vs->vd.vq[VSOCK_Q_TX];
	struct msghdr msg = { .msg_iov = vs->host.iov };
	int n = vq_chain_iov(q, chain, false, sizeof(struct virtio_vsock_header), len, vs->host.iov, ARRAY_SIZE(vs->host.iov));
	ssize_t r;

	if (n < 0)
		return n;
	msg.msg_iovlen = (size_t)n;
	do
		r = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static void on_data(struct virtio_vsock *vs, struct vsock_conn *c, const struct vq_chain *chain, uint32_t len)
{
	struct virtio_queue *q = &vs->vd.vq[VSOCK_Q_TX];
	uint32_t taken = 0;

	if (c->state == VSOCK_CLOSING)
		return;
	if (c->state != VSOCK_OPEN || c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_SEND ||
	    len > c->alloc - (c->received - c->forwarded)) {
		vsock_log(vs, "data out of turn or beyond the credit", c->guest_port, c->host_port);
		vsock_conn_reset(vs, c);
		return;
	}
	c->received += len;
	if (c->host_shut & VIRTIO_VSOCK_SHUTDOWN_RCV) {
		c->forwarded += len;
		vsock_tell_credit(vs, c);
		return;
	}
	if (c->buffer.bytes == 0 && len) {
		ssize_t n = send_payload(vs, c, chain, len);

		if (n >= 0)
			taken = (uint32_t)n;
		c->forwarded += taken;
	}
	if (taken < len) {
		/* Also after an error: vsock_forward meets it again and deals with it. */
		if (vsock_buffer_append(&vs->host.pool, &c->buffer, q, chain, sizeof(struct virtio_vsock_header) + taken,
					len - taken) < 0) {
			vsock_conn_reset(vs, c);
			return;
		}
		if (!c->blocked) {
			vsock_forward(vs, c);
			return;
		}
	}
	vsock_tell_credit(vs, c);
}

static void on_credit(struct virtio_vsock *vs, struct vsock_conn *c, const struct virtio_vsock_header *h)
{
	uint32_t before = vsock_credit(c);

	c->peer_alloc = le32_get(h->buf_alloc);
	c->peer_fwd = le32_get(h->fwd_cnt);
	if (c->state != VSOCK_OPEN || vsock_credit(c) <= before)
		return;
	if (c->asked) {
		c->asked = false;
		c->tries = 0;
		vsock_set_deadline(vs, c, 0);
	}
	if (c->readable)
		vsock_conn_ready(vs, c);
}

static void on_packet(struct virtio_vsock *vs, const struct vq_chain *chain)
{
	struct virtio_vsock_header h;
	struct vsock_conn *c;
	uint32_t guest_port, host_port;
	uint16_t op;

	if (vq_chain_read(&vs->vd.vq[VSOCK_Q_TX], chain, 0, &h, sizeof(h)) != sizeof(h) ||
	    le32_get(h.len) > chain->read_len - sizeof(h)) {
		vsock_log(vs, "packet cut short", 0, 0);
		return;
	}
	guest_port = le32_get(h.src_port);
	host_port = le32_get(h.dst_port);
	op = le16_get(h.op);
	if (le64_get(h.src_cid) != vs->state.guest_cid) {
		vsock_log(vs, "packet from a CID that is not the guest's", guest_port, host_port);
		return;
	}
	if (le64_get(h.dst_cid) != VSOCK_HOST_CID || le16_get(h.type) != VIRTIO_VSOCK_TYPE_STREAM) {
		if (op != VIRTIO_VSOCK_OP_RST)
			vsock_reply_rst(vs, &h);
		return;
	}
	c = vsock_conn_find(vs, guest_port, host_port);
	if (c && op == VIRTIO_VSOCK_OP_REQUEST) {
		/* The guest starts afresh. If it knew the old connection as open, both are in doubt. */
		bool over = c->state == VSOCK_CLOSING || c->state == VSOCK_RESET;

		vsock_conn_free(vs, c);
		if (over)
			on_request(vs, &h);
		else
			vsock_reply_rst(vs, &h);
		return;
	}
	if (!c) {
		if (op == VIRTIO_VSOCK_OP_REQUEST)
			on_request(vs, &h);
		else if (op != VIRTIO_VSOCK_OP_RST)
			vsock_reply_rst(vs, &h);
		return;
	}
	if (op == VIRTIO_VSOCK_OP_RST) {
		vsock_conn_free(vs, c);
		return;
	}
	if (c->state == VSOCK_RESET) /* its RST is on the way */
		return;
	on_credit(vs, c, &h);
	switch (op) {
	case VIRTIO_VSOCK_OP_RESPONSE:
		on_response(vs, c);
		break;
	case VIRTIO_VSOCK_OP_SHUTDOWN:
		on_shutdown(vs, c, &h);
		break;
	case VIRTIO_VSOCK_OP_RW:
		on_data(vs, c, chain, le32_get(h.len));
		break;
	case VIRTIO_VSOCK_OP_CREDIT_UPDATE:
		break;
	case VIRTIO_VSOCK_OP_CREDIT_REQUEST:
		if (c->state == VSOCK_OPEN) {
			c->send |= VSOCK_SEND_CREDIT_UPDATE;
			vsock_conn_ready(vs, c);
		}
		break;
	default:
		vsock_conn_reset(vs, c);
		break;
	}
}

void vsock_run_tx(struct virtio_vsock *vs)
{
	struct virtio_device *vd = &vs->vd;
	struct virtio_queue *q = &vd->vq[VSOCK_Q_TX];
	struct vq_chain *chain = &vs->host.chain[0];
	uint32_t burst = VSOCK_TX_BURST;
	int r;

	vs->host.tx_stalled = false;
	do {
		vq_disable_notify(q);
		for (;;) {
			if (vs->host.nreplies == VSOCK_REPLIES) {
				vs->host.tx_stalled = true;
				return;
			}
			if (burst-- == 0) {
				virtio_kick(vd, VSOCK_Q_TX);
				return;
			}
			r = vq_pop(q, chain);
			if (r <= 0)
				break;
			on_packet(vs, chain);
			vq_push(q, chain->head, 0);
			vs->host.unsignalled |= 1u << VSOCK_Q_TX;
		}
	} while (r == 0 && vq_enable_notify(q));
	if (r < 0)
		virtio_fail(vd, "malformed packet");
}

void vsock_on_line(struct virtio_vsock *vs, struct vsock_conn *c)
{
	uint32_t guest_port, host_port;
	ssize_t n, end;
	char *newline;

	do {
		/* Look first: what follows the line belongs to the connection and stays in the socket. */
		n = recv(c->fd, c->line.text + c->line.n, sizeof(c->line.text) - c->line.n, MSG_PEEK | MSG_DONTWAIT);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0)
			goto refuse;
		newline = memchr(c->line.text + c->line.n, '\n', (size_t)n);
		end = newline ? newline + 1 - (c->line.text + c->line.n) : n;
		if (recv(c->fd, c->line.text + c->line.n, (size_t)end, MSG_DONTWAIT) != end)
			goto refuse;
		c->line.n += (uint32_t)end;
		if (!newline && c->line.n == sizeof(c->line.text))
			goto refuse;
	} while (!newline);
	if (vsock_unix_parse(c->line.text, c->line.n, &guest_port) < 0 || !vsock_pick_port(vs, guest_port, &host_port))
		goto refuse;
	vsock_conn_set_key(vs, c, guest_port, host_port);
	c->state = VSOCK_REQUESTED;
	c->send = VSOCK_SEND_REQUEST;
	vsock_conn_ready(vs, c);
	vsock_set_deadline(vs, c, VSOCK_CONNECT_NS);
	return;
refuse:
	vsock_conn_free(vs, c);
}
