/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-gpu (virtio 1.2, 5.7): drawing. Pixels from the guest to the display, damage, scanouts, blobs, cursors. */
#include "tests/device/gpu_driver.h"

enum { W = GPU_TEST_W, H = GPU_TEST_H, STRIDE = W * 4, BYTES = STRIDE * H, OK = VIRTIO_GPU_RESP_OK_NODATA };

static int setup(void **ctx)
{
	static struct gpu_test t;

	gpu_begin(&t);
	*ctx = &t;
	return 0;
}

static int teardown(void **ctx)
{
	gpu_end(*ctx);
	return 0;
}

static void it_is_a_display_adapter_with_edid_and_blobs(void **ctx)
{
	struct gpu_test *t = *ctx;

	assert_int_equal(driver_reg(&t->d, MMIO_DEVICE_ID), 16);
	assert_int_equal(driver_offered(&t->d) & 0xffffff, VIRTIO_GPU_F_EDID | VIRTIO_GPU_F_RESOURCE_BLOB);
	assert_int_equal(driver_config(&t->d, 0, 4), 0);
	assert_int_equal(driver_config(&t->d, 8, 4), 2);
	assert_int_equal(driver_config(&t->d, 12, 4), 0);
}

static void a_picture_reaches_the_display(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t picture[BYTES];

	gpu_picture(t, picture);
	assert_true(gpu_sees(t, 0, picture, STRIDE));
	assert_int_equal(gpu_surface(t, 0)->format, DISPLAY_B8G8R8X8);
	assert_int_equal(gpu_surface(t, 1)->width, 0);
	assert_int_equal(t->m.vm.display->frame, 2); /* the scanout's change, the flush */
}

static void a_rectangle_is_all_that_a_transfer_changes(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t old[BYTES], new[BYTES];
	const uint8_t *p;

	gpu_picture(t, old);
	gpu_fill(t, GPU_TEST_PIXELS, new, BYTES, 8);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(5, 7, 20, 30), 7 * STRIDE + 5 * 4), OK);
	p = gpu_seen(t, 0);
	for (uint32_t y = 0; y < H; y++)
		for (uint32_t x = 0; x < W; x++)
			assert_memory_equal(p + y * STRIDE + x * 4, (x >= 5 && x < 25 && y >= 7 && y < 37 ? new : old) + y * STRIDE + x * 4, 4);
}

static void a_transfer_may_begin_anywhere_in_the_backing(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t old[BYTES];

	gpu_picture(t, old);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 2, 1), 4 * STRIDE + 3), OK);
	assert_memory_equal(gpu_seen(t, 0), old + 4 * STRIDE + 3, 8);
	/* The last byte it reads is the backing's last. */
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 1, 1), BYTES - 4), OK);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 1, 1), BYTES - 3), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 1, 2), BYTES - 4 - STRIDE), OK);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 1, 2), BYTES - 4 - STRIDE + 1), VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
}

