/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to a guest that takes commands: what `coffer run` does before its command.
 *
 * In this order: the machine is checked (doctor.h), the image, kernel and initramfs are found, the VM's directory and
 * disks are made, the monitor is started, the agent's ready line is awaited, the guest is configured (clock,
 * entropy, names). Whatever fails, launch_end removes all of it.
 *
 * The monitor holds copies of the descriptors that mean "in use": the locks of the VM's directories and of the image.
 */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/guardian.h"
#include "host/image.h"
#include "host/progress.h"
#include "host/vm_disks.h"
#include "host/vm_display.h"
#include "host/vm_end.h"
#include "host/vmdir.h"
#include "lib/err.h"
#include "lib/opt.h"

enum {
	LAUNCH_BOOT_TIMEOUT_S = 120,
	LAUNCH_MEMORY_MIN_MIB = 32,
	LAUNCH_READY_MS = 10000, /* from the ready connection to its line, and for configure */
};

/* VMDIR_VSOCK with AGENT_READY_PORT: where a connection from the guest to that port arrives. */
#define LAUNCH_READY_SOCKET "vsock.sock_1025"

#define LAUNCH_DEFAULT_IMAGE "debian"
#define LAUNCH_NO_IMAGE "none"

/* The options of run that are about the machine. */
struct launch_options {
	uint64_t cpus;
	uint64_t memory; /* bytes */
	uint64_t overlay_size;
	char *name;
	char *image, *kernel, *initrd, *append;
	struct opt_strv disks, devices; /* devices: with the display's */
	char *tier, *display_size, *gpu;
	struct vm_display display;      /* these three, parsed */
	double boot_timeout;
	uint64_t cache_size;     /* of remote layers; 0: the default */
	double fetch_timeout;    /* seconds; 0: the default */
	char *fetch;             /* "background" (NULL), "lazy", "all" */
	char *log_level;
	bool keep, no_seccomp;
};

struct launch {
	struct vmdir dir;
	struct image image;      /* zeroed without one */
	int image_fd;            /* its lock */
	bool direct;             /* the guest writes it as it is, on one disk (launch_disks_direct) */
	struct vm_disks disks;   /* until the monitor runs */
	int gpu_sock;                  /* to coffer-gpu, until the monitor has it; else -1 */
	struct remote_layers *remote; /* of the image's, the same; NULL */
	char kernel[PATH_MAX], initrd[PATH_MAX];
	int ready_sock;          /* where the agent will connect */
	pid_t pid;               /* the monitor, 0 before it runs */
	int pidfd;
	int status_fd;           /* its status file, for after the directory is gone */
	bool foreign;            /* the monitor is not our child: a pool's */
	bool has_root;           /* a root disk, also when there is no lock of an image */
	bool reaped;
	int wait_status;
	bool read_write_disks;   /* the user's own: to be synced before the end */
	const struct opt_strv *user_disks; /* --disk, borrowed from the options */
	size_t first_user_disk;  /* number of the first among the monitor's disks */
	int signal;              /* the one that interrupted launch_start or launch_wait */
	int signal_fd;           /* for long waits in launch_start; -1 */
	uint8_t identity[80];    /* 64 bytes of entropy and 16 of a machine id, the same however often the guest is told */
	bool has_identity;
	uint64_t start_ns, spawned_ns, ready_ns, configured_ns;
};

void launch_init(struct launch *l);

/* Find or build the files alone (kernel, initramfs, template of the empty disk), for launches to come. Needs no KVM. */
int launch_prepare(struct launch *l, const struct launch_options *o, struct progress *progress, struct err *err);

/* Everything up to a running monitor. `command` is for people (ps). 0 or -errno; -ECANCELED: a signal asked for the end. */
int launch_start(struct launch *l, const struct launch_options *o, const char *command, const struct guardian *g,
		 struct progress *progress, struct err *err);

/* The VM's log, to append to: a descriptor or -errno with a text. */
int launch_open_log(const struct launch *l, struct err *err);

struct vmargs;
/* Start a monitor with these arguments, in l->dir. keep: it outlives us. */
int launch_spawn(struct launch *l, const struct vmargs *args, bool keep, const struct guardian *g, struct err *err);

/* Until the guest takes commands. -ECANCELED: a signal asked for the end (l->signal). */
int launch_wait(struct launch *l, const struct launch_options *o, int signal_fd, struct err *err);

/* Tell the agent clock, entropy and names, and the image's environment when `env`. */
int launch_configure(struct launch *l, bool env, int signal_fd, uint64_t deadline_ms, struct err *err);

/* Why the monitor ended, as one line, when it has (waits a moment for it); false when it runs on. */
bool launch_explain_end(struct launch *l, enum vm_end_kind *ret_kind, struct err *err);

/* End the monitor if it runs, and remove everything; keep: leave both alone. 0, or -errno when something is left. */
int launch_end(struct launch *l, bool keep, struct err *err);
