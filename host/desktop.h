/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The session of a VM's desktop, as its agent knows it (the operation `session` of docs/agent-protocol.md).
 *
 * Trust: the guest is hostile; its answers are looked at as words that are known or not.
 */
#pragma once
#include <stdint.h>

#include "host/agent_client.h"
#include "lib/err.h"

struct desktop_guest {
	/* A fresh connection to the agent; whether a signal ends what waits there is its matter. */
	int (*connect)(void *arg, struct agent_conn **ret, struct err *err);
	void *arg;
};

/*
 * Until the session has said that it is ready. deadline_ms: CLOCK_MONOTONIC, 0 for none. 0, also when it has been for long; -ENOENT: the
 * image has no session, or the VM no display; -ETIMEDOUT, with a text that says what the session was doing; or another -errno.
 */
int desktop_wait_ready(const struct desktop_guest *g, unsigned long long deadline_ms, struct err *err);