/* Pieces of all kinds of lengths, in no order, with one byte ones, empty ones and neighbours among them. */
static void a_backing_may_be_scattered(void **ctx)
{
	enum { PIECES = 1500 };
	struct gpu_test *t = *ctx;
	static struct gpu_entry_wire e[PIECES + 1];
	uint8_t picture[BYTES];
	uint64_t place = GPU_TEST_PIXELS + MIB(1);
	struct rnd r = { 3 };
	uint32_t at = 0, n = 0;

	gpu_fill(t, GPU_TEST_PIXELS, picture, BYTES, 9);
	while (at < BYTES) {
		uint32_t len = n == PIECES ? BYTES - at : MIN(rnd_below(&r, 66), BYTES - at);

		place = rnd_below(&r, 4) ? GPU_TEST_PIXELS + MIB(1) + (uint64_t)n * 1024 + rnd_below(&r, 512) : place;
		machine_poke(&t->m, place, picture + at, len);
		e[n++] = gpu_piece(place, len);
		place += len;
		at += len;
	}
	assert_int_equal(gpu_create(t, 1, DISPLAY_B8G8R8A8, W, H), OK);
	assert_int_equal(gpu_attach(t, 1, e, n), OK);
	assert_true(gpu_find(t->gpu, 1)->backing.nentries < n);
	assert_int_equal(gpu_show(t, 0, 1, gpu_r(0, 0, W, H)), OK);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, W, H), 0), OK);
	assert_true(gpu_sees(t, 0, picture, STRIDE));
	for (uint32_t i = 0; i < 200; i++) {
		uint32_t x = rnd_below(&r, W), y = rnd_below(&r, H), w = 1 + rnd_below(&r, W - x), h = 1 + rnd_below(&r, H - y);

		memset(display_bytes(t->m.vm.display, gpu_surface(t, 0)->offset, BYTES), 0, BYTES);
		assert_int_equal(gpu_transfer(t, 1, gpu_r(x, y, w, h), y * STRIDE + x * 4), OK);
		for (uint32_t line = y; line < y + h; line++)
			assert_memory_equal(gpu_seen(t, 0) + line * STRIDE + x * 4, picture + line * STRIDE + x * 4, w * 4);
	}
}

static void every_format_is_shown_as_it_is(void **ctx)
{
	static const uint32_t formats[] = { 1, 2, 3, 4, 67, 68, 121, 134 };
	struct gpu_test *t = *ctx;

	for (uint32_t f = 0; f < 200; f++) {
		bool known = false;

		for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
			known |= formats[i] == f;
		assert_int_equal(gpu_create(t, 9, f, 64, 64), known ? OK : VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER);
		if (!known)
			continue;
		assert_int_equal(gpu_show(t, 1, 9, gpu_r(0, 0, 64, 64)), OK);
		assert_int_equal(gpu_surface(t, 1)->format, f);
		assert_int_equal(gpu_unref(t, 9), OK);
	}
}

static void part_of_a_resource_may_be_shown(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t picture[BYTES];

	gpu_picture(t, picture);
	assert_int_equal(gpu_show(t, 1, 1, gpu_r(3, 5, 64, 70)), OK);
	assert_int_equal(gpu_surface(t, 1)->stride, STRIDE);
	assert_true(gpu_sees(t, 1, picture + 5 * STRIDE + 3 * 4, STRIDE));
	assert_true(gpu_sees(t, 0, picture, STRIDE));
	/* Of one flush each scanout gets its part. */
	t->m.vm.display->scanout[0].pending.n = t->m.vm.display->scanout[1].pending.n = 0;
	t->m.vm.display->changed = false;
	uint64_t frame = t->m.vm.display->frame;

	assert_int_equal(gpu_flush_rect(t, 1, gpu_r(100, 0, 28, 96)), OK); /* right of what 1 shows */
	assert_int_equal(t->m.vm.display->frame, frame + 1);
	assert_int_equal(gpu_show(t, 0, 0, gpu_r(0, 0, 0, 0)), OK);
	assert_int_equal(gpu_surface(t, 0)->width, 0);
	frame = t->m.vm.display->frame;
	assert_int_equal(gpu_flush_rect(t, 1, gpu_r(100, 0, 28, 96)), OK);
	assert_int_equal(t->m.vm.display->frame, frame); /* nobody shows that */
}

static void what_is_dropped_is_not_shown(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t picture[BYTES];
	uint64_t used = display_memory_used(t->m.vm.display);

	gpu_picture(t, picture);
	assert_int_equal(gpu_show(t, 1, 1, gpu_r(0, 0, W, H)), OK);
	assert_int_equal(gpu_unref(t, 1), OK);
	assert_int_equal(gpu_surface(t, 0)->width, 0);
	assert_int_equal(gpu_surface(t, 1)->width, 0);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
	assert_int_equal(gpu_unref(t, 1), VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID);
}

