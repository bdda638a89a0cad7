/* SPDX-License-Identifier: Apache-2.0 */
/* The tar format: what the writer makes the reader understands, and what is wrong is refused. */
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

#include "lib/tar.h"
#include "lib/util.h"

struct seen {
	struct tar_entry e[8];
	char data[8][64];
	size_t ndata[8];
	int entries, ends, xattrs, devices;
	char xattr[64];
};

static int on_entry(void *arg, const struct tar_entry *e, struct err *err)
{
	struct seen *s = arg;

	(void)err;
	assert_true(s->entries < 8 && s->entries == s->ends);
	s->e[s->entries++] = *e;
	return 0;
}

static int on_data(void *arg, const void *data, size_t n, struct err *err)
{
	struct seen *s = arg;
	int i = s->entries - 1;

	(void)err;
	assert_true(n > 0);
	if (s->ndata[i] + n <= sizeof(s->data[i]))
		memcpy(s->data[i] + s->ndata[i], data, n);
	s->ndata[i] += n;
	return 0;
}

static int on_end(void *arg, struct err *err)
{
	struct seen *s = arg;

	(void)err;
	s->ends++;
	return 0;
}

static int on_device(void *arg, const struct tar_entry *e, bool block, uint32_t major, uint32_t minor, struct err *err)
{
	struct seen *s = arg;

	(void)err;
	assert_false(block);
	assert_string_equal(e->name, "null");
	assert_int_equal(major, 1);
	assert_int_equal(minor, 3);
	s->devices++;
	s->entries++;
	return 0;
}

static int on_xattr(void *arg, const char *name, const void *value, size_t n, struct err *err)
{
	struct seen *s = arg;

	(void)err;
	s->xattrs++;
	snprintf(s->xattr, sizeof(s->xattr), "%s=%.*s", name, (int)n, (const char *)value);
	return 0;
}

static const struct tar_sink plain = { .entry = on_entry, .data = on_data, .end = on_end };
static const struct tar_sink full = { .entry = on_entry, .data = on_data, .end = on_end, .device = on_device, .xattr = on_xattr };

static char stream[256 * 1024];
static size_t length;
static struct seen seen;
static struct tar_reader reader;
static struct err err;

static int setup(void **s)
{
	(void)s;
	length = 0;
	return 0;
}

static void add(enum tar_type type, const char *name, const char *link, const char *content)
{
	struct tar_entry *e = calloc(1, sizeof(*e));
	ssize_t n;

	e->type = type;
	e->mode = 0640;
	e->uid = 1;
	e->gid = 2;
	e->mtime_s = 1000000000;
	e->size = content ? strlen(content) : 0;
	strcpy(e->name, name);
	strcpy(e->link, link);
	n = tar_header_make(e, stream + length, sizeof(stream) - length);
	assert_true(n > 0 && n % TAR_BLOCK == 0 && n <= TAR_HEADER_MAX);
	length += (size_t)n;
	if (content) {
		memset(stream + length, 0, ALIGN_UP(e->size, (uint64_t)TAR_BLOCK));
		memcpy(stream + length, content, e->size);
		length += ALIGN_UP(e->size, (uint64_t)TAR_BLOCK);
	}
	free(e);
}

static void add_end(void)
{
	memset(stream + length, 0, 2 * TAR_BLOCK);
	length += 2 * TAR_BLOCK;
}

/* The block that was added last. */
static char *last(void)
{
	return stream + length - TAR_BLOCK;
}

static void fix_checksum(char *block)
{
	unsigned sum = 0;

	memset(block + 148, ' ', 8);
	for (int i = 0; i < TAR_BLOCK; i++)
		sum += (unsigned char)block[i];
	snprintf(block + 148, 8, "%06o", sum);
	block[155] = ' ';
}

static int parse(const struct tar_sink *sink, size_t step)
{
	int rc = 0;

	memset(&seen, 0, sizeof(seen));
	err = ERR_INIT;
	tar_reader_init(&reader);
	for (size_t pos = 0; pos < length && rc == 0; pos += step) {
		/* exactly sized, so that sanitizers see a step beyond it */
		size_t n = MIN(step, length - pos);
		char *piece = malloc(n);

		memcpy(piece, stream + pos, n);
		rc = tar_reader_feed(&reader, piece, n, sink, &seen, &err);
		free(piece);
	}
	return rc < 0 ? rc : tar_reader_finish(&reader, &err);
}

