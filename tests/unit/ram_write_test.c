/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of memory images: what comes back, pages given again, zero pages, layout of the files, errors. */
#include "tests/unit/ram_fixture.h"

#include <fcntl.h>

enum { SMALL = 1 << 20, ODD = (1 << 20) + 5 * 4096 };

static void round_trip(struct workers *ws, int level, uint64_t size)
{
	struct mem m;

	mem_make(&m, size);
	mem_fill(&m, size + (uint64_t)level + 1);
	struct pair p = save(&m, ws, level, 1, 0, NULL);

	check_restore(&p, 1, &m, ws, ram_image_load);
	if (level == 0)
		check_restore(&p, 1, &m, ws, ram_image_map);
	pair_close(&p);
	mem_finish(&m);
}

static void full_raw_comes_back(void **state)
{
	round_trip(*state, 0, MIB(9));
}

static void full_zstd_comes_back(void **state)
{
	round_trip(*state, 1, MIB(9));
	round_trip(*state, 19, SMALL);
}

static void memory_that_ends_inside_a_chunk_comes_back(void **state)
{
	round_trip(*state, 0, ODD);
	round_trip(*state, 3, ODD);
}

static void memory_around_the_hole_comes_back(void **state)
{
	/* Sparse: a few pages at each edge. */
	static const uint64_t pages[] = { 0, 17, 786430, 786431, 786432, 786433, 786432 + 255 };
	struct mem m, back;
	struct err err = ERR_INIT;
	uint64_t seed = 42;

	mem_make(&m, MIB(3073));
	uint64_t *bits = bits_new(&m, 0);

	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		uint64_t noise[8];

		for (unsigned k = 0; k < ARRAY_SIZE(noise); k++)
			noise[k] = rnd(&seed);
		assert_int_equal(mem_write(&m, page_gpa(&m, pages[i]), noise, sizeof(noise)), 0);
		bits_set(bits, pages[i]);
	}
	for (int level = 0; level <= 1; level++) {
		for (int map = 0; map <= (level == 0); map++) {
			struct pair p = save(&m, *state, level, 1, 0, bits);
			struct ram_image *im = must_open(&p, 1, m.size);

			mem_make(&back, m.size);
			assert_int_equal((map ? ram_image_map : ram_image_load)(im, &back, *state, &err), 0);
			for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
				uint8_t a[MEM_PAGE_SIZE], b[MEM_PAGE_SIZE];

				assert_int_equal(mem_read(&m, page_gpa(&m, pages[i]), a, sizeof(a)), 0);
				assert_int_equal(mem_read(&back, page_gpa(&back, pages[i]), b, sizeof(b)), 0);
				assert_memory_equal(a, b, sizeof(a));
			}
			mem_finish(&back);
			ram_image_close(im);
			pair_close(&p);
		}
	}
	free(bits);
	mem_finish(&m);
}

static void diff_stores_only_its_pages(void **state)
{
	struct mem m;
	uint64_t seed = 5;

	mem_make(&m, SMALL);
	mem_fill(&m, 1);
	struct pair full = save(&m, *state, 0, 1, 0, NULL);
	uint64_t *bits = bits_new(&m, 0);
	uint8_t noise[MEM_PAGE_SIZE];

	for (unsigned i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)rnd(&seed);
	assert_int_equal(mem_write(&m, GPA(MEM_PAGE_SIZE * 3), noise, sizeof(noise)), 0);
	assert_int_equal(mem_write(&m, GPA(MEM_PAGE_SIZE * 100), noise, sizeof(noise)), 0);
	bits_set(bits, 3);
	bits_set(bits, 100);
	struct pair diff = save(&m, *state, 0, 2, 1, bits);

	assert_int_equal(file_size(diff.data), RAM_DATA_START + 2 * MEM_PAGE_SIZE);
	assert_int_equal(file_size(diff.index), sizeof(struct ram_index_header) + 2 * sizeof(struct ram_record));
	struct pair chain[] = { diff, full };

	check_restore(chain, 2, &m, *state, ram_image_load);
	check_restore(chain, 2, &m, *state, ram_image_map);
	free(bits);
	pair_close(&diff);
	pair_close(&full);
	mem_finish(&m);
}

/* Pages that have become zero must not show the parent's bytes. */
static void zero_pages_of_a_diff_hide_the_parents(void **state)
{
	struct mem m;

	mem_make(&m, SMALL);
	mem_fill(&m, 7);
	struct pair full = save(&m, *state, 0, 1, 0, NULL);
	uint64_t *bits = bits_new(&m, 0);

	for (uint64_t page = 10; page < 60; page++) {
		assert_int_equal(mem_zero(&m, page_gpa(&m, page), MEM_PAGE_SIZE), 0);
		bits_set(bits, page);
	}
	for (int level = 0; level <= 3; level += 3) {
		struct pair diff = save(&m, *state, level, 2, 1, bits);
		struct pair chain[] = { diff, full };

		check_restore(chain, 2, &m, *state, ram_image_load);
		check_restore(chain, 2, &m, *state, ram_image_map);
		pair_close(&diff);
	}
	free(bits);
	pair_close(&full);
	mem_finish(&m);
}

