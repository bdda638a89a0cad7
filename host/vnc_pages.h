/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of noVNC as one file in memory, for processes that cannot open any (host/vnc/web.h).
 * At most WEB_FILES_MAX regular files of a directory tree, VNC_PAGES_MAX bytes; what has another kind or a longer name is left out.
 */
#pragma once
#include "lib/err.h"

#define VNC_PAGES_DIR "/usr/share/novnc"
enum { VNC_PAGES_MAX = 32 << 20 };

/* A descriptor to be closed, or -errno with a text. */
int vnc_pages_make(const char *dir, struct err *err);
