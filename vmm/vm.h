/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct vm owns everything about one virtual machine; nothing is reached through a global.
 *
 * Lifecycle: CREATED -> CONFIGURED -> RUNNING <-> PAUSED, and from any of them to STOPPED; a restored VM goes from
 * CONFIGURED to PAUSED. vm_set_state is
 * the one transition function: it refuses what is not in that picture, and on RUNNING -> PAUSED first stops the
 * vCPUs at the barrier (pending port and memory accesses completed), then quiesces the participants
 * (devices) in the order they were added; PAUSED -> RUNNING is the reverse. Entering CONFIGURED freezes the bus.
 *
 * Threads: main (loop: devices, timers, control) and one per vCPU. vm_set_state and everything in struct vm
 * that is not marked atomic belongs to main. vm_request_stop may be called from any thread: the first
 * reason wins, and the main loop ends.
 */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "vmm/bus.h"
#include "vmm/counter.h"
#include "vmm/memory.h"
#include "vmm/vcpu.h"

enum vm_state { VM_CREATED, VM_CONFIGURED, VM_RUNNING, VM_PAUSED, VM_STOPPED };

/* Why the guest ended. The order is part of the monitor's exit status: 0, then VM_EXIT_BASE + value. */
enum vm_stop {
	VM_STOP_NONE,
	VM_STOP_POWEROFF, /* the guest powered off */
	VM_STOP_REBOOT,   /* the guest asked for a reset */
	VM_STOP_PANIC,    /* the guest's kernel panicked (pvpanic) */
	VM_STOP_KILLED,   /* the host asked */
	VM_STOP_CRASH,    /* triple fault, KVM internal error, or an entry failure */
	VM_STOP_ERROR,    /* the monitor itself could not go on */
	VM_STOP_SAVED,    /* by the snapshot that was to end it */
};

enum { VM_EXIT_BASE = 10, VM_MAX_VCPUS = 32, VM_MAX_PARTICIPANTS = 64 };

struct vm_participant {
	int (*pause)(void *opaque);   /* drain and stop; 0 or -errno */
	void (*resume)(void *opaque);
	void *opaque;
};

struct display;

struct vm {
	int kvm_fd; /* -1 without KVM (fake machine) */
	int vm_fd;
	struct mem mem;
	struct bus bus;
	struct loop loop;
	struct log log;
	enum vm_state state;
	struct vcpu *vcpu;         /* array of nvcpus */
	uint32_t nvcpus;
	struct vcpu_barrier barrier;
	struct guest_counter counter;    /* as it was when the vCPUs last began to run */
	int (*vcpu_isolate)(struct vm *vm, struct err *err); /* each vCPU thread calls it first; may be NULL */
	int (*worker_isolate)(struct vm *vm, struct err *err); /* likewise each io worker thread */
	struct vm_participant participant[VM_MAX_PARTICIPANTS];
	int nparticipants;
	struct display *display; /* of a VM that has one: the gpu device's, for the input devices (devices/backend/display.h) */
	_Atomic uint64_t remote_since_ns; /* since when reads of a disk have waited for the server of a remote layer; 0: none do */
	_Atomic bool stop_claimed; /* somebody is writing stop_text */
	_Atomic int stop_reason;   /* enum vm_stop */
	char stop_text[ERR_MAX];   /* valid once stop_reason is set; written by the thread that set it */
};

int vm_init(struct vm *vm, struct err *err); /* loop and fields only; kvm_fd = vm_fd = -1 */
void vm_finish(struct vm *vm);
int vm_set_state(struct vm *vm, enum vm_state to, struct err *err);
const char *vm_state_name(enum vm_state s); /* "created", "configured", "running", "paused", "stopped" */
const char *vm_stop_name(enum vm_stop r);   /* "none", "poweroff", "reboot", "panic", "killed", "crash", "error", "saved" */
int vm_add_participant(struct vm *vm, const struct vm_participant *p, struct err *err);
/* Any thread. */
void vm_request_stop(struct vm *vm, enum vm_stop reason, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
