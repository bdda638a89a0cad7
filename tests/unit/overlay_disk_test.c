/* SPDX-License-Identifier: Apache-2.0 */
/* What the private disk begins with: a small sealed layer, the same from the cache, and not fooled by a damaged one. */
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

#include "devices/backend/lsmt.h"
#include "host/overlay_disk.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/home.h"

#define SIZE MIB(64)

static struct home home;
static char path[4096];

static struct snapshot_layer open_one(void)
{
	struct snapshot_layer layer = { 0 };
	int fd = overlay_disk_open(SIZE, path, &layer, NULL);

	assert_true(fd >= 0);
	close(fd);
	return layer;
}

static void it_is_a_small_sealed_layer_of_the_size(void **s)
{
	struct snapshot_layer layer = { 0 };
	struct lsmt_info info;
	int fd = overlay_disk_open(SIZE, path, &layer, NULL);

	(void)s;
	assert_true(fd >= 0);
	assert_int_equal(lsmt_inspect(fd, "it", &info, NULL), 0);
	assert_int_equal(info.virtual_size, SIZE);
	assert_int_equal(info.index_hash, layer.index_hash);
	assert_int_equal(info.file_size, layer.size);
	assert_true(layer.size < MIB(2));
	close(fd);
}

static void the_second_one_comes_from_the_cache(void **s)
{
	struct snapshot_layer first = open_one(), second;
	struct stat a, b;

	(void)s;
	assert_int_equal(stat(path, &a), 0);
	second = open_one();
	assert_int_equal(stat(path, &b), 0);
	assert_int_equal(a.st_ino, b.st_ino);
	assert_int_equal(first.index_hash, second.index_hash);
}

static void a_damaged_one_is_made_anew(void **s)
{
	struct snapshot_layer first = open_one();
	static const off_t at[] = { 0, 8, -1 };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		assert_int_equal(chmod(path, 0600), 0);
		int fd = open(path, O_RDWR | O_CLOEXEC);
		uint8_t bytes[8] = { 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a, 0x5a };

		assert_int_equal(fd_pwrite_full(fd, bytes, 8, at[i] < 0 ? (off_t)first.size - 4096 : at[i]), 0);
		close(fd);
		assert_int_equal(open_one().size, first.size);
	}
}

static void a_truncated_one_is_made_anew(void **s)
{
	struct snapshot_layer first = open_one();

	(void)s;
	assert_int_equal(truncate(path, (off_t)first.size - 512), 0);
	assert_int_equal(open_one().size, first.size);
}

static void one_for_another_size_is_another(void **s)
{
	struct snapshot_layer layer;
	char other[4096];

	(void)s;
	open_one();
	int fd = overlay_disk_open(SIZE * 2, other, &layer, NULL);

	assert_true(fd >= 0);
	close(fd);
	assert_string_not_equal(path, other);
}

#define T(name) cmocka_unit_test_prestate_setup_teardown(name, home_set_up, home_tear_down, &home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(it_is_a_small_sealed_layer_of_the_size), T(the_second_one_comes_from_the_cache),
		T(a_damaged_one_is_made_anew), T(a_truncated_one_is_made_anew), T(one_for_another_size_is_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
