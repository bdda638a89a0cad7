/* SPDX-License-Identifier: Apache-2.0 */
/* Names of keys: see screen_keys.h. The names are those of X.org's keysymdef.h and XF86keysym.h without their prefixes. */
#include "host/screen_keys.h"

#include <errno.h>
#include <linux/input-event-codes.h>
#include <string.h>
#include <strings.h>

#include "host/keys_us.h"
#include "lib/text.h"
#include "lib/util.h"

enum { NAME_MAX_LEN = 32 };

struct named {
	const char *name;
	uint16_t key;
	bool shift;
};

static const struct named names[] = {
	/* modifiers, with the short names that people and agents use */
	{ "ctrl", KEY_LEFTCTRL, false }, { "control", KEY_LEFTCTRL, false }, { "Control_L", KEY_LEFTCTRL, false },
	{ "Control_R", KEY_RIGHTCTRL, false }, { "shift", KEY_LEFTSHIFT, false }, { "Shift_L", KEY_LEFTSHIFT, false },
	{ "Shift_R", KEY_RIGHTSHIFT, false }, { "alt", KEY_LEFTALT, false }, { "option", KEY_LEFTALT, false },
	{ "Alt_L", KEY_LEFTALT, false }, { "Alt_R", KEY_RIGHTALT, false }, { "altgr", KEY_RIGHTALT, false },
	{ "ISO_Level3_Shift", KEY_RIGHTALT, false }, { "Mode_switch", KEY_RIGHTALT, false }, { "super", KEY_LEFTMETA, false },
	{ "win", KEY_LEFTMETA, false }, { "cmd", KEY_LEFTMETA, false }, { "command", KEY_LEFTMETA, false },
	{ "meta", KEY_LEFTMETA, false }, { "Super_L", KEY_LEFTMETA, false }, { "Super_R", KEY_RIGHTMETA, false },
	{ "Meta_L", KEY_LEFTMETA, false }, { "Meta_R", KEY_RIGHTMETA, false }, { "Hyper_L", KEY_LEFTMETA, false },
	{ "Caps_Lock", KEY_CAPSLOCK, false }, { "Num_Lock", KEY_NUMLOCK, false }, { "Scroll_Lock", KEY_SCROLLLOCK, false },
	/* editing and movement */
	{ "Return", KEY_ENTER, false }, { "Enter", KEY_ENTER, false }, { "Linefeed", KEY_ENTER, false }, { "Tab", KEY_TAB, false },
	{ "ISO_Left_Tab", KEY_TAB, true }, { "Escape", KEY_ESC, false }, { "esc", KEY_ESC, false },
	{ "BackSpace", KEY_BACKSPACE, false }, { "Delete", KEY_DELETE, false }, { "del", KEY_DELETE, false },
	{ "Insert", KEY_INSERT, false }, { "ins", KEY_INSERT, false }, { "Home", KEY_HOME, false }, { "End", KEY_END, false },
	{ "Page_Up", KEY_PAGEUP, false }, { "PageUp", KEY_PAGEUP, false }, { "Prior", KEY_PAGEUP, false },
	{ "Page_Down", KEY_PAGEDOWN, false }, { "PageDown", KEY_PAGEDOWN, false }, { "Next", KEY_PAGEDOWN, false },
	{ "Left", KEY_LEFT, false }, { "Right", KEY_RIGHT, false }, { "Up", KEY_UP, false }, { "Down", KEY_DOWN, false },
	{ "ArrowLeft", KEY_LEFT, false }, { "ArrowRight", KEY_RIGHT, false }, { "ArrowUp", KEY_UP, false },
	{ "ArrowDown", KEY_DOWN, false }, { "Menu", KEY_COMPOSE, false }, { "Print", KEY_SYSRQ, false },
	{ "Sys_Req", KEY_SYSRQ, false }, { "Pause", KEY_PAUSE, false }, { "Break", KEY_PAUSE, false }, { "Help", KEY_HELP, false },
	{ "Undo", KEY_UNDO, false }, { "Redo", KEY_REDO, false }, { "Find", KEY_FIND, false }, { "Cancel", KEY_CANCEL, false },
	/* functions */
	{ "F1", KEY_F1, false }, { "F2", KEY_F2, false }, { "F3", KEY_F3, false }, { "F4", KEY_F4, false }, { "F5", KEY_F5, false },
	{ "F6", KEY_F6, false }, { "F7", KEY_F7, false }, { "F8", KEY_F8, false }, { "F9", KEY_F9, false }, { "F10", KEY_F10, false },
	{ "F11", KEY_F11, false }, { "F12", KEY_F12, false }, { "F13", KEY_F13, false }, { "F14", KEY_F14, false },
	{ "F15", KEY_F15, false }, { "F16", KEY_F16, false }, { "F17", KEY_F17, false }, { "F18", KEY_F18, false },
	{ "F19", KEY_F19, false }, { "F20", KEY_F20, false }, { "F21", KEY_F21, false }, { "F22", KEY_F22, false },
	{ "F23", KEY_F23, false }, { "F24", KEY_F24, false },
	/* the keypad */
	{ "KP_0", KEY_KP0, false }, { "KP_1", KEY_KP1, false }, { "KP_2", KEY_KP2, false }, { "KP_3", KEY_KP3, false },
	{ "KP_4", KEY_KP4, false }, { "KP_5", KEY_KP5, false }, { "KP_6", KEY_KP6, false }, { "KP_7", KEY_KP7, false },
	{ "KP_8", KEY_KP8, false }, { "KP_9", KEY_KP9, false }, { "KP_Enter", KEY_KPENTER, false }, { "KP_Add", KEY_KPPLUS, false },
	{ "KP_Subtract", KEY_KPMINUS, false }, { "KP_Multiply", KEY_KPASTERISK, false }, { "KP_Divide", KEY_KPSLASH, false },
	{ "KP_Decimal", KEY_KPDOT, false }, { "KP_Separator", KEY_KPCOMMA, false }, { "KP_Equal", KEY_KPEQUAL, false },
	{ "KP_Insert", KEY_KP0, false }, { "KP_End", KEY_KP1, false }, { "KP_Down", KEY_KP2, false }, { "KP_Page_Down", KEY_KP3, false },
	{ "KP_Left", KEY_KP4, false }, { "KP_Begin", KEY_KP5, false }, { "KP_Right", KEY_KP6, false }, { "KP_Home", KEY_KP7, false },
	{ "KP_Up", KEY_KP8, false }, { "KP_Page_Up", KEY_KP9, false }, { "KP_Delete", KEY_KPDOT, false },
	/* characters by name */
	{ "space", KEY_SPACE, false }, { "exclam", KEY_1, true }, { "quotedbl", KEY_APOSTROPHE, true }, { "numbersign", KEY_3, true },
	{ "dollar", KEY_4, true }, { "percent", KEY_5, true }, { "ampersand", KEY_7, true }, { "apostrophe", KEY_APOSTROPHE, false },
	{ "parenleft", KEY_9, true }, { "parenright", KEY_0, true }, { "asterisk", KEY_8, true }, { "plus", KEY_EQUAL, true },
	{ "comma", KEY_COMMA, false }, { "minus", KEY_MINUS, false }, { "period", KEY_DOT, false }, { "slash", KEY_SLASH, false },
	{ "colon", KEY_SEMICOLON, true }, { "semicolon", KEY_SEMICOLON, false }, { "less", KEY_COMMA, true },
	{ "equal", KEY_EQUAL, false }, { "greater", KEY_DOT, true }, { "question", KEY_SLASH, true }, { "at", KEY_2, true },
	{ "bracketleft", KEY_LEFTBRACE, false }, { "backslash", KEY_BACKSLASH, false }, { "bracketright", KEY_RIGHTBRACE, false },
	{ "asciicircum", KEY_6, true }, { "underscore", KEY_MINUS, true }, { "grave", KEY_GRAVE, false },
	{ "braceleft", KEY_LEFTBRACE, true }, { "bar", KEY_BACKSLASH, true }, { "braceright", KEY_RIGHTBRACE, true },
	{ "asciitilde", KEY_GRAVE, true },
	/* media */
	{ "XF86AudioMute", KEY_MUTE, false }, { "XF86AudioLowerVolume", KEY_VOLUMEDOWN, false },
	{ "XF86AudioRaiseVolume", KEY_VOLUMEUP, false }, { "XF86AudioPlay", KEY_PLAYPAUSE, false }, { "XF86AudioStop", KEY_STOPCD, false },
	{ "XF86AudioPrev", KEY_PREVIOUSSONG, false }, { "XF86AudioNext", KEY_NEXTSONG, false }, { "XF86AudioPause", KEY_PAUSECD, false },
	{ "XF86AudioRecord", KEY_RECORD, false }, { "XF86AudioMicMute", KEY_MICMUTE, false }, { "XF86Back", KEY_BACK, false },
	{ "XF86Forward", KEY_FORWARD, false }, { "XF86Reload", KEY_REFRESH, false }, { "XF86Refresh", KEY_REFRESH, false },
	{ "XF86HomePage", KEY_HOMEPAGE, false }, { "XF86Search", KEY_SEARCH, false }, { "XF86WWW", KEY_WWW, false },
	{ "XF86Mail", KEY_MAIL, false }, { "XF86Calculator", KEY_CALC, false }, { "XF86Explorer", KEY_FILE, false },
	{ "XF86Copy", KEY_COPY, false }, { "XF86Cut", KEY_CUT, false }, { "XF86Paste", KEY_PASTE, false },
	{ "XF86Eject", KEY_EJECTCD, false }, { "XF86Sleep", KEY_SLEEP, false }, { "XF86WakeUp", KEY_WAKEUP, false },
	{ "XF86PowerOff", KEY_POWER, false }, { "XF86MonBrightnessUp", KEY_BRIGHTNESSUP, false },
	{ "XF86MonBrightnessDown", KEY_BRIGHTNESSDOWN, false },
};

