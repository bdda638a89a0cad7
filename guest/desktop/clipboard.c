/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /usr/lib/coffer/clipboard of a desktop image: the text of the X session's CLIPBOARD, for the host (host/clipboard.h).
 *
 *   clipboard get     the text to stdout; nothing when there is none
 *   clipboard set     the text from stdin. Returns when other programs can paste it; a process stays that hands it out until
 *                     somebody else copies something. It is the PRIMARY selection too, as long as nobody selects something else:
 *                     that is what the middle button pastes, and shift+Insert in xterm
 *   clipboard watch   le32 length and text, now and at every change, until stdout is closed
 *
 * How it works: X keeps no text. Who copies owns the selection and is asked for it (ICCCM 2). An owner's text comes in one
 * property, or in pieces when it says INCR; the pieces are taken as they come. XFIXES tells of changes.
 *
 * Trust: owners are any programs of the session. A text is at most TEXT_MAX bytes, what is longer counts as none; one that does not
 * answer in OWNER_MS has no text. The host checks everything again.
 */
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xcb/xcb.h>
#include <xcb/xfixes.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { TEXT_MAX = 1 << 20, OWNER_MS = 5000, PIECE_WORDS = 64 << 10 };

struct clipboard {
	xcb_connection_t *x;
	xcb_window_t window;
	xcb_atom_t clipboard, utf8, targets, incr, property, plain;
	uint8_t fixes_event; /* of XFixesSelectionNotify */
	bool changed;        /* it came while something else was waited for */
	char text[TEXT_MAX];
	size_t len;
};

static int die(const char *what)
{
	fprintf(stderr, "clipboard: %s\n", what);
	return 1;
}

static xcb_atom_t intern(struct clipboard *c, const char *name)
{
	xcb_intern_atom_reply_t *r = xcb_intern_atom_reply(c->x, xcb_intern_atom(c->x, 0, (uint16_t)strlen(name), name), NULL);
	xcb_atom_t atom = r ? r->atom : XCB_ATOM_NONE;

	free(r);
	return atom;
}

/* A window of ours that nobody sees: it owns, asks, and gets the answers. */
static int open_display(struct clipboard *c)
{
	static const uint32_t events[] = { XCB_EVENT_MASK_PROPERTY_CHANGE };
	const char *name = getenv("DISPLAY");

	c->x = xcb_connect(name && *name ? name : ":0", NULL);
	if (xcb_connection_has_error(c->x))
		return die("no X session runs here (it may still be starting: see /var/log/coffer-session.log)");
	xcb_screen_t *s = xcb_setup_roots_iterator(xcb_get_setup(c->x)).data;

	c->window = xcb_generate_id(c->x);
	xcb_create_window(c->x, 0, c->window, s->root, -1, -1, 1, 1, 0, XCB_WINDOW_CLASS_INPUT_ONLY, s->root_visual,
			  XCB_CW_EVENT_MASK, events);
	c->clipboard = intern(c, "CLIPBOARD");
	c->utf8 = intern(c, "UTF8_STRING");
	c->targets = intern(c, "TARGETS");
	c->incr = intern(c, "INCR");
	c->plain = intern(c, "text/plain;charset=utf-8");
	c->property = intern(c, "COFFER_CLIPBOARD");
	return xcb_connection_has_error(c->x) ? die("the X session has ended") : 0;
}

/* The next event before `deadline`, to be freed; NULL: none. */
static xcb_generic_event_t *next_event(struct clipboard *c, uint64_t deadline)
{
	for (;;) {
		xcb_generic_event_t *e = xcb_poll_for_event(c->x);
		struct pollfd p = { .fd = xcb_get_file_descriptor(c->x), .events = POLLIN };
		uint64_t now = loop_now_ns() / 1000000;

		if (e && c->fixes_event && (e->response_type & 0x7f) == c->fixes_event) {
			c->changed = true;
			free(e);
			continue;
		}
		if (e || xcb_connection_has_error(c->x) || now >= deadline)
			return e;
		poll(&p, 1, (int)(deadline - now));
	}
}

/* ---- reading ---- */

