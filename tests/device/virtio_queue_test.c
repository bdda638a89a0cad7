/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtqueue against drivers that follow virtio 1.2, 2.7 and drivers that do not.
 *
 * The queue stands alone over a fake machine's memory; the fake driver's ring functions fill it.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/le.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { SIZE = 8, RAM = 4 << 20, BUFFERS = 1 << 20 };

struct fixture {
	struct machine m;
	struct driver d;
	struct virtio_queue_state st;
	struct virtio_queue q;
	struct vq_chain c;
};

static void place(struct fixture *f, uint16_t size)
{
	driver_place_queue(&f->d, 0, size);
	f->st = (struct virtio_queue_state){
		.size = size, .ready = 1, .signalled_valid = 1, .desc = f->d.q[0].desc, .avail = f->d.q[0].avail, .used = f->d.q[0].used
	};
	f->q = (struct virtio_queue){ .st = &f->st, .mem = &f->m.vm.mem, .max_size = VQ_MAX_SIZE, .indirect = true };
}

static int setup(void **ctx)
{
	static struct fixture f;

	machine_init(&f.m, RAM);
	driver_init(&f.d, &f.m, NULL);
	place(&f, SIZE);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	return 0;
}

/* One descriptor in the ring's own table. */
static void desc(struct fixture *f, uint16_t i, uint64_t gpa, uint32_t len, uint16_t flags, uint16_t next)
{
	driver_desc(&f->d, f->st.desc, i, gpa, len, flags, next);
}

static void assert_violation(struct fixture *f)
{
	uint16_t before = f->st.next_avail;

	assert_int_equal(vq_pop(&f->q, &f->c), -EBADMSG);
	assert_int_equal(f->st.next_avail, before);
}

static void an_empty_queue_has_nothing(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(vq_pop(&f->q, &f->c), 0);
	assert_false(vq_has_work(&f->q));
}

static void a_chain_comes_as_readable_and_writable_parts(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 16, false }, { BUFFERS + 100, 5, false }, { BUFFERS + 200, 7, true } };
	uint16_t head = driver_add(&f->d, 0, b, 3);

	assert_true(vq_has_work(&f->q));
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.head, head);
	assert_int_equal(f->c.nread, 2);
	assert_int_equal(f->c.nwrite, 1);
	assert_int_equal(f->c.read_len, 21);
	assert_int_equal(f->c.write_len, 7);
	for (int i = 0; i < 3; i++) {
		assert_true(f->c.buf[i].gpa.v == b[i].gpa);
		assert_int_equal(f->c.buf[i].len, b[i].len);
	}
	assert_int_equal(vq_pop(&f->q, &f->c), 0);
}

static void a_queue_that_is_not_ready_or_stopped_has_nothing(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, false };

	driver_add(&f->d, 0, &b, 1);
	f->st.ready = 0;
	assert_int_equal(vq_pop(&f->q, &f->c), 0);
	f->st.ready = 1;
	f->q.stopped = true;
	assert_int_equal(vq_pop(&f->q, &f->c), 0);
	assert_false(vq_enable_notify(&f->q));
}

static void an_unpopped_chain_comes_again(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, false };
	uint16_t head = driver_add(&f->d, 0, &b, 1);

	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	vq_unpop(&f->q);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.head, head);
}

static void zero_length_descriptors_are_skipped(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { UINT64_MAX, 0, false }, { BUFFERS, 4, false }, { 0, 0, true }, { BUFFERS, 4, true } };

	driver_add(&f->d, 0, b, 4);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.nread, 1);
	assert_int_equal(f->c.nwrite, 1);
}

static void a_chain_as_long_as_the_queue_is_served(void **ctx)
{
	struct fixture *f = *ctx;
	struct driver_buf b[SIZE];

	for (int i = 0; i < SIZE; i++)
		b[i] = (struct driver_buf){ BUFFERS + 64u * (unsigned int)i, 64, i >= 4 };
	driver_add(&f->d, 0, b, SIZE);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.nread + f->c.nwrite, SIZE);
}

