/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-input (virtio 1.2, 5.8): what each kind is, moments that are never split, slow guests, lights, snapshots. */
#include <errno.h>
#include <linux/input.h>
#include <linux/virtio_input.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/virtio_input.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { RAM = 4 << 20, EVENT = 0, STATUS = 1, SIZE = 8, QUEUE = 64 };

struct fixture {
	struct machine m;
	struct device *dev;
	struct driver d;
	uint64_t buffers;
};

static void begin(struct fixture *f, const char *options)
{
	machine_init(&f->m, RAM);
	f->dev = machine_add(&f->m, "input", options);
	driver_init(&f->d, &f->m, f->dev);
}

static void start(struct fixture *f, uint64_t features)
{
	driver_start(&f->d, features, 0);
	machine_irqs(f->dev);
	f->buffers = driver_alloc(&f->d, QUEUE * SIZE, 16);
}

static int setup(void **ctx)
{
	static struct fixture f;

	begin(&f, "kind=keyboard");
	start(&f, VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC);
	*ctx = &f;
	return 0;
}

static int setup_idle(void **ctx)
{
	static struct fixture f;

	begin(&f, "kind=touch");
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	machine_finish(&f->m);
	return 0;
}

static void give(struct fixture *f, int n, uint32_t len)
{
	for (int i = 0; i < n; i++) {
		/* Of the descriptor it will get: a buffer is free again when it has been read. */
		const struct driver_buf b = { f->buffers + (uint64_t)(f->d.q[EVENT].free_desc % QUEUE) * SIZE, len, true };

		driver_add(&f->d, EVENT, &b, 1);
	}
	driver_kick(&f->d, EVENT);
}

/* The next event: "type code value", or "" when there is none. */
static const char *next(struct fixture *f)
{
	static char text[64];
	struct virtio_input_event e;
	uint32_t head, len;

	if (!driver_used(&f->d, EVENT, &head, &len))
		return "";
	assert_int_equal(len, SIZE);
	machine_peek(&f->m, f->buffers + (uint64_t)(head % QUEUE) * SIZE, &e, sizeof(e));
	snprintf(text, sizeof(text), "%u %u %d", le16toh(e.type), le16toh(e.code), (int)le32toh(e.value));
	return text;
}

static void expect_events(struct fixture *f, const char *const *text)
{
	for (; *text; text++)
		assert_string_equal(next(f), *text);
	assert_string_equal(next(f), "");
}
#define EXPECT(f, ...) expect_events(f, (const char *const[]){ __VA_ARGS__, NULL })
#define EXPECT_NOTHING(f) assert_string_equal(next(f), "")

static struct display_input_event ev(uint16_t type, uint16_t code, int32_t value)
{
	return (struct display_input_event){ le16_make(type), le16_make(code), le32_make((uint32_t)value) };
}

static int inject(struct fixture *f, size_t n, ...)
{
	struct display_input_event e[DISPLAY_EVENTS_MAX + 1];
	va_list ap;
	int r;

	va_start(ap, n);
	for (size_t i = 0; i < n; i++)
		e[i] = va_arg(ap, struct display_input_event);
	va_end(ap);
	r = virtio_input_inject(f->dev, e, n);
	machine_settle(&f->m);
	return r;
}

static int press(struct fixture *f, uint16_t key, int32_t value)
{
	return inject(f, 1, ev(EV_KEY, key, value));
}

static struct virtio_input_config ask(struct fixture *f, uint8_t select, uint8_t subsel)
{
	struct virtio_input_config c;

	machine_write(&f->m, f->dev, MMIO_CONFIG, select, 1);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 1, subsel, 1);
	for (uint32_t i = 0; i < sizeof(c); i++)
		((uint8_t *)&c)[i] = (uint8_t)driver_config(&f->d, i, 1);
	assert_int_equal(c.select, select);
	assert_int_equal(c.subsel, subsel);
	for (uint32_t i = c.size; i < sizeof(c.u); i++)
		assert_int_equal(c.u.bitmap[i], 0);
	return c;
}

static bool has(struct fixture *f, uint8_t type, uint32_t code)
{
	struct virtio_input_config c = ask(f, VIRTIO_INPUT_CFG_EV_BITS, type);

	return code / 8 < c.size && c.u.bitmap[code / 8] >> code % 8 & 1;
}