/* Append what is in our property and remove it. Its type, or XCB_ATOM_NONE when there is none; *ret_fits: room for all of it. */
static xcb_atom_t take_property(struct clipboard *c, bool *ret_fits, size_t *ret_n)
{
	xcb_atom_t type = XCB_ATOM_NONE;
	uint32_t at = 0, left;

	*ret_fits = true;
	*ret_n = 0;
	do {
		xcb_get_property_reply_t *r = xcb_get_property_reply(
			c->x, xcb_get_property(c->x, 1, c->window, c->property, XCB_GET_PROPERTY_TYPE_ANY, at, PIECE_WORDS), NULL);

		if (!r)
			return XCB_ATOM_NONE;
		size_t n = (size_t)xcb_get_property_value_length(r);

		type = r->type;
		left = r->bytes_after;
		if (type == c->utf8 && r->format == 8 && n <= TEXT_MAX - c->len) {
			memcpy(c->text + c->len, xcb_get_property_value(r), n);
			c->len += n;
		} else if (type == c->utf8) {
			*ret_fits = false;
		}
		*ret_n += n;
		at += (uint32_t)(n / 4);
		free(r);
	} while (left);
	return type;
}

/* The owner sends one piece whenever we have removed the one before, and an empty one at the end. */
static bool take_pieces(struct clipboard *c)
{
	bool all = true, fits;
	size_t n;

	for (;;) {
		xcb_generic_event_t *e = next_event(c, loop_now_ns() / 1000000 + OWNER_MS);
		const xcb_property_notify_event_t *p = (const void *)e;
		bool piece = e && (e->response_type & 0x7f) == XCB_PROPERTY_NOTIFY && p->atom == c->property &&
			     p->state == XCB_PROPERTY_NEW_VALUE;

		free(e);
		if (!e)
			return false;
		if (!piece)
			continue;
		if (take_property(c, &fits, &n) != c->utf8)
			return false;
		all = all && fits;
		if (n == 0)
			return all;
	}
}

/* Ask the owner. text and len are what it said; no text: len 0. false: the session has ended. */
static bool fetch(struct clipboard *c)
{
	uint64_t deadline = loop_now_ns() / 1000000 + OWNER_MS;
	xcb_generic_event_t *e;
	xcb_atom_t type = XCB_ATOM_NONE;
	bool whole = false;
	size_t n;

	c->len = 0;
	xcb_delete_property(c->x, c->window, c->property);
	xcb_convert_selection(c->x, c->window, c->clipboard, c->utf8, c->property, XCB_CURRENT_TIME);
	xcb_flush(c->x);
	while ((e = next_event(c, deadline))) {
		const xcb_selection_notify_event_t *s = (const void *)e;
		bool answer = (e->response_type & 0x7f) == XCB_SELECTION_NOTIFY && s->selection == c->clipboard;
		bool text = answer && s->property == c->property;

		free(e);
		if (text)
			type = take_property(c, &whole, &n);
		if (answer)
			break;
	}
	if (type == c->incr) {
		c->len = 0;
		whole = take_pieces(c);
	}
	if (!whole || (type != c->utf8 && type != c->incr))
		c->len = 0;
	return !xcb_connection_has_error(c->x);
}

static int get(struct clipboard *c)
{
	if (!fetch(c))
		return die("the X session has ended");
	return fd_write_full(STDOUT_FILENO, c->text, c->len) < 0;
}

/* ---- watching ---- */

static int tell(struct clipboard *c)
{
	uint8_t head[4];

	if (!fetch(c))
		return die("the X session has ended");
	le32_store(head, (uint32_t)c->len);
	return fd_write_full(STDOUT_FILENO, head, sizeof(head)) < 0 || fd_write_full(STDOUT_FILENO, c->text, c->len) < 0;
}

static int start_watch(struct clipboard *c)
{
	const xcb_query_extension_reply_t *ext = xcb_get_extension_data(c->x, &xcb_xfixes_id);

	if (!ext || !ext->present)
		return die("the X server has no XFIXES");
	free(xcb_xfixes_query_version_reply(c->x, xcb_xfixes_query_version(c->x, 5, 0), NULL));
	c->fixes_event = ext->first_event + XCB_XFIXES_SELECTION_NOTIFY;
	xcb_xfixes_select_selection_input(c->x, c->window, c->clipboard,
					  XCB_XFIXES_SELECTION_EVENT_MASK_SET_SELECTION_OWNER |
						  XCB_XFIXES_SELECTION_EVENT_MASK_SELECTION_WINDOW_DESTROY |
						  XCB_XFIXES_SELECTION_EVENT_MASK_SELECTION_CLIENT_CLOSE);
	return 0;
}

