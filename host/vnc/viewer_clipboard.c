/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts between a viewer and `coffer vnc`. The messages are cut_text.h's: libvncserver's own take no `notify`, which noVNC and TigerVNC
 * send, and no zlib stream that has an end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "host/vnc/viewer_internal.h"
#include "lib/util.h"

enum { SKIPPED_MAX = 64 << 20 /* bytes of a text that is too long; one who names more is not sane */ };

static void say(struct viewer *v, enum cut_action action)
{
	ssize_t n = action == CUT_NOTHING ? 0 : cut_text_make(&v->cut, action, v->cut_message);

	if (n > 0 && rfbWriteExact(v->client, (const char *)v->cut_message, (int)n) < 0)
		rfbCloseClient(v->client);
}

void viewer_clipboard_tell(struct viewer *v, const char *text, size_t n)
{
	say(v, cut_text_set(&v->cut, text, n));
}

void viewer_clipboard_offer(struct viewer *v)
{
	if (v->client->enableExtendedClipboard)
		say(v, CUT_CAPS);
}

/* For the guest and the other viewers. */
static void pass_on(struct viewer *v, size_t n)
{
	v->message.h = (struct vnc_header){ VNC_CLIPBOARD, (uint32_t)n };
	send(v->control, &v->message, sizeof(v->message.h) + n, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Reads n bytes, of which the last ones stay in cut_message. */
static bool read_payload(struct viewer *v, size_t n)
{
	while (n > 0) {
		size_t part = MIN(n, sizeof(v->cut_message));

		if (rfbReadExact(v->client, (char *)v->cut_message, (int)part) <= 0)
			return false;
		n -= part;
	}
	return true;
}

void viewer_clipboard_read(struct viewer *v)
{
	enum cut_action answer = CUT_NOTHING;
	rfbClientCutTextMsg m;
	bool extended;
	uint32_t size;
	ssize_t n = 0;

	if (rfbReadExact(v->client, (char *)&m, sz_rfbClientCutTextMsg) <= 0) {
		rfbCloseClient(v->client);
		return;
	}
	size = ntohl(m.length);
	extended = v->client->enableExtendedClipboard && size & 0x80000000;
	if (extended)
		size = 0 - size;
	if (size > SKIPPED_MAX || !read_payload(v, size)) {
		rfbCloseClient(v->client);
		return;
	}
	if (size > CUT_PAYLOAD_MAX)
		return;
	if (extended)
		n = cut_text_receive(&v->cut, v->cut_message, size, v->message.text, &answer);
	else
		n = (ssize_t)cut_text_receive_old(v->cut_message, size, v->message.text);
	if (n < 0) {
		rfbCloseClient(v->client);
		return;
	}
	if (v->view_only && answer == CUT_REQUEST)
		return;
	say(v, answer);
	if (n > 0 && !v->view_only)
		pass_on(v, (size_t)n);
}
