/* SPDX-License-Identifier: Apache-2.0 */
/* A running VM as other commands find it: its directory, what it is, its agent. */
#pragma once
#include "host/agent_client.h"
#include "host/vm_end.h"
#include "host/vmdir.h"
#include "lib/err.h"

enum { VM_AGENT_WAIT_MS = 60000, VM_AGENT_POLL_MS = 20 };

struct vm_handle {
	struct vmdir dir;
	struct vm_config config;
	int status_fd; /* -1: the monitor has not made it yet */
	int signal;    /* the one that interrupted vm_connect_agent */
};

/* Find it, remove what ended VMs left. -ENOENT with the reason when it has ended. */
int vm_open(const char *id, struct vm_handle *ret, struct err *err);
void vm_close(struct vm_handle *vm);

/* Its monitor is gone, even if another VM has its name by now. */
bool vm_has_ended(struct vm_handle *vm);
/* Sleep that a signal which asks for an end ends: -ECANCELED. */
int vm_nap(struct vm_handle *vm, int signal_fd, unsigned ms, struct err *err);

/* Connect to its agent; waits for a VM that is still starting. -ECANCELED on a signal; a paused VM is refused. */
int vm_connect_agent(struct vm_handle *vm, int signal_fd, struct agent_conn **ret, struct err *err);
/* The same with a limit other than VM_AGENT_WAIT_MS: CLOCK_MONOTONIC ms, 0 for none. */
int vm_connect_agent_until(struct vm_handle *vm, int signal_fd, uint64_t deadline, struct agent_conn **ret, struct err *err);
/* Until its guest has started: at once for one that has. */
int vm_wait_started(struct vm_handle *vm, int signal_fd, uint64_t deadline, struct err *err);

/* The connection to the agent broke: when the VM has ended, say why in *err and how in *ret_kind (may be NULL); false when it
 * runs on. */
bool vm_explain_end(struct vm_handle *vm, enum vm_end_kind *ret_kind, struct err *err);
