/* SPDX-License-Identifier: Apache-2.0 */
/* Looking and pointing: see screen.h. */
#include "host/screen.h"

#include <errno.h>
#include <linux/input-event-codes.h>
#include <poll.h>
#include <string.h>

#include "host/screen_internal.h"
#include "host/sock.h"
#include "lib/loop.h"
#include "lib/util.h"

/*
 * CLICK_GAP: libinput takes a button that goes down again within 25 ms for a worn-out switch.
 * DRAG_STEP: more than a frame, since window managers (jwm) pass over motions that come within one, also the last.
 */
enum { CLICK_GAP_MS = 40, DRAG_STEPS = 16, DRAG_STEP_MS = 40, SCROLL_STEP_MS = 5, HI_RES = 120 };

static const struct {
	const char *name;
	uint16_t code;
} buttons[SCREEN_BUTTONS] = {
	[SCREEN_LEFT] = { "left", BTN_LEFT }, [SCREEN_RIGHT] = { "right", BTN_RIGHT }, [SCREEN_MIDDLE] = { "middle", BTN_MIDDLE },
	[SCREEN_BACK] = { "back", BTN_SIDE }, [SCREEN_FORWARD] = { "forward", BTN_EXTRA },
};

static const struct {
	const char *name;
	enum screen_button button;
	uint32_t count;
} clicks[] = {
	{ "left_click", SCREEN_LEFT, 1 }, { "right_click", SCREEN_RIGHT, 1 }, { "middle_click", SCREEN_MIDDLE, 1 },
	{ "double_click", SCREEN_LEFT, 2 }, { "triple_click", SCREEN_LEFT, 3 },
};

bool screen_click_find(const char *action, enum screen_button *ret_button, uint32_t *ret_count)
{
	for (size_t i = 0; i < ARRAY_SIZE(clicks); i++) {
		if (strcmp(clicks[i].name, action) == 0) {
			*ret_button = clicks[i].button;
			*ret_count = clicks[i].count;
			return true;
		}
	}
	return false;
}

bool screen_button_find(const char *name, enum screen_button *ret)
{
	for (uint32_t i = 0; i < SCREEN_BUTTONS; i++) {
		if (strcmp(buttons[i].name, name) == 0) {
			*ret = (enum screen_button)i;
			return true;
		}
	}
	return false;
}

/* Shared with screen_type.c and screen_wait.c. */

unsigned long long screen_now_ms(void)
{
	return loop_now_ns() / 1000000;
}

int screen_nap(struct screen *s, uint32_t ms, struct err *err)
{
	struct pollfd p = { .fd = s->interrupt_fd, .events = POLLIN };
	int r = sock_poll(&p, 1, screen_now_ms() + ms);

	if (r > 0)
		return err_set(err, -ECANCELED, "interrupted");
	return r < 0 ? err_errno(err, r, "poll") : 0;
}

int screen_send(struct screen *s, enum display_input_kind kind, const struct display_input_event *event, size_t n, struct err *err)
{
	return display_client_send(&s->client, kind, event, n, screen_now_ms() + SCREEN_INPUT_MS, err);
}

struct display_input_event screen_event(uint16_t type, uint16_t code, int32_t value)
{
	return (struct display_input_event){ le16_make(type), le16_make(code), le32_make((uint32_t)value) };
}

int screen_settle(struct screen *s, bool cursor_too, struct err *err)
{
	const struct display_client_scanout *out = &s->client.scanout[s->scanout];
	const unsigned long long deadline = screen_now_ms() + s->settle_ms;
	int r = 1;

	while (s->settle_ms && r > 0) {
		if (out->frame > s->client.taken_frame)
			return 0;
		display_client_clear(&s->client, s->scanout);
		r = display_client_ready(&s->client, err);
		if (r < 0)
			return r;
		r = display_client_wait(&s->client, deadline, err);
		if (cursor_too && r > 0 && r & DISPLAY_CLIENT_CURSOR)
			return 0;
	}
	return MIN(r, 0);
}

static int check_scanout(struct screen *s, uint32_t scanout, struct err *err)
{
	uint32_t n = s->client.scanouts;

	if (scanout < n)
		return 0;
	screen_close(s);
	return err_set(err, -EINVAL, "screen %u: the VM has %u, counted from 0", scanout, n);
}