static void readable_after_writable_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 4, true }, { BUFFERS, 4, false } };

	driver_add(&f->d, 0, b, 2);
	assert_violation(f);
}

static void a_descriptor_that_points_to_itself_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	desc(f, 0, BUFFERS, 4, DRIVER_DESC_NEXT, 0);
	driver_publish(&f->d, 0, 0);
	assert_violation(f);
}

static void a_loop_through_all_descriptors_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	for (uint16_t i = 0; i < SIZE; i++)
		desc(f, i, BUFFERS, 0, DRIVER_DESC_NEXT, (uint16_t)((i + 1) % SIZE));
	driver_publish(&f->d, 0, 3);
	assert_violation(f);
}

static void a_head_or_next_outside_the_table_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	driver_publish(&f->d, 0, SIZE);
	assert_violation(f);
	f->st.next_avail++;
	driver_publish(&f->d, 0, UINT16_MAX);
	assert_violation(f);
	f->st.next_avail++;
	desc(f, 0, BUFFERS, 4, DRIVER_DESC_NEXT, SIZE);
	driver_publish(&f->d, 0, 0);
	assert_violation(f);
}

static void an_index_further_ahead_than_the_queue_is_long_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	machine_poke16(&f->m, f->st.avail + 2, SIZE + 1);
	assert_violation(f);
	machine_poke16(&f->m, f->st.avail + 2, UINT16_MAX);
	assert_violation(f);
	assert_true(vq_has_work(&f->q));
}

static void buffers_outside_memory_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	static const struct driver_buf bad[] = {
		{ RAM, 1, false },	    { RAM - 1, 2, false },	   { UINT64_MAX, 1, false },
		{ UINT64_MAX - 3, 8, true }, { 0, UINT32_MAX, true },	   { MEM_HOLE_START, 16, false },
		{ 0xD0000050, 4, true },    { 1ull << 63, 4096, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		driver_add(&f->d, 0, &bad[i], 1);
		assert_violation(f);
		f->st.next_avail++;
	}
}

static void the_last_byte_of_memory_can_be_a_buffer(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { RAM - 1, 1, true };

	driver_add(&f->d, 0, &b, 1);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(vq_chain_write(&f->q, &f->c, 0, "x", 1), 1);
}

static void an_indirect_table_is_served(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 16, false }, { BUFFERS + 64, 4, true } };
	uint16_t head = driver_add_indirect(&f->d, 0, b, 2);

	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.head, head);
	assert_int_equal(f->c.nread, 1);
	assert_int_equal(f->c.nwrite, 1);
}

static void an_indirect_table_may_be_longer_than_the_queue(void **ctx)
{
	struct fixture *f = *ctx;
	struct driver_buf b[VQ_MAX_INDIRECT];

	for (uint32_t i = 0; i < VQ_MAX_INDIRECT; i++)
		b[i] = (struct driver_buf){ BUFFERS + i, 1, i > 100 };
	driver_add_indirect(&f->d, 0, b, VQ_MAX_INDIRECT);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.nread + f->c.nwrite, VQ_MAX_INDIRECT);
}

static void two_direct_descriptors_then_an_indirect_one_are_served(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t table = driver_alloc(&f->d, 64, 16);

	desc(f, 0, BUFFERS, 16, DRIVER_DESC_NEXT, 1);
	desc(f, 1, BUFFERS + 16, 16, DRIVER_DESC_NEXT, 2);
	desc(f, 2, table, 48, DRIVER_DESC_INDIRECT, 0);
	driver_desc(&f->d, table, 0, BUFFERS + 32, 16, DRIVER_DESC_NEXT, 1);
	driver_desc(&f->d, table, 1, BUFFERS + 64, 512, DRIVER_DESC_WRITE | DRIVER_DESC_NEXT, 2);
	driver_desc(&f->d, table, 2, BUFFERS + 1024, 1, DRIVER_DESC_WRITE, 0);
	driver_publish(&f->d, 0, 0);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.nread, 3);
	assert_int_equal(f->c.read_len, 48);
	assert_int_equal(f->c.nwrite, 2);
	assert_int_equal(f->c.write_len, 513);
}

