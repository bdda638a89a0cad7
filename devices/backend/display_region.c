/* SPDX-License-Identifier: Apache-2.0 */
/* Damage as a few rectangles: see display_region.h. */
#include "devices/backend/display_region.h"

#include "lib/util.h"

static uint64_t area(const struct display_rect *r)
{
	return (uint64_t)r->width * r->height;
}

static struct display_rect hull(const struct display_rect *a, const struct display_rect *b)
{
	uint32_t x = MIN(a->x, b->x), y = MIN(a->y, b->y);

	return (struct display_rect){x, y, MAX(a->x + a->width, b->x + b->width) - x,
				     MAX(a->y + a->height, b->y + b->height) - y};
}

/* The one that `rect` can join at no cost, or r->n. */
static uint32_t find_free(const struct display_region *r, const struct display_rect *rect)
{
	for (uint32_t i = 0; i < r->n; i++) {
		struct display_rect h = hull(&r->rect[i], rect);

		if (area(&h) <= area(&r->rect[i]) + area(rect))
			return i;
	}
	return r->n;
}

static uint32_t find_least(const struct display_region *r, const struct display_rect *rect)
{
	uint64_t least = UINT64_MAX;
	uint32_t best = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		struct display_rect h = hull(&r->rect[i], rect);
		uint64_t more = area(&h) - area(&r->rect[i]);

		if (more < least) {
			least = more;
			best = i;
		}
	}
	return best;
}

void display_region_add(struct display_region *r, const struct display_rect *rect)
{
	struct display_rect add = *rect;

	if (area(&add) == 0)
		return;
	/* Each turn takes one out, and the hull is looked at again: it may touch others now. */
	for (;;) {
		uint32_t i = find_free(r, &add);

		if (i == r->n && r->n < DISPLAY_RECTS_MAX)
			break;
		if (i == r->n)
			i = find_least(r, &add);
		add = hull(&r->rect[i], &add);
		r->rect[i] = r->rect[--r->n];
	}
	r->rect[r->n++] = add;
}

void display_region_merge(struct display_region *to, const struct display_region *from)
{
	for (uint32_t i = 0; i < from->n; i++)
		display_region_add(to, &from->rect[i]);
}