static void a_new_resource_is_black(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t picture[BYTES], black[BYTES] = { 0 };

	gpu_picture(t, picture);
	assert_int_equal(gpu_unref(t, 1), OK);
	assert_int_equal(gpu_create(t, 1, DISPLAY_B8G8R8X8, W, H), OK);
	assert_int_equal(gpu_show(t, 0, 1, gpu_r(0, 0, W, H)), OK);
	assert_true(gpu_sees(t, 0, black, STRIDE));
}

static void a_detached_backing_is_not_read(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, BYTES);
	uint8_t picture[BYTES];

	gpu_picture(t, picture);
	assert_int_equal(gpu_attach(t, 1, &e, 1), VIRTIO_GPU_RESP_ERR_UNSPEC); /* it has one */
	assert_int_equal(gpu_only(t, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, 1), OK);
	assert_int_equal(gpu_only(t, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, 1), VIRTIO_GPU_RESP_ERR_UNSPEC);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, W, H), 0), VIRTIO_GPU_RESP_ERR_UNSPEC);
	assert_true(gpu_sees(t, 0, picture, STRIDE));
	assert_int_equal(gpu_attach(t, 1, &e, 1), OK);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, W, H), 0), OK);
}

static void a_blob_is_shown_when_it_is_flushed(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e[] = { gpu_piece(GPU_TEST_PIXELS + 8192, 8192), gpu_piece(GPU_TEST_PIXELS, 4096),
					    gpu_piece(GPU_TEST_PIXELS + MIB(1), BYTES) };
	struct gpu_set_scanout_blob c = gpu_blob_frame(0, 4, W, H, STRIDE + 64);
	uint8_t memory[BYTES + 12288];

	assert_int_equal(gpu_blob(t, 4, (STRIDE + 64) * H, e, 3), OK);
	gpu_fill(t, GPU_TEST_PIXELS + 8192, memory, 8192, 1);
	gpu_fill(t, GPU_TEST_PIXELS, memory + 8192, 4096, 2);
	gpu_fill(t, GPU_TEST_PIXELS + MIB(1), memory + 12288, BYTES, 3);
	GPU_OK(t, c);
	assert_true(gpu_sees(t, 0, memory, STRIDE + 64));
	assert_int_equal(gpu_surface(t, 0)->format, DISPLAY_B8G8R8X8);
	/* New pixels stay unseen until the flush, and then only its rectangle comes. */
	uint8_t before[BYTES + 12288];

	memcpy(before, memory, sizeof(memory));
	gpu_fill(t, GPU_TEST_PIXELS + 8192, memory, 8192, 4);
	assert_true(gpu_sees(t, 0, before, STRIDE + 64));
	assert_int_equal(gpu_flush_rect(t, 4, gpu_r(0, 0, W, 2)), OK);
	memcpy(before, memory, 2 * (STRIDE + 64));
	assert_true(gpu_sees(t, 0, before, STRIDE + 64));
	/* Drivers transfer blobs, too, and mean nothing by it. */
	assert_int_equal(gpu_transfer(t, 4, gpu_r(0, 0, W, H), 0), OK);
	assert_int_equal(gpu_flush_rect(t, 4, gpu_r(0, 0, W, H)), OK);
	assert_true(gpu_sees(t, 0, memory, STRIDE + 64));
}

static void part_of_a_blobs_frame_may_be_shown_with_an_offset(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, BYTES + 100);
	struct gpu_set_scanout_blob c = gpu_blob_frame(1, 4, W, H, STRIDE);
	uint8_t memory[BYTES + 100];

	gpu_fill(t, GPU_TEST_PIXELS, memory, sizeof(memory), 1);
	assert_int_equal(gpu_blob(t, 4, sizeof(memory), &e, 1), OK);
	c.r = gpu_r(10, 20, 70, 72);
	c.offsets[0] = le32_make(100);
	GPU_OK(t, c);
	assert_true(gpu_sees(t, 1, memory + 100 + 20 * STRIDE + 40, STRIDE));
	gpu_fill(t, GPU_TEST_PIXELS, memory, sizeof(memory), 2);
	assert_int_equal(gpu_flush_rect(t, 4, gpu_r(0, 0, W, H)), OK);
	assert_true(gpu_sees(t, 1, memory + 100 + 20 * STRIDE + 40, STRIDE));
}