static void the_write_flag_of_an_indirect_descriptor_means_nothing(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t table = driver_alloc(&f->d, 16, 16);

	driver_desc(&f->d, table, 0, BUFFERS, 16, 0, 0);
	desc(f, 0, table, 16, DRIVER_DESC_INDIRECT | DRIVER_DESC_WRITE, 0);
	driver_publish(&f->d, 0, 0);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(f->c.nread, 1);
	assert_int_equal(f->c.nwrite, 0);
}

static void malformed_indirect_tables_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t table = driver_alloc(&f->d, 64, 16);
	const struct {
		uint64_t gpa;
		uint32_t len;
		uint16_t flags;
		uint16_t first_flags, first_next;
	} bad[] = {
		{ table, 0, DRIVER_DESC_INDIRECT, 0, 0 },			 /* empty */
		{ table, 15, DRIVER_DESC_INDIRECT, 0, 0 },			 /* not a multiple of 16 */
		{ table, 17, DRIVER_DESC_INDIRECT, 0, 0 },
		{ table, 16 * (VQ_MAX_INDIRECT + 1), DRIVER_DESC_INDIRECT, 0, 0 }, /* too long */
		{ table, UINT32_MAX - 15, DRIVER_DESC_INDIRECT, 0, 0 },
		{ RAM - 16, 32, DRIVER_DESC_INDIRECT, 0, 0 },			 /* ends outside memory */
		{ UINT64_MAX - 15, 16, DRIVER_DESC_INDIRECT, 0, 0 },
		{ table, 32, DRIVER_DESC_INDIRECT | DRIVER_DESC_NEXT, 0, 0 },	 /* with a successor */
		{ table, 32, DRIVER_DESC_INDIRECT, DRIVER_DESC_INDIRECT, 0 },	 /* a table in a table */
		{ table, 32, DRIVER_DESC_INDIRECT, DRIVER_DESC_NEXT, 0 },	 /* a loop */
		{ table, 32, DRIVER_DESC_INDIRECT, DRIVER_DESC_NEXT, 2 },	 /* next outside the table */
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		driver_desc(&f->d, table, 0, BUFFERS, 16, bad[i].first_flags, bad[i].first_next);
		driver_desc(&f->d, table, 1, BUFFERS, 16, 0, 0);
		desc(f, 0, bad[i].gpa, bad[i].len, bad[i].flags, 1);
		desc(f, 1, BUFFERS, 16, 0, 0);
		driver_publish(&f->d, 0, 0);
		assert_violation(f);
		f->st.next_avail++;
	}
}

static void an_indirect_descriptor_without_the_feature_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, false };

	f->q.indirect = false;
	driver_add_indirect(&f->d, 0, &b, 1);
	assert_violation(f);
}

static void more_buffers_than_a_chain_holds_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct driver_buf b[VQ_MAX_INDIRECT];

	for (uint32_t i = 0; i < VQ_MAX_INDIRECT; i++)
		b[i] = (struct driver_buf){ BUFFERS + i, 1, false };
	driver_add_indirect(&f->d, 0, b, VQ_MAX_INDIRECT);
	/* In front of it, one more. */
	desc(f, 1, BUFFERS, 16, DRIVER_DESC_NEXT, 0);
	machine_poke16(&f->m, f->st.avail + 4, 1);
	assert_violation(f);
}

static void a_pushed_request_appears_in_the_used_ring(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, true };
	uint32_t head, len;

	driver_add(&f->d, 0, &b, 1);
	driver_add(&f->d, 0, &b, 1);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(vq_push(&f->q, 1, 5), 0); /* in any order */
	assert_int_equal(vq_push(&f->q, 0, 0), 0);
	assert_true(driver_used(&f->d, 0, &head, &len));
	assert_int_equal(head, 1);
	assert_int_equal(len, 5);
	assert_true(driver_used(&f->d, 0, &head, &len));
	assert_int_equal(head, 0);
	assert_int_equal(len, 0);
	assert_false(driver_used(&f->d, 0, &head, &len));
}

