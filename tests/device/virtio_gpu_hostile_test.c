/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-gpu and guests that break rules: every number out of range, too much of everything, odd descriptors. */
#include "tests/device/gpu_driver.h"

enum { W = GPU_TEST_W, H = GPU_TEST_H, STRIDE = W * 4, BYTES = STRIDE * H, OK = VIRTIO_GPU_RESP_OK_NODATA };
enum { UNSPEC = VIRTIO_GPU_RESP_ERR_UNSPEC, NOMEM = VIRTIO_GPU_RESP_ERR_OUT_OF_MEMORY, PARAMETER = VIRTIO_GPU_RESP_ERR_INVALID_PARAMETER,
       NO_RESOURCE = VIRTIO_GPU_RESP_ERR_INVALID_RESOURCE_ID, NO_SCANOUT = VIRTIO_GPU_RESP_ERR_INVALID_SCANOUT_ID };

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

static void commands_nobody_knows_are_answered(void **ctx)
{
	static const uint32_t types[] = { 0, 1, 0xff, 0x10b, 0x10e, 0x1ff, 0x200, 0x207, 0x209, 0x2ff, 0x1100, UINT32_MAX };
	struct gpu_test *t = *ctx;

	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct gpu_transfer c = { .h = gpu_header(types[i]) };

		if (types[i] >= VIRTIO_GPU_CMD_UPDATE_CURSOR)
			continue; /* the helper's cursor queue */
		assert_int_equal(GPU_DO(t, c), UNSPEC);
	}
	struct gpu_resource_only capset = { .h = gpu_header(VIRTIO_GPU_CMD_GET_CAPSET_INFO) };

	assert_int_equal(GPU_DO(t, capset), PARAMETER);
	capset.h = gpu_header(VIRTIO_GPU_CMD_GET_CAPSET);
	assert_int_equal(GPU_DO(t, capset), PARAMETER);
}

static void commands_of_the_other_queue_are_refused(void **ctx)
{
	struct gpu_test *t = *ctx;
	struct gpu_cursor_command c = { .h = gpu_header(VIRTIO_GPU_CMD_MOVE_CURSOR) };
	const struct driver_buf b[] = { { t->in, sizeof(c), false }, { t->out, 24, true } };

	machine_poke(&t->m, t->in, &c, sizeof(c));
	driver_add(&t->d, GPU_QUEUE_CONTROL, b, 2);
	driver_kick(&t->d, GPU_QUEUE_CONTROL);
	assert_int_equal(machine_peek32(&t->m, t->out), UNSPEC);
}

static void fences_are_echoed(void **ctx)
{
	struct gpu_test *t = *ctx;
	struct gpu_resource_only c = { .h = { .type = le32_make(VIRTIO_GPU_CMD_RESOURCE_UNREF), .flags = le32_make(3),
					      .fence_id = le64_make(0x1122334455667788), .ctx_id = le32_make(9), .ring_idx = 5 } };
	struct gpu_header h;

	assert_int_equal(GPU_DO(t, c), NO_RESOURCE); /* also with an error */
	memcpy(&h, t->answer, sizeof(h));
	assert_int_equal(le32_get(h.flags), 3);
	assert_int_equal(le64_get(h.fence_id), 0x1122334455667788);
	assert_int_equal(le32_get(h.ctx_id), 9);
	assert_int_equal(h.ring_idx, 5);
	c.h.flags = le32_make(0xfffffffc);
	assert_int_equal(GPU_DO(t, c), NO_RESOURCE);
	memcpy(&h, t->answer, sizeof(h));
	assert_int_equal(le32_get(h.flags), 0);
	assert_int_equal(le64_get(h.fence_id), 0);
}

static void features_that_were_not_taken_are_not_there(void **ctx)
{
	struct gpu_test t;
	struct gpu_get_edid edid = { .h = gpu_header(VIRTIO_GPU_CMD_GET_EDID) };
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, 4096);

	(void)ctx;
	gpu_begin_with(&t, NULL, 0);
	assert_int_equal(GPU_DO(&t, edid), UNSPEC);
	assert_int_equal(gpu_blob(&t, 1, 4096, &e, 1), UNSPEC);
	gpu_end(&t);
}

