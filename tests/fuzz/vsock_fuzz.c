/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock with any packets from the guest, and peers that read, write, close or do nothing.
 *
 * Input: feature bits, then operations: a packet of any kind for one of a few connections, receive buffers of any size, a
 * peer's action, time passing, a pause, a reset, a save and load with a transport reset. Connections begin on socket pairs
 * put into the table as if accepted or dialed, so no file system is involved. What must hold: counters and credit of
 * every connection fit together, the pool holds just what is buffered, the guest never gets more than it allowed.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "devices/virtio_vsock.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness/driver.h"

enum { RAM = 1 << 20, DATA = 512 << 10, MAX_OPS = 150, PEERS = 6, MAX_CONNS = 16, PORT = 100 };
enum { OP_PACKET, OP_PACKET_AGAIN, OP_DATA, OP_BUFFERS, OP_PEER, OP_OPEN, OP_CLIENT, OP_TIME, OP_PAUSE, OP_RESET, OP_EVENTS, NOPS };

struct state {
	struct machine m;
	struct driver d;
	struct virtio_vsock *vs;
	int peer[PEERS];
};

static void start(struct state *s, struct fuzz_input *in)
{
	s->d.heap = KIB(64);
	driver_start(&s->d, fuzz_u32(in) & driver_offered(&s->d), 64);
}

static void check(struct state *s)
{
	struct vsock_host *h = &s->vs->host;
	uint32_t n = 0, large = 0;
	uint64_t blocks = 0;

	for (uint32_t i = 0; i < h->fresh; i++) {
		const struct vsock_conn *c = &h->conn[i];
		bool data = c->state == VSOCK_OPEN || c->state == VSOCK_LINGER;

		if (c->state == VSOCK_FREE) {
			FUZZ_REQUIRE(c->fd < 0 && !c->keyed);
			continue;
		}
		n++;
		large += c->large;
		FUZZ_REQUIRE((c->fd >= 0) == (data || c->state == VSOCK_HANDSHAKE || c->state == VSOCK_REQUESTED));
		if (c->keyed)
			FUZZ_REQUIRE(vsock_conn_find(s->vs, c->guest_port, c->host_port) == c);
		if (!data)
			continue;
		FUZZ_REQUIRE(c->received - c->forwarded == c->buffer.bytes);
		FUZZ_REQUIRE(c->buffer.bytes <= c->alloc);
		if (c->buffer.bytes)
			blocks += (c->buffer.head_off + c->buffer.bytes + VSOCK_BLOCK - 1) / VSOCK_BLOCK;
	}
	FUZZ_REQUIRE(n == h->nconns && n <= h->max_conns);
	FUZZ_REQUIRE(large == h->nlarge);
	FUZZ_REQUIRE(blocks <= h->pool.used && h->pool.used <= blocks + n);
	FUZZ_REQUIRE(h->nreplies <= VSOCK_REPLIES);
}

