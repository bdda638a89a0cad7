/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF: vmlinux, and any payload that brings a PVH note.
 *
 * Guest contract: a file with the note XEN_ELFNOTE_PHYS32_ENTRY says how it wants to be entered (32-bit, PVH: Xen
 * docs/misc/pvh); one without it is taken for a Linux vmlinux and entered at e_entry in 64-bit mode with boot_params in
 * rsi, as its head_64.S expects. Linux itself has both and is told by its own notes (owner "Linux"): it is entered in
 * 64-bit mode too, which saves it the switch and a search for Xen through 256 CPUID leaves, each an exit, and
 * lets it have a random seed. Segments go to their physical addresses; memory past p_filesz is zero since nobody has
 * written to it.
 *
 * Trust: all headers and notes are hostile. Counts and sizes are bounded by the constants below.
 */
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "vmm/x86/kernel.h"
#include "vmm/x86/layout.h"

enum {
	MAX_PROGRAM_HEADERS = 64,
	MAX_NOTES_SIZE = 64 << 10,
	XEN_NOTE_PHYS32_ENTRY = 18,
};
#define XEN_OWNER "Xen"
#define LINUX_OWNER "Linux"
#define ADDRESS_MAX (1ull << 46)
#define LINUX_ALIGNMENT 0x1000000u

bool elf_probe(const struct kernel_file *f)
{
	return f->head_len >= SELFMAG && memcmp(f->head, ELFMAG, SELFMAG) == 0;
}

static int read_header(const struct kernel_file *f, Elf64_Ehdr *ret, struct err *err)
{
	if (f->head_len < sizeof(*ret))
		return err_set(err, -EINVAL, "kernel '%s' is truncated: %u bytes are no ELF file", f->name, f->head_len);
	memcpy(ret, f->head, sizeof(*ret));
	if (ret->e_ident[EI_CLASS] != ELFCLASS64 || ret->e_ident[EI_DATA] != ELFDATA2LSB || ret->e_machine != EM_X86_64)
		return err_set(err, -ENOTSUP, "kernel '%s': an ELF file for another machine, x86-64 is needed", f->name);
	if (ret->e_type != ET_EXEC && ret->e_type != ET_DYN)
		return err_set(err, -ENOTSUP, "kernel '%s': an ELF file that is not executable (type %u)", f->name, ret->e_type);
	if (ret->e_phentsize != sizeof(Elf64_Phdr) || ret->e_phnum == 0 || ret->e_phnum > MAX_PROGRAM_HEADERS)
		return err_set(err, -EINVAL, "kernel '%s': %u program headers of %u bytes, expected 1 to %d of %zu", f->name,
			       ret->e_phnum, ret->e_phentsize, MAX_PROGRAM_HEADERS, sizeof(Elf64_Phdr));
	return 0;
}

static int read_at(const struct kernel_file *f, uint64_t off, void *buf, size_t len, struct err *err)
{
	ssize_t n;

	if (off > f->size || len > f->size - off)
		return err_set(err, -EINVAL, "kernel '%s' is truncated: it has %llu bytes, its headers point to %llu", f->name,
			       (unsigned long long)f->size, (unsigned long long)off + len);
	n = fd_pread_full(f->fd, buf, len, (off_t)off);
	if (n < 0)
		return err_errno(err, (int)n, "kernel '%s': read", f->name);
	if ((size_t)n < len)
		return err_set(err, -EINVAL, "kernel '%s' became shorter while it was read", f->name);
	return 0;
}

static int add_segment(const struct kernel_file *f, const Elf64_Phdr *p, struct kernel *ret, struct err *err)
{
	if (p->p_offset > f->size || p->p_filesz > f->size - p->p_offset)
		return err_set(err, -EINVAL, "kernel '%s' is truncated: it has %llu bytes, a segment of %llu starts at %llu",
			       f->name, (unsigned long long)f->size, (unsigned long long)p->p_filesz,
			       (unsigned long long)p->p_offset);
	if (p->p_filesz > p->p_memsz || p->p_memsz > ADDRESS_MAX || p->p_paddr > ADDRESS_MAX)
		return err_set(err, -EINVAL, "kernel '%s': damaged program header (0x%llx bytes at 0x%llx)", f->name,
			       (unsigned long long)p->p_memsz, (unsigned long long)p->p_paddr);
	if (p->p_paddr < X86_KERNEL_MIN)
		return err_set(err, -ENOTSUP, "kernel '%s': a segment at 0x%llx, below 1 MiB where boot data lies", f->name,
			       (unsigned long long)p->p_paddr);
	ret->start = ret->nsegments || ret->end ? MIN(ret->start, (uint64_t)p->p_paddr) : p->p_paddr;
	ret->end = MAX(ret->end, (uint64_t)p->p_paddr + p->p_memsz);
	if (p->p_filesz)
		ret->segment[ret->nsegments++] = (struct kernel_segment){ p->p_offset, p->p_filesz, p->p_paddr };
	return 0;
}

/* What the notes say about how to enter. */
struct entry_notes {
	bool linux_own; /* a note of Linux's own is there */
	bool pvh;
	uint64_t pvh_entry;
};

