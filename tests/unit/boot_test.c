/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_load: every kind of kernel file, command line, initrd and memory size. Files are made here; what was put into
 * guest memory is read back.
 */
#include <asm/bootparam.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/boot.h"
#include "vmm/x86/layout.h"

enum { SETUP = 3 * 512, CODE = 64 << 10, FILE_MAX = 256 << 10 };
#define PREF 0x1000000ull
#define INIT_SIZE (4u << 20)

struct fixture {
	struct mem m;
	uint8_t file[FILE_MAX]; /* the kernel */
	size_t len;
	struct boot_config c;
	struct boot_entry e;
	struct err err;
	char name[32]; /* of a file in /tmp */
};

static int setup(void **ctx)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	f.c = (struct boot_config){ .kernel_fd = -1, .kernel_name = "vmlinuz", .initrd_fd = -1, .initrd_name = "initrd",
				    .nvcpus = 1 };
	f.m.vm_fd = -1;
	snprintf(f.name, sizeof(f.name), "/tmp/boot_test.XXXXXX");
	return (*ctx = mkdtemp(f.name) ? &f : NULL) ? 0 : -1;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	mem_finish(&f->m);
	fd_close(f->c.kernel_fd);
	fd_close(f->c.initrd_fd);
	rmdir(f->name);
	return 0;
}

/* Bytes that tell their place, so that a wrong offset is seen. */
static void pattern(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)((i + seed) * 2654435761u >> 16);
}

