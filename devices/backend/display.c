/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The display as the devices see it: see display.h. What is shown is a few numbers per scanout; each change marks what
 * every client has not been told, and wakes main, which tells them (display_server.c).
 */
#include "devices/backend/display.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "devices/backend/display_state.h"
#include "lib/util.h"

int display_open(struct loop *loop, struct log *log, uint64_t size, uint32_t scanouts, uint32_t width, uint32_t height,
		 const char *socket, struct display **ret, struct err *err)
{
	struct display *d;
	int r;

	if (scanouts < 1 || scanouts > DISPLAY_SCANOUTS_MAX)
		return err_set(err, -EINVAL, "%u scanouts: 1 to %d are possible", scanouts, DISPLAY_SCANOUTS_MAX);
	if (width < DISPLAY_SIZE_MIN || height < DISPLAY_SIZE_MIN || width > DISPLAY_SIZE_MAX ||
	    height > DISPLAY_SIZE_MAX)
		return err_set(err, -EINVAL, "display of %ux%u pixels: %d to %d a side are possible", width, height,
			       DISPLAY_SIZE_MIN, DISPLAY_SIZE_MAX);
	d = calloc(1, sizeof(*d));
	if (!d)
		return err_errno(err, -ENOMEM, "display");
	d->loop = loop;
	d->log = log;
	d->scanouts = scanouts;
	d->kick_fd = d->listener.fd = -1;
	pthread_mutex_init(&d->lock, NULL);
	for (uint32_t i = 0; i < scanouts; i++) {
		d->scanout[i].wanted_width = width;
		d->scanout[i].wanted_height = height;
	}
	r = display_memory_open(&d->memory, size, err);
	if (r == 0 && socket)
		r = display_server_open(d, socket, err);
	if (r < 0) {
		display_close(d);
		return r;
	}
	*ret = d;
	return 0;
}

void display_close(struct display *d)
{
	if (!d)
		return;
	display_server_finish(d);
	display_memory_finish(&d->memory);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

void display_set_gpu(struct display *d, const struct display_gpu_ops *ops, void *opaque)
{
	d->gpu = ops;
	d->gpu_opaque = opaque;
}

void display_set_accelerated(struct display *d, bool yes)
{
	d->accelerated = yes;
}

void display_scanout(struct display *d, uint32_t scanout, const struct display_surface *surface)
{
	struct display_scanout_state *s = &d->scanout[scanout];

	assert(scanout < d->scanouts);
	pthread_mutex_lock(&d->lock);
	s->surface = surface ? *surface : (struct display_surface){0};
	s->pending.n = 0;
	display_region_add(&s->pending, &(struct display_rect){0, 0, s->surface.width, s->surface.height});
	d->changed = true;
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++) {
		d->client[i].scanout[scanout] = true;
		d->client[i].damage[scanout].n = 0; /* it was of another picture, maybe of a larger one */
	}
	display_server_kick(d);
	pthread_mutex_unlock(&d->lock);
}

void display_wanted(struct display *d, uint32_t scanout, uint32_t width, uint32_t height)
{
	struct display_scanout_state *s = &d->scanout[scanout];

	assert(scanout < d->scanouts);
	pthread_mutex_lock(&d->lock);
	s->wanted_width = width;
	s->wanted_height = height;
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
		d->client[i].scanout[scanout] = true;
	display_server_kick(d);
	pthread_mutex_unlock(&d->lock);
}

void display_damage(struct display *d, uint32_t scanout, const struct display_rect *rect)
{
	struct display_scanout_state *s = &d->scanout[scanout];
	struct display_rect r = *rect;

	assert(scanout < d->scanouts);
	pthread_mutex_lock(&d->lock);
	if (r.x < s->surface.width && r.y < s->surface.height) {
		r.width = MIN(r.width, s->surface.width - r.x);
		r.height = MIN(r.height, s->surface.height - r.y);
		display_region_add(&s->pending, &r);
	}
	pthread_mutex_unlock(&d->lock);
}

/* Under the lock. */
static bool anything_new(const struct display *d)
{
	for (uint32_t i = 0; i < d->scanouts; i++)
		if (d->scanout[i].pending.n > 0)
			return true;
	return d->changed;
}

uint64_t display_frame(struct display *d)
{
	uint64_t frame;

	pthread_mutex_lock(&d->lock);
	if (anything_new(d)) {
		d->frame++;
		d->changed = false;
		for (uint32_t s = 0; s < d->scanouts; s++) {
			for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
				if (d->client[i].active)
					display_region_merge(&d->client[i].damage[s], &d->scanout[s].pending);
			d->scanout[s].pending.n = 0;
		}
		display_server_kick(d);
	}
	frame = d->frame;
	pthread_mutex_unlock(&d->lock);
	return frame;
}

/* Under the lock. */
static void cursor_changed(struct display *d, uint32_t scanout)
{
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
		d->client[i].cursor[scanout] = true;
	display_server_kick(d);
}

void display_cursor_image(struct display *d, uint32_t scanout, uint64_t offset, uint32_t hot_x, uint32_t hot_y)
{
	struct display_scanout_state *s = &d->scanout[scanout];

	assert(scanout < d->scanouts);
	pthread_mutex_lock(&d->lock);
	s->cursor_visible = true;
	s->cursor_offset = offset;
	s->hot_x = hot_x;
	s->hot_y = hot_y;
	s->cursor_serial++;
	cursor_changed(d, scanout);
	pthread_mutex_unlock(&d->lock);
}

void display_cursor_hide(struct display *d, uint32_t scanout)
{
	assert(scanout < d->scanouts);
	pthread_mutex_lock(&d->lock);
	d->scanout[scanout].cursor_visible = false;
	cursor_changed(d, scanout);
	pthread_mutex_unlock(&d->lock);
}

void display_cursor_move(struct display *d, uint32_t scanout, uint32_t x, uint32_t y)
{
	assert(scanout < d->scanouts);
	pthread_mutex_lock(&d->lock);
	d->scanout[scanout].cursor_x = x;
	d->scanout[scanout].cursor_y = y;
	cursor_changed(d, scanout);
	pthread_mutex_unlock(&d->lock);
}

void display_leds(struct display *d, uint32_t leds)
{
	pthread_mutex_lock(&d->lock);
	d->leds = leds;
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
		d->client[i].leds = true;
	display_server_kick(d);
	pthread_mutex_unlock(&d->lock);
}

void display_taken(struct display *d, enum display_input_kind kind)
{
	struct display_input_state *in = &d->input[kind];

	pthread_mutex_lock(&d->lock);
	in->taken = true;
	in->frame = d->frame;
	if (in->busy || in->waited)
		display_server_kick(d);
	pthread_mutex_unlock(&d->lock);
}