static void a_push_to_a_queue_taken_away_writes_nothing(void **ctx)
{
	struct fixture *f = *ctx;

	f->st.ready = 0;
	assert_int_equal(vq_push(&f->q, 0, 1), 0);
	assert_int_equal(machine_peek16(&f->m, f->st.used + 2), 0);
	assert_false(vq_needs_interrupt(&f->q));
}

static void indices_wrap_around(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, true };

	for (uint32_t i = 0; i < 70000; i++) {
		uint16_t head = driver_add(&f->d, 0, &b, 1);
		uint32_t used_head, len;

		if (vq_pop(&f->q, &f->c) != 1 || f->c.head != head || vq_push(&f->q, head, i) != 0 ||
		    !driver_used(&f->d, 0, &used_head, &len) || used_head != head || len != i)
			fail_msg("request %u went wrong", i);
	}
}

static void without_event_idx_the_avail_flag_suppresses_interrupts(void **ctx)
{
	struct fixture *f = *ctx;

	assert_false(vq_needs_interrupt(&f->q)); /* nothing was pushed */
	vq_push(&f->q, 0, 0);
	assert_true(vq_needs_interrupt(&f->q));
	assert_false(vq_needs_interrupt(&f->q));
	machine_poke16(&f->m, f->st.avail, 1);
	vq_push(&f->q, 0, 0);
	assert_false(vq_needs_interrupt(&f->q));
}

static void without_event_idx_the_used_flag_suppresses_notifications(void **ctx)
{
	struct fixture *f = *ctx;

	vq_disable_notify(&f->q);
	assert_int_equal(machine_peek16(&f->m, f->st.used), 1);
	assert_false(vq_enable_notify(&f->q));
	assert_int_equal(machine_peek16(&f->m, f->st.used), 0);
}

static void with_event_idx_an_interrupt_comes_when_the_event_is_passed(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t used_event = f->st.avail + 4 + 2 * SIZE;

	f->q.event_idx = true;
	vq_push(&f->q, 0, 0);
	assert_true(vq_needs_interrupt(&f->q));
	assert_false(vq_needs_interrupt(&f->q)); /* nothing new */
	machine_poke16(&f->m, used_event, 3);
	vq_push(&f->q, 0, 0);
	vq_push(&f->q, 0, 0);
	assert_false(vq_needs_interrupt(&f->q)); /* used 3: the entry 3 is not there yet */
	vq_push(&f->q, 0, 0);
	assert_true(vq_needs_interrupt(&f->q));
	vq_push(&f->q, 0, 0);
	assert_false(vq_needs_interrupt(&f->q));
}

static void with_event_idx_the_event_is_compared_across_the_wrap(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t used_event = f->st.avail + 4 + 2 * SIZE;

	f->q.event_idx = true;
	f->st.next_used = f->st.signalled_used = 65534;
	f->st.signalled_valid = 1;
	machine_poke16(&f->m, used_event, 0);
	vq_push(&f->q, 0, 0);
	vq_push(&f->q, 0, 0);
	assert_false(vq_needs_interrupt(&f->q));
	vq_push(&f->q, 0, 0);
	assert_true(vq_needs_interrupt(&f->q));
}

static void with_event_idx_a_full_circle_without_a_look_interrupts(void **ctx)
{
	struct fixture *f = *ctx;

	f->q.event_idx = true;
	vq_push(&f->q, 0, 0);
	vq_needs_interrupt(&f->q);
	for (int i = 0; i < 65536; i++)
		vq_push(&f->q, 0, 0);
	assert_true(vq_needs_interrupt(&f->q));
}

static void with_event_idx_enabling_publishes_the_position(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS, 16, true };
	uint64_t avail_event = f->st.used + 4 + 8 * SIZE;

	f->q.event_idx = true;
	driver_add(&f->d, 0, &b, 1);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_false(vq_enable_notify(&f->q));
	assert_int_equal(machine_peek16(&f->m, avail_event), 1);
	driver_add(&f->d, 0, &b, 1);
	assert_true(vq_enable_notify(&f->q)); /* it came meanwhile */
}