/* A raw extended header with this body. */
static void add_extended(char type, const char *body, size_t n)
{
	char *h = stream + length;

	add(TAR_FILE, "ext", "", NULL);
	snprintf(h + 124, 12, "%06o", (unsigned)n & 0777777);
	h[156] = type;
	fix_checksum(h);
	memset(stream + length, 0, ALIGN_UP(n, (size_t)TAR_BLOCK));
	memcpy(stream + length, body, n);
	length += ALIGN_UP(n, (size_t)TAR_BLOCK);
}

static void everything_is_read_as_written_in_any_pieces(void **s)
{
	static const size_t steps[] = { 1, 7, 511, 512, 513, 65536, sizeof(stream) };

	(void)s;
	add(TAR_DIR, "d", "", NULL);
	add(TAR_FILE, "d/f", "", "content");
	add(TAR_FILE, "d/empty", "", "");
	add(TAR_SYMLINK, "d/l", "../x", NULL);
	add(TAR_HARDLINK, "d/h", "d/f", NULL);
	add(TAR_FIFO, "d/p", "", NULL);
	add_end();
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		assert_int_equal(parse(&plain, steps[i]), 0);
		assert_int_equal(seen.entries, 6);
		assert_int_equal(seen.ends, 6);
		assert_int_equal(seen.e[0].type, TAR_DIR);
		assert_string_equal(seen.e[0].name, "d");
		assert_int_equal(seen.e[1].type, TAR_FILE);
		assert_int_equal(seen.e[1].size, 7);
		assert_int_equal(seen.e[1].mode, 0640);
		assert_int_equal(seen.e[1].uid, 1);
		assert_int_equal(seen.e[1].gid, 2);
		assert_int_equal(seen.e[1].mtime_s, 1000000000);
		assert_int_equal(seen.ndata[1], 7);
		assert_memory_equal(seen.data[1], "content", 7);
		assert_int_equal(seen.ndata[2], 0);
		assert_string_equal(seen.e[3].link, "../x");
		assert_int_equal(seen.e[4].type, TAR_HARDLINK);
		assert_string_equal(seen.e[4].link, "d/f");
		assert_int_equal(seen.e[5].type, TAR_FIFO);
	}
}

static void long_names_and_large_numbers_survive(void **s)
{
	static const int name_lengths[] = { 99, 100, 101, 255, 256, 4000, TAR_PATH_MAX - 1 };
	struct tar_entry *e = calloc(1, sizeof(*e));

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(name_lengths); i++) {
		ssize_t n;

		length = 0;
		e->type = TAR_SYMLINK;
		memset(e->name, 'n', (size_t)name_lengths[i]);
		memset(e->link, 'l', (size_t)name_lengths[i]);
		e->uid = 4000000000u;
		e->gid = 3000000000u;
		e->mtime_s = 99999999999;
		e->mtime_ns = 123456789;
		n = tar_header_make(e, stream, sizeof(stream));
		assert_true(n > 0 && n <= TAR_HEADER_MAX);
		length = (size_t)n;
		assert_int_equal(parse(&plain, 100), 0);
		assert_string_equal(seen.e[0].name, e->name);
		assert_string_equal(seen.e[0].link, e->link);
		assert_true(seen.e[0].uid == e->uid && seen.e[0].gid == e->gid);
		assert_true(seen.e[0].mtime_s == e->mtime_s && seen.e[0].mtime_ns == e->mtime_ns);
	}
	free(e);
}

static void times_before_1970_survive(void **s)
{
	static const struct {
		int64_t s;
		uint32_t ns;
	} times[] = { { -1, 0 }, { -1, 500000000 }, { -2, 1 }, { -1000000, 999999999 }, { 0, 1 } };
	struct tar_entry *e = calloc(1, sizeof(*e));

	(void)s;
	strcpy(e->name, "f");
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		e->mtime_s = times[i].s;
		e->mtime_ns = times[i].ns;
		length = (size_t)tar_header_make(e, stream, sizeof(stream));
		assert_int_equal(parse(&plain, 512), 0);
		assert_true(seen.e[0].mtime_s == times[i].s);
		assert_int_equal(seen.e[0].mtime_ns, times[i].ns);
	}
	free(e);
}

