/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of memory images: chains, flattening, and what damaged or hostile files are refused for. */
#include "tests/unit/ram_fixture.h"

enum { SMALL = 1 << 20 };

/* A full image and nine diffs over it, newest first; *m ends as what they say. */
static void make_chain(struct mem *m, struct workers *ws, int base_level, struct pair *chain)
{
	uint64_t seed = 4;

	mem_make(m, MIB(3) + 7 * MEM_PAGE_SIZE);
	mem_fill(m, 2);
	chain[9] = save(m, ws, base_level, 1, 0, NULL);
	for (unsigned k = 1; k < 10; k++) {
		uint64_t *bits = bits_new(m, 0);

		for (unsigned i = 0; i < 60; i++) {
			uint64_t page = rnd(&seed) % mem_pages(m);

			page_fill(m, page, &seed);
			bits_set(bits, page);
		}
		chain[9 - k] = save(m, ws, k % 3 ? 1 : 0, k + 1, k, bits);
		free(bits);
	}
}

static void close_chain(struct pair *chain, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		pair_close(&chain[i]);
}

static void a_chain_of_ten_comes_back(void **state)
{
	for (int level = 0; level <= 1; level++) {
		struct pair chain[10];
		struct mem m;

		make_chain(&m, *state, level, chain);
		check_restore(chain, 10, &m, *state, ram_image_load);
		check_restore(chain, 10, &m, NULL, ram_image_load);
		if (level == 0)
			check_restore(chain, 10, &m, *state, ram_image_map);
		close_chain(chain, 10);
		mem_finish(&m);
	}
}

static void a_flattened_chain_is_one_full_image(void **state)
{
	struct pair chain[10];
	struct mem m;
	struct err err = ERR_INIT;
	struct ram_id id = id_of(77);

	make_chain(&m, *state, 0, chain);
	for (int level = 0; level <= 1; level++) {
		struct ram_image *im = must_open(chain, 10, m.size);
		struct pair flat = pair_new();

		if (ram_image_flatten(im, flat.data, flat.index, level, &id, &err) < 0)
			fail_msg("%s", err.text);
		ram_image_close(im);
		im = must_open(&flat, 1, m.size);
		struct ram_id got = ram_image_id(im);

		assert_memory_equal(&got, &id, sizeof(id));
		ram_image_close(im);
		check_restore(&flat, 1, &m, *state, level ? ram_image_load : ram_image_map);
		pair_close(&flat);
	}
	close_chain(chain, 10);
	mem_finish(&m);
}

static void a_flatten_of_damaged_contents_says_where(void **state)
{
	struct mem m;
	struct err err = ERR_INIT;
	struct ram_id id = id_of(77);

	mem_make(&m, SMALL);
	assert_int_equal(mem_write(&m, GPA(RAM_CHUNK_SIZE * 3), "x", 1), 0);
	struct pair p = save(&m, *state, 0, 1, 0, NULL), flat = pair_new();
	struct ram_image *im = must_open(&p, 1, m.size);

	file_flip(p.data, RAM_DATA_START + RAM_CHUNK_SIZE * 3 + 9);
	assert_int_equal(ram_image_flatten(im, flat.data, flat.index, 1, &id, &err), -EINVAL);
	assert_string_equal(err.text, "ram: damaged: chunk 3: checksum");
	ram_image_close(im);
	pair_close(&p);
	pair_close(&flat);
	mem_finish(&m);
}

/* ---- damage ---- */

static void refused(const struct pair *pairs, unsigned n, uint64_t size, int code, const char *words)
{
	struct ram_image *im = NULL;
	struct err err = ERR_INIT;
	int r = open_chain(pairs, n, size, &im, &err);

	if (r != code || !strstr(err.text, words))
		fail_msg("%d '%s' instead of %d '%s'", r, err.text, code, words);
	assert_null(im);
}

static struct pair small_image(struct mem *m, struct workers *ws, int level, unsigned parent)
{
	uint64_t *bits = bits_new(m, 0);