static int make_file(const void *data, size_t n)
{
	int fd = memfd_create("boot_test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_full(fd, data, n), 0);
	return fd;
}

static struct setup_header *header(struct fixture *f)
{
	return (void *)(f->file + 0x1f1);
}

static void make_bzimage(struct fixture *f)
{
	struct setup_header h = {
		.setup_sects = SETUP / 512 - 1,
		.boot_flag = 0xaa55,
		.jump = 0x6aeb, /* the header ends at 0x202 + 0x6a */
		.header = 0x53726448,
		.version = 0x020f,
		.loadflags = LOADED_HIGH,
		.syssize = CODE / 16,
		.xloadflags = XLF_KERNEL_64,
		.pref_address = PREF,
		.init_size = INIT_SIZE,
		.cmdline_size = 2047,
		.initrd_addr_max = 0x7fffffff,
		.kernel_alignment = 0x200000,
		.relocatable_kernel = 1,
	};

	pattern(f->file + SETUP, CODE, 1);
	memcpy(f->file + 0x1f1, &h, sizeof(h));
	f->len = SETUP + CODE;
}

static int load(struct fixture *f, uint64_t ram)
{
	mem_finish(&f->m);
	assert_int_equal(mem_init(&f->m, -1, ram, NULL), 0);
	f->c.kernel_fd = fd_close(f->c.kernel_fd);
	f->c.kernel_fd = make_file(f->file, f->len);
	memset(&f->err, 0, sizeof(f->err));
	return boot_load(&f->m, &f->c, &f->e, &f->err);
}

static void loads(struct fixture *f, uint64_t ram)
{
	if (load(f, ram) != 0)
		fail_msg("%s", f->err.text);
}

static void refuses(struct fixture *f, uint64_t ram, const char *words)
{
	struct boot_entry before = f->e;

	assert_true(load(f, ram) < 0);
	if (!strstr(f->err.text, words))
		fail_msg("'%s' does not say '%s'", f->err.text, words);
	assert_memory_equal(&before, &f->e, sizeof(before));
}

static void same_in_memory(struct fixture *f, uint64_t gpa, const uint8_t *want, size_t n)
{
	uint8_t *got = malloc(n);

	assert_int_equal(mem_read(&f->m, GPA(gpa), got, n), 0);
	assert_memory_equal(got, want, n);
	free(got);
}

static struct boot_params params(struct fixture *f)
{
	struct boot_params p;

	assert_int_equal(mem_read(&f->m, GPA(f->e.arg), &p, sizeof(p)), 0);
	return p;
}

static void give_initrd(struct fixture *f, size_t n)
{
	uint8_t *p = malloc(n);

	pattern(p, n, 7);
	f->c.initrd_fd = fd_close(f->c.initrd_fd);
	f->c.initrd_fd = make_file(p, n);
	free(p);
}

static void initrd_is_right(struct fixture *f, size_t n)
{
	uint8_t *p = malloc(n);

	pattern(p, n, 7);
	assert_int_equal(f->e.initrd_size, n);
	assert_int_equal(f->e.initrd_start % MEM_PAGE_SIZE, 0);
	assert_true(f->e.initrd_start >= f->e.kernel_end || f->e.initrd_start + n <= f->e.kernel_start);
	assert_true(f->e.initrd_start >= X86_KERNEL_MIN);
	same_in_memory(f, f->e.initrd_start, p, n);
	free(p);
}

/* bzImage */

static void test_bzimage_is_loaded_where_it_wants(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	loads(f, MIB(64));
	assert_int_equal(f->e.protocol, BOOT_LINUX64);
	assert_int_equal(f->e.ip, PREF + 0x200);
	assert_int_equal(f->e.kernel_end, PREF + INIT_SIZE);
	same_in_memory(f, PREF, f->file + SETUP, CODE);
}

static void test_bzimage_header_reaches_boot_params(void **ctx)
{
	struct fixture *f = *ctx;
	struct boot_params p;

	make_bzimage(f);
	f->c.cmdline = "console=ttyS0";
	loads(f, MIB(64));
	p = params(f);
	assert_int_equal(p.hdr.header, 0x53726448);
	assert_int_equal(p.hdr.version, 0x020f);
	assert_int_equal(p.hdr.init_size, INIT_SIZE);
	assert_int_equal(p.hdr.type_of_loader, 0xff);
	assert_int_equal(p.hdr.cmd_line_ptr, X86_CMDLINE);
	assert_int_equal(p.acpi_rsdp_addr, X86_RSDP);
	assert_int_equal(p.sentinel, 0);
	same_in_memory(f, X86_CMDLINE, (const uint8_t *)"console=ttyS0", 14);
	same_in_memory(f, X86_RSDP, (const uint8_t *)"RSD PTR ", 8);
}

static void test_linux_gets_a_random_seed(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t d[2][sizeof(struct setup_data) + 32], zeros[32] = { 0 };

	make_bzimage(f);
	for (int i = 0; i < 2; i++) {
		loads(f, MIB(64));
		assert_int_equal(mem_read(&f->m, GPA(params(f).hdr.setup_data), d[i], sizeof(d[i])), 0);
		assert_int_equal(((struct setup_data *)d[i])->type, SETUP_RNG_SEED);
		assert_int_equal(((struct setup_data *)d[i])->len, 32);
		assert_int_equal(((struct setup_data *)d[i])->next, 0);
		assert_memory_not_equal(d[i] + sizeof(struct setup_data), zeros, 32);
	}
	assert_memory_not_equal(d[0], d[1], sizeof(d[0]));
}

static void test_code_beyond_the_header_is_not_taken_for_fields(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	f->file[0x201] = 0x264 - 0x202; /* the header ends after init_size */
	header(f)->kernel_info_offset = 0x12345678;
	loads(f, MIB(64));
	assert_int_equal(params(f).hdr.kernel_info_offset, 0);
}

static void test_bzimage_with_a_signature_behind_it(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	f->len += 1000;
	loads(f, MIB(64));
}

static void test_bzimage_shorter_by_the_rounding_of_syssize(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	f->len -= 15;
	loads(f, MIB(64));
	f->len -= 1;
	refuses(f, MIB(64), "truncated");
}

static void test_bzimage_truncated_anywhere_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const size_t at[] = { 0x206, 0x230, 0x263, 0x264, 512, 1024, SETUP, SETUP + 1, SETUP + CODE / 2 };

	make_bzimage(f);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		f->len = at[i];
		refuses(f, MIB(64), "kernel 'vmlinuz'");
	}
}

static void test_bzimage_older_than_2_12_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->version = 0x020b;
	refuses(f, MIB(64), "boot protocol 2.11 is too old");
}

static void test_bzimage_for_32_bits_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->xloadflags = 0;
	refuses(f, MIB(64), "no 64-bit entry");
}

static void test_zimage_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->loadflags = 0;
	refuses(f, MIB(64), "zImage");
}

