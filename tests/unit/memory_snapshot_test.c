/* SPDX-License-Identifier: Apache-2.0 */
/* What snapshots need of guest memory, without KVM: page numbers, mapped files, discarding over them, collected dirty
 * bits. */
#include "tests/unit/ram_fixture.h"

static void pages_are_numbered_without_the_hole(void **state)
{
	struct mem m;
	uint64_t run;

	(void)state;
	mem_make(&m, MIB(3073));
	assert_int_equal(mem_pages(&m), 3073 * 256);
	assert_int_equal(mem_page_gpa(&m, 0, &run).v, 0);
	assert_int_equal(run, 3072 * 256);
	assert_int_equal(mem_page_gpa(&m, 3072 * 256 - 1, &run).v, MEM_HOLE_START - MEM_PAGE_SIZE);
	assert_int_equal(run, 1);
	assert_int_equal(mem_page_gpa(&m, 3072 * 256, &run).v, MEM_HOLE_END);
	assert_int_equal(run, 256);
	assert_int_equal(mem_page_gpa(&m, 3073 * 256 - 1, &run).v, MEM_HOLE_END + MIB(1) - MEM_PAGE_SIZE);
	assert_int_equal(run, 1);
	mem_finish(&m);
}

/* A file of `pages` pages, each full of its number (never 0). */
static int numbered_file(uint64_t pages)
{
	int fd = memfd_create("contents", MFD_CLOEXEC);
	uint8_t b[MEM_PAGE_SIZE];

	assert_true(fd >= 0);
	for (uint64_t i = 0; i < pages; i++) {
		memset(b, (int)(i % 255 + 1), sizeof(b));
		assert_int_equal(fd_pwrite_full(fd, b, sizeof(b), (off_t)(i * sizeof(b))), 0);
	}
	return fd;
}

static uint8_t byte_of(const struct mem *m, uint64_t page)
{
	uint8_t b[MEM_PAGE_SIZE];

	assert_int_equal(mem_read(m, page_gpa(m, page), b, sizeof(b)), 0);
	assert_int_equal(b[0], b[sizeof(b) - 1]);
	return b[0];
}

static void map(struct mem *m, uint64_t page, uint64_t npages, int fd, uint64_t off)
{
	struct err err = ERR_INIT;

	if (mem_map_file(m, page, npages, fd, off, &err) < 0)
		fail_msg("%s", err.text);
}

static void a_mapped_file_is_seen_and_not_written(void **state)
{
	struct mem m;
	int fd = numbered_file(256);
	uint8_t b[2] = { 0xee, 0xee };

	(void)state;
	mem_make(&m, MIB(1));
	map(&m, 0, 256, fd, 0);
	for (uint64_t i = 0; i < 256; i++)
		assert_int_equal(byte_of(&m, i), i % 255 + 1);
	assert_int_equal(mem_zero(&m, page_gpa(&m, 7), MEM_PAGE_SIZE), 0);
	assert_int_equal(mem_write(&m, page_gpa(&m, 8), b, 2), 0);
	assert_int_equal(byte_of(&m, 7), 0);
	assert_int_equal(fd_pread_full(fd, b, 2, 8 * MEM_PAGE_SIZE), 2);
	assert_int_equal(b[0], 9);
	assert_int_equal(fd_pread_full(fd, b, 2, 7 * MEM_PAGE_SIZE), 2);
	assert_int_equal(b[0], 8);
	fd_close(fd);
	mem_finish(&m);
}

static void mapping_across_regions_or_beyond_the_end_is_refused(void **state)
{
	struct mem m;
	struct err err = ERR_INIT;
	int fd = numbered_file(4);

	(void)state;
	mem_make(&m, MIB(3073));
	assert_int_equal(mem_map_file(&m, 3072 * 256 - 1, 2, fd, 0, &err), -EINVAL);
	assert_int_equal(mem_map_file(&m, 3073 * 256 - 1, 2, fd, 0, &err), -EINVAL);
	assert_int_equal(mem_map_file(&m, 3073 * 256, 1, fd, 0, &err), -EINVAL);
	assert_int_equal(mem_map_file(&m, 0, 0, fd, 0, &err), -EINVAL);
	map(&m, 3072 * 256 - 1, 1, fd, 0);
	map(&m, 3072 * 256, 1, fd, MEM_PAGE_SIZE);
	assert_int_equal(byte_of(&m, 3072 * 256 - 1), 1);
	assert_int_equal(byte_of(&m, 3072 * 256), 2);
	fd_close(fd);
	mem_finish(&m);
}

static void discard(struct mem *m, uint64_t page, uint64_t n)
{
	assert_int_equal(mem_discard(m, page_gpa(m, page), n * MEM_PAGE_SIZE), 0);
}