	for (uint64_t page = 5; page < 80; page += 3) {
		char text[32];

		snprintf(text, sizeof(text), "page %d", (int)page);
		assert_int_equal(mem_write(m, page_gpa(m, page), text, sizeof(text)), 0);
		bits_set(bits, page);
		bits_set(bits, page + 1);
	}
	struct pair p = save(m, ws, level, parent + 1, parent, bits);

	free(bits);
	return p;
}

static void every_flipped_byte_of_the_index_is_refused(void **state)
{
	for (int level = 0; level <= 1; level++) {
		struct mem m;

		mem_make(&m, SMALL);
		struct pair p = small_image(&m, *state, level, 0), bad = {.data = p.data, .index = file_copy(p.index)};

		for (uint64_t at = 0; at < file_size(p.index); at++) {
			struct ram_image *im = NULL;
			struct err err = ERR_INIT;

			file_flip(bad.index, at);
			assert_true(open_chain(&bad, 1, SMALL, &im, &err) < 0);
			assert_non_null(strstr(err.text, "ram.index"));
			assert_null(im);
			file_flip(bad.index, at);
		}
		check_restore(&bad, 1, &m, *state, ram_image_load);
		fd_close(bad.index);
		pair_close(&p);
		mem_finish(&m);
	}
}

static void every_truncation_of_the_index_is_refused(void **state)
{
	struct mem m;

	mem_make(&m, SMALL);
	struct pair p = small_image(&m, *state, 0, 0);
	uint64_t size = file_size(p.index);

	assert_int_equal(pwrite(p.index, "", 1, (off_t)size), 1);
	refused(&p, 1, SMALL, -EINVAL, "ram.index: too long");
	for (uint64_t n = size; n-- > 0;) {
		assert_int_equal(ftruncate(p.index, (off_t)n), 0);
		refused(&p, 1, SMALL, -EINVAL, "ram.index: truncated");
	}
	pair_close(&p);
	mem_finish(&m);
}

/* Headers at open; contents when they are read. What verify lets pass is in no page and in no frame. */
static void every_flipped_byte_of_the_contents_is_refused(void **state)
{
	for (int level = 0; level <= 1; level++) {
		struct mem m, back;

		mem_make(&m, SMALL);
		struct pair p = small_image(&m, *state, level, 0), bad = {.data = file_copy(p.data), .index = p.index};

		mem_make(&back, SMALL);
		for (uint64_t at = 0, step; at < file_size(p.data); at += step) {
			struct ram_image *im = NULL;
			struct err err = ERR_INIT;

			/* All bytes of a page are hashed alike; of headers and compressed frames each is tried. */
			step = at < sizeof(struct ram_data_header) || (level && at >= RAM_DATA_START) ? 1 : 509;
			file_flip(bad.data, at);
			int r = open_chain(&bad, 1, SMALL, &im, &err);

			if (at < sizeof(struct ram_data_header))
				assert_true(r < 0);
			else
				assert_int_equal(r, 0);
			if (r == 0)
				assert_true(ram_image_verify(im, NULL, NULL, &err) < 0);
			assert_true(strncmp(err.text, "ram: ", 5) == 0);
			/* Loading reads what pages are made of, and either refuses or has not seen it. */
			if (r == 0 && ram_image_load(im, &back, NULL, &err) == 0) {
				assert_true(at < RAM_DATA_START || level == 0);
				assert_same_memory(&back, &m);
			}
			ram_image_close(im);
			file_flip(bad.data, at);
		}
		fd_close(bad.data);
		pair_close(&p);
		mem_finish(&back);
		mem_finish(&m);
	}
}

static void truncated_contents_are_refused_at_open(void **state)
{
	struct mem m;

	mem_make(&m, SMALL);
	for (int level = 0; level <= 1; level++) {
		struct pair p = small_image(&m, *state, level, 0);
		uint64_t size = file_size(p.data);

		assert_int_equal(ftruncate(p.data, (off_t)size + 1), 0);
		refused(&p, 1, SMALL, -EINVAL, "ram: too long");
		for (uint64_t n = size; n > 0; n = n > 997 ? n - 997 : 0) {
			assert_int_equal(ftruncate(p.data, (off_t)n - 1), 0);
			refused(&p, 1, SMALL, -EINVAL, "ram: truncated");
		}
		pair_close(&p);
	}
	mem_finish(&m);
}

