/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `coffer image diff`: the command line of image_diff.h.
 *
 * JSON is written as it comes, an array with an object a line, so that its size is no matter. A path that is not UTF-8
 * is escaped (lib/text.h), and has all its bytes in hexadecimal as "path_hex".
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/cmd_image.h"
#include "host/image_diff.h"
#include "host/json_get.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

static const char *const kinds[] = {
	[IMAGE_DIFF_ADDED] = "added",
	[IMAGE_DIFF_CHANGED] = "changed",
	[IMAGE_DIFF_REMOVED] = "removed",
};

static const struct {
	unsigned bit;
	const char *name;
} whats[] = {
	{ IMAGE_DIFF_TYPE, "type" },	   { IMAGE_DIFF_MODE, "mode" }, { IMAGE_DIFF_OWNER, "owner" }, { IMAGE_DIFF_SIZE, "size" },
	{ IMAGE_DIFF_CONTENT, "content" }, { IMAGE_DIFF_TIME, "time" }, { IMAGE_DIFF_XATTRS, "xattrs" },
};

struct printer {
	bool json;
	uint64_t count[ARRAY_SIZE(kinds)];
	int64_t growth;
	struct progress *p;
};

/* "text,more": separated by `between`. */
static void list_whats(unsigned what, const char *between, char *out, size_t len)
{
	size_t n = 0;

	*out = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(whats) && n < len; i++)
		if (what & whats[i].bit)
			n += (size_t)snprintf(out + n, len - n, "%s%s", n > 0 ? between : "", whats[i].name);
}

static void print_line(const struct image_change *c)
{
	char what[128], sizes[64] = "";

	list_whats(c->what, ",", what, sizeof(what));
	if (c->kind == IMAGE_DIFF_CHANGED && c->old_size != c->new_size)
		snprintf(sizes, sizeof(sizes), "%" PRIu64 " -> %" PRIu64, c->old_size, c->new_size);
	else if (!S_ISDIR(c->kind == IMAGE_DIFF_REMOVED ? c->old_mode : c->new_mode))
		snprintf(sizes, sizeof(sizes), "%" PRIu64, c->kind == IMAGE_DIFF_REMOVED ? c->old_size : c->new_size);
	printf("%c  ", "AMD"[c->kind]);
	text_print(stdout, c->path);
	if (*sizes != '\0' || *what != '\0')
		printf("  %s%s%s", sizes, *sizes != '\0' && *what != '\0' ? "  " : "", what);
	putchar('\n');
}

static const char *type_of(uint16_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return "file";
	case S_IFDIR: return "directory";
	case S_IFLNK: return "link";
	case S_IFCHR: return "character device";
	case S_IFBLK: return "block device";
	case S_IFIFO: return "fifo";
	case S_IFSOCK: return "socket";
	default: return "unknown";
	}
}

/* The path, and when it is not UTF-8 all its bytes in hexadecimal. */
static int set_path(json_t *o, const char *path)
{
	size_t n = strlen(path);
	_cleanup_free_ char *hex = malloc(2 * n + 1);

	if (hex == NULL || json_object_set_new(o, "path", json_text(path)) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		sprintf(hex + 2 * i, "%02x", (unsigned char)path[i]);
	hex[2 * n] = '\0';
	return text_is_utf8(path) ? 0 : json_object_set_new(o, "path_hex", json_string(hex)) < 0 ? -ENOMEM : 0;
}

static int print_object(struct printer *p, const struct image_change *c)
{
	bool old = c->kind != IMAGE_DIFF_ADDED, new = c->kind != IMAGE_DIFF_REMOVED;
	json_t *o = json_pack("{s:s, s:s}", "change", kinds[c->kind], "type", type_of(new ? c->new_mode : c->old_mode));
	json_t *list = json_array();
	char *text;

	if (set_path(o, c->path) < 0) {
		json_decref(o);
		o = NULL;
	}
	if (o != NULL && old)
		json_object_set_new(o, "old_size", json_integer((json_int_t)c->old_size));
	if (o != NULL && new)
		json_object_set_new(o, "new_size", json_integer((json_int_t)c->new_size));
	for (size_t i = 0; i < ARRAY_SIZE(whats); i++)
		if (c->what & whats[i].bit)
			json_array_append_new(list, json_string(whats[i].name));
	if (o != NULL && c->kind == IMAGE_DIFF_CHANGED)
		json_object_set(o, "what", list);
	json_decref(list);
	text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (text == NULL)
		return -ENOMEM;
	printf("%s%s", p->count[0] + p->count[1] + p->count[2] > 1 ? ",\n" : "", text);
	free(text);
	return 0;
}

static int each(void *arg, const struct image_change *c)
{
	struct printer *p = arg;

	p->count[c->kind]++;
	p->growth += (int64_t)c->new_size - (int64_t)c->old_size;
	progress_end(p->p);
	if (!p->json)
		print_line(c);
	return p->json ? print_object(p, c) : 0;
}

struct diff_options {
	bool help, json;
};

static const struct opt diff_table[] = {
	OPT_BOOL(struct diff_options, json, "json", 0, "print JSON"),
	CMD_OPT_HELP(struct diff_options),
	OPT_END,
};

static const struct cmd_help diff_help = {
	.usage = "image diff A B [--json]",
	.summary = "list the files that differ between two images",
	.text = "A is the older one. Lines begin with A for what B has added, M for what is changed,\n"
		"D for what is removed; then the path, its size in bytes, and of what is changed:\n"
		"type, mode, owner, size, content, time (of the last change), xattrs. Both need an\n"
		"ext4; a path of a disk file will do, too.",
	.options = diff_table,
	.examples = "coffer image diff debian app\ncoffer image diff debian app --json | jq -r '.[].path'",
};

static int diff(const char *const name[2], bool json)
{
	struct image image[2] = { { .size = 0 } };
	_cleanup_close_ int lock_a = -1, lock_b = -1;
	struct cmd_image_watch watch;
	struct printer p = { .json = json, .p = &watch.progress };
	struct err err = ERR_INIT;
	int r;

	lock_a = cmd_image_hold(name[0], &image[0], &err);
	lock_b = lock_a < 0 ? -1 : cmd_image_hold(name[1], &image[1], &err);
	r = lock_b < 0 ? -1 : cmd_image_watch_begin(&watch, &err);
	if (r == 0) {
		if (json)
			fputs("[", stdout);
		r = image_diff(&image[0], &image[1], each, &p, &watch.progress, &err);
		cmd_image_watch_end(&watch);
		if (r == -ENOMEM && err.code == 0)
			err_set(&err, r, "no memory");
	}
	image_finish(&image[0]);
	image_finish(&image[1]);
	if (r < 0) {
		err_prefix(&err, "image diff: ");
		return cmd_fail(&err);
	}
	if (json)
		puts("]");
	else
		printf("%" PRIu64 " added, %" PRIu64 " changed, %" PRIu64 " removed, %+" PRId64 " bytes\n", p.count[IMAGE_DIFF_ADDED],
		       p.count[IMAGE_DIFF_CHANGED], p.count[IMAGE_DIFF_REMOVED], p.growth);
	return 0;
}

int cmd_image_diff(int argc, char **argv)
{
	struct diff_options o = { 0 };
	int status, first = cmd_parse(&diff_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 2)
		return cmd_failf("image diff: wanted are two images, the older one first");
	return cmd_finish_stdout(diff((const char *const[]){ argv[first], argv[first + 1] }, o.json));
}
