/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A running VM's root disk as an image: what `coffer pack` does.
 *
 * In this order: the VM's record is read, and the image it was started from is held and compared with the VM's lowest layers;
 * a draft in the store of images gets these layers (links); the monitor is asked for a cut of the root disk (vmm/control.h,
 * CONTROL_SNAPSHOT_DISKS); when it is ready the guest flushes and freezes its root; the monitor makes a new pair the top, and
 * the guest thaws; the old top is sealed while the guest runs. All the VM has written since its image, of several
 * generations if snapshots or packs were taken, is made one layer (pack_layer.h); the draft is published.
 *
 * Killed at any step: the agent thaws when its connection ends, the monitor either did not take the new pair or goes
 * on with it (vm_disks.h), the draft is swept, and there is no image or the whole one.
 *
 * What of the run does not get into an image: machine-id (the agent empties it for the freeze), and what lies in memory:
 * host name, /run, /dev, /proc, /sys, the state of the random generator. /tmp and /var are on the disk and belong to it.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "devices/backend/zfile.h"
#include "host/image.h"
#include "host/progress.h"
#include "host/vm_open.h"
#include "lib/err.h"

struct pack {
	/* In. */
	const char *to;          /* name of the image */
	const char *message;     /* NULL: none */
	const char *from;        /* what to call the VM in the image's source; NULL: its id */
	bool replace;
	bool compress;
	struct zfile_options zfile;
	int signal_fd;           /* -1: none */
	struct progress *progress; /* may be NULL */

	/* Out. */
	char id[IMAGE_SHA256_LEN + 1];
	uint64_t size;           /* of the disk */
	uint64_t data;           /* bytes of it in the new layer */
	uint64_t bytes;          /* of its file */
	size_t layers;           /* of the image */
	uint64_t frozen_ns, pause_ns; /* file systems, processors stood still for */
};

int pack_vm(struct vm_handle *vm, struct pack *p, struct err *err);

#define PACK_COMPRESS_DEFAULT "zstd"
/* none, lz4[:LEVEL], zstd[:LEVEL]; NULL: the default. */
int pack_parse_compress(const char *text, struct pack *p, struct err *err);