static void flipping_between_blobs_costs_no_memory(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e[] = { gpu_piece(GPU_TEST_PIXELS, BYTES), gpu_piece(GPU_TEST_PIXELS + MIB(1), BYTES) };
	struct gpu_set_scanout_blob c = gpu_blob_frame(0, 4, W, H, STRIDE), d = gpu_blob_frame(0, 5, W, H, STRIDE);
	uint8_t one[BYTES], two[BYTES];
	uint64_t used = display_memory_used(t->m.vm.display);

	gpu_fill(t, GPU_TEST_PIXELS, one, BYTES, 1);
	gpu_fill(t, GPU_TEST_PIXELS + MIB(1), two, BYTES, 2);
	assert_int_equal(gpu_blob(t, 4, BYTES, &e[0], 1), OK);
	assert_int_equal(gpu_blob(t, 5, BYTES, &e[1], 1), OK);
	for (int i = 0; i < 5; i++) {
		GPU_OK(t, c);
		assert_true(gpu_sees(t, 0, one, STRIDE));
		GPU_OK(t, d);
		assert_true(gpu_sees(t, 0, two, STRIDE));
		assert_int_equal(display_memory_used(t->m.vm.display), used + BYTES);
	}
	assert_int_equal(gpu_unref(t, 5), OK);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
	assert_int_equal(gpu_surface(t, 0)->width, 0);
}

static void cursors_have_images_of_their_own(void **ctx)
{
	static const struct {
		uint32_t format;
		uint8_t bgra[4]; /* where each is in a pixel; 4: it is opaque */
	} cases[] = { { DISPLAY_B8G8R8A8, { 0, 1, 2, 3 } }, { DISPLAY_B8G8R8X8, { 0, 1, 2, 4 } }, { DISPLAY_A8R8G8B8, { 3, 2, 1, 0 } },
		      { DISPLAY_X8R8G8B8, { 3, 2, 1, 4 } }, { DISPLAY_R8G8B8A8, { 2, 1, 0, 3 } }, { DISPLAY_X8B8G8R8, { 1, 2, 3, 4 } },
		      { DISPLAY_A8B8G8R8, { 1, 2, 3, 0 } }, { DISPLAY_R8G8B8X8, { 2, 1, 0, 4 } } };
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, GPU_CURSOR_BYTES);
	const struct display_scanout_state *s = &t->m.vm.display->scanout[1];
	uint8_t image[GPU_CURSOR_BYTES];

	gpu_fill(t, GPU_TEST_PIXELS, image, sizeof(image), 5);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const uint8_t *p;

		assert_int_equal(gpu_create(t, 2, cases[i].format, 64, 64), OK);
		assert_int_equal(gpu_attach(t, 2, &e, 1), OK);
		assert_int_equal(gpu_transfer(t, 2, gpu_r(0, 0, 64, 64), 0), OK);
		assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 1, 2, 100, 200, 3), OK);
		assert_int_equal(gpu_unref(t, 2), OK); /* the image stays */
		assert_true(s->cursor_visible);
		assert_int_equal(s->cursor_x, 103);
		assert_int_equal(s->cursor_y, 204);
		assert_int_equal(s->hot_x, 3);
		assert_int_equal(s->hot_y, 4);
		p = display_bytes(t->m.vm.display, s->cursor_offset, GPU_CURSOR_BYTES);
		for (size_t k = 0; k < GPU_CURSOR_BYTES; k += 4)
			for (size_t b = 0; b < 4; b++)
				assert_int_equal(p[k + b], cases[i].bgra[b] == 4 ? 0xff : image[k + cases[i].bgra[b]]);
	}
	assert_int_equal(s->cursor_serial, ARRAY_SIZE(cases));
	assert_false(t->m.vm.display->scanout[0].cursor_visible);
}

