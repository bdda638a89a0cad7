/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparing contents: by where they are, and by reading where that does not tell.
 *
 * A block of two files is the same when it comes from the same place of a layer that both images have. The blocks of a file
 * are listed by its extents; an extent that was never written is zeros, as a hole is. What has no extents (short
 * links, data in the inode, maps of older file systems) is read whole.
 */
#include "host/image_diff_data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { CHUNK = 256 << 10, EXTENTS_MAX = 4 << 20 };

struct run {
	uint64_t logical, physical, n; /* blocks */
};

struct map {
	struct run *v;
	size_t n, room;
	size_t at; /* where the comparison is */
};

static int add_run(struct map *m, const struct ext2fs_extent *e, struct err *err)
{
	if (m->n > 0 && e->e_lblk < m->v[m->n - 1].logical + m->v[m->n - 1].n)
		return err_set(err, -EINVAL, "its extents overlap");
	if (m->n == m->room) {
		size_t room = m->room == 0 ? 16 : m->room * 2;
		struct run *v = room > EXTENTS_MAX ? NULL : realloc(m->v, room * sizeof(*v));

		if (v == NULL)
			return err_set(err, -ENOMEM, "no memory for its extents");
		m->v = v;
		m->room = room;
	}
	m->v[m->n++] = (struct run){ e->e_lblk, e->e_pblk, e->e_len };
	return 0;
}

static int read_map(const struct image_diff_pair *f, int side, struct map *ret, struct err *err)
{
	struct ext2_inode_large inode = *f->inode[side];
	ext2_extent_handle_t handle;
	struct ext2fs_extent extent;
	errcode_t e = ext2fs_extent_open2(f->side[side]->fs, f->ino[side], (struct ext2_inode *)&inode, &handle);
	int r = 0;

	if (e != 0)
		return image_ext4_error(e, "read its extents", err);
	e = ext2fs_extent_get(handle, EXT2_EXTENT_ROOT, &extent);
	while (r == 0 && e == 0) {
		if ((extent.e_flags & EXT2_EXTENT_FLAGS_LEAF) && !(extent.e_flags & EXT2_EXTENT_FLAGS_SECOND_VISIT) &&
		    !(extent.e_flags & EXT2_EXTENT_FLAGS_UNINIT))
			r = add_run(ret, &extent, err);
		e = ext2fs_extent_get(handle, EXT2_EXTENT_NEXT, &extent);
	}
	ext2fs_extent_free(handle);
	if (r == 0 && e != EXT2_ET_EXTENT_NO_NEXT && e != EXT2_ET_NO_CURRENT_NODE)
		r = image_ext4_error(e, "read its extents", err);
	return r;
}

/* What is at block `logical`, for at most `max` blocks: where on the disk (0: a hole), and for how many. */
static uint64_t look(struct map *m, uint64_t logical, uint64_t max, uint64_t *ret_n)
{
	while (m->at < m->n && m->v[m->at].logical + m->v[m->at].n <= logical)
		m->at++;
	if (m->at == m->n || m->v[m->at].logical >= logical + max) {
		*ret_n = max;
		return 0;
	}
	if (m->v[m->at].logical > logical) {
		*ret_n = m->v[m->at].logical - logical;
		return 0;
	}
	*ret_n = MIN(max, m->v[m->at].logical + m->v[m->at].n - logical);
	return m->v[m->at].physical + (logical - m->v[m->at].logical);
}

static int read_part(const struct image_ext4 *e, uint8_t *buf, uint64_t block, size_t n, struct err *err)
{
	int r = 0;

	if (block == 0)
		memset(buf, 0, n);
	else
		r = image_disk_read(&e->disk, buf, n, block * e->fs->blocksize);
	return r < 0 ? err_errno(err, r, "read its block %llu", (unsigned long long)block) : 0;
}

/* n bytes at these blocks, which lie together on both sides. */
static int compare_run(const struct image_diff_pair *f, const uint64_t block[2], uint64_t n, uint8_t *buf, struct err *err)
{
	const struct image_disk *a = &f->side[0]->disk, *b = &f->side[1]->disk;
	uint64_t size = f->side[0]->fs->blocksize;

	if (block[0] == 0 && block[1] == 0)
		return 0;
	if (block[0] != 0 && block[1] != 0 && image_disk_same(a, b, block[0] * size, block[1] * size, n, f->common))
		return 0;
	for (uint64_t at = 0; at < n; at += CHUNK) {
		size_t part = (size_t)MIN((uint64_t)CHUNK, n - at);

		for (int side = 0; side < 2; side++) {
			int r = read_part(f->side[side], buf + side * CHUNK, block[side] != 0 ? block[side] + at / size : 0, part, err);

			if (r < 0)
				return r;
		}
		if (memcmp(buf, buf + CHUNK, part) != 0)
			return 1;
	}
	return 0;
}

static int compare_maps(const struct image_diff_pair *f, struct map m[2], uint64_t size, struct progress *p, struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc(2 * CHUNK);
	uint64_t block_size = f->side[0]->fs->blocksize, blocks = size / block_size + (size % block_size != 0);
	int r = 0;

	if (buf == NULL)
		return err_set(err, -ENOMEM, "no memory to compare its contents");
	for (uint64_t at = 0; at < blocks && r == 0;) {
		uint64_t n[2], block[2];

		block[0] = look(&m[0], at, blocks - at, &n[0]);
		block[1] = look(&m[1], at, n[0], &n[1]);
		n[0] = MIN(n[1], (uint64_t)(64 << 20) / block_size); /* a signal is noticed */
		r = compare_run(f, block, MIN(n[0] * block_size, size - at * block_size), buf, err);
		at += n[0];
		if (r == 0)
			r = progress_bytes(p, 0, 0, err);
	}
	return r;
}

