/* SPDX-License-Identifier: Apache-2.0 */
/* Actions on a screen, against tests/tools/display_pattern: what the guest would get, and what is seen of it. */
#include <errno.h>
#include <linux/input-event-codes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/screen.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/pattern.h"

struct fixture {
	struct pattern_process p;
	struct screen s;
	char pasted[256];
	struct err err;
};

static int set_clipboard(void *arg, const char *text, size_t n, struct err *err)
{
	struct fixture *f = arg;

	(void)err;
	snprintf(f->pasted + strlen(f->pasted), sizeof(f->pasted) - strlen(f->pasted), "[%.*s]", (int)n, text);
	return 0;
}

static int setup(void **ctx)
{
	static struct fixture f;

	f = (struct fixture){ .err = ERR_INIT };
	pattern_start(&f.p, 640, 400);
	if (screen_open(f.p.dir_fd, 0, &f.s, &f.err) < 0)
		fail_msg("%s", f.err.text);
	f.s.settle_ms = 1;
	f.s.type_ms = 0;
	f.s.clipboard_set = set_clipboard;
	f.s.clipboard_arg = &f;
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	screen_close(&f->s);
	pattern_stop(&f->p);
	return 0;
}

static void ok(struct fixture *f, int r)
{
	if (r < 0)
		fail_msg("%s", f->err.text);
}

static void refused(struct fixture *f, int r, int want, const char *text)
{
	assert_int_equal(r, want);
	if (!strstr(f->err.text, text))
		fail_msg("'%s' does not say '%s'", f->err.text, text);
}

static void expect_input(struct fixture *f, const char *const *want)
{
	char line[128];

	for (; *want; want++)
		assert_string_equal(pattern_line(&f->p, line, sizeof(line)), *want);
}
#define EXPECT(f, ...) expect_input(f, (const char *const[]){ __VA_ARGS__, NULL })

/* The display's server says it soon. */
static void hear(struct fixture *f, int flag)
{
	int r;

	do
		r = display_client_wait(&f->s.client, 0, &f->err);
	while (r >= 0 && !(r & flag));
	ok(f, r);
}

static void the_size_is_the_guests(void **ctx)
{
	struct fixture *f = *ctx;
	uint32_t w, h;

	ok(f, screen_size(&f->s, &w, &h, &f->err));
	assert_true(w == 640 && h == 400);
	pattern_command(&f->p, "size 300 200");
	hear(f, DISPLAY_CLIENT_SCANOUT);
	ok(f, screen_size(&f->s, &w, &h, &f->err));
	assert_true(w == 300 && h == 200);
	pattern_command(&f->p, "off");
	hear(f, DISPLAY_CLIENT_SCANOUT);
	refused(f, screen_size(&f->s, &w, &h, &f->err), -ENODATA, "shows nothing");
}

static struct picture shot(struct fixture *f, struct screen_shot how)
{
	struct picture p;

	ok(f, screen_screenshot(&f->s, &how, &p, &f->err));
	return p;
}

static void a_shot_is_pixel_exact(void **ctx)
{
	struct fixture *f = *ctx;
	char path[96], head[32];
	struct picture p;
	FILE *ppm;

	snprintf(path, sizeof(path), "%s/ppm", f->p.dir);
	pattern_command(&f->p, "dump %s", path);
	p = shot(f, (struct screen_shot){ .scale = NULL });
	ppm = fopen(path, "r");
	assert_true(ppm && fgets(head, sizeof(head), ppm) && fgets(head, sizeof(head), ppm) && fgets(head, sizeof(head), ppm));
	for (uint32_t i = 0; i < 640 * 400; i++)
		for (int c = 0; c < 3; c++)
			assert_int_equal(p.rgba[i * 4 + (uint32_t)c], getc(ppm));
	fclose(ppm);
	unlink(path);
	picture_free(&p);
}

