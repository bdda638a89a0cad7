/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that serves one viewer that was let in: libvncserver, with one client, between it and the display.
 *
 * How it works: damage is copied into a picture of this process' own, translated on the way, and marked; libvncserver encodes from
 * there. Encoders look at a pixel more than once and would be at a guest's mercy if it changed under them. The display is asked for more
 * (READY) when what was marked has been sent, so a slow viewer gets newer pictures instead of older ones. The process
 * sleeps in poll, without a timeout but while the viewer has not greeted or is to hear where the pointer is.
 *
 * The handshake was done by the front (front.h): libvncserver sees one that this process plays on a socket pair of its own,
 * whose place is then taken by the stream to the front, or by the connection itself.
 *
 * Trust: the viewer is known, and still hostile: what it sends is parsed by libvncserver in a jail that has its connection, a
 * picture to read, and input to give. The guest's pictures, cursors and texts are bounded before they come here.
 * Limits: cut text of VNC_CLIPBOARD_MAX bytes; one scanout, the first.
 */
#pragma once
#include "host/vnc/control.h"
#include "lib/err.h"

struct viewer_fds {
	int connection, control, stream;
};

/* In the jail. Until the viewer or the VM goes: 0, or -errno with a text. */
int viewer_run(const struct vnc_start *start, const struct viewer_fds *fds, struct err *err);
