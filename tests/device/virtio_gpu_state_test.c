/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-gpu: saved and loaded. The screen after it is the one before, pixel by pixel; what it cannot have been is refused. */
#include "tests/device/gpu_driver.h"

enum { W = GPU_TEST_W, H = GPU_TEST_H, STRIDE = W * 4, BYTES = STRIDE * H, OK = VIRTIO_GPU_RESP_OK_NODATA };

struct fixture {
	struct gpu_test a, b; /* b: a fresh machine */
	uint8_t *blob;
	size_t len;
};

static int setup(void **ctx)
{
	static struct fixture f;

	gpu_begin(&f.a);
	gpu_begin(&f.b);
	f.blob = NULL;
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	free(f->blob);
	gpu_end(&f->a);
	gpu_end(&f->b);
	return 0;
}

static void save(struct fixture *f)
{
	size_t room = device_saved_size(f->a.dev);
	long n;

	assert_int_equal(device_quiesce(f->a.dev), 0);
	f->blob = malloc(room);
	n = device_save(f->a.dev, f->blob, room);
	assert_true(n > 0 && (size_t)n <= room && room <= device_saved_max(f->a.dev));
	assert_int_equal(device_save(f->a.dev, f->blob, room - 1), -ENOSPC);
	f->len = (size_t)n;
}

/* Save a, load into b with the memory of a. */
static void move(struct fixture *f)
{
	static uint8_t page[1 << 20];
	struct err err = ERR_INIT;

	save(f);
	if (device_load(f->b.dev, f->blob, f->len, &err) < 0)
		fail_msg("%s", err.text);
	for (uint64_t at = 0; at < GPU_TEST_RAM; at += sizeof(page)) {
		machine_peek(&f->a.m, at, page, sizeof(page));
		machine_poke(&f->b.m, at, page, sizeof(page));
	}
	memcpy(f->b.d.q, f->a.d.q, sizeof(f->a.d.q));
	device_resume(f->b.dev);
	device_resume(f->a.dev);
}

static void the_screen_is_equal(void **ctx)
{
	struct fixture *f = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS + MIB(1), BYTES);
	struct gpu_set_scanout_blob c = gpu_blob_frame(1, 9, W, H, STRIDE);
	uint8_t picture[BYTES], blob[BYTES], later[BYTES];

	gpu_picture(&f->a, picture);
	gpu_fill(&f->a, GPU_TEST_PIXELS + MIB(1), blob, BYTES, 4);
	assert_int_equal(gpu_blob(&f->a, 9, BYTES, &e, 1), OK);
	GPU_OK(&f->a, c);
	/* Drawn, but not flushed: not to be seen, neither before nor after. */
	gpu_fill(&f->a, GPU_TEST_PIXELS + MIB(1), later, BYTES, 5);
	gpu_fill(&f->a, GPU_TEST_PIXELS, later, BYTES, 6);
	move(f);
	assert_true(gpu_sees(&f->b, 0, picture, STRIDE));
	assert_true(gpu_sees(&f->b, 1, blob, STRIDE));
	assert_int_equal(gpu_surface(&f->b, 0)->width, W);
	assert_int_equal(gpu_surface(&f->b, 0)->height, H);
	assert_int_equal(gpu_surface(&f->b, 0)->format, DISPLAY_B8G8R8X8);
	/* And it can be drawn on, from the same backing. */
	assert_int_equal(gpu_transfer(&f->b, 1, gpu_r(0, 0, W, H), 0), OK);
	assert_true(gpu_sees(&f->b, 0, later, STRIDE));
	assert_int_equal(gpu_unref(&f->b, 1), OK);
	assert_int_equal(gpu_unref(&f->b, 9), OK);
	assert_int_equal(gpu_surface(&f->b, 1)->width, 0);
}

