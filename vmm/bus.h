/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bus: which device answers an address. Two sorted arrays, port I/O and memory-mapped I/O.
 *
 * Ranges are added while the VM is made, checked for overlap, then the bus is frozen: look-ups run from all
 * vCPU threads without a lock. Handlers get the offset into their range. An access that crosses the end of
 * a range, or that nobody claims, reads as all ones and writes nowhere.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"

enum bus_space { BUS_PIO, BUS_MMIO };
enum { BUS_MAX_RANGES = 128 };

struct bus_ops {
	/* len is 1, 2, 4 or 8 (PIO: up to 4). data holds len little-endian bytes. Called from vCPU threads. */
	void (*read)(void *opaque, uint64_t offset, void *data, uint32_t len);
	void (*write)(void *opaque, uint64_t offset, const void *data, uint32_t len);
};

struct bus_range {
	uint64_t base;
	uint64_t size;
	const struct bus_ops *ops;
	void *opaque;
	const char *name; /* for errors; static or owned by the device */
};

struct bus {
	struct bus_range range[2][BUS_MAX_RANGES]; /* by enum bus_space, sorted by base */
	int n[2];
	bool frozen;
};

/* -EBUSY when frozen, -EEXIST on overlap (the text names both), -ENOSPC, -EINVAL for an empty or wrapping range. */
int bus_add(struct bus *b, enum bus_space space, uint64_t base, uint64_t size, const struct bus_ops *ops,
	    void *opaque, const char *name, struct err *err);
void bus_freeze(struct bus *b);
/* Returns true when a device claimed it (the monitor counts unclaimed accesses). */
bool bus_read(const struct bus *b, enum bus_space space, uint64_t addr, void *data, uint32_t len);
bool bus_write(const struct bus *b, enum bus_space space, uint64_t addr, const void *data, uint32_t len);
const struct bus_range *bus_find(const struct bus *b, enum bus_space space, uint64_t addr);
