/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-gpu: what monitors say about themselves (display info, EDID), and modes that the host asks for. */
#include "tests/device/gpu_driver.h"

enum { BLOCK = 128 };

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

static void want(struct gpu_test *t, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct display *d = t->m.vm.display;

	d->gpu->mode(d->gpu_opaque, scanout, width, height);
}

static void info(struct gpu_test *t, uint32_t scanout, uint32_t ret[5])
{
	struct gpu_header c = gpu_header(VIRTIO_GPU_CMD_GET_DISPLAY_INFO);
	struct gpu_display_info i;

	assert_int_equal(GPU_DO(t, c), VIRTIO_GPU_RESP_OK_DISPLAY_INFO);
	assert_int_equal(t->used, sizeof(i));
	memcpy(&i, t->answer, sizeof(i));
	ret[0] = le32_get(i.mode[scanout].r.x);
	ret[1] = le32_get(i.mode[scanout].r.y);
	ret[2] = le32_get(i.mode[scanout].r.width);
	ret[3] = le32_get(i.mode[scanout].r.height);
	ret[4] = le32_get(i.mode[scanout].enabled);
}

static void monitors_stand_side_by_side(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint32_t i[5];

	info(t, 0, i);
	assert_memory_equal(i, ((uint32_t[]){ 0, 0, 1280, 800, 1 }), sizeof(i));
	info(t, 1, i);
	assert_memory_equal(i, ((uint32_t[]){ 1280, 0, 1280, 800, 1 }), sizeof(i));
	for (uint32_t s = 2; s < 16; s++) {
		info(t, s, i);
		assert_memory_equal(i, ((uint32_t[]){ 0, 0, 0, 0, 0 }), sizeof(i));
	}
}

static void a_wish_changes_the_mode_and_interrupts(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint32_t i[5], generation = driver_reg(&t->d, MMIO_CONFIG_GENERATION);

	want(t, 1, 1000, 700);
	assert_int_equal(machine_irqs(t->dev), 1);
	assert_int_equal(driver_reg(&t->d, MMIO_INTERRUPT_STATUS) & 2, 2);
	assert_int_not_equal(driver_reg(&t->d, MMIO_CONFIG_GENERATION), generation);
	assert_int_equal(driver_config(&t->d, 0, 4), VIRTIO_GPU_EVENT_DISPLAY);
	info(t, 1, i);
	assert_memory_equal(i, ((uint32_t[]){ 1280, 0, 1000, 700, 1 }), sizeof(i));
	assert_int_equal(t->m.vm.display->scanout[1].wanted_width, 1000);
	/* Read does not clear; events_clear does, and nothing else can be written. */
	machine_write(&t->m, t->dev, MMIO_CONFIG, 0, 4);
	machine_write(&t->m, t->dev, MMIO_CONFIG + 8, 77, 4);
	assert_int_equal(driver_config(&t->d, 0, 4), VIRTIO_GPU_EVENT_DISPLAY);
	assert_int_equal(driver_config(&t->d, 8, 4), 2);
	machine_write(&t->m, t->dev, MMIO_CONFIG + 4, 2, 4);
	assert_int_equal(driver_config(&t->d, 0, 4), VIRTIO_GPU_EVENT_DISPLAY);
	machine_write(&t->m, t->dev, MMIO_CONFIG + 4, 1, 1);
	assert_int_equal(driver_config(&t->d, 0, 4), 0);
	machine_irqs(t->dev);
	want(t, 1, 1000, 700); /* nothing new */
	assert_int_equal(machine_irqs(t->dev), 0);
}

static void wishes_that_cannot_be_are_ignored(void **ctx)
{
	static const uint32_t wish[][3] = { { 2, 800, 600 }, { UINT32_MAX, 800, 600 }, { 0, 63, 600 }, { 0, 800, 63 }, { 0, 8193, 600 },
					    { 0, 800, UINT32_MAX }, { 0, 0, 0 } };
	struct gpu_test *t = *ctx;
	uint32_t i[5];

	for (size_t k = 0; k < ARRAY_SIZE(wish); k++)
		want(t, wish[k][0], wish[k][1], wish[k][2]);
	assert_int_equal(machine_irqs(t->dev), 0);
	info(t, 0, i);
	assert_int_equal(i[2], 1280);
}

static void a_wish_outlives_the_drivers_reset(void **ctx)
{
	struct gpu_test *t = *ctx;
	uint32_t i[5];

	want(t, 0, 640, 480);
	driver_set_reg(&t->d, MMIO_STATUS, 0);
	assert_int_equal(driver_config(&t->d, 0, 4), 0);
	driver_start(&t->d, GPU_TEST_FEATURES, 0);
	info(t, 0, i);
	assert_int_equal(i[2], 640);
	assert_int_equal(i[3], 480);
}

/* A reader of its own, by the standard's tables. */
struct mode {
	uint32_t width, height, h_blank, v_blank, clock, mm_width, mm_height;
};

