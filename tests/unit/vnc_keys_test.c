/* SPDX-License-Identifier: Apache-2.0 */
/* What a viewer's keysyms become on a keyboard with the us layout. */
#include <linux/input-event-codes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "host/vnc/keys.h"

enum { SHIFT_L = 0xffe1, SHIFT_R = 0xffe2, CONTROL_L = 0xffe3 };

/* The events as text: "+42 +30 -42". */
static const char *press_at(struct keys *k, uint32_t keysym, uint32_t scancode, bool down, bool caps, char out[128])
{
	const struct key_press p = { keysym, scancode, down };
	struct key_event e[KEYS_EVENTS_MAX];
	size_t n = keys_press(k, &p, caps, e), at = 0;

	assert_true(n <= KEYS_EVENTS_MAX);
	out[0] = 0;
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(out + at, 128 - at, "%s%c%d", i ? " " : "", e[i].down ? '+' : '-', e[i].code);
	return out;
}

static const char *press(struct keys *k, uint32_t keysym, bool down, bool caps, char out[128])
{
	return press_at(k, keysym, 0, down, caps, out);
}

static void a_character_is_its_key(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press(&k, 'a', true, false, out), "+30");
	assert_string_equal(press(&k, 'a', false, false, out), "-30");
	assert_int_equal(k.n, 0);
}

static void shift_is_pressed_for_a_character_that_needs_it(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press(&k, '!', true, false, out), "+42 +2 -42");
	assert_string_equal(press(&k, '!', false, false, out), "-2");
}

static void a_shift_that_is_down_is_not_pressed_again(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press(&k, SHIFT_R, true, false, out), "+54");
	assert_string_equal(press(&k, 'A', true, false, out), "+30");
}

static void shifts_are_let_go_of_for_a_character_without(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	press(&k, SHIFT_L, true, false, out);
	press(&k, SHIFT_R, true, false, out);
	assert_string_equal(press(&k, '7', true, false, out), "-42 -54 +8 +42 +54");
	assert_int_equal(k.n, 3);
}

static void caps_lock_turns_the_shift_of_letters_only(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press(&k, 'A', true, true, out), "+30");
	assert_string_equal(press(&k, 'b', true, true, out), "+42 +48 -42");
	assert_string_equal(press(&k, '{', true, true, out), "+42 +26 -42");
	assert_string_equal(press(&k, '1', true, true, out), "+2");
}

static void a_shortcut_is_its_keys_alone(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	press(&k, CONTROL_L, true, false, out);
	assert_string_equal(press(&k, 'C', true, false, out), "+46");
}

static void a_repeated_press_comes_up_in_between(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	press(&k, 'a', true, false, out);
	assert_string_equal(press(&k, 'a', true, false, out), "-30 +30");
	assert_int_equal(k.n, 1);
}

static void what_no_key_has_does_nothing(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press(&k, 0xe4 /* adiaeresis */, true, false, out), "");
	assert_string_equal(press(&k, 0x010020ac /* the Euro sign */, true, false, out), "");
	assert_string_equal(press(&k, 0, true, false, out), "");
	assert_string_equal(press(&k, 0xffffffff, true, false, out), "");
	assert_int_equal(k.n, 0);
}

/* The viewer's keyboard is German, the guest's is not. */
static void a_character_is_made_wherever_its_key_is(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press_at(&k, 'z', 0x15, true, false, out), "+44");
	assert_string_equal(press_at(&k, 'z', 0x15, false, false, out), "-44");
	assert_string_equal(press_at(&k, 0xf6 /* odiaeresis */, 0x27, true, false, out), "");
	assert_string_equal(press_at(&k, 0xfe03 /* ISO_Level3_Shift */, 0xb8, true, false, out), "");
	assert_string_equal(press_at(&k, '@', 0x10, true, false, out), "+42 +3 -42");
}

static void a_key_that_makes_no_character_is_found_by_its_place(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press_at(&k, 0xff23 /* Henkan_Mode */, 0x79, true, false, out), "+92");
	assert_string_equal(press_at(&k, 0, 0xb0, true, false, out), "+115");
	assert_string_equal(press_at(&k, 0, 0x179, true, false, out), "");
}

static void a_shortcut_of_another_alphabet_is_found_by_its_place(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press_at(&k, 0x6d3 /* Cyrillic_es */, 0x2e, true, false, out), "");
	press_at(&k, CONTROL_L, 0x1d, true, false, out);
	assert_string_equal(press_at(&k, 0x6d3, 0x2e, true, false, out), "+46");
}