static void a_keyboard_has_keys_lights_and_repetition(void **ctx)
{
	struct fixture *f = *ctx;
	struct virtio_input_config c = ask(f, VIRTIO_INPUT_CFG_ID_NAME, 0);

	assert_int_equal(driver_reg(&f->d, MMIO_DEVICE_ID), 18);
	assert_int_equal(c.size, strlen("Coffer keyboard"));
	assert_memory_equal(c.u.string, "Coffer keyboard", c.size);
	assert_true(has(f, EV_KEY, KEY_A) && has(f, EV_KEY, KEY_F12) && has(f, EV_KEY, KEY_LEFTMETA) && has(f, EV_KEY, KEY_102ND));
	assert_true(has(f, EV_KEY, KEY_VOLUMEUP) && has(f, EV_KEY, KEY_PLAYPAUSE) && has(f, EV_KEY, KEY_MICMUTE));
	assert_false(has(f, EV_KEY, KEY_RESERVED) || has(f, EV_KEY, BTN_LEFT));
	assert_true(has(f, EV_LED, LED_CAPSL) && has(f, EV_LED, LED_NUML) && has(f, EV_LED, LED_SCROLLL));
	assert_true(ask(f, VIRTIO_INPUT_CFG_EV_BITS, EV_REP).size > 0);
	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_EV_BITS, EV_ABS).size, 0);
	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_PROP_BITS, 0).size, 0);
	assert_int_equal(le16toh(ask(f, VIRTIO_INPUT_CFG_ID_DEVIDS, 0).u.ids.bustype), BUS_VIRTUAL);
}

static void a_pointer_has_axes_buttons_and_wheels(void **ctx)
{
	struct fixture f;
	struct virtio_input_config c;

	(void)ctx;
	begin(&f, "kind=pointer");
	c = ask(&f, VIRTIO_INPUT_CFG_ABS_INFO, ABS_Y);
	assert_int_equal(c.size, sizeof(c.u.abs));
	assert_int_equal(le32toh(c.u.abs.min), 0);
	assert_int_equal(le32toh(c.u.abs.max), 32767);
	assert_true(has(&f, EV_KEY, BTN_LEFT) && has(&f, EV_KEY, BTN_MIDDLE) && has(&f, EV_KEY, BTN_SIDE));
	assert_true(has(&f, EV_REL, REL_WHEEL) && has(&f, EV_REL, REL_HWHEEL) && has(&f, EV_REL, REL_WHEEL_HI_RES));
	assert_false(has(&f, EV_REL, REL_X) || has(&f, EV_REL, REL_DIAL) || has(&f, EV_ABS, ABS_MT_SLOT));
	assert_int_equal(ask(&f, VIRTIO_INPUT_CFG_ABS_INFO, ABS_Z).size, 0);
	machine_finish(&f.m);
}

static void a_touch_screen_has_slots_and_is_direct(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_PROP_BITS, 0).u.bitmap[0], 1 << INPUT_PROP_DIRECT);
	assert_int_equal(le32toh(ask(f, VIRTIO_INPUT_CFG_ABS_INFO, ABS_MT_SLOT).u.abs.max), 9);
	assert_int_equal(le32toh(ask(f, VIRTIO_INPUT_CFG_ABS_INFO, ABS_MT_POSITION_X).u.abs.max), 32767);
	assert_true(has(f, EV_ABS, ABS_MT_TRACKING_ID) && has(f, EV_KEY, BTN_TOUCH));
}

static void unknown_selectors_have_nothing(void **ctx)
{
	struct fixture *f = *ctx;
	static const uint8_t odd[] = { VIRTIO_INPUT_CFG_UNSET, 4, 0x13, 0x80, 0xff };

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		assert_int_equal(ask(f, odd[i], 0).size, 0);
	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_ID_NAME, 1).size, 0);
	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_EV_BITS, 0xff).size, 0);
	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_ABS_INFO, 0xff).size, 0);
	machine_write(&f->m, f->dev, MMIO_CONFIG + 8, 0x55, 1);
	assert_int_equal(ask(f, VIRTIO_INPUT_CFG_UNSET, 0).u.bitmap[0], 0);
}

