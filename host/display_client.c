/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of display.sock: see display_client.h. */
#include "host/display_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/sock.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { PIXEL = 4, CURSOR_BYTES = DISPLAY_CURSOR_SIZE * DISPLAY_CURSOR_SIZE * PIXEL };
#define MEMORY_MAX GIB(16)

static int nonsense(struct err *err, const char *what)
{
	return err_set(err, -EPROTO, "the monitor says what cannot be about its display: %s", what);
}

/* Only what can neither shrink under the mapping nor is smaller than was said. */
static int map_memory(struct display_client *c, int fd, uint64_t size, struct err *err)
{
	int seals = fcntl(fd, F_GET_SEALS);
	off_t end = lseek(fd, 0, SEEK_END); /* a jail may forbid to ask for more of a file */
	void *p;

	if (size == 0 || size > MEMORY_MAX || seals < 0 || !(seals & F_SEAL_SHRINK) || end < 0 || (uint64_t)end < size)
		return nonsense(err, "its memory");
	p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		return err_errno(err, -errno, "the display's memory");
	c->memory = p;
	c->memory_size = size;
	return 0;
}

static int take_hello(struct display_client *c, const struct display_hello *m, int fd, struct err *err)
{
	c->scanouts = le32_get(m->scanouts);
	c->inputs = le32_get(m->inputs);
	c->accelerated = le32_get(m->accelerated) == 1;
	if (le32_get(m->version) != DISPLAY_VERSION)
		return err_set(err, -EPROTO, "the monitor's display speaks version %u, this is version %u: run both from one release",
			       le32_get(m->version), DISPLAY_VERSION);
	if (c->memory || c->scanouts < 1 || c->scanouts > DISPLAY_SCANOUTS_MAX || fd < 0)
		return nonsense(err, "its greeting");
	return map_memory(c, fd, le64_get(m->memory_size), err);
}

static bool inside(const struct display_client *c, uint64_t offset, uint64_t len)
{
	return offset <= c->memory_size && len <= c->memory_size - offset;
}

static void damage_all(struct display_client_scanout *s)
{
	s->ndamage = s->width ? 1 : 0;
	s->damage[0] = (struct display_client_rect){ 0, 0, s->width, s->height };
}

static int take_scanout(struct display_client *c, const struct display_scanout *m, struct err *err)
{
	struct display_client_scanout *s = &c->scanout[le16_get(m->h.scanout)];
	uint32_t width = le32_get(m->width), height = le32_get(m->height), stride = le32_get(m->stride);
	uint64_t offset = le64_get(m->offset);
	const uint8_t *pixels;
	bool other;

	if (width == 0 || height == 0) {
		width = height = stride = 0;
		offset = 0;
	} else if (width > DISPLAY_SIZE_MAX || height > DISPLAY_SIZE_MAX || stride < width * PIXEL || offset % PIXEL || stride % PIXEL ||
		   !inside(c, offset, (uint64_t)stride * (height - 1) + (uint64_t)width * PIXEL)) {
		return nonsense(err, "a surface that is not in its memory");
	}
	pixels = width ? c->memory + offset : NULL;
	other = width != s->width || height != s->height || stride != s->stride || le32_get(m->format) != s->format || pixels != s->pixels;
	s->width = width;
	s->height = height;
	s->stride = stride;
	s->format = le32_get(m->format);
	s->pixels = pixels;
	s->wanted_width = MIN(le32_get(m->wanted_width), (uint32_t)DISPLAY_SIZE_MAX);
	s->wanted_height = MIN(le32_get(m->wanted_height), (uint32_t)DISPLAY_SIZE_MAX);
	if (other)
		damage_all(s);
	return DISPLAY_CLIENT_SCANOUT;
}