static void short_commands_and_answers(void **ctx)
{
	struct gpu_test *t = *ctx;
	struct gpu_create_2d c = { gpu_header(VIRTIO_GPU_CMD_RESOURCE_CREATE_2D), le32_make(1), le32_make(1), le32_make(64), le32_make(64) };
	struct gpu_header info = gpu_header(VIRTIO_GPU_CMD_GET_DISPLAY_INFO);

	assert_int_equal(gpu_send(t, &c, 4, 64), UNSPEC);
	assert_int_equal(gpu_send(t, &c, 23, 64), UNSPEC);
	assert_int_equal(gpu_send(t, &c, 24, 64), PARAMETER);
	assert_int_equal(gpu_send(t, &c, sizeof(c) - 1, 64), PARAMETER);
	assert_int_equal(gpu_send(t, &info, 24, 407), PARAMETER);
	assert_int_equal(t->used, 24);
	assert_int_equal(gpu_send(t, &info, 24, 408), VIRTIO_GPU_RESP_OK_DISPLAY_INFO);
	assert_int_equal(t->used, 408);
	/* No room for a header: nothing is said, but done. */
	assert_int_equal(gpu_send(t, &c, sizeof(c), 23), 0);
	assert_int_equal(t->used, 0);
	assert_int_equal(gpu_unref(t, 1), OK);
}

static void commands_split_at_strange_places(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t all[sizeof(struct gpu_attach) + 3 * sizeof(struct gpu_entry_wire)];
	struct gpu_attach c = { gpu_header(VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING), le32_make(1), le32_make(3) };
	const struct gpu_entry_wire e[] = { gpu_piece(GPU_TEST_PIXELS, 4096), gpu_piece(GPU_TEST_PIXELS + 8192, 4096), gpu_piece(GPU_TEST_PIXELS, 1) };

	memcpy(all, &c, sizeof(c));
	memcpy(all + sizeof(c), e, sizeof(e));
	for (uint32_t first = 1; first < sizeof(all); first += 5) {
		const struct driver_buf b[] = { { t->in, first, false }, { t->in + first, 1, false },
						{ t->in + first + 1, (uint32_t)sizeof(all) - first - 1, false },
						{ t->out, 3, true }, { t->out + 3, 100, true } };

		assert_int_equal(gpu_create(t, 1, 1, 64, 64), OK);
		machine_poke(&t->m, t->in, all, sizeof(all));
		if (first % 2)
			driver_add(&t->d, 0, b, 5);
		else
			driver_add_indirect(&t->d, 0, b, 5);
		driver_kick(&t->d, 0);
		assert_true(driver_used(&t->d, 0, NULL, &t->used));
		assert_int_equal(t->used, 24);
		assert_int_equal(machine_peek32(&t->m, t->out), OK);
		assert_int_equal(gpu_find(t->gpu, 1)->backing.bytes, 8193);
		assert_int_equal(gpu_unref(t, 1), OK);
	}
}

static void impossible_sizes_make_no_resource(void **ctx)
{
	static const uint32_t sizes[][2] = { { 0, 64 }, { 64, 0 }, { 16385, 1 }, { 1, 16385 }, { 0x40000001, 1 }, { 65536, 65536 },
					     { UINT32_MAX, UINT32_MAX } };
	struct gpu_test *t = *ctx;
	uint64_t used = display_memory_used(t->m.vm.display);

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		assert_int_equal(gpu_create(t, 1, 1, sizes[i][0], sizes[i][1]), PARAMETER);
	assert_int_equal(gpu_create(t, 1, 1, 16384, 16384), NOMEM);
	assert_int_equal(gpu_create(t, 0, 1, 64, 64), NO_RESOURCE);
	assert_int_equal(gpu_create(t, 1, 1, 64, 64), OK);
	assert_int_equal(gpu_create(t, 1, 1, 64, 64), NO_RESOURCE);
	assert_int_equal(gpu_create(t, UINT32_MAX, 1, 1, 1), OK);
	assert_int_equal(gpu_unref(t, 1), OK);
	assert_int_equal(gpu_unref(t, UINT32_MAX), OK);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
}