static void an_unknown_kind_is_refused(void **ctx)
{
	struct machine m;
	struct device *dev;
	struct err err = ERR_INIT;

	(void)ctx;
	machine_init(&m, RAM);
	assert_int_equal(machine_try_add(&m, device_find("input"), "kind=mouse", &dev, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'mouse' is none of keyboard, pointer, touch"));
	machine_finish(&m);
}

static void events_of_one_moment_arrive_with_what_ends_it(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 8, SIZE);
	assert_int_equal(inject(f, 2, ev(EV_KEY, KEY_LEFTSHIFT, 1), ev(EV_KEY, KEY_A, 1)), 0);
	assert_int_equal(machine_irqs(f->dev), 1);
	EXPECT(f, "1 42 1", "1 30 1", "0 0 0");
}

static void moments_of_one_message_arrive_one_after_another(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 8, SIZE);
	assert_int_equal(inject(f, 3, ev(EV_KEY, KEY_A, 1), ev(EV_SYN, SYN_REPORT, 0), ev(EV_KEY, KEY_A, 0)), 0);
	assert_int_equal(machine_irqs(f->dev), 1);
	EXPECT(f, "1 30 1", "0 0 0", "1 30 0", "0 0 0");
	/* One without events is none, and SYN_REPORT has no value. */
	assert_int_equal(inject(f, 2, ev(EV_SYN, SYN_REPORT, 0), ev(EV_KEY, KEY_A, 1)), -EINVAL);
	assert_int_equal(inject(f, 2, ev(EV_KEY, KEY_A, 1), ev(EV_SYN, SYN_REPORT, 0)), -EINVAL);
	assert_int_equal(inject(f, 4, ev(EV_KEY, KEY_A, 1), ev(EV_SYN, SYN_REPORT, 0), ev(EV_SYN, SYN_REPORT, 0), ev(EV_KEY, KEY_A, 0)),
			 -EINVAL);
	assert_int_equal(inject(f, 3, ev(EV_KEY, KEY_A, 1), ev(EV_SYN, SYN_REPORT, 1), ev(EV_KEY, KEY_A, 0)), -EINVAL);
	assert_int_equal(inject(f, 3, ev(EV_KEY, KEY_A, 1), ev(EV_SYN, SYN_DROPPED, 0), ev(EV_KEY, KEY_A, 0)), -EINVAL);
	EXPECT_NOTHING(f);
}

static void a_moment_waits_until_there_is_a_buffer_for_each(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 4, SIZE);
	assert_int_equal(press(f, KEY_A, 1), 0);
	assert_int_equal(inject(f, 2, ev(EV_KEY, KEY_A, 0), ev(EV_KEY, KEY_B, 1)), 0);
	EXPECT(f, "1 30 1", "0 0 0");
	assert_int_equal(machine_irqs(f->dev), 1);
	give(f, 1, SIZE);
	EXPECT(f, "1 30 0", "1 48 1", "0 0 0");
}

static void a_driver_with_few_buffers_gets_a_moment_in_parts(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 2, SIZE);
	assert_int_equal(inject(f, 2, ev(EV_KEY, KEY_A, 1), ev(EV_KEY, KEY_B, 1)), 0);
	EXPECT(f, "1 30 1", "1 48 1");
	assert_false(virtio_input_idle(f->dev));
	give(f, 2, SIZE);
	EXPECT(f, "0 0 0");
	give(f, 1, SIZE);
	assert_true(virtio_input_idle(f->dev));
}

static void all_is_taken_when_every_buffer_has_come_again(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 16, SIZE);
	assert_true(virtio_input_idle(f->dev));
	press(f, KEY_A, 1);
	EXPECT(f, "1 30 1", "0 0 0");
	assert_false(virtio_input_idle(f->dev));
	give(f, 1, SIZE);
	assert_false(virtio_input_idle(f->dev));
	give(f, 1, SIZE);
	assert_true(virtio_input_idle(f->dev));
}

/* The driver is asked to notify for the last buffer alone: avail_event follows the used ring (virtio 1.2, 2.7.10). */
static void only_the_last_buffer_is_announced(void **ctx)
{
	struct fixture *f = *ctx;
	const struct driver_queue *q = &f->d.q[EVENT];

	give(f, 16, SIZE);
	inject(f, 3, ev(EV_KEY, KEY_A, 1), ev(EV_KEY, KEY_B, 1), ev(EV_KEY, KEY_C, 1));
	assert_int_equal(machine_peek16(&f->m, q->used + 4 + 8ull * q->size), 16 + 4 - 1);
}