static void test_bzimage_with_wild_addresses_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const uint64_t pref[] = { 0, 0x1000, 0xff000, 0x1000001, 1ull << 41, UINT64_MAX & ~0xfffull };

	make_bzimage(f);
	for (size_t i = 0; i < ARRAY_SIZE(pref); i++) {
		header(f)->pref_address = pref[i];
		refuses(f, MIB(64), "preferred address");
	}
	header(f)->pref_address = PREF;
	header(f)->init_size = 0;
	refuses(f, MIB(64), "init_size");
	header(f)->init_size = UINT32_MAX;
	refuses(f, MIB(64), "init_size");
	header(f)->init_size = INIT_SIZE;
	header(f)->syssize = 0;
	refuses(f, MIB(64), "syssize");
	header(f)->syssize = UINT32_MAX;
	refuses(f, MIB(64), "truncated");
}

static void test_bzimage_above_the_hole_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->pref_address = GIB(4);
	refuses(f, GIB(8), "above 3 GiB");
}

static void test_kernel_larger_than_memory_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	refuses(f, PREF + INIT_SIZE - MEM_PAGE_SIZE, "needs at least 20 MiB of guest memory, there are 19");
	loads(f, PREF + INIT_SIZE);
	refuses(f, MIB(1), "needs at least 20 MiB");
}

/* Command line */

static void cmdline_of(struct fixture *f, char *buf, size_t n)
{
	memset(buf, 'x', n);
	buf[n] = 0;
	f->c.cmdline = buf;
}

static void test_command_line_up_to_the_headers_limit(void **ctx)
{
	struct fixture *f = *ctx;
	char buf[5000];

	make_bzimage(f);
	cmdline_of(f, buf, 2047);
	loads(f, MIB(64));
	same_in_memory(f, X86_CMDLINE, (uint8_t *)buf, 2048);
	for (size_t n = 2048; n <= 4096; n = n == 2048 ? 2049 : n == 2049 ? 4096 : 5000) {
		cmdline_of(f, buf, n);
		refuses(f, MIB(64), "this kernel takes at most 2047");
	}
}

static void test_command_line_limit_is_the_kernels_own(void **ctx)
{
	struct fixture *f = *ctx;
	char buf[5000];

	make_bzimage(f);
	header(f)->cmdline_size = 4096;
	cmdline_of(f, buf, 4096);
	loads(f, MIB(64));
	cmdline_of(f, buf, 4097);
	refuses(f, MIB(64), "command line of 4097 bytes: this kernel takes at most 4096");
}

static void test_command_line_is_bounded_whatever_the_header_says(void **ctx)
{
	struct fixture *f = *ctx;
	static char buf[70000];

	make_bzimage(f);
	header(f)->cmdline_size = UINT32_MAX;
	cmdline_of(f, buf, 65535);
	loads(f, MIB(64));
	cmdline_of(f, buf, 65536);
	refuses(f, MIB(64), "at most 65535");
}

/* initrd */

static void test_initrd_goes_to_the_top_of_low_memory(void **ctx)
{
	struct fixture *f = *ctx;
	const struct {
		uint64_t ram, top;
	} t[] = { { MIB(64), MIB(64) },     { MIB(512), MIB(512) },   { MIB(3071), GIB(2) }, { MIB(3072), GIB(2) },
		  { MIB(3073), GIB(2) },    { MIB(4096), GIB(2) },    { GIB(8), GIB(2) },    { MIB(2047), MIB(2047) },
		  { MIB(2049), GIB(2) } };

	make_bzimage(f);
	give_initrd(f, 100001);
	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		loads(f, t[i].ram);
		initrd_is_right(f, 100001);
		assert_int_equal(ALIGN_UP(f->e.initrd_start + f->e.initrd_size, MEM_PAGE_SIZE), t[i].top);
		assert_int_equal(params(f).hdr.ramdisk_image, f->e.initrd_start);
		assert_int_equal(params(f).hdr.ramdisk_size, 100001);
	}
}

static void test_initrd_obeys_the_kernels_limit(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->initrd_addr_max = 0x37ffffff;
	give_initrd(f, 5000);
	loads(f, GIB(4));
	initrd_is_right(f, 5000);
	assert_int_equal(f->e.initrd_start, 0x38000000 - 0x2000);
}

