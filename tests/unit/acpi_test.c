/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ACPI tables: found through the root pointer, check sums right, and iasl (package acpica-tools) takes them apart
 * and puts them together again without a complaint.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "vmm/x86/acpi.h"
#include "vmm/x86/layout.h"

#define AT 0xE1000ull

enum { MANY = 5 + 16 };

struct fixture {
	uint8_t buf[ACPI_MAX_SIZE];
	long len;
	struct boot_device dev[BOOT_MAX_DEVICES + 1];
	struct boot_config c;
	struct err err;
};

static int setup(void **ctx)
{
	static struct fixture f;
	const struct boot_device platform[] = {
		{ "PNP0501", 0x3f8, 8, true, 4 },       { NULL, 0x60, 5, true, 0 },
		{ "QEMU0001", 0x505, 1, true, 0 },      { BOOT_HID_GED, 0x600, GED_REG_SIZE, true, 9 },
		{ BOOT_HID_VMGENID, 0, 0, true, 0 },
	};

	memset(&f, 0, sizeof(f));
	memcpy(f.dev, platform, sizeof(platform));
	for (uint32_t i = 0; i < 16; i++)
		f.dev[5 + i] = (struct boot_device){ "LNRO0005", 0xD0000000 + 0x1000 * i, 0x200, false, 5 + i };
	f.c = (struct boot_config){ .nvcpus = 4, .device = f.dev, .ndevices = MANY };
	*ctx = &f;
	return 0;
}

static void build(struct fixture *f)
{
	f->len = acpi_build(&f->c, AT, f->buf, sizeof(f->buf), &f->err);
	if (f->len < 0)
		fail_msg("%s", f->err.text);
}

static uint8_t sum(const uint8_t *p, size_t n)
{
	uint8_t s = 0;

	while (n-- > 0)
		s = (uint8_t)(s + *p++);
	return s;
}

/* A table by its guest address, its length and check sum verified. */
static const uint8_t *table_at(struct fixture *f, uint64_t gpa)
{
	const uint8_t *t = f->buf + (gpa - AT);

	assert_true(gpa >= AT && gpa + 36 <= AT + (uint64_t)f->len);
	assert_int_equal(gpa % 16, 0);
	assert_true(le32_load(t + 4) <= AT + (uint64_t)f->len - gpa);
	assert_int_equal(sum(t, le32_load(t + 4)), 0);
	return t;
}

static const uint8_t *table(struct fixture *f, const char *signature)
{
	const uint8_t *xsdt = table_at(f, le64_load(f->buf + 24));

	assert_memory_equal(xsdt, "XSDT", 4);
	for (uint32_t at = 36; at < le32_load(xsdt + 4); at += 8) {
		const uint8_t *t = table_at(f, le64_load(xsdt + at));

		if (memcmp(t, signature, 4) == 0)
			return t;
		if (memcmp(t, "FACP", 4) == 0 && strcmp(signature, "DSDT") == 0)
			return table_at(f, le64_load(t + 140));
	}
	fail_msg("no %s", signature);
	return NULL;
}

static void test_root_pointer(void **ctx)
{
	struct fixture *f = *ctx;

	build(f);
	assert_memory_equal(f->buf, "RSD PTR ", 8);
	assert_int_equal(f->buf[15], 2);
	assert_int_equal(le32_load(f->buf + 20), 36);
	assert_int_equal(sum(f->buf, 20), 0);
	assert_int_equal(sum(f->buf, 36), 0);
}

static void test_fadt_is_hardware_reduced_with_reset_and_sleep(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t *t;

	build(f);
	t = table(f, "FACP");
	assert_int_equal(le32_load(t + 4), 276);
	assert_int_equal(t[8], 6);
	assert_int_equal(le32_load(t + 112) & (1 << 20 | 1 << 10), 1 << 20 | 1 << 10);
	assert_int_equal(le16_load(t + 109) & 1 << 1, 0); /* no 8042 */
	assert_int_equal(t[116], 1);                      /* reset register: a port */
	assert_int_equal(le64_load(t + 120), 0x602);
	assert_int_equal(t[128], GED_RESET_VALUE);
	assert_int_equal(le64_load(t + 248), 0x600);
	assert_int_equal(le64_load(t + 260), 0x601);
	assert_int_equal(le32_load(t + 36), 0); /* no FACS */
}

