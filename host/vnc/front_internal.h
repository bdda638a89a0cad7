/* SPDX-License-Identifier: Apache-2.0 */
/* The conversation with who is not let in yet, apart from the process that has it: for front.c, and tests. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/vnc/front.h"
#include "host/vnc/transport.h"
#include "host/vnc/web.h"

struct front {
	const struct vnc_start *start;
	const struct front_fds *fds;
	struct transport t;
	gnutls_certificate_credentials_t credentials;
	const struct web_pages *pages;
	uint64_t pages_size;
	uint64_t until;
	unsigned wrong_delay_ms; /* before somebody hears that a password was wrong */
};

/* Finds out what is spoken and answers until the viewer is let in (0; *ret_view_only: its password is the one for that) or the connection
 * is over (-errno). */
int front_let_in(struct front *f, bool *ret_view_only);
