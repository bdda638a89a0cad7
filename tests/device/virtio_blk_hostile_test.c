/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-blk: requests no sane driver makes. Each gets its answer, and the queue stays live. */
#include <sys/eventfd.h>

#include "tests/device/blk_driver.h"

enum { SECTORS = 2048 }; /* of the null disk */

static int setup(void **state)
{
	static struct blk_test t;

	memset(&t, 0, sizeof(t));
	blk_setup(&t, "backend=null,size=1M", VIRTIO_BLK_F_FLUSH | VIRTIO_F_INDIRECT_DESC);
	*state = &t;
	return 0;
}

static int setup_file(void **state)
{
	static struct blk_test t;
	char options[128];

	memset(&t, 0, sizeof(t));
	blk_make_image(&t, SECTORS * 512);
	snprintf(options, sizeof(options), "path=%s", t.image);
	blk_setup(&t, options, VIRTIO_BLK_F_FLUSH | VIRTIO_F_INDIRECT_DESC);
	*state = &t;
	return 0;
}

/* After the nonsense: does an ordinary request still work? */
static int teardown(void **state)
{
	struct blk_test *t = *state;

	assert_false(driver_needs_reset(&t->d));
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
	assert_int_equal(((struct virtio_blk *)t->dev)->host.busy, 0);
	blk_teardown(t);
	return 0;
}

/* A chain as given, header of `type` at *header; returns the used length. */
static uint32_t chain(struct blk_test *t, const struct driver_buf *b, uint16_t n)
{
	driver_add(&t->d, 0, b, n);
	driver_kick(&t->d, 0);
	return blk_wait(t, 0, NULL);
}

static uint8_t peek8(struct blk_test *t, uint64_t gpa)
{
	uint8_t v;

	machine_peek(&t->m, gpa, &v, 1);
	return v;
}

static void a_header_without_a_status_byte_completes_with_length_0(void **state)
{
	struct blk_test *t = *state;
	uint64_t h = driver_alloc(&t->d, 16, 16);

	blk_header(t, h, VIRTIO_BLK_T_IN, 0);
	struct driver_buf b[] = { { h, 16, false } };

	assert_int_equal(chain(t, b, 1), 0);
}

static void a_status_byte_without_a_header_gets_ioerr(void **state)
{
	struct blk_test *t = *state;
	struct driver_buf b[] = { { t->scratch, 1, true } };

	assert_int_equal(chain(t, b, 1), 1);
	assert_int_equal(peek8(t, t->scratch), VIRTIO_BLK_S_IOERR);
}

static void a_header_cut_short_gets_ioerr(void **state)
{
	struct blk_test *t = *state;
	uint64_t h = driver_alloc(&t->d, 16, 16);

	blk_header(t, h, VIRTIO_BLK_T_FLUSH, 0);
	struct driver_buf b[] = { { h, 15, false }, { t->scratch, 1, true } };

	assert_int_equal(chain(t, b, 2), 1);
	assert_int_equal(peek8(t, t->scratch), VIRTIO_BLK_S_IOERR);
}

static void a_header_in_pieces_and_data_with_the_status_are_served(void **state)
{
	struct blk_test *t = *state;
	uint64_t h = driver_alloc(&t->d, 64, 16);

	blk_header(t, h, VIRTIO_BLK_T_IN, 9);
	struct driver_buf b[] = { { h, 5, false }, { h + 5, 6, false }, { h + 11, 5, false }, { t->scratch, 513, true } };

	assert_int_equal(chain(t, b, 4), 513);
	assert_int_equal(peek8(t, t->scratch + 512), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 9 * 512, 512));
}

static void a_header_and_data_in_one_descriptor_are_served(void **state)
{
	struct blk_test *t = *state;
	uint64_t at = t->scratch + 1001;

	blk_fill(t, at + 16, 1024, 77);
	blk_header(t, at, VIRTIO_BLK_T_OUT, 4);
	struct driver_buf b[] = { { at, 16 + 1024, false }, { t->scratch, 1, true } };

	assert_int_equal(chain(t, b, 2), 1);
	assert_int_equal(peek8(t, t->scratch), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, at + 16, 4 * 512, 1024));
}

static void the_indirect_form_of_all_pieces_is_served(void **state)
{
	struct blk_test *t = *state;
	uint64_t h = driver_alloc(&t->d, 64, 16);

	blk_header(t, h, VIRTIO_BLK_T_IN, 0);
	struct driver_buf b[] = { { h, 16, false }, { t->scratch, 0, true }, { t->scratch, 300, true },
				  { t->scratch + 300, 212, true }, { t->scratch + 600, 1, true } };

	driver_add_indirect(&t->d, 0, b, 5);
	driver_kick(&t->d, 0);
	assert_int_equal(blk_wait(t, 0, NULL), 513);
	assert_int_equal(peek8(t, t->scratch + 600), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 0, 512));
}

