/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one can do with a VM's screen: look, point, type, wait. One function for each action that agents know by name; nothing here
 * reads a command line or prints.
 *
 *   screenshot zoom          screen_screenshot (zoom: with a region and a scale)
 *   left_click right_click middle_click double_click triple_click   screen_click
 *   mouse_move left_click_drag left_mouse_down left_mouse_up scroll cursor_position
 *   key hold_key type wait
 *
 * Coordinates are pixels of the guest's screen; others are refused. An action returns when the guest has taken all its input
 * and has then drawn a frame, or settle_ms have passed without one, since many a click changes nothing: a shot taken afterwards
 * shows what the guest had drawn by then. Whether that is all it is going to draw only the guest knows: screen_wait.
 *
 * What is pressed when the caller is interrupted (interrupt_fd becomes readable) is let go of; the action is then -ECANCELED.
 *
 * Errors: -EINVAL for what cannot be, -ENODATA while nothing is shown, -ENODEV when nobody in the guest listens, -ETIMEDOUT.
 * Each with a text.
 */
#pragma once
#include "host/display_client.h"
#include "host/screen_keys.h"
#include "host/screen_picture.h"

enum {
	SCREEN_SETTLE_MS = 200,
	SCREEN_INPUT_MS = 10000, /* for the guest to take one moment's events */
	SCREEN_TYPE_MS = 10,     /* between characters: the guest's programs read events into short buffers */
	SCREEN_SCROLL_MAX = 1000,
	SCREEN_HOLD_MS_MAX = 600000,
	SCREEN_TYPE_MAX = 1 << 20, /* bytes */
};

enum screen_button { SCREEN_LEFT, SCREEN_RIGHT, SCREEN_MIDDLE, SCREEN_BACK, SCREEN_FORWARD, SCREEN_BUTTONS };

struct screen_point {
	uint32_t x, y;
};

struct screen {
	struct display_client client;
	uint32_t scanout;
	uint32_t settle_ms; /* 0: do not wait for a frame */
	uint32_t type_ms;
	int interrupt_fd;   /* borrowed; -1: none */
	struct screen_chord paste; /* pastes in most programs: ctrl+v */
	/* Puts a text into the guest's clipboard; NULL: what the layout lacks is refused. */
	int (*clipboard_set)(void *arg, const char *text, size_t n, struct err *err);
	void *clipboard_arg;
	/* Waits until the guest's desktop has said that it is there (desktop.h); NULL: that cannot be waited for. deadline_ms: CLOCK_MONOTONIC,
	 * 0: none. */
	int (*desktop_ready)(void *arg, unsigned long long deadline_ms, struct err *err);
	void *desktop_arg;
};

/* The screen of the VM whose directory this is. -ENOENT: it has no display. */
int screen_open(int dirfd, uint32_t scanout, struct screen *ret, struct err *err);
int screen_open_fd(int fd, uint32_t scanout, struct screen *ret, struct err *err); /* a connected socket: taken */
void screen_close(struct screen *s);

/* "left_click" and so on: the button and how often. False for other names. */
bool screen_click_find(const char *action, enum screen_button *ret_button, uint32_t *ret_count);
bool screen_button_find(const char *name, enum screen_button *ret); /* "left", "right", "middle", "back", "forward" */

int screen_size(struct screen *s, uint32_t *ret_width, uint32_t *ret_height, struct err *err);
/* The cursor that the guest shows; -ENODATA when it shows none or draws it itself. */
int screen_cursor_position(struct screen *s, int32_t *ret_x, int32_t *ret_y, struct err *err);

struct screen_shot {
	struct picture_rect region; /* width 0: all */
	const char *scale;          /* as picture_parse_scale; NULL: as it is */
	bool cursor;
};
int screen_screenshot(struct screen *s, const struct screen_shot *how, struct picture *ret, struct err *err);
/* Inside the screen? Width 0 becomes all of it. */
int screen_check_region(struct screen *s, struct picture_rect *region, struct err *err);

int screen_mouse_move(struct screen *s, struct screen_point to, struct err *err);
/* at NULL: where the pointer is. held: keys that are down meanwhile; may be NULL. */
int screen_click(struct screen *s, enum screen_button button, uint32_t count, const struct screen_point *at,
		 const struct screen_chord *held, struct err *err);
int screen_mouse_button(struct screen *s, enum screen_button button, bool down, struct err *err);
int screen_drag(struct screen *s, enum screen_button button, struct screen_point from, struct screen_point to, struct err *err);
/* Notches of the wheel: positive is down and right. */
int screen_scroll(struct screen *s, const struct screen_point *at, int32_t dx, int32_t dy, struct err *err);

int screen_key(struct screen *s, const struct screen_chord *chord, struct err *err);
int screen_hold_key(struct screen *s, const struct screen_chord *chord, uint32_t ms, struct err *err);
/* UTF-8. What the layout lacks is pasted (screen_part_next). */
int screen_type(struct screen *s, const char *text, size_t n, struct err *err);

enum screen_wait_kind { SCREEN_WAIT_STABLE, SCREEN_WAIT_CHANGE, SCREEN_WAIT_IMAGE, SCREEN_WAIT_DRAWN /* there is more than one colour */ };
struct screen_wait {
	bool ready; /* first for the desktop, until it is there and has drawn something */
	enum screen_wait_kind kind;
	uint32_t stable_ms;          /* STABLE: no pixel has changed for so long */
	const struct picture *image; /* IMAGE: is anywhere in the region */
	struct picture_rect region;  /* width 0: all, whatever size it has */
	uint64_t timeout_ms;         /* 0: for ever */
};
/* 0; *ret_at is where the image is. -ETIMEDOUT. */
int screen_wait(struct screen *s, const struct screen_wait *w, struct screen_point *ret_at, struct err *err);
