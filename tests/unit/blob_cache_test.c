/* SPDX-License-Identifier: Apache-2.0 */
/* host/blob_cache: opening, filling, dropping and removing blobs of the cache. */
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

#include "host/blob_cache.h"
#include "host/file.h"
#include "lib/fd.h"
#include "lib/util.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B_ "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
enum { CHUNK = 1 << REMOTE_SHIFT, CHUNKS = 10, SIZE = CHUNK * (CHUNKS - 1) + 100 };

struct fixture {
	char dir[64];
	struct blob_cache cache;
	struct blob blob;
	uint8_t data[CHUNK];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/blob-cache.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	f->cache.fd = open(f->dir, O_RDONLY | O_DIRECTORY);
	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &f->blob, NULL), 0);
	memset(f->data, 'x', sizeof(f->data));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	blob_close(&f->blob);
	blob_cache_close(&f->cache);
	file_remove_tree(AT_FDCWD, f->dir);
	free(f);
	return 0;
}

static void reopen(struct fixture *f)
{
	blob_close(&f->blob);
	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &f->blob, NULL), 0);
}

static void new_blob_has_no_chunks(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(f->blob.nchunks, CHUNKS);
	assert_int_equal(blob_count_present(&f->blob), 0);
	assert_int_equal(blob_chunk_size(&f->blob, 0), CHUNK);
	assert_int_equal(blob_chunk_size(&f->blob, CHUNKS - 1), 100);
	assert_false(blob_is_verified(&f->blob));
}

static void filled_chunks_stay(void **state)
{
	struct fixture *f = *state;
	uint8_t back[CHUNK];

	assert_int_equal(blob_fill(&f->blob, 3, f->data), 0);
	assert_int_equal(blob_fill(&f->blob, CHUNKS - 1, f->data), 0);
	reopen(f);
	assert_int_equal(blob_count_present(&f->blob), 2);
	assert_int_equal(fd_pread_full(f->blob.data_fd, back, CHUNK, 3 * CHUNK), CHUNK);
	assert_memory_equal(back, f->data, CHUNK);
}

static void generations_are_never_given_twice(void **state)
{
	struct fixture *f = *state;
	uint32_t first;

	assert_int_equal(blob_fill(&f->blob, 3, f->data), 0);
	first = blob_generation(&f->blob, 3);
	assert_int_not_equal(first, 0);
	blob_drop(&f->blob, 3, 1);
	assert_int_equal(blob_generation(&f->blob, 3), 0);
	assert_int_equal(blob_fill(&f->blob, 3, f->data), 0);
	assert_true(blob_generation(&f->blob, 3) > first);
}

static void dropping_gives_space_back(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(blob_fill(&f->blob, i, f->data), 0);
	blob_drop(&f->blob, 0, CHUNKS);
	assert_int_equal(fstat(f->blob.data_fd, &st), 0);
	assert_int_equal(st.st_blocks, 0);
	assert_int_equal(st.st_size, SIZE);
}

static void a_chunk_has_one_filler(void **state)
{
	struct fixture *f = *state;
	struct blob other;

	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &other, NULL), 0);
	assert_int_equal(blob_lock(&f->blob, 4), 0);
	assert_int_equal(blob_lock(&other, 4), -EAGAIN);
	assert_int_equal(blob_lock(&other, 5), 0);
	blob_unlock(&f->blob, 4, 1);
	assert_int_equal(blob_lock(&other, 4), 0);
	blob_close(&other);
	assert_int_equal(blob_lock(&f->blob, 4), 0);
}

static void unsynced_chunks_do_not_survive_another_boot(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(blob_fill(&f->blob, 1, f->data), 0);
	assert_int_equal(blob_sync(&f->blob), 0);
	assert_int_equal(blob_fill(&f->blob, 2, f->data), 0);
	reopen(f);
	assert_int_equal(blob_count_present(&f->blob), 2);
	memset(((struct remote_header *)f->blob.table)->boot, 'z', 36);
	reopen(f);
	assert_int_not_equal(blob_generation(&f->blob, 1), 0);
	assert_int_equal(blob_generation(&f->blob, 2), 0);
	assert_int_equal(blob_fill(&f->blob, 2, f->data), 0);
	reopen(f);
	assert_int_equal(blob_count_present(&f->blob), 2);
}

static void damaged_table_is_made_anew(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(blob_fill(&f->blob, 1, f->data), 0);
	f->blob.table[0] ^= 1;
	reopen(f);
	assert_int_equal(blob_count_present(&f->blob), 0);
	assert_int_equal(ftruncate(f->blob.chunks_fd, 100), 0);
	reopen(f);
	assert_int_equal(ftruncate(f->blob.data_fd, 5), 0);
	reopen(f);
	assert_int_equal(blob_fill(&f->blob, 1, f->data), 0);
}

