/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a snapshot of a running VM: everything up to a draft that is whole but has no name yet.
 *
 * In this order: look what the VM is made of; make the draft, the new files and the next pair of each disk; put links
 * to the layers into the draft; flush the guest, which shows that it can be; let the monitor do its part
 * (vmm/control.h, CONTROL_SNAPSHOT), which copies memory, says that it is READY, and waits while the guest is flushed once
 * more or its file systems are frozen; when the monitor says that the CUT is over they are thawed. With `stop` the guest
 * is flushed or frozen, paused, and saved. At the end check and describe the files. Killed at any step, it leaves a draft for the next
 * sweep, and the monitor either did not take the new pairs or goes on with them (vm_disks.h).
 */
#pragma once
#include "host/progress.h"
#include "host/snapshot_store.h"
#include "host/vm_open.h"
#include "lib/err.h"

struct snapshot_take {
	/* In. */
	const char *to;      /* see snapshot_draft_begin; NULL: without a name */
	bool diff, freeze, no_sync;
	bool stop;           /* leave it paused, so that nothing is lost before it is ended */
	bool track;          /* so that a diff can follow */
	uint64_t level;      /* zstd, or 0 */
	struct progress *progress; /* may be NULL */

	/* Out. */
	int lock;            /* of the VM, while layers and record change: until it is remembered, or finished; -1 */
	bool paused;         /* for `stop`: to be resumed when it is not ended after all */
	struct snapshot_draft draft;
	struct snapshot_manifest m;
	uint64_t frozen_ns;  /* file systems were frozen for, in a guest that goes on */
	uint64_t pause_ns, total_ns, rounds, pages, final_pages, ram_bytes;
	uint64_t disk_bytes; /* of all layers */
	struct err note;     /* what a restored guest will miss, in the monitor's words; code 0: nothing */
};

int snapshot_take(struct vm_handle *vm, struct snapshot_take *t, struct err *err);
/* After the draft has been published: what a diff would be against. Others may take one then. */
int snapshot_take_remember(struct vm_handle *vm, struct snapshot_take *t, struct err *err);
/* The snapshot is not there after all: the VM goes on if it was stopped for it. */
void snapshot_take_resume(struct vm_handle *vm, struct snapshot_take *t);
/* Also of one that snapshot_take has not seen: with SNAPSHOT_DRAFT_NONE and lock -1. */
void snapshot_take_finish(struct snapshot_take *t);

/* While layers and record of the VM change: a descriptor to be closed, or -EBUSY. */
int snapshot_lock_vm(struct vm_handle *vm, struct err *err);

/* Flush the guest's file systems through its agent. freeze: also stop writing until *ret_conn is closed (else NULL).
 * Does nothing for a guest that does not take commands yet or is paused. */
int snapshot_flush(struct vm_handle *vm, bool freeze, struct agent_conn **ret_conn, struct err *err);
