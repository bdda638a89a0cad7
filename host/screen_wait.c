/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting for a screen: see screen.h.
 *
 * Only damage makes it look, so a screen that stands still costs nothing. What is damaged has not always changed: pixels are compared.
 */
#include <errno.h>
#include <string.h>

#include "host/screen_internal.h"
#include "lib/util.h"

struct watch {
	struct screen *s;
	const struct screen_wait *w;
	enum screen_wait_kind kind;
	unsigned long long end; /* 0: none */
	struct picture seen; /* STABLE and CHANGE: what the region showed when it was looked at last */
	struct picture_rect region;
};

static bool touches(const struct display_client_rect *a, const struct picture_rect *b)
{
	return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height && b->y < a->y + a->height;
}

static bool damaged(const struct watch *t)
{
	const struct display_client_scanout *out = &t->s->client.scanout[t->s->scanout];

	for (uint32_t i = 0; i < out->ndamage; i++)
		if (touches(&out->damage[i], &t->region))
			return true;
	return false;
}

/* The region now; an empty picture while there is none. */
static int take(struct watch *t, struct picture *ret)
{
	const struct display_client_scanout *out = &t->s->client.scanout[t->s->scanout];
	struct picture_rect all = { 0, 0, out->width, out->height };

	*ret = (struct picture){ 0 };
	t->region = t->w->region.width ? t->w->region : all;
	if (out->width == 0 || t->region.x + t->region.width > out->width || t->region.y + t->region.height > out->height)
		return 0;
	return picture_take(out, &t->region, false, ret);
}

/* 1: the condition is met, 0: not yet. *ret_changed: other pixels than before. */
static int look(struct watch *t, struct screen_point *ret_at, bool *ret_changed)
{
	struct picture now;
	int r = take(t, &now);

	if (r < 0)
		return r;
	if (t->kind == SCREEN_WAIT_DRAWN) {
		r = !picture_is_flat(&now);
		picture_free(&now);
		return r;
	}
	if (t->kind == SCREEN_WAIT_IMAGE) {
		r = picture_find(&now, t->w->image, t->end * 1000000, &ret_at->x, &ret_at->y);
		ret_at->x += t->region.x;
		ret_at->y += t->region.y;
		picture_free(&now);
		return r;
	}
	*ret_changed = !picture_equal(&t->seen, &now);
	picture_free(&t->seen);
	t->seen = now;
	return t->kind == SCREEN_WAIT_CHANGE && *ret_changed;
}

static int timed_out(const struct watch *t, struct err *err)
{
	static const char *const what[] = {
		[SCREEN_WAIT_STABLE] = "stand still", [SCREEN_WAIT_CHANGE] = "change", [SCREEN_WAIT_IMAGE] = "show the image",
		[SCREEN_WAIT_DRAWN] = "show more than one colour",
	};

	return err_set(err, -ETIMEDOUT, "the screen did not %s within %llu ms", what[t->kind], (unsigned long long)t->w->timeout_ms);
}

static int watch(struct watch *t, struct screen_point *ret_at, struct err *err)
{
	const unsigned long long end = t->end;
	struct display_client *c = &t->s->client;
	unsigned long long still = screen_now_ms();
	bool changed = false, at_once = t->kind == SCREEN_WAIT_IMAGE || t->kind == SCREEN_WAIT_DRAWN;
	int r = MIN(display_client_read(c, err), 0), found = 0;

	if (r < 0)
		return r;
	r = at_once ? 0 : take(t, &t->seen);
	if (at_once)
		r = look(t, ret_at, &changed);
	while (r == 0) {
		unsigned long long now = screen_now_ms(), quiet = still + t->w->stable_ms, until = end;

		if (t->kind == SCREEN_WAIT_STABLE) {
			if (now >= quiet && t->seen.rgba)
				return 0;
			until = t->seen.rgba && (!end || quiet < end) ? quiet : end;
		}
		if (end && now >= end)
			return timed_out(t, err);
		display_client_clear(c, t->s->scanout);
		r = display_client_ready(c, err);
		if (r < 0)
			return r;
		found = display_client_wait(c, until, err);
		if (found < 0)
			return found;
		if (!(found & (DISPLAY_CLIENT_DAMAGE | DISPLAY_CLIENT_SCANOUT)) || !(found & DISPLAY_CLIENT_SCANOUT || damaged(t)))
			continue;
		r = look(t, ret_at, &changed);
		if (changed)
			still = screen_now_ms();
	}
	return r == -ETIMEDOUT ? timed_out(t, err) : r < 0 ? err_errno(err, r, "a picture of the screen") : 0;
}

int screen_wait(struct screen *s, const struct screen_wait *w, struct screen_point *ret_at, struct err *err)
{
	struct watch t = { .s = s, .w = w, .kind = SCREEN_WAIT_DRAWN, .end = w->timeout_ms ? screen_now_ms() + w->timeout_ms : 0 };
	struct screen_point at = { 0, 0 };
	struct picture_rect region = w->region;
	int r = w->region.width ? screen_check_region(s, &region, err) : 0;

	if (r == 0 && w->kind == SCREEN_WAIT_IMAGE && w->region.width &&
	    (w->image->width > w->region.width || w->image->height > w->region.height))
		r = err_set(err, -EINVAL, "the image has %ux%u pixels, the region %ux%u", w->image->width, w->image->height,
			    w->region.width, w->region.height);
	if (r == 0 && w->ready)
		r = s->desktop_ready ? s->desktop_ready(s->desktop_arg, t.end, err) : err_set(err, -EOPNOTSUPP, "nobody can say when a desktop is there");
	if (r == 0 && w->ready)
		r = watch(&t, &at, err);
	t.kind = w->kind;
	if (r == 0 && !(w->ready && w->kind == SCREEN_WAIT_DRAWN))
		r = watch(&t, &at, err);
	picture_free(&t.seen);
	if (r == 0)
		*ret_at = at;
	return r;
}
