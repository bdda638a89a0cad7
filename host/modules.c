/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modules.dep has a line "PATH: DEPENDENCY..." for every module, with paths relative to the version's directory.
 * A walk in depth, dependencies first, gives the order; the marks of the walk also end it when the table is circular.
 * modules.builtin names what needs no loading.
 *
 * Trust: the tables come from the kernel's package but are taken as hostile: sizes are bounded, a path that is absolute
 * or has ".." in it is refused, and so is a module that decompresses to more than MODULE_SIZE_MAX.
 */
#include "host/modules.h"

#include <errno.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "host/file.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

struct entry {
	const char *path;
	char *deps; /* separated by spaces */
	enum { NEW, OPEN, DONE } mark;
};

struct table {
	const char *dir;
	struct entry *entries;
	size_t n;
};

int module_name(const char *path, char ret_name[MODULE_NAME_MAX])
{
	const char *base = strrchr(path, '/');
	const char *end;

	base = base == NULL ? path : base + 1;
	end = strstr(base, ".ko");
	if (end == NULL || end == base || end - base >= MODULE_NAME_MAX)
		return -EINVAL;
	for (size_t i = 0; base + i < end; i++)
		ret_name[i] = base[i] == '-' ? '_' : base[i];
	ret_name[end - base] = '\0';
	return 0;
}

static bool path_is_safe(const char *path)
{
	if (*path == '\0' || *path == '/')
		return false;
	for (const char *p = path; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		if (p[0] == '.' && p[1] == '.' && (p[2] == '/' || p[2] == '\0'))
			return false;
	}
	return true;
}

/* Cut `text` into entries; they point into it. */
static int parse_table(char *text, struct table *t, struct err *err)
{
	size_t lines = 1;
	char *rest = text, *line;

	for (const char *p = text; (p = strchr(p, '\n')) != NULL; p++)
		lines++;
	t->entries = calloc(lines, sizeof(t->entries[0]));
	if (t->entries == NULL)
		return err_set(err, -ENOMEM, "%s/modules.dep: no memory", t->dir);
	while ((line = strsep(&rest, "\n")) != NULL) {
		char *colon = strchr(line, ':');

		if (*line == '\0')
			continue;
		if (colon == NULL)
			return err_set(err, -EINVAL, "%s/modules.dep: line without a colon: '%s'", t->dir, TEXT_CUT(line));
		*colon = '\0';
		if (!path_is_safe(line))
			return err_set(err, -EINVAL, "%s/modules.dep: '%s' is not a path inside it", t->dir, TEXT_CUT(line));
		t->entries[t->n++] = (struct entry){ .path = line, .deps = colon + 1 };
	}
	return 0;
}

static struct entry *find_name(struct table *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++) {
		char other[MODULE_NAME_MAX];

		if (module_name(t->entries[i].path, other) == 0 && strcmp(other, name) == 0)
			return &t->entries[i];
	}
	return NULL;
}

static struct entry *find_path(struct table *t, const char *path)
{
	for (size_t i = 0; i < t->n; i++)
		if (strcmp(t->entries[i].path, path) == 0)
			return &t->entries[i];
	return NULL;
}

static int visit(struct table *t, struct entry *e, unsigned depth, struct module_list *ret, struct err *err)
{
	char *rest = e->deps, *dep;

	if (e->mark != NEW) /* OPEN: a circle; the kernel itself would not load it, so any order will do */
		return 0;
	if (depth == MODULES_MAX)
		return err_set(err, -E2BIG, "%s/modules.dep: '%s' is at the end of a chain of %d modules", t->dir, TEXT_CUT(e->path),
			       MODULES_MAX);
	e->mark = OPEN;
	while ((dep = strsep(&rest, " ")) != NULL) {
		struct entry *other;
		int r;

		if (*dep == '\0')
			continue;
		other = find_path(t, dep);
		if (other == NULL)
			return err_set(err, -EINVAL, "%s/modules.dep: '%s' needs '%s', which has no line of its own (run depmod)",
				       t->dir, TEXT_CUT(e->path), TEXT_CUT(dep));
		r = visit(t, other, depth + 1, ret, err);
		if (r < 0)
			return r;
	}
	e->mark = DONE;
	if (ret->n == MODULES_MAX)
		return err_set(err, -E2BIG, "%s/modules.dep: more than %d modules would be needed", t->dir, MODULES_MAX);
	ret->path[ret->n] = strdup(e->path);
	if (ret->path[ret->n] == NULL)
		return err_set(err, -ENOMEM, "%s/modules.dep: no memory", t->dir);
	ret->n++;
	return 0;
}

static bool is_builtin(const char *builtin, const char *name)
{
	for (const char *p = builtin; p != NULL && *p != '\0'; p = strchr(p, '\n')) {
		char line[256], other[MODULE_NAME_MAX];
		size_t n;

		p += *p == '\n';
		n = strcspn(p, "\n");
		if (n >= sizeof(line))
			continue;
		memcpy(line, p, n);
		line[n] = '\0';
		if (module_name(line, other) == 0 && strcmp(other, name) == 0)
			return true;
	}
	return false;
}