static void files_of_two_snapshots_are_refused(void **state)
{
	struct mem m;

	mem_make(&m, SMALL);
	struct pair a = save(&m, *state, 0, 1, 0, NULL), b = save(&m, *state, 0, 2, 0, NULL);
	struct pair mixed = { .data = a.data, .index = b.index }, swapped = { .data = a.index, .index = a.data };

	refused(&mixed, 1, SMALL, -EINVAL, "another snapshot");
	refused(&swapped, 1, SMALL, -EINVAL, "ram.index: not such a file");
	pair_close(&a);
	pair_close(&b);
	mem_finish(&m);
}

static void chains_that_do_not_fit_are_refused(void **state)
{
	struct mem m;

	mem_make(&m, SMALL);
	struct pair full = save(&m, *state, 0, 1, 0, NULL), other = save(&m, *state, 0, 5, 0, NULL);
	struct pair diff = small_image(&m, *state, 0, 1), third = small_image(&m, *state, 0, 2);
	struct pair ok[] = {third, diff, full}, gap[] = {third, full}, wrong[] = {diff, other}, two[] = {other, full};
	struct pair many[RAM_CHAIN_MAX + 1] = { full };
	struct ram_image *im = must_open(ok, 3, SMALL);

	ram_image_close(im);
	refused(gap, 2, SMALL, -EINVAL, "its parent is another snapshot");
	refused(wrong, 2, SMALL, -EINVAL, "its parent is another snapshot");
	refused(two, 2, SMALL, -EINVAL, "a full snapshot, with 1 parents");
	refused(&third, 1, SMALL, -EINVAL, "only the changes since a parent");
	refused(ok, 0, SMALL, -EINVAL, "chain of 0");
	refused(many, RAM_CHAIN_MAX + 1, SMALL, -EINVAL, "chain of 65");
	refused(&full, 1, 2 * SMALL, -EINVAL, "bytes of memory");
	refused(&full, 1, 4095, -EINVAL, "out of range");
	pair_close(&full);
	pair_close(&other);
	pair_close(&diff);
	pair_close(&third);
	mem_finish(&m);
}

static void errors_name_the_parent(void **state)
{
	struct mem m;
	struct err err = ERR_INIT;

	mem_make(&m, SMALL);
	assert_int_equal(mem_write(&m, GPA(RAM_CHUNK_SIZE * 9), "x", 1), 0);
	struct pair full = save(&m, *state, 0, 1, 0, NULL), diff = small_image(&m, *state, 1, 1);
	struct pair chain[] = { diff, full };
	struct ram_image *im = must_open(chain, 2, SMALL);

	file_flip(full.data, RAM_DATA_START + RAM_CHUNK_SIZE * 9);
	assert_int_equal(ram_image_load(im, &m, *state, &err), -EINVAL);
	assert_string_equal(err.text, "ram of parent 1: damaged: chunk 9: checksum");
	ram_image_close(im);
	file_flip(full.index, 130);
	refused(chain, 2, SMALL, -EINVAL, "ram.index of parent 1: damaged: checksum of the records");
	close_chain(chain, 2);
	mem_finish(&m);
}

/* Cancelled before it begins, so that nothing depends on who is faster: not one frame is read then. */
static void a_cancelled_fill_reads_no_further(void **state)
{
	struct workers *const threads[] = { *state, NULL };
	struct mem m, back, none;

	mem_make(&m, SMALL);
	mem_make(&none, SMALL);
	mem_fill(&m, 5);
	struct pair full = save(&m, *state, 0, 1, 0, NULL), diff = save(&m, *state, 1, 2, 1, NULL);
	struct pair chain[] = { diff, full };

	for (unsigned i = 0; i < ARRAY_SIZE(threads); i++) {
		struct ram_image *im = must_open(chain, 2, SMALL);
		struct err err = ERR_INIT;

		mem_make(&back, SMALL);
		ram_image_cancel(im);
		assert_int_equal(ram_image_load(im, &back, threads[i], &err), -ECANCELED);
		assert_same_memory(&back, &none);
		assert_int_equal(ram_image_map(im, &back, threads[i], &err), -ECANCELED);
		ram_image_close(im);
		mem_finish(&back);
	}
	ram_image_cancel(NULL);
	close_chain(chain, 2);
	mem_finish(&none);
	mem_finish(&m);
}