static int take_cursor(struct display_client *c, const struct display_cursor *m, struct err *err)
{
	struct display_client_cursor *s = &c->scanout[le16_get(m->h.scanout)].cursor;
	uint64_t offset = le64_get(m->offset);
	bool visible = le32_get(m->visible) != 0;

	if (visible && (!inside(c, offset, CURSOR_BYTES) || offset % PIXEL || le32_get(m->hot_x) >= DISPLAY_CURSOR_SIZE ||
			le32_get(m->hot_y) >= DISPLAY_CURSOR_SIZE))
		return nonsense(err, "a cursor that is not in its memory");
	*s = (struct display_client_cursor){
		.visible = visible,
		.x = (int32_t)le32_get(m->x),
		.y = (int32_t)le32_get(m->y),
		.hot_x = visible ? le32_get(m->hot_x) : 0,
		.hot_y = visible ? le32_get(m->hot_y) : 0,
		.serial = le32_get(m->serial),
		.image = visible ? c->memory + offset : NULL,
	};
	return DISPLAY_CLIENT_CURSOR;
}

static void add_rect(struct display_client_scanout *s, struct display_client_rect r)
{
	/* Of what was on its way when the size changed only what is still there is of interest. */
	if (r.x >= s->width || r.y >= s->height)
		return;
	r.width = MIN(r.width, s->width - r.x);
	r.height = MIN(r.height, s->height - r.y);
	if (r.width == 0 || r.height == 0 || (s->ndamage > 0 && s->damage[0].width == s->width && s->damage[0].height == s->height))
		return;
	if (s->ndamage < DISPLAY_RECTS_MAX)
		s->damage[s->ndamage++] = r;
	else
		damage_all(s); /* the owner of the struct is slow */
}

static int take_damage(struct display_client *c, const struct display_damage *m, struct err *err)
{
	struct display_client_scanout *s = &c->scanout[le16_get(m->h.scanout)];
	uint32_t n = le32_get(m->n);

	if (n < 1 || n > DISPLAY_RECTS_MAX)
		return nonsense(err, "how much has changed");
	for (uint32_t i = 0; i < n; i++)
		add_rect(s, (struct display_client_rect){ le32_get(m->rect[i].x), le32_get(m->rect[i].y), le32_get(m->rect[i].width),
							  le32_get(m->rect[i].height) });
	s->frame = le64_get(m->frame);
	c->ready = false;
	return DISPLAY_CLIENT_DAMAGE;
}

static int take_taken(struct display_client *c, const struct display_taken *m, struct err *err)
{
	int32_t status = (int32_t)le32_get(m->status);

	if (!c->waiting || le32_get(m->seq) != c->seq || status > 0 || status < -4095)
		return nonsense(err, "an answer to what was not said");
	c->waiting = false;
	c->taken_status = status;
	c->taken_frame = le64_get(m->frame);
	return DISPLAY_CLIENT_TAKEN;
}

union message {
	struct display_header h;
	struct display_hello hello;
	struct display_scanout scanout;
	struct display_cursor cursor;
	struct display_damage damage;
	struct display_leds leds;
	struct display_taken taken;
};

static size_t size_of(uint16_t op)
{
	switch (op) {
	case DISPLAY_HELLO:
		return sizeof(struct display_hello);
	case DISPLAY_SCANOUT:
		return sizeof(struct display_scanout);
	case DISPLAY_CURSOR:
		return sizeof(struct display_cursor);
	case DISPLAY_DAMAGE:
		return sizeof(struct display_damage);
	case DISPLAY_LEDS:
		return sizeof(struct display_leds);
	case DISPLAY_TAKEN:
		return sizeof(struct display_taken);
	default:
		return 0;
	}
}

static int handle(struct display_client *c, const union message *m, size_t n, int fd, struct err *err)
{
	uint16_t op = n >= sizeof(m->h) ? le16_get(m->h.op) : 0;

	if (size_of(op) != n || n == 0)
		return nonsense(err, "a message of no known kind");
	if (op == DISPLAY_HELLO)
		return take_hello(c, &m->hello, fd, err);
	if (!c->memory || le16_get(m->h.scanout) >= c->scanouts)
		return nonsense(err, "a screen that it does not have");
	switch (op) {
	case DISPLAY_SCANOUT:
		return take_scanout(c, &m->scanout, err);
	case DISPLAY_CURSOR:
		return take_cursor(c, &m->cursor, err);
	case DISPLAY_DAMAGE:
		return take_damage(c, &m->damage, err);
	case DISPLAY_LEDS:
		c->leds = le32_get(m->leds.leds);
		c->complete = true; /* it comes last */
		return DISPLAY_CLIENT_LEDS;
	default:
		return take_taken(c, &m->taken, err);
	}
}

