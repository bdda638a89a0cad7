/* SPDX-License-Identifier: Apache-2.0 */
/* ZFiles that are damaged, cut or made to harm: refused, or an error on the block, never other bytes. */
#include "tests/unit/zfile_fixture.h"

enum { BLOCKS = 5, BLOCK = 4096, SIZE = BLOCKS * BLOCK - 1000 };

struct small {
	struct bytes c;
	struct memory m;
};

/* Few stored bytes: runs of words. */
static struct small small_make(enum zfile_algo algo)
{
	struct zfile_options o = { .algo = algo, .block_size = BLOCK, .threads = 1 };
	struct small s = { .c = { malloc(SIZE), SIZE } };

	for (size_t i = 0; i < SIZE; i++)
		s.c.p[i] = (uint8_t)(i % 300 < 250 ? "some words to repeat"[i % 20] + (int)(i / BLOCK) : (int)(i / 50));
	s.m.b = zfile_make(&s.c, &o, SIZE);
	return s;
}

static void small_free(struct small *s)
{
	free(s->c.p);
	free(s->m.b.p);
}

/* Decode, change, encode the trailer; its digest comes out right. */
static struct zfile_head trailer_of(const struct small *s)
{
	struct zfile_head h;

	assert_int_equal(zfile_head_decode(s->m.b.p + s->m.b.n - ZFILE_SPACE, "", "", &h, NULL), 0);
	return h;
}

static void set_trailer(struct small *s, const struct zfile_head *h)
{
	zfile_head_encode(h, s->m.b.p + s->m.b.n - ZFILE_SPACE);
}

static void set_header(struct small *s, const struct zfile_head *h)
{
	zfile_head_encode(h, s->m.b.p);
}

static void set_entry(struct small *s, unsigned i, uint32_t stored)
{
	struct zfile_head h = trailer_of(s);

	le32_store(s->m.b.p + h.index_offset + 4 * i, stored);
	h.index_crc = zfile_crc(0, s->m.b.p + h.index_offset, 4 * h.blocks);
	set_trailer(s, &h);
}

/* Of a file that opens: every block is right or an error. Returns how many are errors. */
static int count_errors(struct zfile *z, const struct small *s)
{
	struct zfile_ctx *x = zfile_ctx_create();
	uint8_t buf[BLOCK];
	int errors = 0;

	assert_int_equal(zfile_info(z)->size, SIZE);
	for (uint64_t off = 0; off < SIZE; off += BLOCK) {
		size_t n = MIN((size_t)BLOCK, SIZE - (size_t)off);
		ssize_t whole = zfile_pread(z, x, buf, n, off);

		if (whole >= 0)
			assert_memory_equal(buf, s->c.p + off, n);
		else
			assert_int_equal(whole, -EBADMSG);
		errors += whole < 0;
		/* In part, which goes another way. */
		if (zfile_pread(z, x, buf, 100, off + 50) >= 0) {
			assert_true(whole >= 0);
			assert_memory_equal(buf, s->c.p + off + 50, 100);
		} else {
			assert_true(whole < 0);
		}
	}
	zfile_ctx_destroy(x);
	return errors;
}

static void every_truncation_is_refused(void **state)
{
	(void)state;
	for (int algo = ZFILE_LZ4; algo <= ZFILE_ZSTD; algo++) {
		struct small s = small_make((enum zfile_algo)algo);

		for (size_t n = 0; n < s.m.b.n; n++) {
			struct memory m = { .b = { s.m.b.p, n } };

			zfile_refused(&m, "");
		}
		small_free(&s);
	}
}

/* Anything in blocks is an error of that block alone, and anything in index, header or trailer is refused. The exceptions are
 * the flags no one knows: they are an early writer's, which had no digests, and nothing else of the header is needed. */
