/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_load for x86: see boot.h.
 *
 * How it works: the file's format is told by its first bytes; its parser says what goes where (kernel.h); then, in this
 * order, everything is checked that can be (command line, memory, initrd) before the first byte of guest memory is
 * written. The initrd goes as high as it may in low RAM, or below the kernel when there is more room: a guest of 64 MiB has
 * its gap there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "vmm/boot.h"
#include "vmm/boot_file.h"
#include "vmm/x86/acpi.h"
#include "vmm/x86/kernel.h"
#include "vmm/x86/layout.h"
#include "vmm/x86/params.h"

/* Files that are often given by mistake. */
static int refuse_unknown(const struct kernel_file *f, struct err *err)
{
	static const struct {
		uint32_t at;
		uint8_t len;
		const char *magic, *what;
	} known[] = {
		{ 56, 4, "ARM\x64", "an arm64 Image: an x86-64 kernel is needed" },
		{ 4, 4, "zimg", "a compressed EFI image: an x86-64 bzImage or vmlinux is needed" },
		{ 0, 2, "\x1f\x8b", "gzip-compressed: decompress it first (gunzip)" },
		{ 0, 6, "\xfd" "7zXZ\0", "xz-compressed: decompress it first (unxz)" },
		{ 0, 4, "\x28\xb5\x2f\xfd", "zstd-compressed: decompress it first (unzstd)" },
		{ 0, 3, "BZh", "bzip2-compressed: decompress it first (bunzip2)" },
		{ 0, 4, "\x02\x21\x4c\x18", "lz4-compressed: decompress it first (unlz4)" },
		{ 0, 6, "070701", "an initramfs (cpio), not a kernel" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (f->head_len >= known[i].at + known[i].len &&
		    memcmp(f->head + known[i].at, known[i].magic, known[i].len) == 0)
			return err_set(err, -ENOTSUP, "kernel '%s' is %s", f->name, known[i].what);
	return err_set(err, -EINVAL, "kernel '%s' is neither a bzImage nor an ELF file", f->name);
}

static int parse(struct kernel_file *f, struct kernel *ret, struct err *err)
{
	ssize_t n;
	int r = boot_file_size(f->fd, "kernel", f->name, &f->size, err);

	if (r < 0)
		return r;
	n = fd_pread_full(f->fd, f->head, sizeof(f->head), 0);
	if (n < 0)
		return err_errno(err, (int)n, "kernel '%s': read", f->name);
	f->head_len = (uint32_t)n;
	if (elf_probe(f))
		return elf_parse(f, ret, err);
	if (bzimage_probe(f))
		return bzimage_parse(f, ret, err);
	return refuse_unknown(f, err);
}

static int check_cmdline(const struct kernel *k, const char *cmdline, struct err *err)
{
	uint64_t max = MIN(k->cmdline_max, (uint64_t)X86_CMDLINE_MAX - 1);
	size_t len = strlen(cmdline);

	if (len > max)
		return err_set(err, -E2BIG, "command line of %zu bytes: this kernel takes at most %llu", len,
			       (unsigned long long)max);
	return 0;
}

static int check_memory(const struct kernel_file *f, const struct kernel *k, uint64_t low, struct err *err)
{
	if (k->end <= low)
		return 0;
	if (k->end > MEM_HOLE_START)
		return err_set(err, -ENOTSUP, "kernel '%s' wants memory at 0x%llx, above 3 GiB", f->name,
			       (unsigned long long)k->end - 1);
	return err_set(err, -ENOMEM, "kernel '%s' needs at least %llu MiB of guest memory, there are %llu", f->name,
		       (unsigned long long)((k->end + MIB(1) - 1) >> 20), (unsigned long long)(low >> 20));
}

/* As high as the kernel lets it be, else between 1 MiB and the kernel. */
static int place_initrd(const struct boot_config *c, const struct kernel *k, uint64_t low, struct boot_initrd *ret,
			struct err *err)
{
	const char *name = c->initrd_name ? c->initrd_name : "?";
	uint64_t top = ALIGN_DOWN(MIN(low, k->initrd_end), (uint64_t)MEM_PAGE_SIZE);
	uint64_t below = ALIGN_DOWN(MIN(top, k->start), (uint64_t)MEM_PAGE_SIZE);
	uint64_t above = top > k->end ? top - ALIGN_UP(k->end, (uint64_t)MEM_PAGE_SIZE) : 0;
	uint64_t gap = below > X86_KERNEL_MIN ? below - X86_KERNEL_MIN : 0;
	uint64_t size;
	int r = boot_file_size(c->initrd_fd, "initrd", name, &size, err);

	if (r < 0)
		return r;
	uint64_t pages = ALIGN_UP(size, (uint64_t)MEM_PAGE_SIZE);

	if (size > UINT32_MAX || (pages > above && pages > gap))
		return err_set(err, -ENOMEM,
			       "initrd '%s' of %llu KiB does not fit: beside the kernel there are %llu KiB, give the guest more "
			       "memory", name, (unsigned long long)(size >> 10), (unsigned long long)(MAX(above, gap) >> 10));
	ret->start = (pages <= above ? top : below) - pages;
	ret->size = size;
	return 0;
}

static int load_files(struct mem *m, const struct boot_config *c, const struct kernel *k, const struct boot_initrd *initrd,
		      struct err *err)
{
	int r;

	for (uint32_t i = 0; i < k->nsegments; i++) {
		r = boot_file_load(m, c->kernel_fd, k->segment[i].off, k->segment[i].gpa, k->segment[i].len);
		if (r == -ENODATA)
			return err_set(err, -EINVAL, "kernel '%s' became shorter while it was read", c->kernel_name);
		if (r < 0)
			return err_errno(err, r, "kernel '%s': read", c->kernel_name);
	}
	if (!initrd->size)
		return 0;
	r = boot_file_load(m, c->initrd_fd, 0, initrd->start, initrd->size);
	if (r == -ENODATA)
		return err_set(err, -EINVAL, "initrd '%s' became shorter while it was read", c->initrd_name);
	return r < 0 ? err_errno(err, r, "initrd '%s': read", c->initrd_name) : 0;
}

static int write_params(struct mem *m, const struct kernel *k, const char *cmdline, const struct boot_initrd *initrd,
			struct err *err)
{
	int r = mem_write(m, GPA(X86_CMDLINE), cmdline, strlen(cmdline) + 1);

	if (r == 0)
		r = k->protocol == BOOT_PVH ? params_write_pvh(m, initrd)
					    : params_write_linux(m, &k->hdr, strlen(cmdline), initrd);
	return r < 0 ? err_errno(err, r, "write the boot parameters") : 0;
}

int boot_load(struct mem *m, const struct boot_config *config, struct boot_entry *ret, struct err *err)
{
	_cleanup_free_ struct kernel_file *file = calloc(1, sizeof(*file));
	_cleanup_free_ struct kernel *k = calloc(1, sizeof(*k));
	const char *cmdline = config->cmdline ? config->cmdline : "";
	uint64_t low = MIN(m->size, MEM_HOLE_START);
	struct boot_initrd initrd = { 0 };
	int r;

	if (!file || !k)
		return err_errno(err, -ENOMEM, "kernel");
	file->fd = config->kernel_fd;
	file->name = config->kernel_name ? config->kernel_name : "?";
	r = parse(file, k, err);
	if (r == 0)
		r = check_cmdline(k, cmdline, err);
	if (r == 0)
		r = check_memory(file, k, low, err);
	if (r == 0 && config->initrd_fd >= 0)
		r = place_initrd(config, k, low, &initrd, err);
	if (r == 0)
		r = load_files(m, config, k, &initrd, err);
	if (r == 0)
		r = write_params(m, k, cmdline, &initrd, err);
	if (r == 0)
		r = acpi_write(m, config, err);
	if (r < 0)
		return r;
	*ret = (struct boot_entry){
		.protocol = k->protocol,
		.ip = k->entry,
		.arg = k->protocol == BOOT_PVH ? X86_START_INFO : X86_BOOT_PARAMS,
		.rsdp = X86_RSDP,
		.kernel_start = k->start,
		.kernel_end = k->end,
		.initrd_start = initrd.start,
		.initrd_size = initrd.size,
	};
	return 0;
}
