/* SPDX-License-Identifier: Apache-2.0 */
/* One viewer: see viewer.h. What it does with the input is in viewer_input.c, the clipboard in viewer_clipboard.c. */
#include "host/vnc/viewer.h"

#include <errno.h>
#include <linux/input-event-codes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vnc/front.h"
#include "host/vnc/viewer_internal.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum {
	SEND_WAIT_MS = 20000,
	GREETING_MS = 20000,  /* for the one byte that is left of the handshake: nobody has to type it */
	PLACE_QUIET_MS = 300, /* a guest takes that long at most to put the pointer where a viewer has it, and to show another cursor */
	PLACE_NEAR = 2,       /* pixels */
};

/* ---- the picture ---- */

/* RFB shows one. */
static const struct display_client_scanout *shown(const struct viewer *v)
{
	return &v->display.scanout[0];
}

static void copy_rect(struct viewer *v, uint32_t x, uint32_t y, uint32_t width, uint32_t height)
{
	const struct display_client_scanout *s = shown(v);
	uint32_t w = MIN(s->width, v->width), h = MIN(s->height, v->height);

	if (x >= w || y >= h)
		return;
	width = MIN(width, w - x);
	height = MIN(height, h - y);
	for (uint32_t i = 0; i < height; i++)
		picture_convert(v->picture + (size_t)(y + i) * v->width + x, s->pixels + (size_t)(y + i) * s->stride + (size_t)x * 4, width,
				s->format);
	rfbMarkRectAsModified(v->screen, (int)x, (int)y, (int)(x + width), (int)(y + height));
}

/* libvncserver forgets on which bits the colours are when it is given another picture. */
static void set_format(struct viewer *v)
{
	rfbPixelFormat *f = &v->screen->serverFormat;

	f->redShift = PICTURE_RED_SHIFT;
	f->greenShift = PICTURE_GREEN_SHIFT;
	f->blueShift = PICTURE_BLUE_SHIFT;
}

/* Of the scanout's size: black where nothing is shown. */
static int new_picture(struct viewer *v)
{
	const struct display_client_scanout *s = shown(v);
	uint32_t width = s->width, height = s->height;
	uint32_t *picture;

	if (width == 0) {
		width = v->width ? v->width : MAX(s->wanted_width, (uint32_t)DISPLAY_SIZE_MIN);
		height = v->height ? v->height : MAX(s->wanted_height, (uint32_t)DISPLAY_SIZE_MIN);
	}
	if (v->picture && width == v->width && height == v->height) {
		if (s->width == 0) {
			memset(v->picture, 0, (size_t)width * height * 4);
			rfbMarkRectAsModified(v->screen, 0, 0, (int)width, (int)height);
		}
		return 0;
	}
	picture = calloc((size_t)width * height, sizeof(*picture));
	if (!picture)
		return -ENOMEM;
	v->width = width;
	v->height = height;
	if (v->screen) {
		rfbNewFramebuffer(v->screen, (char *)picture, (int)width, (int)height, 8, 3, 4);
		set_format(v);
		v->screen->setTranslateFunction(v->client);
	}
	free(v->picture);
	v->picture = picture;
	return 0;
}

static void show_cursor(struct viewer *v)
{
	const struct display_client_cursor *c = &shown(v)->cursor;
	struct picture_cursor *p = &v->cursor;
	rfbCursorPtr r;

	if (c->visible == v->cursor_shown && (!c->visible || c->serial == v->cursor_serial))
		return;
	v->cursor_shown = c->visible;
	v->cursor_serial = c->serial;
	memset(p, 0, sizeof(*p));
	if (c->visible)
		picture_cursor(p, c->image, c->hot_x, c->hot_y);
	r = p->width ? calloc(1, sizeof(*r)) : NULL;
	if (r) {
		r->cleanup = r->cleanupMask = TRUE;
		r->width = (unsigned short)p->width;
		r->height = (unsigned short)p->height;
		r->xhot = (unsigned short)p->hot_x;
		r->yhot = (unsigned short)p->hot_y;
		r->richSource = (unsigned char *)p->pixel;
		r->alphaSource = p->alpha;
		r->mask = calloc((p->width + 7) / 8, p->height);
		if (!r->mask) {
			free(r);
			r = NULL;
		}
	}
	for (uint32_t i = 0; r && i < p->width * p->height; i++)
		if (p->alpha[i] >= 128)
			r->mask[i / p->width * ((p->width + 7) / 8) + i % p->width / 8] |= (unsigned char)(0x80 >> i % p->width % 8);
	rfbSetCursor(v->screen, r);
}

