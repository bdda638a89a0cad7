/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as steps: partial transfers, files without holes, direct I/O that is refused. No file is involved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>

#include "devices/backend/block_io.h"
#include "lib/util.h"

static char memory[8192];

static uint64_t iov_bytes(const struct block_step *s)
{
	uint64_t n = 0;

	for (int i = 0; i < s->niov; i++)
		n += s->iov[i].iov_len;
	return n;
}

static void a_short_read_goes_on_where_it_stopped(void **state)
{
	struct iovec iov[3] = { { memory, 100 }, { memory + 100, 412 }, { memory + 1000, 512 } };
	struct block_request r = { .op = BLOCK_READ, .offset = 4096, .len = 1024, .iov = iov, .niov = 3 };
	struct block_step s;

	(void)state;
	block_io_begin(&r);
	block_io_step(&r, &s);
	assert_int_equal(s.kind, BLOCK_STEP_READ);
	assert_int_equal(s.off, 4096);
	assert_false(block_io_took(&r, 150)); /* all of the first, 50 bytes of the second */
	block_io_step(&r, &s);
	assert_int_equal(s.off, 4096 + 150);
	assert_int_equal(s.niov, 2);
	assert_ptr_equal(s.iov[0].iov_base, memory + 150);
	assert_int_equal(s.iov[0].iov_len, 362);
	assert_false(block_io_took(&r, 362)); /* exactly to a boundary */
	block_io_step(&r, &s);
	assert_int_equal(s.off, 4096 + 512);
	assert_ptr_equal(s.iov[0].iov_base, memory + 1000);
	assert_int_equal(iov_bytes(&s), 512);
	assert_true(block_io_took(&r, 512));
	assert_int_equal(r.result, 0);
}

static void an_interrupted_step_is_repeated(void **state)
{
	struct iovec iov = { memory, 512 };
	struct block_request r = { .op = BLOCK_WRITE, .len = 512, .iov = &iov, .niov = 1 };
	struct block_step s;

	(void)state;
	block_io_begin(&r);
	assert_false(block_io_took(&r, -EINTR));
	block_io_step(&r, &s);
	assert_int_equal(iov_bytes(&s), 512);
	assert_true(block_io_took(&r, -ENOSPC));
	assert_int_equal(r.result, -ENOSPC);
}

static void a_transfer_of_nothing_is_an_error_not_a_loop(void **state)
{
	struct iovec iov = { memory, 512 };
	struct block_request r = { .op = BLOCK_WRITE, .len = 512, .iov = &iov, .niov = 1 };

	(void)state;
	block_io_begin(&r);
	assert_true(block_io_took(&r, 0));
	assert_int_equal(r.result, -EIO);
}

static void refused_direct_io_goes_through_the_cache(void **state)
{
	struct iovec iov = { memory, 512 };
	struct block_request r = { .op = BLOCK_READ, .len = 512, .iov = &iov, .niov = 1, .file = 1, .flags = BLOCK_F_DIRECT };

	(void)state;
	block_io_begin(&r);
	assert_false(block_io_took(&r, -EINVAL));
	assert_int_equal(r.file, 0);
	assert_true(block_io_took(&r, -EINVAL));
	assert_int_equal(r.result, -EINVAL);
}

static void a_durable_write_says_so_to_the_kernel(void **state)
{
	struct iovec iov = { memory, 512 };
	struct block_request r = { .op = BLOCK_WRITE, .len = 512, .iov = &iov, .niov = 1, .flags = BLOCK_F_DURABLE };
	struct block_step s;

	(void)state;
	block_io_begin(&r);
	block_io_step(&r, &s);
	assert_int_equal(s.mode, RWF_DSYNC);
}

static void discard_without_holes_is_nothing(void **state)
{
	struct block_request r = { .op = BLOCK_DISCARD, .len = 4096 };
	struct block_step s;

	(void)state;
	block_io_begin(&r);
	block_io_step(&r, &s);
	assert_int_equal(s.mode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
	assert_true(block_io_took(&r, -EOPNOTSUPP));
	assert_int_equal(r.result, 0);
	block_io_begin(&r);
	assert_true(block_io_took(&r, -EIO));
	assert_int_equal(r.result, -EIO);
}

/* Every byte of the range once, none outside, in steps of which some fall short. */
static void write_zeroes_without_holes_writes_exactly_the_range(void **state)
{
	uint64_t len = MIB(9) + 65536 + 1536, pos = 4096;
	struct block_request r = { .op = BLOCK_WRITE_ZEROES, .offset = pos, .len = len };
	struct block_step s;
	int steps = 0;
	bool finished;

	(void)state;
	block_io_begin(&r);
	block_io_step(&r, &s);
	assert_int_equal(s.kind, BLOCK_STEP_ALLOCATE);
	assert_int_equal(s.mode, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE);
	assert_false(block_io_took(&r, -EOPNOTSUPP));
	do {
		uint64_t n;

		block_io_step(&r, &s);
		assert_int_equal(s.kind, BLOCK_STEP_WRITE);
		assert_int_equal(s.off, pos);
		n = iov_bytes(&s);
		assert_true(n > 0 && pos + n <= 4096 + len);
		for (int i = 0; i < s.niov; i++)
			for (size_t k = 0; k < s.iov[i].iov_len; k += 509)
				assert_int_equal(((const char *)s.iov[i].iov_base)[k], 0);
		if (steps++ % 2 == 0 && n > 100)
			n -= 77; /* a short write, off any boundary */
		pos += n;
		finished = block_io_took(&r, (int64_t)n);
	} while (!finished && steps < 1000);
	assert_true(finished);
	assert_int_equal(pos, 4096 + len);
	assert_int_equal(r.result, 0);
}

static void durable_write_zeroes_ends_with_a_sync(void **state)
{
	struct block_request r = { .op = BLOCK_WRITE_ZEROES, .len = 4096, .flags = BLOCK_F_DURABLE | BLOCK_F_UNMAP };
	struct block_step s;

	(void)state;
	block_io_begin(&r);
	block_io_step(&r, &s);
	assert_int_equal(s.mode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
	assert_false(block_io_took(&r, 0));
	block_io_step(&r, &s);
	assert_int_equal(s.kind, BLOCK_STEP_SYNC);
	assert_true(block_io_took(&r, -EIO));
	assert_int_equal(r.result, -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_short_read_goes_on_where_it_stopped),
		cmocka_unit_test(an_interrupted_step_is_repeated),
		cmocka_unit_test(a_transfer_of_nothing_is_an_error_not_a_loop),
		cmocka_unit_test(refused_direct_io_goes_through_the_cache),
		cmocka_unit_test(a_durable_write_says_so_to_the_kernel),
		cmocka_unit_test(discard_without_holes_is_nothing),
		cmocka_unit_test(write_zeroes_without_holes_writes_exactly_the_range),
		cmocka_unit_test(durable_write_zeroes_ends_with_a_sync),
	};

	return cmocka_run_group_tests_name("block_io", tests, NULL, NULL);
}
