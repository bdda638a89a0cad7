/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-agent: what its parts share.
 *
 * The supervisor (PID 1 in a VM, or a service) accepts connections and forks one process for each: the handler. The
 * handler reads the request, does the operation and exits; whatever goes wrong in it ends with it. The supervisor has no parser and
 * allocates nothing after its start. What the handlers must tell it, and it them, goes over one socket pair each
 * (supervisor.h); what everybody may look at lies in one shared mapping, struct agent_shared.
 *
 * Files: main (options) -> boot, root, modules (PID 1 only) -> supervisor, transport, power -> handler -> command, files,
 * control (the operations).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "guest/agent/channel.h"
#include "guest/agent/clock.h"
#include "guest/proto.h"

enum {
	AGENT_COMMAND_TEXT = 256, /* of a command line, kept for ps */
	AGENT_DETACHED_MAX = 64,
	AGENT_TEXT_MAX = 16,
};

enum agent_mode {
	AGENT_INIT,    /* PID 1: the machine is ours */
	AGENT_SERVICE, /* the guest has its own init */
	AGENT_UNIX,    /* Unix socket; the machine belongs to somebody else */
};

/* One command, written by its handler, read by ps in another process: numbers are atomic, the text is written before `id`. */
struct agent_command {
	_Atomic uint64_t id; /* 0: no command */
	_Atomic int32_t pid; /* also its process group; 0 when it has ended */
	_Atomic uint32_t uid;
	_Atomic uint64_t started_ms, ended_ms;
	_Atomic int64_t resume; /* what its client calls it; 0: it does not outlive a reset of its connection */
	_Atomic bool tty, detached, attached, ended;
	_Atomic uint32_t kind, value; /* when ended */
	char text[AGENT_COMMAND_TEXT];
};

struct agent_slot {
	struct agent_command command;
	struct channel_progress progress;
	_Atomic bool used, has_cgroup;
	_Atomic bool froze; /* the root's file system, and has not thawed it yet */
	char machine_id[AGENT_MACHINE_ID + 1]; /* what this connection has taken out of /etc/machine-id; "": nothing */
};

struct agent_shared {
	_Atomic uint64_t next_id;
	_Atomic uint32_t freezer; /* 1 + the number of the slot that freezes the root, until all that is undone; 0: none */
	struct clock_lock clock;
	struct agent_slot slot[AGENT_CONNECTIONS_MAX];
};

/* How the desktop's session is, written by the process that keeps it, read by the operation `session`. */
struct agent_session {
	_Atomic uint32_t state; /* enum agent_session_state */
	_Atomic uint32_t ended; /* how often one has ended */
};

enum agent_session_state { AGENT_SESSION_STARTING, AGENT_SESSION_READY, AGENT_SESSION_ENDED };

/* What `configure` sets for later commands. The supervisor owns it; handlers inherit a copy by fork. */
struct agent_env {
	uint32_t count, bytes;
	char text[AGENT_DEFAULT_ENV_BYTES]; /* NUL-terminated entries */
};

struct agent {
	enum agent_mode mode;
	const char *listen_path, *ready_path, *cgroup_path, *session_path; /* NULL unless given */
	int console; /* where words for a person go, or -1 */
	char root[AGENT_TEXT_MAX], overlay[AGENT_TEXT_MAX]; /* for the ready line and ping */
	char root_error[256];
	int writable_fd; /* a directory of the root's writable file system, to freeze it; -1: none */
	int cgroup_fd;   /* the directory that holds the commands' cgroups, or -1 */
	struct agent_env env;
	struct agent_shared *shared;
	struct agent_session *session; /* shared; NULL: the image has none, or there is no display */
};

uint64_t agent_now_ms(void); /* CLOCK_MONOTONIC */
void agent_say(const struct agent *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
