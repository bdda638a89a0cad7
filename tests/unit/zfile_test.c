/* SPDX-License-Identifier: Apache-2.0 */
/* ZFiles: what is written is read back, at any place and by several threads, through any source; tars; options. */
#include "tests/unit/zfile_fixture.h"

#include <pthread.h>
#include <sys/mman.h>

#include "lib/tar.h"

static const struct zfile_options plain = { .algo = ZFILE_LZ4, .block_size = 4096, .threads = 1 };

static void expect_content(const struct zfile *z, const struct bytes *c, size_t piece)
{
	struct zfile_ctx *x = zfile_ctx_create();
	uint8_t *buf = malloc(piece);

	assert_int_equal(zfile_info(z)->size, c->n);
	for (size_t at = 0; at < c->n; at += piece) {
		size_t n = MIN(piece, c->n - at);

		assert_int_equal(zfile_pread(z, x, buf, piece, at), n);
		assert_memory_equal(buf, c->p + at, n);
	}
	assert_int_equal(zfile_pread(z, x, buf, piece, c->n), 0);
	free(buf);
	zfile_ctx_destroy(x);
}

static void what_is_written_is_read_back(void **state)
{
	static const struct zfile_options options[] = {
		{ .algo = ZFILE_LZ4, .block_size = 4096, .threads = 1 },
		{ .algo = ZFILE_LZ4, .block_size = 65536, .threads = 2, .level = 9 },
		{ .algo = ZFILE_LZ4, .threads = 2 },
		{ .algo = ZFILE_ZSTD, .block_size = 4096, .threads = 3, .level = 1 },
		{ .algo = ZFILE_ZSTD, .block_size = 65536, .threads = 1, .level = 7 },
		{ .algo = ZFILE_ZSTD },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		uint32_t bs = options[i].block_size ? options[i].block_size : ZFILE_BLOCK_DEFAULT;
		size_t sizes[] = { 1, bs - 1, bs, bs + 1, 70 * bs + 777 };

		for (size_t k = 0; k < ARRAY_SIZE(sizes); k++) {
			struct bytes c = content_make(sizes[k], (uint32_t)(i * 10 + k));
			struct memory m = { .b = zfile_make(&c, &options[i], 100000) };
			struct zfile *z = zfile_of(&m);

			assert_int_equal(zfile_info(z)->algo, options[i].algo);
			assert_int_equal(zfile_info(z)->block_size, bs);
			assert_int_equal(zfile_info(z)->blocks, (sizes[k] + bs - 1) / bs);
			assert_true(zfile_info(z)->checked);
			expect_content(z, &c, 3 * bs + 1000);
			expect_content(z, &c, c.n);
			zfile_close(z);
			free(m.b.p);
			free(c.p);
		}
	}
}

static void noise_takes_hardly_more_than_itself(void **state)
{
	static const uint32_t sizes[] = { 4096, 32768, 65536 };

	(void)state;
	for (int algo = ZFILE_LZ4; algo <= ZFILE_ZSTD; algo++)
		for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
			struct zfile_options o = { .algo = (enum zfile_algo)algo, .block_size = sizes[i], .threads = 1 };
			struct bytes c = content_noise(200000);
			struct memory m = { .b = zfile_make(&c, &o, c.n) };
			struct zfile *z = zfile_of(&m);

			assert_true(zfile_info(z)->stored_max <= zfile_stored_limit(sizes[i]));
			/* Readers elsewhere have room for 64 KiB. */
			if (sizes[i] <= ZFILE_BLOCK_DEFAULT)
				assert_true(zfile_info(z)->stored_max < 65535);
			expect_content(z, &c, 5000);
			zfile_close(z);
			free(m.b.p);
			free(c.p);
		}
}

static void threads_and_pieces_do_not_show(void **state)
{
	struct bytes c = content_make(3000000, 5);

	(void)state;
	for (int algo = ZFILE_LZ4; algo <= ZFILE_ZSTD; algo++) {
		struct zfile_options o = { .algo = (enum zfile_algo)algo, .block_size = 4096, .threads = 1 };
		struct bytes first = zfile_make(&c, &o, c.n);
		static const size_t pieces[] = { 1000, 4096, 999999 };

		for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
			struct bytes other;

			o.threads = (unsigned)i + 2;
			other = zfile_make(&c, &o, pieces[i]);
			assert_int_equal(other.n, first.n);
			assert_memory_equal(other.p, first.p, first.n);
			free(other.p);
		}
		free(first.p);
	}
	free(c.p);
}

