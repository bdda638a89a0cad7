/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of the running machine, and its start from one: what the control socket asks of the monitor.
 *
 * Taking one (take.c) goes through phases. `lead`, a thread of its own, does all that takes time; main changes the
 * VM's state between them and serves devices and control requests all the while:
 *
 *   PRECOPY  lead: copy memory in rounds while the guest runs, each round what the one before left dirty
 *   READY    main: only with ANNOUNCE: say so and wait for the word, so that the guest's file systems can be flushed or
 *            frozen just before the cut; then one more round of PRECOPY, for what that wrote
 *   CUT      main: pause; take what is dirty now; save the machine; make the disks' tops layers
 *   FINAL    lead: copy those last pages, with the guest standing still
 *   RESUME   main: let the guest go on
 *   FINISH   lead: indexes, state, disks' layers, to their files and to storage
 *   DONE     main: answer
 *
 * What fails before CUT changed nothing; what fails after it leaves a VM that runs on with its new tops.
 *
 * Starting from one (restore.c): the disks are attached, memory is mapped, filled (by the lead too) or made to arrive, the
 * machine's state is set, the generation id renewed, and the VM runs.
 *
 * Both are requests of the control socket. What they move: the machine and its sections (machine_save.c, machine_load.c),
 * memory and its files (ram.h).
 *
 * Threads: main, lead, and the workers that both use for memory; never two of these at the same memory work.
 * Trust: descriptors come from the host's command; the files behind them are hostile when read.
 */
#pragma once
#include <stdatomic.h>

#include "devices/machine.h"
#include "snapshot/machine_save.h"
#include "snapshot/ram.h"
#include "vmm/control.h"
#include "vmm/workers.h"

enum snapshot_phase {
	SNAPSHOT_IDLE,
	SNAPSHOT_PRECOPY,
	SNAPSHOT_READY,
	SNAPSHOT_FINAL,
	SNAPSHOT_FINISH,
	SNAPSHOT_LOADING, /* a restore that fills memory */
};

struct block_sealing;

/* One being taken. */
struct snapshots_take {
	uint32_t flags;          /* enum control_snapshot_flag */
	bool was_running, was_tracking;
	bool announced;          /* READY is over */
	int state_fd, data_fd, index_fd;
	int top_data[CONTROL_DISKS_MAX], top_index[CONTROL_DISKS_MAX];
	struct device *disk[CONTROL_DISKS_MAX];
	struct block_sealing *sealing[CONTROL_DISKS_MAX];
	uint32_t ndisks;
	struct ram_id id, parent;
	struct ram_writer *writer;
	struct state_file_writer state;
	struct ram_writer_stats stats;
	uint64_t rounds, rounds_max, final_pages;
	uint64_t cut_wait_ms;
	uint64_t start_ns, pause_ns, pause_start_ns;
	int status;              /* of the lead's part */
	struct err err;
	char left_out[CONTROL_TEXT_MAX]; /* "": nothing */
};

struct snapshots {
	struct vm *vm;
	struct machine *machine;
	struct control *control;
	struct workers lead, workers, server; /* server: only in a machine that waits for a restore */
	struct loop_fd lead_done;
	struct loop_timer cut_wait; /* during READY */
	_Atomic int phase;       /* enum snapshot_phase; written by main */
	struct snapshots_take take;
	/* Dirty pages of rounds: bits of pages, (mem_pages + 63) / 64 words. */
	uint64_t *dirty;         /* what has to be copied next */
	uint64_t *since;         /* all that was taken from the logs since the last snapshot that succeeded */
	size_t nwords;
	bool tracking;           /* logs are on, and `since` is complete from last_id on */
	struct ram_id last_id;   /* the last snapshot or what the VM was restored from; zero: none */
	struct ram_lazy *lazy;   /* while memory arrives */
	struct ram_image *loading; /* during LOADING */
	bool loading_map;        /* it is mapped, and what its diffs changed is filled in */
	int chain_fd[2 * RAM_CHAIN_MAX]; /* of the files that memory comes from */
	unsigned nchain;
	struct state_file loading_state;
	uint64_t load_flags;
	int uffd;                /* opened before isolation; -1 */
	struct err uffd_err;     /* why not */
	bool restorable;         /* this machine waits for a restore */
	void (*fatal)(void *arg); /* any thread: leave the VM's last word and end the process at once; does not return */
	void *fatal_arg;
};

/* Before isolation. restorable: started to be filled by CONTROL_RESTORE. The caller then sets fatal and fatal_arg. */
void snapshots_init(struct snapshots *s, struct vm *vm, struct machine *m, struct control *c, bool restorable);
/* Inside the jail, before system calls are filtered. */
int snapshots_start(struct snapshots *s, struct err *err);
/* The hooks for control_init. */
void snapshots_hooks(struct snapshots *s, struct control_snapshot_hooks *ret);
/* The VM has stopped: wait for what is under way, free all. Accepts a zeroed one. Before machine_close. */
void snapshots_finish(struct snapshots *s);

/* ---- shared by take.c and restore.c ---- */
void snapshots_take_free(struct snapshots_take *t); /* what one holds */
void snapshots_close_chain(struct snapshots *s);
void snapshots_on_loaded(struct snapshots *s); /* main: memory is full, go on with the restore */
int snapshots_track(struct snapshots *s, struct err *err); /* switch the logs on, forget `since` and last_id */
uint64_t snapshots_collect(struct snapshots *s, struct err *err); /* logs -> dirty and since; number of pages, UINT64_MAX: failed */
int snapshots_load_hook(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err);
int snapshots_attach_hook(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err);
int snapshots_take_hook(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err);
void snapshots_take_answered(void *opaque, bool yes); /* control_snapshot_hooks.answered */
void snapshots_take_step(struct snapshots *s); /* main: lead has finished a phase of taking */
