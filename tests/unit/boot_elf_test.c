/* SPDX-License-Identifier: Apache-2.0 */
/* boot_load: ELF kernels, by their 64-bit entry and by PVH. */
#include "tests/unit/boot_fixture.h"

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

static void test_linux_with_both_entries_boots_64_bit(void **ctx)
{
	struct fixture *f = *ctx;

	make_elf(f);
	add_note(f, "Linux", 0x100, "", 0);
	add_pvh_note(f, ELF_BASE + 0x80);
	loads(f, MIB(64));
	assert_int_equal(f->e.protocol, BOOT_LINUX64);
	assert_int_equal(f->e.ip, ELF_BASE + 0x40);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_elf_without_pvh_note_boots_64_bit),
		T(test_elf_with_pvh_note_gets_its_start_info),
		T(test_linux_with_both_entries_boots_64_bit),
		T(test_pvh_note_with_a_64_bit_value),
		T(test_malformed_notes_end_the_search),
		T(test_pvh_note_of_a_wrong_size_is_refused),
		T(test_entry_outside_the_segments_is_refused),
		T(test_elf_segment_below_1_mib_is_refused),
		T(test_elf_damaged_headers_are_refused),
		T(test_elf_truncated_is_refused),
		T(test_elf_for_another_machine_is_refused),
		T(test_elf_command_line_limit_is_linux_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