/* Where the guest has it. A viewer that has just put it there itself need not be told, nor of the places on the way there, nor of what
 * lies between another hot spot and its cursor: it would move its pointer there. */
static void move_cursor(struct viewer *v)
{
	const uint64_t quiet = (uint64_t)PLACE_QUIET_MS * 1000000, now = loop_now_ns();
	const struct display_client_cursor *c = &shown(v)->cursor;
	int x = MAX(0, MIN(c->x, (int)v->width - 1)), y = MAX(0, MIN(c->y, (int)v->height - 1));

	v->screen->cursorX = x;
	v->screen->cursorY = y;
	if (abs(x - v->believed_x) <= PLACE_NEAR && abs(y - v->believed_y) <= PLACE_NEAR)
		v->place_due_ns = 0;
	else if (v->place_due_ns == 0)
		v->place_due_ns = now - v->moved_ns < quiet ? v->moved_ns + quiet : now;
}

static void tell_place(struct viewer *v, uint64_t now)
{
	const uint64_t quiet = (uint64_t)PLACE_QUIET_MS * 1000000;

	if (v->place_due_ns == 0 || now < v->place_due_ns)
		return;
	if (now - v->moved_ns < quiet) {
		v->place_due_ns = v->moved_ns + quiet; /* it goes on */
		return;
	}
	v->place_due_ns = 0;
	v->believed_x = v->screen->cursorX;
	v->believed_y = v->screen->cursorY;
	v->client->cursorWasMoved = TRUE;
}

static int led_state(rfbScreenInfoPtr screen)
{
	const struct viewer *v = screen->screenData;

	return (v->display.leds & 1 << LED_NUML ? rfbKeyboardMaskNumLock : 0) | (v->display.leds & 1 << LED_CAPSL ? rfbKeyboardMaskCapsLock : 0) |
	       (v->display.leds & 1 << LED_SCROLLL ? rfbKeyboardMaskScrollLock : 0);
}

/* Everything the display has to say. 0 or -errno. */
static int read_display(struct viewer *v)
{
	const struct display_client_scanout *s = shown(v);
	int found = display_client_read(&v->display, NULL), r = MIN(found, 0);

	if (r == 0 && found & DISPLAY_CLIENT_TAKEN)
		r = queue_go_on(&v->queue);
	if (r == 0 && found & DISPLAY_CLIENT_SCANOUT)
		r = new_picture(v);
	if (r < 0)
		return r;
	if (found & DISPLAY_CLIENT_CURSOR) {
		show_cursor(v);
		move_cursor(v);
	}
	if (found & DISPLAY_CLIENT_LEDS && v->client->enableKeyboardLedState)
		rfbMarkRectAsModified(v->screen, 0, 0, 1, 1); /* lamps go with an update */
	for (uint32_t i = 0; i < s->ndamage; i++)
		copy_rect(v, s->damage[i].x, s->damage[i].y, s->damage[i].width, s->damage[i].height);
	for (uint32_t i = 0; i < v->display.scanouts; i++)
		display_client_clear(&v->display, i);
	if (found & DISPLAY_CLIENT_DAMAGE)
		v->owes_ready = true;
	return 0;
}

/* 0, or -ECONNRESET when `coffer vnc` has gone. */
static int read_control(struct viewer *v)
{
	ssize_t n = recv(v->control, &v->message, sizeof(v->message), MSG_DONTWAIT);
	const struct vnc_header *h = &v->message.h;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n < (ssize_t)sizeof(*h))
		return -ECONNRESET;
	if (h->op == VNC_CLIPBOARD && h->n == (size_t)n - sizeof(*h) && v->client->state == RFB_NORMAL)
		viewer_clipboard_tell(v, v->message.text, h->n);
	return 0;
}