static void without_a_driver_nobody_listens(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(inject(f, 1, ev(EV_KEY, BTN_TOUCH, 1)), -ENODEV);
	start(f, 0);
	assert_int_equal(inject(f, 1, ev(EV_KEY, BTN_TOUCH, 1)), 0);
	driver_set_reg(&f->d, MMIO_STATUS, 0);
	assert_int_equal(inject(f, 1, ev(EV_KEY, BTN_TOUCH, 0)), -ENODEV);
}

static void events_that_the_device_does_not_have_are_refused(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 8, SIZE);
	assert_int_equal(press(f, BTN_LEFT, 1), -EINVAL);
	assert_int_equal(press(f, 0, 1), -EINVAL);
	assert_int_equal(press(f, KEY_A, 3), -EINVAL);
	assert_int_equal(inject(f, 1, ev(EV_SYN, SYN_REPORT, 0)), -EINVAL);
	assert_int_equal(inject(f, 1, ev(EV_LED, LED_CAPSL, 1)), -EINVAL);
	assert_int_equal(inject(f, 1, ev(EV_ABS, ABS_X, 1)), -EINVAL);
	assert_int_equal(inject(f, 0), -EINVAL);
	/* The whole moment, not only what is wrong with it. */
	assert_int_equal(inject(f, 2, ev(EV_KEY, KEY_A, 1), ev(EV_KEY, 0x2ff, 1)), -EINVAL);
	EXPECT_NOTHING(f);
}

static void axes_are_bounded(void **ctx)
{
	struct fixture *f = *ctx;

	start(f, VIRTIO_F_EVENT_IDX);
	give(f, 16, SIZE);
	assert_int_equal(inject(f, 1, ev(EV_ABS, ABS_X, 32768)), -EINVAL);
	assert_int_equal(inject(f, 1, ev(EV_ABS, ABS_X, -1)), -EINVAL);
	assert_int_equal(inject(f, 1, ev(EV_ABS, ABS_MT_SLOT, 10)), -EINVAL);
	assert_int_equal(inject(f, 1, ev(EV_ABS, ABS_MT_TRACKING_ID, -2)), -EINVAL);
	assert_int_equal(inject(f, 2, ev(EV_ABS, ABS_X, 32767), ev(EV_ABS, ABS_MT_TRACKING_ID, -1)), 0);
	EXPECT(f, "3 0 32767", "3 57 -1", "0 0 0");
}

static void a_full_ring_takes_a_moment_whole_or_not_at_all(void **ctx)
{
	struct fixture *f = *ctx;
	int n = 0, r;

	while ((r = inject(f, 4, ev(EV_KEY, KEY_A, 1), ev(EV_KEY, KEY_A, 0), ev(EV_KEY, KEY_B, 1), ev(EV_KEY, KEY_B, 0))) == 0)
		n++;
	assert_int_equal(r, -EAGAIN);
	assert_int_equal(n, VIRTIO_INPUT_PENDING / 5);
	for (int i = 0; i < n; i++) {
		give(f, 5, SIZE);
		EXPECT(f, "1 30 1", "1 30 0", "1 48 1", "1 48 0", "0 0 0");
	}
	give(f, 5, SIZE);
	assert_true(virtio_input_idle(f->dev));
	assert_int_equal(press(f, KEY_C, 1), 0);
	EXPECT(f, "1 46 1", "0 0 0");
}

static void many_events_through_a_slow_guest_arrive_all_in_order(void **ctx)
{
	struct fixture *f = *ctx;
	struct rnd r = { 5 };
	uint32_t sent = 0, seen = 0;
	char want[32];

	give(f, QUEUE, SIZE);
	while (seen < 20000) {
		uint32_t reads = rnd_below(&r, 40);
		const char *text;

		for (uint32_t i = rnd_below(&r, 30); i && sent < 20000; i--)
			sent += press(f, (uint16_t)(1 + sent / 2 % 248), sent % 2) == 0;
		while (reads-- && *(text = next(f))) {
			if (strcmp(text, "0 0 0") != 0) {
				snprintf(want, sizeof(want), "1 %u %u", 1 + seen / 2 % 248, seen % 2);
				assert_string_equal(text, want);
				seen++;
			}
			give(f, 1, SIZE);
		}
	}
	assert_false(driver_needs_reset(&f->d));
}

