/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing the files of two images: see image_diff.h.
 *
 * How it works: what is still to be compared is a stack of paths, each with its inodes in the two images (0: not there). A path
 * that is taken off is compared and told; of a directory, the names of both sides go onto the stack, last one first. So
 * no depth is too deep, and the order is that of the names. Contents: image_diff_data.c.
 *
 * Trust: both file systems are hostile. A directory that is met twice ends it, so nothing goes round in circles.
 */
#include "host/image_diff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/image_diff_data.h"
#include "lib/text.h"
#include "lib/util.h"

enum { PATH_LONGEST = 64 << 10, STACK_MAX = 16 << 20 };

struct item {
	char *path;
	ext2_ino_t ino[2];
};

struct name {
	char *text;
	ext2_ino_t ino;
};

struct names {
	struct name *v;
	size_t n, room;
	bool failed;
};

struct diff {
	struct image_ext4 *side[2];
	size_t common; /* layers */
	ext2fs_inode_bitmap seen[2];
	struct item *stack;
	size_t n, room;
	uint64_t done;
	image_diff_each *each;
	void *arg;
	struct progress *p;
	struct err *err;
};

/* ---- directories ---- */

static int add_name(struct ext2_dir_entry *e, int offset, int block_size, char *buf, void *arg)
{
	struct names *names = arg;
	int len = ext2fs_dirent_name_len(e);

	(void)offset, (void)block_size, (void)buf;
	if (e->inode == 0 || (len == 1 && e->name[0] == '.') || (len == 2 && memcmp(e->name, "..", 2) == 0))
		return 0;
	if (names->n == names->room) {
		size_t room = names->room == 0 ? 64 : names->room * 2;
		struct name *v = room > STACK_MAX ? NULL : realloc(names->v, room * sizeof(*v));

		if (v == NULL) {
			names->failed = true;
			return DIRENT_ABORT;
		}
		names->v = v;
		names->room = room;
	}
	names->v[names->n].ino = e->inode;
	names->v[names->n].text = strndup(e->name, (size_t)len);
	names->failed = names->v[names->n].text == NULL;
	names->n += !names->failed;
	return names->failed ? DIRENT_ABORT : 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->v[i].text);
	free(names->v);
}

static int read_names(struct diff *d, int side, const struct item *item, struct names *ret)
{
	ext2_filsys fs = d->side[side]->fs;
	errcode_t e;

	if (item->ino[side] == 0)
		return 0;
	if (ext2fs_test_inode_bitmap2(d->seen[side], item->ino[side]))
		return err_set(d->err, -EINVAL, "'%s': the file system is damaged: a directory is in two places", TEXT_CUT(item->path));
	ext2fs_mark_inode_bitmap2(d->seen[side], item->ino[side]);
	e = ext2fs_dir_iterate(fs, item->ino[side], 0, NULL, add_name, ret);
	if (ret->failed)
		return err_set(d->err, -ENOMEM, "'%s': no memory for its names", TEXT_CUT(item->path));
	if (e != 0) {
		image_ext4_error(e, "read the directory", d->err);
		return err_prefix(d->err, "'%s': ", TEXT_CUT(item->path)), -EINVAL;
	}
	if (ret->n > 0)
		qsort(ret->v, ret->n, sizeof(*ret->v), by_text);
	return 0;
}

/* ---- the stack ---- */

static int push(struct diff *d, const char *dir, const char *name, ext2_ino_t a, ext2_ino_t b)
{
	struct item *v = d->stack;

	if (strlen(dir) + strlen(name) + 1 > PATH_LONGEST)
		return err_set(d->err, -ENAMETOOLONG, "'%.200s...': the path is too long", dir);
	if (d->n == d->room) {
		size_t room = d->room == 0 ? 256 : d->room * 2;

		v = room > STACK_MAX ? NULL : realloc(v, room * sizeof(*v));
		if (v == NULL)
			return err_set(d->err, -ENOMEM, "no memory for the files to compare");
		d->stack = v;
		d->room = room;
	}
	v[d->n] = (struct item){ .ino = { a, b } };
	if (asprintf(&v[d->n].path, "%s%s%s", dir, dir[0] != '\0' && dir[1] == '\0' ? "" : "/", name) < 0)
		return err_set(d->err, -ENOMEM, "no memory for the files to compare");
	d->n++;
	return 0;
}