static void sizes_beyond_octal_survive(void **s)
{
	struct tar_entry *e = calloc(1, sizeof(*e));

	(void)s;
	strcpy(e->name, "f");
	e->size = 1ull << 40;
	length = (size_t)tar_header_make(e, stream, sizeof(stream));
	assert_int_equal(parse(&plain, 512), -EINVAL); /* the content is missing */
	assert_true(seen.e[0].size == 1ull << 40);
	free(e);
}

static void base_256_numbers_are_read(void **s)
{
	(void)s;
	add(TAR_FILE, "f", "", NULL);
	memset(last() + 108, 0, 8);
	last()[108] = (char)0x80;
	last()[115] = 77; /* uid */
	memset(last() + 136, 0xff, 12);
	last()[147] = (char)0xfe; /* mtime -2 */
	fix_checksum(last());
	assert_int_equal(parse(&plain, 512), 0);
	assert_int_equal(seen.e[0].uid, 77);
	assert_true(seen.e[0].mtime_s == -2);
}

static void gnu_long_names_are_read(void **s)
{
	char name[300];

	(void)s;
	memset(name, 'g', sizeof(name));
	name[299] = '\0';
	add_extended('L', name, 300);
	add_extended('K', "target", 7);
	add(TAR_SYMLINK, "short", "short", NULL);
	add(TAR_FILE, "next", "", NULL);
	assert_int_equal(parse(&plain, 512), 0);
	assert_string_equal(seen.e[0].name, name);
	assert_string_equal(seen.e[0].link, "target");
	assert_string_equal(seen.e[1].name, "next"); /* and only that one */
}

static void ustar_prefixes_are_joined(void **s)
{
	(void)s;
	add(TAR_FILE, "base", "", NULL);
	strcpy(last() + 345, "some/dir");
	fix_checksum(last());
	assert_int_equal(parse(&plain, 512), 0);
	assert_string_equal(seen.e[0].name, "some/dir/base");
}

static void unknown_extended_keys_are_skipped(void **s)
{
	static const char body[] = "20 comment=whatever\n17 atime=123.456\n13 path=good\n";

	(void)s;
	add_extended('g', "13 path=evil\n", 13);
	add_extended('x', body, sizeof(body) - 1);
	add(TAR_FILE, "f", "", "x");
	assert_int_equal(parse(&plain, 512), 0);
	assert_string_equal(seen.e[0].name, "good");
	assert_int_equal(seen.ndata[0], 1);
}

static void devices_and_attributes_go_to_sinks_that_want_them(void **s)
{
	static const char body[] = "28 SCHILY.xattr.user.k=va=l\n";

	(void)s;
	add_extended('x', body, sizeof(body) - 1);
	add(TAR_FILE, "null", "", NULL);
	last()[156] = '3';
	strcpy(last() + 329, "0000001");
	strcpy(last() + 337, "0000003");
	fix_checksum(last());
	assert_int_equal(parse(&full, 512), 0);
	assert_int_equal(seen.devices, 1);
	assert_string_equal(seen.xattr, "user.k=va=l");
	assert_int_equal(parse(&plain, 512), -EOPNOTSUPP);
	assert_non_null(strstr(err.text, "'null'"));
}

static void malformed_extended_headers_are_refused(void **s)
{
	static const char *const bodies[] = {
		"x", "5", "13 path=evil", "14 path=evil\n", "12 path=evil\n", "0 a=b\n", "6 =b\n\n", "99999 a=b\n", "8 noeq\n\n", "-5 a=b\n", "13 size=-123\n",
		"11 size=1x\n", "22 mtime=1.5.5xxxxxxxx\n", "12 mtime=abc\n", "18 uid=4294967295\n", "27 GNU.sparse.major=1......\n", "9 size=\n\n",
		"12 size=999\n99999999999999999999999\n",
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		length = 0;
		add_extended('x', bodies[i], strlen(bodies[i]));
		add(TAR_FILE, "f", "", NULL);
		if (parse(&plain, 512) == 0)
			fail_msg("accepted: %s", bodies[i]);
		assert_int_equal(seen.entries, 0);
	}
}

