/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clipboard of a VM's desktop: the text that its programs copy and paste.
 *
 * /usr/lib/coffer/clipboard of the image does the work in the guest (guest/desktop/clipboard.c); here are the connections to it
 * through the agent. Each call has one of its own, so it works next to whatever else goes on in the VM.
 *
 * A text is UTF-8, without zero bytes, of at most CLIPBOARD_MAX bytes; what is something else, or more, counts as no text. Line ends
 * are the guest's.
 *
 * Trust: the guest is hostile. What comes is bounded and checked before anybody sees it; control characters in it are the
 * caller's matter.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "host/vm_open.h"
#include "lib/err.h"

enum {
	CLIPBOARD_MAX = 1 << 20,
	CLIPBOARD_MS = 60000, /* for get and set, before they fail with -ETIMEDOUT */
};

#define CLIPBOARD_PROGRAM "/usr/lib/coffer/clipboard"

struct clipboard_guest {
	/* A fresh connection to the agent; whether a signal ends what waits there is its matter. */
	int (*connect)(void *arg, struct agent_conn **ret, struct err *err);
	void *arg;
	const char *program; /* in the guest; NULL: CLIPBOARD_PROGRAM */
};

/* The usual `connect`: arg is a struct vm_handle; signals are not looked for. */
int clipboard_connect_vm(void *arg, struct agent_conn **ret, struct err *err);

/* What is there now: its length, 0 for none; *ret_text is to be freed and has a zero behind it. -ENOENT: the image has no desktop;
 * -EIO: the session does not run (yet); or another -errno. */
long clipboard_get(const struct clipboard_guest *g, char **ret_text, struct err *err);

/* From now on this is what programs in the guest paste. 0, -EINVAL for what is no text, -E2BIG, or as above. */
int clipboard_set(const struct clipboard_guest *g, const char *text, size_t n, struct err *err);

/*
 * Every text from now on, beginning with the one that is there, also those of clipboard_set (whoever sets what it was told
 * makes no circle if it compares). Only the newest counts: when texts come faster than they are taken, the guest's program waits and skips.
 *
 *   clipboard_watch_start(g, &w, err);
 *   do
 *       while ((r = clipboard_watch_next(w, &text, &n, err)) > 0) ...
 *   while (r == 0 && poll(clipboard_watch_fd(w), POLLIN))
 *
 * The first text can be there before anybody polls, with the answer to the start.
 */
struct clipboard_watch;
int clipboard_watch_start(const struct clipboard_guest *g, struct clipboard_watch **ret, struct err *err);
int clipboard_watch_fd(const struct clipboard_watch *w);
/* 1: a text (n is 0 for none), valid until the next call; 0: nothing more for now; -errno: the watch is over (a session that ends
 * takes it along; start another after a while). Never waits. */
int clipboard_watch_next(struct clipboard_watch *w, const char **ret_text, size_t *ret_n, struct err *err);
void clipboard_watch_close(struct clipboard_watch *w); /* NULL too */

/* UTF-8 (RFC 3629) without zero bytes? */
bool clipboard_is_text(const char *text, size_t n);