static void test_initrd_goes_below_the_kernel_when_only_that_fits(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->init_size = 46 << 20; /* to 62 MiB */
	give_initrd(f, 3 << 20);
	loads(f, MIB(64));
	initrd_is_right(f, 3 << 20);
	assert_int_equal(f->e.initrd_start + (3 << 20), PREF);
}

static void test_initrd_that_does_not_fit_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	header(f)->init_size = 46 << 20;
	give_initrd(f, 16 << 20);
	refuses(f, MIB(64), "initrd 'initrd' of 16384 KiB does not fit");
	loads(f, MIB(80));
	give_initrd(f, 15 << 20); /* the gap from 1 MiB to the kernel, exactly */
	loads(f, MIB(64));
	assert_int_equal(f->e.initrd_start, MIB(1));
}

static void test_initrd_empty_or_directory_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	f->c.initrd_fd = make_file("", 0);
	refuses(f, MIB(64), "initrd 'initrd' is empty");
	fd_close(f->c.initrd_fd);
	f->c.initrd_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	refuses(f, MIB(64), "initrd 'initrd' is a directory");
}

static void test_no_initrd_leaves_the_fields_zero(void **ctx)
{
	struct fixture *f = *ctx;

	make_bzimage(f);
	loads(f, MIB(64));
	assert_int_equal(params(f).hdr.ramdisk_image, 0);
	assert_int_equal(params(f).hdr.ramdisk_size, 0);
	assert_int_equal(f->e.initrd_size, 0);
}

/* ELF */

enum { ELF_TEXT = 0x1000, ELF_TEXT_LEN = 3000, ELF_NOTE = 0x400 };
#define ELF_BASE 0x1000000ull
#define ELF_MEMSZ (2u << 20)

static Elf64_Phdr *ph(struct fixture *f, int i)
{
	return (Elf64_Phdr *)(f->file + sizeof(Elf64_Ehdr)) + i;
}

static void make_elf(struct fixture *f)
{
	Elf64_Ehdr e = {
		.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_type = ET_EXEC,
		.e_machine = EM_X86_64,
		.e_entry = ELF_BASE + 0x40,
		.e_phoff = sizeof(e),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1,
	};

	memcpy(f->file, &e, sizeof(e));
	*ph(f, 0) = (Elf64_Phdr){ .p_type = PT_LOAD, .p_offset = ELF_TEXT, .p_filesz = ELF_TEXT_LEN, .p_memsz = ELF_MEMSZ,
				  .p_vaddr = 0xffffffff81000000, .p_paddr = ELF_BASE };
	pattern(f->file + ELF_TEXT, ELF_TEXT_LEN, 3);
	f->len = ELF_TEXT + ELF_TEXT_LEN;
}

static void add_note(struct fixture *f, const char *name, uint32_t type, const void *desc, uint32_t desc_len)
{
	Elf64_Ehdr *e = (void *)f->file;
	Elf64_Phdr *p = ph(f, 1);
	Elf64_Nhdr n = { (uint32_t)strlen(name) + 1, desc_len, type };

	e->e_phnum = 2;
	*p = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = ELF_NOTE, .p_filesz = p->p_filesz, .p_align = 4 };
	memcpy(f->file + ELF_NOTE + p->p_filesz, &n, sizeof(n));
	p->p_filesz += sizeof(n);
	memcpy(f->file + ELF_NOTE + p->p_filesz, name, n.n_namesz);
	p->p_filesz += ALIGN_UP(n.n_namesz, 4u);
	memcpy(f->file + ELF_NOTE + p->p_filesz, desc, desc_len);
	p->p_filesz += ALIGN_UP(desc_len, 4u);
}

static void add_pvh_note(struct fixture *f, uint32_t entry)
{
	add_note(f, "GNU", 3, "some build id", 13);
	add_note(f, "Xen", 18, &entry, sizeof(entry));
}

static void test_elf_without_pvh_note_boots_64_bit(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	add_note(f, "Xen", 6, "linux", 6);
	give_initrd(f, 5000);
	loads(f, MIB(64));
	assert_int_equal(f->e.protocol, BOOT_LINUX64);
	assert_int_equal(f->e.ip, ELF_BASE + 0x40);
	assert_int_equal(f->e.kernel_end, ELF_BASE + ELF_MEMSZ);
	same_in_memory(f, ELF_BASE, f->file + ELF_TEXT, ELF_TEXT_LEN);
	assert_int_equal(params(f).hdr.header, 0x53726448);
	assert_int_equal(params(f).hdr.ramdisk_image, f->e.initrd_start);
	initrd_is_right(f, 5000);
}