static void a_cursor_moves_and_hides(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct display_scanout_state *s = &t->m.vm.display->scanout[0];
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, GPU_CURSOR_BYTES);
	uint8_t image[GPU_CURSOR_BYTES];

	gpu_fill(t, GPU_TEST_PIXELS, image, sizeof(image), 5);
	assert_int_equal(gpu_blob(t, 2, GPU_CURSOR_BYTES, &e, 1), OK); /* a blob will do */
	assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, 2, 0, 0, 8), OK);
	assert_memory_equal(display_bytes(t->m.vm.display, s->cursor_offset, GPU_CURSOR_BYTES), image, GPU_CURSOR_BYTES);
	assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_MOVE_CURSOR, 0, 0, (uint32_t)-5, (uint32_t)-50, 0), OK);
	assert_int_equal(s->cursor_x, 3);
	assert_int_equal(s->cursor_y, 0);
	assert_true(s->cursor_visible);
	assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, 0, 9, 9, 0), OK);
	assert_false(s->cursor_visible);
}

static void the_cursor_queue_needs_no_room_for_answers(void **ctx)
{
	struct gpu_test *t = *ctx;
	struct gpu_cursor_command c = { .h = gpu_header(VIRTIO_GPU_CMD_MOVE_CURSOR), .x = le32_make(77) };

	assert_int_equal(gpu_send(t, &c, sizeof(c), 0), 0);
	assert_int_equal(t->used, 0);
	assert_int_equal(t->m.vm.display->scanout[0].cursor_x, 77);
}

static void a_reset_takes_everything_away(void **ctx)
{
	struct gpu_test *t = *ctx;
	struct gpu_set_scanout_blob c = gpu_blob_frame(1, 4, W, H, STRIDE);
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, BYTES);
	uint64_t used = display_memory_used(t->m.vm.display);
	uint8_t picture[BYTES];

	gpu_picture(t, picture);
	assert_int_equal(gpu_blob(t, 4, BYTES, &e, 1), OK);
	GPU_OK(t, c);
	assert_int_equal(gpu_create(t, 2, DISPLAY_B8G8R8A8, 64, 64), OK);
	assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, 2, 1, 1, 1), OK);
	driver_set_reg(&t->d, MMIO_STATUS, 0);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(gpu_surface(t, i)->width, 0);
		assert_false(t->m.vm.display->scanout[i].cursor_visible);
	}
	driver_start(&t->d, GPU_TEST_FEATURES, 0);
	t->in = driver_alloc(&t->d, 1 << 20, 4096);
	gpu_picture(t, picture);
	assert_true(gpu_sees(t, 0, picture, STRIDE));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_is_a_display_adapter_with_edid_and_blobs),
		T(a_picture_reaches_the_display),
		T(a_rectangle_is_all_that_a_transfer_changes),
		T(a_transfer_may_begin_anywhere_in_the_backing),
		T(a_backing_may_be_scattered),
		T(every_format_is_shown_as_it_is),
		T(part_of_a_resource_may_be_shown),
		T(what_is_dropped_is_not_shown),
		T(a_new_resource_is_black),
		T(a_detached_backing_is_not_read),
		T(a_blob_is_shown_when_it_is_flushed),
		T(part_of_a_blobs_frame_may_be_shown_with_an_offset),
		T(flipping_between_blobs_costs_no_memory),
		T(cursors_have_images_of_their_own),
		T(a_cursor_moves_and_hides),
		T(the_cursor_queue_needs_no_room_for_answers),
		T(a_reset_takes_everything_away),
	};

	return cmocka_run_group_tests_name("virtio_gpu", tests, NULL, NULL);
}