static void any_range_is_read(void **state)
{
	struct zfile_options o = { .algo = ZFILE_ZSTD, .block_size = 8192, .threads = 1 };
	struct bytes c = content_make(1000003, 77);
	struct memory m = { .b = zfile_make(&c, &o, c.n) };
	struct zfile *z = zfile_of(&m);
	struct zfile_ctx *x = zfile_ctx_create();
	uint8_t *buf = malloc(c.n);
	uint32_t seed = 1;

	(void)state;
	for (int i = 0; i < 2000; i++) {
		uint64_t off, n;

		seed = seed * 1664525 + 1013904223;
		off = seed % c.n;
		seed = seed * 1664525 + 1013904223;
		n = i % 4 ? 1 + (seed >> 8) % 9000 : 1 + (seed >> 4) % 300000;
		assert_int_equal(zfile_pread(z, x, buf, n, off), MIN(n, c.n - off));
		assert_memory_equal(buf, c.p + off, MIN(n, c.n - off));
	}
	assert_int_equal(zfile_pread(z, x, buf, 10, UINT64_MAX), 0);
	assert_int_equal(zfile_pread(z, x, buf, 0, 5), 0);
	free(buf);
	zfile_ctx_destroy(x);
	zfile_close(z);
	free(m.b.p);
	free(c.p);
}

/* What zfile_locate says is what zfile_pread reads, and is enough for zfile_decode. */
static void locate_names_the_bytes_that_are_read(void **state)
{
	struct bytes c = content_make(300 * 4096 - 100, 3);
	struct memory m = { .b = zfile_make(&c, &plain, c.n) };
	struct zfile *z = zfile_of(&m);
	struct zfile_ctx *x = zfile_ctx_create();
	struct zfile_range range;
	uint8_t *buf = malloc(c.n), block[4096];

	(void)state;
	for (uint64_t off = 0; off < c.n; off += 5003) {
		uint64_t n = MIN((uint64_t)20000, c.n - off);

		m.least = UINT64_MAX;
		m.most = 0;
		assert_int_equal(zfile_locate(z, off, n, &range), 0);
		zfile_ctx_destroy(x);
		x = zfile_ctx_create();
		assert_int_equal(zfile_pread(z, x, buf, n, off), n);
		assert_int_equal(m.least, range.off);
		assert_int_equal(m.most, range.off + range.len);
	}
	for (uint64_t b = 0; b < zfile_info(z)->blocks; b++) {
		uint64_t n = MIN((uint64_t)4096, c.n - b * 4096);

		assert_int_equal(zfile_locate(z, b * 4096, n, &range), 0);
		assert_int_equal(zfile_decode(z, x, b, m.b.p + range.off, range.len, block), n);
		assert_memory_equal(block, c.p + b * 4096, n);
	}
	assert_int_equal(zfile_locate(z, 0, c.n, &range), 0);
	assert_int_equal(range.off, ZFILE_SPACE);
	assert_int_equal(zfile_locate(z, 0, 0, &range), -EINVAL);
	assert_int_equal(zfile_locate(z, c.n, 1, &range), -EINVAL);
	assert_int_equal(zfile_locate(z, 1, c.n, &range), -EINVAL);
	assert_int_equal(zfile_locate(z, UINT64_MAX, 2, &range), -EINVAL);
	assert_int_equal(zfile_decode(z, x, 300, m.b.p, 10, block), -EINVAL);
	free(buf);
	zfile_ctx_destroy(x);
	zfile_close(z);
	free(m.b.p);
	free(c.p);
}

static void a_file_may_lie_inside_its_source(void **state)
{
	struct bytes c = content_make(50000, 3), z0 = zfile_make(&c, &plain, c.n);
	struct memory m = { .b = { malloc(z0.n + 3000), z0.n + 3000 } };
	struct zfile_source src = { .read_at = memory_read, .ctx = &m, .start = 1000, .size = z0.n };
	struct zfile_range range;
	struct zfile *z = NULL;

	(void)state;
	memset(m.b.p, 0xee, m.b.n);
	memcpy(m.b.p + 1000, z0.p, z0.n);
	assert_int_equal(zfile_open(&src, "layer", &z, NULL), 0);
	expect_content(z, &c, 7000);
	assert_int_equal(zfile_locate(z, 0, 1, &range), 0);
	assert_int_equal(range.off, 1000 + ZFILE_SPACE);
	zfile_close(z);
	src.size = UINT64_MAX - 10;
	assert_int_equal(zfile_open(&src, "layer", &z, NULL), -EINVAL);
	free(m.b.p);
	free(z0.p);
	free(c.p);
}