struct start_info {
	uint32_t magic, version, flags, nr_modules;
	uint64_t modlist, cmdline, rsdp, memmap;
	uint32_t memmap_entries, reserved;
};

static void test_elf_with_pvh_note_gets_its_start_info(void **ctx)
{
	struct fixture *f = *ctx;
	struct start_info s;
	uint64_t module[4];
	struct {
		uint64_t addr, size;
		uint32_t type, reserved;
	} map[8];

	make_elf(f);
	add_pvh_note(f, ELF_BASE + 0x80);
	f->c.cmdline = "hello";
	give_initrd(f, 70000);
	loads(f, GIB(5));
	assert_int_equal(f->e.protocol, BOOT_PVH);
	assert_int_equal(f->e.ip, ELF_BASE + 0x80);
	assert_int_equal(mem_read(&f->m, GPA(f->e.arg), &s, sizeof(s)), 0);
	assert_int_equal(s.magic, 0x336ec578);
	assert_int_equal(s.version, 1);
	assert_int_equal(s.rsdp, X86_RSDP);
	same_in_memory(f, s.cmdline, (const uint8_t *)"hello", 6);
	assert_int_equal(s.nr_modules, 1);
	assert_int_equal(mem_read(&f->m, GPA(s.modlist), module, sizeof(module)), 0);
	assert_int_equal(module[0], f->e.initrd_start);
	assert_int_equal(module[1], 70000);
	initrd_is_right(f, 70000);
	assert_int_equal(s.memmap_entries, 5);
	assert_int_equal(mem_read(&f->m, GPA(s.memmap), map, 5 * sizeof(map[0])), 0);
	assert_int_equal(map[2].addr, MIB(1));
	assert_int_equal(map[2].size, GIB(3) - MIB(1));
	assert_int_equal(map[2].type, 1);
	assert_int_equal(map[4].addr, GIB(4));
	assert_int_equal(map[4].size, GIB(2));
}

static void test_pvh_note_with_a_64_bit_value(void **ctx)
{
	struct fixture *f = *ctx;
	uint64_t entry = ELF_BASE + 0x10;

	make_elf(f);
	add_note(f, "Xen", 18, &entry, sizeof(entry));
	loads(f, MIB(64));
	assert_int_equal(f->e.ip, entry);
}

static void test_malformed_notes_end_the_search(void **ctx)
{
	struct fixture *f = *ctx;
	Elf64_Nhdr *n;

	make_elf(f);
	add_pvh_note(f, ELF_BASE);
	n = (void *)(f->file + ELF_NOTE);
	n->n_namesz = UINT32_MAX;
	loads(f, MIB(64));
	assert_int_equal(f->e.protocol, BOOT_LINUX64);
	n->n_namesz = 4;
	n->n_descsz = UINT32_MAX - 2;
	loads(f, MIB(64));
	assert_int_equal(f->e.protocol, BOOT_LINUX64);
}

static void test_pvh_note_of_a_wrong_size_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	add_note(f, "Xen", 18, "ab", 2);
	refuses(f, MIB(64), "PVH note of 2 bytes");
}

static void test_entry_outside_the_segments_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	((Elf64_Ehdr *)(void *)f->file)->e_entry = ELF_BASE - 1;
	refuses(f, MIB(64), "64-bit entry 0xffffff is outside");
	make_elf(f);
	add_pvh_note(f, ELF_BASE + ELF_MEMSZ);
	refuses(f, MIB(64), "PVH entry 0x1200000 is outside");
}

static void test_elf_segment_below_1_mib_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	ph(f, 0)->p_paddr = 0x7000;
	refuses(f, MIB(64), "below 1 MiB");
}

