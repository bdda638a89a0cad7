/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks as sources of an import. qemu-img, which nobody here wrote, makes qcow2 files of every kind from one raw disk; each
 * has to read as that disk. What is damaged or out of reach is refused by name.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/disk_source.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/home.h"

enum { SIZE = 6 << 20, CLUSTER = 64 << 10 };

static struct home home;
static uint8_t disk[SIZE];
static struct err err;

static char *in_home(const char *name)
{
	static char path[4][128];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", home.path, name);
	return p;
}

static void write_file(const char *name, const void *p, size_t n)
{
	_cleanup_close_ int fd = open(in_home(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_full(fd, p, n), 0);
}

static void patch(const char *name, off_t at, const void *p, size_t n)
{
	_cleanup_close_ int fd = open(in_home(name), O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fd_pwrite_full(fd, p, n, at), 0);
}

static uint64_t get64(const char *name, off_t at)
{
	_cleanup_close_ int fd = open(in_home(name), O_RDONLY | O_CLOEXEC);
	uint64_t v;

	assert_int_equal(fd_pread_full(fd, &v, sizeof(v), at), sizeof(v));
	return be64toh(v);
}

/* Text, numbers, holes, and pieces smaller than a cluster: what compresses, what does not, and what is not there. */
static int set_up(void **s)
{
	uint32_t x = 12345;

	(void)s;
	home_make(&home);
	for (size_t i = 0; i < 1 << 20; i++)
		disk[i] = (uint8_t)((unsigned char)"coffer "[i % 7] + i / CLUSTER);
	for (size_t i = 2 << 20; i < (2 << 20) + (300 << 10); i++) {
		x = x * 1664525 + 1013904223;
		disk[i] = (uint8_t)(x >> 24);
	}
	memset(disk + (4 << 20) + 5000, 0xab, 3000);
	disk[SIZE - 1] = 7;
	write_file("raw", disk, SIZE);
	return 0;
}

static int tear_down(void **s)
{
	(void)s;
	home_remove(&home);
	return 0;
}

static void make_qcow2(const char *options)
{
	char command[512];

	snprintf(command, sizeof(command), "cd %s && rm -f q && qemu-img convert -f raw -O qcow2 %s raw q", home.path, options);
	if (system(command) != 0)
		fail_msg("qemu-img (package qemu-utils): %s", command);
}

static int open_it(const char *name, struct disk_source **ret, int *ret_fd)
{
	err = ERR_INIT;
	*ret_fd = open(in_home(name), O_RDONLY | O_CLOEXEC);
	assert_true(*ret_fd >= 0);
	int r = disk_source_open(*ret_fd, name, ret, &err);

	if (r < 0)
		*ret_fd = fd_close(*ret_fd);
	return r;
}

/* The whole disk as it is copied; and in odd pieces, back to front. */
static void expect_disk(const char *name, const uint8_t *want, size_t size)
{
	_cleanup_free_ uint8_t *got = malloc(size);
	struct disk_source *d;
	int fd;

	if (open_it(name, &d, &fd) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(d->size, size);
	_cleanup_close_ int to = open(in_home("copy"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (disk_source_copy(d, to, NULL, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(fd_pread_full(to, got, size, 0), size);
	assert_memory_equal(got, want, size);
	memset(got, 0x5a, size);
	for (size_t end = size; end > 0;) {
		size_t n = MIN(end, (size_t)33333);

		end -= n;
		assert_int_equal(disk_source_read(d, got + end, n, end, &err), 0);
	}
	assert_memory_equal(got, want, size);
	disk_source_close(d);
	close(fd);
}

static void qcow2_of(const char *options)
{
	make_qcow2(options);
	expect_disk("q", disk, SIZE);
}

static void plain(void **s) { (void)s; qcow2_of(""); }
static void version_2(void **s) { (void)s; qcow2_of("-o compat=0.10"); }
static void deflated(void **s) { (void)s; qcow2_of("-c"); }
static void zstd_compressed(void **s) { (void)s; qcow2_of("-c -o compression_type=zstd"); }
static void smallest_clusters(void **s) { (void)s; qcow2_of("-o cluster_size=512"); }
static void largest_clusters(void **s) { (void)s; qcow2_of("-o cluster_size=2M"); }
static void largest_deflated_clusters(void **s) { (void)s; qcow2_of("-c -o cluster_size=2M"); }
static void subclusters(void **s) { (void)s; qcow2_of("-o extended_l2=on,cluster_size=128k"); }
static void allocated_in_advance(void **s) { (void)s; qcow2_of("-o preallocation=metadata"); }
static void a_lazy_file_not_closed_in_order(void **s)
{
	uint64_t dirty = htobe64(1);

	(void)s;
	make_qcow2("-o lazy_refcounts=on");
	patch("q", 72, &dirty, sizeof(dirty));
	expect_disk("q", disk, SIZE);
}

static void a_raw_disk_is_read_as_it_is(void **s)
{
	(void)s;
	expect_disk("raw", disk, SIZE);
}

static void a_raw_disk_is_rounded_up_to_a_sector(void **s)
{
	static uint8_t want[1024];

	(void)s;
	memset(want, 1, 700);
	write_file("odd", want, 700);
	expect_disk("odd", want, 1024);
}

static void a_copy_has_holes_where_the_disk_is_zero(void **s)
{
	struct disk_source *d;
	struct stat st;
	int fd;

	(void)s;
	make_qcow2("");
	assert_int_equal(open_it("q", &d, &fd), 0);
	_cleanup_close_ int to = open(in_home("sparse"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_int_equal(disk_source_copy(d, to, NULL, &err), 0);
	assert_int_equal(fstat(to, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_true(st.st_blocks * 512 < 2 << 20);
	disk_source_close(d);
	close(fd);
}

/* ---- refused ---- */

static void expect_refused(int code, const char *text)
{
	struct disk_source *d;
	int fd;

	assert_int_equal(open_it("q", &d, &fd), code);
	if (!strstr(err.text, text))
		fail_msg("'%s' is not in: %s", text, err.text);
}

/* Opens, but cannot be copied. */
static void expect_damaged(const char *text)
{
	struct disk_source *d;
	int fd;

	if (open_it("q", &d, &fd) < 0)
		fail_msg("%s", err.text);
	_cleanup_close_ int to = open(in_home("copy"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(disk_source_copy(d, to, NULL, &err) < 0);
	if (!strstr(err.text, text))
		fail_msg("'%s' is not in: %s", text, err.text);
	disk_source_close(d);
	close(fd);
}

static void a_backing_file_is_not_followed(void **s)
{
	char command[256];

	(void)s;
	snprintf(command, sizeof(command), "cd %s && rm -f q && qemu-img create -q -f qcow2 -b raw -F raw q", home.path);
	assert_int_equal(system(command), 0);
	expect_refused(-ENOTSUP, "only the difference to another file");
}

static void an_external_data_file_is_not_followed(void **s)
{
	char command[256];

	(void)s;
	snprintf(command, sizeof(command), "cd %s && rm -f q && qemu-img create -q -f qcow2 -o data_file=ext q 1M", home.path);
	assert_int_equal(system(command), 0);
	expect_refused(-ENOTSUP, "has its data in another file");
}

static void headers_that_cannot_be_are_refused(void **s)
{
	static const struct {
		off_t at;
		size_t n;
		uint64_t value;
		int code;
		const char *text;
	} cases[] = {
		{ 4, 4, 1, -ENOTSUP, "version 1" },
		{ 20, 4, 8, -EINVAL, "clusters of 2^8" },
		{ 20, 4, 22, -EINVAL, "clusters of 2^22" },
		{ 20, 4, 0xffffffff, -EINVAL, "clusters of 2^4294967295" },
		{ 24, 8, 0, -EFBIG, "a disk of 0 bytes" },
		{ 24, 8, 1ull << 63, -EFBIG, "a disk of 9223372036854775808 bytes" },
		{ 24, 8, 1ull << 40, -EINVAL, "a first table of 1 entries" },
		{ 32, 4, 1, -ENOTSUP, "is encrypted" },
		{ 36, 4, 0xffffffff, -EINVAL, "a first table of 4294967295 entries" },
		{ 40, 8, 1ull << 40, -EINVAL, "the first table is outside the file" },
		{ 40, 8, UINT64_MAX - 65535, -EINVAL, "the first table is outside the file" },
		{ 40, 8, 65537, -EINVAL, "the first table is outside the file" },
		{ 72, 8, 2, -EINVAL, "marked as damaged" },
		{ 72, 8, 1ull << 40, -ENOTSUP, "0x10000000000" },
		{ 100, 4, 103, -EINVAL, "too short for version 3" },
		{ 104, 1, 9, -ENOTSUP, "compression 9" },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t v64 = htobe64(cases[i].value);

		make_qcow2("");
		patch("q", cases[i].at, (char *)&v64 + 8 - cases[i].n, cases[i].n);
		expect_refused(cases[i].code, cases[i].text);
	}
}

static void places_outside_the_file_are_refused(void **s)
{
	static const struct {
		uint64_t value;
		const char *text;
	} cases[] = {
		{ 1ull << 50, "behind the end of the file" },
		{ CLUSTER + 512, "no begin of a cluster" },
		{ 0, NULL },
	};

	(void)s;
	for (size_t i = 0; cases[i].text; i++) {
		uint64_t v = htobe64(cases[i].value), l1, l2;

		make_qcow2("");
		l1 = get64("q", 40);
		l2 = get64("q", (off_t)l1) & 0x00fffffffffffe00ull;
		patch("q", (off_t)l2, &v, sizeof(v));
		expect_damaged(cases[i].text);
		make_qcow2("");
		patch("q", (off_t)l1, &v, sizeof(v));
		expect_damaged(cases[i].text);
	}
}

static void a_damaged_compressed_cluster_is_named(void **s)
{
	static const uint8_t rubbish[256] = { 0xff, 0xff, 0xff, 0xff };

	(void)s;
	for (int zstd = 0; zstd < 2; zstd++) {
		make_qcow2(zstd ? "-c -o compression_type=zstd" : "-c");
		uint64_t l2 = get64("q", (off_t)get64("q", 40)) & 0x00fffffffffffe00ull;
		uint64_t entry = get64("q", (off_t)l2);

		assert_true(entry >> 62 & 1);
		patch("q", (off_t)(entry & ((1ull << 54) - 1)), rubbish, sizeof(rubbish));
		expect_damaged("the compressed cluster for 0 of the disk");
	}
}

static void a_file_cut_anywhere_is_refused_or_reads_as_it_was(void **s)
{
	struct stat st;

	(void)s;
	make_qcow2("-c");
	assert_int_equal(stat(in_home("q"), &st), 0);
	/* The last cluster's padding may go; nothing else. */
	for (off_t size = st.st_size - 1024; size > 8; size = size * 7 / 8) {
		struct disk_source *d;
		int fd, r;

		assert_int_equal(truncate(in_home("q"), size), 0);
		r = open_it("q", &d, &fd);
		if (r == 0) {
			_cleanup_close_ int to = open(in_home("copy"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

			r = disk_source_copy(d, to, NULL, &err);
			disk_source_close(d);
			close(fd);
		}
		if (r == 0)
			fail_msg("cut at %lld, and nobody noticed", (long long)size);
		assert_non_null(strstr(err.text, "'q'"));
	}
}

static void what_is_no_disk_is_refused(void **s)
{
	struct disk_source *d;
	int fd;

	(void)s;
	write_file("q", "", 0);
	assert_int_equal(open_it("q", &d, &fd), -EINVAL);
	assert_non_null(strstr(err.text, "is empty"));
	assert_int_equal(open_it("", &d, &fd), -EINVAL);
	assert_non_null(strstr(err.text, "neither a file nor a block device"));
	write_file("q", "QFI\xfb\0\0\0\3short", 13);
	expect_refused(-EINVAL, "ends inside its header");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(version_2),
		cmocka_unit_test(deflated),
		cmocka_unit_test(zstd_compressed),
		cmocka_unit_test(smallest_clusters),
		cmocka_unit_test(largest_clusters),
		cmocka_unit_test(largest_deflated_clusters),
		cmocka_unit_test(subclusters),
		cmocka_unit_test(allocated_in_advance),
		cmocka_unit_test(a_lazy_file_not_closed_in_order),
		cmocka_unit_test(a_raw_disk_is_read_as_it_is),
		cmocka_unit_test(a_raw_disk_is_rounded_up_to_a_sector),
		cmocka_unit_test(a_copy_has_holes_where_the_disk_is_zero),
		cmocka_unit_test(a_backing_file_is_not_followed),
		cmocka_unit_test(an_external_data_file_is_not_followed),
		cmocka_unit_test(headers_that_cannot_be_are_refused),
		cmocka_unit_test(places_outside_the_file_are_refused),
		cmocka_unit_test(a_damaged_compressed_cluster_is_named),
		cmocka_unit_test(a_file_cut_anywhere_is_refused_or_reads_as_it_was),
		cmocka_unit_test(what_is_no_disk_is_refused),
	};

	return cmocka_run_group_tests_name("disk_source", tests, set_up, tear_down);
}
