/* SPDX-License-Identifier: Apache-2.0 */
/* Layers made one: the result reads as the stack did, whatever lies on whatever. */
#include "devices/backend/lsmt_format.h"
#include "tests/device/layers_fixture.h"

enum { SIZE = 1 << 20, SECTORS = SIZE / 512, LAYERS = 6 };

/* A layer being made: a log, and data of one byte. */
struct making {
	int data, index;
	uint64_t at; /* of the next data, sectors */
};

static struct making begin(uint64_t size)
{
	struct making m = { .at = LSMT_HEADER_SECTORS };

	pair_new(&m.data, &m.index, size);
	return m;
}

static void entry(struct making *m, uint64_t offset, uint64_t length, bool zeroed)
{
	uint8_t b[LSMT_ENTRY_BYTES];

	lsmt_entry_encode(&(struct lsmt_seg){ .offset = offset, .length = (uint32_t)length, .moffset = zeroed ? 0 : m->at,
					     .zeroed = zeroed }, b);
	assert_int_equal(fd_pwrite_full(m->index, b, sizeof(b), (off_t)file_size(m->index)), 0);
}

static void put(struct making *m, uint64_t offset, uint64_t length, uint8_t byte)
{
	uint8_t sector[512];

	memset(sector, byte, sizeof(sector));
	for (uint64_t i = 0; i < length; i++)
		assert_int_equal(fd_pwrite_full(m->data, sector, sizeof(sector), (off_t)((m->at + i) * 512)), 0);
	entry(m, offset, length, false);
	m->at += length;
}

static int end(struct making *m)
{
	struct err err = ERR_INIT;

	if (lsmt_seal_pair(m->data, m->index, "pair", &err) < 0)
		fail_msg("%s", err.text);
	close(m->index);
	return m->data;
}

static int merge(const int *fd, size_t n, bool keep_zeroes)
{
	static const char *const names[LAYERS] = { "a", "b", "c", "d", "e", "f" };
	struct err err = ERR_INIT;
	int out = file_new();

	if (lsmt_merge(fd, names, n, keep_zeroes, out, &err) < 0)
		fail_msg("%s", err.text);
	return out;
}

/* What each sector of a stack of layers over a base of `below` reads as. */
static void contents(const int *fd, size_t n, uint8_t below, uint8_t ret[SECTORS])
{
	int copy[LAYERS], base = file_new();
	struct block_stack s = { .base_fd = base, .layer_fd = copy, .nlayers = (int)n, .top_data_fd = -1, .top_index_fd = -1 };
	uint8_t *p = malloc(SIZE);
	struct block *b;

	memset(p, below, SIZE);
	assert_int_equal(fd_pwrite_full(base, p, SIZE, 0), 0);
	for (size_t i = 0; i < n; i++)
		copy[i] = file_copy(fd[i]);
	b = disk_open(&s, "threads", "writeback");
	assert_int_equal(disk_do(b, BLOCK_READ, 0, p, SIZE, 0), 0);
	for (size_t i = 0; i < SECTORS; i++) {
		ret[i] = p[i * 512];
		for (size_t k = 1; k < 512; k++)
			assert_int_equal(p[i * 512 + k], ret[i]);
	}
	block_close(b);
	free(p);
}

static void same_contents(const int *fd, size_t n, int merged, uint8_t below)
{
	static uint8_t want[SECTORS], got[SECTORS];

	contents(fd, n, below, want);
	contents(&merged, 1, below, got);
	assert_memory_equal(want, got, SECTORS);
}

static struct lsmt_info inspect(int fd)
{
	struct lsmt_info info;
	struct err err = ERR_INIT;

	if (lsmt_inspect(fd, "merged", &info, &err) < 0)
		fail_msg("%s", err.text);
	return info;
}

static void the_upper_layer_hides_the_lower(void **state)
{
	struct making a = begin(SIZE), b = begin(SIZE);
	int fd[2];

	(void)state;
	put(&a, 0, 64, 1);
	put(&a, 100, 7, 2);
	put(&b, 10, 20, 3);
	put(&b, 103, 100, 4);
	fd[0] = end(&a);
	fd[1] = end(&b);
	int m = merge(fd, 2, true);

	same_contents(fd, 2, m, 9);
	assert_int_equal(inspect(m).virtual_size, SIZE);
	close(m);
	close(fd[0]);
	close(fd[1]);
}

static void what_is_zeroed_goes_on_hiding_the_base(void **state)
{
	struct making a = begin(SIZE), b = begin(SIZE);
	int fd[2];

	(void)state;
	put(&a, 0, 64, 1);
	entry(&b, 32, 200, true);
	fd[0] = end(&a);
	fd[1] = end(&b);
	int m = merge(fd, 2, true);

	same_contents(fd, 2, m, 9);
	close(m);
	close(fd[0]);
	close(fd[1]);
}

