/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved state stays readable: the golden files.
 *
 * tests/golden/schemas/ holds, for each state list that a machine or a device saves (nested ones included), its text NAME.txt and, for each
 * version there ever was, a state as it was written then: NAME.vN.bin, filled by the pattern below. A list that
 * differs from its text must have a higher version, and then `make golden-update` (golden_test --update) adds the files.
 * Blobs of older versions are never changed or removed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/virtio.h"
#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "snapshot/machine_shape.h"

#define DIRECTORY "tests/golden/schemas"
enum { MAX_SCHEMAS = 64, MAX_FILE = 64 << 10, MAX_PATH = 128 };
enum { PATTERN_SAVED = 1, PATTERN_RESET = 2 };

struct schemas {
	const struct state_schema *s[MAX_SCHEMAS];
	size_t n;
};

static void collect(struct schemas *all, const struct state_schema *s)
{
	for (size_t i = 0; i < all->n; i++)
		if (all->s[i] == s)
			return;
	if (all->n == MAX_SCHEMAS)
		abort();
	all->s[all->n++] = s;
	for (uint16_t i = 0; i < s->nfields; i++)
		if (s->fields[i].nested)
			collect(all, s->fields[i].nested);
}

static struct schemas collect_all(void)
{
	struct schemas all = { 0 };

	collect(&all, &machine_shape_schema);
	collect(&all, &virtio_common_schema);
	for (size_t i = 0; i < device_registry_count; i++) {
		const struct device_ops *ops = device_registry[i];

		if (ops->schema)
			collect(&all, ops->schema);
		if (ops->extra && ops->extra->schema)
			collect(&all, ops->extra->schema);
	}
	return all;
}

static size_t width(enum state_type t)
{
	return t == STATE_NESTED ? 0 : (size_t)1 << (t - STATE_U8);
}

/* Byte b of element e of field id: any fixed rule will do, but it can never change. */
static uint8_t pattern(int salt, uint16_t id, uint32_t e, size_t b)
{
	return (uint8_t)(salt * 101 + id * 37 + e * 11 + b * 3);
}

static void put(uint8_t *p, size_t w, int salt, uint16_t id, uint32_t e)
{
	uint64_t v = 0;

	for (size_t b = 0; b < w; b++)
		v |= (uint64_t)pattern(salt, id, e, b) << (8 * b);
	if (w == 1)
		*p = (uint8_t)v;
	else if (w == 2)
		memcpy(p, &(uint16_t){ (uint16_t)v }, w);
	else if (w == 4)
		memcpy(p, &(uint32_t){ (uint32_t)v }, w);
	else
		memcpy(p, &v, w);
}

static void fill(const struct state_schema *s, uint8_t *state, int salt)
{
	for (uint16_t i = 0; i < s->nfields; i++) {
		const struct state_field *f = &s->fields[i];

		for (uint32_t e = 0; e < f->count; e++) {
			if (f->type == STATE_NESTED)
				fill(f->nested, state + f->offset + e * f->nested->size, salt);
			else
				put(state + f->offset + e * width(f->type), width(f->type), salt, f->id, e);
		}
	}
}

/* A field the blob's version had is as saved; a newer one as reset. In nested lists, whose version the blob has for
 * itself, a field newer than version 1 may be either. */
static bool as_expected(const struct state_schema *s, const uint8_t *state, uint32_t version, const char **ret_field)
{
	for (uint16_t i = 0; i < s->nfields; i++) {
		const struct state_field *f = &s->fields[i];
		bool may_be_old = !version ? true : f->since <= version, may_be_new = !version ? f->since > 1 : !may_be_old;

		*ret_field = f->name;
		for (uint32_t e = 0; e < f->count; e++) {
			size_t w = width(f->type);
			uint8_t saved[8] = { 0 }, reset[8] = { 0 };
			const uint8_t *p = state + f->offset + e * (w ? w : f->nested->size);

			if (!w && may_be_old && !may_be_new) {
				if (!as_expected(f->nested, p, 0, ret_field))
					return false;
			}
			if (!w)
				continue;
			put(saved, w, PATTERN_SAVED, f->id, e);
			put(reset, w, PATTERN_RESET, f->id, e);
			if (!(may_be_old && memcmp(p, saved, w) == 0) && !(may_be_new && memcmp(p, reset, w) == 0))
				return false;
		}
	}
	return true;
}

/* Bytes read, or -errno. */
static ssize_t read_file(const char *path, void *buf)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_read_full(fd, buf, MAX_FILE);
}

static bool write_file(const char *path, const void *buf, size_t len)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || fd_write_full(fd, buf, len) < 0) {
		perror(path);
		return false;
	}
	printf("wrote %s\n", path);
	return true;
}

static void text_path(char *path, const struct state_schema *s)
{
	snprintf(path, MAX_PATH, DIRECTORY "/%s.txt", s->name);
}

static void blob_path(char *path, const struct state_schema *s, unsigned int version)
{
	snprintf(path, MAX_PATH, DIRECTORY "/%s.v%u.bin", s->name, version);
}