static void put_again(struct workers *ws, int level, unsigned parent)
{
	struct mem m;
	uint64_t seed = 11, *bits;
	struct pair p = pair_new(), chain[2], full;

	mem_make(&m, MIB(2));
	mem_fill(&m, 3);
	full = save(&m, ws, 1, 1, 0, NULL);
	struct ram_writer *w = writer_new(&m, &p, level, 2, parent);

	bits = bits_new(&m, 0xff);
	writer_put(w, ws, bits);
	for (unsigned round = 0; round < 5; round++) {
		memset(bits, 0, mem_pages(&m) / 8);
		for (unsigned i = 0; i < 40; i++) {
			uint64_t page = rnd(&seed) % mem_pages(&m);

			page_fill(&m, page, &seed);
			bits_set(bits, page);
		}
		writer_put(w, ws, bits);
	}
	writer_finish(w);
	chain[0] = p;
	chain[1] = full;
	check_restore(chain, parent ? 2 : 1, &m, ws, ram_image_load);
	if (!parent && level == 0)
		check_restore(chain, 1, &m, ws, ram_image_map);
	free(bits);
	pair_close(&p);
	pair_close(&full);
	mem_finish(&m);
}

static void pages_given_again_replace_what_was_stored(void **state)
{
	put_again(*state, 0, 0);
	put_again(*state, 3, 0);
	put_again(*state, 0, 1);
	put_again(*state, 3, 1);
}

/* A diff given in parts, of different pages of one chunk. */
static void pages_of_one_chunk_in_several_puts_are_all_kept(void **state)
{
	struct mem m;
	struct pair p = pair_new(), full;

	mem_make(&m, SMALL);
	full = save(&m, *state, 0, 1, 0, NULL);
	mem_fill(&m, 99);
	for (int level = 0; level <= 1; level++) {
		struct pair diff = pair_new();
		struct ram_writer *w = writer_new(&m, &diff, level, 2, 1);

		for (unsigned k = 0; k < 3; k++) {
			uint64_t *bits = bits_new(&m, 0);

			for (uint64_t page = k; page < mem_pages(&m); page += 3)
				bits_set(bits, page);
			writer_put(w, *state, bits);
			free(bits);
		}
		writer_finish(w);
		struct pair chain[] = { diff, full };

		check_restore(chain, 2, &m, *state, ram_image_load);
		pair_close(&diff);
	}
	pair_close(&p);
	pair_close(&full);
	mem_finish(&m);
}

static void empty_memory_takes_no_space(void **state)
{
	struct mem m;
	struct stat st;

	mem_make(&m, MIB(64));
	struct pair p = save(&m, *state, 0, 1, 0, NULL);

	assert_int_equal(fstat(p.data, &st), 0);
	assert_int_equal(st.st_size, RAM_DATA_START + MIB(64));
	assert_true(st.st_blocks <= 8);
	assert_int_equal(file_size(p.index), sizeof(struct ram_index_header));
	check_restore(&p, 1, &m, *state, ram_image_map);
	pair_close(&p);
	mem_finish(&m);
}

/* Some pages of many, the last one too. */
static void fill_sparsely(struct mem *m)
{
	uint64_t seed = 5;

	for (uint64_t page = 0; page < mem_pages(m); page += 1 + rnd(&seed) % 300)
		page_fill(m, page, &seed);
	assert_int_equal(mem_write(m, page_gpa(m, mem_pages(m) - 1), "end", 3), 0);
}

static int64_t blocks_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_blocks;
}

/* What is mapped of a snapshot and was not written comes from its file, but where that has holes nobody looks: in a file of
 * memory a look at a hole fills it. */
