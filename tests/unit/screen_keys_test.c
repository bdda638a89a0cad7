/* SPDX-License-Identifier: Apache-2.0 */
/* Names of keys, chords, and how texts are entered. */
#include <errno.h>
#include <linux/input-event-codes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "host/keys_us.h"
#include "host/screen_keys.h"
#include "lib/util.h"

static void expect_chord(const char *text, uint32_t n, ...)
{
	struct screen_chord c;
	struct err err = ERR_INIT;
	va_list ap;

	if (screen_chord_parse(text, &c, &err) < 0)
		fail_msg("%s: %s", text, err.text);
	assert_int_equal(c.n, n);
	va_start(ap, n);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(c.key[i], va_arg(ap, int));
	va_end(ap);
}

static void expect_no_chord(const char *text, const char *why)
{
	struct screen_chord c;
	struct err err = ERR_INIT;

	assert_int_equal(screen_chord_parse(text, &c, &err), -EINVAL);
	if (!strstr(err.text, why))
		fail_msg("'%s' does not say '%s'", err.text, why);
}

static void chords_are_pressed_from_left_to_right(void **ctx)
{
	(void)ctx;
	expect_chord("ctrl+shift+t", 3, KEY_LEFTCTRL, KEY_LEFTSHIFT, KEY_T);
	expect_chord("Return", 1, KEY_ENTER);
	expect_chord("F5", 1, KEY_F5);
	expect_chord("Page_Down", 1, KEY_PAGEDOWN);
	expect_chord("super", 1, KEY_LEFTMETA);
	expect_chord("alt+F4", 2, KEY_LEFTALT, KEY_F4);
	expect_chord("Control_L+Alt_L+Delete", 3, KEY_LEFTCTRL, KEY_LEFTALT, KEY_DELETE);
	expect_chord("XF86AudioMute", 1, KEY_MUTE);
}

static void names_are_the_same_in_any_case(void **ctx)
{
	(void)ctx;
	expect_chord("RETURN", 1, KEY_ENTER);
	expect_chord("Ctrl+page_up", 2, KEY_LEFTCTRL, KEY_PAGEUP);
}

static void characters_are_keys(void **ctx)
{
	(void)ctx;
	expect_chord("a", 1, KEY_A);
	expect_chord("A", 2, KEY_LEFTSHIFT, KEY_A);
	expect_chord("%", 2, KEY_LEFTSHIFT, KEY_5);
	expect_chord("shift+A", 2, KEY_LEFTSHIFT, KEY_A);
	expect_chord("ctrl+/", 2, KEY_LEFTCTRL, KEY_SLASH);
}

static void a_plus_can_be_a_key(void **ctx)
{
	(void)ctx;
	expect_chord("+", 2, KEY_LEFTSHIFT, KEY_EQUAL);
	expect_chord("ctrl++", 3, KEY_LEFTCTRL, KEY_LEFTSHIFT, KEY_EQUAL);
	expect_chord("ctrl+plus", 3, KEY_LEFTCTRL, KEY_LEFTSHIFT, KEY_EQUAL);
}

static void unknown_keys_are_named(void **ctx)
{
	(void)ctx;
	expect_no_chord("", "'' is no key");
	expect_no_chord("ctrl+foo", "'foo' is no key");
	expect_no_chord("ctrl+", "'' is no key");
	expect_no_chord("\xc3\xa4", "is no key");
	expect_no_chord("a+b+c+d+e+f+g+h+i", "at most 8 keys");
}

static void all_of_ascii_can_be_typed(void **ctx)
{
	bool shift;

	(void)ctx;
	for (uint32_t c = ' '; c <= '~'; c++) {
		assert_true(keys_us_of_char(c, &shift) > 0);
		if (c >= 'A' && c <= 'Z')
			assert_true(shift);
		if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == ' ')
			assert_false(shift);
	}
	assert_int_equal(keys_us_of_char('\n', &shift), KEY_ENTER);
	assert_int_equal(keys_us_of_char('\t', &shift), KEY_TAB);
	assert_int_equal(keys_us_of_char(0, &shift), -ENOENT);
	assert_int_equal(keys_us_of_char(0xe4, &shift), -ENOENT);
	assert_int_equal(keys_us_of_char('_', &shift), KEY_MINUS);
	assert_true(shift);
}

/* The parts with '|' between them, pasted ones in brackets. */
static void expect_parts(const char *text, const char *want)
{
	char got[256] = "";
	struct screen_part p;
	size_t n = strlen(text);

	for (;;) {
		assert_int_equal(screen_part_next(text, n, &p), 0);
		if (p.n == 0)
			break;
		snprintf(got + strlen(got), sizeof(got) - strlen(got), p.paste ? "[%.*s]" : "|%.*s|", (int)p.n, p.text);
		text += p.n;
		n -= p.n;
	}
	assert_int_equal(n, 0);
	assert_string_equal(got, want);
}

static void what_the_layout_lacks_is_pasted_line_by_line(void **ctx)
{
	(void)ctx;
	expect_parts("plain\n", "|plain\n|");
	expect_parts("K\xc3\xa4se", "|K|[\xc3\xa4]|se|");
	expect_parts("a \xe4\xbd\xa0 b \xe5\xa5\xbd c\nd\xc3\xa9", "|a |[\xe4\xbd\xa0 b \xe5\xa5\xbd]| c\nd|[\xc3\xa9]");
	expect_parts("\xf0\x9f\x98\x80\n\xc3\xa9", "[\xf0\x9f\x98\x80]|\n|[\xc3\xa9]");
	expect_parts("", "");
}

static void broken_utf8_is_refused(void **ctx)
{
	static const char *const bad[] = { "\x80", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xe4\xbd", "\xc3(" };
	struct screen_part p;

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(screen_part_next(bad[i], strlen(bad[i]), &p), -EILSEQ);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chords_are_pressed_from_left_to_right),
		cmocka_unit_test(names_are_the_same_in_any_case),
		cmocka_unit_test(characters_are_keys),
		cmocka_unit_test(a_plus_can_be_a_key),
		cmocka_unit_test(unknown_keys_are_named),
		cmocka_unit_test(all_of_ascii_can_be_typed),
		cmocka_unit_test(what_the_layout_lacks_is_pasted_line_by_line),
		cmocka_unit_test(broken_utf8_is_refused),
	};

	return cmocka_run_group_tests_name("screen_keys", tests, NULL, NULL);
}