static void a_region_is_cut_and_scaled(void **ctx)
{
	struct fixture *f = *ctx;
	struct picture p;

	pattern_command(&f->p, "rect 100 50 20 10 3366cc");
	p = shot(f, (struct screen_shot){ .region = { 100, 50, 20, 10 }, .scale = "40x20" });
	assert_true(p.width == 40 && p.height == 20);
	for (uint32_t i = 0; i < 800; i++)
		assert_memory_equal(p.rgba + i * 4, "\x33\x66\xcc\xff", 4);
	picture_free(&p);
	refused(f, screen_screenshot(&f->s, &(struct screen_shot){ .region = { 630, 0, 20, 10 } }, &p, &f->err), -EINVAL,
		"region 630,0,20x10 is not inside the screen, which has 640x400");
}

static void the_cursor_is_drawn_when_asked_for(void **ctx)
{
	struct fixture *f = *ctx;
	struct picture with, without;
	int32_t x, y;

	refused(f, screen_cursor_position(&f->s, &x, &y, &f->err), -ENODATA, "no cursor");
	pattern_command(&f->p, "cursor 0");
	pattern_command(&f->p, "move 103 205");
	while (f->s.client.scanout[0].cursor.x != 103)
		hear(f, DISPLAY_CLIENT_CURSOR);
	ok(f, screen_cursor_position(&f->s, &x, &y, &f->err));
	assert_true(x == 103 && y == 205);
	with = shot(f, (struct screen_shot){ .region = { 100, 200, 1, 1 }, .cursor = true });
	without = shot(f, (struct screen_shot){ .region = { 100, 200, 1, 1 } });
	assert_memory_equal(with.rgba, "\xff\x00\x00\xff", 4);
	assert_false(picture_equal(&with, &without));
	picture_free(&with);
	picture_free(&without);
}

/* As a guest's driver does it: floor(value * size / 32768). */
static uint32_t pixel_of(uint32_t value, uint32_t size)
{
	return (uint32_t)((uint64_t)value * size / 32768);
}

static void every_pixel_can_be_pointed_at(void **ctx)
{
	static const uint32_t sizes[] = { 64, 640, 1280, 1366, 1920, 3840, 8192 };

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		for (uint32_t x = 0; x < sizes[i]; x++) {
			uint32_t v = display_client_axis(x, sizes[i]);

			assert_true(v <= 32767);
			assert_int_equal(pixel_of(v, sizes[i]), x);
			/* Others map the largest value to the last pixel. */
			if (sizes[i] < 4096)
				assert_int_equal((v * 2ull * (sizes[i] - 1) + 32767) / (2 * 32767ull), x);
		}
	}
}

static void a_click_moves_presses_and_lets_go(void **ctx)
{
	struct fixture *f = *ctx;
	const struct screen_point at = { 320, 100 };

	ok(f, screen_click(&f->s, SCREEN_LEFT, 1, &at, NULL, &f->err));
	EXPECT(f, "input 1 3 0 16409", "input 1 3 1 8232", "end 1", "input 1 1 272 1", "end 1", "input 1 1 272 0", "end 1");
	ok(f, screen_click(&f->s, SCREEN_RIGHT, 2, NULL, &(struct screen_chord){ { KEY_LEFTCTRL }, 1 }, &f->err));
	EXPECT(f, "input 0 1 29 1", "end 0", "input 1 1 273 1", "end 1", "input 1 1 273 0", "end 1", "input 1 1 273 1", "end 1",
	       "input 1 1 273 0", "end 1", "input 0 1 29 0", "end 0");
}

static void a_point_outside_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const struct screen_point at = { 640, 0 };

	refused(f, screen_click(&f->s, SCREEN_LEFT, 1, &at, NULL, &f->err), -EINVAL,
		"640,0 is outside of the screen: it has 640x400 pixels");
	refused(f, screen_drag(&f->s, SCREEN_LEFT, (struct screen_point){ 1, 1 }, (struct screen_point){ 0, 400 }, &f->err), -EINVAL,
		"0,400 is outside");
}

static void a_drag_ends_where_it_should(void **ctx)
{
	struct fixture *f = *ctx;
	char line[128], last[128] = "";
	int moves = 0;

	ok(f, screen_drag(&f->s, SCREEN_LEFT, (struct screen_point){ 10, 10 }, (struct screen_point){ 600, 300 }, &f->err));
	EXPECT(f, "input 1 3 0 537", "input 1 3 1 860", "end 1", "input 1 1 272 1", "end 1");
	while (strcmp(pattern_line(&f->p, line, sizeof(line)), "input 1 1 272 0") != 0) {
		moves += strncmp(line, "input 1 3 0 ", 12) == 0;
		if (strncmp(line, "input 1 3 ", 10) == 0)
			strcpy(last, line);
	}
	assert_true(moves > 5);
	snprintf(line, sizeof(line), "input 1 3 1 %u", display_client_axis(300, 400));
	assert_string_equal(last, line);
}