static void reads_and_writes_outside_the_disk_get_ioerr(void **state)
{
	struct blk_test *t = *state;
	static const struct { uint64_t sector; uint32_t len; } cases[] = {
		{ SECTORS, 512 }, { SECTORS - 1, 1024 }, { SECTORS + 1, 512 }, { UINT64_MAX, 512 }, { UINT64_MAX, 1024 },
		{ UINT64_MAX / 512, 512 }, { UINT64_MAX / 512 + 1, 512 }, { 1ull << 55, 512 }, { 0, (SECTORS + 1) * 512 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, cases[i].sector, t->scratch, cases[i].len), VIRTIO_BLK_S_IOERR);
		assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, cases[i].sector, t->scratch, cases[i].len), VIRTIO_BLK_S_IOERR);
	}
	assert_int_equal(blk_null(t)->served[BLOCK_READ] + blk_null(t)->served[BLOCK_WRITE], 0);
}

static void parts_of_sectors_get_ioerr(void **state)
{
	struct blk_test *t = *state;
	static const uint32_t lens[] = { 1, 511, 513, 1000 };

	for (size_t i = 0; i < ARRAY_SIZE(lens); i++) {
		assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, lens[i]), VIRTIO_BLK_S_IOERR);
		assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 0, t->scratch, lens[i]), VIRTIO_BLK_S_IOERR);
	}
}

static void a_transfer_of_nothing_succeeds_inside_the_disk_only(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, 0, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, SECTORS, 0, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, SECTORS + 1, 0, 0), VIRTIO_BLK_S_IOERR);
}

static void unknown_types_get_unsupp(void **state)
{
	struct blk_test *t = *state;
	static const uint32_t types[] = { 2, 3, 5, 9, 10, 12, 14, 15, 16, 26, 0x80000000u, UINT32_MAX };

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		assert_int_equal(blk_do(t, types[i], 0, t->scratch, 512), VIRTIO_BLK_S_UNSUPP);
}

static void more_segments_than_announced_get_ioerr(void **state)
{
	struct blk_test *t = *state;
	struct driver_buf b[BLK_SEG_MAX + 3];
	uint64_t h = driver_alloc(&t->d, 16, 16), s = driver_alloc(&t->d, 1, 1);

	blk_header(t, h, VIRTIO_BLK_T_IN, 0);
	b[0] = (struct driver_buf){ h, 16, false };
	for (int i = 0; i <= BLK_SEG_MAX; i++)
		b[1 + i] = (struct driver_buf){ t->scratch + (uint64_t)i * 512, 512, true };
	b[BLK_SEG_MAX + 2] = (struct driver_buf){ s, 1, true };
	driver_add_indirect(&t->d, 0, b, BLK_SEG_MAX + 3);
	driver_kick(&t->d, 0);
	assert_int_equal(blk_wait(t, 0, NULL), 1);
	assert_int_equal(peek8(t, s), VIRTIO_BLK_S_IOERR);
}

static void discards_outside_the_disk_get_ioerr(void **state)
{
	struct blk_test *t = *state;
	const struct virtio_blk_range cases[] = {
		blk_range(SECTORS, 1, 0), blk_range(SECTORS - 1, 2, 0), blk_range(UINT64_MAX, 1, 0), blk_range(UINT64_MAX, 2, 0),
		blk_range(0, BLK_DISCARD_SECTORS_MAX + 1, 0), blk_range(0, UINT32_MAX, 0), blk_range(SECTORS + 1, 0, 0),
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, &cases[i], 1), VIRTIO_BLK_S_IOERR);
		assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &cases[i], 1), VIRTIO_BLK_S_IOERR);
	}
}

static void one_bad_range_spoils_the_request_before_it_starts(void **state)
{
	struct blk_test *t = *state;
	const struct virtio_blk_range g[] = { blk_range(0, 8, 0), blk_range(SECTORS, 8, 0) };

	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, g, 2), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_null(t)->served[BLOCK_WRITE_ZEROES], 0);
}

static void unknown_range_flags_get_unsupp(void **state)
{
	struct blk_test *t = *state;
	const struct virtio_blk_range unmap = blk_range(0, 8, 1), other = blk_range(0, 8, 2), all = blk_range(0, 8, UINT32_MAX);

	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, &unmap, 1), VIRTIO_BLK_S_UNSUPP);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, &other, 1), VIRTIO_BLK_S_UNSUPP);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &other, 1), VIRTIO_BLK_S_UNSUPP);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &all, 1), VIRTIO_BLK_S_UNSUPP);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &unmap, 1), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_null(t)->last_flags & BLOCK_F_UNMAP, BLOCK_F_UNMAP);
}