static void test_madt_lists_every_processor(void **ctx)
{
	struct fixture *f = *ctx;

	for (uint32_t n = 1; n <= 32; n = n == 1 ? 31 : n + 1) {
		const uint8_t *t;
		uint32_t seen = 0;

		f->c.nvcpus = n;
		build(f);
		t = table(f, "APIC");
		assert_int_equal(le32_load(t + 36), 0xFEE00000);
		for (uint32_t at = 44; at < le32_load(t + 4); at += t[at + 1]) {
			if (t[at] == 1) {
				assert_int_equal(le32_load(t + at + 4), 0xFEC00000);
			} else if (t[at] == 0) {
				assert_int_equal(t[at + 2], seen);
				assert_int_equal(t[at + 3], seen);
				assert_int_equal(le32_load(t + at + 4), 1);
				seen++;
			}
		}
		assert_int_equal(seen, n);
	}
}

static bool contains(const uint8_t *t, const void *what, size_t n)
{
	return memmem(t, le32_load(t + 4), what, n) != NULL;
}

static void test_dsdt_describes_every_virtio_window(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t *t;

	build(f);
	t = table(f, "DSDT");
	for (uint32_t i = 0; i < 16; i++) {
		uint8_t res[] = { 0x86, 9, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0x89, 6, 0, 3, 1, 0, 0, 0, 0 };

		le32_store(res + 4, 0xD0000000 + 0x1000 * i);
		le32_store(res + 17, 5 + i);
		assert_true(contains(t, res, sizeof(res)));
	}
}

static void test_unannounced_device_is_left_out(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t keyboard[] = { 0x47, 1, 0x60, 0, 0x60, 0 };

	build(f);
	assert_false(contains(table(f, "DSDT"), keyboard, sizeof(keyboard)));
}

static void test_without_event_device_there_is_no_sleep(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t *t;

	f->c.ndevices = 1;
	build(f);
	t = table(f, "FACP");
	assert_int_equal(le32_load(t + 112) & 1 << 10, 0);
	assert_int_equal(le64_load(t + 120), 0);
	assert_false(contains(table(f, "DSDT"), "_S5_", 4));
}

static void test_what_cannot_be_announced_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const struct boot_device bad[] = {
		{ "PNP0501", 0xfffc, 8, true, 4 },
		{ "PNP0501", 0x100, 0x100, true, 4 },
		{ "LNRO0005", 0xfffff000, 0x2000, false, 4 },
		{ "LNRO0005", 0x100000000, 0x200, false, 4 },
		{ "LNRO0005", UINT64_MAX, 0x200, false, 4 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		f->dev[0] = bad[i];
		assert_int_equal(acpi_build(&f->c, AT, f->buf, sizeof(f->buf), &f->err), -EINVAL);
		assert_true(strstr(f->err.text, bad[i].hid));
	}
	f->dev[0].hid = NULL;
	f->c.ndevices = BOOT_MAX_DEVICES + 1;
	assert_int_equal(acpi_build(&f->c, AT, f->buf, sizeof(f->buf), &f->err), -EINVAL);
	f->c.ndevices = MANY;
	f->c.nvcpus = 0;
	assert_int_equal(acpi_build(&f->c, AT, f->buf, sizeof(f->buf), &f->err), -EINVAL);
}

static void test_short_buffer_is_refused_at_any_length(void **ctx)
{
	struct fixture *f = *ctx;
	static uint8_t buf[ACPI_MAX_SIZE];

	build(f);
	for (long n = 0; n < f->len; n++)
		assert_int_equal(acpi_build(&f->c, AT, buf, (size_t)n, NULL), -ENOSPC);
	assert_int_equal(acpi_build(&f->c, AT, buf, (size_t)f->len, NULL), f->len);
	assert_memory_equal(buf, f->buf, (size_t)f->len);
}

