/* SPDX-License-Identifier: Apache-2.0 */
/* The disks' part of taking a snapshot: which layers there are, new pairs above them, and the sealed ones into the
 * draft. */
#pragma once
#include "host/snapshot_store.h"
#include "host/vm_disks.h"
#include "host/vmdir.h"
#include "lib/err.h"

struct snapshot_layers_one {
	int fd;             /* -1: remote, and not all of it is in the cache */
	int hold_fd;        /* of one in the cache: it stays there as long as this is open; else -1 */
	char file[SNAPSHOT_STRING_MAX + 1]; /* as the record has it; of one in the cache: where its data is */
	char digest[SNAPSHOT_DIGEST_LEN + 1];
	const struct snapshot_layer *blob; /* the record's, when it is, or was, remote; else NULL */
	bool linked;
	bool late;          /* of the VM's generation: perhaps not sealed when it should have been */
	unsigned generation;
};

struct snapshot_layers_disk {
	size_t number;
	uint64_t size;
	unsigned next;      /* generation */
	int new_fd[2];      /* -1 until they are made */
	struct snapshot_layers_one *layer;
	size_t nlayers;
};

struct snapshot_layers {
	const struct vmdir *dir;
	struct snapshot_layers_disk disk[SNAPSHOT_DISKS_MAX];
	size_t n;
};

#define SNAPSHOT_LAYERS_NONE ((struct snapshot_layers){ 0 })

/* Find and open all layers of the VM's disks of layers; `record` is what machine.json says, and has to stay. A remote layer is a file like
 * others when the cache has all of it, else it stays one. Opens the VM's disk
 * directory. -E2BIG when there are too many for a snapshot; a few more may be there for the `last` one of this VM. */
int snapshot_layers_open(struct snapshot_layers *l, struct vmdir *dir, const struct snapshot_manifest *record, bool last,
			 struct err *err);
/* Make the next pairs, and link what there is into the draft (the tops of now are sealed in place later). */
int snapshot_layers_prepare(struct snapshot_layers *l, const struct snapshot_draft *d, struct err *err);
/* The descriptors of the new pairs, as CONTROL_SNAPSHOT takes them; how many. */
size_t snapshot_layers_new_pairs(const struct snapshot_layers *l, int *ret_fd);
/* The monitor is done: copy what could not be linked, check every layer, and describe them in `m`. */
int snapshot_layers_collect(struct snapshot_layers *l, const struct snapshot_draft *d, struct snapshot_manifest *m,
			    uint64_t *ret_bytes, struct err *err);
/* The monitor is done: layer k, if it is one whose sealing failed in an earlier snapshot, is sealed now. */
int snapshot_layers_seal_late(const struct snapshot_layers *l, const struct snapshot_layers_disk *d, size_t k, struct err *err);
/* New pairs that the monitor did not take are removed. */
void snapshot_layers_close(struct snapshot_layers *l);

/* Let the record name all layers that are sealed now, with what `taken` knows of them. */
int snapshot_layers_remember(struct snapshot_manifest *record, const struct snapshot_manifest *taken,
			     const struct vmdir *dir, struct err *err);
