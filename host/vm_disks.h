/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disks of a VM as its monitor gets them: files by path, stacks of layers by descriptor.
 *
 *   STATE/vms/ID/disk<N>-base<K>.lsmt     layers the VM began with: hard links (or copies) of a snapshot's
 *   STATE/vms/ID/disk<N>-<G>.data .index  the pair of generation G that the VM writes, or wrote until it was sealed
 *
 * Each snapshot makes the next generation. Which ones the monitor uses is told by their locks: a data file is created
 * with its flock taken and the descriptor passed on, so it is held for as long as the monitor has the file open, as top
 * or as layer, and let go when the monitor did not take it. Nothing need be written down at the moment of the change,
 * and a command that is killed leaves nothing to guess.
 *
 * Threads: one. Trust: base files and layers are hostile, judged by the monitor.
 */
#pragma once
#include "host/snapshot_manifest.h"
#include "lib/err.h"

struct vm_disk {
	struct snapshot_disk d;  /* as machine.json has it */
	int base_fd;             /* -1: none */
	int layer_fd[SNAPSHOT_LAYERS_MAX]; /* d.nlayers */
	int table_fd[SNAPSHOT_LAYERS_MAX]; /* of a remote one, the cache's table; else -1 */
	int remote_sock;                   /* to coffer-fetch, when there are remote ones; else -1 */
	int top_data_fd, top_index_fd;
};

struct vm_disks {
	struct vm_disk *disk[SNAPSHOT_DISKS_MAX]; /* the n-th is the monitor's disk n */
	size_t n;
};

/* A file that is read in place (`ro`), or written. `image`: its name in the store, or NULL. */
int vm_disks_add_file(struct vm_disks *v, const char *path, bool ro, const char *image, struct err *err);
/* A stack without layers yet. `base`: a raw file below them, or NULL; with size 0 the disk is as large as it is. `image`:
 * the name in the store of the image it begins with, or NULL. */
int vm_disks_add_layers(struct vm_disks *v, uint64_t size, const char *base, const char *image, struct vm_disk **ret,
			struct err *err);
/* Put one more layer on it: `fd` (taken over), which is the file `path`. It is linked into the VM's disk directory, or
 * copied where that is not possible. `known`: what is known of it. */
int vm_disk_add_layer(struct vm_disk *v, size_t number, int disk_dir_fd, int fd, const char *path,
		      const struct snapshot_layer *known, struct err *err);
/* The same for one that stays where it is for as long as the VM lives: what cannot be linked is used there. */
int vm_disk_add_held_layer(struct vm_disk *v, size_t number, int disk_dir_fd, int fd, const char *path,
			   const struct snapshot_layer *known, struct err *err);
/* A remote one: data and table of the cache (taken over). `known` says where it is from. */
int vm_disk_add_remote_layer(struct vm_disk *v, size_t number, int data_fd, int table_fd, const struct snapshot_layer *known,
			     struct err *err);
/* The same when another process has done it, without a descriptor. */
int vm_disk_describe_layer(struct vm_disk *v, size_t number, const struct snapshot_layer *known, struct err *err);
/* The writable pair above. */
int vm_disk_add_top(struct vm_disk *v, size_t number, int disk_dir_fd, struct err *err);
/* Close all descriptors (the monitor has them), keep the description. */
void vm_disks_forget_fds(struct vm_disks *v);
void vm_disks_finish(struct vm_disks *v);

/* What --device takes. restore: layers come later, by the control socket, unless some are remote. To be freed; NULL: no memory. */
char *vm_disk_device(const struct vm_disk *v, bool restore);
bool vm_disk_is_attached_later(const struct vm_disk *v, bool restore);

/* A new pair of a generation: two descriptors, the first with its lock. */
int vm_disk_create_pair(int disk_dir_fd, size_t number, unsigned generation, uint64_t size, int ret_fd[2],
			struct err *err);
/* Generations whose data file the monitor has open; others are removed. Sorted; how many, or -errno. */
enum { VM_DISK_GENERATIONS_MAX = SNAPSHOT_LAYERS_MAX };
int vm_disk_generations(int disk_dir_fd, size_t number, unsigned ret[VM_DISK_GENERATIONS_MAX], struct err *err);
void vm_disk_pair_names(size_t number, unsigned generation, char data[40], char index[40]);

/* Hard link of the open file `fd`, which is `path`, as `name` in dir_fd: 1; 0: it cannot be linked; or -errno. */
int vm_disk_link(int fd, const char *path, int dir_fd, const char *name, struct err *err);
/* Contents of a file into a new one, sharing blocks where the file system can. Returns the new descriptor. */
int vm_disk_copy(int fd, int dir_fd, const char *name, struct err *err);

/* What a file is now: its size (of a block device too) and the time of its last change. */
int vm_disk_file_facts(int fd, uint64_t *ret_size, int64_t *ret_mtime_ns);
