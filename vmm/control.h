/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: how the host command talks to a running monitor.
 *
 * DIR/control.sock is a SOCK_SEQPACKET Unix socket; one fixed-size request, one reply, in order, on any number of
 * connections (CONTROL_MAX_CLIENTS at once; more are closed). No JSON here: the monitor parses nothing a jailed
 * process need not. Descriptors a request needs (a snapshot's files, a disk's layers) come with it as SCM_RIGHTS;
 * those that it does not are closed. Only the owner can connect: the directory is 0700 and SO_PEERCRED must be the monitor's own uid or root.
 *
 * All integers little-endian. An unknown op, a wrong size or version gets status -EINVAL and a text, never a disconnect
 * of others.
 */
#pragma once
#include <sys/types.h>

#include "lib/le.h"
#include "lib/loop.h"
#include "vmm/vm.h"

#define CONTROL_SOCKET "control.sock"
enum { CONTROL_VERSION = 1, CONTROL_TEXT_MAX = 512, CONTROL_MAX_CLIENTS = 16 };
enum { CONTROL_DISKS_MAX = 16 };     /* that a snapshot can have */
enum { CONTROL_CUT_WAIT_MS = 90000 }; /* CONTROL_STAGE_READY waits for CONTROL_SNAPSHOT_CUT no longer than this, or than arg[3] */

enum control_op {
	CONTROL_STATUS = 1,    /* reply.value[]: enum control_value */
	CONTROL_PAUSE = 2,     /* ok also when paused already */
	CONTROL_RESUME = 3,
	CONTROL_KILL = 4,      /* stop at once, in any state; arg[0] 1: because a snapshot of it is complete */
	CONTROL_POWER_BUTTON = 5, /* ACPI power button */
	CONTROL_BALLOON = 6,   /* arg[0]: target MiB */
	CONTROL_DISK_RESIZE = 7, /* arg[0]: disk number, arg[1]: bytes, 0 = size of the file now */
	/* Snapshots and restore: docs/snapshots.md. The reply of SNAPSHOT and RESTORE comes when it is done; a connection
	 * that waits for it takes no other request. */
	CONTROL_SNAPSHOT = 9,  /* arg[0]: enum control_snapshot_flag, arg[1]: zstd level or 0, arg[2]: number n of disks,
			       * arg[3]: milliseconds to wait for the CUT, 0: CONTROL_CUT_WAIT_MS, which is the most;
			       * descriptors, new and empty: state, ram, ram.index, then for each writable disk of layers, in
			       * the order of their numbers, its next top: data, index. Values: enum control_snapshot_value */
	CONTROL_DISK_ATTACH = 10, /* before RESTORE. arg[0]: disk number, arg[1]: number n of layers, arg[2]: 1 = a raw base is
			       * below them, arg[3]: 1 = a writable top is above them. Descriptors: base, n sealed layers
			       * lowest first, top's data, top's index */
	CONTROL_RESTORE = 11,  /* arg[0]: enum control_restore_mode, arg[1]: number n of snapshots in the chain, arg[2]: guest CID or
			       * 0 for the saved one, arg[3]: enum control_restore_flag. Descriptors: state, then n times
			       * ram, ram.index (newest first), then as flags say the order to fetch in and the file to record it */
	CONTROL_SNAPSHOT_CUT = 12, /* the answer to CONTROL_STAGE_READY, on the connection of the SNAPSHOT; has no reply of its own */
	CONTROL_CLOCK = 13,    /* the wall clock and the guest's counter of one moment (vmm/counter.h). Values: enum
			       * control_clock_value. -ENOTSUP where that is not known */
	CONTROL_WAIT = 8,      /* the reply comes when the VM stops: status 0, value[CONTROL_V_STOP]. A connection
			       * that waits takes no other request. */
};

enum control_value {
	CONTROL_V_STATE,       /* enum vm_state */
	CONTROL_V_STOP,        /* enum vm_stop */
	CONTROL_V_PID,
	CONTROL_V_VCPUS,
	CONTROL_V_MEMORY,      /* bytes of guest RAM */
	CONTROL_V_RESIDENT,    /* bytes of it resident on the host, monitor included (VmRSS) */
	CONTROL_V_BALLOON,     /* MiB in the balloon now */
	CONTROL_V_UPTIME_MS,
	CONTROL_V_EXITS,       /* VM exits to user space */
	CONTROL_V_UNCLAIMED,   /* accesses no device claimed */
	CONTROL_V_REMOTE_WAIT_MS, /* for so long reads of a disk have waited for the server of a remote layer; 0: none do */
	CONTROL_NVALUES = 16,
};

enum control_clock_value {
	CONTROL_CV_REALTIME_NS, /* since 1970 */
	CONTROL_CV_COUNTER,     /* the guest's then */
	CONTROL_CV_KHZ,         /* its frequency */
};

enum control_snapshot_flag {
	CONTROL_SNAPSHOT_DIFF = 1,  /* what changed since the last snapshot or restore of this VM */
	CONTROL_SNAPSHOT_STOP = 2,  /* end the VM when it is complete */
	CONTROL_SNAPSHOT_TRACK = 4, /* keep the dirty log on afterwards, so that a diff can follow */
	CONTROL_SNAPSHOT_ANNOUNCE = 8, /* say when the guest is about to be stopped, and when it runs again: enum control_stage */
	CONTROL_SNAPSHOT_DISKS = 32, /* nothing but a new top for the disks whose bits are in arg[1]: no memory, no state. Descriptors:
				      * their next tops. Diffs of memory go on as before */
	CONTROL_SNAPSHOT_UNNAMED = 16, /* nothing will be a diff of this one: what diffs are against stays what it was */
};