static void a_buffer_without_room_for_an_event_fails_the_device(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 4, SIZE - 1);
	press(f, KEY_A, 1);
	assert_true(driver_needs_reset(&f->d));
	assert_int_equal(press(f, KEY_A, 0), -ENODEV);
}

static void an_index_out_of_bounds_fails_the_device(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 4, SIZE);
	machine_poke16(&f->m, f->d.q[EVENT].avail + 2, 5000);
	press(f, KEY_A, 1);
	assert_true(driver_needs_reset(&f->d));
}

static void light(struct fixture *f, uint16_t type, uint16_t code, uint32_t value)
{
	const struct virtio_input_event e = { htole16(type), htole16(code), htole32(value) };
	const struct driver_buf b = { driver_alloc(&f->d, SIZE, 8), SIZE, false };

	machine_poke(&f->m, b.gpa, &e, sizeof(e));
	driver_add(&f->d, STATUS, &b, 1);
	driver_kick(&f->d, STATUS);
	assert_true(driver_used(&f->d, STATUS, NULL, NULL));
}

static void the_guest_lights_and_puts_out(void **ctx)
{
	struct fixture *f = *ctx;

	light(f, EV_LED, LED_CAPSL, 1);
	light(f, EV_LED, LED_NUML, 1);
	assert_int_equal(virtio_input_leds(f->dev), 1 << LED_CAPSL | 1 << LED_NUML);
	light(f, EV_LED, LED_CAPSL, 0);
	light(f, EV_LED, 31, 1);
	light(f, EV_LED, 4000, 1);
	light(f, EV_REP, REP_DELAY, 250);
	assert_int_equal(virtio_input_leds(f->dev), 1 << LED_NUML);
	driver_set_reg(&f->d, MMIO_STATUS, 0);
	assert_int_equal(virtio_input_leds(f->dev), 0);
}

/* As a snapshot does it: saved, loaded into a process where nobody holds a key. */
static void save_and_restore(struct fixture *f, bool restored)
{
	size_t n = device_saved_size(f->dev);
	_cleanup_free_ uint8_t *blob = malloc(n);
	struct err err = ERR_INIT;

	assert_int_equal(device_quiesce(f->dev), 0);
	assert_int_equal(device_save(f->dev, blob, n), n);
	if (device_load(f->dev, blob, n, &err) < 0)
		fail_msg("%s", err.text);
	if (restored)
		f->dev->ops->restored(f->dev);
	device_resume(f->dev);
	machine_settle(&f->m);
}

static void pressed_keys_are_let_go_of_in_a_restored_guest(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 32, SIZE);
	inject(f, 3, ev(EV_KEY, KEY_LEFTCTRL, 1), ev(EV_KEY, KEY_A, 1), ev(EV_KEY, KEY_Z, 1));
	press(f, KEY_A, 0);
	while (*next(f))
		;
	give(f, 6, SIZE);
	save_and_restore(f, false);
	EXPECT_NOTHING(f);
	save_and_restore(f, true);
	EXPECT(f, "1 29 0", "1 44 0", "0 0 0");
	give(f, 3, SIZE);
	save_and_restore(f, true);
	EXPECT_NOTHING(f);
	assert_int_equal(press(f, KEY_A, 1), 0);
}

static void more_pressed_keys_than_fit_at_once_are_all_let_go_of(void **ctx)
{
	struct fixture *f = *ctx;
	int released = 0;
	const char *text;

	give(f, QUEUE, SIZE);
	for (uint16_t key = 1; key <= 248; key++) {
		assert_int_equal(press(f, key, 1), 0);
		while (*next(f))
			give(f, 1, SIZE);
	}
	save_and_restore(f, true);
	assert_int_equal(press(f, KEY_A, 1), -EAGAIN);
	while (*(text = next(f))) {
		released += strncmp(text, "1 ", 2) == 0 && text[strlen(text) - 1] == '0';
		give(f, 1, SIZE);
	}
	assert_int_equal(released, 248);
	assert_true(virtio_input_idle(f->dev));
}

static void fingers_are_lifted_in_a_restored_guest(void **ctx)
{
	struct fixture *f = *ctx;

	start(f, VIRTIO_F_EVENT_IDX);
	give(f, 32, SIZE);
	inject(f, 5, ev(EV_ABS, ABS_MT_SLOT, 0), ev(EV_ABS, ABS_MT_TRACKING_ID, 7), ev(EV_ABS, ABS_MT_SLOT, 3),
	       ev(EV_ABS, ABS_MT_TRACKING_ID, 8), ev(EV_KEY, BTN_TOUCH, 1));
	while (*next(f))
		give(f, 1, SIZE);
	save_and_restore(f, true);
	EXPECT(f, "3 47 0", "3 57 -1", "3 47 3", "3 57 -1", "1 330 0", "0 0 0");
}