/* The driver's side of the depth-1 loop below, as Linux does it. */
struct pingpong {
	struct fixture *f;
	int kick, irq;
	_Atomic bool failed;
};

static bool wait_event(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t n;

	/* The bound only turns a lost notification into a failure. */
	return poll(&p, 1, 60000) == 1 && read(fd, &n, sizeof(n)) == sizeof(n);
}

static void send_event(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		abort();
}

/* Spinning for a while before sleeping puts both sides into the windows that the fences close. */
enum { ROUNDS = 50000, SPINS = 400, DELAYS = 97 };

static bool used_is(struct fixture *f, uint16_t idx)
{
	uint16_t used = 0;

	mem_load_le16_acquire(&f->m.vm.mem, GPA(f->st.used + 2), &used);
	return used == idx;
}

static bool wait_used(struct pingpong *p, uint16_t idx)
{
	struct fixture *f = p->f;

	for (int i = 0; i < SPINS; i++)
		if (used_is(f, idx))
			return true;
	mem_store_le16_release(&f->m.vm.mem, GPA(f->st.avail + 4 + 2 * SIZE), (uint16_t)(idx - 1));
	atomic_thread_fence(memory_order_seq_cst);
	while (!used_is(f, idx))
		if (!wait_event(p->irq))
			return false;
	return true;
}

static void *driver_side(void *arg)
{
	struct pingpong *p = arg;
	struct fixture *f = p->f;
	struct mem *mem = &f->m.vm.mem;
	uint64_t avail_event = f->st.used + 4 + 8 * SIZE;

	for (uint32_t i = 0; i < ROUNDS && !p->failed; i++) {
		uint16_t event;

		/* A little later each time: somewhere in the middle of what the other side does. */
		for (volatile uint32_t delay = i % DELAYS; delay; delay--)
			;
		machine_poke16(&f->m, f->st.avail + 4 + 2ull * (i % SIZE), 0);
		mem_store_le16_release(mem, GPA(f->st.avail + 2), (uint16_t)(i + 1));
		atomic_thread_fence(memory_order_seq_cst);
		mem_load_le16_acquire(mem, GPA(avail_event), &event);
		if (event == (uint16_t)i)
			send_event(p->kick);
		if (!wait_used(p, (uint16_t)(i + 1)))
			p->failed = true;
	}
	return NULL;
}

static void with_event_idx_depth_1_loses_no_notification(void **ctx)
{
	struct fixture *f = *ctx;
	struct pingpong p = { .f = f, .kick = eventfd(0, 0), .irq = eventfd(0, 0) };
	uint32_t served = 0;
	pthread_t t;

	f->q.event_idx = true;
	desc(f, 0, BUFFERS, 16, DRIVER_DESC_WRITE, 0);
	vq_enable_notify(&f->q);
	assert_int_equal(pthread_create(&t, NULL, driver_side, &p), 0);
	while (served < ROUNDS && !p.failed) {
		if (!wait_event(p.kick)) {
			p.failed = true;
			break;
		}
		do {
			while (vq_pop(&f->q, &f->c) > 0) {
				vq_push(&f->q, f->c.head, 0);
				served++;
				if (vq_needs_interrupt(&f->q))
					send_event(p.irq);
			}
		} while (vq_enable_notify(&f->q));
	}
	send_event(p.irq);
	pthread_join(t, NULL);
	close(p.kick);
	close(p.irq);
	assert_false(p.failed);
	assert_int_equal(served, ROUNDS);
}

static void copies_cross_buffers_and_stop_at_the_end(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = {
		{ BUFFERS, 3, false }, { BUFFERS + 100, 4, false }, { BUFFERS + 200, 2, true }, { BUFFERS + 300, 3, true },
	};
	char out[16] = "";

	machine_poke(&f->m, BUFFERS, "abc", 3);
	machine_poke(&f->m, BUFFERS + 100, "defg", 4);
	driver_add(&f->d, 0, b, 4);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(vq_chain_read(&f->q, &f->c, 0, out, sizeof(out)), 7);
	assert_string_equal(out, "abcdefg");
	assert_int_equal(vq_chain_read(&f->q, &f->c, 2, out, 3), 3);
	assert_memory_equal(out, "cde", 3);
	assert_int_equal(vq_chain_read(&f->q, &f->c, 7, out, 3), 0);
	assert_int_equal(vq_chain_read(&f->q, &f->c, UINT64_MAX, out, 3), 0);
	assert_int_equal(vq_chain_write(&f->q, &f->c, 1, "12345678", 8), 4);
	machine_peek(&f->m, BUFFERS + 201, out, 1);
	machine_peek(&f->m, BUFFERS + 300, out + 1, 3);
	assert_memory_equal(out, "1234", 4);
}

