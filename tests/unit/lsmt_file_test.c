/* SPDX-License-Identifier: Apache-2.0 */
/* LSMT files: what is made, what is refused and how it is said, logs that end early, packing. */
#include "tests/device/layers_fixture.h"

enum { SIZE = 1 << 20, SECTORS = SIZE / 512 };
#define UUID "0123abcd-0123-4abc-8def-0123456789ab"
#define PARENT "ffffffff-0123-4abc-8def-0123456789ab"

static void poke(int fd, uint64_t at, uint64_t v, size_t n)
{
	uint8_t b[8];

	le64_store(b, v);
	assert_int_equal(fd_pwrite_full(fd, b, n, (off_t)at), 0);
}

static uint64_t peek(int fd, uint64_t at)
{
	uint8_t b[8];

	assert_int_equal(fd_pread_full(fd, b, 8, (off_t)at), 8);
	return le64_load(b);
}

/* Append an entry to a pair's index file. */
static void log_entry(int index, uint64_t offset, uint64_t length, uint64_t moffset, bool zeroed)
{
	uint64_t at = file_size(index);

	poke(index, at, offset | length << 50, 8);
	poke(index, at + 8, moffset | (uint64_t)zeroed << 55, 8);
}

/* A sealed layer of three entries: sectors 8+16 with data, 100+50 zeroed, 200+1 with data. */
static int make_layer(void)
{
	int data, index;
	struct err err = ERR_INIT;
	uint8_t *p = malloc(64 * 512);

	data = file_new();
	index = file_new();
	assert_int_equal(lsmt_create(data, index, SIZE, UUID, PARENT, &err), 0);
	for (int i = 0; i < 64; i++)
		memset(p + i * 512, i + 1, 512);
	assert_int_equal(fd_pwrite_full(data, p, 64 * 512, LSMT_BLOCK), 0);
	log_entry(index, 8, 16, 8, false);
	log_entry(index, 200, 1, 24, false);
	log_entry(index, 100, 50, 0, true);
	if (lsmt_seal_pair(data, index, "pair", &err) < 0)
		fail_msg("%s", err.text);
	close(index);
	free(p);
	return data;
}

static uint64_t trailer_of(int fd)
{
	return file_size(fd) - LSMT_BLOCK;
}

static uint64_t index_of(int fd)
{
	return peek(fd, trailer_of(fd) + 32);
}

static void a_new_pair_has_the_bytes_of_the_format(void **state)
{
	static const uint8_t magic[24] = {'L',  'S',  'M',  'T',  0,    1,    2,    0,    0x65, 0x7e, 0x63, 0xd2,
					  0x94, 0x44, 0x08, 0x4c, 0xa2, 0xd2, 0xc8, 0xec, 0x4f, 0xcf, 0xae, 0x8a};
	int data = file_new(), index = file_new();
	struct err err = ERR_INIT;
	uint8_t b[LSMT_BLOCK];

	(void)state;
	assert_int_equal(lsmt_create(data, index, SIZE, UUID, PARENT, &err), 0);
	assert_int_equal(file_size(data), LSMT_BLOCK);
	assert_int_equal(file_size(index), LSMT_BLOCK);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fd_pread_full(i ? index : data, b, sizeof(b), 0), sizeof(b));
		assert_memory_equal(b, magic, sizeof(magic));
		assert_int_equal(le32_load(b + 24), 390);
		assert_int_equal(le32_load(b + 28), i ? 1 : 3);
		assert_int_equal(le64_load(b + 32), 0);
		assert_int_equal(le64_load(b + 40), 0);
		assert_int_equal(le64_load(b + 48), SIZE);
		assert_string_equal((char *)b + 56, UUID);
		assert_string_equal((char *)b + 93, PARENT);
		assert_int_equal(b[132], 1);
		assert_int_equal(b[133], 1);
		for (size_t k = 134; k < sizeof(b); k++)
			assert_int_equal(b[k], 0);
	}
	close(data);
	close(index);
}