static void test_elf_damaged_headers_are_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	ph(f, 0)->p_memsz = ELF_TEXT_LEN - 1;
	refuses(f, MIB(64), "damaged program header");
	make_elf(f);
	ph(f, 0)->p_paddr = UINT64_MAX - 0xfff;
	refuses(f, MIB(64), "damaged program header");
	make_elf(f);
	ph(f, 0)->p_offset = UINT64_MAX;
	refuses(f, MIB(64), "truncated");
	make_elf(f);
	((Elf64_Ehdr *)(void *)f->file)->e_phnum = 65;
	refuses(f, MIB(64), "program headers");
	((Elf64_Ehdr *)(void *)f->file)->e_phnum = 0;
	refuses(f, MIB(64), "program headers");
	make_elf(f);
	((Elf64_Ehdr *)(void *)f->file)->e_phoff = UINT64_MAX - 8;
	refuses(f, MIB(64), "truncated");
	make_elf(f);
	ph(f, 0)->p_type = PT_NULL;
	refuses(f, MIB(64), "nothing to load");
}

static void test_elf_truncated_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const size_t at[] = { 4, 63, 64, 100, ELF_TEXT, ELF_TEXT + ELF_TEXT_LEN - 1 };

	make_elf(f);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		f->len = at[i];
		refuses(f, MIB(64), "kernel 'vmlinuz' is truncated");
	}
}

static void test_elf_for_another_machine_is_refused(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	((Elf64_Ehdr *)(void *)f->file)->e_machine = EM_AARCH64;
	refuses(f, MIB(64), "another machine");
	make_elf(f);
	f->file[EI_CLASS] = ELFCLASS32;
	refuses(f, MIB(64), "another machine");
	make_elf(f);
	((Elf64_Ehdr *)(void *)f->file)->e_type = ET_REL;
	refuses(f, MIB(64), "not executable");
}

static void test_elf_command_line_limit_is_linux_own(void **ctx)
{
	struct fixture *f = *ctx;
	char buf[3000];

	make_elf(f);
	cmdline_of(f, buf, 2047);
	loads(f, MIB(64));
	cmdline_of(f, buf, 2048);
	refuses(f, MIB(64), "at most 2047");
}

/* What is no kernel */