/* ---- libvncserver ---- */

static enum rfbNewClientAction on_client(rfbClientPtr client)
{
	(void)client;
	return RFB_CLIENT_ACCEPT;
}

__attribute__((format(printf, 1, 2))) static void say_nothing(const char *format, ...)
{
	(void)format;
}

static int open_screen(struct viewer *v, const struct vnc_start *start)
{
	int argc = 1;
	char program[] = "coffer-vnc", *argv[] = { program, NULL };
	int r = new_picture(v);

	if (r < 0)
		return r;
	rfbLog = rfbErr = say_nothing; /* it would say what viewers sent */
	v->screen = rfbGetScreen(&argc, argv, (int)v->width, (int)v->height, 8, 3, 4);
	if (!v->screen)
		return -ENOMEM;
	v->screen->frameBuffer = (char *)v->picture;
	v->screen->screenData = v;
	v->screen->desktopName = start->name;
	v->screen->alwaysShared = TRUE;
	v->screen->deferUpdateTime = 0;
	v->screen->deferPtrUpdateTime = 0;
	v->screen->maxClientWait = SEND_WAIT_MS;
	v->screen->permitFileTransfer = FALSE;
	v->screen->newClientHook = on_client;
	v->screen->getKeyboardLedStateHook = led_state;
	rfbSetCursor(v->screen, NULL);
	set_format(v);
	viewer_input_init(v);
	return 0;
}

/* The handshake that the front has done, once more for libvncserver; then `stream` takes its place. */
static int start_client(struct viewer *v, int stream)
{
	static const char said[] = "RFB 003.008\n\001";
	int pair[2];
	ssize_t ignored;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	ignored = write(pair[1], said, sizeof(said) - 1);
	v->client = rfbNewClient(v->screen, pair[0]);
	for (int i = 0; v->client && v->client->sock >= 0 && i < 2; i++)
		rfbProcessClientMessage(v->client);
	if (!v->client || v->client->sock < 0 || v->client->state != RFB_INITIALISATION || dup2(stream, pair[0]) < 0) {
		close(pair[1]);
		return -EPROTO;
	}
	(void)ignored;
	v->client->viewOnly = v->view_only;
	close(pair[1]);
	return fd_set_nonblock(pair[0], 1);
}

/* Sends the viewer what it has asked for, and asks the display for more when that has gone. */
static int update(struct viewer *v)
{
	bool sent = rfbUpdateClient(v->client);

	if (sent && v->client->sock >= 0)
		viewer_input_answer(v);
	if (v->client->sock < 0)
		return -ECONNRESET;
	if (v->owes_ready && (sent || sraRgnEmpty(v->client->modifiedRegion))) {
		v->owes_ready = false;
		return display_client_ready(&v->display, NULL);
	}
	return 0;
}

/* libvncserver has one of the clipboard's messages less than viewers need, so these are not for it. */
static void read_client(struct viewer *v)
{
	uint8_t type = 0;
	bool known = v->client->state == RFB_NORMAL && recv(v->client->sock, &type, 1, MSG_PEEK | MSG_DONTWAIT) == 1;

	if (known && type == rfbClientCutText) {
		viewer_clipboard_read(v);
		return;
	}
	rfbProcessClientMessage(v->client);
	if (known && type == rfbSetEncodings && v->client->sock >= 0)
		viewer_clipboard_offer(v);
}

/* For poll. */
static int wait_ms(const struct viewer *v, uint64_t greeted_until)
{
	uint64_t until = v->client->state == RFB_NORMAL ? UINT64_MAX : greeted_until, now = loop_now_ns();

	if (v->place_due_ns)
		until = MIN(until, v->place_due_ns);
	return until == UINT64_MAX ? -1 : until <= now ? 0 : (int)((until - now) / 1000000 + 1);
}