static void memory_ends_and_comes_back(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint64_t used = display_memory_used(t->m.vm.display);
	uint32_t n = 0;

	while (gpu_create(t, n + 1, 1, 1024, 1024) == OK)
		n++;
	assert_int_equal(n, 7); /* of 4 MiB each, in 32 MiB less the cursors */
	for (uint32_t i = 1; i <= n; i++)
		assert_int_equal(gpu_unref(t, i), OK);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
}

static void the_number_of_resources_is_bounded(void **ctx)
{
	struct gpu_test *t = *ctx;

	/* In an order that is neither up nor down. */
	for (uint32_t i = 0; i < GPU_RESOURCES_MAX; i++)
		assert_int_equal(gpu_create(t, 1 + i * 7919 % 65521, 1, 1, 1), OK);
	assert_int_equal(gpu_create(t, 100000, 1, 1, 1), NOMEM);
	assert_int_equal(gpu_create(t, 1, 1, 1, 1), NO_RESOURCE);
	assert_int_equal(gpu_unref(t, 1), OK);
	assert_int_equal(gpu_create(t, 100000, 1, 1, 1), OK);
	for (uint32_t i = 1; i < GPU_RESOURCES_MAX; i++)
		assert_int_equal(gpu_unref(t, 1 + i * 7919 % 65521), OK);
	assert_int_equal(t->gpu->host.resources->n, 1);
}

static void the_number_of_pieces_is_bounded(void **ctx)
{
	enum { N = 100000 };
	struct gpu_test *t = *ctx;
	struct gpu_entry_wire *e = calloc(N, sizeof(*e));
	uint32_t id;

	for (uint32_t i = 0; i < N; i++)
		e[i] = gpu_piece(GPU_TEST_PIXELS + 2 * (uint64_t)i, 1); /* none beside another */
	for (id = 1; id < 10; id++)
		assert_int_equal(gpu_create(t, id, 1, 64, 64), OK);
	assert_int_equal(gpu_attach(t, 1, e, N), OK);
	assert_int_equal(gpu_attach(t, 2, e, N), OK);
	assert_int_equal(gpu_attach(t, 3, e, N), NOMEM); /* of GPU_ENTRIES_MAX */
	assert_int_equal(gpu_attach(t, 3, e, 50000), OK);
	assert_int_equal(gpu_only(t, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, 1), OK);
	assert_int_equal(gpu_attach(t, 4, e, N), OK);
	assert_int_equal(gpu_blob(t, 20, 4096, e, N), NOMEM);
	assert_int_equal(gpu_unref(t, 20), NO_RESOURCE);
	free(e);
}

static void lists_that_are_wrong_attach_nothing(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire good = gpu_piece(GPU_TEST_PIXELS, 4096), empty = gpu_piece(GPU_TEST_PIXELS, 0);
	const struct gpu_entry_wire bad[][2] = {
		{ good, gpu_piece(GPU_TEST_RAM, 1) },	       { good, gpu_piece(GPU_TEST_RAM - 1, 2) },
		{ good, gpu_piece(UINT64_MAX, 1) },	       { good, gpu_piece(UINT64_MAX - 4095, 4096) },
		{ good, gpu_piece(GPU_TEST_PIXELS, UINT32_MAX) }, { good, gpu_piece(1ull << 63, 4096) },
	};
	struct gpu_attach c = { gpu_header(VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING), le32_make(1), le32_make(2) };

	assert_int_equal(gpu_create(t, 1, 1, 64, 64), OK);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(gpu_attach(t, 1, bad[i], 2), PARAMETER);
		assert_int_equal(gpu_find(t->gpu, 1)->backing.nentries, 0);
	}
	assert_int_equal(gpu_attach(t, 1, &empty, 1), PARAMETER);
	assert_int_equal(gpu_attach(t, 1, NULL, 0), PARAMETER);
	assert_int_equal(gpu_attach(t, 2, &good, 1), NO_RESOURCE);
	/* More announced than there are. */
	assert_int_equal(gpu_list(t, &c, sizeof(c), &good, 1), PARAMETER);
	c.nr_entries = le32_make(UINT32_MAX);
	assert_int_equal(gpu_list(t, &c, sizeof(c), &good, 1), NOMEM);
	c.nr_entries = le32_make(0x10000001); /* times 16 in 32 bits: 16 */
	assert_int_equal(gpu_list(t, &c, sizeof(c), &good, 1), NOMEM);
	assert_int_equal(gpu_attach(t, 1, &good, 1), OK);
}