static void a_sealed_layer_has_the_bytes_of_the_format(void **state)
{
	int fd = make_layer();
	uint64_t t = trailer_of(fd), at = index_of(fd);
	struct lsmt_info info, again;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(file_size(fd) % LSMT_BLOCK, 0);
	assert_int_equal(at, LSMT_BLOCK + 64 * 512);
	assert_int_equal(peek(fd, 24) >> 32, 7);
	assert_int_equal(peek(fd, t + 24) >> 32, 6);
	assert_int_equal(peek(fd, t + 40), 256); /* padding included */
	assert_int_equal(at + 4096, t);
	assert_int_equal(peek(fd, at), 8 | 16ull << 50);
	assert_int_equal(peek(fd, at + 8), 8);
	assert_int_equal(peek(fd, at + 16), 100 | 50ull << 50);
	assert_int_equal(peek(fd, at + 24), 1ull << 55);
	assert_int_equal(peek(fd, at + 32), 200 | 1ull << 50);
	assert_int_equal(peek(fd, at + 48), LSMT_OFFSET_MAX);
	assert_int_equal(lsmt_inspect(fd, "x", &info, &err), 0);
	assert_int_equal(info.entries, 3);
	assert_int_equal(info.virtual_size, SIZE);
	assert_int_equal(info.file_size, file_size(fd));
	assert_string_equal(info.uuid, UUID);
	assert_string_equal(info.parent_uuid, PARENT);
	/* The hash covers header, index and trailer, not the data. */
	poke(fd, LSMT_BLOCK + 100, 99, 1);
	assert_int_equal(lsmt_inspect(fd, "x", &again, &err), 0);
	assert_true(again.index_hash == info.index_hash);
	poke(fd, t + 300, 1, 1);
	assert_int_equal(lsmt_inspect(fd, "x", &again, &err), 0);
	assert_true(again.index_hash != info.index_hash);
	close(fd);
}

static void sealing_twice_changes_nothing(void **state)
{
	int fd = make_layer(), index = file_new();
	uint64_t size = file_size(fd);

	(void)state;
	assert_int_equal(lsmt_seal_pair(fd, index, "x", NULL), 0);
	assert_int_equal(file_size(fd), size);
	close(fd);
	close(index);
}

static void a_layer_without_entries_is_one(void **state)
{
	struct lsmt_info info;
	struct err err = ERR_INIT;
	int data, index;

	(void)state;
	pair_new(&data, &index, SIZE);
	assert_int_equal(lsmt_seal_pair(data, index, "x", &err), 0);
	assert_int_equal(lsmt_inspect(data, "x", &info, &err), 0);
	assert_int_equal(info.entries, 0);
	assert_string_equal(info.parent_uuid, "");
	assert_int_equal(strlen(info.uuid), LSMT_UUID_LEN);
	close(data);
	close(index);
}

static void refused(int fd, const char *text)
{
	struct err err = ERR_INIT;
	struct lsmt_info info;
	struct block_stack stack = { .base_fd = -1, .layer_fd = &fd, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1 };
	struct block_config c = { .backend = "layers", .depth = 8, .stack = &stack };
	struct block *b;

	assert_true(lsmt_inspect(fd, "disk 0, layer 'a.lsmt'", &info, &err) < 0);
	if (!strstr(err.text, text) || strncmp(err.text, "disk 0, layer 'a.lsmt': ", 24) != 0)
		fail_msg("'%s' does not say '%s'", err.text, text);
	/* The backend says the same. */
	assert_true(block_open(&c, &b, &err) < 0);
	if (!strstr(err.text, text) || strncmp(err.text, "layer 1 of 1: ", 14) != 0)
		fail_msg("'%s' does not say '%s'", err.text, text);
}

enum where { HEADER, TRAILER, INDEX };