static void another_size_does_not_disturb_a_user(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct blob other;

	assert_int_equal(blob_fill(&f->blob, 1, f->data), 0);
	assert_int_equal(blob_cache_get(&f->cache, A, 5, &other, &err), -EBUSY);
	assert_non_null(strstr(err.text, "in use with another size"));
	assert_int_equal(blob_count_present(&f->blob), 1);
}

/* A whole layer has another name in the directory of a VM that uses it, which holds no lock. */
static void link_data(struct fixture *f)
{
	assert_int_equal(blob_fill(&f->blob, 0, f->data), 0);
	assert_int_equal(linkat(f->cache.fd, "sha256-" A "/data", f->cache.fd, "linked", 0), 0);
}

static void check_linked(struct fixture *f)
{
	_cleanup_close_ int fd = openat(f->cache.fd, "linked", O_RDONLY);
	uint8_t back[CHUNK];
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(fd_pread_full(fd, back, CHUNK, 0), CHUNK);
	assert_memory_equal(back, f->data, CHUNK);
}

static void damaged_table_does_not_cost_others_their_data(void **state)
{
	struct fixture *f = *state;

	link_data(f);
	f->blob.table[0] ^= 1;
	reopen(f);
	assert_int_equal(blob_count_present(&f->blob), 0);
	check_linked(f);
}

static void data_without_a_table_is_made_anew(void **state)
{
	struct fixture *f = *state;

	link_data(f);
	assert_int_equal(unlinkat(f->cache.fd, "sha256-" A "/chunks", 0), 0);
	reopen(f);
	assert_int_equal(blob_count_present(&f->blob), 0);
	check_linked(f);
}

static void another_size_of_a_part_makes_it_anew(void **state)
{
	struct fixture *f = *state;
	struct blob other;

	link_data(f);
	blob_close(&f->blob);
	assert_int_equal(blob_cache_get(&f->cache, A, 5, &other, NULL), 0);
	assert_int_equal(other.nchunks, 1);
	blob_close(&other);
	check_linked(f);
}

static void another_size_of_a_whole_blob_is_refused(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct blob other;

	assert_int_equal(blob_fill(&f->blob, 0, f->data), 0);
	blob_set_verified(&f->blob);
	blob_close(&f->blob);
	assert_int_equal(blob_cache_get(&f->cache, A, 5, &other, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "bytes here, the image says 5"));
	reopen(f);
	assert_true(blob_is_verified(&f->blob));
	assert_int_equal(blob_count_present(&f->blob), 1);
}

static void one_that_is_held_cannot_be_removed(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(blob_cache_remove(&f->cache, "sha256-" A), -EBUSY);
	blob_close(&f->blob);
	assert_int_equal(blob_cache_remove(&f->cache, "sha256-" A), 0);
	assert_int_equal(faccessat(f->cache.fd, "sha256-" A, F_OK, 0), -1);
	assert_int_equal(blob_cache_remove(&f->cache, "sha256-" A), -ENOENT);
}

static void what_a_snapshot_has_too_is_neither_counted_nor_evicted(void **state)
{
	struct fixture *f = *state;
	char data[200], other[100];
	uint64_t before, after;

	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(blob_fill(&f->blob, i, f->data), 0);
	assert_int_equal(blob_sync(&f->blob), 0);
	blob_set_verified(&f->blob);
	blob_close(&f->blob);
	before = blob_cache_usage(&f->cache);
	snprintf(data, sizeof(data), "%s/sha256-" A "/data", f->dir);
	snprintf(other, sizeof(other), "%s/other", f->dir);
	assert_int_equal(link(data, other), 0);
	after = blob_cache_usage(&f->cache);
	assert_true(before - after >= SIZE);
	assert_int_equal(blob_cache_evict(&f->cache, UINT64_MAX), 0);
	assert_int_equal(access(data, F_OK), 0);
	assert_int_equal(unlink(other), 0);
	assert_int_equal(blob_cache_usage(&f->cache), before);
	assert_true(blob_cache_evict(&f->cache, UINT64_MAX) >= SIZE);
	assert_int_equal(access(data, F_OK), -1);
}

static void evicting_leaves_chunks_that_others_have(void **state)
{
	struct fixture *f = *state;
	struct blob other;

	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(blob_fill(&f->blob, i, f->data), 0);
	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &other, NULL), 0);
	assert_int_equal(blob_lock(&other, 1), 0);
	assert_int_equal(blob_evict_chunks(&f->blob, SIZE, UINT32_MAX), 2 * CHUNK);
	assert_int_not_equal(blob_generation(&f->blob, 1), 0);
	assert_int_equal(blob_lock(&other, 0), 0);
	blob_close(&other);
}

