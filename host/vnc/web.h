/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP on the port of VNC: the pages of noVNC, and the upgrade to WebSocket that they ask for.
 *
 * The pages are one file, made by `coffer vnc` (host/vnc_pages.c) before it listens: a table, then the contents. So who serves
 * them needs no file system. Requests are GET or HEAD, one line and headers of at most WEB_REQUEST_MAX bytes; names are
 * looked up in the table, nothing in them means anything.
 *
 * A page of another site that the user's browser shows must not reach the VM: an upgrade is refused when its Origin is not the
 * host that it is asked of, and, where no password is asked for, when that host is a name (which could be anybody's) other than
 * localhost.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/vnc/transport.h"

enum { WEB_REQUEST_MAX = 8192, WEB_FILES_MAX = 1024, WEB_PATH_MAX = 120, WEB_MAGIC = 0x62657763 };

struct web_file {
	char path[WEB_PATH_MAX]; /* without the first slash */
	uint32_t offset, size;   /* in the file of pages */
};

struct web_pages {
	uint32_t magic, n;
	struct web_file file[]; /* by path */
};

/* Answers requests until one asks for a WebSocket, to which it is answered too: 0; -errno: the connection is over. Pages of `size`
 * bytes. secure: a TLS front is demanded, so without it pages are not served. */
int web_serve(struct transport *t, const struct web_pages *pages, uint64_t size, bool secure, bool open, uint64_t until);

/* For tests: what an upgrade is answered. `key`: Sec-WebSocket-Key. */
void web_accept_key(const char *key, char out[32]);
/* Whether an upgrade is allowed: both are header values, origin may be NULL. open: no password is asked for. */
bool web_allowed(const char *origin, const char *host, bool open);