static void the_wheel_has_both_resolutions(void **ctx)
{
	struct fixture *f = *ctx;

	ok(f, screen_scroll(&f->s, NULL, -1, 2, &f->err));
	EXPECT(f, "input 1 2 8 -1", "input 1 2 11 -120", "input 1 2 6 -1", "input 1 2 12 -120", "end 1", "input 1 2 8 -1",
	       "input 1 2 11 -120", "end 1");
}

static void a_chord_is_let_go_of_in_reverse(void **ctx)
{
	struct fixture *f = *ctx;
	struct screen_chord c;

	ok(f, screen_chord_parse("ctrl+shift+t", &c, &f->err));
	ok(f, screen_key(&f->s, &c, &f->err));
	EXPECT(f, "input 0 1 29 1", "end 0", "input 0 1 42 1", "end 0", "input 0 1 20 1", "end 0", "input 0 1 20 0", "end 0",
	       "input 0 1 42 0", "end 0", "input 0 1 29 0", "end 0");
}

static void text_is_typed_and_what_is_left_is_pasted(void **ctx)
{
	struct fixture *f = *ctx;
	static const char text[] = "aB\xc3\xa4\n";

	ok(f, screen_type(&f->s, text, strlen(text), &f->err));
	EXPECT(f, "input 0 1 30 1", "end 0", "input 0 1 30 0", "end 0", "input 0 1 42 1", "input 0 1 48 1", "end 0", "input 0 1 48 0",
	       "input 0 1 42 0", "end 0", "input 0 1 29 1", "end 0", "input 0 1 47 1", "end 0", "input 0 1 47 0", "end 0",
	       "input 0 1 29 0", "end 0", "input 0 1 28 1", "end 0", "input 0 1 28 0", "end 0");
	assert_string_equal(f->pasted, "[\xc3\xa4][\xc3\xa4]"); /* the first time to see whether there is a clipboard */
	f->s.clipboard_set = NULL;
	refused(f, screen_type(&f->s, text, strlen(text), &f->err), -EINVAL, "U+00E4");
	refused(f, screen_type(&f->s, "\xff", 1, &f->err), -EINVAL, "not UTF-8");
}

static int no_clipboard(void *arg, const char *text, size_t n, struct err *err)
{
	(void)arg;
	(void)text;
	(void)n;
	return err_set(err, -EIO, "no session");
}

static void nothing_is_typed_of_a_text_that_cannot_be_pasted(void **ctx)
{
	struct fixture *f = *ctx;
	static const char text[] = "ab\n\xc3\xa4";

	f->s.clipboard_set = no_clipboard;
	refused(f, screen_type(&f->s, text, strlen(text), &f->err), -EIO, "no key of the layout makes U+00E4, and it cannot be pasted: no session");
	ok(f, screen_type(&f->s, "c", 1, &f->err)); /* needs none */
	EXPECT(f, "input 0 1 46 1", "end 0", "input 0 1 46 0", "end 0");
}

static void caps_lock_does_not_turn_the_text(void **ctx)
{
	struct fixture *f = *ctx;

	pattern_command(&f->p, "leds 2");
	hear(f, DISPLAY_CLIENT_LEDS);
	ok(f, screen_type(&f->s, "aA1", 3, &f->err));
	EXPECT(f, "input 0 1 42 1", "input 0 1 30 1", "end 0", "input 0 1 30 0", "input 0 1 42 0", "end 0", "input 0 1 30 1", "end 0",
	       "input 0 1 30 0", "end 0", "input 0 1 2 1", "end 0");
}

static void an_interrupted_hold_lets_go(void **ctx)
{
	struct fixture *f = *ctx;
	_cleanup_close_ int fd = eventfd(1, EFD_CLOEXEC);

	f->s.interrupt_fd = fd;
	refused(f, screen_hold_key(&f->s, &(struct screen_chord){ { KEY_A }, 1 }, 600000, &f->err), -ECANCELED, "interrupted");
	EXPECT(f, "input 0 1 30 1", "end 0", "input 0 1 30 0", "end 0");
}