static void errors_of_the_source_are_passed_on(void **state)
{
	struct bytes c = content_make(50000, 3);
	struct memory m = { .b = zfile_make(&c, &plain, c.n) };
	struct zfile_source src = memory_source(&m);
	struct zfile_ctx *x = zfile_ctx_create();
	struct zfile *z = zfile_of(&m), *other = NULL;
	uint8_t buf[5000];

	(void)state;
	m.error = -EAGAIN;
	assert_int_equal(zfile_pread(z, x, buf, sizeof(buf), 0), -EAGAIN);
	assert_int_equal(zfile_open(&src, "layer", &other, NULL), -EAGAIN);
	assert_int_equal(zfile_probe(&src), -EAGAIN);
	assert_int_equal(zfile_unwrap(&src, "layer", NULL), -EAGAIN);
	m.error = 0;
	m.b.n = 700; /* shorter than when it was opened */
	assert_int_equal(zfile_pread(z, x, buf, sizeof(buf), 40000), -EIO);
	zfile_ctx_destroy(x);
	zfile_close(z);
	free(m.b.p);
	free(c.p);
}

/* A context's kept block is of one file, even if another is opened at the same address. */
static void a_context_serves_many_files(void **state)
{
	struct bytes a = content_make(9000, 1), b = content_make(9000, 2);
	struct memory ma = { .b = zfile_make(&a, &plain, a.n) }, mb = { .b = zfile_make(&b, &plain, b.n) };
	struct zfile_ctx *x = zfile_ctx_create();
	uint8_t buf[100];

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct zfile *z = zfile_of(i % 2 ? &mb : &ma);

		assert_int_equal(zfile_pread(z, x, buf, sizeof(buf), 5000), sizeof(buf));
		assert_memory_equal(buf, (i % 2 ? b.p : a.p) + 5000, sizeof(buf));
		zfile_close(z);
	}
	zfile_ctx_destroy(x);
	free(ma.b.p);
	free(mb.b.p);
	free(a.p);
	free(b.p);
}

struct reader {
	pthread_t thread;
	const struct zfile *z;
	const struct bytes *c;
	uint32_t seed;
	int wrong;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	struct zfile_ctx *x = zfile_ctx_create();
	uint8_t buf[10000];

	for (int i = 0; i < 500; i++) {
		uint64_t off;

		r->seed = r->seed * 1664525 + 1013904223;
		off = r->seed % (r->c->n - sizeof(buf));
		if (zfile_pread(r->z, x, buf, sizeof(buf), off) != (ssize_t)sizeof(buf) ||
		    memcmp(buf, r->c->p + off, sizeof(buf)) != 0)
			r->wrong++;
	}
	zfile_ctx_destroy(x);
	return NULL;
}