static void every_changed_byte_is_noticed(void **state)
{
	static const uint8_t flips[] = { 1, 0x80, 0xff };

	(void)state;
	for (int algo = ZFILE_LZ4; algo <= ZFILE_ZSTD; algo++) {
		struct small s = small_make((enum zfile_algo)algo);
		uint64_t index = trailer_of(&s).index_offset, end = s.m.b.n - ZFILE_SPACE;

		for (size_t at = 0; at < s.m.b.n; at++)
			for (size_t i = 0; i < ARRAY_SIZE(flips); i++) {
				struct zfile_source src = memory_source(&s.m);
				bool flags = (at >= 32 && at < 40) || (at >= end + 32 && at < end + 40);
				struct zfile *z = NULL;

				s.m.b.p[at] ^= flips[i];
				if (zfile_open(&src, "layer", &z, NULL) == 0) {
					int errors = count_errors(z, &s);

					if (at >= ZFILE_SPACE && at < index)
						assert_int_equal(errors, 1);
					else if (!flags || errors)
						fail_msg("byte %zu changed, and it opened (%d errors)", at, errors);
					zfile_close(z);
				} else {
					assert_true(at < ZFILE_SPACE || at >= index);
				}
				s.m.b.p[at] ^= flips[i];
			}
		small_free(&s);
	}
}

/* Without checksums: whatever the blocks hold, what is read has the content's size or is an error. */
static void damage_without_checksums_stays_inside(void **state)
{
	(void)state;
	for (int algo = ZFILE_LZ4; algo <= ZFILE_ZSTD; algo++) {
		struct small s = small_make((enum zfile_algo)algo), bare = { .c = s.c };
		struct zfile_head h = trailer_of(&s);
		struct zfile_ctx *x = zfile_ctx_create();
		uint8_t *p = malloc(SIZE), space[ZFILE_SPACE];
		uint64_t at = ZFILE_SPACE;
		struct zfile *z;

		/* The same blocks, without theirs. */
		sink_append(&bare.m.b, s.m.b.p, ZFILE_SPACE);
		for (unsigned i = 0; i < BLOCKS; i++) {
			uint32_t n = le32_load(s.m.b.p + h.index_offset + 4 * i);

			sink_append(&bare.m.b, s.m.b.p + at, n - ZFILE_CRC_BYTES);
			at += n;
			le32_store(space + 4 * i, n - ZFILE_CRC_BYTES);
		}
		h.index_offset = bare.m.b.n;
		h.verify = 0;
		h.flags &= ~(uint64_t)ZFILE_FLAG_DIGEST;
		sink_append(&bare.m.b, space, 4 * BLOCKS);
		zfile_head_encode(&h, space);
		sink_append(&bare.m.b, space, ZFILE_SPACE);

		z = zfile_of(&bare.m);
		assert_false(zfile_info(z)->checked);
		assert_int_equal(count_errors(z, &bare), 0);
		for (uint64_t k = ZFILE_SPACE; k < h.index_offset; k++)
			for (int bit = 0; bit < 8; bit++) {
				ssize_t r;

				bare.m.b.p[k] ^= (uint8_t)(1 << bit);
				r = zfile_pread(z, x, p, SIZE, 0);
				assert_true(r == SIZE || r == -EBADMSG);
				bare.m.b.p[k] ^= (uint8_t)(1 << bit);
			}
		zfile_close(z);
		zfile_ctx_destroy(x);
		free(p);
		free(bare.m.b.p);
		small_free(&s);
	}
}

