/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of display.sock: see view.h. */
#include "host/vnc/view.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

#define MEMORY_MAX ((uint64_t)4 << 30)

int view_open(struct view *v, int fd, struct err *err)
{
	_cleanup_close_ int memory = -1;
	struct display_hello hello;
	size_t nfds = 0;
	ssize_t n;
	void *p;

	memset(v, 0, sizeof(*v));
	v->fd = fd;
	n = fd_recv(fd, &hello, sizeof(hello), &memory, 1, &nfds);
	if (n != (ssize_t)sizeof(hello) || nfds != 1 || le16_get(hello.h.op) != DISPLAY_HELLO ||
	    le32_get(hello.version) != DISPLAY_VERSION)
		return err_set(err, n < 0 ? (int)n : -EPROTO, "the monitor's display does not say hello as this version does");
	v->memory_size = le64_get(hello.memory_size);
	if (v->memory_size == 0 || v->memory_size > MEMORY_MAX || lseek(memory, 0, SEEK_END) != (off_t)v->memory_size)
		return err_set(err, -EPROTO, "the display's memory is not of the size that it is said to have");
	p = mmap(NULL, v->memory_size, PROT_READ, MAP_SHARED, memory, 0);
	if (p == MAP_FAILED)
		return err_errno(err, -errno, "map the display's memory");
	v->memory = p;
	return 0;
}

static int send_message(struct view *v, const void *m, size_t n)
{
	/* The monitor reads whatever comes but input while input is on its way: a few small messages always have room. */
	return send(v->fd, m, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -errno;
}

int view_ready(struct view *v)
{
	const struct display_header m = { le16_make(DISPLAY_READY), le16_make(0) };

	return send_message(v, &m, sizeof(m));
}

int view_mode(struct view *v, uint32_t width, uint32_t height)
{
	const struct display_mode m = { { le16_make(DISPLAY_MODE), le16_make(0) }, le32_make(width), le32_make(height) };

	return send_message(v, &m, sizeof(m));
}

static int send_moment(struct view *v)
{
	const struct view_moment *m = &v->queue[v->head];
	struct display_input in = { .h = { le16_make(DISPLAY_INPUT), le16_make(0) },
				    .seq = le32_make(++v->seq),
				    .kind = le32_make(m->kind),
				    .n = le32_make(m->n) };

	if (v->in_flight || v->count == 0)
		return 0;
	memcpy(in.event, m->event, m->n * sizeof(m->event[0]));
	v->head = (v->head + 1) % VIEW_QUEUE_MAX;
	v->count--;
	v->in_flight = true;
	return send_message(v, &in, sizeof(in));
}

bool view_input(struct view *v, const struct view_moment *m)
{
	struct view_moment *last = &v->queue[(v->head + v->count + VIEW_QUEUE_MAX - 1) % VIEW_QUEUE_MAX];

	if (v->count > 0 && m->motion && last->motion && last->kind == m->kind) {
		*last = *m;
		return true;
	}
	if (v->count == VIEW_QUEUE_MAX || (m->motion && v->count >= VIEW_QUEUE_PRESS_MAX))
		return false;
	v->queue[(v->head + v->count++) % VIEW_QUEUE_MAX] = *m;
	return send_moment(v) == 0;
}

static int on_scanout(struct view *v, const struct display_scanout *m)
{
	struct view_surface s = { .width = le32_get(m->width),
				  .height = le32_get(m->height),
				  .stride = le32_get(m->stride),
				  .format = le32_get(m->format),
				  .offset = le64_get(m->offset),
				  .wanted_width = le32_get(m->wanted_width),
				  .wanted_height = le32_get(m->wanted_height) };
	uint64_t size = (uint64_t)s.stride * s.height;

	if (s.width > DISPLAY_SIZE_MAX || s.height > DISPLAY_SIZE_MAX || s.wanted_width > DISPLAY_SIZE_MAX ||
	    s.wanted_height > DISPLAY_SIZE_MAX)
		return -EPROTO;
	if (s.width == 0 || s.height == 0)
		s.width = s.height = 0;
	else if (s.stride < s.width * 4 || s.offset > v->memory_size || size > v->memory_size - s.offset)
		return -EPROTO;
	v->surface = s;
	v->surface_changed = true;
	return 1;
}

static int on_cursor(struct view *v, const struct display_cursor *m)
{
	struct view_cursor c = { .visible = le32_get(m->visible) != 0,
				 .x = le32_get(m->x),
				 .y = le32_get(m->y),
				 .hot_x = le32_get(m->hot_x),
				 .hot_y = le32_get(m->hot_y),
				 .serial = le32_get(m->serial),
				 .offset = le64_get(m->offset) };
	const uint64_t size = DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE * 4;

	if (c.visible && (size > v->memory_size || c.offset > v->memory_size - size || c.offset % 4))
		return -EPROTO;
	v->cursor = c;
	v->cursor_changed = true;
	return 1;
}

static int on_damage(struct view *v, const struct display_damage *m)
{
	uint32_t n = le32_get(m->n);

	if (n < 1 || n > DISPLAY_RECTS_MAX)
		return -EPROTO;
	memcpy(v->damage, m->rect, sizeof(v->damage));
	v->ndamage = n;
	return 1;
}

int view_read(struct view *v)
{
	union {
		uint8_t bytes[DISPLAY_MESSAGE_MAX];
		struct display_header h;
		struct display_scanout scanout;
		struct display_cursor cursor;
		struct display_damage damage;
		struct display_leds leds;
		struct display_taken taken;
	} m;
	ssize_t n = recv(v->fd, &m, sizeof(m), MSG_DONTWAIT);
	bool first;

	v->surface_changed = v->cursor_changed = v->leds_changed = false;
	v->ndamage = 0;
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (n < (ssize_t)sizeof(m.h))
		return n == 0 ? -ECONNRESET : -EPROTO;
	first = le16_get(m.h.scanout) == 0; /* RFB shows one */
	switch (le16_get(m.h.op)) {
	case DISPLAY_SCANOUT:
		return n != (ssize_t)sizeof(m.scanout) ? -EPROTO : first ? on_scanout(v, &m.scanout) : 1;
	case DISPLAY_CURSOR:
		return n != (ssize_t)sizeof(m.cursor) ? -EPROTO : first ? on_cursor(v, &m.cursor) : 1;
	case DISPLAY_DAMAGE:
		if (n != (ssize_t)sizeof(m.damage))
			return -EPROTO;
		if (first)
			return on_damage(v, &m.damage);
		n = view_ready(v); /* another scanout's */
		return n < 0 ? (int)n : 1;
	case DISPLAY_LEDS:
		if (n != (ssize_t)sizeof(m.leds))
			return -EPROTO;
		v->leds = le32_get(m.leds.leds);
		v->leds_changed = true;
		return 1;
	case DISPLAY_TAKEN:
		if (n != (ssize_t)sizeof(m.taken) || !v->in_flight)
			return -EPROTO;
		v->in_flight = false;
		n = send_moment(v);
		return n < 0 ? (int)n : 1;
	default:
		return -EPROTO;
	}
}

const uint8_t *view_pixel(const struct view *v, uint32_t x, uint32_t y)
{
	return v->memory + v->surface.offset + (uint64_t)y * v->surface.stride + (uint64_t)x * 4;
}