static void a_clone_is_stored_without_a_look_at_the_holes(void **state)
{
	struct err err = ERR_INIT;
	struct ram_image *im = NULL;
	struct mem first, clone;

	mem_make(&first, MIB(64));
	fill_sparsely(&first);
	struct pair p = save(&first, *state, 0, 1, 0, NULL);
	int64_t blocks = blocks_of(p.data);

	mem_make(&clone, MIB(64));
	assert_int_equal(open_chain(&p, 1, clone.size, &im, &err), 0);
	assert_int_equal(ram_image_map(im, &clone, *state, &err), 0);
	ram_image_close(im);
	assert_int_equal(mem_write(&clone, GPA(MIB(9)), "new", 3), 0);
	assert_int_equal(mem_zero(&clone, page_gpa(&clone, mem_pages(&clone) - 1), MEM_PAGE_SIZE), 0);
	assert_int_equal(mem_discard(&clone, GPA(MIB(20)), MIB(4)), 0);
	for (int level = 0; level <= 1; level++) {
		struct pair q = save(&clone, *state, level, 2, 0, NULL);

		if (clone.pagemap_fd >= 0)
			assert_true(blocks_of(p.data) <= blocks + 2 * MEM_PAGE_SIZE / 512);
		check_restore(&q, 1, &clone, *state, ram_image_load);
		pair_close(&q);
		blocks = INT32_MAX; /* check_restore has looked everywhere */
	}
	pair_close(&p);
	mem_finish(&first);
	mem_finish(&clone);
}

static void figures_count_the_end_state(void **state)
{
	struct mem m;
	struct pair p = pair_new();
	uint8_t b = 1;

	mem_make(&m, SMALL);
	struct ram_writer *w = writer_new(&m, &p, 0, 1, 0);
	uint64_t *bits = bits_new(&m, 0xff);

	assert_int_equal(mem_write(&m, GPA(0), &b, 1), 0);
	assert_int_equal(mem_write(&m, GPA(MEM_PAGE_SIZE * 20), &b, 1), 0);
	writer_put(w, *state, bits);
	assert_int_equal(mem_zero(&m, GPA(0), 1), 0);
	memset(bits, 0, mem_pages(&m) / 8);
	bits_set(bits, 0);
	writer_put(w, *state, bits);
	struct ram_writer_stats s = writer_finish(w);

	assert_int_equal(s.pages, 1);
	assert_int_equal(s.zero_pages, 255);
	assert_int_equal(s.bytes, 3 * MEM_PAGE_SIZE);
	free(bits);
	pair_close(&p);
	mem_finish(&m);
}

/* Neither of a compressed image's frames is longer than its pages. */
static void noise_is_stored_raw_in_a_compressed_image(void **state)
{
	struct mem m;
	uint64_t seed = 1, *all;
	uint8_t noise[MEM_PAGE_SIZE];

	mem_make(&m, SMALL);
	for (uint64_t page = 0; page < mem_pages(&m); page++) {
		for (unsigned i = 0; i < sizeof(noise); i++)
			noise[i] = (uint8_t)(rnd(&seed) >> 11);
		assert_int_equal(mem_write(&m, page_gpa(&m, page), noise, sizeof(noise)), 0);
	}
	struct pair p = pair_new();
	struct ram_writer *w = writer_new(&m, &p, 3, 1, 0);

	all = bits_new(&m, 0xff);
	writer_put(w, *state, all);
	assert_int_equal(writer_finish(w).bytes, SMALL);
	check_restore(&p, 1, &m, *state, ram_image_load);
	free(all);
	pair_close(&p);
	mem_finish(&m);
}

static void a_full_disk_is_reported_and_ends_the_writer(void **state)
{
	struct mem m;
	struct err err = ERR_INIT;
	struct pair p = pair_new();

	mem_make(&m, SMALL);
	mem_fill(&m, 1);
	fd_close(p.data);
	p.data = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(p.data >= 0);
	for (int level = 0; level <= 1; level++) {
		struct ram_writer *w = writer_new(&m, &p, level, 1, 0);
		uint64_t *all = bits_new(&m, 0xff);

		assert_int_equal(ram_writer_put(w, *state, all, &err), -ENOSPC);
		assert_non_null(strstr(err.text, "No space left"));
		memset(all, 0, mem_pages(&m) / 8);
		assert_int_equal(ram_writer_put(w, *state, all, &err), -ENOSPC);
		assert_int_equal(ram_writer_finish(w, NULL, &err), -ENOSPC);
		ram_writer_free(w);
		free(all);
	}
	pair_close(&p);
	mem_finish(&m);
}

static void bad_settings_are_refused(void **state)
{
	struct mem m;
	struct ram_writer *w = NULL;
	struct err err = ERR_INIT;

	(void)state;
	mem_make(&m, SMALL);
	struct ram_writer_config c = { .mem = &m, .data_fd = -1, .index_fd = -1, .level = 20, .id = id_of(1) };

	assert_int_equal(ram_writer_new(&c, &w, &err), -EINVAL);
	assert_non_null(strstr(err.text, "20"));
	c.level = -1;
	assert_int_equal(ram_writer_new(&c, &w, &err), -EINVAL);
	c.level = 0;
	c.id = (struct ram_id){ { 0 } };
	assert_int_equal(ram_writer_new(&c, &w, &err), -EINVAL);
	assert_null(w);
	ram_writer_free(NULL);
	mem_finish(&m);
}