static void threads_read_at_a_time(void **state)
{
	struct zfile_options o = { .algo = ZFILE_ZSTD, .block_size = 4096, .threads = 1 };
	struct bytes c = content_make(1000000, 9), z0 = zfile_make(&c, &o, c.n);
	int fd = memfd_create("layer", MFD_CLOEXEC);
	struct reader r[4];
	struct zfile *z = NULL;

	(void)state;
	assert_int_equal(fd_write_full(fd, z0.p, z0.n), 0);
	assert_int_equal(zfile_open_fd(fd, "layer", &z, NULL), 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(r); i++) {
		r[i] = (struct reader){ .z = z, .c = &c, .seed = i };
		assert_int_equal(pthread_create(&r[i].thread, NULL, reader_main, &r[i]), 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(r); i++) {
		pthread_join(r[i].thread, NULL);
		assert_int_equal(r[i].wrong, 0);
	}
	zfile_close(z);
	close(fd);
	free(z0.p);
	free(c.p);
}

static struct bytes tar_of(const struct bytes *in, const char *name, enum tar_type type)
{
	struct tar_entry *e = calloc(1, sizeof(*e));
	struct bytes out = { NULL, 0 };
	uint8_t head[TAR_HEADER_MAX], zeros[3 * TAR_BLOCK] = { 0 };
	ssize_t n;

	e->type = type;
	e->mode = 0644;
	e->size = type == TAR_FILE ? in->n : 0;
	snprintf(e->name, sizeof(e->name), "%s", name);
	n = tar_header_make(e, head, sizeof(head));
	assert_true(n > 0);
	sink_append(&out, head, (size_t)n);
	sink_append(&out, in->p, in->n);
	sink_append(&out, zeros, 2 * TAR_BLOCK + (TAR_BLOCK - in->n % TAR_BLOCK) % TAR_BLOCK);
	free(e);
	return out;
}

static void a_tar_with_one_entry_is_unwrapped(void **state)
{
	struct bytes c = content_make(50000, 4), z0 = zfile_make(&c, &plain, c.n);
	char name[2][200] = { "overlaybd.commit" };

	(void)state;
	memset(name[1], 'x', 199); /* takes an extended header */
	for (int i = 0; i < 2; i++) {
		struct bytes t = tar_of(&z0, name[i], TAR_FILE);
		int fd = memfd_create("layer", MFD_CLOEXEC);
		struct zfile *z = NULL;
		struct zfile_range range;

		assert_int_equal(fd_write_full(fd, t.p, t.n), 0);
		assert_int_equal(zfile_open_fd(fd, "layer", &z, NULL), 0);
		assert_int_equal(zfile_locate(z, 0, 1, &range), 0);
		assert_int_equal(range.off, (i ? 1536 : 512) + ZFILE_SPACE);
		expect_content(z, &c, 7000);
		zfile_close(z);
		close(fd);
		free(t.p);
	}
	free(z0.p);
	free(c.p);
}

static void what_is_no_tar_is_left_alone(void **state)
{
	struct bytes c = content_make(5000, 4), z0 = zfile_make(&c, &plain, c.n);
	struct memory m[] = { { .b = z0 }, { .b = c }, { .b = { c.p, 100 } }, { .b = { c.p, 0 } } };

	(void)state;
	memcpy(z0.p + 257, "ustar", 5); /* rubbish in a header that is not used */
	for (size_t i = 0; i < ARRAY_SIZE(m); i++) {
		struct zfile_source src = memory_source(&m[i]);

		assert_int_equal(zfile_unwrap(&src, "layer", NULL), 0);
		assert_int_equal(src.start, 0);
		assert_int_equal(src.size, m[i].b.n);
		assert_int_equal(zfile_probe(&src), i == 0);
	}
	free(z0.p);
	free(c.p);
}

static void tars_that_hold_no_layer_are_refused(void **state)
{
	struct bytes c = content_make(5000, 4), t[3];
	static const char *const why[] = { "is no file", "of which", "without a file" };

	(void)state;
	t[0] = tar_of(&c, "dir", TAR_DIR);
	t[1] = tar_of(&c, "file", TAR_FILE);
	t[1].n = 3000;
	t[2] = tar_of(&c, "file", TAR_FILE);
	memset(t[2].p, 0, t[2].n);
	memcpy(t[2].p + 257, "ustar", 5);
	for (int i = 0; i < 3; i++) {
		struct memory m = { .b = t[i] };
		struct zfile_source src = memory_source(&m);
		struct err err = ERR_INIT;

		assert_true(zfile_unwrap(&src, "layer", &err) < 0);
		if (i < 2 && !strstr(err.text, why[i]))
			fail_msg("%s", err.text);
		assert_int_equal(strncmp(err.text, "layer: ", 7), 0);
		free(t[i].p);
	}
	free(c.p);
}

static void options_that_cannot_be_are_refused(void **state)
{
	static const struct zfile_options bad[] = {
		{ .algo = 0 }, { .algo = 3 }, { .algo = ZFILE_ZSTD, .level = 20 }, { .algo = ZFILE_LZ4, .level = 13 },
		{ .algo = ZFILE_ZSTD, .level = -1 }, { .algo = ZFILE_ZSTD, .block_size = 2048 },
		{ .algo = ZFILE_ZSTD, .block_size = 131072 }, { .algo = ZFILE_ZSTD, .block_size = 5000 },
		{ .algo = ZFILE_ZSTD, .threads = ZFILE_THREADS_MAX + 1 },
	};
	struct bytes out = { NULL, 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct zfile_writer *w = NULL;
		struct err err = ERR_INIT;

		assert_int_equal(zfile_writer_open(&bad[i], sink_append, &out, &w, &err), -EINVAL);
		assert_true(err.text[0]);
		assert_null(w);
	}
	assert_int_equal(out.n, 0);
}

static int sink_full(void *ctx, const void *buf, size_t n)
{
	size_t *room = ctx;

	(void)buf;
	if (n > *room)
		return -ENOSPC;
	*room -= n;
	return 0;
}

/* However far it gets, the error comes out, and stays. */
static void errors_of_the_sink_are_passed_on(void **state)
{
	struct bytes c = content_make(3000000, 4), whole = zfile_make(&c, &plain, c.n);

	(void)state;
	for (unsigned threads = 1; threads <= 3; threads += 2)
		for (size_t room = 0; room < whole.n + 20000; room += 20000) {
			struct zfile_options o = plain;
			struct zfile_writer *w = NULL;
			size_t left = room;
			int r;

			o.threads = threads;
			r = zfile_writer_open(&o, sink_full, &left, &w, NULL);
			if (r == 0)
				r = zfile_writer_write(w, c.p, c.n, NULL);
			if (w) {
				int last = zfile_writer_finish(w, NULL, NULL);

				assert_true(r == 0 || last == r);
				r = last;
			}
			assert_int_equal(r, room < whole.n ? -ENOSPC : 0);
			zfile_writer_free(w);
		}
	free(whole.p);
	free(c.p);
}

static void a_writer_can_be_dropped_at_any_time(void **state)
{
	struct bytes c = content_make(2000000, 4);

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct zfile_options o = { .algo = ZFILE_ZSTD, .block_size = 4096, .threads = 3 };
		struct bytes out = { NULL, 0 };
		struct zfile_writer *w = NULL;

		assert_int_equal(zfile_writer_open(&o, sink_append, &out, &w, NULL), 0);
		assert_int_equal(zfile_writer_write(w, c.p, c.n * (size_t)i / 5, NULL), 0);
		zfile_writer_free(w);
		free(out.p);
	}
	zfile_writer_free(NULL);
	zfile_close(NULL);
	zfile_ctx_destroy(NULL);
	free(c.p);
}