static void hostile_layers_are_refused_and_the_fault_is_named(void **state)
{
	static const struct {
		enum where where;
		uint32_t at;
		uint64_t value;
		uint8_t n;
		const char *text;
	} cases[] = {
		{ HEADER, 0, 0x4b534d54, 4, "no magic number in its header" },
		{ HEADER, 9, 0, 1, "no magic number in its header" },
		{ HEADER, 24, 512, 4, "its header says it has 512 bytes" },
		{ HEADER, 28, 3, 4, "not sealed" },
		{ HEADER, 28, 5, 4, "not a layer's data file" },
		{ HEADER, 28, 6, 4, "not a layer's data file" },
		{ HEADER, 28, 7 | 16, 4, "sparse and collected layers" },
		{ HEADER, 48, 2 * SIZE, 8, "2097152 bytes in its header, of 1048576 in its trailer" },
		{ HEADER, 48, 0, 8, "no size of a disk" },
		{ HEADER, 48, SIZE + 1, 8, "no size of a disk" },
		{ HEADER, 48, UINT64_MAX - 511, 8, "no size of a disk" },
		{ HEADER, 132, 2, 1, "version 2" },
		{ TRAILER, 0, 0, 8, "no magic number in its trailer" },
		{ TRAILER, 28, 7, 4, "not a sealed layer's" },
		{ TRAILER, 28, 2, 4, "not a sealed layer's" },
		{ TRAILER, 32, 0, 8, "does not fit" },
		{ TRAILER, 32, UINT64_MAX - 4095, 8, "does not fit" },
		{ TRAILER, 32, 1 << 30, 8, "does not fit" },
		{ TRAILER, 40, 257, 8, "does not fit" },
		{ TRAILER, 40, UINT64_MAX / 16 + 2, 8, "entries: 67108864 at most" },
		{ TRAILER, 48, 512, 8, "in its header, of 512 in its trailer" },
		{ INDEX, 0, 8, 8, "entry 0 (sectors 8+0) is empty" },
		{ INDEX, 0, SECTORS | 1ull << 50, 8, "entry 0 (sectors 2048+1) lies outside the disk" },
		{ INDEX, 0, (SECTORS - 1) | 2ull << 50, 8, "lies outside the disk" },
		{ INDEX, 0, LSMT_OFFSET_MAX | 1ull << 50, 8, "lies outside the disk" },
		{ INDEX, 8, 7, 8, "entry 0 (sectors 8+16) has its data outside" },
		{ INDEX, 8, 57, 8, "has its data outside" },
		{ INDEX, 8, LSMT_MOFFSET_MAX, 8, "has its data outside" },
		{ INDEX, 16, 20 | 1ull << 50, 8, "entry 1 (sectors 20+1) overlaps or comes before" },
		{ INDEX, 32, 100 | 1ull << 50, 8, "entry 2 (sectors 100+1) overlaps or comes before" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		int fd = make_layer();
		uint64_t base = cases[i].where == HEADER    ? 0
				: cases[i].where == TRAILER ? trailer_of(fd)
							    : index_of(fd);

		poke(fd, base + cases[i].at, cases[i].value, cases[i].n);
		refused(fd, cases[i].text);
		close(fd);
	}
}

static void a_layer_cut_short_is_refused(void **state)
{
	static const uint64_t sizes[] = { 0, 1, 511, 4095, 4096, 8191 };
	int fd;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		fd = make_layer();
		assert_int_equal(ftruncate(fd, (off_t)sizes[i]), 0);
		refused(fd, "too short for a sealed layer");
		close(fd);
	}
	fd = make_layer();
	assert_int_equal(ftruncate(fd, (off_t)file_size(fd) - 1), 0);
	refused(fd, "no magic number in its trailer");
	close(fd);
}

static void padding_is_passed_over_wherever_it_stands(void **state)
{
	int fd = make_layer();
	struct lsmt_info info;

	(void)state;
	poke(fd, index_of(fd) + 16, LSMT_OFFSET_MAX, 8);
	assert_int_equal(lsmt_inspect(fd, "x", &info, NULL), 0);
	assert_int_equal(info.entries, 2);
	close(fd);
}

static void odd_uuids_are_none(void **state)
{
	int fd = make_layer();
	struct lsmt_info info;

	(void)state;
	poke(fd, trailer_of(fd) + 60, '\n', 1);
	poke(fd, trailer_of(fd) + 93, 0, 1);
	assert_int_equal(lsmt_inspect(fd, "x", &info, NULL), 0);
	assert_string_equal(info.uuid, "");
	assert_string_equal(info.parent_uuid, "");
	close(fd);
}

static int count_each(void *arg, const struct lsmt_seg *s)
{
	(void)s;
	++*(int *)arg;
	return 0;
}

