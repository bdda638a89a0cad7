/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clipboard's messages between a viewer and the server: the old ones, whose texts are Latin-1, and those of the extended clipboard
 * (pseudo-encoding 0xC0A1E5CE), whose texts are UTF-8.
 *
 * An extended message is a cut text whose length is negative: flags of 4 bytes, the action and the formats it is about, then what
 * belongs to it. Text is the one format that is known here.
 *
 *   caps      what each side takes; this message of the viewer's, or any other, switches extended ones on. Before, texts go the old way
 *   notify    there is a new text; who wants it answers with a request
 *   provide   the text: zlib of a 32-bit length and as many bytes, lines end with CR LF, a zero byte at the end
 *   peek      asks for a notify
 *
 * Trust: payloads are the viewer's. Nothing is inflated beyond CUT_TEXT_MAX, whatever lengths they name; a text that is longer is left
 * out. What the guest copied is bounded before it comes here.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/vnc/control.h"

enum {
	CUT_TEXT_MAX = VNC_CLIPBOARD_MAX,       /* bytes of UTF-8, lines ending with LF */
	CUT_PAYLOAD_MAX = 2 * CUT_TEXT_MAX + 4000, /* of a message that is looked at: CR LF, and what deflate makes of noise */
	CUT_MESSAGE_MAX = CUT_PAYLOAD_MAX + 96,    /* of a message that is made */
};

enum cut_action {
	CUT_NOTHING = 0,
	CUT_CAPS = 1 << 24,
	CUT_REQUEST = 1 << 25,
	CUT_PEEK = 1 << 26,
	CUT_NOTIFY = 1 << 27,
	CUT_PROVIDE = 1 << 28,
	CUT_OLD = 1, /* a message of the old kind: only for cut_text_make */
};

struct cut_text {
	/* of the viewer */
	bool extended;
	uint32_t actions;         /* CUT_x that it understands */
	uint32_t unsolicited_max; /* bytes it takes without having asked */
	/* what was copied in the guest */
	size_t n;
	bool announced; /* by an extended message */
	char text[CUT_TEXT_MAX];
};

/* What was copied in the guest; more than CUT_TEXT_MAX bytes count as none. What is to be sent now (cut_text_make). */
enum cut_action cut_text_set(struct cut_text *c, const char *text, size_t n);

/* A message of the viewer's with an extended payload. n of a text in out (without CR and zero bytes), 0 for none, or -EPROTO.
 * *ret_answer: what is to be sent now. */
ssize_t cut_text_receive(struct cut_text *c, const uint8_t *payload, size_t n, char out[CUT_TEXT_MAX], enum cut_action *ret_answer);
/* The same of an old one. */
size_t cut_text_receive_old(const uint8_t *payload, size_t n, char out[CUT_TEXT_MAX]);

/* The bytes of a whole message, or -ENOMEM. */
ssize_t cut_text_make(const struct cut_text *c, enum cut_action action, uint8_t out[CUT_MESSAGE_MAX]);
