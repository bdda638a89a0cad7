/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest contract: what is not RAM here is not to be touched. The video window (0xA0000 to the tables) is left out, as
 * firmware does; the tables and KVM's own pages are reserved.
 */
#include "vmm/x86/e820.h"

#include "lib/util.h"
#include "vmm/x86/layout.h"

static int add(struct e820_range *r, int n, uint64_t start, uint64_t end, enum e820_type type)
{
	if (start < end)
		r[n++] = (struct e820_range){ start, end, type };
	return n;
}

int e820_build(uint64_t ram, struct e820_range ret[E820_MAX_RANGES])
{
	uint64_t low = MIN(ram, MEM_HOLE_START);
	int n = 0;

	n = add(ret, n, 0, X86_LOW_RAM_END, E820_TYPE_RAM);
	n = add(ret, n, X86_TABLES_START, X86_TABLES_END, E820_TYPE_RESERVED);
	n = add(ret, n, X86_KERNEL_MIN, low, E820_TYPE_RAM);
	n = add(ret, n, X86_IDENTITY_MAP, X86_KVM_PAGES_END, E820_TYPE_RESERVED);
	n = add(ret, n, MEM_HOLE_END, MEM_HOLE_END + (ram - low), E820_TYPE_RAM);
	return n;
}
