/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening side of `coffer vnc`: a process of coffer-vnc for each connection, and texts between them.
 *
 * Nothing that a viewer sends is read here but what its process passes on: whether it was let in, and texts. A viewer that was let
 * in gets a connection to the display. When there are VNC_CONNECTIONS_MAX connections the oldest that was not let in goes, of the
 * address that has most of them.
 * Where wrong passwords come from others are refused for a while (vnc_guard.h).
 *
 * Threads: one. Trust: coffer-vnc processes are hostile (host/vnc/control.h).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/vnc/control.h"
#include "host/vnc_guard.h"
#include "lib/err.h"

struct vnc_connection {
	int control; /* -1: free */
	int pidfd;
	bool let_in;
	uint64_t since_ns;
	struct in6_addr from;
};

struct vnc_serve {
	struct vnc_start start;
	char program[4096]; /* coffer-vnc */
	int listener;
	int certificate, key, pages; /* -1: none */
	int clipboard;               /* -1: none */
	int display;                 /* a connection to it of our own: its end is the VM's */
	int signal_fd;
	/* Another connection to the display. */
	int (*connect)(void *opaque, struct err *err);
	void *opaque;
	struct vnc_connection connection[VNC_CONNECTIONS_MAX];
	struct vnc_guard guard;
	struct vnc_text {
		struct vnc_header h;
		char text[VNC_CLIPBOARD_MAX];
	} message, newest; /* what comes; the newest text from the guest or a viewer, n 0: none */
};

void vnc_serve_init(struct vnc_serve *s);
/* Until the VM ends (0), a signal asks for the end (its number), or -errno. */
int vnc_serve_run(struct vnc_serve *s, struct err *err);
/* Closes all of it but signal_fd. */
void vnc_serve_finish(struct vnc_serve *s);

/* Run coffer-vnc with these descriptors as 0 and up, the rest closed; arg may be NULL. Its pid or -errno. */
pid_t vnc_spawn(const char *program, const char *arg, const int *fds, int nfds, struct err *err);
