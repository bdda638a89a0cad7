/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a snapshot is: its manifest.json; and, in the same form, what a running VM is (machine.json in its directory,
 * from which its next snapshot's manifest is made).
 *
 * The text has one form only: that which snapshot_manifest_format gives. It ends with a checksum of itself, and a text
 * that is not byte for byte what its own contents give is refused, so no flipped byte, lost member or added one goes
 * unseen.
 *
 * Trust: hostile. Sizes, counts and strings are bounded, file names stay in the snapshot's directory. Paths that lead
 * out of it are a disk's file (an image, a base) and the parent; they are opened for reading only. Addresses of remote layers are
 * http(s); what comes from there has the digest that the manifest says.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "vmm/control.h"

enum {
	SNAPSHOT_FORMAT = 2,         /* 1 where nothing of 2 is needed: layers from remote blobs */
	SNAPSHOT_MANIFEST_MAX = 1 << 20,
	SNAPSHOT_DISKS_MAX = CONTROL_DISKS_MAX,
	SNAPSHOT_LAYERS_MAX = 240,   /* of a disk: their descriptors go in one message (FD_PASS_MAX) */
	SNAPSHOT_DEVICES_MAX = 32,
	SNAPSHOT_STRING_MAX = 4096,
	SNAPSHOT_FILE_NAME_MAX = 64,
	SNAPSHOT_ID_LEN = 32,        /* hexadecimal digits */
	SNAPSHOT_HASH_LEN = 16,      /* XXH3-64 */
	SNAPSHOT_DIGEST_LEN = 32,    /* XXH3-128 */
	SNAPSHOT_SHA256_LEN = 64,
	SNAPSHOT_URL_MAX = 2048,
};

#define SNAPSHOT_MANIFEST "manifest.json"
#define SNAPSHOT_STATE "state"
#define SNAPSHOT_RAM "ram"
#define SNAPSHOT_RAM_INDEX "ram.index"

enum snapshot_what { SNAPSHOT_WHAT_SNAPSHOT, SNAPSHOT_WHAT_VM };

/* In a snapshot, a layer is a file or, when not all of it had arrived, remote: the blob of this SHA-256, which the cache has, or gets
 * from `url`. In a VM's it can be both: then the file is used where it is there. */
struct snapshot_layer {
	char *file;          /* a name in the directory; in a VM's: a name in its disk directory, or an absolute path; "": none */
	uint64_t size;       /* bytes of the file, or blob */
	uint64_t index_hash; /* struct lsmt_info; 0: not known */
	char digest[SNAPSHOT_DIGEST_LEN + 1]; /* of the file; "": not known yet (in a VM's, or remote) */
	char *url;           /* of a remote one; NULL */
	char sha256[SNAPSHOT_SHA256_LEN + 1]; /* of one that is, or was, remote; "" */
};

enum snapshot_disk_kind {
	SNAPSHOT_DISK_FILE,   /* a file that is only read: path */
	SNAPSHOT_DISK_LAYERS, /* layers, on the file `path` when that is not "" */
	SNAPSHOT_DISK_RAW,    /* a file that is written in place: cannot be captured (in a VM's only) */
};

struct snapshot_disk {
	enum snapshot_disk_kind kind;
	uint64_t size;        /* of the disk, in bytes */
	char *path;           /* absolute, or "" */
	uint64_t path_size;   /* what that file was then */
	int64_t path_mtime_ns;
	char *image;          /* name of the image it is, or begins with, in the store; or "" */
	struct snapshot_layer *layer; /* lowest first */
	size_t nlayers;
};

struct snapshot_cpu {
	char vendor[13];
	uint32_t family, model, stepping;
	char features[SNAPSHOT_HASH_LEN + 1]; /* hash of what CPUID says the processor can do */
};

struct snapshot_file {
	uint64_t size;
	char hash[SNAPSHOT_HASH_LEN + 1]; /* "" for ram, which has checksums of its own */
};

struct snapshot_manifest {
	enum snapshot_what what;
	char *version;        /* Coffer's */
	char id[SNAPSHOT_ID_LEN + 1];        /* "" in a VM's */
	char parent_id[SNAPSHOT_ID_LEN + 1]; /* "" : none. In a VM's: the last snapshot, what a diff would be against */
	char *parent_path;    /* absolute,
			or relative to the directory that the snapshot's is in; "" when it has no name */
	int64_t created_ms;   /* since 1970 */

	uint64_t cpus, memory; /* memory in bytes */
	char *cmdline;        /* of the guest's kernel, for information */
	char **device;        /* --device options besides disks, in their order */
	size_t ndevices;

	struct snapshot_cpu cpu;
	char *kvm;            /* "kvm_intel", "kvm_amd", "kvm_pvm" or "unknown" */

	struct snapshot_disk *disk; /* the n-th is disk n */
	size_t ndisks;

	struct snapshot_file state, ram, ram_index;
	uint64_t level;       /* of zstd; 0: raw */

	/* What commands want to know of a VM (struct vm_config). */
	char *image, *user, *cwd, *kernel, *hostname;
};

/* A deep copy of a layer, with another name (NULL: the same): 0 or -ENOMEM, with *ret to be finished in both cases. */
int snapshot_layer_copy(const struct snapshot_layer *from, const char *file, struct snapshot_layer *ret);
void snapshot_layer_finish(struct snapshot_layer *l);
/* Nothing but a blob elsewhere? */
bool snapshot_layer_is_remote(const struct snapshot_layer *l);

/* Accepts a zeroed one, and one that a failed parse left. */
void snapshot_manifest_finish(struct snapshot_manifest *m);

/* The text, to be freed; NULL: no memory, or a string that is not UTF-8. Strings that are NULL are written as "". */
char *snapshot_manifest_format(const struct snapshot_manifest *m);

/* 0; -EINVAL (damaged, or not one), -ENOTSUP (of a newer version). `name` is for messages. */
int snapshot_manifest_parse(const char *name, enum snapshot_what what, const char *text, size_t len,
			    struct snapshot_manifest *ret, struct err *err);

/* Whether a --device option names no file of the host, and is no disk: what a snapshot may have. */
bool snapshot_device_is_plain(const char *device);

/* A deep copy; 0 or -ENOMEM. */
int snapshot_manifest_copy(const struct snapshot_manifest *m, struct snapshot_manifest *ret);

/* XXH3-64 and XXH3-128 of bytes and of a file, as hexadecimal digits. */
void snapshot_hash(const void *p, size_t n, char ret[SNAPSHOT_HASH_LEN + 1]);
int snapshot_hash_file(int fd, const char *name, uint64_t *ret_size, char ret[SNAPSHOT_HASH_LEN + 1], struct err *err);
int snapshot_digest_file(int fd, const char *name, char ret[SNAPSHOT_DIGEST_LEN + 1], struct err *err);