static int take_note(const struct kernel_file *f, const Elf64_Nhdr *n, const uint8_t *name, const uint8_t *desc,
		     struct entry_notes *ret, struct err *err)
{
	if (n->n_namesz == sizeof(LINUX_OWNER) && memcmp(name, LINUX_OWNER, sizeof(LINUX_OWNER)) == 0)
		ret->linux_own = true;
	if (n->n_type != XEN_NOTE_PHYS32_ENTRY || n->n_namesz != sizeof(XEN_OWNER) ||
	    memcmp(name, XEN_OWNER, sizeof(XEN_OWNER)) != 0)
		return 0;
	if (n->n_descsz != 4 && n->n_descsz != 8)
		return err_set(err, -EINVAL, "kernel '%s': PVH note of %u bytes, expected 4 or 8", f->name, n->n_descsz);
	ret->pvh = true;
	ret->pvh_entry = n->n_descsz == 4 ? le32_load(desc) : le64_load(desc);
	return 0;
}

/* The notes of one PT_NOTE. A malformed one ends the search in its segment: what follows it has no known place. */
static int read_notes(const struct kernel_file *f, const Elf64_Phdr *p, struct entry_notes *ret, struct err *err)
{
	_cleanup_free_ uint8_t *notes = NULL;
	size_t at = 0, len = p->p_filesz;
	/* Alignment 8 exists (GNU properties); everything else pads to 4. */
	size_t align = p->p_align == 8 ? 8 : 4;
	int r;

	if (p->p_filesz > MAX_NOTES_SIZE)
		return err_set(err, -EINVAL, "kernel '%s': notes of %llu bytes, at most %d are read", f->name,
			       (unsigned long long)p->p_filesz, MAX_NOTES_SIZE);
	if (len == 0)
		return 0;
	notes = malloc(len);
	if (!notes)
		return err_errno(err, -ENOMEM, "kernel '%s'", f->name);
	r = read_at(f, p->p_offset, notes, len, err);
	while (r == 0 && len - at >= sizeof(Elf64_Nhdr)) {
		Elf64_Nhdr n;
		size_t name, desc, next;

		memcpy(&n, notes + at, sizeof(n));
		name = at + sizeof(n);
		desc = name + ALIGN_UP((size_t)n.n_namesz, align);
		next = desc + ALIGN_UP((size_t)n.n_descsz, align);
		if (desc > len || n.n_descsz > len - desc)
			return 0;
		r = take_note(f, &n, notes + name, notes + desc, ret, err);
		if (next > len)
			return r;
		at = next;
	}
	return r;
}

/* The few header fields that Linux looks at when it is entered directly. */
static void make_setup_header(struct setup_header *h)
{
	h->boot_flag = 0xaa55;
	memcpy(&h->header, "HdrS", 4);
	h->version = 0x020c;
	h->loadflags = LOADED_HIGH;
	h->kernel_alignment = LINUX_ALIGNMENT;
	h->cmdline_size = KERNEL_CMDLINE_SIZE - 1;
	h->initrd_addr_max = (uint32_t)(KERNEL_INITRD_END - 1);
}

int elf_parse(const struct kernel_file *f, struct kernel *ret, struct err *err)
{
	Elf64_Phdr ph[MAX_PROGRAM_HEADERS] = { 0 };
	Elf64_Ehdr eh = { 0 };
	struct entry_notes notes = { 0 };
	bool pvh;
	int r;

	_Static_assert((int)MAX_PROGRAM_HEADERS <= (int)KERNEL_MAX_SEGMENTS, "every header may be a segment");
	r = read_header(f, &eh, err);
	if (r < 0)
		return r;
	r = read_at(f, eh.e_phoff, ph, eh.e_phnum * sizeof(ph[0]), err);
	if (r < 0)
		return r;
	for (int i = 0; i < eh.e_phnum; i++) {
		r = 0;
		if (ph[i].p_type == PT_LOAD && ph[i].p_memsz)
			r = add_segment(f, &ph[i], ret, err);
		else if (ph[i].p_type == PT_NOTE)
			r = read_notes(f, &ph[i], &notes, err);
		if (r < 0)
			return r;
	}
	if (ret->nsegments == 0)
		return err_set(err, -EINVAL, "kernel '%s': an ELF file with nothing to load", f->name);
	pvh = notes.pvh && !notes.linux_own;
	ret->protocol = pvh ? BOOT_PVH : BOOT_LINUX64;
	ret->entry = pvh ? notes.pvh_entry : eh.e_entry;
	if (ret->entry < ret->start || ret->entry >= ret->end)
		return err_set(err, -EINVAL, "kernel '%s': %s entry 0x%llx is outside the file's segments (0x%llx to 0x%llx)", f->name,
			       pvh ? "PVH" : "64-bit", (unsigned long long)ret->entry, (unsigned long long)ret->start,
			       (unsigned long long)ret->end);
	ret->cmdline_max = KERNEL_CMDLINE_SIZE - 1;
	ret->initrd_end = KERNEL_INITRD_END;
	if (!pvh)
		make_setup_header(&ret->hdr);
	return 0;
}
