/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clipboard of a VM's desktop for viewers: a process that watches it and sets it (clipboard.h), since both can take long.
 * Messages of its SOCK_SEQPACKET socket are texts, both ways, of at most VNC_CLIPBOARD_MAX bytes; what it was told it does not tell.
 *
 * It ends when the socket is closed, when the VM ends, or when its image has no desktop: then texts go between viewers only.
 */
#pragma once
#include "host/clipboard.h"
#include "lib/err.h"

/* The socket, to be closed, or -errno. id: the VM's. */
int vnc_clipboard_start(const char *id, struct err *err);
/* What that process does, until one of these ends: -errno. vm: NULL for a guest that does not end. */
int vnc_clipboard_run(int sock, const struct clipboard_guest *guest, struct vm_handle *vm);
