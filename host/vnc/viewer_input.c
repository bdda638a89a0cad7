/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a viewer does: keys, pointer and sizes, from libvncserver to the display.
 *
 * Keys and buttons that are down when the viewer goes are let go of; the display takes one message at a time, so that is waited for,
 * up to RELEASE_MS.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/input-event-codes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/vnc/viewer_internal.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { WHEEL_CLICK = 120 /* of the fine wheel axes */, RELEASE_MS = 2000 };

/* Bits of RFB's button mask; the four between are wheels. */
static const struct {
	int bit;
	uint16_t code;
} button_keys[] = { { 1 << 0, BTN_LEFT }, { 1 << 1, BTN_MIDDLE }, { 1 << 2, BTN_RIGHT }, { 1 << 7, BTN_SIDE } };

static void put(struct queue_moment *m, uint16_t type, uint16_t code, int value)
{
	m->event[m->n++] = (struct display_input_event){ le16_make(type), le16_make(code), le32_make((uint32_t)value) };
}

static void press(struct viewer *v, const struct key_event *e)
{
	struct queue_moment m = { .kind = DISPLAY_KEYBOARD };

	put(&m, EV_KEY, e->code, e->down);
	queue_put(&v->queue, &m);
}

static void key(struct viewer *v, const struct key_press *p)
{
	struct key_event e[KEYS_EVENTS_MAX];
	size_t n;

	if (p->down && v->queue.count >= QUEUE_PRESS_MAX)
		return; /* the guest does not take them; those that are down must have room to come up */
	n = keys_press(&v->keys, p, v->display.leds & 1 << LED_CAPSL, e);
	for (size_t i = 0; i < n; i++)
		press(v, &e[i]);
}

static void on_key(rfbBool down, rfbKeySym keysym, rfbClientPtr client)
{
	key(client->screen->screenData, &(struct key_press){ .keysym = (uint32_t)keysym, .down = down != 0 });
}

/* ---- QEMU's extended key event, which libvncserver's server does not have ---- */

enum { QEMU_KEY = 0 /* the kind of a rfbQemuEvent */ };

/* The viewer can say where keys are. */
static rfbBool on_pseudo_encoding(rfbClientPtr client, void **data, int encoding)
{
	struct viewer *v = client->screen->screenData;

	(void)data;
	if ((uint32_t)encoding != rfbEncodingQemuExtendedKeyEvent)
		return FALSE;
	v->owes_places = true;
	return TRUE;
}

void viewer_input_answer(struct viewer *v)
{
	uint8_t m[sz_rfbFramebufferUpdateMsg + sz_rfbFramebufferUpdateRectHeader] = { rfbFramebufferUpdate, 0, 0, 1 };
	const uint32_t qemu = htonl(rfbEncodingQemuExtendedKeyEvent);

	/* libvncserver's list of messages makes libvncclient forget what was allowed before. */
	if (!v->owes_places || v->client->enableSupportedMessages)
		return;
	v->owes_places = false;
	memcpy(m + sizeof(m) - sizeof(qemu), &qemu, sizeof(qemu));
	if (rfbWriteExact(v->client, (const char *)m, sizeof(m)) < 0)
		rfbCloseClient(v->client);
}

static rfbBool on_message(rfbClientPtr client, void *data, const rfbClientToServerMsg *message)
{
	struct viewer *v = client->screen->screenData;
	rfbQemuExtendedKeyEventMsg m;

	(void)data;
	if (message->type != rfbQemuEvent)
		return FALSE;
	if (rfbReadExact(client, (char *)&m + 1, sz_rfbQemuExtendedKeyEventMsg - 1) <= 0 || m.subtype != QEMU_KEY) {
		rfbCloseClient(client);
		return TRUE;
	}
	if (!v->view_only)
		key(v, &(struct key_press){ .keysym = ntohl(m.keysym), .scancode = ntohl(m.keycode), .down = m.down != 0 });
	return TRUE;
}

static void offer_places(struct viewer *v)
{
	v->key_encodings[0] = (int)rfbEncodingQemuExtendedKeyEvent;
	v->key_extension.pseudoEncodings = v->key_encodings;
	v->key_extension.enablePseudoEncoding = on_pseudo_encoding;
	v->key_extension.handleMessage = on_message;
	rfbRegisterProtocolExtension(&v->key_extension);
}

