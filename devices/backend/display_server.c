/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server of display.sock: see display.h and lib/display_proto.h.
 *
 * How it works: for each client there are flags and damage that it has not been told of. Main sends what is set, newest
 * state first made into a message at that moment, until the socket is full; then it waits for room. The socket's own
 * buffer is made small, so that a client that was slow finds few old messages.
 *
 * A client that has sent input is not read from until it is answered. A device has one client's message at a time: the
 * others are held, and tried in turn whenever the driver has taken what there was.
 *
 * Threads: main; other threads only set flags (display.c) and wake main by an eventfd.
 * Trust: any bytes may come from a client; what is not exactly a message ends its connection. Descriptors are closed.
 * Limits: DISPLAY_CLIENTS_MAX; one more is turned away.
 */
/* syscalls(main): accept4 getsockopt setsockopt(2=SO_SNDBUF) recvmsg sendmsg sendto close epoll_ctl read
 * syscalls(main, vcpu): write */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "devices/backend/display_state.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { BACKLOG = 8, ACCEPT_AGAIN_MS = 1000 };

void display_server_kick(struct display *d)
{
	const uint64_t one = 1;

	if (d->kicked || d->kick_fd < 0)
		return;
	d->kicked = true;
	ssize_t ignored = write(d->kick_fd, &one, sizeof(one));

	(void)ignored;
}

static void client_drop(struct display_client *c)
{
	struct display *d = c->d;

	if (!c->active)
		return;
	loop_remove(d->loop, &c->watch);
	fd_close(c->watch.fd);
	pthread_mutex_lock(&d->lock);
	for (size_t i = 0; i < ARRAY_SIZE(d->input); i++)
		if (d->input[i].owner == c)
			d->input[i].owner = NULL; /* still busy: the driver has yet to take it */
	*c = (struct display_client){.d = d, .watch.fd = -1};
	pthread_mutex_unlock(&d->lock);
}

static struct display_header header(enum display_op op, uint32_t scanout)
{
	return (struct display_header){le16_make((uint16_t)op), le16_make((uint16_t)scanout)};
}

