/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listing the store: which images there are, what they take up, what they share, and which is made on which.
 *
 * What is shared is told by the files' inodes, so a copy that only looks the same counts as what it is. Parents are told by the
 * layers' digests.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/image_store.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { LIST_MAX = 4096 };

/* A layer's file in one image. */
struct use {
	dev_t dev;
	ino_t ino;
	size_t image;
	uint64_t bytes;
};

struct uses {
	struct use *v;
	size_t n, room;
};

static int compare_entries(const void *a, const void *b)
{
	return strcmp(((const struct image_entry *)a)->image.name, ((const struct image_entry *)b)->image.name);
}

static int compare_uses(const void *a, const void *b)
{
	const struct use *x = a, *y = b;

	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	return x->image < y->image ? -1 : x->image > y->image;
}

static int add_uses(struct uses *u, const struct image *image, size_t number)
{
	for (size_t k = 0; k < image->nlayers; k++) {
		char path[PATH_MAX + IMAGE_FILE_MAX + 2];
		struct stat st;

		if (image->layer[k].file == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", image->path, image->layer[k].file);
		if (lstat(path, &st) < 0)
			continue;
		if (u->n == u->room) {
			size_t room = u->room == 0 ? 64 : u->room * 2;
			struct use *v = realloc(u->v, room * sizeof(*v));

			if (v == NULL)
				return -ENOMEM;
			u->v = v;
			u->room = room;
		}
		u->v[u->n++] = (struct use){ st.st_dev, st.st_ino, number, (uint64_t)st.st_blocks * 512 };
	}
	return 0;
}

/* Sorted by file, and of one file by image; a file that an image has twice counts once. */
static uint64_t count_uses(struct uses *u, struct image_entry *list)
{
	uint64_t total = 0;

	if (u->n > 0)
		qsort(u->v, u->n, sizeof(*u->v), compare_uses);
	for (size_t i = 0, end; i < u->n; i = end) {
		bool several;

		for (end = i + 1; end < u->n && u->v[end].ino == u->v[i].ino && u->v[end].dev == u->v[i].dev;)
			end++;
		several = u->v[end - 1].image != u->v[i].image;
		total += u->v[i].bytes;
		for (size_t k = i; k < end; k++) {
			if (k > i && u->v[k].image == u->v[k - 1].image)
				continue;
			list[u->v[k].image].disk += u->v[k].bytes;
			list[u->v[k].image].shared += several ? u->v[k].bytes : 0;
		}
	}
	return total;
}

static int measure(struct image_entry *list, size_t n, uint64_t *ret_total)
{
	struct uses u = { 0 };
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_uses(&u, &list[i].image, i);
	if (r == 0)
		*ret_total = count_uses(&u, list);
	free(u.v);
	return r;
}

/* Of two with equal layers the first one is the parent. */
static bool begins_with(const struct image_entry *e, const struct image_entry *parent)
{
	const struct image *a = &e->image, *b = &parent->image;

	if (b->nlayers == 0 || b->nlayers > a->nlayers || (b->nlayers == a->nlayers && parent >= e))
		return false;
	for (size_t k = 0; k < b->nlayers; k++)
		if (strcmp(a->layer[k].sha256, b->layer[k].sha256) != 0)
			return false;
	return true;
}

static void find_parent(struct image_entry *list, size_t n, struct image_entry *e)
{
	for (size_t i = 0; i < n; i++)
		if (&list[i] != e && begins_with(e, &list[i]) &&
		    (e->parent == NULL || list[i].image.nlayers > e->parent->image.nlayers))
			e->parent = &list[i];
}

static int read_all(const struct image_store *s, DIR *dir, struct image_entry **ret, size_t *ret_n, struct err *err)
{
	size_t room = 0;
	struct dirent *e;

	while (*ret_n < LIST_MAX && (e = readdir(dir)) != NULL) {
		struct image_entry *entry;

		if (e->d_name[0] == '.')
			continue;
		if (*ret_n == room) {
			size_t more = room == 0 ? 16 : room * 2;
			struct image_entry *p = realloc(*ret, more * sizeof(*p));

			if (p == NULL)
				return err_set(err, -ENOMEM, "no memory for the list of images");
			*ret = p;
			room = more;
		}
		entry = &(*ret)[(*ret_n)++];
		*entry = (struct image_entry){ .problem = ERR_INIT };
		if (image_name_check(e->d_name, &entry->problem) == 0)
			image_store_resolve(s, e->d_name, &entry->image, &entry->problem);
		text_escape(e->d_name, strlen(e->d_name), "", entry->image.name, sizeof(entry->image.name));
	}
	return 0;
}

int image_store_list_total(const struct image_store *s, struct image_entry **ret, size_t *ret_n, uint64_t *ret_total,
			   struct err *err)
{
	struct image_entry *list = NULL;
	DIR *dir = opendir(s->images);
	uint64_t total = 0;
	size_t n = 0;
	int r;

	*ret = NULL;
	*ret_n = 0;
	if (ret_total != NULL)
		*ret_total = 0;
	if (dir == NULL)
		return errno == ENOENT ? 0 : err_errno(err, -errno, "open '%s'", s->images);
	r = read_all(s, dir, &list, &n, err);
	closedir(dir);
	if (r == 0 && n > 0) {
		qsort(list, n, sizeof(*list), compare_entries);
		r = measure(list, n, &total);
		if (r < 0)
			err_set(err, r, "no memory for the list of images");
	}
	if (r < 0) {
		image_store_list_free(list, n);
		return r;
	}
	for (size_t i = 0; i < n; i++)
		find_parent(list, n, &list[i]);
	*ret = list;
	*ret_n = n;
	if (ret_total != NULL)
		*ret_total = total;
	return 0;
}

int image_store_list(const struct image_store *s, struct image_entry **ret, size_t *ret_n, struct err *err)
{
	return image_store_list_total(s, ret, ret_n, NULL, err);
}

void image_store_list_free(struct image_entry *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		image_finish(&list[i].image);
	free(list);
}
