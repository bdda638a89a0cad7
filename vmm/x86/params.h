/* SPDX-License-Identifier: Apache-2.0 */
/* What the two boot protocols want in memory beside the kernel. All return 0 or -EFAULT (memory below 1 MiB missing). */
#pragma once
#include "vmm/memory.h"
#include "vmm/x86/kernel.h"

struct boot_initrd {
	uint64_t start, size; /* size 0: none */
};

/* 64-bit Linux protocol: boot_params at X86_BOOT_PARAMS, its random seed, GDT and page tables. */
int params_write_linux(struct mem *m, const struct setup_header *hdr, uint64_t cmdline_len, const struct boot_initrd *initrd);

/* PVH: hvm_start_info at X86_START_INFO with its module list and memory map. */
int params_write_pvh(struct mem *m, const struct boot_initrd *initrd);
