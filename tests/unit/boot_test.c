/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_load: bzImages, command lines, initrds, and files that are no kernel. Files are made here; what was put into
 * guest memory is read back. ELF kernels are in boot_elf_test.c.
 */
#include "tests/unit/boot_fixture.h"

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
		T(test_foreign_files_are_named),
		T(test_short_files_are_refused),
		T(test_open_refuses_what_is_no_file),
		T(test_open_refuses_a_socket),
		T(test_load_checks_the_descriptor_too),
		T(test_page_tables_map_low_memory_one_to_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