static struct mode detailed(const uint8_t *p)
{
	return (struct mode){
		.clock = le16_load(p),
		.width = p[2] | (p[4] & 0xf0u) << 4,
		.h_blank = p[3] | (p[4] & 0xfu) << 8,
		.height = p[5] | (p[7] & 0xf0u) << 4,
		.v_blank = p[6] | (p[7] & 0xfu) << 8,
		.mm_width = p[12] | (p[14] & 0xf0u) << 4,
		.mm_height = p[13] | (p[14] & 0xfu) << 8,
	};
}

static uint8_t sum(const uint8_t *p, size_t n)
{
	uint8_t s = 0;

	while (n--)
		s = (uint8_t)(s + *p++);
	return s;
}

static double refresh(const struct mode *m)
{
	return m->clock * 10000.0 / ((m->width + m->h_blank) * (double)(m->height + m->v_blank));
}

static void edid_of_a_scanout_prefers_its_mode(void **ctx)
{
	struct gpu_test *t = *ctx;
	struct gpu_get_edid c = { .h = gpu_header(VIRTIO_GPU_CMD_GET_EDID), .scanout = le32_make(1) };
	struct gpu_edid_response e;
	struct mode m;

	want(t, 1, 1237, 811);
	assert_int_equal(GPU_DO(t, c), VIRTIO_GPU_RESP_OK_EDID);
	assert_int_equal(t->used, sizeof(e));
	memcpy(&e, t->answer, sizeof(e));
	assert_int_equal(le32_get(e.size), BLOCK);
	assert_memory_equal(e.edid, ((const uint8_t[]){ 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0x0c, 0xc6 }), 10);
	assert_int_equal(sum(e.edid, BLOCK), 0);
	assert_int_equal(e.edid[18], 1);
	assert_int_equal(e.edid[19], 4);
	assert_int_equal(e.edid[126], 0);
	m = detailed(e.edid + 54);
	assert_int_equal(m.width, 1237);
	assert_int_equal(m.height, 811);
	assert_int_equal(m.mm_width, 1237 * 254 / 960);
	assert_int_equal(e.edid[21], m.mm_width / 10);
	assert_int_equal(e.edid[22], m.mm_height / 10);
	assert_memory_equal(e.edid + 72, "\0\0\0\xfc\0Coffer\n      ", 18);
	for (size_t i = BLOCK; i < sizeof(e.edid); i++)
		assert_int_equal(e.edid[i], 0);
}

/* VESA's published figures for reduced blanking. */
static void timings_are_those_of_cvt(void **ctx)
{
	static const uint32_t known[][4] = { { 1280, 800, 7100, 23 }, { 1920, 1080, 13850, 31 }, { 1024, 768, 5600, 22 }, { 1920, 1200, 15400, 35 } };

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		uint8_t e[GPU_EDID_MAX];
		struct mode m;

		gpu_edid(known[i][0], known[i][1], 0, e);
		m = detailed(e + 54);
		assert_int_equal(m.h_blank, 160);
		assert_int_equal(m.clock, known[i][2]);
		assert_int_equal(m.v_blank, known[i][3]);
	}
}

static void every_size_has_a_sound_edid(void **ctx)
{
	static const uint32_t sides[] = { 64, 65, 127, 480, 1023, 2048, 4095, 4096, 8191, 8192 };

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(sides); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(sides); k++) {
			uint8_t e[GPU_EDID_MAX];
			size_t n = gpu_edid(sides[i], sides[k], 3, e);
			struct mode m = detailed(e + 54);

			assert_int_equal(sum(e, BLOCK), 0);
			assert_int_equal(e[126], n / BLOCK - 1);
			if (n > BLOCK) {
				const uint8_t *d = e + BLOCK;

				/* One DisplayID section with a timing of type I. */
				assert_int_equal(sum(d, BLOCK), 0);
				assert_int_equal(sum(d + 1, BLOCK - 2), 0);
				assert_int_equal(d[0], 0x70);
				assert_int_equal(d[2], BLOCK - 7);
				assert_int_equal(d[5], 3);
				assert_int_equal(d[7], 20);
				assert_int_equal(d[11] & 0x80, 0x80);
				m = (struct mode){ .clock = (d[8] | d[9] << 8 | (uint32_t)d[10] << 16) + 1, .width = le16_load(d + 12) + 1u,
						   .h_blank = le16_load(d + 14) + 1u, .height = le16_load(d + 20) + 1u,
						   .v_blank = le16_load(d + 22) + 1u };
			}
			assert_int_equal(m.width, sides[i]);
			assert_int_equal(m.height, sides[k]);
			/* The clock goes in steps of 250 kHz, which is much for the smallest. */
			if (refresh(&m) < (m.clock < 5000 ? 50.0 : 59.5) || refresh(&m) > 60.01)
				fail_msg("%ux%u at %f Hz", m.width, m.height, refresh(&m));
		}
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(monitors_stand_side_by_side),
		T(a_wish_changes_the_mode_and_interrupts),
		T(wishes_that_cannot_be_are_ignored),
		T(a_wish_outlives_the_drivers_reset),
		T(edid_of_a_scanout_prefers_its_mode),
		cmocka_unit_test(timings_are_those_of_cvt),
		cmocka_unit_test(every_size_has_a_sound_edid),
	};

	return cmocka_run_group_tests_name("virtio_gpu_mode", tests, NULL, NULL);
}
