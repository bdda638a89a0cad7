/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel files of any content through boot_load.
 *
 * Input: one byte that chooses the guest's memory, one for the initrd, the rest is the file. What must hold: a refusal
 * has a text of one line that names the file; an accepted kernel lies in low memory above 1 MiB with its entry inside
 * and the initrd beside it; the tables below 1 MiB are there and what boot puts beside them was not overwritten.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"
#include "vmm/boot.h"
#include "vmm/x86/layout.h"

enum { INITRD_MAX = 256 * 4096 };

static int file_of(const uint8_t *data, size_t n)
{
	int fd = memfd_create("kernel_fuzz", MFD_CLOEXEC);

	FUZZ_REQUIRE(fd >= 0);
	FUZZ_REQUIRE(fd_write_full(fd, data, n) == 0);
	return fd;
}

static void accepted(const struct mem *m, const struct boot_entry *e)
{
	uint64_t low = MIN(m->size, MEM_HOLE_START);
	char rsdp[8];

	FUZZ_REQUIRE(e->kernel_start >= X86_KERNEL_MIN && e->kernel_start < e->kernel_end && e->kernel_end <= low);
	FUZZ_REQUIRE(e->ip >= e->kernel_start && e->ip < e->kernel_end);
	FUZZ_REQUIRE(e->initrd_size == 0 || e->initrd_start >= e->kernel_end ||
		     e->initrd_start + e->initrd_size <= e->kernel_start);
	FUZZ_REQUIRE(e->initrd_size == 0 || (e->initrd_start >= X86_KERNEL_MIN && e->initrd_start + e->initrd_size <= low));
	FUZZ_REQUIRE(mem_read(m, GPA(e->rsdp), rsdp, sizeof(rsdp)) == 0);
	FUZZ_REQUIRE(memcmp(rsdp, "RSD PTR ", 8) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t zeros[INITRD_MAX];
	struct fuzz_input in = { data, size };
	uint64_t ram = MIB(1 + fuzz_u8(&in));
	uint32_t initrd = fuzz_u8(&in) * 4096u;
	struct boot_config c = { .kernel_name = "fuzz", .initrd_fd = -1, .initrd_name = "ramfs", .cmdline = "quiet", .nvcpus = 1 };
	struct boot_entry e;
	struct err err = ERR_INIT;
	struct mem m;

	FUZZ_REQUIRE(mem_init(&m, -1, ram, NULL) == 0);
	c.kernel_fd = file_of(in.p, in.left);
	if (initrd)
		c.initrd_fd = file_of(zeros, initrd);
	if (boot_load(&m, &c, &e, &err) == 0)
		accepted(&m, &e);
	else
		FUZZ_REQUIRE((strstr(err.text, "fuzz") || strstr(err.text, "ramfs") || strstr(err.text, "command line")) && !strchr(err.text, '\n'));
	fd_close(c.kernel_fd);
	fd_close(c.initrd_fd);
	mem_finish(&m);
	return 0;
}