/* The guest's answer to a click comes later than the click was taken: the action waits for it. */
static void *answer_click(void *arg)
{
	struct fixture *f = arg;
	char line[128];

	while (strcmp(pattern_line(&f->p, line, sizeof(line)), "input 1 1 272 0") != 0)
		;
	pattern_say(&f->p, "rect 0 0 640 400 00ff00");
	return NULL;
}

static void a_shot_after_a_click_shows_what_it_did(void **ctx)
{
	struct fixture *f = *ctx;
	const struct screen_point at = { 5, 5 };
	struct picture p;
	pthread_t t;

	f->s.settle_ms = 600000;
	pattern_command(&f->p, "rect 0 0 640 400 ff0000");
	assert_int_equal(pthread_create(&t, NULL, answer_click, f), 0);
	ok(f, screen_click(&f->s, SCREEN_LEFT, 1, &at, NULL, &f->err));
	p = shot(f, (struct screen_shot){ .region = { 639, 399, 1, 1 } });
	assert_memory_equal(p.rgba, "\x00\xff\x00\xff", 4);
	picture_free(&p);
	pthread_join(t, NULL);
}

static void a_guest_that_takes_nothing_is_said(void **ctx)
{
	struct fixture *f = *ctx;
	const struct display_input_event e = { le16_make(EV_KEY), le16_make(KEY_A), le32_make(1) };

	pattern_command(&f->p, "hold");
	refused(f, display_client_send(&f->s.client, DISPLAY_KEYBOARD, &e, 1, 1, &f->err), -ETIMEDOUT, "does not take the keyboard's events");
	refused(f, display_client_input(&f->s.client, DISPLAY_KEYBOARD, &e, 1, &f->err), -EBUSY, "not taken the last");
}

static void a_still_screen_is_stable(void **ctx)
{
	struct fixture *f = *ctx;
	struct screen_point at;

	ok(f, screen_wait(&f->s, &(struct screen_wait){ .kind = SCREEN_WAIT_STABLE, .stable_ms = 20 }, &at, &f->err));
}

static void no_change_times_out(void **ctx)
{
	struct fixture *f = *ctx;
	struct screen_point at;
	const struct screen_wait w = { .kind = SCREEN_WAIT_CHANGE, .timeout_ms = 30 };

	pattern_command(&f->p, "rect 0 0 10 10 112233");
	refused(f, screen_wait(&f->s, &w, &at, &f->err), -ETIMEDOUT, "did not change within 30 ms");
}

static void *draw(void *arg)
{
	struct fixture *f = arg;

	/* The same pixels again are no change, those elsewhere none of the region. */
	pattern_command(&f->p, "rect 0 0 50 50 111111");
	pattern_command(&f->p, "rect 200 200 50 50 222222");
	pattern_command(&f->p, "rect 20 20 5 5 00ffff");
	return NULL;
}

static void a_change_in_the_region_is_waited_for(void **ctx)
{
	struct fixture *f = *ctx;
	const struct screen_wait w = { .kind = SCREEN_WAIT_CHANGE, .region = { 0, 0, 50, 50 } };
	struct screen_point at;
	struct picture p;
	pthread_t t;

	pattern_command(&f->p, "rect 0 0 50 50 111111");
	assert_int_equal(pthread_create(&t, NULL, draw, f), 0);
	ok(f, screen_wait(&f->s, &w, &at, &f->err));
	p = shot(f, (struct screen_shot){ .region = { 20, 20, 1, 1 } });
	assert_memory_equal(p.rgba, "\x00\xff\xff\xff", 4);
	picture_free(&p);
	pthread_join(t, NULL);
}

static void an_image_is_waited_for(void **ctx)
{
	struct fixture *f = *ctx;
	struct picture image = { 5, 5, malloc(100) };
	const struct screen_wait w = { .kind = SCREEN_WAIT_IMAGE, .image = &image, .region = { 10, 10, 40, 40 } };
	struct screen_point at = { 0, 0 };
	pthread_t t;

	for (int i = 0; i < 25; i++)
		memcpy(image.rgba + i * 4, "\x00\xff\xff\xff", 4);
	assert_int_equal(pthread_create(&t, NULL, draw, f), 0);
	ok(f, screen_wait(&f->s, &w, &at, &f->err));
	assert_true(at.x == 20 && at.y == 20);
	pthread_join(t, NULL);
	picture_free(&image);
}