/*
 * Replies to a SNAPSHOT with ANNOUNCE that come before the last one: their status is one of these. After READY the monitor
 * waits for CONTROL_SNAPSHOT_CUT, so that the guest's file systems can be flushed or frozen just then; anything else on the
 * connection, its end, or no word in time (arg[3]) ends the snapshot, with nothing changed.
 */
enum control_stage {
	CONTROL_STAGE_READY = 1, /* memory is copied but for what the guest goes on writing */
	CONTROL_STAGE_CUT = 2,   /* the moment of the snapshot is over: the guest runs, or is paused as it was before */
};

enum control_snapshot_value {
	CONTROL_SV_ID_LOW,      /* this snapshot's id: the first and the last 8 bytes of a struct ram_id, little-endian */
	CONTROL_SV_ID_HIGH,
	CONTROL_SV_PARENT_LOW,  /* its parent's; 0 0: none */
	CONTROL_SV_PARENT_HIGH,
	CONTROL_SV_PAUSE_NS,    /* the guest stood still for */
	CONTROL_SV_TOTAL_NS,
	CONTROL_SV_ROUNDS,      /* of copying while the guest ran */
	CONTROL_SV_PAGES,       /* stored */
	CONTROL_SV_RAM_BYTES,   /* written */
	CONTROL_SV_FINAL_PAGES, /* of them during the pause */
};

enum control_restore_mode { CONTROL_RESTORE_MAP, CONTROL_RESTORE_EAGER, CONTROL_RESTORE_LAZY };

enum control_restore_flag {
	CONTROL_RESTORE_PAUSED = 1,    /* do not let it run */
	CONTROL_RESTORE_TRACK = 2,     /* dirty log on, so that a diff can follow */
	CONTROL_RESTORE_ORDER_IN = 4,
	CONTROL_RESTORE_ORDER_OUT = 8,
};

struct control_request {
	le16 version;
	le16 op;
	le32 seq; /* echoed */
	le64 arg[4];
};

struct control_reply {
	le32 seq;
	le32 status; /* 0, a negative errno as two's complement, or enum control_stage when another reply follows */
	le64 value[CONTROL_NVALUES];
	char text[CONTROL_TEXT_MAX]; /* NUL-terminated; the error, the stop reason's text, or what a snapshot leaves out */
};

/* The monitor's side. Main thread only. */

/* What needs a device: 0 or -errno with a text. A NULL hook answers -ENOTSUP. */
struct control_hooks {
	int (*power_button)(void *opaque, struct err *err);
	int (*balloon_set)(void *opaque, uint64_t mib, struct err *err);
	uint64_t (*balloon_get)(void *opaque); /* MiB */
	int (*disk_resize)(void *opaque, uint64_t disk, uint64_t bytes, struct err *err);
	void *opaque;
};

/* What may take long, or changes what the machine is made of: 0 done, 1 under way (control_complete will say how it ended),
 * -errno with a text. Descriptors that are kept are set to -1 in fds. */
struct control_snapshot_hooks {
	int (*snapshot)(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err);
	int (*disk_attach)(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err);
	int (*restore)(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err);
	void (*answered)(void *opaque, bool yes); /* to CONTROL_STAGE_READY: the CUT, or there will be none */
	bool (*busy)(void *opaque); /* the VM's state is not to be changed now */
	void *opaque;
};

struct control_client {
	struct loop_fd watch; /* fd -1 when the slot is free */
	struct control *control;
	bool waiting;         /* for the stop or for control_complete; nothing is read meanwhile */
	uint32_t seq;         /* of that request */
};

struct control {
	struct vm *vm;
	const struct control_hooks *hooks;
	const struct control_snapshot_hooks *snapshots; /* NULL: none of that */
	struct control_client *pending; /* waits for control_complete; NULL: nobody, or it has gone */
	bool asked;           /* `pending` was told CONTROL_STAGE_READY: its next request is awaited */
	struct loop_fd listener;
	struct control_client client[CONTROL_MAX_CLIENTS];
	int statm_fd;         /* /proc/self/statm, opened before isolation; -1: unknown */
	uint64_t started_ns;
	uid_t uid;
};

/* Listen on `path` (made anew) and serve from vm->loop. `path` is relative to the VM's directory: a socket's
 * address is short. 0 or -errno with a text. */
int control_init(struct control *c, struct vm *vm, const char *path, const struct control_hooks *hooks, struct err *err);
/* An operation that was under way has ended: status 0 or -errno, up to CONTROL_NVALUES values, the error's text or NULL. */
void control_complete(struct control *c, int status, const uint64_t *value, size_t nvalues, const char *text);
/* Say to who waits how far it is. READY: hooks.answered will be called once, unless control_complete is before. 0, or
 * -ENOTCONN when nobody waits (any more). */
int control_stage(struct control *c, enum control_stage stage);
/* The VM has stopped: answer everyone who waits for it. */
void control_stopped(struct control *c);
void control_finish(struct control *c); /* accepts a zeroed one */