static void iovecs_cover_exactly_what_is_asked(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b[] = { { BUFFERS, 3, false }, { BUFFERS + 100, 4, false }, { BUFFERS + 200, 2, true } };
	struct iovec iov[4];

	driver_add(&f->d, 0, b, 3);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, false, 1, 5, iov, 4), 2);
	assert_int_equal(iov[0].iov_len, 2);
	assert_int_equal(iov[1].iov_len, 3);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, true, 0, 2, iov, 4), 1);
	assert_int_equal(iov[0].iov_len, 2);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, false, 0, 0, iov, 4), 0);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, false, 0, 7, iov, 1), -EMSGSIZE);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, false, 0, 8, iov, 4), -EMSGSIZE);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, true, UINT64_MAX, 1, iov, 4), -EMSGSIZE);
}

static void a_huge_buffer_is_cut_into_several_iovecs(void **ctx)
{
	struct fixture *f = *ctx;
	const uint32_t len = 0xA0000000; /* 2.5 GiB: reserved, never touched */
	const struct driver_buf b = { BUFFERS, len, false };
	struct iovec iov[4];

	machine_finish(&f->m);
	machine_init(&f->m, GIB(3));
	driver_init(&f->d, &f->m, NULL);
	place(f, SIZE);
	driver_add(&f->d, 0, &b, 1);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(vq_chain_iov(&f->q, &f->c, false, 0, len, iov, 4), 3);
	assert_true(iov[0].iov_len == MEM_IOV_MAX && iov[1].iov_len == MEM_IOV_MAX);
	assert_true(iov[0].iov_len + iov[1].iov_len + iov[2].iov_len == len);
}

static void writes_mark_pages_dirty(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_buf b = { BUFFERS + 4090, 12, true };
	uint64_t bitmap[RAM / 4096 / 64] = { 0 };
	uint64_t page = (BUFFERS >> 12) % 64;

	driver_add(&f->d, 0, &b, 1);
	assert_int_equal(vq_pop(&f->q, &f->c), 1);
	assert_int_equal(mem_dirty_start(&f->m.vm.mem, NULL), 0);
	vq_chain_write(&f->q, &f->c, 0, "123456789012", 12);
	vq_push(&f->q, 0, 12);
	assert_int_equal(mem_dirty_collect(&f->m.vm.mem, bitmap, NULL), 0);
	assert_true(bitmap[(BUFFERS >> 12) / 64] >> page & 1);
	assert_true(bitmap[(BUFFERS >> 12) / 64] >> (page + 1) & 1);
	assert_true(bitmap[(f->st.used >> 12) / 64] >> ((f->st.used >> 12) % 64) & 1);
}