/* The names of both, from the last one on. */
static int push_names(struct diff *d, const char *dir, const struct names *a, const struct names *b)
{
	size_t i = a->n, k = b->n;
	int r = 0;

	while (r == 0 && (i > 0 || k > 0)) {
		int order = i == 0 ? -1 : k == 0 ? 1 : strcmp(a->v[i - 1].text, b->v[k - 1].text);
		const char *name = order >= 0 ? a->v[i - 1].text : b->v[k - 1].text;
		ext2_ino_t in_a = order >= 0 ? a->v[--i].ino : 0, in_b = order <= 0 ? b->v[--k].ino : 0;

		r = push(d, dir, name, in_a, in_b);
	}
	return r;
}

static int push_children(struct diff *d, const struct item *item)
{
	struct names names[2] = { { 0 } };
	int r = read_names(d, 0, item, &names[0]);

	if (r == 0)
		r = read_names(d, 1, item, &names[1]);
	if (r == 0)
		r = push_names(d, item->path, &names[0], &names[1]);
	free_names(&names[0]);
	free_names(&names[1]);
	return r;
}

/* ---- one path ---- */

static uint64_t size_of(const struct ext2_inode_large *i)
{
	return LINUX_S_ISREG(i->i_mode) || LINUX_S_ISLNK(i->i_mode) ?
		       i->i_size | (LINUX_S_ISREG(i->i_mode) ? (uint64_t)i->i_size_high << 32 : 0) :
		       0;
}

static int compare(struct diff *d, const struct item *item, const struct ext2_inode_large i[2], unsigned *ret)
{
	struct image_diff_pair pair = { .side = { d->side[0], d->side[1] }, .ino = { item->ino[0], item->ino[1] },
					.inode = { &i[0], &i[1] }, .common = d->common };
	bool is_file = LINUX_S_ISREG(i[0].i_mode);
	unsigned what = 0;
	int r = 0;

	if ((i[0].i_mode ^ i[1].i_mode) & LINUX_S_IFMT) {
		*ret = IMAGE_DIFF_TYPE;
		return 0;
	}
	what |= i[0].i_mode != i[1].i_mode ? IMAGE_DIFF_MODE : 0;
	what |= inode_uid(i[0]) != inode_uid(i[1]) || inode_gid(i[0]) != inode_gid(i[1]) ? IMAGE_DIFF_OWNER : 0;
	what |= size_of(&i[0]) != size_of(&i[1]) ? IMAGE_DIFF_SIZE : 0;
	if (!LINUX_S_ISDIR(i[0].i_mode) && (i[0].i_mtime != i[1].i_mtime || i[0].i_mtime_extra != i[1].i_mtime_extra))
		what |= IMAGE_DIFF_TIME;
	if (is_file && (what & IMAGE_DIFF_SIZE))
		what |= IMAGE_DIFF_CONTENT;
	else if (is_file || LINUX_S_ISLNK(i[0].i_mode))
		r = image_diff_data(&pair, size_of(&i[0]), d->p, d->err);
	else if (LINUX_S_ISCHR(i[0].i_mode) || LINUX_S_ISBLK(i[0].i_mode))
		r = memcmp(i[0].i_block, i[1].i_block, 2 * sizeof(i[0].i_block[0])) != 0;
	if (r > 0)
		what |= IMAGE_DIFF_CONTENT;
	if (r >= 0)
		r = image_diff_xattrs(&pair, d->err);
	if (r < 0)
		return r;
	*ret = what | (r > 0 ? IMAGE_DIFF_XATTRS : 0);
	return 0;
}