/* A connection in the table, as after a REQUEST that found its listener, or as a client just accepted. */
static void open_conn(struct state *s, struct fuzz_input *in, bool client)
{
	uint8_t k = fuzz_u8(in) % PEERS;
	int pair[2];
	struct vsock_conn *c;

	if (!s->vs->vd.active || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	s->peer[k] = fd_close(s->peer[k]);
	s->peer[k] = pair[0];
	if (!client && vsock_conn_find(s->vs, PORT + k, PORT)) {
		close(pair[1]);
		return;
	}
	device_lock(&s->vs->vd.dev);
	c = vsock_conn_new(s->vs, client ? VSOCK_HANDSHAKE : VSOCK_OPEN, pair[1]);
	if (c && vsock_watch(s->vs, c) < 0) {
		vsock_conn_free(s->vs, c);
	} else if (c && !client) {
		vsock_conn_set_key(s->vs, c, PORT + k, PORT);
		c->peer_alloc = fuzz_u16(in);
	} else if (c) {
		char line[40];
		int n = snprintf(line, sizeof(line), "CONNECT %u\n", PORT + k);

		if (fuzz_u8(in) & 0x80)
			line[fuzz_u8(in) % n] = (char)fuzz_u8(in);
		vsock_set_deadline(s->vs, c, VSOCK_HANDSHAKE_NS);
		FUZZ_REQUIRE(send(s->peer[k], line, (size_t)n, MSG_NOSIGNAL) == n);
	}
	device_unlock(&s->vs->vd.dev);
	machine_settle(&s->m);
}

static void packet(struct state *s, struct fuzz_input *in, bool data)
{
	uint8_t kind = fuzz_u8(in), k = fuzz_u8(in);
	uint32_t payload = data ? fuzz_u16(in) : fuzz_u8(in) & 7;
	struct virtio_vsock_header h = {
		.src_cid = le64_make(k & 0x40 ? 3 : (k & 0x38) == 0x38 ? fuzz_u64(in) : 3),
		.dst_cid = le64_make((k & 0x38) == 0x30 ? fuzz_u64(in) : 2),
		.src_port = le32_make(PORT + (k & 7)),
		.dst_port = le32_make(k & 0x80 ? VSOCK_PORT_FIRST + fuzz_u8(in) % 8 : PORT),
		.len = le32_make(kind == 0xff ? fuzz_u32(in) : payload),
		.type = le16_make(kind == 0xfe ? fuzz_u16(in) : VIRTIO_VSOCK_TYPE_STREAM),
		.op = le16_make(data ? VIRTIO_VSOCK_OP_RW : kind & 7),
		.flags = le32_make(kind >> 3),
		.buf_alloc = le32_make(kind & 0x40 ? fuzz_u32(in) : 65536),
		.fwd_cnt = le32_make(kind & 0x80 ? fuzz_u32(in) : 0),
	};
	/* Either end may fall anywhere; the header may be cut in two. */
	uint32_t cut = kind & 0x20 ? fuzz_u8(in) % 60 : 44;
	struct driver_buf b[] = { { DATA, MIN(cut, 44u), false }, { DATA + MIN(cut, 44u), 44 - MIN(cut, 44u) + payload, false } };

	machine_poke(&s->m, DATA, &h, sizeof(h));
	driver_add(&s->d, VSOCK_Q_TX, b, 2);
	driver_kick(&s->d, VSOCK_Q_TX);
	while (driver_used(&s->d, VSOCK_Q_TX, NULL, NULL))
		;
}

static void buffers(struct state *s, struct fuzz_input *in)
{
	uint8_t n = fuzz_u8(in) % 32;
	uint32_t len = fuzz_u8(in) & 1 ? fuzz_u8(in) : 4096;

	for (uint8_t i = 0; i < n; i++) {
		struct driver_buf b = { DATA + KIB(128) + (uint64_t)i * 4096, len, true };

		driver_add(&s->d, VSOCK_Q_RX, &b, 1);
	}
	driver_kick(&s->d, VSOCK_Q_RX);
}

static void peer_acts(struct state *s, struct fuzz_input *in)
{
	static char data[65536];
	uint8_t k = fuzz_u8(in) % PEERS, what = fuzz_u8(in);
	int fd = s->peer[k];

	if (fd < 0)
		return;
	switch (what % 5) {
	case 0:
		if (recv(fd, data, fuzz_u16(in), MSG_DONTWAIT) < 0)
			FUZZ_REQUIRE(errno == EAGAIN || errno == ECONNRESET);
		break;
	case 1:
		if (send(fd, data, fuzz_u16(in), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
			FUZZ_REQUIRE(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
		break;
	case 2:
		shutdown(fd, what & 0x80 ? SHUT_WR : SHUT_RD);
		break;
	case 3:
		s->peer[k] = fd_close(fd);
		break;
	default:
		while (recv(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
			machine_settle(&s->m);
		break;
	}
	machine_settle(&s->m);
}

static void time_passes(struct state *s)
{
	struct vsock_host *h = &s->vs->host;
	struct itimerspec now = { .it_value = { 0, 1 } };

	for (uint32_t i = 0; i < h->fresh; i++)
		if (h->conn[i].deadline)
			h->conn[i].deadline = 1;
	h->gate_until = h->next_timer = 1;
	timerfd_settime(h->timer_fd, TFD_TIMER_ABSTIME, &now, NULL);
	while (h->next_timer == 1)
		loop_step(&s->m.vm.loop, 1000);
	machine_settle(&s->m);
}

static void save_and_load(struct state *s)
{
	struct device *d = &s->vs->vd.dev;
	uint8_t blob[4096];
	long n;

	FUZZ_REQUIRE(device_quiesce(d) == 0);
	n = device_save(d, blob, sizeof(blob));
	FUZZ_REQUIRE(n > 0 && device_load(d, blob, (size_t)n, NULL) == 0);
	FUZZ_REQUIRE(s->vs->host.nconns == 0 && s->vs->host.pool.used == 0);
	d->ops->restored(d);
	device_resume(d);
}

static void step(struct state *s, struct fuzz_input *in)
{
	uint8_t op = fuzz_u8(in);

	switch (op % NOPS) {
	case OP_PACKET:
	case OP_PACKET_AGAIN:
		packet(s, in, false);
		break;
	case OP_DATA:
		packet(s, in, true);
		break;
	case OP_BUFFERS:
		buffers(s, in);
		break;
	case OP_PEER:
		peer_acts(s, in);
		break;
	case OP_OPEN:
		open_conn(s, in, false);
		break;
	case OP_CLIENT:
		open_conn(s, in, true);
		break;
	case OP_TIME:
		time_passes(s);
		break;
	case OP_PAUSE:
		if (op & 0x80) {
			save_and_load(s);
		} else {
			FUZZ_REQUIRE(device_quiesce(&s->vs->vd.dev) == 0);
			device_resume(&s->vs->vd.dev);
		}
		break;
	case OP_RESET:
		driver_set_reg(&s->d, MMIO_STATUS, 0);
		FUZZ_REQUIRE(s->vs->host.nconns == 0 && s->vs->host.pool.used == 0);
		start(s, in);
		break;
	case OP_EVENTS: {
		struct driver_buf b = { DATA + KIB(100), fuzz_u8(in) & 7, true };

		driver_add(&s->d, VSOCK_Q_EVENT, &b, 1);
		driver_kick(&s->d, VSOCK_Q_EVENT);
		break;
	}
	default:
		break;
	}
	check(s);
}

static void make(struct state *s)
{
	machine_init(&s->m, RAM);
	s->vs = (struct virtio_vsock *)machine_add(&s->m, "vsock", "cid=3");
	s->vs->host.max_conns = MAX_CONNS;
	/* Dialing finds nobody. */
	snprintf(s->vs->host.name, sizeof(s->vs->host.name), "no-such-socket");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Made once: a reset is a new beginning. */
	static struct state s;
	struct fuzz_input in = { data, size };

	if (!s.vs)
		make(&s);
	for (int i = 0; i < PEERS; i++)
		s.peer[i] = -1;
	s.vs->state.next_port = VSOCK_PORT_FIRST;
	mem_discard(&s.m.vm.mem, GPA(0), RAM);
	driver_init(&s.d, &s.m, &s.vs->vd.dev);
	start(&s, &in);
	for (int i = 0; i < MAX_OPS && in.left; i++)
		step(&s, &in);
	for (int i = 0; i < PEERS; i++)
		fd_close(s.peer[i]);
	driver_set_reg(&s.d, MMIO_STATUS, 0);
	FUZZ_REQUIRE(s.vs->host.nconns == 0 && s.vs->host.pool.used == 0);
	return 0;
}