static void with_nothing_below_zeroes_take_no_entry(void **state)
{
	struct making a = begin(SIZE), b = begin(SIZE);
	int fd[2];

	(void)state;
	put(&a, 0, 64, 1);
	entry(&b, 32, 200, true);
	fd[0] = end(&a);
	fd[1] = end(&b);
	int m = merge(fd, 2, false);

	same_contents(fd, 2, m, 0);
	assert_int_equal(inspect(m).entries, 1);
	close(m);
	close(fd[0]);
	close(fd[1]);
}

static void pieces_of_a_range_become_one_entry(void **state)
{
	struct making a = begin(SIZE), b = begin(SIZE);
	int fd[2];

	(void)state;
	for (uint64_t i = 0; i < 64; i += 16)
		put(&a, i, 8, 1);
	for (uint64_t i = 8; i < 64; i += 16)
		put(&b, i, 8, 1);
	fd[0] = end(&a);
	fd[1] = end(&b);
	int m = merge(fd, 2, false);

	same_contents(fd, 2, m, 0);
	assert_int_equal(inspect(m).entries, 1);
	close(m);
	close(fd[0]);
	close(fd[1]);
}

/* Overwritten data are left out: the file is as long as what the disk holds. */
static void nothing_that_is_hidden_is_stored(void **state)
{
	int fd[LAYERS];

	(void)state;
	for (int i = 0; i < LAYERS; i++) {
		struct making a = begin(SIZE);

		put(&a, 0, 1024, (uint8_t)(i + 1));
		fd[i] = end(&a);
	}
	int m = merge(fd, LAYERS, false);

	same_contents(fd, LAYERS, m, 0);
	assert_int_equal(inspect(m).file_size, LSMT_BLOCK + 1024 * 512 + 2 * LSMT_BLOCK);
	close(m);
	for (int i = 0; i < LAYERS; i++)
		close(fd[i]);
}

static void any_stack_reads_the_same(void **state)
{
	uint32_t seed = 12345;

	(void)state;
	for (int round = 0; round < 20; round++) {
		int fd[LAYERS];

		for (int i = 0; i < LAYERS; i++) {
			struct making a = begin(SIZE);

			for (int k = 0; k < 40; k++) {
				seed = seed * 1103515245 + 12345;
				uint64_t offset = (seed >> 8) % SECTORS, length = MIN(1 + (seed >> 20) % 90, SECTORS - offset);

				if (seed >> 5 & 3)
					put(&a, offset, length, (uint8_t)(seed >> 12 | 1));
				else
					entry(&a, offset, length, true);
			}
			fd[i] = end(&a);
		}
		int m = merge(fd, LAYERS, true);

		same_contents(fd, LAYERS, m, 77);
		close(m);
		m = merge(fd, LAYERS, false);
		same_contents(fd, LAYERS, m, 0);
		close(m);
		for (int i = 0; i < LAYERS; i++)
			close(fd[i]);
	}
}

static void empty_layers_make_an_empty_one(void **state)
{
	struct making a = begin(SIZE), b = begin(SIZE);
	int fd[2] = { end(&a), end(&b) };
	int m = merge(fd, 2, true);

	(void)state;
	assert_int_equal(inspect(m).entries, 0);
	close(m);
	close(fd[0]);
	close(fd[1]);
}

static void the_result_is_of_the_largest_disk(void **state)
{
	struct making a = begin(SIZE), b = begin(2 * SIZE);
	int fd[2];

	(void)state;
	put(&a, 0, 16, 1);
	put(&b, SECTORS + 8, 16, 2);
	fd[0] = end(&a);
	fd[1] = end(&b);
	int m = merge(fd, 2, true);

	assert_int_equal(inspect(m).virtual_size, 2 * SIZE);
	assert_int_equal(inspect(m).entries, 2);
	close(m);
	close(fd[0]);
	close(fd[1]);
}

static void a_layer_that_is_not_sealed_is_refused_by_name(void **state)
{
	static const char *const names[] = { "sealed", "open" };
	struct making a = begin(SIZE), b = begin(SIZE);
	int fd[2] = { end(&a), b.data }, out = file_new();
	struct err err = ERR_INIT;

	(void)state;
	put(&b, 0, 16, 1);
	assert_int_equal(lsmt_merge(fd, names, 2, true, out, &err), -EINVAL);
	assert_non_null(strstr(err.text, "open"));
	close(out);
	close(fd[0]);
	close(b.data);
	close(b.index);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_upper_layer_hides_the_lower),
		cmocka_unit_test(what_is_zeroed_goes_on_hiding_the_base),
		cmocka_unit_test(with_nothing_below_zeroes_take_no_entry),
		cmocka_unit_test(pieces_of_a_range_become_one_entry),
		cmocka_unit_test(nothing_that_is_hidden_is_stored),
		cmocka_unit_test(any_stack_reads_the_same),
		cmocka_unit_test(empty_layers_make_an_empty_one),
		cmocka_unit_test(the_result_is_of_the_largest_disk),
		cmocka_unit_test(a_layer_that_is_not_sealed_is_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