static void a_log_ends_at_its_first_impossible_entry(void **state)
{
	static const struct {
		uint64_t low, high;
		size_t n;
	} bad[] = {
		{ 0, 0, 16 },                                 /* never written */
		{ 5 | 1ull << 50, 0, 16 },                    /* half written: no place */
		{ 0, 8, 16 },                                 /* half written: no range */
		{ 5 | 1ull << 50, 8, 15 },                    /* cut */
		{ 5 | 1ull << 50, 8, 1 },
		{ 5 | 3ull << 50, 8 + 14, 16 },               /* data behind the end */
		{ (SECTORS - 1) | 2ull << 50, 8, 16 },        /* outside the disk */
		{ (SECTORS - 1) | 2ull << 50, 1ull << 55, 16 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
		int data, index, count = 0;
		struct err err = ERR_INIT;
		uint8_t raw[16];
		struct lsmt_pair p;

		pair_new(&data, &index, SIZE);
		assert_int_equal(ftruncate(data, LSMT_BLOCK + 16 * 512), 0);
		for (int k = 0; k < 5000; k++)
			log_entry(index, (uint64_t)k % 1000, 16, 8, false);
		le64_store(raw, bad[i].low);
		le64_store(raw + 8, bad[i].high);
		assert_int_equal(fd_pwrite_full(index, raw, bad[i].n, (off_t)file_size(index)), 0);
		if (bad[i].n == 16)
			log_entry(index, 0, 1, 8, false); /* a piece of the batch that got through */
		if (lsmt_pair_open(data, index, "x", buf, count_each, &count, &p, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(count, 5000);
		assert_true(p.torn);
		assert_int_equal(p.index_end, LSMT_BLOCK + 5000 * 16);
		assert_int_equal(file_size(index), p.index_end);
		assert_int_equal(p.data_end, 24);
		close(data);
		close(index);
	}
}

static void bad_arguments_are_refused(void **state)
{
	int data = file_new(), index = file_new();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(lsmt_create(data, index, 1000, NULL, NULL, &err), -EINVAL);
	assert_int_equal(lsmt_create(data, index, 0, NULL, NULL, &err), -EINVAL);
	assert_int_equal(lsmt_create(data, index, SIZE, "short", NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "UUID 'short'"));
	assert_int_equal(lsmt_create(data, index, SIZE, NULL, "zz23abcd-0123-4abc-8def-0123456789ab", &err), -EINVAL);
	assert_int_equal(file_size(data), 0);
	assert_int_equal(lsmt_create(data, index, SIZE, NULL, NULL, &err), 0);
	assert_int_equal(lsmt_create(data, index, SIZE, NULL, NULL, &err), -EEXIST);
	assert_int_equal(lsmt_pack_raw(index, 100, data, NULL, &err), -EINVAL);
	assert_int_equal(lsmt_pack_raw(index, SIZE, data, NULL, &err), -EEXIST);
	close(data);
	close(index);
}

static void a_packed_image_has_the_same_bytes_and_no_zeros(void **state)
{
	uint64_t size = MIB(24) + 1536; /* no whole block at the end */
	struct rnd rnd = { 3 };
	uint8_t *p = calloc(1, size);
	struct lsmt_info info;
	struct err err = ERR_INIT;
	int raw = file_new(), out = file_new();
	struct block *b;

	(void)state;
	for (int i = 0; i < 40; i++)
		fill_random(&rnd, p + rnd_below(&rnd, 6000) * 4096ull, 4096);
	fill_random(&rnd, p + MIB(2), MIB(9));    /* longer than an entry */
	p[MIB(13) + 77] = 1;
	p[size - 1] = 9;
	for (uint64_t at = 0; at < size; at += 4096) { /* zeros stay holes, but for some that are written */
		uint64_t n = MIN(size - at, (uint64_t)4096);

		if (at / 4096 % 50 == 0 || memcmp(p + at, p + MIB(23), n) != 0)
			assert_int_equal(fd_pwrite_full(raw, p + at, n, (off_t)at), 0);
	}
	if (lsmt_pack_raw(raw, size, out, UUID, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(lsmt_inspect(out, "x", &info, &err), 0);
	assert_int_equal(info.virtual_size, size);
	assert_string_equal(info.uuid, UUID);
	assert_true(info.file_size < MIB(9) + 50 * 4096 + MIB(1));
	b = disk_open(&(struct block_stack){ .base_fd = -1, .layer_fd = &out, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1 },
		      NULL, NULL);
	assert_true(b->ro);
	disk_holds(b, p);
	block_close(b);
	close(raw);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_pair_has_the_bytes_of_the_format),
		cmocka_unit_test(a_sealed_layer_has_the_bytes_of_the_format),
		cmocka_unit_test(sealing_twice_changes_nothing),
		cmocka_unit_test(a_layer_without_entries_is_one),
		cmocka_unit_test(hostile_layers_are_refused_and_the_fault_is_named),
		cmocka_unit_test(a_layer_cut_short_is_refused),
		cmocka_unit_test(padding_is_passed_over_wherever_it_stands),
		cmocka_unit_test(odd_uuids_are_none),
		cmocka_unit_test(a_log_ends_at_its_first_impossible_entry),
		cmocka_unit_test(bad_arguments_are_refused),
		cmocka_unit_test(a_packed_image_has_the_same_bytes_and_no_zeros),
	};

	return cmocka_run_group_tests_name("lsmt_file", tests, NULL, NULL);
}
