/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of boot_load share: a kernel file in memory, a guest, and looks into what was loaded. */
#pragma once
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

static inline int setup(void **ctx)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	f.c = (struct boot_config){ .kernel_fd = -1, .kernel_name = "vmlinuz", .initrd_fd = -1, .initrd_name = "initrd",
				    .nvcpus = 1 };
	f.m.vm_fd = -1;
	snprintf(f.name, sizeof(f.name), "/tmp/boot_test.XXXXXX");
	return (*ctx = mkdtemp(f.name) ? &f : NULL) ? 0 : -1;
}

static inline int teardown(void **ctx)
{
	struct fixture *f = *ctx;

	mem_finish(&f->m);
	fd_close(f->c.kernel_fd);
	fd_close(f->c.initrd_fd);
	rmdir(f->name);
	return 0;
}

/* Bytes that tell their place, so that a wrong offset is seen. */
static inline void pattern(uint8_t *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)((i + seed) * 2654435761u >> 16);
}

static inline int make_file(const void *data, size_t n)
{
	int fd = memfd_create("boot_test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_full(fd, data, n), 0);
	return fd;
}

static inline struct setup_header *header(struct fixture *f)
{
	return (void *)(f->file + 0x1f1);
}

static inline void make_bzimage(struct fixture *f)
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

static inline int load(struct fixture *f, uint64_t ram)
{
	mem_finish(&f->m);
	assert_int_equal(mem_init(&f->m, -1, ram, NULL), 0);
	f->c.kernel_fd = fd_close(f->c.kernel_fd);
	f->c.kernel_fd = make_file(f->file, f->len);
	memset(&f->err, 0, sizeof(f->err));
	return boot_load(&f->m, &f->c, &f->e, &f->err);
}

static inline void loads(struct fixture *f, uint64_t ram)
{
	if (load(f, ram) != 0)
		fail_msg("%s", f->err.text);
}

static inline void refuses(struct fixture *f, uint64_t ram, const char *words)
{
	struct boot_entry before = f->e;

	assert_true(load(f, ram) < 0);
	if (!strstr(f->err.text, words))
		fail_msg("'%s' does not say '%s'", f->err.text, words);
	assert_memory_equal(&before, &f->e, sizeof(before));
}

static inline void same_in_memory(struct fixture *f, uint64_t gpa, const uint8_t *want, size_t n)
{
	uint8_t *got = malloc(n);

	assert_int_equal(mem_read(&f->m, GPA(gpa), got, n), 0);
	assert_memory_equal(got, want, n);
	free(got);
}

static inline struct boot_params params(struct fixture *f)
{
	struct boot_params p;

	assert_int_equal(mem_read(&f->m, GPA(f->e.arg), &p, sizeof(p)), 0);
	return p;
}

static inline void give_initrd(struct fixture *f, size_t n)
{
	uint8_t *p = malloc(n);

	pattern(p, n, 7);
	f->c.initrd_fd = fd_close(f->c.initrd_fd);
	f->c.initrd_fd = make_file(p, n);
	free(p);
}

static inline void initrd_is_right(struct fixture *f, size_t n)
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

static inline void cmdline_of(struct fixture *f, char *buf, size_t n)
{
	memset(buf, 'x', n);
	buf[n] = 0;
	f->c.cmdline = buf;
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
