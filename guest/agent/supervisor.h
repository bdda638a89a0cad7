/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor: accepts connections, forks a handler for each, reaps, cleans up after handlers that died, and powers the
 * machine off. In a VM it is PID 1.
 *
 * It never reads a byte from a connection. A handler talks to it over a SOCK_SEQPACKET pair of its own in fixed
 * messages; most are calls that it answers with SUPERVISOR_ACK. It never blocks on a handler.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

#include "guest/agent/agent.h"
#include "lib/err.h"

enum supervisor_message_type {
	/* calls, answered by an ACK whose value is 0 or -errno */
	SUPERVISOR_ENV = 1, /* a struct agent_env follows: the environment of later commands */
	SUPERVISOR_DETACH,  /* may this command outlive its connection? */
	SUPERVISOR_ATTACH,  /* hand the connection that comes with it to the handler of command `id`; value 1: resume */
	SUPERVISOR_SIGNAL,  /* signal `value` to command `id` */
	SUPERVISOR_POWER,   /* value: RB_POWER_OFF or RB_AUTOBOOT; id: grace in ms */
	/* told, not answered */
	SUPERVISOR_DROP,    /* the handler has closed its connection and goes on: close your copy */
	SUPERVISOR_ORPHAN,  /* the same after a reset: QUIT is the answer if there are too many such commands */
	/* from the supervisor */
	SUPERVISOR_ACK,
	SUPERVISOR_CONNECTION, /* a connection for a command without one comes with it; value, received: as in ATTACH */
	SUPERVISOR_QUIT,       /* forget the command that has ended, or that nobody is connected to */
};

struct supervisor_message {
	uint32_t type;
	int32_t value;
	uint64_t id;
	uint64_t received; /* ATTACH, CONNECTION: bytes of output that the host has */
};

/* Listen, say that the agent is ready, and serve until the machine or the agent is to stop. Returns the program's exit
 * status; as PID 1 only if the agent cannot listen (the kernel then panics, and the monitor reports that) or in a guest without power-off. */
int supervisor_run(struct agent *a);

/* ---- the handler's side ---- */

/* Send a call with `payload` and/or `fd` (-1: none) and wait for its ACK: its value, or -errno. */
int supervisor_call(int sock, const struct supervisor_message *m, const void *payload, size_t n, int fd);
void supervisor_tell(int sock, enum supervisor_message_type type);
/* Take a message that is there: 1, 0: none, -ECONNRESET: the supervisor is gone. *ret_fd: -1 or owned by the caller. */
int supervisor_receive(int sock, struct supervisor_message *ret, int *ret_fd);