int modules_collect(const char *dir, const struct module_want *wants, size_t nwants, struct module_list *ret,
		    struct err *err)
{
	_cleanup_free_ char *dep_path = NULL, *builtin_path = NULL;
	_cleanup_free_ uint8_t *dep = NULL, *builtin = NULL;
	struct table t = { .dir = dir };
	struct module_list list = { .n = 0 };
	size_t size;
	int r;

	if (asprintf(&dep_path, "%s/modules.dep", dir) < 0 || asprintf(&builtin_path, "%s/modules.builtin", dir) < 0)
		return err_set(err, -ENOMEM, "%s: no memory", dir);
	r = file_read(dep_path, MODULES_TABLE_MAX, &dep, &size, err);
	if (r < 0)
		return r;
	if (memchr(dep, '\0', size) != NULL)
		return err_set(err, -EINVAL, "%s: has a zero byte", dep_path);
	/* Very old kernels lack it: then whatever is no module counts as missing. */
	r = file_read(builtin_path, MODULES_TABLE_MAX, &builtin, &size, NULL);
	if (r < 0 && r != -ENOENT)
		return err_errno(err, r, "read '%s'", builtin_path);

	r = parse_table((char *)dep, &t, err);
	for (size_t i = 0; r == 0 && i < nwants; i++) {
		struct entry *e = find_name(&t, wants[i].name);

		if (e != NULL)
			r = visit(&t, e, 0, &list, err);
		else if (wants[i].required && !is_builtin((const char *)builtin, wants[i].name))
			r = err_set(err, -ENOENT, "%s: the kernel has no %s, built in or as a module; %s", dir,
				    wants[i].name, wants[i].need ? wants[i].need : "a guest needs it");
	}
	free(t.entries);
	if (r < 0) {
		module_list_finish(&list);
		return r;
	}
	*ret = list;
	return 0;
}

void module_list_finish(struct module_list *list)
{
	if (list == NULL)
		return;
	for (size_t i = 0; i < list->n; i++)
		free(list->path[i]);
	list->n = 0;
}

static int unpack_xz(const uint8_t *in, size_t in_size, uint8_t *out, size_t *out_size)
{
	uint64_t memory = 256 << 20;
	size_t in_pos = 0, out_pos = 0;
	lzma_ret r = lzma_stream_buffer_decode(&memory, LZMA_CONCATENATED, NULL, in, &in_pos, in_size, out, &out_pos, *out_size);

	*out_size = out_pos;
	return r == LZMA_OK ? 0 : r == LZMA_BUF_ERROR ? -EFBIG : -EINVAL;
}

static int unpack_zstd(const uint8_t *in, size_t in_size, uint8_t *out, size_t *out_size)
{
	size_t n = ZSTD_decompress(out, *out_size, in, in_size);

	if (ZSTD_isError(n))
		return -EINVAL;
	*out_size = n;
	return 0;
}

static bool has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && strcmp(s + n - m, suffix) == 0;
}

int module_read(const char *dir, const char *path, uint8_t **ret_data, size_t *ret_size, struct err *err)
{
	int (*unpack)(const uint8_t *, size_t, uint8_t *, size_t *) = NULL;
	_cleanup_free_ char *full = NULL;
	_cleanup_free_ uint8_t *packed = NULL, *data = NULL;
	size_t packed_size, size = MODULE_SIZE_MAX;
	void *smaller;
	int r;

	if (asprintf(&full, "%s/%s", dir, path) < 0) {
		full = NULL;
		return err_set(err, -ENOMEM, "%s: no memory", path);
	}
	r = file_read(full, MODULE_SIZE_MAX, &packed, &packed_size, err);
	if (r < 0)
		return r;
	if (has_suffix(path, ".xz"))
		unpack = unpack_xz;
	else if (has_suffix(path, ".zst"))
		unpack = unpack_zstd;
	else if (!has_suffix(path, ".ko"))
		return err_set(err, -ENOTSUP, "'%s': only .ko, .ko.xz and .ko.zst modules are supported", full);
	if (unpack == NULL) {
		*ret_data = TAKE_PTR(packed);
		*ret_size = packed_size;
		return 0;
	}
	data = malloc(size);
	if (data == NULL)
		return err_set(err, -ENOMEM, "'%s': no memory", full);
	r = unpack(packed, packed_size, data, &size);
	if (r < 0)
		return err_errno(err, r, "decompress '%s'", full);
	smaller = realloc(data, MAX(size, (size_t)1));
	if (smaller != NULL)
		data = smaller;
	*ret_data = TAKE_PTR(data);
	*ret_size = size;
	return 0;
}