static int find_name(const char *s, size_t n, bool *ret_shift)
{
	if (n == 1)
		return keys_us_of_char((uint8_t)*s, ret_shift);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strlen(names[i].name) == n && strncasecmp(names[i].name, s, n) == 0) {
			*ret_shift = names[i].shift;
			return names[i].key;
		}
	}
	return -ENOENT;
}

static bool has_key(const struct screen_chord *c, uint16_t key)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->key[i] == key)
			return true;
	return false;
}

static int add_key(struct screen_chord *c, uint16_t key, const char *text, struct err *err)
{
	if (has_key(c, key))
		return 0;
	if (c->n == SCREEN_CHORD_MAX)
		return err_set(err, -EINVAL, "'%.100s': at most %d keys at once", text, SCREEN_CHORD_MAX);
	c->key[c->n++] = key;
	return 0;
}

int screen_chord_parse(const char *text, struct screen_chord *ret, struct err *err)
{
	struct screen_chord c = { .n = 0 };

	if (!*text)
		return err_set(err, -EINVAL, "'' is no key: use names as xdotool does, such as Return, F5, Page_Down, ctrl+shift+t");
	for (const char *s = text;;) {
		/* From the second character on, so that '+' can be a key's name. */
		const char *end = *s ? strchr(s + 1, '+') : NULL;
		size_t n = end ? (size_t)(end - s) : strlen(s);
		bool shift = false;
		int key = n ? find_name(s, n, &shift) : -ENOENT, r;

		if (key < 0)
			return err_set(err, -EINVAL,
				       "'%.*s' is no key: use names as xdotool does, such as Return, F5, Page_Down, ctrl+shift+t",
				       (int)MIN(n, (size_t)NAME_MAX_LEN), s);
		r = shift ? add_key(&c, KEY_LEFTSHIFT, text, err) : 0;
		if (r == 0)
			r = add_key(&c, (uint16_t)key, text, err);
		if (r < 0)
			return r;
		if (!end)
			break;
		s = end + 1;
	}
	*ret = c;
	return 0;
}

int screen_part_next(const char *text, size_t n, struct screen_part *ret)
{
	struct screen_part p = { .text = text };
	size_t at = 0;

	while (at < n) {
		uint32_t c;
		bool shift, lacks;
		int len = text_utf8_next(text + at, n - at, &c);

		if (len < 0)
			return len;
		lacks = keys_us_of_char(c, &shift) < 0;
		if (lacks && at == 0)
			p.paste = true;
		if (p.paste && (c == '\n' || c == '\r'))
			break;
		if (lacks && !p.paste)
			break;
		at += (size_t)len;
		if (lacks || !p.paste)
			p.n = at;
	}
	*ret = p;
	return 0;
}
