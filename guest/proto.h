/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire protocol between a host program and coffer-agent (docs/agent-protocol.md is the full text).
 *
 * One vsock connection per operation, guest port AGENT_PORT. The host sends one request line: a JSON object of at most
 * AGENT_REQUEST_MAX bytes ended by '\n', e.g.
 *   {"op":"exec","argv":["sh","-c","exit 7"],"env":["A=b"],"cwd":"/","user":"0:0","tty":false,"stdin":true,"timeout_ms":0}
 *   {"op":"ping"} {"op":"put","path":"/x"} {"op":"get","path":"/x"} {"op":"sync"} {"op":"poweroff"} {"op":"configure",...}
 * The agent answers with one line {"ok":true,...} or {"error":"text","errno":2,"code":"not-found"}; then both sides send
 * frames until the operation's final frame. A frame is this header and at most AGENT_FRAME_MAX payload bytes.
 *
 * When it is ready the agent connects to the host's port AGENT_READY_PORT and sends one line {"ready":true,"version":1,...}
 * so that the host need not poll.
 *
 * Back-pressure is the connection's own (vsock credit), except for STDIN: its sender keeps to a window that CREDIT frames
 * refill, so that signals get through while the command reads nothing. The host keeps its sending side open until the
 * final frame: end of file from it means that it is gone.
 *
 * A connection does not survive the restore of its VM. A command started with "resume" does: the agent keeps what ACK
 * frames have not confirmed, the host keeps what CREDIT frames have not, and attach with "resume" goes on from there.
 */
#pragma once
#include "lib/le.h"

enum {
	AGENT_PROTO_VERSION = 1,
	AGENT_PORT = 1024,
	AGENT_READY_PORT = 1025,
	AGENT_REQUEST_MAX = 256 * 1024,
	AGENT_REPLY_MAX = 4096,
	AGENT_FRAME_MAX = 64 * 1024,
	AGENT_STDIN_WINDOW = 256 * 1024, /* bytes of STDIN that may be under way at first */
	AGENT_ACK_STEP = 64 * 1024,      /* bytes of frames after which the host owes an ACK, at the latest */
	AGENT_ERROR_TEXT_MAX = 1024,
	AGENT_CONNECTIONS_MAX = 256,
	AGENT_MACHINE_ID = 32, /* hexadecimal digits */
	AGENT_ARGV_MAX = 4096,
	AGENT_ENV_MAX = 1024,
	AGENT_DEFAULT_ENV_MAX = 256,        /* configure: entries */
	AGENT_DEFAULT_ENV_BYTES = 32 * 1024,
};

enum agent_frame_type {
	AGENT_STDIN = 1,   /* host to guest; length 0 = end of file */
	AGENT_STDOUT = 2,  /* guest to host; length 0 = end of file; host to guest, length 0: its reader is gone, close it */
	AGENT_STDERR = 3,  /* as STDOUT */
	AGENT_EXIT = 4,    /* guest to host, last: le32 kind (enum agent_exit_kind), le32 value; put, get, ps: 0, 0; host
	                    * to guest, length 0: the EXIT of a detach or resume command has arrived, forget it */
	AGENT_SIGNAL = 5,  /* host to guest: le32 signal number, to the process group */
	AGENT_WINSIZE = 6, /* host to guest: le16 rows, cols, xpixel, ypixel */
	AGENT_DATA = 7,    /* put: host to guest, get: guest to host; a tar stream; length 0 = end */
	AGENT_ERROR = 8,   /* guest to host, last: le32 errno, then text */
	AGENT_CREDIT = 9,  /* guest to host: le32 bytes of STDIN that may be sent beyond what was allowed before */
	AGENT_ACK = 10,    /* host to guest, only with "resume": le64 bytes of STDOUT, STDERR and EXIT frames, headers
	                    * and all, that have arrived since the command began */
};

enum agent_exit_kind {
	AGENT_EXIT_STATUS = 0,   /* value: exit status */
	AGENT_EXIT_SIGNAL = 1,   /* value: signal number */
	AGENT_EXIT_TIMEOUT = 2,  /* killed by timeout_ms; value: the last signal sent */
	AGENT_EXIT_NOEXEC = 3,   /* value: errno of execve: 126 or 127 at the caller */
	AGENT_EXIT_OOM = 4,      /* killed by the guest's OOM killer (value: signal) */
};

struct agent_frame {
	le32 length; /* of the payload */
	uint8_t type;
	uint8_t zero[3];
};
_Static_assert(sizeof(struct agent_frame) == 8, "frame header is 8 bytes on the wire");
