/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key's place, as QEMU's message has it, to the key of Linux that is there: the PC's keyboard codes, set 1, one byte: those after a
 * byte 0xe0 have bit 7 set. Pause is 0xc6, print screen 0x54 or 0xb7.
 */
#include <linux/input-event-codes.h>

#include "host/vnc/keys.h"
#include "lib/util.h"

enum { SAME_FIRST = KEY_ESC, SAME_LAST = KEY_KPDOT /* Linux numbered its first keys after these codes */ };

static const struct {
	uint8_t scancode, key;
} others[] = {
	{ 0x54, KEY_SYSRQ },	       { 0x55, KEY_F16 },	   { 0x56, KEY_102ND },	     { 0x57, KEY_F11 },
	{ 0x58, KEY_F12 },	       { 0x59, KEY_KPEQUAL },	   { 0x5a, KEY_F20 },	     { 0x5d, KEY_F13 },
	{ 0x5e, KEY_F14 },	       { 0x5f, KEY_F15 },	   { 0x64, KEY_OPEN },	     { 0x65, KEY_PASTE },
	{ 0x6d, KEY_F23 },	       { 0x6f, KEY_F24 },	   { 0x70, KEY_KATAKANAHIRAGANA }, { 0x71, KEY_HANJA },
	{ 0x72, KEY_HANGEUL },	       { 0x73, KEY_RO },	   { 0x74, KEY_F21 },	     { 0x76, KEY_ZENKAKUHANKAKU },
	{ 0x77, KEY_HIRAGANA },	       { 0x78, KEY_KATAKANA },	   { 0x79, KEY_HENKAN },     { 0x7b, KEY_MUHENKAN },
	{ 0x7d, KEY_YEN },	       { 0x7e, KEY_KPCOMMA },	   { 0x83, KEY_F17 },	     { 0x84, KEY_F19 },
	{ 0x85, KEY_AGAIN },	       { 0x86, KEY_PROPS },	   { 0x87, KEY_UNDO },	     { 0x90, KEY_PREVIOUSSONG },
	{ 0x99, KEY_NEXTSONG },	       { 0x9c, KEY_KPENTER },	   { 0x9d, KEY_RIGHTCTRL },  { 0xa0, KEY_MUTE },
	{ 0xa1, KEY_CALC },	       { 0xa2, KEY_PLAYPAUSE },	   { 0xa4, KEY_STOPCD },     { 0xa5, KEY_SUSPEND },
	{ 0xae, KEY_VOLUMEDOWN },      { 0xb0, KEY_VOLUMEUP },	   { 0xb2, KEY_HOMEPAGE },   { 0xb5, KEY_KPSLASH },
	{ 0xb7, KEY_SYSRQ },	       { 0xb8, KEY_RIGHTALT },	   { 0xbc, KEY_CUT },	     { 0xc1, KEY_FIND },
	{ 0xc6, KEY_PAUSE },	       { 0xc7, KEY_HOME },	   { 0xc8, KEY_UP },	     { 0xc9, KEY_PAGEUP },
	{ 0xcb, KEY_LEFT },	       { 0xcd, KEY_RIGHT },	   { 0xcf, KEY_END },	     { 0xd0, KEY_DOWN },
	{ 0xd1, KEY_PAGEDOWN },	       { 0xd2, KEY_INSERT },	   { 0xd3, KEY_DELETE },     { 0xdb, KEY_LEFTMETA },
	{ 0xdc, KEY_RIGHTMETA },       { 0xdd, KEY_COMPOSE },	   { 0xde, KEY_POWER },	     { 0xdf, KEY_SLEEP },
	{ 0xe3, KEY_WAKEUP },	       { 0xe5, KEY_SEARCH },	   { 0xe6, KEY_BOOKMARKS },  { 0xe7, KEY_REFRESH },
	{ 0xe8, KEY_STOP },	       { 0xe9, KEY_FORWARD },	   { 0xea, KEY_BACK },	     { 0xeb, KEY_COMPUTER },
	{ 0xec, KEY_MAIL },	       { 0xed, KEY_MEDIA },	   { 0xf5, KEY_HELP },	     { 0xf6, KEY_KPLEFTPAREN },
	{ 0xf7, KEY_F18 },	       { 0xf8, KEY_COPY },	   { 0xf9, KEY_F22 },	     { 0xfb, KEY_KPRIGHTPAREN },
};

uint16_t keys_find_scancode(uint32_t scancode)
{
	if (scancode >= SAME_FIRST && scancode <= SAME_LAST)
		return (uint16_t)scancode;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (others[i].scancode == scancode)
			return others[i].key;
	return 0;
}
