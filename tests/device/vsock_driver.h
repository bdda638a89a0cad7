/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's vsock driver on top of the fake one, and clients on the host, for the virtio-vsock tests. Each test runs
 * in a directory of its own, as the monitor does in the VM's.
 */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/virtio_vsock.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { VT_CID = 3, VT_RX_BUFFER = 4096, VT_HEADER = 44, VT_PAGE = 4096 };

struct vsock_test {
	struct machine m;
	struct driver d;
	struct device *dev;
	char dir[40];
	uint64_t rx_base;   /* VSOCK_QUEUE_SIZE buffers of VT_RX_BUFFER */
	uint64_t tx_base;   /* one packet */
	uint32_t posted;    /* rx buffers given */
};

struct vsock_packet {
	struct virtio_vsock_header h;
	uint64_t payload; /* guest address */
	uint32_t len, used;
	uint16_t head;
};

static inline struct virtio_vsock *vt_vsock(struct vsock_test *t)
{
	return (struct virtio_vsock *)t->dev;
}

/* --- the guest --------------------------------------------------------- */

static inline void vt_post_one(struct vsock_test *t, uint16_t slot, uint32_t len)
{
	driver_desc(&t->d, t->d.q[VSOCK_Q_RX].desc, slot, t->rx_base + (uint64_t)slot * VT_RX_BUFFER, len, DRIVER_DESC_WRITE, 0);
	driver_publish(&t->d, VSOCK_Q_RX, slot);
}

/* Give rx buffers 0 .. n-1 and ring the bell. */
static inline void vt_post(struct vsock_test *t, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		vt_post_one(t, i, VT_RX_BUFFER);
	driver_kick(&t->d, VSOCK_Q_RX);
}

static inline void vt_post_event_buffers(struct vsock_test *t, uint16_t n)
{
	uint64_t at = driver_alloc(&t->d, 4u * n, 4);

	for (uint16_t i = 0; i < n; i++) {
		struct driver_buf b = { at + 4u * i, 4, true };

		driver_add(&t->d, VSOCK_Q_EVENT, &b, 1);
	}
	driver_kick(&t->d, VSOCK_Q_EVENT);
}

static inline void vt_start_driver(struct vsock_test *t, uint64_t features, uint16_t rx_buffers)
{
	driver_start(&t->d, features, 0);
	t->rx_base = driver_alloc(&t->d, (uint64_t)VSOCK_QUEUE_SIZE * VT_RX_BUFFER, VT_PAGE);
	t->tx_base = driver_alloc(&t->d, MIB(2), VT_PAGE);
	if (rx_buffers)
		vt_post(t, rx_buffers);
	vt_post_event_buffers(t, 8);
}

static inline void vt_setup(struct vsock_test *t, const char *options, uint16_t rx_buffers)
{
	memset(t, 0, sizeof(*t));
	snprintf(t->dir, sizeof(t->dir), "/tmp/vsock_test_XXXXXX");
	assert_non_null(mkdtemp(t->dir));
	assert_int_equal(chdir(t->dir), 0);
	machine_init(&t->m, MIB(64));
	t->dev = machine_add(&t->m, "vsock", options ? options : "path=vsock.sock");
	driver_init(&t->d, &t->m, t->dev);
	vt_start_driver(t, VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC, rx_buffers);
}

static inline void vt_teardown(struct vsock_test *t)
{
	char cmd[64];

	assert_false(driver_needs_reset(&t->d));
	machine_finish(&t->m);
	assert_int_equal(access("vsock.sock", F_OK), -1); /* unlinked */
	assert_int_equal(chdir("/"), 0);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", t->dir);
	assert_int_equal(system(cmd), 0);
}

static inline struct virtio_vsock_header vt_header(uint16_t op, uint32_t guest_port, uint32_t host_port, uint32_t len)
{
	return (struct virtio_vsock_header){
		.src_cid = le64_make(VT_CID),
		.dst_cid = le64_make(VSOCK_HOST_CID),
		.src_port = le32_make(guest_port),
		.dst_port = le32_make(host_port),
		.len = le32_make(len),
		.type = le16_make(VIRTIO_VSOCK_TYPE_STREAM),
		.op = le16_make(op),
		.buf_alloc = le32_make(262144),
	};
}

