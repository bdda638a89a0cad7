/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and texts: see screen.h. */
#include <errno.h>
#include <linux/input-event-codes.h>

#include "host/keys_us.h"
#include "host/screen_internal.h"
#include "lib/text.h"
#include "lib/util.h"

enum {
	PASTE_MS = 50,  /* for a program to fetch what it pastes before the clipboard changes again */
	TYPE_BURST = 8, /* characters: Linux keeps 64 events for a program that does not read them, a character has up to 6 */
};

static int send_key(struct screen *s, uint16_t key, bool down, struct err *err)
{
	const struct display_input_event e = screen_event(EV_KEY, key, down);

	return screen_send(s, DISPLAY_KEYBOARD, &e, 1, err);
}

/* All of them, in reverse order, whatever happens to one. */
static int release(struct screen *s, const struct screen_chord *c, uint32_t n, struct err *err)
{
	int r = 0;

	while (n-- > 0) {
		int one = send_key(s, c->key[n], false, r == 0 ? err : NULL);

		r = r < 0 ? r : one;
	}
	return r;
}

int screen_press_chord(struct screen *s, const struct screen_chord *c, struct err *err)
{
	for (uint32_t i = 0; i < c->n; i++) {
		int r = send_key(s, c->key[i], true, err);

		if (r < 0) {
			release(s, c, i, NULL);
			return r;
		}
	}
	return 0;
}

int screen_release_chord(struct screen *s, const struct screen_chord *c, struct err *err)
{
	return release(s, c, c->n, err);
}

/* Down and up in one message: a guest that is busy meanwhile would take a key that is held for a while for one to repeat. */
static int tap(struct screen *s, const struct screen_chord *c, struct err *err)
{
	struct display_input_event e[SCREEN_CHORD_MAX * 4];
	size_t n = 0;

	_Static_assert(SCREEN_CHORD_MAX * 4 - 1 <= DISPLAY_EVENTS_MAX, "a chord is one message");
	for (uint32_t i = 0; i < c->n * 2; i++) {
		bool down = i < c->n;

		e[n++] = screen_event(EV_KEY, c->key[down ? i : c->n * 2 - 1 - i], down);
		e[n++] = screen_event(EV_SYN, SYN_REPORT, 0);
	}
	return n ? screen_send(s, DISPLAY_KEYBOARD, e, n - 1, err) : 0;
}

/* Without waiting for a frame. */
static int hold(struct screen *s, const struct screen_chord *chord, uint32_t ms, struct err *err)
{
	int r = screen_press_chord(s, chord, err), up;

	if (r < 0)
		return r;
	r = screen_nap(s, ms, err);
	up = screen_release_chord(s, chord, r == 0 ? err : NULL);
	return r < 0 ? r : up;
}

int screen_key(struct screen *s, const struct screen_chord *chord, struct err *err)
{
	int r = tap(s, chord, err);

	return r < 0 ? r : screen_settle(s, false, err);
}

int screen_hold_key(struct screen *s, const struct screen_chord *chord, uint32_t ms, struct err *err)
{
	int r;

	if (ms > SCREEN_HOLD_MS_MAX)
		return err_set(err, -EINVAL, "held for %u ms: at most %d are possible", ms, SCREEN_HOLD_MS_MAX);
	r = hold(s, chord, ms, err);
	return r < 0 ? r : screen_settle(s, false, err);
}

/* Shift and its key at one moment, one after another: no other program's key can come between. */
static int type_char(struct screen *s, uint32_t c, struct err *err)
{
	bool shift = false;
	int key = keys_us_of_char(c, &shift);
	bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
	struct display_input_event e[5];
	size_t n = 0;

	if (letter && s->client.leds >> LED_CAPSL & 1)
		shift = !shift;
	if (shift)
		e[n++] = screen_event(EV_KEY, KEY_LEFTSHIFT, 1);
	e[n++] = screen_event(EV_KEY, (uint16_t)key, 1);
	e[n++] = screen_event(EV_SYN, SYN_REPORT, 0);
	e[n++] = screen_event(EV_KEY, (uint16_t)key, 0);
	if (shift)
		e[n++] = screen_event(EV_KEY, KEY_LEFTSHIFT, 0);
	return screen_send(s, DISPLAY_KEYBOARD, e, n, err);
}

static int type_part(struct screen *s, const char *text, size_t n, struct err *err)
{
	uint32_t c, typed = 0;
	int len, r = 0;

	while (r == 0 && (len = text_utf8_next(text, n, &c)) > 0) {
		r = type_char(s, c, err);
		text += len;
		n -= (size_t)len;
		if (r == 0 && s->type_ms)
			r = screen_nap(s, s->type_ms, err);
		/* Most programs draw what is typed: who has drawn has read. */
		if (r == 0 && n && ++typed % TYPE_BURST == 0)
			r = screen_settle(s, false, err);
	}
	return r;
}

static int set_clipboard(struct screen *s, const struct screen_part *p, struct err *err)
{
	uint32_t c = 0;
	int r = s->clipboard_set(s->clipboard_arg, p->text, p->n, err);

	if (r >= 0)
		return 0;
	text_utf8_next(p->text, p->n, &c);
	err_prefix(err, "no key of the layout makes U+%04X, and it cannot be pasted: ", c);
	return r;
}

static int paste_part(struct screen *s, const struct screen_part *p, struct err *err)
{
	int r = set_clipboard(s, p, err);

	if (r == 0)
		r = tap(s, &s->paste, err);
	if (r == 0)
		r = screen_settle(s, false, err);
	return r < 0 ? r : screen_nap(s, PASTE_MS, err);
}

/*
 * A guest that has no clipboard shall not find half of the text typed: what is pasted first is put there before anything is typed. It is
 * put there again in its turn, since what was typed meanwhile may have copied something.
 */
static int check_clipboard(struct screen *s, const char *text, size_t n, struct err *err)
{
	struct screen_part p = { .n = 0 };

	for (size_t at = 0; at < n; at += p.n) {
		int r = screen_part_next(text + at, n - at, &p);

		if (r < 0)
			return err_errno(err, r, "the text");
		if (p.paste)
			return at ? set_clipboard(s, &p, err) : 0;
	}
	return 0;
}

/* Before anything is typed: is all of it possible? */
static int check_text(const struct screen *s, const char *text, size_t n, struct err *err)
{
	size_t at = 0;

	if (n > SCREEN_TYPE_MAX)
		return err_set(err, -E2BIG, "a text of %zu bytes: at most %d are typed", n, SCREEN_TYPE_MAX);
	while (at < n) {
		uint32_t c;
		bool shift;
		int len = text_utf8_next(text + at, n - at, &c);

		if (len < 0 || c == 0)
			return err_set(err, -EINVAL, "the text is not UTF-8 (byte %zu)", at);
		if (!s->clipboard_set && keys_us_of_char(c, &shift) < 0)
			return err_set(err, -EINVAL, "no key of the layout makes U+%04X, and there is no clipboard to paste it from", c);
		at += (size_t)len;
	}
	return 0;
}

int screen_type(struct screen *s, const char *text, size_t n, struct err *err)
{
	int r = check_text(s, text, n, err);

	if (r == 0)
		r = check_clipboard(s, text, n, err);
	while (r == 0 && n) {
		struct screen_part p;

		r = screen_part_next(text, n, &p);
		if (r < 0)
			return err_errno(err, r, "the text");
		r = p.paste ? paste_part(s, &p, err) : type_part(s, p.text, p.n, err);
		text += p.n;
		n -= p.n;
	}
	return r < 0 ? r : screen_settle(s, false, err);
}