static void test_foreign_files_are_named(void **ctx)
{
	struct fixture *f = *ctx;
	const struct {
		size_t at;
		const char *magic, *words;
	} t[] = {
		{ 0, "\x1f\x8b\x08", "gzip-compressed: decompress it first" },
		{ 0, "\xfd" "7zXZ", "xz-compressed" },
		{ 0, "\x28\xb5\x2f\xfd", "zstd-compressed" },
		{ 56, "ARM\x64", "an arm64 Image" },
		{ 4, "zimg", "compressed EFI image" },
		{ 0, "070701", "an initramfs" },
		{ 0, "hello", "neither a bzImage nor an ELF file" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		memset(f->file, 0, 4096);
		memcpy(f->file + t[i].at, t[i].magic, strlen(t[i].magic));
		f->len = 4096;
		refuses(f, MIB(64), t[i].words);
	}
}

static void test_short_files_are_refused(void **ctx)
{
	struct fixture *f = *ctx;

	f->len = 0;
	refuses(f, MIB(64), "kernel 'vmlinuz' is empty");
	f->file[0] = 0x1f;
	for (f->len = 1; f->len < 70; f->len++)
		refuses(f, MIB(64), "neither");
}

static void open_refuses(const char *path, const char *words)
{
	struct err err = ERR_INIT;

	assert_true(boot_open_file(path, "kernel", &err) < 0);
	if (!strstr(err.text, words) || !strstr(err.text, path))
		fail_msg("'%s' does not say '%s' and '%s'", err.text, path, words);
}

static void test_open_refuses_what_is_no_file(void **ctx)
{
	struct fixture *f = *ctx;
	char path[64];
	int fd;

	open_refuses("/nonexistent/kernel", "No such file");
	open_refuses(f->name, "is a directory");
	open_refuses("/dev/zero", "is a device");
	snprintf(path, sizeof(path), "%s/fifo", f->name);
	assert_int_equal(mkfifo(path, 0600), 0);
	open_refuses(path, "is a FIFO"); /* and does not wait for a writer */
	unlink(path);
	snprintf(path, sizeof(path), "%s/empty", f->name);
	fd_close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	open_refuses(path, "is empty");
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(fd_write_full(fd, "x", 1), 0);
	fd_close(fd);
	fd = boot_open_file(path, "kernel", NULL);
	assert_true(fd >= 0);
	fd_close(fd);
	unlink(path);
}

static void test_open_refuses_a_socket(void **ctx)
{
	struct fixture *f = *ctx;
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/socket", f->name);
	assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	open_refuses(a.sun_path, "socket");
	unlink(a.sun_path);
	fd_close(s);
}

static void test_load_checks_the_descriptor_too(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(mem_init(&f->m, -1, MIB(64), NULL), 0);
	f->c.kernel_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(boot_load(&f->m, &f->c, &f->e, &f->err), -EINVAL);
	assert_true(strstr(f->err.text, "is a directory"));
}

/* Machine state for the 64-bit entry */

static void test_page_tables_map_low_memory_one_to_one(void **ctx)
{
	struct fixture *f = *ctx;
	const uint64_t rams[] = { MIB(64), GIB(1), MIB(1025), GIB(8) };
	const uint64_t dirs[] = { 1, 1, 2, 3 };

	make_bzimage(f);
	for (size_t i = 0; i < ARRAY_SIZE(rams); i++) {
		uint64_t pml4[512], pdpt[512], pd[512];

		loads(f, rams[i]);
		assert_int_equal(mem_read(&f->m, GPA(X86_PML4), pml4, sizeof(pml4)), 0);
		assert_int_equal(pml4[0], X86_PDPT | 3);
		assert_int_equal(pml4[1], 0);
		assert_int_equal(mem_read(&f->m, GPA(pml4[0] & ~0xfffull), pdpt, sizeof(pdpt)), 0);
		assert_int_equal(pdpt[dirs[i]], 0);
		for (uint64_t d = 0; d < dirs[i]; d++) {
			assert_int_equal(mem_read(&f->m, GPA(pdpt[d] & ~0xfffull), pd, sizeof(pd)), 0);
			for (uint64_t k = 0; k < 512; k++)
				assert_int_equal(pd[k], (d * 512 + k) << 21 | 0x83);
		}
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_bzimage_is_loaded_where_it_wants),
		T(test_bzimage_header_reaches_boot_params),
		T(test_linux_gets_a_random_seed),
		T(test_code_beyond_the_header_is_not_taken_for_fields),
		T(test_bzimage_with_a_signature_behind_it),
		T(test_bzimage_shorter_by_the_rounding_of_syssize),
		T(test_bzimage_truncated_anywhere_is_refused),
		T(test_bzimage_older_than_2_12_is_refused),
		T(test_bzimage_for_32_bits_is_refused),
		T(test_zimage_is_refused),
		T(test_bzimage_with_wild_addresses_is_refused),
		T(test_bzimage_above_the_hole_is_refused),
		T(test_kernel_larger_than_memory_is_refused),
		T(test_command_line_up_to_the_headers_limit),
		T(test_command_line_limit_is_the_kernels_own),
		T(test_command_line_is_bounded_whatever_the_header_says),
		T(test_initrd_goes_to_the_top_of_low_memory),
		T(test_initrd_obeys_the_kernels_limit),
		T(test_initrd_goes_below_the_kernel_when_only_that_fits),
		T(test_initrd_that_does_not_fit_is_refused),
		T(test_initrd_empty_or_directory_is_refused),
		T(test_no_initrd_leaves_the_fields_zero),
		T(test_elf_without_pvh_note_boots_64_bit),
		T(test_elf_with_pvh_note_gets_its_start_info),
		T(test_pvh_note_with_a_64_bit_value),
		T(test_malformed_notes_end_the_search),
		T(test_pvh_note_of_a_wrong_size_is_refused),
		T(test_entry_outside_the_segments_is_refused),
		T(test_elf_segment_below_1_mib_is_refused),
		T(test_elf_damaged_headers_are_refused),
		T(test_elf_truncated_is_refused),
		T(test_elf_for_another_machine_is_refused),
		T(test_elf_command_line_limit_is_linux_own),
		T(test_foreign_files_are_named),
		T(test_short_files_are_refused),
		T(test_open_refuses_what_is_no_file),
		T(test_open_refuses_a_socket),
		T(test_load_checks_the_descriptor_too),
		T(test_page_tables_map_low_memory_one_to_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
