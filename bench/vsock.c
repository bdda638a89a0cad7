/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock's own cost: bulk data from and to a peer thread through the whole device (rings in guest memory, credit), and
 * through a bare Unix socket read by the same number of bytes at a time. Guest buffers are of 4 KiB, as Linux gives them;
 * packets from the guest of 64 KiB, as Linux sends them. The ways take turns; medians, rates by the clock, ratios by
 * processor time (the socket's over the device's, both threads), which other load does not change. No guest, no KVM.
 *
 * Last line: `vsock to_guest_mibs=N from_guest_mibs=N socket_mibs=N to_ratio=N from_ratio=N`.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "bench/measure.h"
#include "devices/virtio_vsock.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { PIECE = 65536, TOTAL = 256 << 20, ROUNDS = 7, BUFFERS = 256, BUFFER = 4096, HEADER = 44, GUEST_PORT = 9 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

struct cost {
	double rate; /* MiB/s */
	double cpu;  /* seconds, of both threads */
};

struct start {
	uint64_t ns;
	clock_t cpu;
};

static struct start begin(void)
{
	return (struct start){ loop_now_ns(), clock() };
}

static struct cost end(struct start s)
{
	return (struct cost){ TOTAL / 1048576.0 / ((double)(loop_now_ns() - s.ns) / 1e9),
			      (double)(clock() - s.cpu) / CLOCKS_PER_SEC };
}

/* --- the peer, in a thread of its own ---------------------------------- */

struct peer {
	int fd;
	bool writes;
};

static void *peer_main(void *arg)
{
	static char data[2][PIECE];
	struct peer *p = arg;
	size_t done = 0;

	while (done < TOTAL) {
		ssize_t n = p->writes ? write(p->fd, data[0], MIN((size_t)PIECE, TOTAL - done)) : read(p->fd, data[1], PIECE);

		if (n <= 0)
			die("peer");
		done += (size_t)n;
	}
	return NULL;
}

static struct cost run_socket(void)
{
	static char buf[PIECE];
	int pair[2];
	pthread_t thread;
	struct start t0 = begin();

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		die("socketpair");
	struct peer p = { pair[1], true };

	pthread_create(&thread, NULL, peer_main, &p);
	for (size_t done = 0; done < TOTAL;) {
		ssize_t n = read(pair[0], buf, sizeof(buf));

		if (n <= 0)
			die("read");
		done += (size_t)n;
	}
	pthread_join(thread, NULL);
	close(pair[0]);
	close(pair[1]);
	return end(t0);
}

/* --- the guest --------------------------------------------------------- */

struct bench {
	struct machine m;
	struct driver d;
	struct device *dev;
	uint64_t rx, tx;
	uint32_t host_port;
	int client;
	uint32_t received, told;       /* of the stream to the guest */
	uint32_t sent, alloc, forwarded; /* of the stream from it */
};

static void notify(struct bench *b, uint32_t q)
{
	device_lock(b->dev);
	virtio_notify(virtio_from_device(b->dev), q);
	device_unlock(b->dev);
}

static void post(struct bench *b, uint16_t slot)
{
	driver_publish(&b->d, VSOCK_Q_RX, slot);
}

static void send_packet(struct bench *b, uint16_t op, uint32_t len)
{
	/* Descriptors 2i and 2i+1 with a header each: a packet may be read when the next is made. */
	struct driver_queue *q = &b->d.q[VSOCK_Q_TX];
	uint16_t i = (uint16_t)(q->avail_idx % (q->size / 2) * 2);
	uint64_t at = b->tx + (uint64_t)i * HEADER;
	struct virtio_vsock_header h = {
		.src_cid = le64_make(3),
		.dst_cid = le64_make(VSOCK_HOST_CID),
		.src_port = le32_make(GUEST_PORT),
		.dst_port = le32_make(b->host_port),
		.len = le32_make(len),
		.type = le16_make(VIRTIO_VSOCK_TYPE_STREAM),
		.op = le16_make(op),
		.buf_alloc = le32_make(262144),
		.fwd_cnt = le32_make(b->told),
	};

	machine_poke(&b->m, at, &h, sizeof(h));
	driver_desc(&b->d, q->desc, i, at, HEADER, len ? DRIVER_DESC_NEXT : 0, (uint16_t)(i + 1));
	driver_desc(&b->d, q->desc, (uint16_t)(i + 1), MIB(16), len, 0, 0);
	driver_publish(&b->d, VSOCK_Q_TX, i);
	while (driver_used(&b->d, VSOCK_Q_TX, NULL, NULL))
		;
}

