/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running command: its streams, signals, time-out, end, and the connection that may come and go (exec and attach).
 *
 * One loop over poll moves stdin from frames into a ring and on to the command, output into the ring of outq and on to
 * the host. Neither side can make the other wait for anything but its own data: STDIN has a window (proto.h), so frames
 * from the host are always taken; output has its ring, and is not read from the command while that is full.
 *
 * The end: the command's own process has ended; what it had written by then has been read (counted once, at that
 * moment); other holders of its streams get COMMAND_DRAIN_MS more. Then the ends of the streams and EXIT go out.
 *
 * A command with "resume" outlives a connection that breaks, as all do when the VM is restored, but not one that is
 * closed. Its output stays in the ring until the host has acknowledged it, and the ring being full stops it like any
 * slow reader; attach tells from where on to send it again, and how much of stdin had come. While nobody is connected
 * it counts as a detached command.
 *
 * A detached command outlives its connection. Its handler waits for others that the supervisor passes on (attach), and,
 * once the command has ended, keeps output and exit until a host has said that it has them, or the supervisor says
 * QUIT.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/agent/environment.h"
#include "guest/agent/frame.h"
#include "guest/agent/outq.h"
#include "guest/agent/ring.h"
#include "guest/agent/spawn.h"
#include "guest/agent/user.h"
#include "guest/proto.h"

enum {
	COMMAND_DRAIN_MS = 250,
	COMMAND_FLUSH_MS = 10000, /* for what is left to say to a host that broke the protocol */
};

struct command {
	struct user user;
	struct environment env;
	int cgroup; /* directory, or -1 */
	struct spawned io;
	pid_t group;     /* = the command's first process */
	int status;      /* of waitpid, when it is not running any more */
	bool running;    /* that process has not been reaped */
	bool killed;     /* by us: SIGKILL is not the OOM killer's */
	bool tty, stdin_allowed, detached, resume;

	/* stdin */
	struct ring input;
	unsigned char input_buf[AGENT_STDIN_WINDOW];
	size_t uncredited; /* bytes gone from the ring that the host does not know of */
	uint64_t input_taken; /* bytes of STDIN since the beginning */
	bool input_ended;
	char last_input;

	/* output */
	struct outq out;
	bool exit_queued, exit_taken; /* taken: the host has said that it has EXIT */
	bool out_ended, err_ended; /* the frames of length 0 are queued */
	size_t out_due, err_due;   /* bytes that were in the pipes when the command ended */
	uint64_t drain_until;

	/* time-out */
	uint64_t deadline; /* of the next step; 0: none */
	int64_t grace_ms;
	uint32_t timeout_signal; /* last one sent because of it; 0: not yet */

	/* connection */
	bool connected;
	struct frame_reader in;
	unsigned char credit[16]; /* a CREDIT frame on its way */
	size_t credit_len, credit_sent;

	int signal_fd;
};
