/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection, one process: reads the request, does the operation, exits.
 *
 * All its memory is one struct, mapped at the start; nothing is allocated afterwards, and nothing that the host sends
 * makes it larger. Pages that an operation does not touch cost nothing.
 */
#pragma once
#include "guest/agent/agent.h"
#include "guest/agent/channel.h"
#include "guest/agent/command.h"
#include "guest/agent/request.h"
#include "lib/tar_extract.h"
#include "lib/tar_pack.h"

struct handler {
	struct agent *agent; /* as it was at the fork */
	struct agent_slot *slot;
	int supervisor; /* socket */
	struct channel channel;
	struct request request;
	struct err err;
	union {
		struct command command;
		struct {
			struct frame_reader frame;
			struct tar_extract extract;
		} put;
		struct {
			struct tar_pack pack;
			char data[AGENT_FRAME_MAX];
		} get;
		struct agent_env env;
	} u;
};

_Noreturn void handler_run(struct agent *a, struct agent_slot *slot, int supervisor, int fd);

/* Operations. Each answers, sends its frames and returns 0, or returns -errno with h->err set and leaves telling the host to the
 * caller. */
int command_exec(struct handler *h);
int command_attach(struct handler *h);
int command_ps(struct handler *h);
int command_kill(struct handler *h);
int files_stat(struct handler *h);
int files_put(struct handler *h);
int files_get(struct handler *h);
int control_ping(struct handler *h);
int control_configure(struct handler *h);
int control_sync(struct handler *h);
int control_freeze(struct handler *h);
int control_thaw(struct handler *h);
int control_power(struct handler *h);
int session_wait(struct handler *h);
/* After the thaw: what the freeze of this slot took out of /etc/machine-id goes back. */
void control_return_machine_id(struct agent *a, struct agent_slot *slot);

/* Also when the kernel command line asks for it. */
/* Into the file machine-id of `etc` ("/etc"), which is made if it is missing. 0 or -errno; -EROFS: it is read-only. */
int control_write_machine_id(const char *etc, const char *id, struct err *err);