/* 0: the stored text is the list's; else what is to be done. */
static const char *compare_text(const struct state_schema *s)
{
	static char now[MAX_FILE], stored[MAX_FILE];
	char path[MAX_PATH];
	unsigned int version = 0;
	ssize_t n;

	text_path(path, s);
	n = read_file(path, stored);
	if (n < 0)
		return "it has no golden files yet: run `make golden-update`";
	stored[MIN(n, MAX_FILE - 1)] = '\0';
	state_schema_print(s, now, sizeof(now));
	if (strcmp(now, stored) == 0)
		return NULL;
	sscanf(stored, "%*s version %u", &version);
	if (s->version > version)
		return "its version is new: run `make golden-update`";
	return "the list changed without a new version: raise the version, give new fields that `since`, keep old fields";
}

static void the_list_is_the_stored_one(void **ctx)
{
	const struct state_schema *s = *ctx;
	const char *problem = compare_text(s);

	if (problem)
		fail_msg("%s: %s", s->name, problem);
}

static void states_of_all_versions_are_read(void **ctx)
{
	const struct state_schema *s = *ctx;
	static uint8_t blob[MAX_FILE];

	for (unsigned int v = 1; v <= s->version; v++) {
		_cleanup_free_ uint8_t *state = calloc(1, s->size);
		struct err err = ERR_INIT;
		char path[MAX_PATH];
		const char *field;
		ssize_t n;

		blob_path(path, s, v);
		n = read_file(path, blob);
		if (n < 0)
			fail_msg("%s: %s", path, strerror((int)-n));
		fill(s, state, PATTERN_RESET);
		if (state_decode(s, state, blob, (size_t)n, &err) < 0)
			fail_msg("%s: %s", path, err.text);
		if (!as_expected(s, state, v, &field))
			fail_msg("%s: field %s came back with another value", path, field);
	}
}

static void an_unknown_field_is_refused(void **ctx)
{
	const struct state_schema *s = *ctx;
	static uint8_t blob[MAX_FILE];
	static const uint8_t field[] = { 0xff, 0xff, STATE_U8, 0, 1, 0, 0, 0, 0 };
	_cleanup_free_ uint8_t *state = calloc(1, s->size);
	size_t n;

	fill(s, state, PATTERN_SAVED);
	n = (size_t)state_encode(s, state, blob, sizeof(blob));
	memcpy(blob + n, field, sizeof(field));
	le16_store(blob + 2, (uint16_t)(s->nfields + 1));
	assert_int_equal(state_decode(s, state, blob, n + sizeof(field), NULL), -ENOTSUP);
}

/* A stored list that no device has any more means snapshots that nobody can read. */
static void no_stored_list_is_gone(void **ctx)
{
	struct schemas all = collect_all();
	DIR *d = opendir(DIRECTORY);

	(void)ctx;
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		size_t len = strlen(e->d_name);
		bool found = false;

		if (len < 4 || strcmp(e->d_name + len - 4, ".txt") != 0)
			continue;
		for (size_t i = 0; i < all.n; i++)
			found |= strlen(all.s[i]->name) == len - 4 && strncmp(all.s[i]->name, e->d_name, len - 4) == 0;
		if (!found)
			fail_msg("%s belongs to no device", e->d_name);
	}
	closedir(d);
}

static bool update_one(const struct state_schema *s)
{
	static char text[MAX_FILE];
	static uint8_t blob[MAX_FILE];
	_cleanup_free_ uint8_t *state = calloc(1, s->size);
	const char *problem = compare_text(s);
	char path[MAX_PATH];
	size_t n;
	bool ok;

	if (problem && !strstr(problem, "golden-update")) {
		fprintf(stderr, "%s: %s\n", s->name, problem);
		return false;
	}
	blob_path(path, s, s->version);
	if (access(path, F_OK) < 0) {
		fill(s, state, PATTERN_SAVED);
		n = (size_t)state_encode(s, state, blob, sizeof(blob));
		if (!write_file(path, blob, n))
			return false;
	}
	if (!problem)
		return true;
	n = state_schema_print(s, text, sizeof(text));
	text_path(path, s);
	ok = write_file(path, text, n);
	return ok;
}

static int update(void)
{
	struct schemas all = collect_all();
	bool ok = true;

	for (size_t i = 0; i < all.n; i++)
		ok &= update_one(all.s[i]);
	return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		CMUnitTestFunction fn;
	} each[] = {
		{ "the_list_is_the_stored_one", the_list_is_the_stored_one },
		{ "states_of_all_versions_are_read", states_of_all_versions_are_read },
		{ "an_unknown_field_is_refused", an_unknown_field_is_refused },
	};
	static struct CMUnitTest tests[MAX_SCHEMAS * ARRAY_SIZE(each) + 1];
	static char names[MAX_SCHEMAS * ARRAY_SIZE(each)][96];
	struct schemas all = collect_all();
	size_t n = 0;

	if (argc == 2 && strcmp(argv[1], "--update") == 0)
		return update();
	for (size_t i = 0; i < all.n; i++) {
		for (size_t j = 0; j < ARRAY_SIZE(each); j++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s:%s", all.s[i]->name, each[j].name);
			tests[n] = (struct CMUnitTest){ .name = names[n],
							.test_func = each[j].fn,
							.initial_state = (void *)all.s[i] };
		}
	}
	tests[n++] = (struct CMUnitTest){ .name = "no_stored_list_is_gone", .test_func = no_stored_list_is_gone };
	return _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
}