static int read_file(ext2_file_t file, uint8_t *buf, unsigned *ret, struct err *err)
{
	errcode_t e = ext2fs_file_read(file, buf, CHUNK, ret);

	return e != 0 ? image_ext4_error(e, "read its contents", err) : 0;
}

static int compare_files(ext2_file_t file[2], uint64_t size, struct progress *p, struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc(2 * CHUNK);
	uint64_t at = 0;

	if (buf == NULL)
		return err_set(err, -ENOMEM, "no memory to compare its contents");
	while (at < size) {
		unsigned n[2] = { 0 };
		int r = read_file(file[0], buf, &n[0], err);

		if (r == 0)
			r = read_file(file[1], buf + CHUNK, &n[1], err);
		if (r == 0)
			r = progress_bytes(p, 0, 0, err);
		if (r < 0)
			return r;
		if (n[0] != n[1] || memcmp(buf, buf + CHUNK, n[0]) != 0)
			return 1;
		if (n[0] == 0)
			return 0;
		at += n[0];
	}
	return 0;
}

static int compare_whole(const struct image_diff_pair *f, uint64_t size, struct progress *p, struct err *err)
{
	ext2_file_t file[2] = { NULL, NULL };
	errcode_t e = 0;
	int r;

	for (int side = 0; side < 2 && e == 0; side++)
		e = ext2fs_file_open(f->side[side]->fs, f->ino[side], 0, &file[side]);
	r = e != 0 ? image_ext4_error(e, "read its contents", err) : compare_files(file, size, p, err);
	for (int side = 0; side < 2; side++)
		if (file[side] != NULL)
			ext2fs_file_close(file[side]);
	return r;
}

/* A link's target that is in the inode. */
static bool is_fast_link(const struct ext2_inode_large *i)
{
	return LINUX_S_ISLNK(i->i_mode) && i->i_size < sizeof(i->i_block) && !(i->i_flags & (EXT4_EXTENTS_FL | EXT4_INLINE_DATA_FL));
}

int image_diff_data(const struct image_diff_pair *f, uint64_t size, struct progress *p, struct err *err)
{
	const struct ext2_inode_large *a = f->inode[0], *b = f->inode[1];
	struct map m[2] = { { 0 } };
	int r = 0;

	if (is_fast_link(a) && is_fast_link(b))
		return a->i_size != b->i_size || memcmp(a->i_block, b->i_block, a->i_size) != 0;
	if (a->i_size != b->i_size) /* a link's */
		return 1;
	if (is_fast_link(a) != is_fast_link(b))
		return 1;
	if (!(a->i_flags & b->i_flags & EXT4_EXTENTS_FL) || f->side[0]->fs->blocksize != f->side[1]->fs->blocksize)
		return compare_whole(f, size, p, err);
	for (int side = 0; side < 2 && r == 0; side++)
		r = read_map(f, side, &m[side], err);
	if (r == 0)
		r = compare_maps(f, m, size, p, err);
	free(m[0].v);
	free(m[1].v);
	return r;
}

/* ---- attributes ---- */

struct xattrs_search {
	struct ext2_xattr_handle *other;
	bool differs;
};

static int find_xattr(char *name, char *value, size_t n, void *arg)
{
	struct xattrs_search *s = arg;
	void *have = NULL;
	size_t size = 0;

	if (ext2fs_xattr_get(s->other, name, &have, &size) != 0)
		s->differs = true;
	else
		s->differs = size != n || memcmp(have, value, n) != 0;
	ext2fs_free_mem(&have);
	return s->differs ? XATTR_ABORT : 0;
}

static int count_xattrs(struct ext2_xattr_handle *h)
{
	size_t n = 0;

	return ext2fs_xattrs_count(h, &n) == 0 ? (int)MIN(n, (size_t)1 << 20) : 0;
}

int image_diff_xattrs(const struct image_diff_pair *f, struct err *err)
{
	struct ext2_xattr_handle *h[2] = { NULL, NULL };
	struct xattrs_search s = { 0 };
	errcode_t e = 0;
	int r = 0;

	for (int side = 0; side < 2 && e == 0; side++) {
		unsigned raw = XATTR_HANDLE_FLAG_RAW; /* as they are, not as the kernel shows them */

		e = ext2fs_xattrs_open(f->side[side]->fs, f->ino[side], &h[side]);
		if (e == 0)
			e = ext2fs_xattrs_flags(h[side], &raw, NULL);
		if (e == 0)
			e = ext2fs_xattrs_read(h[side]);
	}
	s.other = h[1];
	if (e != 0) {
		r = image_ext4_error(e, "read its attributes", err);
	} else if (count_xattrs(h[0]) != count_xattrs(h[1])) {
		r = 1;
	} else {
		ext2fs_xattrs_iterate(h[0], find_xattr, &s);
		r = s.differs;
	}
	for (int side = 0; side < 2; side++)
		if (h[side] != NULL)
			ext2fs_xattrs_close(&h[side]);
	return r;
}
