/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk requests of any shape, and the backend's view of them.
 *
 * Input: feature bits, then operations: a request (type, sector, pieces in guest memory, its header in front of its
 * first readable piece), a kick, the backend holding requests back and letting them go, failing them, a pause, a reset, a
 * resize, a queue taken away. What must hold: the backend sees whole sectors inside the disk only, with iovecs of just that length;
 * a request is completed once, with a known status; nothing is in flight after a pause or a reset.
 */
#include <errno.h>
#include <sys/eventfd.h>

#include "devices/backend/block_null.h"
#include "devices/virtio_blk.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness/driver.h"

enum { RAM = 1 << 20, DATA = 512 << 10, MAX_OPS = 100, MAX_PIECES = 8 };
enum { OP_REQUEST, OP_REQUEST_AGAIN, OP_KICK, OP_HOLD, OP_RELEASE, OP_FAIL, OP_PAUSE, OP_RESET, OP_RESIZE, OP_STOP, NOPS };

static const struct block_ops *real_ops;

static void checking_submit(struct block *b, struct block_request *r)
{
	uint64_t n = 0;

	if (r->op != BLOCK_FLUSH) {
		FUZZ_REQUIRE(r->len > 0 && r->len % BLOCK_SECTOR == 0 && r->offset % BLOCK_SECTOR == 0);
		FUZZ_REQUIRE(r->offset < b->size && r->len <= b->size - r->offset);
	}
	if (r->op == BLOCK_READ || r->op == BLOCK_WRITE) {
		FUZZ_REQUIRE(r->niov > 0 && r->niov <= BLOCK_IOV_MAX);
		for (int i = 0; i < r->niov; i++)
			n += r->iov[i].iov_len;
		FUZZ_REQUIRE(n == r->len);
	}
	FUZZ_REQUIRE(!b->ro || r->op == BLOCK_READ);
	real_ops->submit(b, r);
}

struct state {
	struct machine m;
	struct driver d;
	struct virtio_blk *blk;
	uint64_t added, used; /* since the last start, on queue 0 and 1 */
};

static struct block_null *backend(struct state *s)
{
	return (struct block_null *)s->blk->host.block;
}

static void start(struct state *s, struct fuzz_input *in)
{
	s->d.heap = KIB(64);
	driver_start(&s->d, fuzz_u32(in) & driver_offered(&s->d), 64);
	s->added = s->used = 0;
}

static void take_used(struct state *s)
{
	for (uint32_t q = 0; q < 2; q++)
		while (driver_used(&s->d, q, NULL, NULL))
			s->used++;
	FUZZ_REQUIRE(s->used <= s->added);
}

static void request(struct state *s, struct fuzz_input *in)
{
	static const uint32_t types[] = { VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID,
					  VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES };
	uint8_t kind = fuzz_u8(in), shape = fuzz_u8(in);
	struct virtio_blk_header h = {
		.type = le32_make(kind < 240 ? types[kind % ARRAY_SIZE(types)] : fuzz_u32(in)),
		.sector = le64_make(kind & 0x40 ? fuzz_u64(in) : fuzz_u16(in) % 3000),
	};
	struct driver_buf b[MAX_PIECES];
	uint16_t n = (uint16_t)(1 + shape % MAX_PIECES), nread = (uint16_t)(shape / MAX_PIECES % MAX_PIECES);
	uint32_t q = kind >> 5 & 1;

	/* The rings are below DATA: reads from the disk cannot reach them. */
	for (uint16_t i = 0; i < n; i++) {
		uint8_t l = fuzz_u8(in);

		b[i].len = l & 0x80 ? (l & 0x7fu) * 512 + (l & 0x40 ? 0 : 1) : l;
		b[i].gpa = DATA + fuzz_u32(in) % (DATA - 65536);
		b[i].write = i >= nread;
	}
	machine_poke(&s->m, b[0].gpa, &h, sizeof(h));
	if (kind & 0x10)
		driver_add_indirect(&s->d, q, b, n);
	else
		driver_add(&s->d, q, b, n);
	if (s->d.heap > DATA - KIB(4))
		s->d.heap = KIB(128); /* tables of long ago */
	s->added++;
}

static void step(struct state *s, struct fuzz_input *in)
{
	struct device *d = &s->blk->vd.dev;
	uint8_t op = fuzz_u8(in);
	uint32_t q = op >> 7;

	switch (op % NOPS) {
	case OP_REQUEST:
	case OP_REQUEST_AGAIN:
		request(s, in);
		break;
	case OP_KICK:
		driver_kick(&s->d, q);
		break;
	case OP_HOLD:
		backend(s)->hold = true;
		break;
	case OP_RELEASE:
		backend(s)->hold = false;
		eventfd_write(backend(s)->b.event_fd, 1);
		machine_settle(&s->m);
		FUZZ_REQUIRE(s->blk->host.busy == 0);
		break;
	case OP_FAIL:
		backend(s)->fail = op & 0x80 ? -ENOSPC : 0;
		break;
	case OP_PAUSE:
		FUZZ_REQUIRE(device_quiesce(d) == 0);
		FUZZ_REQUIRE(s->blk->host.busy == 0);
		device_resume(d);
		break;
	case OP_RESET:
		driver_set_reg(&s->d, MMIO_STATUS, 0);
		FUZZ_REQUIRE(s->blk->host.busy == 0);
		start(s, in);
		break;
	case OP_RESIZE:
		virtio_blk_resize(d, (uint64_t)fuzz_u16(in) * 256, NULL);
		break;
	case OP_STOP:
		driver_set_reg(&s->d, MMIO_QUEUE_SEL, q);
		driver_set_reg(&s->d, MMIO_QUEUE_READY, 0);
		break;
	default:
		break;
	}
	take_used(s);
}

static void make(struct state *s, bool ro)
{
	static struct block_ops ops;
	struct device *d;

	machine_init(&s->m, RAM);
	d = machine_add(&s->m, "blk", ro ? "backend=null,size=1M,queues=2,ro" : "backend=null,size=1M,queues=2");
	s->blk = (struct virtio_blk *)d;
	real_ops = backend(s)->b.ops;
	ops = *real_ops;
	ops.submit = checking_submit;
	backend(s)->b.ops = &ops;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Made once: a reset is a new beginning, but for what the host can change. */
	static struct state states[2];
	struct fuzz_input in = { data, size };
	bool ro = fuzz_u8(&in) & 1;
	struct state *s = &states[ro];

	if (!s->blk)
		make(s, ro);
	backend(s)->b.size = MIB(1);
	backend(s)->hold = false;
	backend(s)->fail = 0;
	mem_discard(&s->m.vm.mem, GPA(0), RAM);
	driver_init(&s->d, &s->m, &s->blk->vd.dev);
	start(s, &in);
	for (int i = 0; i < MAX_OPS && in.left; i++)
		step(s, &in);
	driver_set_reg(&s->d, MMIO_STATUS, 0);
	FUZZ_REQUIRE(s->blk->host.busy == 0);
	return 0;
}