static int read_inode(struct diff *d, int side, ext2_ino_t ino, struct ext2_inode_large *ret)
{
	errcode_t e;

	memset(ret, 0, sizeof(*ret));
	e = ext2fs_read_inode_full(d->side[side]->fs, ino, (struct ext2_inode *)ret, sizeof(*ret));
	return e != 0 ? image_ext4_error(e, "read the inode", d->err) : 0;
}

static int tell(struct diff *d, const struct item *item, const struct ext2_inode_large i[2], unsigned what)
{
	struct image_change c = {
		.kind = item->ino[0] == 0 ? IMAGE_DIFF_ADDED : item->ino[1] == 0 ? IMAGE_DIFF_REMOVED : IMAGE_DIFF_CHANGED,
		.path = item->path, .what = what,
		.old_mode = i[0].i_mode, .new_mode = i[1].i_mode, .old_size = size_of(&i[0]), .new_size = size_of(&i[1]),
	};

	return c.kind == IMAGE_DIFF_CHANGED && what == 0 ? 0 : d->each(d->arg, &c);
}

static int take(struct diff *d, const struct item *item)
{
	struct ext2_inode_large i[2] = { { 0 } };
	struct item dir = *item;
	unsigned what = 0;
	int r = 0;

	for (int side = 0; side < 2 && r == 0; side++)
		if (item->ino[side] != 0)
			r = read_inode(d, side, item->ino[side], &i[side]);
	if (r == 0 && item->ino[0] != 0 && item->ino[1] != 0)
		r = compare(d, item, i, &what);
	if (r < 0)
		return err_prefix(d->err, "'%s': ", TEXT_CUT(item->path)), r;
	r = tell(d, item, i, what);
	for (int side = 0; side < 2; side++)
		if (!LINUX_S_ISDIR(i[side].i_mode))
			dir.ino[side] = 0;
	if (r == 0 && (dir.ino[0] != 0 || dir.ino[1] != 0))
		r = push_children(d, &dir);
	return r < 0 ? r : progress_bytes(d->p, ++d->done, 0, d->err);
}

static int run(struct diff *d)
{
	errcode_t e = 0;
	int r;

	for (int side = 0; side < 2 && e == 0; side++)
		e = ext2fs_allocate_inode_bitmap(d->side[side]->fs, "directories", &d->seen[side]);
	if (e != 0)
		return image_ext4_error(e, "compare", d->err);
	r = push(d, "", "", EXT2_ROOT_INO, EXT2_ROOT_INO);
	while (r == 0 && d->n > 0) {
		struct item item = d->stack[--d->n];

		r = take(d, &item);
		free(item.path);
	}
	return r;
}

static size_t common_layers(const struct image *a, const struct image *b)
{
	size_t n = 0;

	while (n < a->nlayers && n < b->nlayers && strcmp(a->layer[n].sha256, b->layer[n].sha256) == 0)
		n++;
	return n;
}

int image_diff(const struct image *a, const struct image *b, image_diff_each *each, void *arg, struct progress *p,
	       struct err *err)
{
	struct image_ext4 side[2] = { IMAGE_EXT4_NONE, IMAGE_EXT4_NONE };
	struct diff d = { .side = { &side[0], &side[1] }, .common = common_layers(a, b), .each = each, .arg = arg, .p = p,
			  .err = err };
	int r = image_ext4_open(a, &side[0], err);

	if (r == 0)
		r = image_ext4_open(b, &side[1], err);
	progress_stage(p, "comparing");
	if (r == 0)
		r = run(&d);
	while (d.n > 0)
		free(d.stack[--d.n].path);
	free(d.stack);
	for (int k = 0; k < 2; k++) {
		if (d.seen[k] != NULL)
			ext2fs_free_inode_bitmap(d.seen[k]);
		image_ext4_close(&side[k]);
	}
	return r;
}