static void a_wrong_number_of_ranges_gets_ioerr(void **state)
{
	struct blk_test *t = *state;
	struct virtio_blk_range g[BLK_RANGES_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(g); i++)
		g[i] = blk_range(i, 1, 0);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, g, BLK_RANGES_MAX + 1), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, g, BLK_RANGES_MAX), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_null(t)->served[BLOCK_DISCARD], BLK_RANGES_MAX);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_DISCARD, 0, 0, 0), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_DISCARD, 0, t->scratch, 15), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_WRITE_ZEROES, 0, t->scratch, 17), VIRTIO_BLK_S_IOERR);
}

static void a_small_buffer_gets_the_start_of_the_serial_number(void **state)
{
	struct blk_test *t = *state;
	const uint8_t guard[6] = { 9, 9, 9, 9, 9, 9 };
	uint8_t got[6];

	machine_poke(&t->m, t->scratch, guard, sizeof(guard));
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_GET_ID, 0, t->scratch, 4), VIRTIO_BLK_S_OK);
	machine_peek(&t->m, t->scratch, got, sizeof(got));
	assert_int_equal(got[3], 0);
	assert_int_equal(got[4], 9);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_GET_ID, 0, 0, 0), VIRTIO_BLK_S_OK);
}

static void more_requests_than_the_queue_has_entries_wait(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;
	struct blk_req r = blk_add(t, 0, VIRTIO_BLK_T_IN, 0, t->scratch, 512);
	uint32_t done = 0;

	blk_null(t)->hold = true;
	/* The same head again and again, with the index running ahead of what was ever used. */
	for (int i = 1; i < BLK_QUEUE_SIZE; i++)
		driver_publish(d, 0, r.head);
	driver_kick(d, 0);
	assert_int_equal(((struct virtio_blk *)t->dev)->host.busy, BLK_QUEUE_SIZE);
	for (int i = 0; i < 50; i++)
		driver_publish(d, 0, r.head);
	driver_kick(d, 0);
	assert_int_equal(((struct virtio_blk *)t->dev)->host.busy, BLK_QUEUE_SIZE);
	assert_false(driver_used(d, 0, NULL, NULL));
	blk_null(t)->hold = false;
	eventfd_write(blk_null(t)->b.event_fd, 1);
	machine_settle(&t->m);
	while (driver_used(d, 0, NULL, NULL))
		done++;
	assert_int_equal(done, BLK_QUEUE_SIZE + 50);
}

static void a_read_into_the_rings_hurts_only_the_guest(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;
	struct blk_req r = blk_add(t, 0, VIRTIO_BLK_T_IN, 0, d->q[0].desc, 4096);

	(void)r;
	driver_kick(d, 0);
	machine_settle(&t->m);
	driver_start(d, VIRTIO_BLK_F_FLUSH, 0);
}

static void a_looping_chain_stops_the_device_until_reset(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;

	driver_desc(d, d->q[0].desc, 0, t->scratch, 16, DRIVER_DESC_NEXT, 1);
	driver_desc(d, d->q[0].desc, 1, t->scratch, 16, DRIVER_DESC_NEXT, 0);
	driver_publish(d, 0, 0);
	driver_kick(d, 0);
	assert_true(driver_needs_reset(d));
	driver_start(d, VIRTIO_BLK_F_FLUSH, 0);
}

#define HOSTILE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define WITH_FILE(fn) cmocka_unit_test_setup_teardown(fn, setup_file, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		HOSTILE(a_header_without_a_status_byte_completes_with_length_0),
		HOSTILE(a_status_byte_without_a_header_gets_ioerr),
		HOSTILE(a_header_cut_short_gets_ioerr),
		WITH_FILE(a_header_in_pieces_and_data_with_the_status_are_served),
		WITH_FILE(a_header_and_data_in_one_descriptor_are_served),
		WITH_FILE(the_indirect_form_of_all_pieces_is_served),
		HOSTILE(reads_and_writes_outside_the_disk_get_ioerr),
		HOSTILE(parts_of_sectors_get_ioerr),
		HOSTILE(a_transfer_of_nothing_succeeds_inside_the_disk_only),
		HOSTILE(unknown_types_get_unsupp),
		HOSTILE(more_segments_than_announced_get_ioerr),
		HOSTILE(discards_outside_the_disk_get_ioerr),
		HOSTILE(one_bad_range_spoils_the_request_before_it_starts),
		HOSTILE(unknown_range_flags_get_unsupp),
		HOSTILE(a_wrong_number_of_ranges_gets_ioerr),
		HOSTILE(a_small_buffer_gets_the_start_of_the_serial_number),
		HOSTILE(more_requests_than_the_queue_has_entries_wait),
		HOSTILE(a_read_into_the_rings_hurts_only_the_guest),
		HOSTILE(a_looping_chain_stops_the_device_until_reset),
	};

	return cmocka_run_group_tests_name("virtio_blk_hostile", tests, NULL, NULL);
}