static int send_message(struct display_client *c, const void *m, size_t n)
{
	ssize_t r = send(c->watch.fd, m, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	return r < 0 ? -errno : r == (ssize_t)n ? 0 : -EPIPE;
}

static int send_hello(struct display_client *c)
{
	const struct display *d = c->d;
	struct display_hello m = {.h = header(DISPLAY_HELLO, 0),
				  .version = le32_make(DISPLAY_VERSION),
				  .scanouts = le32_make(d->scanouts),
				  .memory_size = le64_make(d->memory.size),
				  .accelerated = le32_make(d->accelerated)};
	uint32_t inputs = 0;
	ssize_t r;

	for (unsigned i = 0; i < DISPLAY_INPUT_KINDS; i++)
		inputs |= (uint32_t)(d->input[i].ops != NULL) << i;
	m.inputs = le32_make(inputs);
	r = fd_send(c->watch.fd, &m, sizeof(m), &d->memory.readonly_fd, 1);
	return r < 0 ? (int)r : 0;
}

static int send_scanout(struct display_client *c, uint32_t i)
{
	const struct display_scanout_state *s = &c->d->scanout[i];
	struct display_scanout m = {.h = header(DISPLAY_SCANOUT, i),
				    .width = le32_make(s->surface.width),
				    .height = le32_make(s->surface.height),
				    .stride = le32_make(s->surface.stride),
				    .format = le32_make(s->surface.format),
				    .offset = le64_make(s->surface.offset),
				    .wanted_width = le32_make(s->wanted_width),
				    .wanted_height = le32_make(s->wanted_height)};

	return send_message(c, &m, sizeof(m));
}

static int send_cursor(struct display_client *c, uint32_t i)
{
	const struct display_scanout_state *s = &c->d->scanout[i];
	struct display_cursor m = {.h = header(DISPLAY_CURSOR, i),
				   .visible = le32_make(s->cursor_visible),
				   .x = le32_make(s->cursor_x),
				   .y = le32_make(s->cursor_y),
				   .hot_x = le32_make(s->hot_x),
				   .hot_y = le32_make(s->hot_y),
				   .serial = le32_make(s->cursor_serial),
				   .offset = le64_make(s->cursor_offset)};

	return send_message(c, &m, sizeof(m));
}

static int send_damage(struct display_client *c, uint32_t i)
{
	const struct display_region *r = &c->damage[i];
	struct display_damage m = {
	    .h = header(DISPLAY_DAMAGE, i), .n = le32_make(r->n), .frame = le64_make(c->d->frame)};

	for (uint32_t k = 0; k < r->n; k++)
		m.rect[k] = (struct display_rect_wire){le32_make(r->rect[k].x), le32_make(r->rect[k].y),
						       le32_make(r->rect[k].width), le32_make(r->rect[k].height)};
	return send_message(c, &m, sizeof(m));
}

/* The flag of what was sent is taken back. 1 or -errno. */
static int sent(bool *flag, int r)
{
	if (r < 0)
		return r;
	*flag = false;
	return 1;
}

/* The next thing this client is to know. 1 sent, 0 there is nothing, or -errno. Under the lock. */
static int send_next(struct display_client *c)
{
	const struct display *d = c->d;
	int r;

	if (c->hello)
		return sent(&c->hello, send_hello(c));
	for (uint32_t i = 0; i < d->scanouts; i++) {
		if (c->scanout[i])
			return sent(&c->scanout[i], send_scanout(c, i));
		if (c->cursor[i])
			return sent(&c->cursor[i], send_cursor(c, i));
	}
	if (c->leds) {
		struct display_leds m = {header(DISPLAY_LEDS, 0), le32_make(d->leds)};

		return sent(&c->leds, send_message(c, &m, sizeof(m)));
	}
	if (c->answer)
		return sent(&c->answer, send_message(c, &c->taken, sizeof(c->taken)));
	for (uint32_t k = 0; c->ready && k < d->scanouts; k++) {
		uint32_t i = (c->next_damage + k) % d->scanouts;

		if (c->damage[i].n == 0)
			continue;
		r = sent(&c->ready, send_damage(c, i));
		if (r > 0) {
			c->damage[i].n = 0;
			c->next_damage = i + 1;
		}
		return r;
	}
	return 0;
}

/* Sends what there is and sets what is waited for. */
static void client_flush(struct display_client *c)
{
	uint32_t events = 0;
	int r;

	if (!c->active)
		return;
	pthread_mutex_lock(&c->d->lock);
	do
		r = send_next(c);
	while (r > 0);
	pthread_mutex_unlock(&c->d->lock);
	if (r < 0 && r != -EAGAIN) {
		client_drop(c);
		return;
	}
	if (r == -EAGAIN)
		events |= EPOLLOUT;
	/* An answer that cannot go is one that waits: the next input would take its place. */
	if (c->stage == DISPLAY_INPUT_NONE && !c->answer)
		events |= EPOLLIN;
	if (loop_modify(c->d->loop, &c->watch, events) < 0)
		client_drop(c);
}

static void client_answer(struct display_client *c, int status, uint64_t frame)
{
	c->taken = (struct display_taken){.h = header(DISPLAY_TAKEN, 0),
					  .seq = c->input.seq,
					  .status = le32_make((uint32_t)status),
					  .frame = le64_make(frame)};
	c->answer = true;
	c->stage = DISPLAY_INPUT_NONE;
}

/* Gives a client's message to its device, unless another's is there. True when that one is answered or given now. */
static bool input_try(struct display_client *c)
{
	struct display *d = c->d;
	struct display_input_state *in = &d->input[le32_get(c->input.kind)];
	bool again;
	uint64_t frame;
	int r;

	do {
		pthread_mutex_lock(&d->lock);
		if (in->busy) {
			in->waited = true;
			pthread_mutex_unlock(&d->lock);
			c->stage = DISPLAY_INPUT_HELD;
			return false;
		}
		in->busy = true;
		in->taken = false;
		pthread_mutex_unlock(&d->lock);
		r = in->ops ? in->ops->inject(in->opaque, c->input.event, le32_get(c->input.n)) : -ENODEV;
		pthread_mutex_lock(&d->lock);
		frame = d->frame;
		in->busy = r == 0;
		again = r == -EAGAIN && in->taken; /* room was made between its answer and now */
		if (r == -EAGAIN && !again)
			in->waited = true;
		if (in->taken && !again)
			display_server_kick(d); /* main looks again: this one may have been taken, or others wait */
		pthread_mutex_unlock(&d->lock);
	} while (again);
	in->last = (uint32_t)(c - d->client);
	if (r == -EAGAIN) {
		c->stage = DISPLAY_INPUT_HELD;
		return false;
	}
	if (r == 0) {
		in->owner = c;
		c->stage = DISPLAY_INPUT_GIVEN;
	} else {
		client_answer(c, r, frame);
	}
	return true;
}

/* The owner hears that all was taken, and those who were held are tried in turn. */
static void input_settle(struct display *d, uint32_t kind)
{
	struct display_input_state *in = &d->input[kind];
	uint32_t last = in->last;
	bool taken, waited;
	uint64_t frame;

	pthread_mutex_lock(&d->lock);
	taken = in->taken;
	waited = in->waited;
	frame = in->frame;
	if (taken)
		in->busy = in->taken = in->waited = false;
	pthread_mutex_unlock(&d->lock);
	if (!taken)
		return;
	if (in->owner) {
		client_answer(in->owner, 0, frame);
		in->owner = NULL;
	}
	for (uint32_t k = 1; waited && k <= DISPLAY_CLIENTS_MAX; k++) {
		struct display_client *c = &d->client[(last + k) % DISPLAY_CLIENTS_MAX];

		if (c->active && c->stage == DISPLAY_INPUT_HELD && le32_get(c->input.kind) == kind && !input_try(c))
			break;
	}
}

void display_set_input(struct display *d, enum display_input_kind kind, const struct display_input_ops *ops,
		       void *opaque)
{
	struct display_input_state *in = &d->input[kind];

	in->ops = ops;
	in->opaque = opaque;
	if (!ops)
		display_taken(d, kind);
}

/* Only a message that is exactly one: else false. */
static bool handle_input(struct display_client *c, const struct display_input *m)
{
	uint32_t n = le32_get(m->n);

	if (le32_get(m->kind) >= DISPLAY_INPUT_KINDS || n < 1 || n > DISPLAY_EVENTS_MAX)
		return false;
	c->input = *m;
	input_try(c);
	return true;
}

static bool handle_mode(struct display_client *c, const struct display_mode *m)
{
	uint32_t width = le32_get(m->width), height = le32_get(m->height), scanout = le16_get(m->h.scanout);

	if (scanout >= c->d->scanouts || width < DISPLAY_SIZE_MIN || width > DISPLAY_SIZE_MAX ||
	    height < DISPLAY_SIZE_MIN || height > DISPLAY_SIZE_MAX)
		return false;
	if (c->d->gpu)
		c->d->gpu->mode(c->d->gpu_opaque, scanout, width, height);
	return true;
}

static bool handle(struct display_client *c, const uint8_t *buf, size_t n)
{
	struct display_header h;

	if (n < sizeof(h))
		return false;
	memcpy(&h, buf, sizeof(h));
	switch (le16_get(h.op)) {
	case DISPLAY_READY:
		if (n != sizeof(h))
			return false;
		pthread_mutex_lock(&c->d->lock);
		c->ready = true;
		pthread_mutex_unlock(&c->d->lock);
		return true;
	case DISPLAY_INPUT: {
		struct display_input m;

		if (n != sizeof(m))
			return false;
		memcpy(&m, buf, sizeof(m));
		return handle_input(c, &m);
	}
	case DISPLAY_MODE: {
		struct display_mode m;

		if (n != sizeof(m))
			return false;
		memcpy(&m, buf, sizeof(m));
		return handle_mode(c, &m);
	}
	default:
		return false;
	}
}

static void client_read(struct display_client *c)
{
	uint8_t buf[DISPLAY_MESSAGE_MAX];
	ssize_t n = fd_recv(c->watch.fd, buf, sizeof(buf), NULL, 0, NULL);

	if (n == -EAGAIN)
		return;
	if (n <= 0 && n != -EMSGSIZE) {
		client_drop(c);
		return;
	}
	if (n < 0 || !handle(c, buf, (size_t)n)) {
		log_limited(c->d->log, &c->d->limit, LOG_WARN,
			    "display: a client sent what is no message: disconnected");
		client_drop(c);
	}
}

static void on_client(struct loop_fd *w, uint32_t events)
{
	struct display_client *c = container_of(w, struct display_client, watch);

	if (events & EPOLLIN && c->stage == DISPLAY_INPUT_NONE && !c->answer)
		client_read(c);
	else if (events & (EPOLLHUP | EPOLLERR))
		client_drop(c);
	client_flush(c);
}

static void on_kick(struct loop_fd *w, uint32_t events)
{
	struct display *d = container_of(w, struct display, kick);
	uint64_t v;
	ssize_t ignored = read(w->fd, &v, sizeof(v));

	(void)ignored;
	(void)events;
	pthread_mutex_lock(&d->lock);
	d->kicked = false;
	pthread_mutex_unlock(&d->lock);
	for (uint32_t i = 0; i < DISPLAY_INPUT_KINDS; i++)
		input_settle(d, i);
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
		client_flush(&d->client[i]);
}

static bool allowed(const struct display *d, int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && (cred.uid == d->uid || cred.uid == 0);
}

static void client_start(struct display *d, struct display_client *c)
{
	pthread_mutex_lock(&d->lock);
	c->active = c->hello = c->leds = true;
	for (uint32_t s = 0; s < d->scanouts; s++) {
		const struct display_surface *f = &d->scanout[s].surface;

		c->scanout[s] = c->cursor[s] = true;
		c->damage[s].n = 0;
		if (d->frame > 0)
			display_region_add(&c->damage[s], &(struct display_rect){0, 0, f->width, f->height});
	}
	pthread_mutex_unlock(&d->lock);
	client_flush(c);
}

static void on_accept_again(struct loop_timer *t)
{
	struct display *d = container_of(t, struct display, accept_again);

	loop_modify(d->loop, &d->listener, EPOLLIN);
}

static void on_listener(struct loop_fd *w, uint32_t events)
{
	struct display *d = container_of(w, struct display, listener);
	_cleanup_close_ int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	const int small = 0; /* the least the kernel gives: a few messages */

	(void)events;
	if (fd < 0 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
		/* No descriptors: it stays readable, so ask again later. */
		loop_modify(d->loop, w, 0);
		loop_timer_set(d->loop, &d->accept_again, loop_now_ns() + (uint64_t)ACCEPT_AGAIN_MS * 1000000,
			       on_accept_again);
	}
	if (fd < 0 || !allowed(d, fd))
		return;
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++) {
		struct display_client *c = &d->client[i];

		if (c->active)
			continue;
		if (loop_add(d->loop, &c->watch, fd, EPOLLIN, on_client) < 0)
			return;
		(void)TAKE_FD(fd);
		client_start(d, c);
		return;
	}
	log_limited(d->log, &d->limit, LOG_WARN, "display: %d clients are connected, one more was turned away",
		    DISPLAY_CLIENTS_MAX);
}

