/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories of one VM: made before its monitor starts, gone when it has ended.
 *
 *   RUNTIME/ID  config.json machine.json lock pid control.sock vsock.sock console.log vmm.log status (see paths.h for RUNTIME)
 *   STATE/vms/ID  lock, layers of its private disks (vm_disks.h); only for a VM that has one
 *
 * Both are children of a lockdir: who made the VM and its monitor hold their locks, so what a crash leaves behind is
 * known as stale and goes with the next vmdir_sweep.
 *
 * Children whose names are no VM's are shells: monitors that wait for a snapshot (restore.h).
 *
 * config.json says what the VM is (struct vm_config); it is written once, before the monitor starts. `ready` appears when the
 * agent in the guest has been configured and takes commands. `unsettled` says that this is left to whoever resumes a VM that was
 * restored paused. `status` is the monitor's last word: one JSON line.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "host/lockdir.h"
#include "lib/err.h"

enum {
	VMDIR_ID_MAX = 64,
	VMDIR_FILE_MAX = 64 * 1024, /* config.json, status: more is refused */
};

#define VMDIR_CONFIG "config.json"
#define VMDIR_READY "ready"
#define VMDIR_UNSETTLED "unsettled"
#define VMDIR_STATUS "status"
#define VMDIR_PID "pid"
#define VMDIR_CONSOLE "console.log"
#define VMDIR_LOG "vmm.log"
#define VMDIR_VSOCK "vsock.sock"

struct vmdir {
	struct lockdir run, disks;
	char id[VMDIR_ID_MAX + 1];
	char path[4096];  /* RUNTIME/ID */
	int fd;           /* of it */
	int lock_fd;      /* held by us or -1 */
	int disk_dir_fd;  /* STATE/vms/ID or -1 */
	int disk_lock_fd;
};

#define VMDIR_NONE ((struct vmdir){ .run = { .fd = -1 }, .disks = { .fd = -1 }, .fd = -1, .lock_fd = -1, \
				    .disk_dir_fd = -1, .disk_lock_fd = -1 })

/* What a VM is, as shown by `coffer ps` and read back by other commands. Strings are owned. */
struct vm_config {
	char id[VMDIR_ID_MAX + 1];
	int64_t created_ms;   /* since 1970 */
	uint64_t cpus;
	uint64_t memory;      /* bytes */
	char *image;          /* name or path; "none" */
	char *user, *cwd;     /* of commands, by the image; "" when it says nothing */
	char *kernel;
	char *display;        /* "1280x800", as it started; "": none */
	char *command;        /* the first one, for people: words joined by blanks, cut */
	bool keep;
};

/* The monitor's last word, from its status file. */
struct vm_status {
	char stop[32];        /* "poweroff", "reboot", "panic", ... or "" */
	char text[ERR_MAX];
};

/* [a-z0-9][a-z0-9_.-]{0,63}: 0 or -EINVAL with a text. */
int vmdir_check_id(const char *id, struct err *err);

/* Make the directory of a new VM; name NULL: a random id. -EEXIST when a VM of that name is running. */
int vmdir_create(const char *name, struct vmdir *ret, struct err *err);
/* Make its directory for disks too. */
int vmdir_create_disks(struct vmdir *d, struct err *err);
/* Open the directory for disks of one that was opened. */
int vmdir_open_disks(struct vmdir *d, struct err *err);
/* Make the directory of a shell, a monitor that waits for a snapshot: it is no VM yet, and no command sees it. */
int vmdir_create_shell(struct vmdir *ret, struct err *err);
/* The descriptors in *d are those of shell `id`: open what is missing. */
int vmdir_adopt(struct vmdir *d, const char *id, struct err *err);
/* Let the directories, whose locks we hold, be those of VM `id` (NULL: a random one). -EEXIST as vmdir_create. */
int vmdir_rename(struct vmdir *d, const char *id, struct err *err);
/* Open a running VM's. -ENOENT, with the reason when it has just ended (and what it left is removed then). */
int vmdir_open(const char *id, struct vmdir *ret, struct err *err);
/* Open it whether it runs or not: 1 running, 0 ended, -errno. */
int vmdir_open_any(const char *id, struct vmdir *ret, struct err *err);
void vmdir_close(struct vmdir *d);
/* Of the same VM, not only of the same name: the descriptors of RUNTIME/ID are compared. */
bool vmdir_same(const struct vmdir *a, const struct vmdir *b);
/* Remove what a VM used. By its maker, or, for one opened by vmdir_open, when nobody holds it any more. */
int vmdir_remove(struct vmdir *d, struct err *err);

/* Visit the VMs that run, then remove what ended ones left. Directories that cannot be removed are an error, after all
 * the rest was done. fn may be NULL. */
typedef void vmdir_visit_fn(const char *id, int dirfd, void *arg);
int vmdir_sweep(vmdir_visit_fn *fn, void *arg, struct err *err);

int vmdir_write_config(const struct vmdir *d, const struct vm_config *c, struct err *err);
int vmdir_read_config(int dirfd, struct vm_config *ret, struct err *err);
void vm_config_finish(struct vm_config *c);

/* -ENOENT when the monitor wrote nothing (it was killed). */
int vmdir_read_status(int dirfd, struct vm_status *ret, struct err *err);
/* Same from a descriptor that was opened while the VM ran. */
int vmdir_read_status_fd(int fd, struct vm_status *ret, struct err *err);

/* One sentence for people: "the guest powered off", ... */
void vm_status_describe(const struct vm_status *s, char *out, size_t len);

int vmdir_write_file(int dirfd, const char *name, const void *data, size_t n, struct err *err);
/* A regular file of at most max bytes; 0-terminated, *ret_data is to be freed. Bytes or -errno. */
long vmdir_read_file(int dirfd, const char *name, size_t max, char **ret_data, struct err *err);
