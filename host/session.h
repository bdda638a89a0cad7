/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of one guest command, between the agent's connection and our own descriptors.
 *
 * One poll loop moves stdin, stdout, stderr, signals and window sizes. Nothing is buffered beyond one frame per
 * direction: a reader of our stdout that is slow makes the guest command wait, stdin is read only as far as the agent
 * gave credit. Our own descriptors stay as they are (a pipe is reopened to write without blocking, see stream.h).
 *
 * A stream whose reader went away (`coffer run -- yes | head -1`) is closed in the guest as well: the command gets
 * SIGPIPE or EPIPE as it would in a pipeline.
 *
 * With `resume` a connection that breaks because the VM was stopped by a snapshot is made again when the VM is
 * restored, and nobody notices; while that is waited for, a signal that asks for an end ends the session.
 *
 * Signals: INT, TERM, HUP, QUIT, USR1, USR2 go to the guest command. The third of those that ask for an end is not
 * passed on: the session is over (SESSION_FORCED). So it is SESSION_HANGUP_MS after a HUP, when nobody is left to ask
 * again.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/agent_client.h"
#include "host/resume.h"
#include "host/stream.h"
#include "host/term.h"
#include "lib/err.h"

enum { SESSION_HANGUP_MS = 5000, SESSION_FORCE_COUNT = 3 };

struct session {
	struct agent_conn *conn; /* the answer to exec has been taken: frames follow */
	int in_fd;               /* -1: none */
	struct stream *out, *err;
	int signal_fd;           /* signals.h; -1: none */
	const struct term *term; /* set when the user's terminal is the command's */
	uint64_t window;         /* bytes of stdin the agent takes now */
	struct resume *resume;   /* when the command outlives the connection; NULL: it does not */
	uint64_t deadline_ms;    /* CLOCK_MONOTONIC, 0: none. Beyond it the agent is not trusted to end the command */
};

enum session_end {
	SESSION_ENDED,   /* kind and value are the agent's */
	SESSION_LOST,    /* the connection ended; err says how */
	SESSION_FORCED,  /* the user insisted: `signal` */
	SESSION_OVERDUE, /* the deadline passed */
};

struct session_result {
	enum session_end end;
	uint32_t kind, value; /* enum agent_exit_kind */
	int signal;
};

/* Run until one of session_end. Returns 0, or -errno when the agent broke the protocol or reported an error, and
 * -ESTALE when the command cannot be resumed. */
int session_run(struct session *s, struct session_result *ret, struct err *err);
