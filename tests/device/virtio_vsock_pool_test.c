/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers behind slow peers: bytes in order, blocks bounded as promised, memory given back. */
#include "tests/device/vsock_driver.h"

#include <sys/mman.h>

static struct machine m;
static struct vsock_pool pool;
static struct virtio_queue queue;
static struct vq_chain chain;

enum { BLOCKS = 1000 };

static int setup(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	machine_init(&m, MIB(16));
	queue = (struct virtio_queue){ .mem = &m.vm.mem };
	return vsock_pool_init(&pool, BLOCKS, &err);
}

static int teardown(void **state)
{
	(void)state;
	assert_int_equal(pool.used, 0);
	vsock_pool_finish(&pool);
	machine_finish(&m);
	return 0;
}

/* Append n bytes of the stream from position pos. */
static int append(struct vsock_buffer *b, uint32_t pos, uint32_t n)
{
	static uint8_t data[VSOCK_WINDOW_LARGE];

	vt_pattern(data, n, 1, pos);
	machine_poke(&m, 4096, data, n);
	chain.nread = 1;
	chain.nwrite = 0;
	chain.read_len = n + 10;
	chain.buf[0] = (struct vq_buf){ GPA(4096 - 10), n + 10 };
	return vsock_buffer_append(&pool, b, &queue, &chain, 10, n);
}

/* Take up to n bytes, which must be the stream's from pos. */
static uint32_t take(struct vsock_buffer *b, uint32_t pos, uint32_t n)
{
	struct iovec iov[3];
	uint32_t done = 0;
	int k = vsock_buffer_iov(&pool, b, iov, 3);

	for (int i = 0; i < k && done < n; i++) {
		uint32_t len = (uint32_t)MIN(iov[i].iov_len, (size_t)(n - done));
		uint8_t want[VSOCK_BLOCK];

		vt_pattern(want, len, 1, pos + done);
		assert_memory_equal(iov[i].iov_base, want, len);
		done += len;
	}
	vsock_buffer_consume(&pool, b, done);
	return done;
}

static void bytes_come_out_in_order_whatever_the_pieces(void **state)
{
	struct vsock_buffer b = { 0 };
	struct rnd rnd = { 9 };
	uint32_t in = 0, out = 0;

	(void)state;
	for (int i = 0; i < 3000; i++) {
		uint32_t n = 1 + rnd_below(&rnd, rnd_below(&rnd, 2) ? 10 : 10000);

		if (b.bytes + n <= VSOCK_WINDOW) {
			assert_int_equal(append(&b, in, n), 0);
			in += n;
		}
		out += take(&b, out, rnd_below(&rnd, 12000));
		/* What the size of the pool rests on. */
		assert_true(pool.used <= VSOCK_WINDOW / VSOCK_BLOCK + 1);
	}
	while (b.bytes)
		out += take(&b, out, 100000);
	assert_int_equal(in, out);
}

static void an_exhausted_pool_says_so_and_recovers(void **state)
{
	static struct vsock_buffer b[BLOCKS + 1];

	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(append(&b[i], 0, 5), 0);
	assert_int_equal(append(&b[BLOCKS], 0, 5), -ENOBUFS);
	assert_int_equal(take(&b[3], 0, 5), 5);
	assert_int_equal(append(&b[BLOCKS], 0, 5), 0);
	for (uint32_t i = 0; i <= BLOCKS; i++)
		if (b[i].bytes)
			assert_int_equal(take(&b[i], 0, 5), 5);
}

static void an_empty_pool_costs_no_memory(void **state)
{
	static struct vsock_buffer b[BLOCKS];
	unsigned char resident[BLOCKS];
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(append(&b[i], 0, VSOCK_BLOCK), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		vsock_buffer_consume(&pool, &b[i], b[i].bytes);
	assert_int_equal(pool.fresh, 0);
	assert_int_equal(mincore(pool.base, (size_t)BLOCKS * VSOCK_BLOCK, resident), 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		n += resident[i] & 1;
	assert_int_equal(n, 0);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_come_out_in_order_whatever_the_pieces),
		TEST(an_exhausted_pool_says_so_and_recovers),
		TEST(an_empty_pool_costs_no_memory),
	};

	return cmocka_run_group_tests_name("virtio_vsock_pool", tests, NULL, NULL);
}
