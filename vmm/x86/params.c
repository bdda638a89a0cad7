/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boot parameters: see params.h.
 *
 * Guest contract: Linux Documentation/x86/boot.rst "64-bit boot protocol" and zero-page.rst; Xen docs/misc/pvh and
 * start_info.h (version 1) for PVH.
 *
 * How it works: page tables map low RAM one to one in 2 MiB steps, one page directory per started GiB. The GDT serves
 * only until the kernel loads its own. A Linux kernel also gets 32 random bytes as setup data (it mixes them in,
 * then wipes them), so that its generator is seeded before the first process asks.
 */
#include "vmm/x86/params.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

#include "lib/le.h"
#include "lib/util.h"
#include "vmm/x86/e820.h"
#include "vmm/x86/layout.h"

enum { PTE_PRESENT_WRITE = 0x3, PTE_LARGE = 0x80, PT_ENTRIES = 512, LARGE_SHIFT = 21 };
enum { LOADER_UNDEFINED = 0xff, SEED_SIZE = 32 };

static int write_gdt(struct mem *m)
{
	const le64 gdt[] = {
		[X86_SEL_CODE / 8] = le64_make(0x00af9b000000ffff), /* 64-bit code */
		[X86_SEL_DATA / 8] = le64_make(0x00cf93000000ffff), /* flat data */
		[X86_SEL_TSS / 8] = le64_make(0x00008b0000000067),  /* a TSS at 0, never used; its high half is 0 */
		[X86_SEL_TSS / 8 + 1] = le64_make(0),
	};

	_Static_assert(sizeof(gdt) == X86_GDT_SIZE, "the limit that regs.c loads");
	return mem_write(m, GPA(X86_GDT), gdt, sizeof(gdt));
}

static int write_page_tables(struct mem *m)
{
	uint64_t low = MIN(m->size, MEM_HOLE_START);
	uint32_t npd = (uint32_t)((low + GIB(1) - 1) >> 30);
	le64 table[PT_ENTRIES] = { le64_make(X86_PDPT | PTE_PRESENT_WRITE) };
	int r = mem_write(m, GPA(X86_PML4), table, sizeof(table));

	memset(table, 0, sizeof(table));
	for (uint32_t i = 0; i < npd; i++)
		table[i] = le64_make((X86_PD + i * MEM_PAGE_SIZE) | PTE_PRESENT_WRITE);
	if (r == 0)
		r = mem_write(m, GPA(X86_PDPT), table, sizeof(table));
	for (uint32_t i = 0; i < npd && r == 0; i++) {
		for (uint64_t k = 0; k < PT_ENTRIES; k++)
			table[k] = le64_make((i * (uint64_t)PT_ENTRIES + k) << LARGE_SHIFT | PTE_PRESENT_WRITE | PTE_LARGE);
		r = mem_write(m, GPA(X86_PD + i * MEM_PAGE_SIZE), table, sizeof(table));
	}
	return r;
}

/* 0 with the list's address in *ret, or 0 there when the host has no randomness to give without waiting. */
static int write_seed(struct mem *m, uint64_t *ret)
{
	union {
		struct setup_data head;
		uint8_t bytes[sizeof(struct setup_data) + SEED_SIZE];
	} d = { .head = { .type = SETUP_RNG_SEED, .len = SEED_SIZE } };
	int r;

	*ret = 0;
	if (getrandom(d.head.data, SEED_SIZE, GRND_NONBLOCK) != SEED_SIZE)
		return 0;
	r = mem_write(m, GPA(X86_SETUP_DATA), d.bytes, sizeof(d.bytes));
	explicit_bzero(&d, sizeof(d));
	*ret = X86_SETUP_DATA;
	return r;
}

int params_write_linux(struct mem *m, const struct setup_header *hdr, uint64_t cmdline_len, const struct boot_initrd *initrd)
{
	struct boot_params p;
	struct e820_range map[E820_MAX_RANGES];
	uint64_t seed;
	int n, r;

	_Static_assert(sizeof(p) == MEM_PAGE_SIZE, "boot_params is one page");
	memset(&p, 0, sizeof(p));
	r = write_seed(m, &seed);
	if (r < 0)
		return r;
	p.hdr = *hdr;
	p.hdr.type_of_loader = LOADER_UNDEFINED;
	p.hdr.setup_data = seed;
	p.hdr.cmd_line_ptr = cmdline_len ? (uint32_t)X86_CMDLINE : 0;
	p.hdr.ramdisk_image = (uint32_t)initrd->start;
	p.hdr.ramdisk_size = (uint32_t)initrd->size;
	p.acpi_rsdp_addr = X86_RSDP;
	n = e820_build(m->size, map);
	for (int i = 0; i < n; i++)
		p.e820_table[i] = (struct boot_e820_entry){ map[i].start, map[i].end - map[i].start, map[i].type };
	p.e820_entries = (uint8_t)n;
	r = mem_write(m, GPA(X86_BOOT_PARAMS), &p, sizeof(p));
	if (r == 0)
		r = write_gdt(m);
	return r < 0 ? r : write_page_tables(m);
}

#define START_INFO_MAGIC 0x336ec578u

struct start_info {
	le32 magic, version, flags, nr_modules;
	le64 modlist, cmdline, rsdp;
	le64 memmap;
	le32 memmap_entries, reserved;
};

struct start_module {
	le64 start, size, cmdline, reserved;
};

struct start_memmap {
	le64 addr, size;
	le32 type, reserved; /* types as in e820 */
};

int params_write_pvh(struct mem *m, const struct boot_initrd *initrd)
{
	struct {
		struct start_info info;
		struct start_module module;
		struct start_memmap map[E820_MAX_RANGES];
	} s;
	struct e820_range map[E820_MAX_RANGES];
	int n = e820_build(m->size, map);

	memset(&s, 0, sizeof(s));
	s.info.magic = le32_make(START_INFO_MAGIC);
	s.info.version = le32_make(1);
	s.info.cmdline = le64_make(X86_CMDLINE);
	s.info.rsdp = le64_make(X86_RSDP);
	s.info.memmap = le64_make(X86_START_INFO + offsetof(__typeof__(s), map));
	s.info.memmap_entries = le32_make((uint32_t)n);
	if (initrd->size) {
		s.info.nr_modules = le32_make(1);
		s.info.modlist = le64_make(X86_START_INFO + offsetof(__typeof__(s), module));
		s.module.start = le64_make(initrd->start);
		s.module.size = le64_make(initrd->size);
	}
	for (int i = 0; i < n; i++) {
		s.map[i].addr = le64_make(map[i].start);
		s.map[i].size = le64_make(map[i].end - map[i].start);
		s.map[i].type = le32_make(map[i].type);
	}
	return mem_write(m, GPA(X86_START_INFO), &s, sizeof(s));
}