/* Put one packet into the tx queue; the payload, if any, is at tx_base + VT_PAGE already. */
static inline void vt_queue(struct vsock_test *t, const struct virtio_vsock_header *h, uint32_t len)
{
	uint64_t at = t->tx_base;
	struct driver_buf b[] = { { at, VT_HEADER, false }, { at + VT_PAGE, len, false } };

	machine_poke(&t->m, at, h, VT_HEADER);
	driver_add(&t->d, VSOCK_Q_TX, b, len ? 2 : 1);
}

static inline void vt_send_header(struct vsock_test *t, const struct virtio_vsock_header *h, uint32_t len)
{
	vt_queue(t, h, len);
	driver_kick(&t->d, VSOCK_Q_TX);
	while (driver_used(&t->d, VSOCK_Q_TX, NULL, NULL))
		;
}

/* A control packet. */
static inline void vt_send(struct vsock_test *t, uint16_t op, uint32_t guest_port, uint32_t host_port)
{
	struct virtio_vsock_header h = vt_header(op, guest_port, host_port, 0);

	vt_send_header(t, &h, 0);
}

static inline void vt_send_shutdown(struct vsock_test *t, uint32_t flags, uint32_t guest_port, uint32_t host_port)
{
	struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_SHUTDOWN, guest_port, host_port, 0);

	h.flags = le32_make(flags);
	vt_send_header(t, &h, 0);
}

/* Data, with what the guest says of its own buffer. */
static inline void vt_send_data(struct vsock_test *t, uint32_t guest_port, uint32_t host_port, const void *data, uint32_t len,
				uint32_t buf_alloc, uint32_t fwd_cnt)
{
	struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_RW, guest_port, host_port, len);

	h.buf_alloc = le32_make(buf_alloc);
	h.fwd_cnt = le32_make(fwd_cnt);
	machine_poke(&t->m, t->tx_base + VT_PAGE, data, len);
	vt_send_header(t, &h, len);
}

static inline void vt_send_credit(struct vsock_test *t, uint32_t guest_port, uint32_t host_port, uint32_t buf_alloc,
				  uint32_t fwd_cnt)
{
	struct virtio_vsock_header h = vt_header(VIRTIO_VSOCK_OP_CREDIT_UPDATE, guest_port, host_port, 0);

	h.buf_alloc = le32_make(buf_alloc);
	h.fwd_cnt = le32_make(fwd_cnt);
	vt_send_header(t, &h, 0);
}

/* The next packet from the device; the buffer stays the guest's until vt_give_back. */
static inline bool vt_next(struct vsock_test *t, struct vsock_packet *p)
{
	uint32_t head, used;
	uint64_t at;

	machine_settle(&t->m);
	if (!driver_used(&t->d, VSOCK_Q_RX, &head, &used))
		return false;
	at = t->rx_base + (uint64_t)head * VT_RX_BUFFER;
	machine_peek(&t->m, at, &p->h, VT_HEADER);
	p->payload = at + VT_HEADER;
	p->len = le32_get(p->h.len);
	p->head = (uint16_t)head;
	p->used = used;
	if (used) { /* a buffer too small for anything comes back with 0 */
		assert_int_equal(used, VT_HEADER + p->len);
		assert_int_equal(le64_get(p->h.dst_cid), VT_CID);
	}
	return true;
}

static inline void vt_give_back(struct vsock_test *t, const struct vsock_packet *p)
{
	vt_post_one(t, p->head, VT_RX_BUFFER);
	driver_kick(&t->d, VSOCK_Q_RX);
}

/* The next packet, which must be of this kind. */
static inline struct vsock_packet vt_expect(struct vsock_test *t, uint16_t op, uint32_t guest_port, uint32_t host_port)
{
	struct vsock_packet p;

	if (!vt_next(t, &p))
		fail_msg("no packet; expected op %u for guest port %u", op, guest_port);
	if (le16_get(p.h.op) != op)
		fail_msg("op %u for guest port %u; expected op %u", le16_get(p.h.op), le32_get(p.h.dst_port), op);
	assert_int_equal(le32_get(p.h.dst_port), guest_port);
	assert_int_equal(le32_get(p.h.src_port), host_port);
	vt_give_back(t, &p);
	return p;
}

static inline void vt_expect_nothing(struct vsock_test *t)
{
	struct vsock_packet p;

	if (vt_next(t, &p))
		fail_msg("unexpected packet: op %u, guest port %u", le16_get(p.h.op), le32_get(p.h.dst_port));
}

