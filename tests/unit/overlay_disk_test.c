/* SPDX-License-Identifier: Apache-2.0 */
/* The private disk: a file system that checks clean, sparse, the same from the cache, and not fooled by a damaged one. */
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

#include "host/overlay_disk.h"
#include "host/spawn.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/home.h"

#define SIZE MIB(64)

static struct home home;
static int dir;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	dir = open(home.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir < 0;
}

static int tear_down(void **s)
{
	(void)s;
	close(dir);
	home_remove(&home);
	return 0;
}

static int check_file_system(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", home.path, name);
	const char *const argv[] = { "e2fsck", "-f", "-n", path, NULL };
	const struct spawn e2fsck = { .argv = argv, .in = -1, .out = -1 };

	return spawn_run(&e2fsck, NULL);
}

static int template_fd(int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "cache/coffer/overlay/ext4-v1-%llu", (unsigned long long)SIZE);
	return openat(dir, path, flags | O_CLOEXEC);
}

static void a_new_disk_is_a_clean_file_system_in_a_sparse_file(void **s)
{
	struct stat st;

	(void)s;
	assert_int_equal(overlay_disk_create(dir, "d", SIZE, NULL), 0);
	assert_int_equal(fstatat(dir, "d", &st, 0), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_true(st.st_blocks * 512 < 2 << 20);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(check_file_system("d"), 0);
}

static void the_second_one_comes_from_the_cache_and_is_the_same(void **s)
{
	uint8_t *a = malloc(SIZE), *b = malloc(SIZE);

	(void)s;
	assert_int_equal(overlay_disk_prepare(SIZE, NULL), 0);
	setenv("PATH", "/nonexistent", 1); /* mke2fs may also be looked for in /usr/sbin: the template must do */
	assert_int_equal(overlay_disk_create(dir, "a", SIZE, NULL), 0);
	assert_int_equal(overlay_disk_create(dir, "b", SIZE, NULL), 0);
	int fa = openat(dir, "a", O_RDONLY | O_CLOEXEC), fb = openat(dir, "b", O_RDONLY | O_CLOEXEC);

	assert_int_equal(fd_pread_full(fa, a, SIZE, 0), SIZE);
	assert_int_equal(fd_pread_full(fb, b, SIZE, 0), SIZE);
	assert_memory_equal(a, b, SIZE);
	close(fa);
	close(fb);
	free(a);
	free(b);
	setenv("PATH", "/usr/bin:/bin", 1);
}

static void a_damaged_template_is_made_anew(void **s)
{
	static const struct {
		off_t at;
		uint8_t bytes[8];
	} damage[] = {
		{ 0, "BADMAGIC" }, { 8, { 1 } },                          /* magic, size */
		{ 16, { 255, 255, 255, 255, 255, 255, 255, 127 } },       /* first offset */
		{ 24, { 255, 255, 255, 255, 255, 255, 255, 255 } },       /* first length */
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
		assert_int_equal(overlay_disk_prepare(SIZE, NULL), 0);
		int fd = template_fd(O_RDWR);

		assert_int_equal(fd_pwrite_full(fd, damage[i].bytes, 8, damage[i].at), 0);
		close(fd);
		assert_int_equal(overlay_disk_create(dir, "d", SIZE, NULL), 0);
		assert_int_equal(check_file_system("d"), 0);
		assert_int_equal(unlinkat(dir, "d", 0), 0);
	}
}

static void a_truncated_template_is_made_anew(void **s)
{
	struct stat st;

	(void)s;
	assert_int_equal(overlay_disk_prepare(SIZE, NULL), 0);
	int fd = template_fd(O_RDWR);

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(ftruncate(fd, st.st_size - 16), 0);
	close(fd);
	assert_int_equal(overlay_disk_create(dir, "d", SIZE, NULL), 0);
	assert_int_equal(check_file_system("d"), 0);
}

static void a_disk_that_exists_is_left_alone(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	close(openat(dir, "d", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(overlay_disk_create(dir, "d", SIZE, &err), -EEXIST);
	assert_int_equal(faccessat(dir, "d", F_OK, 0), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_new_disk_is_a_clean_file_system_in_a_sparse_file),
		T(the_second_one_comes_from_the_cache_and_is_the_same),
		T(a_damaged_template_is_made_anew),
		T(a_truncated_template_is_made_anew),
		T(a_disk_that_exists_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