static void prepare(struct screen *s, uint32_t scanout)
{
	*s = (struct screen){ .client = s->client, .scanout = scanout, .settle_ms = SCREEN_SETTLE_MS, .type_ms = SCREEN_TYPE_MS,
			      .interrupt_fd = -1, .paste = { { KEY_LEFTCTRL, KEY_V }, 2 } };
}

int screen_open_fd(int fd, uint32_t scanout, struct screen *ret, struct err *err)
{
	int r = display_client_start(fd, &ret->client, err);

	if (r < 0)
		return r;
	prepare(ret, scanout);
	return check_scanout(ret, scanout, err);
}

int screen_open(int dirfd, uint32_t scanout, struct screen *ret, struct err *err)
{
	int r = display_client_connect(dirfd, &ret->client, err);

	if (r < 0)
		return r;
	prepare(ret, scanout);
	return check_scanout(ret, scanout, err);
}

void screen_close(struct screen *s)
{
	display_client_close(&s->client);
}

/* What has come meanwhile, then what is shown. */
static int look(struct screen *s, const struct display_client_scanout **ret, struct err *err)
{
	int r = display_client_read(&s->client, err);

	if (r < 0)
		return r;
	*ret = &s->client.scanout[s->scanout];
	if ((*ret)->width == 0)
		return err_set(err, -ENODATA, "the guest shows nothing on this screen (yet)");
	return 0;
}

int screen_size(struct screen *s, uint32_t *ret_width, uint32_t *ret_height, struct err *err)
{
	const struct display_client_scanout *out;
	int r = look(s, &out, err);

	if (r < 0)
		return r;
	*ret_width = out->width;
	*ret_height = out->height;
	return 0;
}

int screen_cursor_position(struct screen *s, int32_t *ret_x, int32_t *ret_y, struct err *err)
{
	const struct display_client_scanout *out;
	int r = look(s, &out, err);

	if (r < 0)
		return r;
	if (!out->cursor.visible)
		return err_set(err, -ENODATA, "the guest shows no cursor, or draws it into the picture itself; one that a program hides while one types "
					      "is there again after a move");
	*ret_x = out->cursor.x;
	*ret_y = out->cursor.y;
	return 0;
}

int screen_check_region(struct screen *s, struct picture_rect *region, struct err *err)
{
	const struct display_client_scanout *out;
	int r = look(s, &out, err);

	if (r < 0)
		return r;
	if (region->width == 0)
		*region = (struct picture_rect){ 0, 0, out->width, out->height };
	if (region->height == 0 || region->x >= out->width || region->y >= out->height || region->width > out->width - region->x ||
	    region->height > out->height - region->y)
		return err_set(err, -EINVAL, "region %u,%u,%ux%u is not inside the screen, which has %ux%u pixels", region->x, region->y,
			       region->width, region->height, out->width, out->height);
	return 0;
}

int screen_screenshot(struct screen *s, const struct screen_shot *how, struct picture *ret, struct err *err)
{
	struct picture_rect region = how->region;
	struct picture p, scaled;
	uint32_t width, height;
	int r = screen_check_region(s, &region, err);

	if (r < 0)
		return r;
	r = how->scale ? picture_parse_scale(how->scale, region.width, region.height, &width, &height, err) : 0;
	if (r < 0)
		return r;
	r = picture_take(&s->client.scanout[s->scanout], &region, how->cursor, &p);
	if (r < 0)
		return err_errno(err, r, "a picture of %ux%u pixels", region.width, region.height);
	if (!how->scale || (width == p.width && height == p.height)) {
		*ret = p;
		return 0;
	}
	r = picture_scale(&p, width, height, &scaled);
	picture_free(&p);
	if (r < 0)
		return err_errno(err, r, "a picture of %ux%u pixels", width, height);
	*ret = scaled;
	return 0;
}

/* Pointing. */

static int check_point(struct screen *s, struct screen_point p, struct err *err)
{
	const struct display_client_scanout *out;
	int r = look(s, &out, err);

	if (r < 0)
		return r;
	if (p.x >= out->width || p.y >= out->height)
		return err_set(err, -EINVAL, "%u,%u is outside of the screen: it has %ux%u pixels, counted from 0", p.x, p.y, out->width,
			       out->height);
	return 0;
}

static int point(struct screen *s, struct screen_point p, struct err *err)
{
	const struct display_client_scanout *out = &s->client.scanout[s->scanout];
	const struct display_input_event e[] = {
		screen_event(EV_ABS, ABS_X, (int32_t)display_client_axis(p.x, out->width)),
		screen_event(EV_ABS, ABS_Y, (int32_t)display_client_axis(p.y, out->height)),
	};

	return screen_send(s, DISPLAY_POINTER, e, ARRAY_SIZE(e), err);
}

