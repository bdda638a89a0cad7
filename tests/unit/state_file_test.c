/* SPDX-License-Identifier: Apache-2.0 */
/* The `state` file: what is written is read, and nothing else is taken for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/le.h"
#include "snapshot/state_file.h"

static const struct ram_id id = { { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 } };

static void add(struct state_file_writer *w, const char *name, const char *text)
{
	uint8_t *out;

	assert_int_equal(state_file_section(w, name, strlen(text), &out, NULL), 0);
	memcpy(out, text, strlen(text));
	state_file_end_section(w, strlen(text));
}

/* A file of three sections, the last one empty. */
static size_t make(uint8_t **ret)
{
	struct state_file_writer w;
	size_t len;

	assert_int_equal(state_file_begin(&w, 64, 3, NULL), 0);
	add(&w, "machine", "shape");
	add(&w, "kvm", "registers");
	add(&w, "rng0", "");
	state_file_finish(&w, &id);
	len = w.len;
	*ret = malloc(len);
	assert_non_null(*ret);
	memcpy(*ret, w.buf, len);
	state_file_writer_free(&w);
	return len;
}

/* A copy of it with the bytes after `len` cut off; the parser takes it over. */
static int parse_copy(const uint8_t *file, size_t len, struct state_file *f, struct err *err)
{
	uint8_t *copy = malloc(len + 1);

	assert_non_null(copy);
	memcpy(copy, file, len);
	return state_file_parse(f, copy, len, err);
}

static void sections_are_read_back(void **s)
{
	const struct state_file_part *p;
	struct state_file f;
	uint8_t *file;
	size_t len = make(&file);

	(void)s;
	assert_int_equal(parse_copy(file, len, &f, NULL), 0);
	assert_memory_equal(f.id.b, id.b, RAM_ID_SIZE);
	assert_int_equal(f.nparts, 3);
	p = state_file_find(&f, "kvm");
	assert_non_null(p);
	assert_int_equal(p->len, 9);
	assert_memory_equal(p->data, "registers", 9);
	assert_int_equal(state_file_find(&f, "rng0")->len, 0);
	assert_null(state_file_find(&f, "blk0"));
	state_file_close(&f);
	free(file);
}

static void a_file_is_read_from_its_descriptor(void **s)
{
	int fd = memfd_create("state", MFD_CLOEXEC);
	struct state_file f;
	uint8_t *file;
	size_t len = make(&file);

	(void)s;
	assert_int_equal(write(fd, file, len), len);
	assert_int_equal(state_file_open(&f, fd, STATE_FILE_SIZE_MAX, NULL), 0);
	assert_int_equal(f.nparts, 3);
	state_file_close(&f);
	close(fd);
	free(file);
}

static void every_flipped_byte_is_refused(void **s)
{
	struct state_file f;
	uint8_t *file;
	size_t len = make(&file);

	(void)s;
	for (size_t i = 0; i < len; i++) {
		struct err err = ERR_INIT;

		file[i] ^= 0x10;
		assert_int_equal(parse_copy(file, len, &f, &err), -EINVAL);
		assert_memory_equal(err.text, "state: ", 7);
		file[i] ^= 0x10;
	}
	free(file);
}

static void every_truncation_is_refused(void **s)
{
	struct state_file f;
	uint8_t *file;
	size_t len = make(&file);

	(void)s;
	for (size_t i = 0; i < len; i++)
		assert_int_equal(parse_copy(file, i, &f, NULL), -EINVAL);
	free(file);
}

static void bytes_after_the_last_section_are_refused(void **s)
{
	struct err err = ERR_INIT;
	struct state_file f;
	uint8_t *file, *longer;
	size_t len = make(&file);

	(void)s;
	longer = calloc(1, len + 4);
	memcpy(longer, file, len);
	assert_int_equal(state_file_parse(&f, longer, len + 4, &err), -EINVAL);
	assert_string_equal(err.text, "state: 4 bytes left over");
	free(file);
}

static void a_section_that_is_there_twice_is_refused(void **s)
{
	struct state_file_writer w;
	struct state_file f;
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(state_file_begin(&w, 8, 2, NULL), 0);
	add(&w, "rng0", "a");
	add(&w, "rng0", "b");
	state_file_finish(&w, &id);
	assert_int_equal(parse_copy(w.buf, w.len, &f, &err), -EINVAL);
	assert_string_equal(err.text, "state: section 'rng0' is there twice");
	state_file_writer_free(&w);
}

static void a_newer_version_says_so(void **s)
{
	struct err err = ERR_INIT;
	struct state_file_writer w;
	struct state_file f;

	(void)s;
	assert_int_equal(state_file_begin(&w, 0, 0, NULL), 0);
	state_file_finish(&w, &id);
	w.buf[8] = STATE_FILE_VERSION + 1;
	le64_store(w.buf + 40, XXH3_64bits(w.buf, 40));
	assert_int_equal(parse_copy(w.buf, w.len, &f, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "newer"));
	state_file_writer_free(&w);
}

static void more_than_was_asked_for_does_not_fit(void **s)
{
	struct state_file_writer w;
	uint8_t *out;

	(void)s;
	assert_int_equal(state_file_begin(&w, 4, 1, NULL), 0);
	assert_int_equal(state_file_section(&w, "kvm", 5, &out, NULL), -ENOSPC);
	assert_int_equal(state_file_section(&w, "kvm", 4, &out, NULL), 0);
	state_file_end_section(&w, 4);
	assert_int_equal(state_file_section(&w, "rng0", 0, &out, NULL), -ENOSPC);
	state_file_writer_free(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sections_are_read_back),
		cmocka_unit_test(a_file_is_read_from_its_descriptor),
		cmocka_unit_test(every_flipped_byte_is_refused),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(bytes_after_the_last_section_are_refused),
		cmocka_unit_test(a_section_that_is_there_twice_is_refused),
		cmocka_unit_test(a_newer_version_says_so),
		cmocka_unit_test(more_than_was_asked_for_does_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