struct scribble {
	struct mem *m;
	_Atomic bool stop;
};

static void scribble_work(void *arg, unsigned i)
{
	struct scribble *s = arg;
	uint64_t seed = i + 1;

	while (!s->stop) {
		uint64_t v = rnd(&seed);

		mem_write(s->m, GPA(v % (s->m->size / 8) * 8), &v, sizeof(v));
	}
}

/* A page was looked at as zeros, and had changed again when it was written: the file has what no record names. When it is
 * zero at last, the file must say so. */
static void a_page_that_was_zero_for_a_moment_is_zeros_in_the_file(void **state)
{
	static const uint8_t caught[MEM_PAGE_SIZE] = { [100] = 7 };
	uint64_t value = 5, page = 21;
	struct mem m;

	mem_make(&m, MIB(1));
	uint64_t *all = bits_new(&m, 0xff), *dirty = bits_new(&m, 0);
	struct pair p = pair_new();
	struct ram_writer *w = writer_new(&m, &p, 0, 1, 0);

	bits_set(dirty, page);
	assert_int_equal(mem_write(&m, GPA(page * MEM_PAGE_SIZE), &value, sizeof(value)), 0);
	writer_put(w, *state, all);
	value = 0;
	assert_int_equal(mem_write(&m, GPA(page * MEM_PAGE_SIZE), &value, sizeof(value)), 0);
	writer_put(w, *state, dirty);
	assert_int_equal(fd_pwrite_full(p.data, caught, sizeof(caught), (off_t)(RAM_DATA_START + page * MEM_PAGE_SIZE)), 0);
	writer_put(w, *state, dirty);
	writer_finish(w);
	check_restore(&p, 1, &m, *state, ram_image_map);
	pair_close(&p);
	free(all);
	free(dirty);
	mem_finish(&m);
}

/* The guest writes while its memory is stored. What it wrote is given again when it stands still, and everything is right. */
static void memory_may_change_while_it_is_stored(void **state)
{
	struct workers guest;
	struct err err = ERR_INIT;
	struct mem m;

	mem_make(&m, MIB(8));
	mem_fill(&m, 1);
	uint64_t *all = bits_new(&m, 0xff), *dirty = bits_new(&m, 0);

	assert_int_equal(workers_start(&guest, NULL, 1, "guest", &err), 0);
	for (int level = 0; level <= 1; level++) {
		struct scribble s = { .m = &m };
		struct pair p = pair_new();
		struct ram_writer *w = writer_new(&m, &p, level, 1, 0);

		assert_int_equal(mem_dirty_start(&m, &err), 0);
		workers_begin(&guest, scribble_work, &s);
		writer_put(w, *state, all);
		memset(dirty, 0, mem_pages(&m) / 8);
		assert_int_equal(mem_dirty_collect(&m, dirty, &err), 0);
		writer_put(w, *state, dirty);
		s.stop = true;
		workers_wait(&guest);
		memset(dirty, 0, mem_pages(&m) / 8);
		assert_int_equal(mem_dirty_collect(&m, dirty, &err), 0);
		writer_put(w, *state, dirty);
		writer_finish(w);
		check_restore(&p, 1, &m, *state, ram_image_load);
		pair_close(&p);
	}
	workers_finish(&guest);
	free(all);
	free(dirty);
	mem_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_raw_comes_back),
		cmocka_unit_test(full_zstd_comes_back),
		cmocka_unit_test(memory_that_ends_inside_a_chunk_comes_back),
		cmocka_unit_test(memory_around_the_hole_comes_back),
		cmocka_unit_test(diff_stores_only_its_pages),
		cmocka_unit_test(zero_pages_of_a_diff_hide_the_parents),
		cmocka_unit_test(pages_given_again_replace_what_was_stored),
		cmocka_unit_test(pages_of_one_chunk_in_several_puts_are_all_kept),
		cmocka_unit_test(empty_memory_takes_no_space),
		cmocka_unit_test(a_clone_is_stored_without_a_look_at_the_holes),
		cmocka_unit_test(figures_count_the_end_state),
		cmocka_unit_test(noise_is_stored_raw_in_a_compressed_image),
		cmocka_unit_test(a_full_disk_is_reported_and_ends_the_writer),
		cmocka_unit_test(bad_settings_are_refused),
		cmocka_unit_test(a_page_that_was_zero_for_a_moment_is_zeros_in_the_file),
		cmocka_unit_test(memory_may_change_while_it_is_stored),
	};

	return cmocka_run_group_tests(tests, setup_workers, teardown_workers);
}
