/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM out of a snapshot.
 *
 * Always in these steps, so that a pool (pool.h) can have done the first ones:
 *   source   the snapshot and its parents are opened and checked once, for any number of VMs
 *   shell    a VM directory; a monitor that has made the machine and waits (`coffer-vmm --restore`); its disks attached
 *   run      the shell's directory gets the VM's name; state and memory go in; the guest runs
 *   settle   the agent sets clock, entropy, names; only then the VM takes commands
 * All work on a struct launch, so that whatever can be done with a VM that booted can be done with one that was
 * restored; launch_end removes any stage of it.
 */
#pragma once
#include "host/launch.h"
#include "host/snapshot_store.h"
#include "lib/err.h"
#include "snapshot/ram.h"

enum restore_mode { RESTORE_AUTO, RESTORE_MAP, RESTORE_EAGER, RESTORE_LAZY };

struct restore_source {
	struct snapshot snap;
	int state_fd;
	int ram_fd[RAM_CHAIN_MAX], index_fd[RAM_CHAIN_MAX]; /* newest first */
	unsigned nchain;
	bool compressed; /* the oldest one, so that it cannot be mapped */
};

#define RESTORE_SOURCE_NONE ((struct restore_source){ .snap = SNAPSHOT_NONE, .state_fd = -1 })

/* Open by name or path, or take over a snapshot that is open (also on failure). */
int restore_source_open(const char *name, struct restore_source *ret, struct err *err);
int restore_source_take(struct snapshot *s, struct restore_source *ret, struct err *err);
/* Can it be restored on this machine, are all layers what the manifest says, is what lies outside as it was? */
int restore_source_check(const struct restore_source *src, struct err *err);
/* Read all of it: every byte of state, memory, layers. progress may be NULL. */
int restore_source_verify(const struct restore_source *src, struct progress *progress, struct err *err);
void restore_source_close(struct restore_source *src); /* RESTORE_SOURCE_NONE too */

struct restore_options {
	const char *id;      /* of the VM; NULL: random */
	const char *command; /* for people (ps) */
	enum restore_mode mode;
	bool paused;         /* do not let it run; it settles when it is resumed */
	bool keep;           /* it outlives us */
	bool track;          /* a diff may follow */
	bool no_seccomp;
	const char *log_level;
};

/* Start the monitor (returns at once), then wait for it and attach the disks. */
int restore_shell_start(struct launch *l, const struct restore_source *src, const struct restore_options *o,
			const struct guardian *g, struct err *err);
int restore_shell_wait(struct launch *l, const struct restore_source *src, int signal_fd, struct err *err);
/* For a shell of a pool: what its disks are. */
int restore_shell_describe(struct launch *l, const struct restore_source *src, struct err *err);
/* Name, state, memory, run. */
int restore_run(struct launch *l, const struct restore_source *src, const struct restore_options *o, struct err *err);
/* Until the guest takes commands. Not for a paused one. */
int restore_settle(struct launch *l, int signal_fd, struct err *err);

/* A VM that was restored paused has been resumed by a command that knows its directory only: what restore_settle does.
 * 0 when there is nothing to do. */
int restore_settle_resumed(struct vmdir *dir, struct err *err);

/* The mode that AUTO means for it. */
enum restore_mode restore_choose_mode(const struct restore_source *src);
const char *restore_mode_name(enum restore_mode m);