static void rectangles_outside_are_refused(void **ctx)
{
	static const uint32_t r[][4] = { { 0, 0, W + 1, 1 }, { 0, 0, 1, H + 1 }, { W, 0, 1, 1 }, { 0, H, 1, 1 }, { 1, 0, W, 1 },
					 { UINT32_MAX, 0, 1, 1 }, { 0, UINT32_MAX, 1, 1 }, { 1, 1, UINT32_MAX, UINT32_MAX },
					 { 0x80000000, 0, 0x80000000, 1 }, { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX } };
	struct gpu_test *t = *ctx;
	uint8_t picture[BYTES];

	gpu_picture(t, picture);
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		struct gpu_rect_wire rect = gpu_r(r[i][0], r[i][1], r[i][2], r[i][3]);

		assert_int_equal(gpu_transfer(t, 1, rect, 0), PARAMETER);
		assert_int_equal(gpu_flush_rect(t, 1, rect), PARAMETER);
		assert_int_equal(gpu_show(t, 0, 1, rect), PARAMETER);
	}
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 1, 1), UINT64_MAX), PARAMETER);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, W, H), UINT64_MAX - BYTES + 1), PARAMETER);
	assert_int_equal(gpu_transfer(t, 1, gpu_r(0, 0, 0, H), UINT64_MAX), OK); /* nothing of nowhere */
	assert_int_equal(gpu_transfer(t, 77, gpu_r(0, 0, 1, 1), 0), NO_RESOURCE);
	assert_int_equal(gpu_flush_rect(t, 77, gpu_r(0, 0, 1, 1)), NO_RESOURCE);
	assert_true(gpu_sees(t, 0, picture, STRIDE));
}

static void scanouts_that_are_not_there(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint8_t picture[BYTES];
	struct gpu_get_edid edid = { .h = gpu_header(VIRTIO_GPU_CMD_GET_EDID), .scanout = le32_make(2) };

	gpu_picture(t, picture);
	for (uint32_t s = 2; s; s = s == 2 ? 16 : s == 16 ? UINT32_MAX : 0) {
		struct gpu_set_scanout_blob c = gpu_blob_frame(s, 1, W, H, STRIDE);

		assert_int_equal(gpu_show(t, s, 1, gpu_r(0, 0, W, H)), NO_SCANOUT);
		assert_int_equal(gpu_show(t, s, 0, gpu_r(0, 0, W, H)), NO_SCANOUT);
		assert_int_equal(GPU_DO(t, c), NO_SCANOUT);
		assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, s, 0, 0, 0, 0), NO_SCANOUT);
		assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_MOVE_CURSOR, s, 0, 0, 0, 0), NO_SCANOUT);
		edid.scanout = le32_make(s);
		assert_int_equal(GPU_DO(t, edid), NO_SCANOUT);
	}
	assert_int_equal(gpu_show(t, 0, 5, gpu_r(0, 0, W, H)), NO_RESOURCE);
	assert_int_equal(gpu_show(t, 0, 1, gpu_r(0, 0, 63, 64)), PARAMETER); /* smaller than anything that is shown */
	assert_true(gpu_sees(t, 0, picture, STRIDE));
}