static int desktop_ready(void *arg, unsigned long long deadline_ms, struct err *err)
{
	struct fixture *f = arg;

	(void)err;
	assert_true(deadline_ms == 0);
	pattern_command(&f->p, "rect 0 0 20 20 ff0000");
	return 0;
}

static int no_desktop(void *arg, unsigned long long deadline_ms, struct err *err)
{
	(void)arg;
	(void)deadline_ms;
	return err_set(err, -ETIMEDOUT, "no desktop yet");
}

static void a_desktop_is_ready_when_it_says_so_and_has_drawn(void **ctx)
{
	struct fixture *f = *ctx;
	struct screen_wait w = { .ready = true, .kind = SCREEN_WAIT_DRAWN };
	struct screen_point at;

	refused(f, screen_wait(&f->s, &w, &at, &f->err), -EOPNOTSUPP, "nobody can say");
	f->s.desktop_ready = no_desktop;
	refused(f, screen_wait(&f->s, &w, &at, &f->err), -ETIMEDOUT, "no desktop yet");
	pattern_command(&f->p, "pattern 3");
	f->s.desktop_ready = desktop_ready;
	f->s.desktop_arg = f;
	ok(f, screen_wait(&f->s, &w, &at, &f->err));
	/* Then for what else is asked for. */
	w.kind = SCREEN_WAIT_STABLE;
	w.stable_ms = 20;
	ok(f, screen_wait(&f->s, &w, &at, &f->err));
}

static int ready_at_once(void *arg, unsigned long long deadline_ms, struct err *err)
{
	(void)arg;
	(void)deadline_ms;
	(void)err;
	return 0;
}

static void a_screen_of_one_colour_is_no_desktop(void **ctx)
{
	struct fixture *f = *ctx;
	struct screen_wait w = { .ready = true, .kind = SCREEN_WAIT_DRAWN, .timeout_ms = 50 };
	struct screen_point at;

	pattern_command(&f->p, "pattern 3");
	f->s.desktop_ready = ready_at_once;
	refused(f, screen_wait(&f->s, &w, &at, &f->err), -ETIMEDOUT, "the screen did not show more than one colour within 50 ms");
	pattern_command(&f->p, "off");
	refused(f, screen_wait(&f->s, &w, &at, &f->err), -ETIMEDOUT, "more than one colour");
}

static void a_screen_that_is_not_there_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	struct screen s;

	refused(f, screen_open(f->p.dir_fd, 1, &s, &f->err), -EINVAL, "screen 1: the VM has 1");
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_size_is_the_guests),
		TEST(a_shot_is_pixel_exact),
		TEST(a_region_is_cut_and_scaled),
		TEST(the_cursor_is_drawn_when_asked_for),
		cmocka_unit_test(every_pixel_can_be_pointed_at),
		TEST(a_click_moves_presses_and_lets_go),
		TEST(a_point_outside_is_refused),
		TEST(a_drag_ends_where_it_should),
		TEST(the_wheel_has_both_resolutions),
		TEST(a_chord_is_let_go_of_in_reverse),
		TEST(text_is_typed_and_what_is_left_is_pasted),
		TEST(nothing_is_typed_of_a_text_that_cannot_be_pasted),
		TEST(caps_lock_does_not_turn_the_text),
		TEST(an_interrupted_hold_lets_go),
		TEST(a_shot_after_a_click_shows_what_it_did),
		TEST(a_guest_that_takes_nothing_is_said),
		TEST(a_still_screen_is_stable),
		TEST(no_change_times_out),
		TEST(a_change_in_the_region_is_waited_for),
		TEST(an_image_is_waited_for),
		TEST(a_desktop_is_ready_when_it_says_so_and_has_drawn),
		TEST(a_screen_of_one_colour_is_no_desktop),
		TEST(a_screen_that_is_not_there_is_refused),
	};

	return cmocka_run_group_tests_name("screen", tests, NULL, NULL);
}