int display_server_open(struct display *d, const char *name, struct err *err)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = -1;
	int r;

	d->uid = geteuid();
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
		d->client[i] = (struct display_client){.d = d, .watch.fd = -1};
	if (!*name || strlen(name) >= sizeof(sa.sun_path))
		return err_set(err, -ENAMETOOLONG, "display socket '%s': 1 to %zu bytes are possible", name,
			       sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, name, strlen(name));
	d->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->kick_fd < 0)
		return err_errno(err, -errno, "display: eventfd");
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_errno(err, -errno, "display socket");
	if (unlink(name) < 0 && errno != ENOENT)
		return err_errno(err, -errno, "display socket '%s': remove the old one", name);
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(err, -errno, "display socket '%s'", name);
	r = loop_add(d->loop, &d->kick, d->kick_fd, EPOLLIN, on_kick);
	if (r == 0)
		r = loop_add(d->loop, &d->listener, fd, EPOLLIN, on_listener);
	if (r < 0)
		return err_errno(err, r, "display: epoll");
	(void)TAKE_FD(fd);
	return 0;
}

void display_server_finish(struct display *d)
{
	for (size_t i = 0; i < ARRAY_SIZE(d->client); i++)
		client_drop(&d->client[i]);
	if (d->accept_again.armed)
		loop_timer_cancel(d->loop, &d->accept_again);
	if (d->listener.added) {
		loop_remove(d->loop, &d->listener);
		fd_close(d->listener.fd);
	}
	if (d->kick.added)
		loop_remove(d->loop, &d->kick);
	if (d->kick_fd >= 0)
		fd_close(d->kick_fd);
	d->kick_fd = -1;
}
