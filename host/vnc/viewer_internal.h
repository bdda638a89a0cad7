/* SPDX-License-Identifier: Apache-2.0 */
/* What viewer.c, viewer_input.c and viewer_clipboard.c share. */
#pragma once
#include <rfb/rfb.h>
#include <rfb/rfbregion.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/vnc/control.h"
#include "host/vnc/cut_text.h"
#include "host/vnc/keys.h"
#include "host/vnc/picture.h"
#include "host/vnc/queue.h"

struct viewer {
	struct display_client display;
	struct queue queue;
	rfbScreenInfoPtr screen;
	rfbClientPtr client;
	bool view_only;
	bool owes_ready; /* the display is to hear that we want more */
	/* what libvncserver encodes from */
	uint32_t *picture;
	uint32_t width, height;
	bool cursor_shown;
	uint32_t cursor_serial;
	struct picture_cursor cursor;
	/* input */
	struct keys keys;
	bool owes_places; /* the viewer is to hear that it may say where keys are */
	rfbProtocolExtension key_extension;
	int key_encodings[2];
	int buttons, pointer_x, pointer_y;
	/* Where the viewer believes the pointer to be, since it has put it there or was told; and when it is to be told of another place. */
	int believed_x, believed_y;
	uint64_t moved_ns, place_due_ns; /* when it has last put it somewhere; 0: it need not be told */
	int control;
	struct cut_text cut;
	struct {
		struct vnc_header h;
		char text[VNC_CLIPBOARD_MAX];
	} message; /* to or from `coffer vnc` */
	uint8_t cut_message[CUT_MESSAGE_MAX];
};

void viewer_input_init(struct viewer *v);
/* After an update: what the viewer has asked for besides. */
void viewer_input_answer(struct viewer *v);
/* viewer_clipboard.c: what was copied in the guest. */
void viewer_clipboard_tell(struct viewer *v, const char *text, size_t n);
/* A message of the viewer's about it is there: one that is wrong closes the client. */
void viewer_clipboard_read(struct viewer *v);
/* The viewer has named its encodings. */
void viewer_clipboard_offer(struct viewer *v);
/* What the viewer holds down is let go of. */
void viewer_input_finish(struct viewer *v);