/* The middle of a pixel, as the value of an axis. */
static int axis(int at, uint32_t size)
{
	return (int)display_client_axis((uint32_t)MAX(0, MIN(at, (int)size - 1)), size);
}

/* One click of a wheel is a moment of its own. */
static void scroll(struct viewer *v, int clicked)
{
	static const struct {
		int bit, value;
		uint16_t code, fine;
	} wheels[] = { { 1 << 3, 1, REL_WHEEL, REL_WHEEL_HI_RES },
		       { 1 << 4, -1, REL_WHEEL, REL_WHEEL_HI_RES },
		       { 1 << 5, -1, REL_HWHEEL, REL_HWHEEL_HI_RES },
		       { 1 << 6, 1, REL_HWHEEL, REL_HWHEEL_HI_RES } };

	for (size_t i = 0; i < ARRAY_SIZE(wheels); i++) {
		struct queue_moment m = { .kind = DISPLAY_POINTER };

		if (!(clicked & wheels[i].bit))
			continue;
		put(&m, EV_REL, wheels[i].code, wheels[i].value);
		put(&m, EV_REL, wheels[i].fine, wheels[i].value * WHEEL_CLICK);
		queue_put(&v->queue, &m);
	}
}

static void on_pointer(int buttons, int x, int y, rfbClientPtr client)
{
	struct viewer *v = client->screen->screenData;
	struct queue_moment m = { .kind = DISPLAY_POINTER };
	int changed = buttons ^ v->buttons;

	if ((buttons & ~v->buttons) && v->queue.count >= QUEUE_PRESS_MAX)
		return;
	put(&m, EV_ABS, ABS_X, axis(x, v->width));
	put(&m, EV_ABS, ABS_Y, axis(y, v->height));
	for (size_t i = 0; i < ARRAY_SIZE(button_keys); i++)
		if (changed & button_keys[i].bit)
			put(&m, EV_KEY, button_keys[i].code, (buttons & button_keys[i].bit) != 0);
	m.motion = m.n == 2;
	if (!m.motion || x != v->pointer_x || y != v->pointer_y)
		queue_put(&v->queue, &m);
	v->pointer_x = v->believed_x = x;
	v->pointer_y = v->believed_y = y;
	v->moved_ns = loop_now_ns();
	scroll(v, changed & buttons);
	v->buttons = buttons;
}

static int on_size(int width, int height, int screens, struct rfbExtDesktopScreen *screen, rfbClientPtr client)
{
	struct viewer *v = client->screen->screenData;

	(void)screen;
	if (v->view_only)
		return rfbExtDesktopSize_ResizeProhibited;
	if (screens != 1 || width < DISPLAY_SIZE_MIN || height < DISPLAY_SIZE_MIN || width > DISPLAY_SIZE_MAX || height > DISPLAY_SIZE_MAX)
		return rfbExtDesktopSize_InvalidScreenLayout;
	/* The guest's answer is another picture, some time later. */
	return display_client_mode(&v->display, 0, (uint32_t)width, (uint32_t)height, NULL) < 0 ? rfbExtDesktopSize_OutOfResources :
													rfbExtDesktopSize_Success;
}

void viewer_input_init(struct viewer *v)
{
	v->screen->kbdAddEvent = on_key;
	v->screen->ptrAddEvent = on_pointer;
	v->screen->setDesktopSizeHook = on_size;
	v->pointer_x = v->pointer_y = v->believed_x = v->believed_y = -1;
	offer_places(v);
}

void viewer_input_finish(struct viewer *v)
{
	const unsigned long long until = loop_now_ns() / 1000000 + RELEASE_MS;
	struct key_event e;

	v->queue.count = 0; /* what was not begun is not done */
	while (keys_release_one(&v->keys, &e))
		press(v, &e);
	if (v->buttons && v->pointer_x >= 0 && v->client) {
		struct queue_moment m = { .kind = DISPLAY_POINTER };

		for (size_t i = 0; i < ARRAY_SIZE(button_keys); i++)
			if (v->buttons & button_keys[i].bit)
				put(&m, EV_KEY, button_keys[i].code, 0);
		if (m.n > 0)
			queue_put(&v->queue, &m);
	}
	while (v->queue.count > 0 || v->display.waiting) {
		int r = display_client_wait(&v->display, until, NULL);

		if (r <= 0 || (r & DISPLAY_CLIENT_TAKEN && queue_go_on(&v->queue) < 0))
			break;
	}
}
