/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coffer-vmm process under test: started, spoken to by its control socket, heard by its serial port.
 *
 * The serial port goes to a pipe, so that what the guest says arrives at once (monitor_hear). The guest is a payload made by
 * monitor_write_payload: code for 32-bit protected mode without paging, entered at MONITOR_PAYLOAD_BASE by its PVH note.
 * Failures fail the running cmocka test.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "vmm/control.h"

enum { MONITOR_PATH = 256, MONITOR_PAYLOAD_BASE = 0x100000, MONITOR_PAYLOAD_MAX = 4096, MONITOR_ARGS = 32 };

struct monitor {
	pid_t pid;
	char dir[MONITOR_PATH];
	int console;      /* the guest's words */
	int control;
	int status;       /* after monitor_wait: exit status, 128 + n for a signal */
};

/* coffer-vmm of this build; skips the test where there is no KVM. */
void monitor_require(void);
/* An ELF file `path` around the code. */
void monitor_write_payload(const char *path, const void *code, size_t len);
/* Start in a new directory below `work`, with these further arguments (NULL ends them), and wait until it says ready. */
void monitor_start(struct monitor *m, const char *work, const char *const args[]);
void monitor_connect(struct monitor *m); /* a new connection in m->control; monitor_start makes the first */
/* One request; the reply's status. */
int monitor_request(struct monitor *m, enum control_op op, const uint64_t arg[4], const int *fds, size_t nfds,
		    struct control_reply *ret);
/* The next reply to it: after a stage of a snapshot. Its status. */
int monitor_reply(struct monitor *m, struct control_reply *ret);
void monitor_hear(struct monitor *m, char want); /* until the guest says that; another byte fails the test */
void monitor_end(struct monitor *m);             /* kill, wait, remove the directory; accepts an ended and a zeroed one */
int monitor_wait(struct monitor *m);             /* until it ends by itself */
