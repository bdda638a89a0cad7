/* SPDX-License-Identifier: Apache-2.0 */
/* Keysyms to keys: see keys.h. Numbers are those of X11's keysymdef.h and Linux' input-event-codes.h. */
#include "host/vnc/keys.h"

#include <linux/input-event-codes.h>

#include "host/keys_us.h"
#include "lib/util.h"

/* Keys that are the same with shift. */
static const struct {
	uint32_t keysym;
	uint16_t code;
} others[] = {
	{ ' ', KEY_SPACE },
	{ 0xff08, KEY_BACKSPACE },
	{ 0xff09, KEY_TAB },
	{ 0xfe20, KEY_TAB }, /* ISO_Left_Tab: shift is down already */
	{ 0xff0d, KEY_ENTER },
	{ 0xff13, KEY_PAUSE },
	{ 0xff14, KEY_SCROLLLOCK },
	{ 0xff15, KEY_SYSRQ },
	{ 0xff1b, KEY_ESC },
	{ 0xff50, KEY_HOME },
	{ 0xff51, KEY_LEFT },
	{ 0xff52, KEY_UP },
	{ 0xff53, KEY_RIGHT },
	{ 0xff54, KEY_DOWN },
	{ 0xff55, KEY_PAGEUP },
	{ 0xff56, KEY_PAGEDOWN },
	{ 0xff57, KEY_END },
	{ 0xff61, KEY_SYSRQ },
	{ 0xff63, KEY_INSERT },
	{ 0xff67, KEY_COMPOSE },
	{ 0xff6b, KEY_PAUSE }, /* Break */
	{ 0xff7f, KEY_NUMLOCK },
	{ 0xffff, KEY_DELETE },
	{ 0xffe1, KEY_LEFTSHIFT },
	{ 0xffe2, KEY_RIGHTSHIFT },
	{ 0xffe3, KEY_LEFTCTRL },
	{ 0xffe4, KEY_RIGHTCTRL },
	{ 0xffe5, KEY_CAPSLOCK },
	{ 0xffe7, KEY_LEFTALT }, /* Meta */
	{ 0xffe8, KEY_RIGHTALT },
	{ 0xffe9, KEY_LEFTALT },
	{ 0xffea, KEY_RIGHTALT },
	{ 0xffeb, KEY_LEFTMETA }, /* Super */
	{ 0xffec, KEY_RIGHTMETA },
	/* the keypad: with num lock and without */
	{ 0xff8d, KEY_KPENTER },
	{ 0xff95, KEY_KP7 },
	{ 0xff96, KEY_KP4 },
	{ 0xff97, KEY_KP8 },
	{ 0xff98, KEY_KP6 },
	{ 0xff99, KEY_KP2 },
	{ 0xff9a, KEY_KP9 },
	{ 0xff9b, KEY_KP3 },
	{ 0xff9c, KEY_KP1 },
	{ 0xff9d, KEY_KP5 },
	{ 0xff9e, KEY_KP0 },
	{ 0xff9f, KEY_KPDOT },
	{ 0xffaa, KEY_KPASTERISK },
	{ 0xffab, KEY_KPPLUS },
	{ 0xffac, KEY_KPCOMMA },
	{ 0xffad, KEY_KPMINUS },
	{ 0xffae, KEY_KPDOT },
	{ 0xffaf, KEY_KPSLASH },
	{ 0xffb0, KEY_KP0 },
	{ 0xffb1, KEY_KP1 },
	{ 0xffb2, KEY_KP2 },
	{ 0xffb3, KEY_KP3 },
	{ 0xffb4, KEY_KP4 },
	{ 0xffb5, KEY_KP5 },
	{ 0xffb6, KEY_KP6 },
	{ 0xffb7, KEY_KP7 },
	{ 0xffb8, KEY_KP8 },
	{ 0xffb9, KEY_KP9 },
	{ 0xffbd, KEY_KPEQUAL },
	{ 0xffbe, KEY_F1 },
	{ 0xffbf, KEY_F2 },
	{ 0xffc0, KEY_F3 },
	{ 0xffc1, KEY_F4 },
	{ 0xffc2, KEY_F5 },
	{ 0xffc3, KEY_F6 },
	{ 0xffc4, KEY_F7 },
	{ 0xffc5, KEY_F8 },
	{ 0xffc6, KEY_F9 },
	{ 0xffc7, KEY_F10 },
	{ 0xffc8, KEY_F11 },
	{ 0xffc9, KEY_F12 },
	/* XF86 keys */
	{ 0x1008ff11, KEY_VOLUMEDOWN },
	{ 0x1008ff12, KEY_MUTE },
	{ 0x1008ff13, KEY_VOLUMEUP },
	{ 0x1008ff26, KEY_BACK },
	{ 0x1008ff27, KEY_FORWARD },
};