int display_client_read(struct display_client *c, struct err *err)
{
	int found = 0;

	for (;;) {
		union message m;
		_cleanup_close_ int fd = -1;
		size_t nfds = 0;
		ssize_t n = fd_recv(c->fd, &m, sizeof(m), &fd, 1, &nfds);

		if (n == -EAGAIN)
			return found;
		if (n == 0 || n == -ECONNRESET)
			return err_set(err, -ECONNRESET, "the display has gone: the VM has ended, or it has %d clients already, or this one was too odd for it",
			       DISPLAY_CLIENTS_MAX);
		if (n < 0 && n != -EMSGSIZE)
			return err_errno(err, (int)n, "the display's socket");
		int r = handle(c, &m, n < 0 ? 0 : (size_t)n, fd, err);

		if (r < 0)
			return r;
		found |= r;
	}
}

int display_client_wait(struct display_client *c, unsigned long long deadline_ms, struct err *err)
{
	for (;;) {
		struct pollfd p = { .fd = c->fd, .events = POLLIN };
		int r = sock_poll(&p, 1, deadline_ms);

		if (r < 0)
			return err_errno(err, r, "the display's socket");
		if (r == 0)
			return 0;
		r = display_client_read(c, err);
		if (r != 0)
			return r;
	}
}

int display_client_start(int fd, struct display_client *ret, struct err *err)
{
	const unsigned long long deadline = loop_now_ns() / 1000000 + DISPLAY_CLIENT_OPEN_MS;
	int r;

	*ret = (struct display_client){ .fd = fd };
	r = fd_set_nonblock(fd, 1);
	if (r < 0)
		err_errno(err, r, "the display's socket");
	while (r >= 0 && !ret->complete) {
		r = display_client_wait(ret, deadline, err);
		if (r == 0)
			r = err_set(err, -ETIMEDOUT, "the monitor says nothing on its display's socket");
	}
	if (r < 0)
		display_client_close(ret);
	return MIN(r, 0);
}

int display_client_connect(int dirfd, struct display_client *ret, struct err *err)
{
	int fd = sock_connect_at(dirfd, DISPLAY_SOCKET, SOCK_SEQPACKET, err);

	*ret = (struct display_client){ .fd = -1 };
	if (fd == -ENOENT || fd == -ECONNREFUSED)
		return err_set(err, -ENOENT, "this VM has no display: run it with --display WIDTHxHEIGHT");
	return fd < 0 ? fd : display_client_start(fd, ret, err);
}

void display_client_close(struct display_client *c)
{
	if (c->memory)
		munmap((void *)(uintptr_t)c->memory, (size_t)c->memory_size);
	if (c->fd >= 0)
		fd_close(c->fd);
	*c = (struct display_client){ .fd = -1 };
}

/* What we send is small, and the monitor reads it soon: it is waited for. */
static int send_message(struct display_client *c, const void *m, size_t n, struct err *err)
{
	for (;;) {
		struct pollfd p = { .fd = c->fd, .events = POLLOUT };
		ssize_t sent = send(c->fd, m, n, MSG_NOSIGNAL);

		if (sent == (ssize_t)n)
			return 0;
		if (sent >= 0 || (errno != EAGAIN && errno != EINTR))
			return err_errno(err, sent < 0 ? -errno : -EIO, "the display's socket");
		int r = sock_poll(&p, 1, loop_now_ns() / 1000000 + DISPLAY_CLIENT_OPEN_MS);

		if (r <= 0)
			return err_errno(err, r < 0 ? r : -ETIMEDOUT, "the display's socket");
	}
}

static struct display_header header(enum display_op op, uint32_t scanout)
{
	return (struct display_header){ le16_make((uint16_t)op), le16_make((uint16_t)scanout) };
}