static void blobs_of_other_kinds_are_refused(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, 4096);
	struct gpu_create_blob c = { .h = gpu_header(VIRTIO_GPU_CMD_RESOURCE_CREATE_BLOB), .resource_id = le32_make(1),
				     .blob_mem = le32_make(1), .nr_entries = le32_make(1), .size = le64_make(4096) };

	for (uint32_t kind = 0; kind < 5; kind++) {
		c.blob_mem = le32_make(kind);
		assert_int_equal(gpu_list(t, &c, sizeof(c), &e, 1), kind == 1 ? OK : PARAMETER);
		gpu_unref(t, 1);
	}
	c.blob_mem = le32_make(1);
	for (uint32_t flags = 0; flags < 16; flags++) {
		c.blob_flags = le32_make(flags);
		assert_int_equal(gpu_list(t, &c, sizeof(c), &e, 1), flags < 4 ? OK : PARAMETER);
		gpu_unref(t, 1);
	}
	assert_int_equal(gpu_blob(t, 1, 0, &e, 1), PARAMETER);
	assert_int_equal(gpu_blob(t, 1, GPU_BLOB_MAX + 1, &e, 1), PARAMETER);
	assert_int_equal(gpu_blob(t, 0, 4096, &e, 1), NO_RESOURCE);
	assert_int_equal(gpu_blob(t, 1, 4096, NULL, 0), OK); /* its backing comes later */
	assert_int_equal(gpu_attach(t, 1, &e, 1), OK);
}

static void blob_frames_stay_inside_their_blob(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, BYTES);
	struct gpu_set_scanout_blob good = gpu_blob_frame(0, 1, W, H, STRIDE), c;
	uint64_t used = display_memory_used(t->m.vm.display);

	assert_int_equal(gpu_blob(t, 1, BYTES, &e, 1), OK);
#define WRONG(field, value)                             \
	do {                                            \
		c = good;                               \
		c.field = value;                        \
		assert_int_equal(GPU_DO(t, c), PARAMETER); \
	} while (0)
	WRONG(strides[0], le32_make(STRIDE - 1));
	WRONG(strides[0], le32_make(STRIDE + 1));
	WRONG(strides[0], le32_make(UINT32_MAX));
	WRONG(offsets[0], le32_make(1));
	WRONG(offsets[0], le32_make(UINT32_MAX));
	WRONG(width, le32_make(0));
	WRONG(width, le32_make(W + 1));
	WRONG(width, le32_make(0x40000001)); /* times 4 in 32 bits: 4 */
	WRONG(height, le32_make(H + 1));
	WRONG(height, le32_make(0));
	WRONG(height, le32_make(UINT32_MAX));
	WRONG(format, le32_make(0));
	WRONG(format, le32_make(5));
	WRONG(r, gpu_r(1, 0, W, H));
	WRONG(r, gpu_r(0, 0, 63, H));
	WRONG(r, gpu_r(UINT32_MAX, 0, W, H));
	WRONG(r, gpu_r(0, 0, UINT32_MAX, UINT32_MAX));
#undef WRONG
	assert_int_equal(gpu_surface(t, 0)->width, 0);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
	/* A 2D resource is no blob, and the other way round. */
	assert_int_equal(gpu_show(t, 0, 1, gpu_r(0, 0, W, H)), NO_RESOURCE);
	assert_int_equal(gpu_create(t, 2, 1, W, H), OK);
	c = good;
	c.resource_id = le32_make(2);
	assert_int_equal(GPU_DO(t, c), NO_RESOURCE);
	/* A size that its backing has not: nothing is shown, and no memory kept. */
	used = display_memory_used(t->m.vm.display);
	assert_int_equal(gpu_blob(t, 3, GPU_BLOB_MAX, &e, 1), OK);
	c = gpu_blob_frame(0, 3, W, H, STRIDE + 4);
	assert_int_equal(GPU_DO(t, c), PARAMETER);
	assert_int_equal(display_memory_used(t->m.vm.display), used);
	/* Larger than all of the display's memory. */
	c = gpu_blob_frame(0, 3, 8192, 8192, 8192 * 4);
	assert_int_equal(GPU_DO(t, c), NOMEM);
	GPU_OK(t, good);
	/* Its backing goes while it is shown: the picture stays, a flush says no. */
	assert_int_equal(gpu_only(t, VIRTIO_GPU_CMD_RESOURCE_DETACH_BACKING, 1), OK);
	assert_int_equal(gpu_flush_rect(t, 1, gpu_r(0, 0, W, H)), PARAMETER);
	assert_int_equal(gpu_surface(t, 0)->width, W);
	assert_int_equal(gpu_flush_rect(t, 1, gpu_r(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX)), OK); /* none of it */
}

