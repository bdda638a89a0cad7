/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM with one disk of layers whose monitor is a program of the test: it has the disk's pair open, takes new pairs, seals
 * old ones, or fails at one of the moments where a real one can. In a private home.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "host/launch.h"
#include "tests/harness/home.h"

enum behaviour { GOOD, REFUSES, FAILS_AFTER_THE_CUT, FAILS_TO_SEAL, IS_AT_IT };

struct snapshot_vm {
	struct home home;
	struct launch launch; /* its name is "vm" */
	pid_t monitor;
	int how_fd;           /* each request for a snapshot is served as the next byte here says */
	const volatile unsigned *cuts; /* tops that have become layers */
};

void snapshot_vm_start(struct snapshot_vm *v);
void snapshot_vm_end(struct snapshot_vm *v);
/* The monitor serves n further requests so. */
void snapshot_vm_serve(const struct snapshot_vm *v, enum behaviour how, unsigned n);
/* All that `coffer snapshot` does, without asking for a behaviour. */
int snapshot_vm_take(const char *to, bool diff, struct err *err);
/* Layers of its only disk, each compared with what the manifest says of it. */
size_t snapshot_vm_layers_of(const char *name);
/* Writes the snapshot's manifest again, with that change. */
void snapshot_vm_change(const char *name, void (*fn)(struct snapshot_manifest *m));