static void cursors_and_wishes_come_along(void **ctx)
{
	struct fixture *f = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, GPU_CURSOR_BYTES);
	const struct display_scanout_state *s = &f->b.m.vm.display->scanout[1];
	uint8_t image[GPU_CURSOR_BYTES];

	gpu_fill(&f->a, GPU_TEST_PIXELS, image, sizeof(image), 5);
	assert_int_equal(gpu_blob(&f->a, 2, GPU_CURSOR_BYTES, &e, 1), OK);
	assert_int_equal(gpu_cursor(&f->a, VIRTIO_GPU_CMD_UPDATE_CURSOR, 1, 2, 100, 50, 9), OK);
	assert_int_equal(gpu_unref(&f->a, 2), OK);
	gpu_mode(f->a.gpu, 0, 1600, 900);
	move(f);
	assert_true(s->cursor_visible);
	assert_int_equal(s->cursor_x, 109);
	assert_int_equal(s->hot_y, 10);
	assert_memory_equal(display_bytes(f->b.m.vm.display, s->cursor_offset, GPU_CURSOR_BYTES), image, sizeof(image));
	assert_false(f->b.m.vm.display->scanout[0].cursor_visible);
	assert_int_equal(f->b.m.vm.display->scanout[0].wanted_width, 1600);
	assert_int_equal(driver_config(&f->b.d, 0, 4), VIRTIO_GPU_EVENT_DISPLAY);
	driver_set_reg(&f->b.d, MMIO_STATUS, 0);
	assert_int_equal(f->b.gpu->state.scanout[0].mode_width, 1600);
}

static void what_was_never_drawn_costs_little(void **ctx)
{
	struct fixture *f = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, 4096 * 4);
	uint8_t pixels[4096 * 4];
	size_t empty;

	save(f);
	empty = f->len;
	free(f->blob);
	device_resume(f->a.dev);
	assert_int_equal(gpu_create(&f->a, 1, 1, 2048, 2048), OK); /* 16 MiB */
	assert_int_equal(gpu_attach(&f->a, 1, &e, 1), OK);
	save(f);
	assert_true(f->len < empty + 1024);
	assert_true(device_saved_size(f->a.dev) < empty + 1024);
	free(f->blob);
	device_resume(f->a.dev);
	/* Two pages of it, in line 1000. */
	gpu_fill(&f->a, GPU_TEST_PIXELS, pixels, sizeof(pixels), 1);
	assert_int_equal(gpu_transfer(&f->a, 1, gpu_r(0, 1000, 2048, 1), 0), OK);
	save(f);
	assert_true(f->len < empty + 1024 + 2 * 4096);
	free(f->blob);
	device_resume(f->a.dev);
	move(f);
	assert_memory_equal(display_bytes(f->b.m.vm.display, gpu_find(f->b.gpu, 1)->pixels + 1000 * 8192, 8192), pixels, 8192);
}

/* The display's memory is in pieces; loading needs no more than there was. */
static void a_fragmented_memory_can_be_loaded(void **ctx)
{
	struct fixture *f = *ctx;
	uint32_t n = 0;

	while (gpu_create(&f->a, n + 1, 1, 512, 512) == OK)
		n++;
	for (uint32_t i = 1; i <= n; i += 3)
		assert_int_equal(gpu_unref(&f->a, i), OK);
	while (gpu_create(&f->a, ++n, 1, 300, 300) == OK)
		;
	move(f);
	assert_int_equal(display_memory_used(f->b.m.vm.display), display_memory_used(f->a.m.vm.display));
}

static void another_number_of_scanouts_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct gpu_test other;
	struct err err = ERR_INIT;

	save(f);
	gpu_begin_with(&other, "scanouts=1,memory=32M", GPU_TEST_FEATURES);
	assert_int_equal(device_load(other.dev, f->blob, f->len, &err), -EINVAL);
	assert_string_equal(err.text, "gpu0: the guest knows 2 scanouts, this display has 1");
	gpu_end(&other);
}

static void less_memory_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct gpu_test other;
	struct err err = ERR_INIT;

	assert_int_equal(gpu_create(&f->a, 1, 1, 2048, 2048), OK);
	save(f);
	gpu_begin_with(&other, "scanouts=2,memory=16M", GPU_TEST_FEATURES);
	assert_int_equal(device_load(other.dev, f->blob, f->len, &err), -ENOMEM);
	assert_non_null(strstr(err.text, "resource 1 of 2048x2048: memory of the display (16 MiB)"));
	gpu_end(&other);
}