static int watch(struct clipboard *c)
{
	int r = start_watch(c);

	c->changed = true;
	while (r == 0) {
		struct pollfd p[] = { { .fd = xcb_get_file_descriptor(c->x), .events = POLLIN }, { .fd = STDOUT_FILENO } };

		if (c->changed) {
			c->changed = false;
			r = tell(c);
			continue;
		}
		free(next_event(c, 0));
		if (xcb_connection_has_error(c->x))
			return die("the X session has ended");
		if (!c->changed && poll(p, ARRAY_SIZE(p), -1) > 0 && p[1].revents)
			return 0;
	}
	return r;
}

/* ---- owning ---- */

static void answer(struct clipboard *c, const xcb_selection_request_event_t *q)
{
	const xcb_atom_t known[] = { c->targets, c->utf8, c->plain };
	xcb_atom_t property = q->property != XCB_ATOM_NONE ? q->property : q->target;
	xcb_selection_notify_event_t reply = { .response_type = XCB_SELECTION_NOTIFY, .time = q->time, .requestor = q->requestor,
					       .selection = q->selection, .target = q->target, .property = property };
	char event[32] = { 0 };

	if (q->target == c->targets)
		xcb_change_property(c->x, XCB_PROP_MODE_REPLACE, q->requestor, property, XCB_ATOM_ATOM, 32, ARRAY_SIZE(known), known);
	else if (q->target == c->utf8 || q->target == c->plain)
		xcb_change_property(c->x, XCB_PROP_MODE_REPLACE, q->requestor, property, q->target, 8, (uint32_t)c->len, c->text);
	else
		reply.property = XCB_ATOM_NONE;
	memcpy(event, &reply, sizeof(reply));
	xcb_send_event(c->x, 0, q->requestor, 0, event);
	xcb_flush(c->x);
}

static void hand_out(struct clipboard *c)
{
	xcb_generic_event_t *e;
	bool ours = true;

	while (ours && (e = xcb_wait_for_event(c->x))) {
		switch (e->response_type & 0x7f) {
		case XCB_SELECTION_REQUEST: answer(c, (const void *)e); break;
		case XCB_SELECTION_CLEAR: ours = ((const xcb_selection_clear_event_t *)e)->selection != c->clipboard; break;
		default: break;
		}
		free(e);
	}
}

/* The process that owns is the child's: who called us waits for the parent only. */
static int set(struct clipboard *c)
{
	ssize_t n = fd_read_full(STDIN_FILENO, c->text, TEXT_MAX);
	char more;

	if (n < 0 || (n == TEXT_MAX && read(STDIN_FILENO, &more, 1) == 1))
		return die(n < 0 ? "stdin cannot be read" : "the text is longer than 1 MiB");
	c->len = (size_t)n;
	xcb_set_selection_owner(c->x, c->window, XCB_ATOM_PRIMARY, XCB_CURRENT_TIME);
	xcb_set_selection_owner(c->x, c->window, c->clipboard, XCB_CURRENT_TIME);
	xcb_get_selection_owner_reply_t *r = xcb_get_selection_owner_reply(c->x, xcb_get_selection_owner(c->x, c->clipboard), NULL);
	bool ours = r && r->owner == c->window;

	free(r);
	if (!ours)
		return die("another program has taken the clipboard at this moment");
	pid_t pid = fork();

	if (pid < 0)
		return die("no process can be made");
	if (pid > 0)
		return 0;
	setsid();
	for (int fd = 0; fd < 3; fd++)
		close(fd);
	if (chdir("/") == 0)
		hand_out(c);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(struct clipboard *c);
	} verbs[] = { { "get", get }, { "set", set }, { "watch", watch } };
	struct clipboard *c = calloc(1, sizeof(*c));

	for (size_t i = 0; c && argc == 2 && i < ARRAY_SIZE(verbs); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return open_display(c) ? 1 : verbs[i].run(c);
	return die(c ? "usage: clipboard get|set|watch" : "out of memory");
}