static void discarded_pages_of_a_mapped_file_are_zero_again_and_again(void **state)
{
	struct mem m;
	int fd = numbered_file(256);
	bool gone[256] = { false };
	uint64_t seed = 21;

	(void)state;
	mem_make(&m, MIB(1));
	map(&m, 0, 256, fd, 0);
	for (unsigned round = 0; round < 60; round++) {
		uint64_t page = rnd(&seed) % 256, n = 1 + rnd(&seed) % MIN(256 - page, (uint64_t)9);

		discard(&m, page, n);
		memset(&gone[page], 1, n);
		for (uint64_t i = 0; i < 256; i++)
			assert_int_equal(byte_of(&m, i), gone[i] ? 0 : i % 255 + 1);
		/* Used again, then discarded by a later round or not. */
		assert_int_equal(mem_write(&m, page_gpa(&m, page), "x", 1), 0);
		discard(&m, page, 1);
	}
	unsigned pieces = 0;

	for (unsigned i = 0; i < 256; i++)
		pieces += gone[i] && (i == 0 || !gone[i - 1]);
	assert_int_equal(m.region[0].pieces, pieces);
	discard(&m, 0, 256);
	assert_int_equal(m.region[0].pieces, 1);
	fd_close(fd);
	mem_finish(&m);
}

/* Every second page: more pieces than there may be. */
static void pieces_of_discarded_memory_are_bounded(void **state)
{
	const uint64_t pages = 2 * MEM_PIECES_MAX + 1024;
	struct mem m;
	int fd = numbered_file(pages);

	(void)state;
	mem_make(&m, pages * MEM_PAGE_SIZE);
	map(&m, 0, pages, fd, 0);
	for (uint64_t i = 1; i < pages; i += 2)
		discard(&m, i, 1);
	assert_int_equal(m.region[0].pieces, MEM_PIECES_MAX);
	for (uint64_t i = 0; i < pages; i++)
		assert_int_equal(byte_of(&m, i), i % 2 ? 0 : i % 255 + 1);
	discard(&m, 0, pages);
	assert_int_equal(m.region[0].pieces, 1);
	for (uint64_t i = 0; i < pages; i++)
		assert_int_equal(byte_of(&m, i), 0);
	fd_close(fd);
	mem_finish(&m);
}

static void discarding_beside_a_partly_mapped_file_works(void **state)
{
	struct mem m;
	int fd = numbered_file(16);

	(void)state;
	mem_make(&m, MIB(1));
	map(&m, 100, 16, fd, 0);
	assert_int_equal(mem_write(&m, page_gpa(&m, 99), "x", 1), 0);
	discard(&m, 98, 4);
	assert_int_equal(byte_of(&m, 99), 0);
	assert_int_equal(byte_of(&m, 100), 0);
	assert_int_equal(byte_of(&m, 101), 0);
	assert_int_equal(byte_of(&m, 102), 3);
	fd_close(fd);
	mem_finish(&m);
}

static void host_addresses_of_faults_become_pages(void **state)
{
	struct mem m;
	uint64_t page = 0;

	(void)state;
	mem_make(&m, MIB(3073));
	const uint8_t *low = m.region[0].host, *high = m.region[1].host;

	assert_int_equal(mem_uffd_page(&m, (uintptr_t)low, &page), 0);
	assert_int_equal(page, 0);
	assert_int_equal(mem_uffd_page(&m, (uintptr_t)low + MEM_HOLE_START - 1, &page), 0);
	assert_int_equal(page, 3072 * 256 - 1);
	assert_int_equal(mem_uffd_page(&m, (uintptr_t)high + 4097, &page), 0);
	assert_int_equal(page, 3072 * 256 + 1);
	assert_int_equal(mem_uffd_page(&m, (uintptr_t)high + MIB(1), &page), -EFAULT);
	assert_int_equal(mem_uffd_page(&m, (uintptr_t)low - 1, &page), -EFAULT);
	assert_int_equal(mem_uffd_page(&m, 0, &page), -EFAULT);
	assert_int_equal(mem_uffd_page(&m, UINT64_MAX, &page), -EFAULT);
	mem_finish(&m);
}

static bool bit(const uint64_t *bits, uint64_t page)
{
	return bits[page / 64] >> (page % 64) & 1;
}

static void dirty_bits_of_both_regions_are_collected_once(void **state)
{
	struct mem m;
	struct err err = ERR_INIT;

	(void)state;
	mem_make(&m, MIB(3073));
	uint64_t *bits = bits_new(&m, 0), n = 0;

	assert_int_equal(mem_kvm_log(&m, true, &err), 0);
	assert_int_equal(mem_dirty_start(&m, &err), 0);
	assert_int_equal(mem_write(&m, GPA(MEM_HOLE_START - 1), "x", 1), 0);
	assert_int_equal(mem_write(&m, GPA(MEM_HOLE_END + 4095), "xy", 2), 0);
	assert_int_equal(mem_discard(&m, GPA(8192), 4096), 0);
	bits_set(bits, 77);
	assert_int_equal(mem_dirty_collect(&m, bits, &err), 0);
	for (uint64_t w = 0; w < mem_pages(&m) / 64; w++)
		n += (uint64_t)__builtin_popcountll(bits[w]);
	assert_int_equal(n, 5);
	assert_true(bit(bits, 2));
	assert_true(bit(bits, 77)); /* what was there stays */
	assert_true(bit(bits, 3072 * 256 - 1));
	assert_true(bit(bits, 3072 * 256));
	assert_true(bit(bits, 3072 * 256 + 1));
	memset(bits, 0, mem_pages(&m) / 8);
	assert_int_equal(mem_dirty_collect(&m, bits, &err), 0);
	for (uint64_t w = 0; w < mem_pages(&m) / 64; w++)
		assert_int_equal(bits[w], 0);
	assert_int_equal(mem_kvm_log(&m, false, &err), 0);
	free(bits);
	mem_finish(&m);
}