static void cut_off_or_longer_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const struct gpu_entry_wire e[] = { gpu_piece(GPU_TEST_PIXELS, 64), gpu_piece(GPU_TEST_PIXELS + 128, GPU_CURSOR_BYTES) };
	uint64_t used = display_memory_used(f->b.m.vm.display);
	uint8_t *longer, pixels[GPU_CURSOR_BYTES];
	size_t lists;

	save(f);
	lists = f->len - 8; /* what follows begins with the extra part's length */
	free(f->blob);
	device_resume(f->a.dev);
	assert_int_equal(gpu_create(&f->a, 1, 1, 64, 64), OK);
	assert_int_equal(gpu_attach(&f->a, 1, e, 2), OK);
	gpu_fill(&f->a, GPU_TEST_PIXELS + 128, pixels, sizeof(pixels), 1);
	assert_int_equal(gpu_transfer(&f->a, 1, gpu_r(0, 0, 64, 64), 0), OK);
	assert_int_equal(gpu_cursor(&f->a, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, 1, 0, 0, 0), OK);
	assert_int_equal(gpu_show(&f->a, 0, 1, gpu_r(0, 0, 64, 64)), OK);
	save(f);
	/* Cut, with a length that says so: some places in pixels, all others. */
	for (size_t n = lists; n < f->len; n += n > lists + 300 ? 509 : 1) {
		uint8_t *cut = malloc(n);

		memcpy(cut, f->blob, n);
		le32_store(cut + lists - 4, (uint32_t)(n - lists));
		assert_true(device_load(f->b.dev, cut, n, NULL) < 0);
		assert_int_equal(display_memory_used(f->b.m.vm.display), used);
		free(cut);
	}
	longer = calloc(1, f->len + 1);
	memcpy(longer, f->blob, f->len);
	le32_store(longer + lists - 4, (uint32_t)(f->len + 1 - lists));
	assert_int_equal(device_load(f->b.dev, longer, f->len + 1, NULL), -EINVAL);
	assert_int_equal(device_load(f->b.dev, f->blob, f->len, NULL), 0);
	/* Every bit of what is not pixels. (What is accepted must not crash; the fuzzers look further.) */
	assert_true(f->len > lists + 2 * sizeof(pixels));
	for (size_t bit = lists * 8; bit < (lists + 200) * 8; bit++) {
		memcpy(longer, f->blob, f->len);
		longer[bit / 8] ^= (uint8_t)(1u << bit % 8);
		device_load(f->b.dev, longer, f->len, NULL);
	}
	free(longer);
}

static void impossible_states_are_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct virtio_gpu_state *st = &f->a.gpu->state, good;
	uint8_t picture[BYTES];

	gpu_picture(&f->a, picture);
	good = *st;
#define WRONG(change)                                                            \
	do {                                                                     \
		*st = good;                                                      \
		change;                                                          \
		free(f->blob);                                                   \
		save(f);                                                         \
		assert_int_equal(device_load(f->b.dev, f->blob, f->len, NULL), -EINVAL); \
	} while (0)
	WRONG(st->events = 2);
	WRONG(st->nscanouts = 1);
	WRONG(st->scanout[2].mode_width = 1);
	WRONG(st->scanout[0].mode_width = 63);
	WRONG(st->scanout[1].mode_height = 8193);
	WRONG(st->scanout[0].resource = 2);
	WRONG(st->scanout[1].width = 64);
	WRONG(st->scanout[0].x = 1);
	WRONG(st->scanout[0].y = UINT32_MAX);
	WRONG(st->scanout[0].width = 63);
	WRONG(st->scanout[0].height = H + 1);
	WRONG(st->scanout[0].stride = 4);
	WRONG(st->scanout[0].cursor.visible = 2);
	WRONG(st->scanout[0].cursor.hot_x = 64);
	WRONG(st->scanout[1].cursor.hot_y = UINT32_MAX);
#undef WRONG
	*st = good;
	free(f->blob);
	save(f);
	assert_int_equal(device_load(f->b.dev, f->blob, f->len, NULL), 0);
	assert_true(gpu_sees(&f->b, 0, picture, STRIDE));
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(the_screen_is_equal),
		T(cursors_and_wishes_come_along),
		T(what_was_never_drawn_costs_little),
		T(a_fragmented_memory_can_be_loaded),
		T(another_number_of_scanouts_is_refused),
		T(less_memory_is_refused),
		T(cut_off_or_longer_is_refused),
		T(impossible_states_are_refused),
	};

	return cmocka_run_group_tests_name("virtio_gpu_state", tests, NULL, NULL);
}