static void mapping_a_compressed_image_is_refused(void **state)
{
	struct mem m;
	struct err err = ERR_INIT;

	mem_make(&m, SMALL);
	struct pair p = save(&m, *state, 1, 1, 0, NULL);
	struct ram_image *im = must_open(&p, 1, SMALL);

	assert_int_equal(ram_image_map(im, &m, *state, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "--eager"));
	ram_image_close(im);
	pair_close(&p);
	mem_finish(&m);
}

static void another_size_of_memory_is_refused(void **state)
{
	struct mem m, other;
	struct err err = ERR_INIT;

	mem_make(&m, SMALL);
	mem_make(&other, 2 * SMALL);
	struct pair p = save(&m, *state, 0, 1, 0, NULL);
	struct ram_image *im = must_open(&p, 1, SMALL);

	assert_int_equal(ram_image_load(im, &other, *state, &err), -EINVAL);
	assert_int_equal(ram_image_map(im, &other, *state, &err), -EINVAL);
	ram_image_close(im);
	pair_close(&p);
	mem_finish(&other);
	mem_finish(&m);
}

/* ---- hostile: checksums are right ---- */

struct doc {
	struct ram_index_header h;
	struct ram_record rec[16];
};

static void doc_read(const struct pair *p, struct doc *d)
{
	memset(d, 0, sizeof(*d));
	assert_true(fd_pread_full(p->index, d, sizeof(*d), 0) >= (ssize_t)(sizeof(d->h) + 2 * sizeof(d->rec[0])));
}

static void doc_write(const struct pair *p, struct doc *d)
{
	size_t n = (size_t)le64_get(d->h.records) % ARRAY_SIZE(d->rec) * sizeof(d->rec[0]);

	d->h.records_hash = le64_make(ram_hash(d->rec, n));
	d->h.hash = le64_make(ram_hash(&d->h, offsetof(struct ram_index_header, hash)));
	assert_int_equal(ftruncate(p->index, 0), 0);
	assert_int_equal(fd_pwrite_full(p->index, d, sizeof(d->h) + n, 0), 0);
}

#define HOSTILE(pair, good, words, ...)                            \
	do {                                                       \
		struct doc d = (good);                             \
		__VA_ARGS__;                                       \
		doc_write(&(pair), &d);                            \
		refused(&(pair), 1, SMALL, -EINVAL, words);        \
	} while (0)

static void hostile_headers_are_refused(void **state)
{
	struct mem m;
	struct doc good;

	mem_make(&m, SMALL);
	struct pair p = small_image(&m, *state, 1, 0);

	doc_read(&p, &good);
	HOSTILE(p, good, "version 0", d.h.version = le32_make(0));
	HOSTILE(p, good, "header", d.h.header_size = le32_make(64));
	HOSTILE(p, good, "header", d.h.page_size = le32_make(16384));
	HOSTILE(p, good, "header", d.h.chunk_pages = le32_make(512));
	HOSTILE(p, good, "header", d.h.reserved[1] = le64_make(1));
	HOSTILE(p, good, "bytes of memory", d.h.mem_size = le64_make(UINT64_MAX));
	HOSTILE(p, good, "number of chunks", d.h.chunks = le64_make(17));
	HOSTILE(p, good, "number of chunks", d.h.records = le64_make(17));
	HOSTILE(p, good, "number of chunks", d.h.records = le64_make(UINT64_MAX / 32));
	HOSTILE(p, good, "kind", d.h.encoding = le32_make(2));
	HOSTILE(p, good, "kind", d.h.kind = le32_make(2));
	HOSTILE(p, good, "ids", d.h.kind = le32_make(RAM_DIFF));
	HOSTILE(p, good, "ids", d.h.parent = id_of(3));
	HOSTILE(p, good, "ids", memset(&d.h.id, 0, sizeof(d.h.id)));
	HOSTILE(p, good, "offset", d.h.data_size = le64_make(RAM_DATA_START + 1));
	HOSTILE(p, good, "size of ram", d.h.data_size = le64_make(RAM_DATA_START - 1); d.h.records = le64_make(0));
	HOSTILE(p, good, "ram: damaged: header", d.h.encoding = le32_make(RAM_RAW); d.h.records = le64_make(0);
		d.h.data_size = le64_make(RAM_DATA_START + SMALL);
		assert_int_equal(ftruncate(p.data, RAM_DATA_START + SMALL), 0));
	struct doc newer = good;

	newer.h.version = le32_make(2);
	doc_write(&p, &newer);
	refused(&p, 1, SMALL, -ENOTSUP, "version 2");
	pair_close(&p);
	mem_finish(&m);
}

