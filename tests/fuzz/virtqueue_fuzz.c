/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtqueue over arbitrary guest memory.
 *
 * Input: flags, queue size, the rings' addresses and positions, then the contents of guest memory from 0, and
 * whatever is left says what the device does with the chains. The rings may lie on top of each other and anywhere.
 */
#include <errno.h>
#include <string.h>

#include "devices/virtio_queue.h"
#include "lib/le.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { RAM = 1 << 20, FILLED = 8 << 10, STEPS = 64, MAX_IOV = 64 };

static void check_chain(struct virtio_queue *q, const struct vq_chain *c)
{
	uint64_t len[2] = { 0 };

	FUZZ_REQUIRE(c->nread + c->nwrite <= VQ_MAX_SIZE);
	FUZZ_REQUIRE(c->head < q->st->size);
	for (unsigned int i = 0; i < (unsigned int)c->nread + c->nwrite; i++) {
		FUZZ_REQUIRE(c->buf[i].len > 0);
		FUZZ_REQUIRE(mem_contains(q->mem, c->buf[i].gpa, c->buf[i].len));
		len[i >= c->nread] += c->buf[i].len;
	}
	FUZZ_REQUIRE(len[0] == c->read_len && len[1] == c->write_len);
}

static void use_chain(struct virtio_queue *q, const struct vq_chain *c, uint8_t what, uint64_t off)
{
	uint8_t buf[512];
	struct iovec iov[MAX_IOV];
	size_t n;
	int r;

	memset(buf, what, sizeof(buf));
	n = vq_chain_read(q, c, off, buf, sizeof(buf));
	FUZZ_REQUIRE(n == (off < c->read_len ? MIN(c->read_len - off, sizeof(buf)) : 0));
	n = vq_chain_write(q, c, off, buf, sizeof(buf));
	FUZZ_REQUIRE(n == (off < c->write_len ? MIN(c->write_len - off, sizeof(buf)) : 0));
	r = vq_chain_iov(q, c, what & 1, off, what, iov, MAX_IOV);
	FUZZ_REQUIRE(r <= MAX_IOV);
	n = 0;
	for (int i = 0; i < r; i++)
		n += iov[i].iov_len;
	FUZZ_REQUIRE(r < 0 || n == what);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mem mem;
	static struct vq_chain c;
	struct fuzz_input in = { data, size };
	uint8_t flags = fuzz_u8(&in);
	struct virtio_queue_state st = { .ready = 1, .size = (uint16_t)(1u << (fuzz_u8(&in) % 11)) };
	struct virtio_queue q = { .st = &st, .mem = &mem, .max_size = VQ_MAX_SIZE };

	if (!mem.size)
		FUZZ_REQUIRE(mem_init(&mem, -1, RAM, NULL) == 0);
	mem_discard(&mem, GPA(0), RAM);
	q.event_idx = flags & 1;
	q.indirect = flags & 2;
	st.signalled_valid = flags >> 2 & 1;
	/* Addresses: near each other, or anything. */
	st.desc = flags & 8 ? fuzz_u64(&in) : fuzz_u16(&in) % FILLED;
	st.avail = flags & 8 ? fuzz_u64(&in) : fuzz_u16(&in) % FILLED;
	st.used = flags & 8 ? fuzz_u64(&in) : fuzz_u16(&in) % FILLED;
	if (!(flags & 16)) {
		st.desc = ALIGN_DOWN(st.desc, 16);
		st.avail = ALIGN_DOWN(st.avail, 2);
		st.used = ALIGN_DOWN(st.used, 4);
	}
	st.next_avail = fuzz_u16(&in);
	st.next_used = fuzz_u16(&in);
	st.signalled_used = fuzz_u16(&in);
	if (vq_validate(&q) < 0)
		return 0;

	size_t fill = MIN(in.left, (size_t)FILLED);

	mem_write(&mem, GPA(0), in.p, fill);
	in.p += fill;
	in.left -= fill;
	for (int i = 0; i < STEPS; i++) {
		uint8_t what = fuzz_u8(&in);
		uint16_t before = st.next_avail;
		int r = vq_pop(&q, &c);

		FUZZ_REQUIRE(r == 1 || r == 0 || r == -EBADMSG);
		FUZZ_REQUIRE(st.next_avail == (uint16_t)(before + (r == 1)));
		if (r == 1) {
			check_chain(&q, &c);
			use_chain(&q, &c, what, what & 0x80 ? fuzz_u64(&in) : what);
			FUZZ_REQUIRE(vq_push(&q, c.head, what) == 0);
		}
		if (what & 4)
			vq_disable_notify(&q);
		if (vq_needs_interrupt(&q) && what & 8)
			FUZZ_REQUIRE(!vq_needs_interrupt(&q));
		if (!vq_enable_notify(&q) && r <= 0)
			break;
	}
	return 0;
}
