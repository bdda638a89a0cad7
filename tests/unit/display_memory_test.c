/* SPDX-License-Identifier: Apache-2.0 */
/* The display's memory: blocks, without a socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "devices/backend/display.h"

enum { PAGE = 4096, PAGES = 64 };

struct fixture {
	struct loop loop;
	struct log log;
	struct display *d;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;

	assert_non_null(f);
	f->log.fd = -1;
	assert_int_equal(loop_init(&f->loop, &err), 0);
	if (display_open(&f->loop, &f->log, PAGES * PAGE, 1, 1280, 800, NULL, &f->d, &err) < 0)
		fail_msg("%s", err.text);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	display_close(f->d);
	loop_finish(&f->loop);
	free(f);
	return 0;
}

static void blocks_are_page_aligned_zeroed_and_apart(void **state)
{
	struct fixture *f = *state;
	int64_t a = display_alloc(f->d, 1), b = display_alloc(f->d, PAGE + 1);

	assert_int_equal(a % PAGE, 0);
	assert_int_equal(b % PAGE, 0);
	assert_int_equal(b - a, PAGE);
	assert_int_equal(display_memory_used(f->d), 3 * PAGE);
	assert_int_equal(display_bytes(f->d, (uint64_t)b, 2 * PAGE)[2 * PAGE - 1], 0);
}

static void what_was_freed_reads_as_zeros_and_goes_back_to_the_host(void **state)
{
	struct fixture *f = *state;
	int64_t a = display_alloc(f->d, 8 * PAGE);
	struct stat st;

	memset(display_bytes(f->d, (uint64_t)a, 8 * PAGE), 0xff, 8 * PAGE);
	display_free(f->d, (uint64_t)a);
	assert_int_equal(fstat(display_memory_fd(f->d), &st), 0);
	assert_int_equal(st.st_blocks, 0);
	assert_int_equal(display_alloc(f->d, 8 * PAGE), a);
	for (int i = 0; i < 8 * PAGE; i++)
		assert_int_equal(display_bytes(f->d, (uint64_t)a, 8 * PAGE)[i], 0);
}

static void memory_that_is_used_up_is_refused_and_gaps_are_filled(void **state)
{
	struct fixture *f = *state;
	int64_t at[PAGES];

	for (int i = 0; i < PAGES; i++)
		at[i] = display_alloc(f->d, PAGE);
	assert_int_equal(display_alloc(f->d, 1), -ENOMEM);
	display_free(f->d, (uint64_t)at[7]);
	display_free(f->d, (uint64_t)at[9]);
	assert_int_equal(display_alloc(f->d, 2 * PAGE), -ENOMEM); /* two gaps of one page */
	display_free(f->d, (uint64_t)at[8]);
	assert_int_equal(display_alloc(f->d, 3 * PAGE), at[7]);
	assert_int_equal(display_alloc(f->d, 0), -ENOMEM);
	assert_int_equal(display_alloc(f->d, UINT64_MAX), -ENOMEM);
}

static void bytes_are_given_inside_one_block_only(void **state)
{
	struct fixture *f = *state;
	uint64_t a = (uint64_t)display_alloc(f->d, 2 * PAGE), b = (uint64_t)display_alloc(f->d, PAGE);

	assert_non_null(display_bytes(f->d, a, 2 * PAGE));
	assert_non_null(display_bytes(f->d, a + 5, 2 * PAGE - 5));
	assert_null(display_bytes(f->d, a + 5, 2 * PAGE)); /* goes on into the next */
	assert_null(display_bytes(f->d, b + PAGE, 1));     /* nobody's */
	assert_null(display_bytes(f->d, a, UINT64_MAX));
	assert_null(display_bytes(f->d, UINT64_MAX, 1));
	display_free(f->d, a);
	assert_null(display_bytes(f->d, a, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(blocks_are_page_aligned_zeroed_and_apart, setup, teardown),
		cmocka_unit_test_setup_teardown(what_was_freed_reads_as_zeros_and_goes_back_to_the_host, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_that_is_used_up_is_refused_and_gaps_are_filled, setup, teardown),
		cmocka_unit_test_setup_teardown(bytes_are_given_inside_one_block_only, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