static void hostile_records_are_refused(void **state)
{
	struct mem m;
	struct doc good;

	mem_make(&m, SMALL);
	struct pair p = small_image(&m, *state, 1, 0);

	doc_read(&p, &good);
	assert_int_equal(le32_get(good.rec[1].encoding), RAM_ZSTD);
	HOSTILE(p, good, "record 1, chunk 0: chunk number", d.rec[1].chunk = d.rec[0].chunk);
	HOSTILE(p, good, "chunk number", d.rec[1].chunk = le32_make(16));
	HOSTILE(p, good, "chunk number", d.rec[1].chunk = le32_make(UINT32_MAX));
	HOSTILE(p, good, "pages", d.rec[1].present = le16_make(0));
	HOSTILE(p, good, "pages", d.rec[1].zero = le16_make(1));
	HOSTILE(p, good, "encoding", d.rec[1].encoding = le32_make(2));
	HOSTILE(p, good, "length", d.rec[1].encoding = le32_make(RAM_RAW));
	HOSTILE(p, good, "length", d.rec[1].length = le32_make(0));
	HOSTILE(p, good, "length", d.rec[1].length = le32_make(RAM_CHUNK_SIZE));
	HOSTILE(p, good, "length", d.rec[1].length = le32_make(UINT32_MAX));
	HOSTILE(p, good, "offset", d.rec[1].offset = le64_make(0));
	HOSTILE(p, good, "offset", d.rec[1].offset = le64_make(RAM_DATA_START - 1));
	HOSTILE(p, good, "offset", d.rec[1].offset = le64_make(UINT64_MAX - 3));
	HOSTILE(p, good, "offset", d.rec[1].offset = le64_make(le64_get(d.h.data_size) - 1));
	pair_close(&p);
	mem_finish(&m);
}

static void hostile_records_of_a_raw_image_are_refused(void **state)
{
	struct mem m;
	struct doc good;

	mem_make(&m, SMALL);
	struct pair p = small_image(&m, *state, 0, 0);

	doc_read(&p, &good);
	HOSTILE(p, good, "offset", d.rec[1].offset = d.rec[0].offset);
	HOSTILE(p, good, "encoding", d.rec[1].encoding = le32_make(RAM_ZSTD));
	HOSTILE(p, good, "length", d.rec[1].length = le32_make(le32_get(d.rec[1].length) + MEM_PAGE_SIZE));
	HOSTILE(p, good, "size of ram", d.h.data_size = le64_make(RAM_DATA_START + SMALL - 1));
	pair_close(&p);
	mem_finish(&m);
}

static void pages_beyond_the_end_of_memory_are_refused(void **state)
{
	const uint64_t size = SMALL + 3 * MEM_PAGE_SIZE;
	struct mem m;
	struct doc d = { 0 };

	mem_make(&m, size);
	assert_int_equal(mem_write(&m, GPA(SMALL), "x", 1), 0);
	struct pair p = save(&m, *state, 1, 1, 0, NULL);

	assert_true(fd_pread_full(p.index, &d, sizeof(d), 0) > 0);
	d.rec[0].present = le16_make(1 << 3);
	doc_write(&p, &d);
	refused(&p, 1, size, -EINVAL, "chunk 16: pages beyond the end of memory");
	pair_close(&p);
	mem_finish(&m);
}

