/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has changed on a scanout, as a few rectangles: at most DISPLAY_RECTS_MAX, which together cover everything that
 * was added.
 *
 * A rectangle that lies in another one goes away; two whose hull is no larger than both are joined. When there is no
 * room the new one joins the one that it enlarges least, so much is never sent for a little that changed far away.
 */
#pragma once
#include "devices/backend/display.h"

struct display_region {
	uint32_t n;
	struct display_rect rect[DISPLAY_RECTS_MAX];
};

/* Rectangles of no size are left out. Sides and positions are at most 2^31. */
void display_region_add(struct display_region *r, const struct display_rect *rect);
void display_region_merge(struct display_region *to, const struct display_region *from);
