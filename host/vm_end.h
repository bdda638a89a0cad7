/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a VM ended, put together from what its monitor left: its status, the last line of its log, and what the guest's kernel
 * said last on the console. All of it may be the guest's words: bounded and made printable.
 */
#pragma once
#include <stdbool.h>

#include "host/vmdir.h"
#include "lib/err.h"

enum vm_end_kind {
	VM_END_GUEST,  /* the guest powered off, rebooted, panicked or crashed */
	VM_END_KILLED, /* somebody asked for it */
	VM_END_FAILED, /* the monitor could not go on, or could not start */
};

/* dirfd: the VM's directory; status_fd: its status file when the directory may be gone, else -1. booting: the guest has
 * not said that it is ready, so its last words matter however it ended. wait_status: the monitor's (waitpid), or -1
 * when it is not known. Sets *err to one line. */
enum vm_end_kind vm_end_explain(int dirfd, int status_fd, bool booting, int wait_status, struct err *err);

/* The end of a log in the directory, as one printable line: the panic of a kernel if there is one, else the last line. "" if none. */
void vm_end_last_words(int dirfd, const char *name, char *out, size_t size);
