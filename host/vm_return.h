/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM that comes back: stopped by a snapshot, it is restored under its name, in a new directory with a new monitor.
 * Whoever was connected to it waits here.
 */
#pragma once
#include "host/resume.h"
#include "host/vm_open.h"

enum {
	VM_RETURN_WAIT_MS = 60000, /* for the restore to begin; once the VM is there, as long as it takes */
	VM_RETURN_SAY_MS = 3000,   /* until a word says what is waited for */
};

/* The connection to the agent of *arg, a struct vm_handle, broke: wait for the VM to be back, make the handle the new
 * one's, and connect. This is resume_source's connect; -ENOTCONN when the VM runs on, or ended otherwise than by a
 * snapshot (the handle is as before), or does not come back. */
int vm_return_connect(void *arg, int signal_fd, struct agent_conn **ret, int *ret_signal, struct err *err);
/* And its connect_again. */
int vm_return_connect_again(void *arg, int signal_fd, struct agent_conn **ret, struct err *err);