uint16_t keys_find(uint32_t keysym, int *ret_shift)
{
	bool shift = false;
	int code = keysym > ' ' && keysym < 0x7f ? keys_us_of_char(keysym, &shift) : -1;

	if (code >= 0) {
		*ret_shift = shift;
		return (uint16_t)code;
	}
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (keysym == others[i].keysym) {
			*ret_shift = -1;
			return others[i].code;
		}
	return 0;
}

/* What makes or chooses a character: the us layout has it above, or not at all. */
static bool is_character(uint32_t keysym)
{
	return (keysym >= 0x20 && keysym < 0xfd00) || (keysym >= 0x1000000 && keysym <= 0x110ffff) ||
	       (keysym >= 0xfe00 && keysym < 0xfed0) || /* levels, groups, dead keys */
	       keysym == 0xff7e;			 /* Mode_switch */
}

static bool is_held(const struct keys *k, uint16_t code)
{
	for (size_t i = 0; i < k->n; i++)
		if (k->held[i].code == code)
			return true;
	return false;
}

/* With ctrl, alt or meta it is a shortcut: the keys as they are. */
static bool is_shortcut(const struct keys *k)
{
	return is_held(k, KEY_LEFTCTRL) || is_held(k, KEY_RIGHTCTRL) || is_held(k, KEY_LEFTALT) || is_held(k, KEY_LEFTMETA) ||
	       is_held(k, KEY_RIGHTMETA);
}

static uint16_t find(const struct keys *k, const struct key_press *p, int *ret_shift)
{
	uint16_t place = keys_find_scancode(p->scancode), code = 0;

	*ret_shift = -1;
	if (!k->positions || place == 0)
		code = keys_find(p->keysym, ret_shift);
	return code != 0 || (!k->positions && is_character(p->keysym) && !is_shortcut(k)) ? code : place;
}

static size_t put(struct key_event *out, size_t n, uint16_t code, bool down)
{
	out[n] = (struct key_event){ code, down };
	return n + 1;
}

static size_t release_at(struct keys *k, size_t i, struct key_event *out)
{
	uint16_t code = k->held[i].code;

	k->held[i] = k->held[--k->n];
	return put(out, 0, code, false);
}

static size_t release(struct keys *k, uint32_t scancode, uint16_t code, struct key_event *out)
{
	for (size_t i = 0; scancode && i < k->n; i++)
		if (k->held[i].scancode == scancode)
			return release_at(k, i, out);
	for (size_t i = 0; code && i < k->n; i++)
		if (k->held[i].code == code)
			return release_at(k, i, out);
	return 0;
}

/* It is down already, or makes something else by now. */
static size_t release_before(struct keys *k, uint32_t scancode, uint16_t code, struct key_event *out)
{
	size_t n = release(k, scancode, code, out);

	return is_held(k, code) ? n + release(k, 0, code, out + n) : n;
}

size_t keys_press(struct keys *k, const struct key_press *p, bool caps, struct key_event out[KEYS_EVENTS_MAX])
{
	int want;
	uint16_t code = find(k, p, &want);
	bool left, right;
	size_t n;

	if (!p->down)
		return release(k, p->scancode, code, out);
	if (code == 0)
		return 0;
	n = release_before(k, p->scancode, code, out); /* the viewer repeats it: the guest sees it pressed again */
	if (k->n == KEYS_HELD_MAX)
		return n;
	left = is_held(k, KEY_LEFTSHIFT);
	right = is_held(k, KEY_RIGHTSHIFT);
	k->held[k->n++] = (struct key_held){ code, p->scancode };
	if (want >= 0 && caps && p->keysym < 128 && (p->keysym | 32) >= 'a' && (p->keysym | 32) <= 'z')
		want = !want;
	if (want < 0 || is_shortcut(k) || want == (left || right))
		return put(out, n, code, true);
	if (want) {
		n = put(out, n, KEY_LEFTSHIFT, true);
		n = put(out, n, code, true);
		return put(out, n, KEY_LEFTSHIFT, false);
	}
	if (left)
		n = put(out, n, KEY_LEFTSHIFT, false);
	if (right)
		n = put(out, n, KEY_RIGHTSHIFT, false);
	n = put(out, n, code, true);
	if (left)
		n = put(out, n, KEY_LEFTSHIFT, true);
	if (right)
		n = put(out, n, KEY_RIGHTSHIFT, true);
	return n;
}

bool keys_release_one(struct keys *k, struct key_event *ret)
{
	if (k->n == 0)
		return false;
	*ret = (struct key_event){ k->held[--k->n].code, false };
	return true;
}