/* Take the packets that came: what a driver does, but for copying the payload out. */
static int take(struct bench *b)
{
	uint32_t head;
	int n = 0;

	while (driver_used(&b->d, VSOCK_Q_RX, &head, NULL)) {
		struct virtio_vsock_header h;

		machine_peek(&b->m, b->rx + (uint64_t)head * BUFFER, &h, sizeof(h));
		b->host_port = le32_get(h.src_port);
		b->alloc = le32_get(h.buf_alloc);
		b->forwarded = le32_get(h.fwd_cnt);
		if (le16_get(h.op) == VIRTIO_VSOCK_OP_RW)
			b->received += le32_get(h.len);
		else if (le16_get(h.op) == VIRTIO_VSOCK_OP_REQUEST)
			send_packet(b, VIRTIO_VSOCK_OP_RESPONSE, 0);
		post(b, (uint16_t)head);
		n++;
	}
	if (n)
		notify(b, VSOCK_Q_RX);
	if (b->received - b->told >= 131072) {
		b->told = b->received;
		send_packet(b, VIRTIO_VSOCK_OP_CREDIT_UPDATE, 0);
		notify(b, VSOCK_Q_TX);
	}
	return n;
}

static void open_device(struct bench *b)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX, .sun_path = "bench-vsock.sock" };
	char line[32];
	ssize_t n = 0;

	machine_init(&b->m, MIB(64));
	b->dev = machine_add(&b->m, "vsock", "path=bench-vsock.sock");
	driver_init(&b->d, &b->m, b->dev);
	driver_start(&b->d, VIRTIO_F_EVENT_IDX, 0);
	b->rx = driver_alloc(&b->d, BUFFERS * BUFFER, BUFFER);
	b->tx = driver_alloc(&b->d, VSOCK_QUEUE_SIZE * HEADER, BUFFER);
	for (uint16_t i = 0; i < BUFFERS; i++) {
		driver_desc(&b->d, b->d.q[VSOCK_Q_RX].desc, i, b->rx + (uint64_t)i * BUFFER, BUFFER, DRIVER_DESC_WRITE, 0);
		post(b, i);
	}
	b->client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(b->client, (struct sockaddr *)&sa, sizeof(sa)) < 0 || write(b->client, "CONNECT 9\n", 10) != 10)
		die("connect");
	while (n <= 0) {
		machine_settle(&b->m);
		take(b);
		notify(b, VSOCK_Q_TX);
		n = recv(b->client, line, sizeof(line), MSG_DONTWAIT);
	}
	b->alloc = VSOCK_WINDOW;
}

static struct cost run_to_guest(struct bench *b)
{
	struct peer p = { b->client, true };
	uint32_t start = b->received;
	struct start t0 = begin();
	pthread_t thread;

	pthread_create(&thread, NULL, peer_main, &p);
	while (b->received - start < TOTAL)
		if (!take(b))
			loop_step(&b->m.vm.loop, 100);
	pthread_join(thread, NULL);
	return end(t0);
}

static struct cost run_from_guest(struct bench *b)
{
	struct peer p = { b->client, false };
	uint32_t start = b->sent;
	struct start t0 = begin();
	pthread_t thread;

	pthread_create(&thread, NULL, peer_main, &p);
	while (b->sent - start < TOTAL) {
		uint32_t room = b->alloc - (b->sent - b->forwarded);
		uint32_t n = MIN(MIN(room, (uint32_t)PIECE), TOTAL - (b->sent - start));

		if (n) {
			send_packet(b, VIRTIO_VSOCK_OP_RW, n);
			b->sent += n;
			notify(b, VSOCK_Q_TX);
		}
		if (!take(b) && !n)
			loop_step(&b->m.vm.loop, 100);
	}
	while (b->forwarded != b->sent) /* the rest, for the peer to see it all */
		if (!take(b)) {
			send_packet(b, VIRTIO_VSOCK_OP_CREDIT_REQUEST, 0);
			notify(b, VSOCK_Q_TX);
			loop_step(&b->m.vm.loop, 1);
		}
	pthread_join(thread, NULL);
	return end(t0);
}

int main(void)
{
	static struct bench b;
	double to[ROUNDS], from[ROUNDS], plain[ROUNDS], to_ratio[ROUNDS], from_ratio[ROUNDS];

	open_device(&b);
	for (int i = 0; i < ROUNDS; i++) {
		struct cost p = run_socket(), t = run_to_guest(&b), f = run_from_guest(&b);

		plain[i] = p.rate;
		to[i] = t.rate;
		from[i] = f.rate;
		to_ratio[i] = p.cpu / t.cpu;
		from_ratio[i] = p.cpu / f.cpu;
	}
	printf("vsock to_guest_mibs=%.0f from_guest_mibs=%.0f socket_mibs=%.0f to_ratio=%.2f from_ratio=%.2f\n", measure_median(to, ROUNDS),
	       measure_median(from, ROUNDS), measure_median(plain, ROUNDS), measure_median(to_ratio, ROUNDS), measure_median(from_ratio, ROUNDS));
	close(b.client);
	machine_finish(&b.m);
	return 0;
}