static bool is_known(const struct mem *m, uint64_t page)
{
	uint64_t bits[MEM_KNOWN_MAX / 64];

	mem_find_zero(m, ALIGN_DOWN(page, (uint64_t)MEM_KNOWN_MAX), MEM_KNOWN_MAX, bits);
	return bit(bits, page % MEM_KNOWN_MAX);
}

static void untouched_memory_is_known_to_be_zero(void **state)
{
	struct mem m;

	(void)state;
	mem_make(&m, MIB(4));
	if (m.pagemap_fd < 0)
		skip();
	assert_int_equal(mem_write(&m, page_gpa(&m, 300), "x", 1), 0);
	assert_false(is_known(&m, 300));
	assert_true(is_known(&m, 299 - 256));
	assert_int_equal(mem_discard(&m, page_gpa(&m, 300), MEM_PAGE_SIZE), 0);
	/* Its large page may be there still. */
	assert_int_equal(byte_of(&m, 300), 0);
	mem_finish(&m);
}

/* Page 3 and from 600 on, to the end, hold something. */
static int file_with_holes(uint64_t pages)
{
	int fd = memfd_create("holes", MFD_CLOEXEC);
	uint8_t b[MEM_PAGE_SIZE];

	memset(b, 7, sizeof(b));
	assert_int_equal(ftruncate(fd, (off_t)(pages * MEM_PAGE_SIZE)), 0);
	assert_int_equal(fd_pwrite_full(fd, b, sizeof(b), 3 * MEM_PAGE_SIZE), 0);
	for (uint64_t i = 600; i < pages; i++)
		assert_int_equal(fd_pwrite_full(fd, b, sizeof(b), (off_t)(i * MEM_PAGE_SIZE)), 0);
	return fd;
}

static void holes_of_a_mapped_file_are_known_and_its_data_are_not(void **state)
{
	struct mem m;
	int fd = file_with_holes(1024);

	(void)state;
	mem_make(&m, MIB(4));
	if (m.pagemap_fd < 0)
		skip();
	map(&m, 0, 1024, fd, 0);
	fd_close(fd);
	for (uint64_t page = 0; page < 1024; page++)
		assert_int_equal(is_known(&m, page), page != 3 && page < 600);
	assert_int_equal(mem_write(&m, page_gpa(&m, 100), "x", 1), 0);
	assert_int_equal(byte_of(&m, 3), 7); /* the file's, by a look at it */
	assert_false(is_known(&m, 100));
	assert_false(is_known(&m, 3));
	assert_true(is_known(&m, 101));
	mem_finish(&m);
}

static void what_was_discarded_over_a_mapped_file_is_known(void **state)
{
	struct mem m;
	int fd = file_with_holes(1024);

	(void)state;
	mem_make(&m, MIB(4));
	if (m.pagemap_fd < 0)
		skip();
	map(&m, 0, 1024, fd, 0);
	fd_close(fd);
	assert_int_equal(mem_discard(&m, page_gpa(&m, 700), 8 * MEM_PAGE_SIZE), 0);
	assert_true(is_known(&m, 700) && is_known(&m, 707));
	assert_false(is_known(&m, 699) || is_known(&m, 708));
	assert_int_equal(mem_write(&m, page_gpa(&m, 703), "x", 1), 0);
	assert_false(is_known(&m, 703));
	mem_finish(&m);
}

static void nothing_is_known_of_pages_of_two_regions(void **state)
{
	uint64_t bits[MEM_KNOWN_MAX / 64];
	struct mem m;

	(void)state;
	mem_make(&m, MIB(3073));
	mem_find_zero(&m, 3072 * 256 - 1, 2, bits);
	assert_int_equal(bits[0], 0);
	mem_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_numbered_without_the_hole),
		cmocka_unit_test(a_mapped_file_is_seen_and_not_written),
		cmocka_unit_test(mapping_across_regions_or_beyond_the_end_is_refused),
		cmocka_unit_test(discarded_pages_of_a_mapped_file_are_zero_again_and_again),
		cmocka_unit_test(pieces_of_discarded_memory_are_bounded),
		cmocka_unit_test(discarding_beside_a_partly_mapped_file_works),
		cmocka_unit_test(host_addresses_of_faults_become_pages),
		cmocka_unit_test(untouched_memory_is_known_to_be_zero),
		cmocka_unit_test(holes_of_a_mapped_file_are_known_and_its_data_are_not),
		cmocka_unit_test(what_was_discarded_over_a_mapped_file_is_known),
		cmocka_unit_test(nothing_is_known_of_pages_of_two_regions),
		cmocka_unit_test(dirty_bits_of_both_regions_are_collected_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
