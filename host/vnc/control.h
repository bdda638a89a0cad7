/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between `coffer vnc` and the coffer-vnc processes it starts, one for each connection: messages over the SOCK_SEQPACKET
 * socket that is the process' stdin. Both are of one build, so numbers are the machine's own.
 *
 *   to coffer-vnc     START with the descriptors that its flags name, then, when it has let the viewer in, DISPLAY with a
 *                     connection to display.sock; CLIPBOARD: what the guest's programs paste
 *   from coffer-vnc   STATE; CLIPBOARD: what the viewer copied
 *
 * Either end that closes ends the other. A message is its header and n bytes.
 * Trust: a coffer-vnc may have been taken over by its viewer: `coffer vnc` checks what it says, and tells it nothing else.
 */
#pragma once
#include <stdint.h>

enum vnc_op { VNC_START = 1, VNC_DISPLAY, VNC_CLIPBOARD, VNC_STATE };

enum {
	VNC_PASSWORD_MAX = 8,           /* all that the protocol's DES challenge takes */
	VNC_CLIPBOARD_MAX = 128 * 1024, /* bytes of UTF-8; more is not passed on */
	VNC_VIEWERS_MAX = 8,
	VNC_CONNECTIONS_MAX = 32,       /* those that have not been let in included */
	VNC_NAME_MAX = 64,
	VNC_PEM_MAX = 256 * 1024,       /* bytes of a file of certificates, or of a key */
};

enum vnc_flag {
	VNC_VIEW_ONLY = 1 << 0,     /* all viewers */
	VNC_PASSWORD = 1 << 1,
	VNC_VIEW_PASSWORD = 1 << 2, /* who knows this one may look on */
	VNC_TLS = 1 << 3,
	VNC_WEB = 1 << 4,
	VNC_POSITIONS = 1 << 5, /* keys by their places (keys.h) */
	VNC_REFUSED = 1 << 6,   /* there were too many wrong passwords where this one comes from */
};

/* Which of the two files is wrong: the exit status of coffer-vnc --check. */
enum vnc_cert_fault { VNC_CERT_FINE = 0, VNC_CERT_BAD_CERTIFICATE = 3, VNC_CERT_BAD_KEY, VNC_CERT_NO_PAIR };

struct vnc_header {
	uint32_t op, n;
};

/* Descriptors, in this order: the connection; VNC_TLS: files of the certificate and of the key; VNC_WEB: the pages (web.h). */
struct vnc_start {
	struct vnc_header h;
	uint32_t flags; /* enum vnc_flag */
	char password[VNC_PASSWORD_MAX], view_password[VNC_PASSWORD_MAX]; /* filled up with zeros */
	char name[VNC_NAME_MAX + 1]; /* of the VM: shown by viewers */
};

enum vnc_state {
	VNC_LET_IN = 1,
	VNC_WRONG_PASSWORD,
};

struct vnc_state_message {
	struct vnc_header h;
	uint32_t state;
};