static void a_nul_in_an_extended_name_is_refused(void **s)
{
	(void)s;
	add_extended('x', "14 path=ev\0il\n", 14);
	add(TAR_FILE, "f", "", NULL);
	assert_int_equal(parse(&plain, 512), -EINVAL);
}

static void oversized_extended_headers_are_refused(void **s)
{
	char *body = calloc(1, TAR_PAX_MAX + 1);

	(void)s;
	add_extended('L', body, TAR_PAX_MAX + 1);
	assert_int_equal(parse(&plain, 512), -E2BIG);
	length = 0;
	memset(body, 'n', TAR_PATH_MAX);
	add_extended('L', body, TAR_PATH_MAX);
	assert_int_equal(parse(&plain, 512), -ENAMETOOLONG);
	free(body);
}

static void malformed_headers_are_refused(void **s)
{
	static const struct {
		int offset;
		const char *text;
	} cases[] = {
		{ 0, "" },                                      /* no name */
		{ 100, "xyz" },                                 /* mode */
		{ 124, "77777777777x" },                        /* size */
		{ 124, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" }, /* negative size */
		{ 124, "\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff" }, /* beyond 64 bits */
		{ 108, "\x80\1\1\1\1\1\1\1" },          /* uid beyond 32 bits */
		{ 156, "S" },                                   /* GNU sparse */
		{ 156, "Z" },
		{ 156, "1" },                                   /* a link to nothing */
		{ 156, "2" },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		length = 0;
		add(TAR_FILE, "f", "", NULL);
		if (cases[i].text[0])
			memcpy(last() + cases[i].offset, cases[i].text, strlen(cases[i].text));
		else
			last()[cases[i].offset] = '\0';
		fix_checksum(last());
		if (parse(&plain, 512) == 0)
			fail_msg("accepted: case %zu", i);
		assert_int_equal(seen.entries, 0);
	}
}

static void a_wrong_checksum_is_refused(void **s)
{
	(void)s;
	add(TAR_FILE, "f", "", NULL);
	last()[0] = 'g';
	assert_int_equal(parse(&plain, 512), -EINVAL);
	assert_non_null(strstr(err.text, "checksum"));
}

static void directories_with_content_are_refused(void **s)
{
	(void)s;
	add(TAR_DIR, "d", "", NULL);
	strcpy(last() + 124, "00000001000");
	fix_checksum(last());
	assert_int_equal(parse(&plain, 512), -EINVAL);
}

static void a_stream_that_stops_is_noticed(void **s)
{
	size_t whole;

	(void)s;
	add(TAR_FILE, "f", "", "content");
	whole = length;
	add_end();
	length = whole; /* without the end mark: still whole */
	assert_int_equal(parse(&plain, 512), 0);
	length = whole - 1; /* in the padding */
	assert_int_equal(parse(&plain, 512), -EINVAL);
	length = TAR_BLOCK + 3; /* in the content */
	assert_int_equal(parse(&plain, 512), -EINVAL);
	length = 100; /* in the header */
	assert_int_equal(parse(&plain, 512), -EINVAL);
	length = 0;
	add_extended('x', "13 path=good\n", 13); /* of nothing */
	assert_int_equal(parse(&plain, 512), -EINVAL);
}

static void what_follows_the_end_is_ignored(void **s)
{
	(void)s;
	add(TAR_FILE, "f", "", NULL);
	add_end();
	memset(stream + length, 0xaa, 5000);
	length += 5000;
	assert_int_equal(parse(&plain, 1000), 0);
	assert_int_equal(seen.entries, 1);
}

#define T(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(everything_is_read_as_written_in_any_pieces),
		T(long_names_and_large_numbers_survive),
		T(times_before_1970_survive),
		T(sizes_beyond_octal_survive),
		T(base_256_numbers_are_read),
		T(gnu_long_names_are_read),
		T(ustar_prefixes_are_joined),
		T(unknown_extended_keys_are_skipped),
		T(devices_and_attributes_go_to_sinks_that_want_them),
		T(malformed_extended_headers_are_refused),
		T(a_nul_in_an_extended_name_is_refused),
		T(oversized_extended_headers_are_refused),
		T(malformed_headers_are_refused),
		T(a_wrong_checksum_is_refused),
		T(directories_with_content_are_refused),
		T(a_stream_that_stops_is_noticed),
		T(what_follows_the_end_is_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
