/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's memory map, in the form of the old BIOS call; used by both boot protocols. */
#pragma once
#include <stdint.h>

enum e820_type { E820_TYPE_RAM = 1, E820_TYPE_RESERVED = 2 };

struct e820_range {
	uint64_t start, end; /* end is exclusive */
	enum e820_type type;
};

enum { E820_MAX_RANGES = 8 };

/* The map of a guest with `ram` bytes (at least 2 MiB), sorted, without overlaps: returns the number of ranges. */
int e820_build(uint64_t ram, struct e820_range ret[E820_MAX_RANGES]);
