/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bzImage: what distributions ship as vmlinuz (Linux Documentation/x86/boot.rst).
 *
 * Guest contract: the 64-bit entry, 0x200 bytes into the protected-mode part, with boot_params in rsi. The real-mode part
 * is not loaded: only its header is read. The kernel is put where it prefers to run; its decompressor works inside
 * [pref_address, pref_address + init_size), so that is what it claims, however small the file.
 *
 * Trust: every header field is hostile.
 */
#include <errno.h>
#include <string.h>

#include "lib/le.h"
#include "lib/util.h"
#include "vmm/x86/kernel.h"
#include "vmm/x86/layout.h"

enum {
	SECTOR = 512,
	HEADER_AT = 0x1f1,
	BOOT_FLAG_AT = 0x1fe,
	MAGIC_AT = 0x202,
	BOOT_FLAG = 0xaa55,
	HEADER_LENGTH_AT = 0x201, /* second byte of the jump: the header ends at 0x202 + this */
	HEADER_MIN_END = 0x264,   /* up to init_size, which protocol 2.10 has */
	VERSION_MIN = 0x020c,
	DEFAULT_SETUP_SECTORS = 4,
	DEFAULT_CMDLINE = 255,
	ENTRY64 = 0x200,
	SYSSIZE_UNIT = 16,
};
#define MAGIC "HdrS"
#define INIT_SIZE_MAX (1ull << 30)
#define PREF_ADDRESS_MAX (1ull << 40)

bool bzimage_probe(const struct kernel_file *f)
{
	return f->head_len >= MAGIC_AT + 4 && memcmp(f->head + MAGIC_AT, MAGIC, 4) == 0 &&
	       le16_load(f->head + BOOT_FLAG_AT) == BOOT_FLAG;
}

static int check_header(const struct kernel_file *f, const struct setup_header *h, uint32_t header_end, struct err *err)
{
	if (h->version < VERSION_MIN)
		return err_set(err, -ENOTSUP, "kernel '%s': boot protocol %u.%02u is too old, 2.12 (Linux 3.8) is needed", f->name,
			       h->version >> 8, h->version & 0xff);
	if (header_end < HEADER_MIN_END || header_end > f->head_len)
		return err_set(err, -EINVAL, "kernel '%s': damaged setup header (it ends at 0x%x)", f->name, header_end);
	if (!(h->loadflags & LOADED_HIGH))
		return err_set(err, -ENOTSUP, "kernel '%s': a zImage, only bzImage is supported", f->name);
	if (!(h->xloadflags & XLF_KERNEL_64))
		return err_set(err, -ENOTSUP, "kernel '%s' has no 64-bit entry: a 64-bit x86 kernel is needed", f->name);
	if (h->pref_address < X86_KERNEL_MIN || h->pref_address > PREF_ADDRESS_MAX ||
	    h->pref_address % MEM_PAGE_SIZE)
		return err_set(err, -EINVAL, "kernel '%s': damaged setup header (preferred address 0x%llx)", f->name,
			       (unsigned long long)h->pref_address);
	if (h->init_size == 0 || h->init_size > INIT_SIZE_MAX)
		return err_set(err, -EINVAL, "kernel '%s': damaged setup header (init_size 0x%x)", f->name, h->init_size);
	return 0;
}

int bzimage_parse(const struct kernel_file *f, struct kernel *ret, struct err *err)
{
	struct setup_header *h = &ret->hdr;
	uint32_t header_end = MAGIC_AT + f->head[HEADER_LENGTH_AT];
	uint64_t setup, code, present;
	int r;

	memcpy(h, f->head + HEADER_AT, MIN(sizeof(*h), (size_t)f->head_len - HEADER_AT));
	r = check_header(f, h, header_end, err);
	if (r < 0)
		return r;
	/* What lies beyond the header's own end is code, not fields. */
	if (header_end - HEADER_AT < sizeof(*h))
		memset((uint8_t *)h + (header_end - HEADER_AT), 0, sizeof(*h) - (header_end - HEADER_AT));

	setup = ((h->setup_sects ? h->setup_sects : DEFAULT_SETUP_SECTORS) + 1ull) * SECTOR;
	code = (uint64_t)h->syssize * SYSSIZE_UNIT;
	if (code < ENTRY64 + SYSSIZE_UNIT)
		return err_set(err, -EINVAL, "kernel '%s': damaged setup header (syssize 0x%x)", f->name, h->syssize);
	/* syssize is rounded up; a signature may follow. */
	present = f->size > setup ? MIN(f->size - setup, code) : 0;
	if (present + SYSSIZE_UNIT <= code) {
		uint64_t whole = setup + code;

		return err_set(err, -EINVAL, "kernel '%s' is truncated: %llu of %llu bytes are there", f->name,
			       (unsigned long long)f->size, (unsigned long long)whole);
	}

	ret->protocol = BOOT_LINUX64;
	ret->start = h->pref_address;
	ret->end = ret->start + MAX((uint64_t)h->init_size, present);
	ret->entry = ret->start + ENTRY64;
	ret->cmdline_max = h->cmdline_size ? h->cmdline_size : DEFAULT_CMDLINE;
	ret->initrd_end = (uint64_t)h->initrd_addr_max + 1;
	ret->nsegments = 1;
	ret->segment[0] = (struct kernel_segment){ .off = setup, .len = present, .gpa = ret->start };
	return 0;
}