static void only_sane_queue_layouts_are_valid(void **ctx)
{
	struct fixture *f = *ctx;
	const struct virtio_queue_state good = f->st;
	struct {
		struct virtio_queue_state st;
		bool ok;
	} t[] = {
		{ good, true },
		{ good, false }, { good, false }, { good, false }, /* sizes */
		{ good, false }, { good, false }, { good, false }, /* alignment */
		{ good, false }, { good, false }, { good, false }, /* ends one byte outside */
		{ good, false }, { good, false }, { good, false }, /* addresses that wrap */
		{ good, true },	 { good, true },  { good, true },  /* end at the last byte */
		{ good, true },					   /* on top of each other: the driver's problem */
	};

	f->q.max_size = 256;
	t[1].st.size = 0;
	t[2].st.size = 12;
	t[3].st.size = 512;
	t[4].st.desc += 8;
	t[5].st.avail += 1;
	t[6].st.used += 2;
	t[7].st.desc = RAM - 16 * SIZE + 16;
	t[8].st.avail = RAM - (6 + 2 * SIZE) + 2;
	t[9].st.used = RAM - (6 + 8 * SIZE) + 2; /* 2 mod 4 would be unaligned: see below */
	t[9].st.used = ALIGN_UP(t[9].st.used, 4);
	t[10].st.desc = UINT64_MAX - 15;
	t[11].st.avail = UINT64_MAX - 1;
	t[12].st.used = UINT64_MAX - 3;
	t[13].st.desc = RAM - 16 * SIZE;
	t[14].st.avail = RAM - (6 + 2 * SIZE);
	t[15].st.used = ALIGN_DOWN((uint64_t)RAM - (6 + 8 * SIZE), 4);
	t[16].st.avail = t[16].st.used = t[16].st.desc;
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		f->st = t[i].st;
		if (vq_validate(&f->q) != (t[i].ok ? 0 : -EINVAL))
			fail_msg("layout %zu", i);
	}
}

static void rings_on_top_of_each_other_are_survived(void **ctx)
{
	struct fixture *f = *ctx;

	f->st.avail = f->st.used = f->st.desc;
	for (uint32_t i = 0; i < 1000; i++) {
		uint8_t junk[16 * SIZE];

		for (size_t j = 0; j < sizeof(junk); j++)
			junk[j] = (uint8_t)(i * 31 + j * 7);
		machine_poke(&f->m, f->st.desc, junk, sizeof(junk));
		if (vq_pop(&f->q, &f->c) == 1)
			vq_push(&f->q, f->c.head, 1);
		vq_enable_notify(&f->q);
		vq_needs_interrupt(&f->q);
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_empty_queue_has_nothing),
		T(a_chain_comes_as_readable_and_writable_parts),
		T(a_queue_that_is_not_ready_or_stopped_has_nothing),
		T(an_unpopped_chain_comes_again),
		T(zero_length_descriptors_are_skipped),
		T(a_chain_as_long_as_the_queue_is_served),
		T(readable_after_writable_is_refused),
		T(a_descriptor_that_points_to_itself_is_refused),
		T(a_loop_through_all_descriptors_is_refused),
		T(a_head_or_next_outside_the_table_is_refused),
		T(an_index_further_ahead_than_the_queue_is_long_is_refused),
		T(buffers_outside_memory_are_refused),
		T(the_last_byte_of_memory_can_be_a_buffer),
		T(an_indirect_table_is_served),
		T(an_indirect_table_may_be_longer_than_the_queue),
		T(two_direct_descriptors_then_an_indirect_one_are_served),
		T(the_write_flag_of_an_indirect_descriptor_means_nothing),
		T(malformed_indirect_tables_are_refused),
		T(an_indirect_descriptor_without_the_feature_is_refused),
		T(more_buffers_than_a_chain_holds_are_refused),
		T(a_pushed_request_appears_in_the_used_ring),
		T(a_push_to_a_queue_taken_away_writes_nothing),
		T(indices_wrap_around),
		T(without_event_idx_the_avail_flag_suppresses_interrupts),
		T(without_event_idx_the_used_flag_suppresses_notifications),
		T(with_event_idx_an_interrupt_comes_when_the_event_is_passed),
		T(with_event_idx_the_event_is_compared_across_the_wrap),
		T(with_event_idx_a_full_circle_without_a_look_interrupts),
		T(with_event_idx_enabling_publishes_the_position),
		T(with_event_idx_depth_1_loses_no_notification),
		T(copies_cross_buffers_and_stop_at_the_end),
		T(iovecs_cover_exactly_what_is_asked),
		T(a_huge_buffer_is_cut_into_several_iovecs),
		T(writes_mark_pages_dirty),
		T(only_sane_queue_layouts_are_valid),
		T(rings_on_top_of_each_other_are_survived),
	};

	return cmocka_run_group_tests_name("virtio_queue", tests, NULL, NULL);
}