/* A frame with the right checksum that is not what it should be. */
static void hostile_frames_are_refused(void **state)
{
	struct mem m;
	struct doc good, d;
	struct err err = ERR_INIT;
	uint8_t frame[512];

	mem_make(&m, SMALL);
	struct pair p = small_image(&m, *state, 1, 0);

	doc_read(&p, &good);
	uint32_t len = le32_get(good.rec[0].length);

	assert_true(len <= sizeof(frame));
	assert_int_equal(fd_pread_full(p.data, frame, len, (off_t)le64_get(good.rec[0].offset)), len);
	for (unsigned kind = 0; kind < 3; kind++) {
		d = good;
		if (kind == 0) { /* fewer pages than the frame has */
			uint16_t present = le16_get(d.rec[0].present);

			d.rec[0].present = le16_make(present & (uint16_t)(present - 1));
		} else if (kind == 1) { /* more */
			d.rec[0].present = le16_make(0xffff);
		} else { /* cut short */
			d.rec[0].length = le32_make(len - 1);
			d.rec[0].hash = le64_make(ram_hash(frame, len - 1));
		}
		doc_write(&p, &d);
		struct ram_image *im = must_open(&p, 1, SMALL);

		assert_int_equal(ram_image_load(im, &m, *state, &err), -EINVAL);
		assert_string_equal(err.text, "ram: damaged: chunk 0: not a zstd frame of its pages");
		assert_int_equal(ram_image_verify(im, NULL, NULL, &err), -EINVAL);
		ram_image_close(im);
	}
	pair_close(&p);
	mem_finish(&m);
}

struct steps {
	uint64_t done, total;
	unsigned n;
};

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct steps *s = arg;

	assert_true(done >= s->done && done <= total);
	*s = (struct steps){ done, total, s->n + 1 };
}

static void verify_tells_how_far_it_is(void **state)
{
	struct steps s = { 0 };
	struct pair chain[10];
	struct mem m;
	struct err err = ERR_INIT;

	make_chain(&m, *state, 0, chain);
	struct ram_image *im = must_open(chain, 10, m.size);

	assert_int_equal(ram_image_verify(im, on_progress, &s, &err), 0);
	assert_true(s.n > 10);
	assert_int_equal(s.done, s.total);
	ram_image_close(im);
	close_chain(chain, 10);
	mem_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chain_of_ten_comes_back),
		cmocka_unit_test(a_flattened_chain_is_one_full_image),
		cmocka_unit_test(a_flatten_of_damaged_contents_says_where),
		cmocka_unit_test(every_flipped_byte_of_the_index_is_refused),
		cmocka_unit_test(every_truncation_of_the_index_is_refused),
		cmocka_unit_test(every_flipped_byte_of_the_contents_is_refused),
		cmocka_unit_test(truncated_contents_are_refused_at_open),
		cmocka_unit_test(files_of_two_snapshots_are_refused),
		cmocka_unit_test(chains_that_do_not_fit_are_refused),
		cmocka_unit_test(errors_name_the_parent),
		cmocka_unit_test(a_cancelled_fill_reads_no_further),
		cmocka_unit_test(mapping_a_compressed_image_is_refused),
		cmocka_unit_test(another_size_of_memory_is_refused),
		cmocka_unit_test(hostile_headers_are_refused),
		cmocka_unit_test(hostile_records_are_refused),
		cmocka_unit_test(hostile_records_of_a_raw_image_are_refused),
		cmocka_unit_test(pages_beyond_the_end_of_memory_are_refused),
		cmocka_unit_test(hostile_frames_are_refused),
		cmocka_unit_test(verify_tells_how_far_it_is),
	};

	return cmocka_run_group_tests(tests, setup_workers, teardown_workers);
}