static void fields_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *why;
		size_t at;      /* of struct zfile_head */
		size_t bytes;
		uint64_t v;
	} bad[] = {
#define BAD(field, v, why) { why, offsetof(struct zfile_head, field), sizeof(((struct zfile_head *)0)->field), v }
		BAD(algo, 0, "compression 0 is not known"),
		BAD(algo, 3, "compression 3 is not known"),
		BAD(use_dict, 1, "dictionary"),
		BAD(dict_size, 4096, "dictionary"),
		BAD(verify, 2, "flag for checksums is 2"),
		BAD(block_size, 0, "blocks of 0 bytes"),
		BAD(block_size, 2048, "blocks of 2048 bytes"),
		BAD(block_size, 5000, "blocks of 5000 bytes"),
		BAD(block_size, 1u << 31, "blocks of 2147483648 bytes"),
		BAD(block_size, 8192, "cannot hold exactly"),
		BAD(blocks, 0, "index of 0 blocks"),
		BAD(blocks, ZFILE_BLOCKS_MAX + 1, "index of 67108865 blocks"),
		BAD(blocks, UINT64_MAX, "blocks"),
		BAD(blocks, UINT64_MAX / 4 + 2, "blocks"),
		BAD(blocks, BLOCKS + 1, "cannot hold exactly"),
		BAD(blocks, BLOCKS - 1, "cannot hold exactly"),
		BAD(size, 0, "cannot hold exactly"),
		BAD(size, UINT64_MAX, "cannot hold exactly"),
		BAD(size, BLOCKS * BLOCK + 1, "cannot hold exactly"),
		BAD(index_offset, 0, "does not fit"),
		BAD(index_offset, ZFILE_SPACE - 1, "does not fit"),
		BAD(index_offset, UINT64_MAX, "does not fit"),
		BAD(index_offset, UINT64_MAX - 3, "does not fit"),
		BAD(index_crc, 1, "index is damaged"),
		BAD(flags, ZFILE_FLAG_DATA | ZFILE_FLAG_DIGEST, "not a complete ZFile"),
		BAD(flags, ZFILE_FLAG_SEALED | ZFILE_FLAG_DIGEST, "not a complete ZFile"),
		BAD(flags, ZFILE_FLAG_HEADER | ZFILE_FLAG_DATA | ZFILE_FLAG_SEALED, "not a complete ZFile"),
		BAD(flags, ZFILE_FLAG_DATA | ZFILE_FLAG_SEALED | ZFILE_FLAG_INDEX_COMPRESSED, "index is compressed"),
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct small s = small_make(ZFILE_LZ4);
		struct zfile_head h = trailer_of(&s), good = h;

		memcpy((char *)&h + bad[i].at, &bad[i].v, bad[i].bytes);
		set_trailer(&s, &h);
		zfile_refused(&s.m, bad[i].why);
		set_trailer(&s, &good);
		zfile_close(zfile_of(&s.m));
		small_free(&s);
	}
}

