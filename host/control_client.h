/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a running monitor over its control socket (vmm/control.h). */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"
#include "vmm/control.h"

enum { CONTROL_REPLY_MS = 10000 };

/* One request, one reply, on a connection of its own. deadline_ms: CLOCK_MONOTONIC, 0: none. Fails with the monitor's
 * status and text, or with -ETIMEDOUT when it does not answer, -ECONNREFUSED or -ENOENT when it is gone. */
int control_call(int dirfd, enum control_op op, uint64_t arg, uint64_t deadline_ms, struct control_reply *ret,
		 struct err *err);

/* The same with all arguments and with descriptors (borrowed). While it waits it calls `tick` (may be NULL) about five
 * times a second; what that returns below 0 ends the waiting. `stage` (NULL: none is expected) is called for each stage
 * the monitor tells: after READY the monitor is told to cut when it returns 0; below 0 ends the waiting. */
struct control_message {
	enum control_op op;
	uint64_t arg[4];
	const int *fd;
	size_t nfds;
	int (*tick)(void *opaque, struct err *err);
	int (*stage)(void *opaque, enum control_stage stage, struct err *err);
	void *opaque;
};
int control_call_message(int dirfd, const struct control_message *m, uint64_t deadline_ms, struct control_reply *ret,
			 struct err *err);

/* The process that listens on the control socket, whether it answers or not: a pidfd and its pid, or -errno. */
int control_monitor_pidfd(int dirfd, pid_t *ret_pid, struct err *err);

/* End the monitor: by request, and if it does not take it by SIGKILL; then wait until it is gone. 0 also when it was
 * gone. */
int control_end_monitor(int dirfd, struct err *err);
/* The same after a snapshot that was to end it: its status says so, and whoever is connected may wait for the VM to
 * come back. */
int control_end_saved(int dirfd, struct err *err);

uint64_t control_deadline(uint64_t ms); /* so many ms from now */
