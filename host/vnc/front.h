/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that meets a connection: it finds out what is spoken, lets the viewer in or not, and then carries bytes.
 *
 * It has the connection, the passwords and TLS' key, and nothing of the VM, nor a word with `coffer vnc`: who is not let in talks to
 * nothing else. The other
 * process (viewer.h) hears of the viewer by the first bytes of the stream between them, struct front_hello. What is plain
 * TCP needs nobody between from then on: `direct` says that the other process is to use the connection itself.
 *
 * Versions 3.3, 3.7 and 3.8 of RFB (RFC 6143); security None, VNC Authentication, and VeNCrypt 0.2 with X509None and X509Vnc.
 * A viewer has FRONT_HANDSHAKE_MS, in which its user may have to type a password.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/vnc/control.h"
#include "lib/err.h"

enum { FRONT_HANDSHAKE_MS = 120000 };

struct front_hello {
	uint8_t view_only, direct;
	uint8_t wrong; /* the password was; the viewer is not let in, and no byte follows */
};

struct front_fds {
	int connection, stream;      /* stream: to the other process */
	int certificate, key, pages; /* -1: none */
};

/* 0, or -errno when it could not begin; what a viewer does is no failure. Its end ends the other process. */
int front_run(const struct vnc_start *start, const struct front_fds *fds, struct err *err);

/* The answer to a challenge, as VNC computes it: for tests. */
void front_des_response(const char password[VNC_PASSWORD_MAX], const uint8_t challenge[16], uint8_t out[16]);