static void bad_digests_and_sizes_are_refused(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct blob other;

	assert_int_equal(blob_cache_get(&f->cache, "../../x", SIZE, &other, &err), -EINVAL);
	assert_int_equal(blob_cache_get(&f->cache, A "a", SIZE, &other, &err), -EINVAL);
	assert_int_equal(blob_cache_get(&f->cache, B_, 0, &other, &err), -EFBIG);
	assert_int_equal(blob_cache_get(&f->cache, B_, UINT64_MAX, &other, &err), -EFBIG);
}

static void held_blobs_are_not_removed(void **state)
{
	struct fixture *f = *state;
	struct blob other;
	int data, chunks;

	assert_int_equal(blob_cache_get(&f->cache, B_, SIZE, &other, NULL), 0);
	assert_int_equal(blob_fill(&other, 0, f->data), 0);
	assert_int_equal(blob_cache_readers(&f->cache, A, &data, &chunks, NULL), 0);
	blob_close(&f->blob);
	assert_int_equal(blob_cache_evict(&f->cache, UINT64_MAX), 0);
	blob_close(&other);
	assert_true(blob_cache_evict(&f->cache, 1) > 0);
	assert_int_equal(faccessat(f->cache.fd, "sha256-" B_, F_OK, 0), -1);
	assert_int_equal(faccessat(f->cache.fd, "sha256-" A, F_OK, 0), 0);
	fd_close(data);
	fd_close(chunks);
	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &f->blob, NULL), 0);
}

static void longest_unused_goes_first(void **state)
{
	struct fixture *f = *state;
	struct blob other;

	assert_int_equal(blob_cache_get(&f->cache, B_, SIZE, &other, NULL), 0);
	((struct remote_header *)other.table)->used = le64_make(1000);
	blob_close(&other);
	blob_close(&f->blob);
	blob_cache_evict(&f->cache, 1);
	assert_int_equal(faccessat(f->cache.fd, "sha256-" B_, F_OK, 0), -1);
	assert_int_equal(faccessat(f->cache.fd, "sha256-" A, F_OK, 0), 0);
	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &f->blob, NULL), 0);
}

static void oldest_chunks_go_first(void **state)
{
	struct fixture *f = *state;

	for (uint32_t i = 0; i < CHUNKS; i++)
		assert_int_equal(blob_fill(&f->blob, (i + 5) % CHUNKS, f->data), 0);
	assert_int_equal(blob_evict_chunks(&f->blob, 2 * CHUNK, blob_counter(&f->blob)), 2 * CHUNK);
	assert_int_equal(blob_generation(&f->blob, 5), 0);
	assert_int_equal(blob_generation(&f->blob, 6), 0);
	assert_int_equal(blob_count_present(&f->blob), CHUNKS - 2);
	assert_int_equal(blob_evict_chunks(&f->blob, SIZE, 0), 0);
}

static void verified_and_checked_blobs_lose_no_chunks(void **state)
{
	struct fixture *f = *state;
	struct blob other;

	assert_int_equal(blob_fill(&f->blob, 0, f->data), 0);
	assert_int_equal(blob_cache_get(&f->cache, A, SIZE, &other, NULL), 0);
	assert_int_equal(blob_lock_check(&other), 0);
	assert_int_equal(blob_evict_chunks(&f->blob, SIZE, UINT32_MAX), 0);
	blob_close(&other);
	blob_set_verified(&f->blob);
	assert_int_equal(blob_evict_chunks(&f->blob, SIZE, UINT32_MAX), 0);
	reopen(f);
	assert_true(blob_is_verified(&f->blob));
	assert_int_equal(blob_count_present(&f->blob), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(new_blob_has_no_chunks, setup, teardown),
		cmocka_unit_test_setup_teardown(filled_chunks_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(generations_are_never_given_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(dropping_gives_space_back, setup, teardown),
		cmocka_unit_test_setup_teardown(a_chunk_has_one_filler, setup, teardown),
		cmocka_unit_test_setup_teardown(unsynced_chunks_do_not_survive_another_boot, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_table_is_made_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(another_size_does_not_disturb_a_user, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged_table_does_not_cost_others_their_data, setup, teardown),
		cmocka_unit_test_setup_teardown(data_without_a_table_is_made_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(another_size_of_a_part_makes_it_anew, setup, teardown),
		cmocka_unit_test_setup_teardown(another_size_of_a_whole_blob_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(one_that_is_held_cannot_be_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_snapshot_has_too_is_neither_counted_nor_evicted, setup, teardown),
		cmocka_unit_test_setup_teardown(evicting_leaves_chunks_that_others_have, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_digests_and_sizes_are_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(held_blobs_are_not_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(longest_unused_goes_first, setup, teardown),
		cmocka_unit_test_setup_teardown(oldest_chunks_go_first, setup, teardown),
		cmocka_unit_test_setup_teardown(verified_and_checked_blobs_lose_no_chunks, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