static void test_the_largest_machine_fits(void **ctx)
{
	struct fixture *f = *ctx;

	for (size_t i = 5; i < BOOT_MAX_DEVICES; i++)
		f->dev[i] = (struct boot_device){ "LNRO0005", 0xD0000000 + 0x1000 * i, 0x200, false, 23 };
	f->c.ndevices = BOOT_MAX_DEVICES;
	f->c.nvcpus = 32;
	build(f);
	assert_true(f->len < 16 << 10);
	table(f, "DSDT");
}

static void test_written_below_1_mib(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t got[36];
	struct mem m;

	build(f);
	assert_int_equal(mem_init(&m, -1, MIB(2), NULL), 0);
	assert_int_equal(acpi_write(&m, &f->c, NULL), 0);
	assert_int_equal(mem_read(&m, GPA(X86_RSDP), got, sizeof(got)), 0);
	assert_memory_equal(got, f->buf, sizeof(got));
	mem_finish(&m);
}

/* Run iasl in dir; its words go to dir/log. */
static int iasl(const char *dir, const char *a, const char *b)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		int fd;

		if (chdir(dir) < 0)
			_exit(126);
		fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
		dup2(fd, 1);
		dup2(fd, 2);
		execlp("iasl", "iasl", a, b, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void no_complaints(const char *dir)
{
	char path[96], text[32 << 10];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/log", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	n = fd_read_full(fd, text, sizeof(text) - 1);
	fd_close(fd);
	assert_true(n > 0);
	text[n] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (strstr(line, "0 Errors, 0 Warnings, 0 Remarks"))
			continue;
		if (strcasestr(line, "error") || strcasestr(line, "warning") || strcasestr(line, "remark"))
			fail_msg("iasl: %s", line);
	}
}

static void put_table(const char *dir, const char *name, const uint8_t *t)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/%s.dat", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fd_write_full(fd, t, le32_load(t + 4)), 0);
	fd_close(fd);
}

static void test_iasl_has_no_complaints(void **ctx)
{
	struct fixture *f = *ctx;
	const char *const names[] = { "DSDT", "FACP", "APIC", "XSDT" };
	char dir[] = "/tmp/acpi_test.XXXXXX", file[16], cmd[64];

	if (system("command -v iasl >/dev/null 2>&1") != 0)
		skip();
	assert_non_null(mkdtemp(dir));
	f->c.nvcpus = 32;
	build(f);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		put_table(dir, names[i], strcmp(names[i], "XSDT") ? table(f, names[i]) : table_at(f, le64_load(f->buf + 24)));
		snprintf(file, sizeof(file), "%s.dat", names[i]);
		assert_int_equal(iasl(dir, "-d", file), 0);
		snprintf(file, sizeof(file), "%s.dsl", names[i]);
		assert_int_equal(iasl(dir, "-tc", file), 0);
	}
	no_complaints(dir);
	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_root_pointer, setup),
		cmocka_unit_test_setup(test_fadt_is_hardware_reduced_with_reset_and_sleep, setup),
		cmocka_unit_test_setup(test_madt_lists_every_processor, setup),
		cmocka_unit_test_setup(test_dsdt_describes_every_virtio_window, setup),
		cmocka_unit_test_setup(test_unannounced_device_is_left_out, setup),
		cmocka_unit_test_setup(test_without_event_device_there_is_no_sleep, setup),
		cmocka_unit_test_setup(test_what_cannot_be_announced_is_refused, setup),
		cmocka_unit_test_setup(test_short_buffer_is_refused_at_any_length, setup),
		cmocka_unit_test_setup(test_the_largest_machine_fits, setup),
		cmocka_unit_test_setup(test_written_below_1_mib, setup),
		cmocka_unit_test_setup(test_iasl_has_no_complaints, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