static void cursors_of_wrong_sizes_change_nothing(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct gpu_entry_wire e = gpu_piece(GPU_TEST_PIXELS, GPU_CURSOR_BYTES - 1);

	assert_int_equal(gpu_create(t, 1, 1, 64, 65), OK);
	assert_int_equal(gpu_create(t, 2, 1, 32, 128), OK);
	assert_int_equal(gpu_create(t, 3, 1, 1, 1), OK);
	assert_int_equal(gpu_create(t, 4, 1, 64, 64), OK);
	assert_int_equal(gpu_blob(t, 5, GPU_CURSOR_BYTES - 1, &e, 1), OK);
	assert_int_equal(gpu_blob(t, 6, GPU_CURSOR_BYTES, &e, 1), OK);
	for (uint32_t id = 1; id < 8; id++)
		if (id != 4)
			assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, id, 0, 0, 0), id == 7 ? NO_RESOURCE : PARAMETER);
	assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, 4, 0, 0, 63), PARAMETER); /* and 64 down */
	assert_false(t->m.vm.display->scanout[0].cursor_visible);
	assert_int_equal(gpu_cursor(t, VIRTIO_GPU_CMD_UPDATE_CURSOR, 0, 4, UINT32_MAX, 0x80000000, 62), OK);
	assert_int_equal(t->m.vm.display->scanout[0].cursor_x, 61);
	assert_int_equal(t->m.vm.display->scanout[0].cursor_y, 0);
}

static void a_broken_chain_needs_a_reset(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct driver_buf b[] = { { GPU_TEST_RAM, 24, false }, { t->out, 24, true } };

	driver_add(&t->d, 0, b, 2);
	driver_kick(&t->d, 0);
	assert_true(driver_needs_reset(&t->d));
}

static void an_empty_chain_is_given_back(void **ctx)
{
	struct gpu_test *t = *ctx;
	const struct driver_buf b = { t->in, 0, false };

	for (uint32_t q = 0; q < 2; q++) {
		driver_add(&t->d, q, &b, 1);
		driver_kick(&t->d, q);
		assert_true(driver_used(&t->d, q, NULL, &t->used));
		assert_int_equal(t->used, 0);
	}
}

static void options_that_cannot_be(void **ctx)
{
	static const struct {
		const char *options, *says;
	} cases[] = { { "memory=1M", "need 4016 KiB" }, { "scanouts=5", "scanouts" }, { "width=63", "width" }, { "height=8193", "height" },
		      { "memory=2G", "memory" } };
	struct machine m;

	(void)ctx;
	machine_init(&m, MIB(1));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_INIT;
		struct device *d;

		assert_true(machine_try_add(&m, &virtio_gpu_device, cases[i].options, &d, &err) < 0);
		if (!strstr(err.text, cases[i].says))
			fail_msg("%s", err.text);
		assert_null(m.vm.display);
	}
	machine_finish(&m);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(commands_nobody_knows_are_answered),
		T(commands_of_the_other_queue_are_refused),
		T(fences_are_echoed),
		cmocka_unit_test(features_that_were_not_taken_are_not_there),
		T(short_commands_and_answers),
		T(commands_split_at_strange_places),
		T(impossible_sizes_make_no_resource),
		T(memory_ends_and_comes_back),
		T(the_number_of_resources_is_bounded),
		T(the_number_of_pieces_is_bounded),
		T(lists_that_are_wrong_attach_nothing),
		T(rectangles_outside_are_refused),
		T(scanouts_that_are_not_there),
		T(blobs_of_other_kinds_are_refused),
		T(blob_frames_stay_inside_their_blob),
		T(cursors_of_wrong_sizes_change_nothing),
		T(a_broken_chain_needs_a_reset),
		T(an_empty_chain_is_given_back),
		cmocka_unit_test(options_that_cannot_be),
	};

	return cmocka_run_group_tests_name("virtio_gpu_hostile", tests, NULL, NULL);
}