/* Shift comes up first: the key would make another character by now. */
static void what_a_key_has_pressed_is_let_go_of(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	press_at(&k, SHIFT_L, 0x2a, true, false, out);
	assert_string_equal(press_at(&k, '/', 0x08, true, false, out), "-42 +53 +42");
	press_at(&k, SHIFT_L, 0x2a, false, false, out);
	assert_string_equal(press_at(&k, '7', 0x08, true, false, out), "-53 +8");
	assert_string_equal(press_at(&k, '/', 0x08, false, false, out), "-8");
	assert_int_equal(k.n, 0);
}

static void by_positions_keys_are_where_they_are(void **state)
{
	struct keys k = { .positions = true };
	char out[128];

	(void)state;
	assert_string_equal(press_at(&k, 'z', 0x15, true, false, out), "+21");
	assert_string_equal(press_at(&k, 'z', 0x15, false, false, out), "-21");
	assert_string_equal(press_at(&k, 0xf6, 0x27, true, false, out), "+39");
	assert_string_equal(press_at(&k, 0xfe03, 0xb8, true, false, out), "+100");
	assert_string_equal(press_at(&k, '!', 0x02, true, true, out), "+2"); /* no shift of ours */
	assert_string_equal(press(&k, 'x', true, false, out), "+45");	 /* this viewer does not say where */
}

static void every_place_is_a_key_of_the_keyboard(void **state)
{
	unsigned n = 0;

	(void)state;
	for (uint32_t scancode = 0; scancode < 0x20000; scancode++) {
		uint16_t code = keys_find_scancode(scancode);

		assert_true(code <= 248); /* devices/virtio_input has them */
		n += code != 0;
	}
	assert_int_equal(n, 83 + 80);
	assert_int_equal(keys_find_scancode(1), KEY_ESC);
	assert_int_equal(keys_find_scancode(0x53), KEY_KPDOT);
	assert_int_equal(keys_find_scancode(0xc6), KEY_PAUSE);
	assert_int_equal(keys_find_scancode(0x54), keys_find_scancode(0xb7));
}

static void a_release_without_press_does_nothing(void **state)
{
	struct keys k = { .n = 0 };
	char out[128];

	(void)state;
	assert_string_equal(press(&k, 'a', false, false, out), "");
}

/* Every keysym, down and never up: no more keys are down than there is room for, and each comes up once. */
static void keys_that_are_down_are_bounded_and_come_up_once(void **state)
{
	struct keys k = { .n = 0 };
	struct key_event e;
	uint8_t up[256] = { 0 };
	char out[128];
	size_t n = 0;

	(void)state;
	for (uint32_t keysym = 0; keysym <= 0xffff; keysym++)
		press(&k, keysym, true, false, out);
	assert_int_equal(k.n, KEYS_HELD_MAX);
	while (keys_release_one(&k, &e)) {
		assert_false(e.down);
		assert_int_equal(up[e.code & 255]++, 0);
		n++;
	}
	assert_int_equal(n, KEYS_HELD_MAX);
	assert_false(keys_release_one(&k, &e));
}

static void every_printable_character_has_a_key(void **state)
{
	int shift;

	(void)state;
	for (uint32_t c = ' '; c < 127; c++)
		assert_int_not_equal(keys_find(c, &shift), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_character_is_its_key),
		cmocka_unit_test(shift_is_pressed_for_a_character_that_needs_it),
		cmocka_unit_test(a_shift_that_is_down_is_not_pressed_again),
		cmocka_unit_test(shifts_are_let_go_of_for_a_character_without),
		cmocka_unit_test(caps_lock_turns_the_shift_of_letters_only),
		cmocka_unit_test(a_shortcut_is_its_keys_alone),
		cmocka_unit_test(a_repeated_press_comes_up_in_between),
		cmocka_unit_test(what_no_key_has_does_nothing),
		cmocka_unit_test(a_character_is_made_wherever_its_key_is),
		cmocka_unit_test(a_key_that_makes_no_character_is_found_by_its_place),
		cmocka_unit_test(a_shortcut_of_another_alphabet_is_found_by_its_place),
		cmocka_unit_test(what_a_key_has_pressed_is_let_go_of),
		cmocka_unit_test(by_positions_keys_are_where_they_are),
		cmocka_unit_test(every_place_is_a_key_of_the_keyboard),
		cmocka_unit_test(a_release_without_press_does_nothing),
		cmocka_unit_test(keys_that_are_down_are_bounded_and_come_up_once),
		cmocka_unit_test(every_printable_character_has_a_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