static inline void vt_expect_shutdown(struct vsock_test *t, uint32_t flags, uint32_t guest_port, uint32_t host_port)
{
	struct vsock_packet p = vt_expect(t, VIRTIO_VSOCK_OP_SHUTDOWN, guest_port, host_port);

	assert_int_equal(le32_get(p.h.flags), flags);
}

/* Let every deadline pass. */
static inline void vt_elapse(struct vsock_test *t)
{
	struct vsock_host *h = &vt_vsock(t)->host;
	struct itimerspec now = { .it_value = { 0, 1 } };

	for (uint32_t i = 0; i < h->fresh; i++)
		if (h->conn[i].deadline)
			h->conn[i].deadline = 1;
	h->gate_until = 1;
	h->next_timer = 1;
	assert_int_equal(timerfd_settime(h->timer_fd, TFD_TIMER_ABSTIME, &now, NULL), 0);
	while (h->next_timer == 1)
		loop_step(&t->m.vm.loop, 1000);
	machine_settle(&t->m);
}

/* --- the host ---------------------------------------------------------- */

static inline struct sockaddr_un vt_address(const char *name)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", name);
	return sa;
}

static inline int vt_listen(uint32_t port, int backlog)
{
	char name[40];
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(name, sizeof(name), "vsock.sock_%u", port);
	struct sockaddr_un sa = vt_address(name);

	assert_int_equal(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(s, backlog), 0);
	return s;
}

/* A client that has sent `line` ("" for nothing). Non-blocking. */
static inline int vt_client(struct vsock_test *t, const char *line)
{
	struct sockaddr_un sa = vt_address("vsock.sock");
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(s >= 0);
	assert_int_equal(connect(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(send(s, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
	machine_settle(&t->m);
	return s;
}

/* What can be read now; -1 with errno, as recv. */
static inline ssize_t vt_recv(struct vsock_test *t, int s, void *buf, size_t len)
{
	machine_settle(&t->m);
	return recv(s, buf, len, MSG_DONTWAIT);
}

static inline void vt_expect_bytes(struct vsock_test *t, int s, const void *want, size_t len)
{
	char *got = malloc(len + 1);
	size_t n = 0;

	while (n < len) {
		ssize_t r = vt_recv(t, s, got + n, len - n);

		if (r <= 0)
			fail_msg("%zu of %zu bytes: %s", n, len, r ? strerror(errno) : "end of file");
		n += (size_t)r;
	}
	assert_memory_equal(got, want, len);
	free(got);
}

static inline void vt_expect_eof(struct vsock_test *t, int s)
{
	char c;

	assert_int_equal(vt_recv(t, s, &c, 1), 0);
}

static inline void vt_expect_open(struct vsock_test *t, int s)
{
	char c;

	assert_int_equal(vt_recv(t, s, &c, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

/* A whole connection made by a client to guest port `port`; the host port in *ret_host_port. */
static inline int vt_connect_to_guest(struct vsock_test *t, uint32_t port, uint32_t *ret_host_port)
{
	char line[32];
	struct vsock_packet p;
	int s, n;

	snprintf(line, sizeof(line), "CONNECT %u\n", port);
	s = vt_client(t, line);
	assert_true(vt_next(t, &p));
	assert_int_equal(le16_get(p.h.op), VIRTIO_VSOCK_OP_REQUEST);
	*ret_host_port = le32_get(p.h.src_port);
	vt_give_back(t, &p);
	vt_send(t, VIRTIO_VSOCK_OP_RESPONSE, port, *ret_host_port);
	n = snprintf(line, sizeof(line), "OK %u\n", *ret_host_port);
	vt_expect_bytes(t, s, line, (size_t)n);
	return s;
}

/* A whole connection made by the guest from `guest_port` to a listener for `port`; returns the accepted socket. */
static inline int vt_connect_to_host(struct vsock_test *t, int listener, uint32_t guest_port, uint32_t port)
{
	int s;

	vt_send(t, VIRTIO_VSOCK_OP_REQUEST, guest_port, port);
	vt_expect(t, VIRTIO_VSOCK_OP_RESPONSE, guest_port, port);
	s = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(s >= 0);
	return s;
}

/* Bytes of a stream: the same for the same seed and position. */
static inline void vt_pattern(uint8_t *buf, size_t len, uint64_t seed, uint64_t pos)
{
	for (size_t i = 0; i < len; i++, pos++) {
		struct rnd r = { seed ^ pos >> 3 };

		buf[i] = (uint8_t)(rnd_next(&r) >> pos % 8 * 8);
	}
}
