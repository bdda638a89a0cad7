/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /usr/lib/coffer/ready of a desktop image: waits until the X session shows a desktop, for the session, which tells the agent.
 *
 *   ready           a window is shown
 *   ready WINDOWS   and a window manager runs, which has at least so many windows of programs
 *
 * How it works: window managers leave their mark in properties of the root window (EWMH: _NET_SUPPORTING_WM_CHECK names a window
 * that has the same property, _NET_CLIENT_LIST the windows of programs). Changes of them, and windows that are shown, are events, so
 * nothing is polled. Small windows are helpers that nobody sees. It ends with status 1 when the X server does.
 *
 * Trust: the session's programs; what they say is bounded, and no more than true or false.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xcb/xcb.h>

enum { SHOWN_SIDE_MIN = 8, CLIENTS_MAX = 1024 };

struct watch {
	xcb_connection_t *x;
	xcb_window_t root;
	xcb_atom_t check, clients;
};

static xcb_atom_t intern(xcb_connection_t *x, const char *name)
{
	xcb_intern_atom_reply_t *r = xcb_intern_atom_reply(x, xcb_intern_atom(x, 0, (uint16_t)strlen(name), name), NULL);
	xcb_atom_t atom = r ? r->atom : XCB_ATOM_NONE;

	free(r);
	return atom;
}

/* How many windows a property names, and the first of them. */
static unsigned windows_of(const struct watch *w, xcb_window_t window, xcb_atom_t property, xcb_window_t *ret_first)
{
	xcb_get_property_reply_t *r =
		xcb_get_property_reply(w->x, xcb_get_property(w->x, 0, window, property, XCB_ATOM_WINDOW, 0, CLIENTS_MAX), NULL);
	unsigned n = r && r->format == 32 ? (unsigned)xcb_get_property_value_length(r) / 4 : 0;

	*ret_first = XCB_WINDOW_NONE;
	if (n)
		memcpy(ret_first, xcb_get_property_value(r), sizeof(*ret_first));
	free(r);
	return n;
}

static bool is_managed(const struct watch *w, unsigned clients)
{
	static const uint32_t events[] = { XCB_EVENT_MASK_PROPERTY_CHANGE };
	xcb_window_t mark, same;

	if (windows_of(w, w->root, w->check, &mark) != 1)
		return false;
	xcb_change_window_attributes(w->x, mark, XCB_CW_EVENT_MASK, events); /* it may get its property after the root */
	return windows_of(w, mark, w->check, &same) == 1 && same == mark && windows_of(w, w->root, w->clients, &same) >= clients;
}

static bool is_shown(const struct watch *w, xcb_window_t window)
{
	xcb_get_window_attributes_cookie_t ask = xcb_get_window_attributes(w->x, window);
	xcb_get_geometry_cookie_t ask_size = xcb_get_geometry(w->x, window);
	xcb_get_window_attributes_reply_t *a = xcb_get_window_attributes_reply(w->x, ask, NULL);
	xcb_get_geometry_reply_t *g = xcb_get_geometry_reply(w->x, ask_size, NULL);
	bool shown = a && g && a->map_state == XCB_MAP_STATE_VIEWABLE && a->_class == XCB_WINDOW_CLASS_INPUT_OUTPUT &&
		     g->width >= SHOWN_SIDE_MIN && g->height >= SHOWN_SIDE_MIN;

	free(a);
	free(g);
	return shown;
}

static bool something_is_shown(const struct watch *w)
{
	xcb_query_tree_reply_t *r = xcb_query_tree_reply(w->x, xcb_query_tree(w->x, w->root), NULL);
	bool shown = false;

	for (int i = 0; r && i < xcb_query_tree_children_length(r) && !shown; i++)
		shown = is_shown(w, xcb_query_tree_children(r)[i]);
	free(r);
	return shown;
}

int main(int argc, char **argv)
{
	static const uint32_t events[] = { XCB_EVENT_MASK_PROPERTY_CHANGE | XCB_EVENT_MASK_SUBSTRUCTURE_NOTIFY };
	const char *name = getenv("DISPLAY");
	struct watch w = { .x = xcb_connect(name && *name ? name : ":0", NULL) };
	char *end = NULL;
	unsigned long clients = argc == 2 ? strtoul(argv[1], &end, 10) : 0;

	if (argc > 2 || (end && (end == argv[1] || *end || clients > CLIENTS_MAX))) {
		fputs("usage: ready [WINDOWS]\n", stderr);
		return 2;
	}
	if (xcb_connection_has_error(w.x)) {
		fputs("ready: no X session runs here\n", stderr);
		return 1;
	}
	w.root = xcb_setup_roots_iterator(xcb_get_setup(w.x)).data->root;
	w.check = intern(w.x, "_NET_SUPPORTING_WM_CHECK");
	w.clients = intern(w.x, "_NET_CLIENT_LIST");
	xcb_change_window_attributes(w.x, w.root, XCB_CW_EVENT_MASK, events);
	/* What changed while it was looked at is an event that waits already. */
	while (!(something_is_shown(&w) && (argc < 2 || is_managed(&w, (unsigned)clients)))) {
		xcb_generic_event_t *e = xcb_wait_for_event(w.x);

		if (!e) {
			fputs("ready: the X session has ended\n", stderr);
			return 1;
		}
		do
			free(e);
		while ((e = xcb_poll_for_event(w.x)) != NULL);
	}
	xcb_disconnect(w.x);
	return 0;
}