static void pending_events_survive_a_snapshot(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 2, SIZE);
	press(f, KEY_A, 1);
	press(f, KEY_A, 0);
	save_and_restore(f, true);
	EXPECT(f, "1 30 1", "0 0 0");
	give(f, 2, SIZE);
	EXPECT(f, "1 30 0", "0 0 0");
	assert_false(virtio_input_idle(f->dev));
	give(f, 2, SIZE);
	assert_true(virtio_input_idle(f->dev));
}

static void a_paused_guest_is_waited_for(void **ctx)
{
	struct fixture *f = *ctx;

	give(f, 8, SIZE);
	assert_int_equal(device_quiesce(f->dev), 0);
	assert_int_equal(press(f, KEY_A, 1), -EAGAIN);
	device_resume(f->dev);
	EXPECT_NOTHING(f);
	assert_int_equal(press(f, KEY_A, 1), 0);
	EXPECT(f, "1 30 1", "0 0 0");
}

static void a_reset_forgets_what_waits(void **ctx)
{
	struct fixture *f = *ctx;

	press(f, KEY_A, 1);
	driver_set_reg(&f->d, MMIO_STATUS, 0);
	assert_true(virtio_input_idle(f->dev));
	start(f, VIRTIO_F_EVENT_IDX);
	give(f, 8, SIZE);
	EXPECT_NOTHING(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_keyboard_has_keys_lights_and_repetition, setup, teardown),
		cmocka_unit_test(a_pointer_has_axes_buttons_and_wheels),
		cmocka_unit_test_setup_teardown(a_touch_screen_has_slots_and_is_direct, setup_idle, teardown),
		cmocka_unit_test_setup_teardown(unknown_selectors_have_nothing, setup, teardown),
		cmocka_unit_test(an_unknown_kind_is_refused),
		cmocka_unit_test_setup_teardown(events_of_one_moment_arrive_with_what_ends_it, setup, teardown),
		cmocka_unit_test_setup_teardown(moments_of_one_message_arrive_one_after_another, setup, teardown),
		cmocka_unit_test_setup_teardown(a_moment_waits_until_there_is_a_buffer_for_each, setup, teardown),
		cmocka_unit_test_setup_teardown(a_driver_with_few_buffers_gets_a_moment_in_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(all_is_taken_when_every_buffer_has_come_again, setup, teardown),
		cmocka_unit_test_setup_teardown(only_the_last_buffer_is_announced, setup, teardown),
		cmocka_unit_test_setup_teardown(without_a_driver_nobody_listens, setup_idle, teardown),
		cmocka_unit_test_setup_teardown(events_that_the_device_does_not_have_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(axes_are_bounded, setup_idle, teardown),
		cmocka_unit_test_setup_teardown(a_full_ring_takes_a_moment_whole_or_not_at_all, setup, teardown),
		cmocka_unit_test_setup_teardown(many_events_through_a_slow_guest_arrive_all_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_buffer_without_room_for_an_event_fails_the_device, setup, teardown),
		cmocka_unit_test_setup_teardown(an_index_out_of_bounds_fails_the_device, setup, teardown),
		cmocka_unit_test_setup_teardown(the_guest_lights_and_puts_out, setup, teardown),
		cmocka_unit_test_setup_teardown(pressed_keys_are_let_go_of_in_a_restored_guest, setup, teardown),
		cmocka_unit_test_setup_teardown(more_pressed_keys_than_fit_at_once_are_all_let_go_of, setup, teardown),
		cmocka_unit_test_setup_teardown(fingers_are_lifted_in_a_restored_guest, setup_idle, teardown),
		cmocka_unit_test_setup_teardown(pending_events_survive_a_snapshot, setup, teardown),
		cmocka_unit_test_setup_teardown(a_paused_guest_is_waited_for, setup, teardown),
		cmocka_unit_test_setup_teardown(a_reset_forgets_what_waits, setup, teardown),
	};

	return cmocka_run_group_tests_name("virtio_input", tests, NULL, NULL);
}
