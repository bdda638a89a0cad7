/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How programs on the host see a VM's display and give it input: the messages of DIR/display.sock.
 *
 * The socket is SOCK_SEQPACKET; only the VM's owner and root can connect. The monitor listens, at most DISPLAY_CLIENTS_MAX at once.
 * One message a packet, of exactly its struct's size, little-endian, no descriptors but the one of DISPLAY_HELLO.
 *
 * Pixels: all surfaces lie in one memory, which DISPLAY_HELLO passes as a sealed memfd that can be mapped for reading only. A
 * surface is read where it is, at any time; what is drawn meanwhile may be seen in part, as on a real screen, and a later
 * DISPLAY_DAMAGE covers it. Every pixel has 4 bytes, in the order its format says (virtio 1.2, 5.7.6.8).
 *
 * To a client: HELLO, then for each scanout SCANOUT, CURSOR, then LEDS; after that whatever has changed. Nothing is queued for
 * a client that does not read: it finds the newest state when it does. DAMAGE comes only to one who has said READY since the
 * last one; what changes meanwhile is gathered, so a slow viewer costs nobody anything. The first covers everything.
 *
 * From a client: INPUT is answered by TAKEN once the guest's driver has taken all of it; until then nothing more
 * is read from that client. Frames are counted from 1; one ends with each flush of the guest that shows on a scanout. A picture
 * that must show what a click did is one of a frame after TAKEN.frame.
 *
 * A message that is too short, too long, unknown or impossible ends that client's connection.
 */
#pragma once
#include "lib/le.h"

#define DISPLAY_SOCKET "display.sock"
enum {
	DISPLAY_VERSION = 1,
	DISPLAY_SCANOUTS_MAX = 4,
	DISPLAY_CLIENTS_MAX = 16,
	DISPLAY_RECTS_MAX = 16,    /* in one DAMAGE */
	DISPLAY_EVENTS_MAX = 32,   /* in one INPUT */
	DISPLAY_SIZE_MIN = 64,     /* of a scanout, pixels a side */
	DISPLAY_SIZE_MAX = 8192,
	DISPLAY_CURSOR_SIZE = 64,  /* pixels a side: the one size virtio-gpu has */
	DISPLAY_POINTER_MAX = 32767, /* absolute axes of pointer and touch: 0 to this, over the whole of the scanout */
	DISPLAY_TOUCHES_MAX = 10,  /* slots of the touch screen */
};

enum display_op {
	/* from the monitor */
	DISPLAY_HELLO = 1,
	DISPLAY_SCANOUT = 2,
	DISPLAY_CURSOR = 3,
	DISPLAY_DAMAGE = 4,
	DISPLAY_LEDS = 5,
	DISPLAY_TAKEN = 6,
	/* from the client */
	DISPLAY_READY = 16, /* struct display_header alone */
	DISPLAY_INPUT = 17,
	DISPLAY_MODE = 18,
};

/* Bytes of a pixel in memory, lowest address first (virtio 1.2, 5.7.6.8). */
enum display_format {
	DISPLAY_B8G8R8A8 = 1,
	DISPLAY_B8G8R8X8 = 2,
	DISPLAY_A8R8G8B8 = 3,
	DISPLAY_X8R8G8B8 = 4,
	DISPLAY_R8G8B8A8 = 67,
	DISPLAY_X8B8G8R8 = 68,
	DISPLAY_A8B8G8R8 = 121,
	DISPLAY_R8G8B8X8 = 134,
};

enum display_input_kind { DISPLAY_KEYBOARD, DISPLAY_POINTER, DISPLAY_TOUCH, DISPLAY_INPUT_KINDS };

struct display_header {
	le16 op;
	le16 scanout; /* 0 where a message has none */
};

struct display_rect_wire {
	le32 x, y, width, height;
};

/* With the descriptor of the memory. */
struct display_hello {
	struct display_header h;
	le32 version;
	le32 scanouts;    /* their number */
	le32 inputs;      /* bit n: there is an input device of that kind */
	le64 memory_size; /* bytes */
	le32 accelerated; /* 1: the guest may draw in 3D */
	le32 reserved;
};

struct display_scanout {
	struct display_header h;
	le32 width, height; /* 0 0: nothing is shown */
	le32 stride;        /* bytes from a line to the next */
	le32 format;        /* enum display_format */
	le32 reserved;
	le64 offset;        /* of the first pixel in the memory */
	le32 wanted_width, wanted_height; /* the mode the guest has been told to prefer */
};

/* The image is DISPLAY_CURSOR_SIZE lines of as many pixels, B8G8R8A8 with premultiplied alpha, nothing between the lines. */
struct display_cursor {
	struct display_header h;
	le32 visible;
	le32 x, y;         /* of the hot spot on the scanout */
	le32 hot_x, hot_y; /* in the image */
	le32 serial;       /* another one with every image */
	le32 reserved;
	le64 offset;
};

struct display_damage {
	struct display_header h; /* scanout: whose rectangles */
	le32 n;                  /* 1 to DISPLAY_RECTS_MAX; the rest is 0 */
	le64 frame;              /* the newest that they are part of */
	struct display_rect_wire rect[DISPLAY_RECTS_MAX];
};

struct display_leds {
	struct display_header h;
	le32 leds; /* bit n: LED_x of the keyboard is lit (Linux: linux/input-event-codes.h) */
};

/*
 * As Linux' struct input_event, without the time. The device adds SYN_REPORT after the last. One between two others ends a moment: a key
 * that goes down and up in one message is never held, however slow the guest is.
 */
struct display_input_event {
	le16 type, code;
	le32 value;
};

struct display_input {
	struct display_header h;
	le32 seq;
	le32 kind; /* enum display_input_kind */
	le32 n;    /* events: 1 to DISPLAY_EVENTS_MAX */
	struct display_input_event event[DISPLAY_EVENTS_MAX];
};

struct display_taken {
	struct display_header h;
	le32 seq;
	le32 status; /* 0, or a negative errno as two's complement: -ENODEV when no driver listens */
	le32 reserved;
	le64 frame;  /* the newest at that moment */
};

/* The guest is told to prefer this size. */
struct display_mode {
	struct display_header h;
	le32 width, height;
};

#define DISPLAY_MESSAGE_MAX sizeof(struct display_damage)
_Static_assert(sizeof(struct display_damage) >= sizeof(struct display_input), "the largest message");