static int press(struct screen *s, enum screen_button button, bool down, struct err *err)
{
	const struct display_input_event e = screen_event(EV_KEY, buttons[button].code, down);

	return screen_send(s, DISPLAY_POINTER, &e, 1, err);
}

int screen_mouse_move(struct screen *s, struct screen_point to, struct err *err)
{
	int r = check_point(s, to, err);

	if (r == 0)
		r = point(s, to, err);
	return r < 0 ? r : screen_settle(s, true, err);
}

int screen_click(struct screen *s, enum screen_button button, uint32_t count, const struct screen_point *at,
		 const struct screen_chord *held, struct err *err)
{
	int r = at ? check_point(s, *at, err) : 0, up;

	if (r == 0 && at)
		r = point(s, *at, err);
	if (r < 0)
		return r;
	r = held ? screen_press_chord(s, held, err) : 0;
	for (uint32_t i = 0; i < count && r == 0; i++) {
		r = i ? screen_nap(s, CLICK_GAP_MS, err) : 0;
		if (r == 0)
			r = press(s, button, true, err);
		if (r == 0)
			r = press(s, button, false, err);
	}
	up = held ? screen_release_chord(s, held, r == 0 ? err : NULL) : 0;
	r = r < 0 ? r : up;
	return r < 0 ? r : screen_settle(s, false, err);
}

int screen_mouse_button(struct screen *s, enum screen_button button, bool down, struct err *err)
{
	int r = press(s, button, down, err);

	return r < 0 ? r : screen_settle(s, false, err);
}

int screen_drag(struct screen *s, enum screen_button button, struct screen_point from, struct screen_point to, struct err *err)
{
	int r = check_point(s, from, err), up;

	if (r == 0)
		r = check_point(s, to, err);
	if (r == 0)
		r = point(s, from, err);
	if (r == 0)
		r = press(s, button, true, err);
	if (r < 0)
		return r;
	/* In steps with time between them: programs tell a drag from a click by both. */
	for (int64_t i = 1; i <= DRAG_STEPS && r == 0; i++) {
		const struct screen_point p = {
			(uint32_t)(from.x + ((int64_t)to.x - from.x) * i / DRAG_STEPS),
			(uint32_t)(from.y + ((int64_t)to.y - from.y) * i / DRAG_STEPS),
		};

		r = screen_nap(s, DRAG_STEP_MS, err);
		if (r == 0)
			r = point(s, p, err);
	}
	/* What is dragged follows the pointer; a window manager that is let go of before it has caught up leaves it where it was. */
	if (r == 0)
		r = screen_settle(s, false, err);
	up = press(s, button, false, r == 0 ? err : NULL);
	r = r < 0 ? r : up;
	return r < 0 ? r : screen_settle(s, false, err);
}

int screen_scroll(struct screen *s, const struct screen_point *at, int32_t dx, int32_t dy, struct err *err)
{
	int r = at ? check_point(s, *at, err) : 0;

	if (r < 0)
		return r;
	if (dx < -SCREEN_SCROLL_MAX || dx > SCREEN_SCROLL_MAX || dy < -SCREEN_SCROLL_MAX || dy > SCREEN_SCROLL_MAX)
		return err_set(err, -EINVAL, "%d,%d notches: at most %d at once", dx, dy, SCREEN_SCROLL_MAX);
	if (at)
		r = point(s, *at, err);
	while ((dx || dy) && r == 0) {
		int32_t x = (dx > 0) - (dx < 0), y = (dy > 0) - (dy < 0);
		struct display_input_event e[4];
		size_t n = 0;

		if (y) {
			e[n++] = screen_event(EV_REL, REL_WHEEL, -y);
			e[n++] = screen_event(EV_REL, REL_WHEEL_HI_RES, -y * HI_RES);
		}
		if (x) {
			e[n++] = screen_event(EV_REL, REL_HWHEEL, x);
			e[n++] = screen_event(EV_REL, REL_HWHEEL_HI_RES, x * HI_RES);
		}
		r = screen_send(s, DISPLAY_POINTER, e, n, err);
		dx -= x;
		dy -= y;
		if (r == 0 && (dx || dy))
			r = screen_nap(s, SCROLL_STEP_MS, err);
	}
	return r < 0 ? r : screen_settle(s, false, err);
}