static int serve(struct viewer *v)
{
	const uint64_t greeted_until = loop_now_ns() + (uint64_t)GREETING_MS * 1000000;

	for (;;) {
		struct pollfd p[3] = { { .fd = v->client->sock, .events = POLLIN },
				       { .fd = v->display.fd, .events = POLLIN },
				       /* Texts have to wait until the viewer has been greeted. */
				       { .fd = v->control, .events = v->client->state == RFB_NORMAL ? POLLIN : 0 } };
		int r = update(v);

		if (r < 0)
			return r;
		if (v->client->state != RFB_NORMAL && loop_now_ns() >= greeted_until)
			return -ECONNRESET;
		if (poll(p, 3, wait_ms(v, greeted_until)) < 0 && errno != EINTR)
			return -errno;
		if (p[1].revents && (r = read_display(v)) < 0)
			return r;
		if (p[2].revents && (r = read_control(v)) < 0)
			return r;
		if (p[0].revents)
			read_client(v);
		tell_place(v, loop_now_ns());
		if (v->client->sock < 0)
			return -ECONNRESET;
	}
}

/* The connection to the display, which comes when the viewer was let in. -ECONNRESET: it is one too many, or all is over. */
static int receive_display(const struct viewer *v)
{
	struct vnc_header h;
	size_t nfds = 0;
	int fd = -1;
	ssize_t n = fd_recv(v->control, &h, sizeof(h), &fd, 1, &nfds);

	if (n != (ssize_t)sizeof(h) || h.op != VNC_DISPLAY || nfds != 1) {
		fd_close(fd);
		return -ECONNRESET;
	}
	return fd;
}

/* From the front, which takes its time; false: the viewer was not let in, or `coffer vnc` has gone. */
static bool receive_hello(const struct viewer_fds *fds, struct front_hello *ret)
{
	struct pollfd p[2] = { { .fd = fds->stream, .events = POLLIN }, { .fd = fds->control } };

	while (!p[0].revents) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return false;
		if (p[1].revents)
			return false;
	}
	return fd_read_full(fds->stream, ret, sizeof(*ret)) == sizeof(*ret);
}

static int tell_state(const struct viewer *v, enum vnc_state state)
{
	const struct vnc_state_message m = { { VNC_STATE, sizeof(m.state) }, state };

	return send(v->control, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m) ? 0 : -ECONNRESET;
}

/* The front still has to say so to the viewer, and this process' end would be its end. */
static void wait_for_end(const struct viewer_fds *fds)
{
	struct pollfd p[2] = { { .fd = fds->stream }, { .fd = fds->control } };

	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
}

int viewer_run(const struct vnc_start *start, const struct viewer_fds *fds, struct err *err)
{
	struct viewer *v = calloc(1, sizeof(*v));
	struct front_hello hello;
	int fd, r;

	if (!v)
		return err_errno(err, -ENOMEM, "viewer");
	v->control = fds->control;
	if (!receive_hello(fds, &hello))
		return 0;
	if (hello.wrong) {
		if (tell_state(v, VNC_WRONG_PASSWORD) == 0)
			wait_for_end(fds);
		return 0;
	}
	v->view_only = hello.view_only || start->flags & VNC_VIEW_ONLY;
	v->keys.positions = start->flags & VNC_POSITIONS;
	if (tell_state(v, VNC_LET_IN) < 0)
		return 0;
	fd = receive_display(v);
	if (fd < 0)
		return 0;
	r = display_client_start(fd, &v->display, err); /* with it the first picture's size, before the viewer asks */
	if (r < 0)
		return r;
	v->queue.display = &v->display;
	display_client_clear(&v->display, 0); /* the first damage covers everything */
	r = open_screen(v, start);
	if (r == 0)
		r = start_client(v, hello.direct ? fds->connection : fds->stream);
	fd_close(fds->stream);
	fd_close(fds->connection);
	if (r == 0)
		r = display_client_ready(&v->display, NULL);
	if (r < 0)
		return err_errno(err, r, "viewer");
	r = serve(v);
	viewer_input_finish(v);
	return r == -ECONNRESET || r == -EPIPE ? 0 : err_errno(err, r, "viewer");
}