int display_client_ready(struct display_client *c, struct err *err)
{
	const struct display_header m = header(DISPLAY_READY, 0);
	int r;

	if (c->ready)
		return 0;
	r = send_message(c, &m, sizeof(m), err);
	c->ready = r == 0;
	return r;
}

void display_client_clear(struct display_client *c, uint32_t scanout)
{
	c->scanout[scanout].ndamage = 0;
}

int display_client_input(struct display_client *c, enum display_input_kind kind, const struct display_input_event *event, size_t n,
			 struct err *err)
{
	struct display_input m = { .h = header(DISPLAY_INPUT, 0), .kind = le32_make(kind), .n = le32_make((uint32_t)n) };
	int r;

	if (c->waiting)
		return err_set(err, -EBUSY, "the guest has not taken the last input yet");
	if (n < 1 || n > DISPLAY_EVENTS_MAX || kind >= DISPLAY_INPUT_KINDS)
		return err_set(err, -EINVAL, "%zu events at once: 1 to %d are possible", n, DISPLAY_EVENTS_MAX);
	m.seq = le32_make(++c->seq);
	memcpy(m.event, event, n * sizeof(*event));
	r = send_message(c, &m, sizeof(m), err);
	c->waiting = r == 0;
	return r;
}

int display_client_send(struct display_client *c, enum display_input_kind kind, const struct display_input_event *event, size_t n,
			unsigned long long deadline_ms, struct err *err)
{
	static const char *const names[] = { "keyboard", "pointer", "touch screen" };
	int r = display_client_input(c, kind, event, n, err);

	if (r < 0)
		return r;
	while (c->waiting) {
		r = display_client_wait(c, deadline_ms, err);
		if (r < 0)
			return r;
		if (r == 0)
			return err_set(err, -ETIMEDOUT, "the guest does not take the %s's events: it is paused, or busy; 'coffer resume' lets a paused one go on",
				       names[kind]);
	}
	if (c->taken_status == -ENODEV)
		return err_set(err, -ENODEV, "nobody in the guest listens to the %s: it has no driver for it, or it has not started yet",
			       names[kind]);
	return c->taken_status < 0 ? err_errno(err, c->taken_status, "the %s refuses the events", names[kind]) : 0;
}

int display_client_mode(struct display_client *c, uint32_t scanout, uint32_t width, uint32_t height, struct err *err)
{
	const struct display_mode m = { header(DISPLAY_MODE, scanout), le32_make(width), le32_make(height) };

	if (scanout >= c->scanouts)
		return err_set(err, -EINVAL, "screen %u: the VM has %u", scanout, c->scanouts);
	if (width < DISPLAY_SIZE_MIN || width > DISPLAY_SIZE_MAX || height < DISPLAY_SIZE_MIN || height > DISPLAY_SIZE_MAX)
		return err_set(err, -EINVAL, "a size of %ux%u: each side has %d to %d pixels", width, height, DISPLAY_SIZE_MIN,
			       DISPLAY_SIZE_MAX);
	return send_message(c, &m, sizeof(m), err);
}

struct display_client_layout display_client_layout(uint32_t format)
{
	switch (format) {
	case DISPLAY_A8R8G8B8:
	case DISPLAY_X8R8G8B8:
		return (struct display_client_layout){ 1, 2, 3 };
	case DISPLAY_R8G8B8A8:
	case DISPLAY_R8G8B8X8:
		return (struct display_client_layout){ 0, 1, 2 };
	case DISPLAY_X8B8G8R8:
	case DISPLAY_A8B8G8R8:
		return (struct display_client_layout){ 3, 2, 1 };
	default:
		return (struct display_client_layout){ 2, 1, 0 };
	}
}

uint32_t display_client_axis(uint32_t pixel, uint32_t size)
{
	return size ? MIN((uint32_t)((2ull * pixel + 1) * (DISPLAY_POINTER_MAX + 1) / (2ull * size)), (uint32_t)DISPLAY_POINTER_MAX) : 0;
}