static void without_content_there_is_no_file(void **state)
{
	struct bytes out = { NULL, 0 };
	struct zfile_writer *w = NULL;
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(zfile_writer_open(&plain, sink_append, &out, &w, &err), 0);
	assert_int_equal(zfile_writer_finish(w, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no content"));
	zfile_writer_free(w);
	free(out.p);
}

static void the_checksum_is_crc32c(void **state)
{
	uint8_t buf[2000];

	(void)state;
	assert_int_equal(~zfile_crc(~0u, "123456789", 9), 0xe3069283); /* the check value that CRC catalogues give */
	assert_int_equal(zfile_crc(5, buf, 0), 5);
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i * i >> 3);
	for (size_t i = 0; i <= sizeof(buf); i++) {
		assert_int_equal(zfile_crc(9, buf, i), zfile_crc_portable(9, buf, i));
		assert_int_equal(zfile_crc(zfile_crc(9, buf, i), buf + i, sizeof(buf) - i), zfile_crc(9, buf, sizeof(buf)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_written_is_read_back),
		cmocka_unit_test(noise_takes_hardly_more_than_itself),
		cmocka_unit_test(threads_and_pieces_do_not_show),
		cmocka_unit_test(any_range_is_read),
		cmocka_unit_test(locate_names_the_bytes_that_are_read),
		cmocka_unit_test(a_file_may_lie_inside_its_source),
		cmocka_unit_test(errors_of_the_source_are_passed_on),
		cmocka_unit_test(a_context_serves_many_files),
		cmocka_unit_test(threads_read_at_a_time),
		cmocka_unit_test(a_tar_with_one_entry_is_unwrapped),
		cmocka_unit_test(what_is_no_tar_is_left_alone),
		cmocka_unit_test(tars_that_hold_no_layer_are_refused),
		cmocka_unit_test(options_that_cannot_be_are_refused),
		cmocka_unit_test(errors_of_the_sink_are_passed_on),
		cmocka_unit_test(a_writer_can_be_dropped_at_any_time),
		cmocka_unit_test(without_content_there_is_no_file),
		cmocka_unit_test(the_checksum_is_crc32c),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