static void index_entries_that_cannot_be_are_refused(void **state)
{
	static const struct {
		uint32_t v;
		const char *why;
	} bad[] = {
		{ 0, "block 2 is said to take 0 bytes" }, { 4, "block 2 is said to take 4 bytes" },
		{ UINT32_MAX, "block 2 is said to take 4294967295 bytes" }, { BLOCK + 1025, "block 2 is said to take 5121" },
		{ 5, "but its index begins at" }, { BLOCK, "but its index begins at" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct small s = small_make(ZFILE_ZSTD);

		set_entry(&s, 2, bad[i].v);
		zfile_refused(&s.m, bad[i].why);
		small_free(&s);
	}
}

static void blocks_that_are_moved_are_noticed(void **state)
{
	struct small s = small_make(ZFILE_ZSTD);
	uint32_t a = le32_load(s.m.b.p + trailer_of(&s).index_offset);
	uint32_t b = le32_load(s.m.b.p + trailer_of(&s).index_offset + 4);
	struct zfile *z;

	(void)state;
	set_entry(&s, 0, a - 1);
	set_entry(&s, 1, b + 1);
	z = zfile_of(&s.m);
	assert_int_equal(count_errors(z, &s), 2);
	zfile_close(z);
	small_free(&s);
}

/* A block with a right checksum that decompresses to another size, or is followed by more. */
static void blocks_of_another_size_are_noticed(void **state)
{
	(void)state;
	for (int algo = ZFILE_LZ4; algo <= ZFILE_ZSTD; algo++) {
		struct small s = small_make((enum zfile_algo)algo);
		struct zfile_head h = trailer_of(&s);
		struct zfile *z;

		/* The last block is shorter: let the content be a byte longer and a byte shorter. */
		for (int d = -1; d <= 1; d += 2) {
			struct zfile_ctx *x = zfile_ctx_create();
			uint8_t buf[BLOCK];

			h.size = (uint64_t)(SIZE + d);
			set_trailer(&s, &h);
			z = zfile_of(&s.m);
			assert_int_equal(zfile_pread(z, x, buf, BLOCK, (BLOCKS - 1) * BLOCK), -EBADMSG);
			assert_int_equal(zfile_pread(z, x, buf, 10, (BLOCKS - 1) * BLOCK), -EBADMSG);
			assert_int_equal(zfile_pread(z, x, buf, BLOCK, 0), BLOCK);
			zfile_close(z);
			zfile_ctx_destroy(x);
		}
		small_free(&s);
	}
}

/* Early writers left rubbish above the flags they knew, and no digests. */
static void rubbish_of_early_writers_is_passed_over(void **state)
{
	struct small s = small_make(ZFILE_LZ4);
	uint8_t *end = s.m.b.p + s.m.b.n - ZFILE_SPACE;
	struct zfile *z;

	(void)state;
	for (uint8_t *p = s.m.b.p; p; p = p == end ? NULL : end) {
		le64_store(p + 32, 0x7ffea4640b40ull | (p == end ? 0x06 : 0x03) | 0x38);
		le32_store(p + 28, 0x7fa0);
		memset(p + 96, 0xa7, ZFILE_SPACE - 96);
		le32_store(p + 64, 0xa4640b68);
	}
	le64_store(s.m.b.p + 40, 0x7ffea4640b68ull); /* the header's place of the index */
	z = zfile_of(&s.m);
	assert_int_equal(count_errors(z, &s), 0);
	zfile_close(z);
	small_free(&s);
}

static void a_header_written_again_is_enough(void **state)
{
	struct small s = small_make(ZFILE_ZSTD);
	struct zfile_head h = trailer_of(&s);
	struct zfile *z;

	(void)state;
	h.flags = ZFILE_FLAG_HEADER | ZFILE_FLAG_DATA | ZFILE_FLAG_OVERWRITTEN | ZFILE_FLAG_DIGEST;
	set_header(&s, &h);
	memset(s.m.b.p + s.m.b.n - ZFILE_SPACE, 0, ZFILE_SPACE);
	z = zfile_of(&s.m);
	assert_int_equal(count_errors(z, &s), 0);
	zfile_close(z);
	for (size_t n = 0; n < s.m.b.n; n++) {
		struct memory m = { .b = { s.m.b.p, n } };

		zfile_refused(&m, "");
	}
	small_free(&s);
}

static void what_is_no_zfile_is_refused(void **state)
{
	struct small s = small_make(ZFILE_LZ4);
	int fds[2];
	struct zfile *z = NULL;
	struct err err = ERR_INIT;

	(void)state;
	memset(s.m.b.p, 0, 8);
	zfile_refused(&s.m, "does not begin like a ZFile's");
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(zfile_open_fd(fds[0], "layer", &z, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no regular file"));
	assert_int_equal(zfile_open_fd(-1, "layer", &z, &err), -EBADF);
	close(fds[0]);
	close(fds[1]);
	small_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(every_changed_byte_is_noticed),
		cmocka_unit_test(damage_without_checksums_stays_inside),
		cmocka_unit_test(fields_that_cannot_be_are_refused),
		cmocka_unit_test(index_entries_that_cannot_be_are_refused),
		cmocka_unit_test(blocks_that_are_moved_are_noticed),
		cmocka_unit_test(blocks_of_another_size_are_noticed),
		cmocka_unit_test(rubbish_of_early_writers_is_passed_over),
		cmocka_unit_test(a_header_written_again_is_enough),
		cmocka_unit_test(what_is_no_zfile_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
