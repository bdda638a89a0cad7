/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree as an ext4 file system: mke2fs makes an empty one, libext2fs fills it. The image is shared read-only, so it
 * has no journal; it has checksums, so that damage is noticed.
 *
 * How it works: inodes get consecutive numbers, blocks are taken one after the other, files before the next. What lies
 * together in the tree then lies together on the disk. A file's data is written in runs of blocks that are not zero; runs
 * that touch become one extent. Directories are written as whole blocks.
 *
 * Trust: the tree's values have been checked by whoever filled it; what ext4 cannot hold (a device number, a time) is
 * refused or clamped here.
 */
#include "host/ext4_write.h"

#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/spawn.h"
#include "lib/fd.h"
#include "lib/util.h"

enum {
	INODE_SIZE = 256,
	FIRST_INODE = 12,          /* 11 is lost+found, which mke2fs makes */
	FAST_LINK_MAX = 59,        /* a target that fits into the inode itself */
	DIR_LINKS_MAX = 65000,     /* more subdirectories: the count is 1 */
	DIR_SPACE = EXT4_BLOCK - (int)sizeof(struct ext2_dir_entry_tail),
	EXTENT_LENGTH_MAX = 32768, /* blocks */
	BUFFER_BLOCKS = 256,
	DEVICE_MAJOR_MAX = 0xfff,
	DEVICE_MINOR_MAX = 0xfffff,
};

struct writer {
	ext2_filsys fs;
	struct progress *progress;
	uint8_t *buffer; /* BUFFER_BLOCKS blocks */
	blk64_t goal;    /* where to look for free blocks */
	uint64_t done, total;
};

/* The inode being written with what is known of its data so far. */
struct node {
	ext2_ino_t ino;
	struct ext2_inode_large inode;
	ext2_extent_handle_t extents;
	struct ext2fs_extent run; /* not yet inserted; e_len 0: none */
	blk64_t blocks;
};

static int ext2_error(struct err *err, errcode_t code, const char *what)
{
	int e = code == EXT2_ET_NO_MEMORY	? -ENOMEM :
		code == EXT2_ET_BLOCK_ALLOC_FAIL ? -ENOSPC :
		code == EXT2_ET_SHORT_WRITE	? -ENOSPC : /* of a file, which has no other reason */
		code > 0 && code < 4096		? -(int)code :
						  -EIO;

	return err_set(err, e, "%s: %s", what,
		       code == EXT2_ET_BLOCK_ALLOC_FAIL ? "the file system is full: give a larger --size" :
		       e == -ENOSPC			 ? "No space left on device, where the image is made" :
							   error_message(code));
}

/* ---- sizes ---- */

static size_t dirent_size(size_t name_len)
{
	return ALIGN_UP(8 + name_len, (size_t)4);
}

/* "." and ".." and all the names; no entry crosses a block. */
static uint64_t dir_blocks(const struct fstree_inode *i)
{
	uint64_t blocks = 1;
	size_t used = dirent_size(1) + dirent_size(2);

	for (const struct fstree_dirent *d = i->dir.first; d != NULL; d = d->next) {
		size_t n = dirent_size(d->name_len);

		if (used + n > DIR_SPACE) {
			blocks++;
			used = 0;
		}
		used += n;
	}
	return blocks;
}

static uint64_t data_blocks(const struct fstree_inode *i)
{
	uint64_t blocks = 0;

	if (S_ISDIR(i->mode)) {
		blocks = dir_blocks(i);
	} else if (S_ISREG(i->mode)) {
		uint64_t bytes = i->size - MIN(i->file.holes, i->size);

		blocks = bytes / EXT4_BLOCK + (bytes % EXT4_BLOCK != 0);
		blocks += blocks / 1024 + (blocks > 4); /* the extent tree of a file in pieces */
	} else if (S_ISLNK(i->mode)) {
		blocks = i->size > FAST_LINK_MAX;
	}
	return blocks + (i->xattrs != NULL);
}

static uint64_t count_inodes(const struct fstree *t)
{
	uint64_t n = FIRST_INODE;

	for (const struct fstree_inode *i = t->root; i != NULL; i = i->next)
		n += i->nlink > 0;
	return n;
}

uint64_t ext4_size_of(const struct fstree *t)
{
	uint64_t blocks = 0, size;

	for (const struct fstree_inode *i = t->root; i != NULL; i = i->next) {
		uint64_t n = i->nlink > 0 ? data_blocks(i) : 0;

		if (n > EXT4_SIZE_MAX / EXT4_BLOCK || blocks > EXT4_SIZE_MAX / EXT4_BLOCK)
			return UINT64_MAX;
		blocks += n;
	}
	blocks += count_inodes(t) / (EXT4_BLOCK / INODE_SIZE) + 1;
	size = blocks * EXT4_BLOCK;
	return ALIGN_UP(size + size / 32 + MIB(8), MIB(1));
}

/* ---- blocks ---- */

static errcode_t insert_run(struct writer *w, struct node *n)
{
	struct ext2fs_extent last;
	errcode_t r;

	(void)w;
	if (n->run.e_len == 0)
		return 0;
	r = ext2fs_extent_get(n->extents, EXT2_EXTENT_ROOT, &last);
	if (r == 0) {
		r = ext2fs_extent_get(n->extents, EXT2_EXTENT_LAST_LEAF, &last);
		if (r != 0 && r != EXT2_ET_EXTENT_NO_NEXT && r != EXT2_ET_NO_CURRENT_NODE)
			return r;
	}
	r = ext2fs_extent_insert(n->extents, EXT2_EXTENT_INSERT_AFTER, &n->run);
	if (r == 0)
		r = ext2fs_extent_fix_parents(n->extents);
	n->run.e_len = 0;
	return r;
}

/* Take free blocks for the file's blocks from `logical` on: at most `count`, at least one. */
static errcode_t take_blocks(struct writer *w, struct node *n, blk64_t logical, blk64_t count, blk64_t *ret_first,
			     blk64_t *ret_count)
{
	blk64_t first, got;
	errcode_t r = ext2fs_new_range(w->fs, 0, w->goal, count, NULL, &first, &got);

	if (r != 0)
		return r;
	got = MIN(got, count);
	ext2fs_block_alloc_stats_range(w->fs, first, got, +1);
	w->goal = first + got;
	if (w->goal >= ext2fs_blocks_count(w->fs->super))
		w->goal = w->fs->super->s_first_data_block;
	n->blocks += got;
	*ret_first = first;
	*ret_count = got;
	if (n->run.e_len > 0 && n->run.e_lblk + n->run.e_len == logical && n->run.e_pblk + n->run.e_len == first &&
	    n->run.e_len + got <= EXTENT_LENGTH_MAX) {
		n->run.e_len += (uint32_t)got;
		return 0;
	}
	r = insert_run(w, n);
	n->run = (struct ext2fs_extent){ .e_pblk = first, .e_lblk = logical, .e_len = (uint32_t)got };
	return r;
}

static errcode_t write_blocks(struct writer *w, struct node *n, blk64_t logical, const uint8_t *data, blk64_t count)
{
	while (count > 0) {
		blk64_t first, got;
		errcode_t r = take_blocks(w, n, logical, count, &first, &got);

		if (r == 0)
			r = io_channel_write_blk64(w->fs->io, first, (int)got, data);
		if (r != 0)
			return r;
		logical += got;
		data += got * EXT4_BLOCK;
		count -= got;
	}
	return 0;
}

static bool is_zero(const uint8_t *block)
{
	return block[0] == 0 && memcmp(block, block + 1, EXT4_BLOCK - 1) == 0;
}

/* ---- inodes ---- */

static void set_time(const struct fstree_inode *i, uint32_t *ret_seconds, uint32_t *ret_extra)
{
	int64_t s = MAX(MIN(i->mtime_s, ((int64_t)3 << 32) + INT32_MAX), (int64_t)INT32_MIN);

	*ret_seconds = (uint32_t)s;
	/* Two bits extend the signed seconds, the others are nanoseconds. */
	*ret_extra = (uint32_t)(((s - (int32_t)s) >> 32) & 3) | MIN(i->mtime_ns, 999999999u) << 2;
}

/* Fill the node's attributes; its blocks come later. */
static void start_node(struct node *n, const struct fstree_inode *i)
{
	struct ext2_inode_large *e = &n->inode;
	uint32_t seconds, extra;

	*n = (struct node){ .ino = i->number };
	set_time(i, &seconds, &extra);
	e->i_mode = (uint16_t)i->mode;
	e->i_uid = (uint16_t)i->uid;
	e->i_gid = (uint16_t)i->gid;
	e->osd2.linux2.l_i_uid_high = (uint16_t)(i->uid >> 16);
	e->osd2.linux2.l_i_gid_high = (uint16_t)(i->gid >> 16);
	e->i_atime = e->i_ctime = e->i_mtime = e->i_crtime = seconds;
	e->i_atime_extra = e->i_ctime_extra = e->i_mtime_extra = e->i_crtime_extra = extra;
	e->i_extra_isize = sizeof(*e) - EXT2_GOOD_OLD_INODE_SIZE;
	e->i_links_count = (uint16_t)i->nlink;
	if (S_ISDIR(i->mode))
		e->i_links_count = i->dir.subdirs + 2 > DIR_LINKS_MAX ? 1 : (uint16_t)(i->dir.subdirs + 2);
}

static errcode_t write_inode(struct writer *w, struct node *n)
{
	return ext2fs_write_inode_full(w->fs, n->ino, (struct ext2_inode *)&n->inode, sizeof(n->inode));
}

/* The inode has to be on disk before its extents are: a split of their tree writes parts of it. */
static errcode_t open_extents(struct writer *w, struct node *n)
{
	errcode_t r = write_inode(w, n);

	if (r == 0)
		r = ext2fs_extent_open2(w->fs, n->ino, (struct ext2_inode *)&n->inode, &n->extents);
	return r;
}

static errcode_t close_extents(struct writer *w, struct node *n)
{
	errcode_t r = insert_run(w, n);

	if (n->extents != NULL)
		ext2fs_extent_free(n->extents);
	n->extents = NULL;
	if (r == 0)
		r = ext2fs_iblk_add_blocks(w->fs, (struct ext2_inode *)&n->inode, n->blocks);
	return r;
}

/* Where the source may have data from `at` on, at a block: what is a hole there need not be read. */
static uint64_t skip_hole(const struct fstree_inode *i, int fd, off_t offset, uint64_t at)
{
	off_t data = i->file.holes == 0 ? -1 : lseek(fd, offset + (off_t)at, SEEK_DATA);

	if (i->file.holes == 0 || (data < 0 && errno != ENXIO))
		return at;
	return data < 0 ? i->size : ALIGN_DOWN((uint64_t)(data - offset), (uint64_t)EXT4_BLOCK);
}

static int write_data(struct writer *w, struct node *n, const struct fstree_inode *i, int fd, off_t offset, struct err *err)
{
	for (uint64_t at = 0; (at = MAX(at, skip_hole(i, fd, offset, at))) < i->size;) {
		size_t want = (size_t)MIN((uint64_t)BUFFER_BLOCKS * EXT4_BLOCK, i->size - at);
		size_t blocks = (want + EXT4_BLOCK - 1) / EXT4_BLOCK;
		ssize_t got = fd_pread_full(fd, w->buffer, want, offset + (off_t)at);
		int r;

		if (got < 0)
			return err_errno(err, (int)got, "read the contents");
		if ((size_t)got < want)
			return err_set(err, -ESTALE, "the contents end early: something changes the source");
		memset(w->buffer + want, 0, blocks * EXT4_BLOCK - want);
		for (size_t b = 0, end; b < blocks; b = end) {
			errcode_t e;

			for (end = b; end < blocks && !is_zero(w->buffer + end * EXT4_BLOCK);)
				end++;
			if (end == b) {
				end = b + 1;
				continue;
			}
			e = write_blocks(w, n, at / EXT4_BLOCK + b, w->buffer + b * EXT4_BLOCK, end - b);
			if (e != 0)
				return ext2_error(err, e, "write the contents");
		}
		at += want;
		w->done += want;
		r = progress_bytes(w->progress, w->done, w->total, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int write_file(struct writer *w, struct node *n, const struct fstree_inode *i, const struct fstree_source *source,
		      struct err *err)
{
	bool owned = false;
	off_t offset = 0;
	errcode_t e;
	int fd = -1, r = 0;

	n->inode.i_size = (uint32_t)i->size;
	n->inode.i_size_high = (uint32_t)(i->size >> 32);
	e = open_extents(w, n);
	if (e == 0 && i->size > 0) {
		r = fstree_source_open(source, i, &fd, &offset, &owned, err);
		if (r == 0)
			r = write_data(w, n, i, fd, offset, err);
		if (owned)
			fd_close(fd);
	}
	if (e == 0)
		e = close_extents(w, n);
	if (r < 0)
		return r;
	return e != 0 ? ext2_error(err, e, "write a file") : 0;
}

static int write_symlink(struct writer *w, struct node *n, const struct fstree_inode *i, struct err *err)
{
	errcode_t e;

	n->inode.i_size = (uint32_t)i->size;
	if (i->size <= FAST_LINK_MAX) {
		memcpy(n->inode.i_block, i->target, i->size);
		return 0;
	}
	memset(w->buffer, 0, EXT4_BLOCK);
	memcpy(w->buffer, i->target, MIN(i->size, (uint64_t)EXT4_BLOCK - 1));
	e = open_extents(w, n);
	if (e == 0)
		e = write_blocks(w, n, 0, w->buffer, 1);
	if (e == 0)
		e = close_extents(w, n);
	return e != 0 ? ext2_error(err, e, "write a symbolic link") : 0;
}

static int set_device(struct node *n, const struct fstree_inode *i, struct err *err)
{
	uint32_t major = i->device.major, minor = i->device.minor;

	if (major > DEVICE_MAJOR_MAX || minor > DEVICE_MINOR_MAX)
		return err_set(err, -EINVAL, "device %u:%u does not exist on Linux", major, minor);
	if (major < 256 && minor < 256)
		n->inode.i_block[0] = major << 8 | minor;
	else
		n->inode.i_block[1] = (minor & 0xff) | major << 8 | (minor & ~0xffu) << 12;
	return 0;
}

static uint8_t dirent_type(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG: return EXT2_FT_REG_FILE;
	case S_IFDIR: return EXT2_FT_DIR;
	case S_IFLNK: return EXT2_FT_SYMLINK;
	case S_IFCHR: return EXT2_FT_CHRDEV;
	case S_IFBLK: return EXT2_FT_BLKDEV;
	case S_IFIFO: return EXT2_FT_FIFO;
	default: return EXT2_FT_UNKNOWN;
	}
}

struct dir_writer {
	struct writer *w;
	struct node *n;
	blk64_t block; /* logical */
	size_t used;
	struct ext2_dir_entry *last; /* in the block */
};

static errcode_t end_dir_block(struct dir_writer *d)
{
	uint8_t *block = d->w->buffer;
	blk64_t first, got;
	errcode_t r;

	/* The last entry takes what is left. */
	r = ext2fs_set_rec_len(d->w->fs, (unsigned)(DIR_SPACE - ((uint8_t *)d->last - block)), d->last);
	ext2fs_initialize_dirent_tail(d->w->fs, EXT2_DIRENT_TAIL(block, d->w->fs->blocksize));
	if (r == 0)
		r = take_blocks(d->w, d->n, d->block, 1, &first, &got);
	if (r == 0)
		r = ext2fs_write_dir_block4(d->w->fs, first, block, 0, d->n->ino);
	d->block++;
	d->used = 0;
	d->last = NULL;
	memset(block, 0, EXT4_BLOCK);
	return r;
}

static errcode_t add_dirent(struct dir_writer *d, const char *name, size_t len, uint32_t ino, uint8_t type)
{
	struct ext2_dir_entry *e;
	size_t size = dirent_size(len);
	errcode_t r = 0;

	if (d->used + size > DIR_SPACE)
		r = end_dir_block(d);
	if (r != 0)
		return r;
	e = (struct ext2_dir_entry *)(d->w->buffer + d->used);
	e->inode = ino;
	ext2fs_dirent_set_name_len(e, (int)len);
	ext2fs_dirent_set_file_type(e, type);
	memcpy(e->name, name, len);
	d->used += size;
	d->last = e;
	return ext2fs_set_rec_len(d->w->fs, (unsigned)size, e);
}

static int write_dir(struct writer *w, struct node *n, const struct fstree_inode *i, struct err *err)
{
	struct dir_writer d = { .w = w, .n = n };
	uint64_t size = dir_blocks(i) * EXT4_BLOCK;
	errcode_t e;

	n->inode.i_size = (uint32_t)size;
	n->inode.i_size_high = (uint32_t)(size >> 32);
	memset(w->buffer, 0, EXT4_BLOCK);
	e = open_extents(w, n);
	if (e == 0)
		e = add_dirent(&d, ".", 1, n->ino, EXT2_FT_DIR);
	if (e == 0)
		e = add_dirent(&d, "..", 2, i->dir.parent->number, EXT2_FT_DIR);
	for (const struct fstree_dirent *c = i->dir.first; e == 0 && c != NULL; c = c->next)
		e = add_dirent(&d, c->name, c->name_len, c->inode->number, dirent_type(c->inode->mode));
	if (e == 0)
		e = end_dir_block(&d);
	if (e == 0)
		e = close_extents(w, n);
	return e != 0 ? ext2_error(err, e, "write a directory") : 0;
}

static int write_xattrs(struct writer *w, const struct fstree_inode *i, struct err *err)
{
	struct ext2_xattr_handle *h;
	errcode_t e = ext2fs_xattrs_open(w->fs, i->number, &h);

	if (e != 0)
		return ext2_error(err, e, "write attributes");
	for (const struct fstree_xattr *x = i->xattrs; e == 0 && x != NULL; x = x->next)
		e = ext2fs_xattr_set(h, x->name, x->value, x->size);
	ext2fs_xattrs_close(&h);
	return e != 0 ? ext2_error(err, e, "write attributes") : 0;
}

static int write_node(struct writer *w, const struct fstree_inode *i, const struct fstree_source *source, struct err *err)
{
	struct node n;
	errcode_t e = 0;
	int r = 0;

	start_node(&n, i);
	if (i->number != EXT2_ROOT_INO && i->number != FIRST_INODE - 1)
		ext2fs_inode_alloc_stats2(w->fs, i->number, +1, S_ISDIR(i->mode));
	switch (i->mode & S_IFMT) {
	case S_IFREG: r = write_file(w, &n, i, source, err); break;
	case S_IFLNK: r = write_symlink(w, &n, i, err); break;
	case S_IFDIR: r = write_dir(w, &n, i, err); break;
	case S_IFCHR:
	case S_IFBLK: r = set_device(&n, i, err); break;
	default: break;
	}
	if (n.extents != NULL)
		ext2fs_extent_free(n.extents);
	if (r == 0)
		e = write_inode(w, &n);
	if (e != 0)
		return ext2_error(err, e, "write an inode");
	return r == 0 && i->xattrs != NULL ? write_xattrs(w, i, err) : r;
}

/* ---- the whole ---- */

static int make_empty(const char *path, uint64_t size, uint64_t inodes, const struct ext4_options *o,
		      struct progress *progress, struct err *err)
{
	char blocks_text[24], inodes_text[24], label[17] = "", extended[128];
	const char *argv[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-N", inodes_text,
			       "-O", "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum",
			       "-E", extended, "-L", label, path, blocks_text, o->uuid ? "-U" : NULL, o->uuid, NULL };
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, -errno, "create '%s'", path);
	if (ftruncate(fd, (off_t)size) < 0)
		return err_errno(err, -errno, "make '%s' %llu MiB large", path, (unsigned long long)(size >> 20));
	snprintf(blocks_text, sizeof(blocks_text), "%llu", (unsigned long long)(size / EXT4_BLOCK));
	snprintf(inodes_text, sizeof(inodes_text), "%llu", (unsigned long long)inodes);
	snprintf(extended, sizeof(extended), "root_owner=0:0,lazy_itable_init=0,discard%s%.40s", o->uuid != NULL ? ",hash_seed=" : "",
		 o->uuid != NULL ? o->uuid : "");
	if (o->label != NULL)
		snprintf(label, sizeof(label), "%.16s", o->label);
	return spawn_run(&(struct spawn){ .argv = argv, .in = -1, .out = -1, .package = "e2fsprogs", .progress = progress }, err);
}

/* Nothing of now: in inodes that mke2fs has made for itself, and in the superblock and its copies, neither. */
static int set_times(ext2_filsys fs, const struct fstree *t, struct err *err)
{
	struct ext2_inode inode;
	int64_t newest = 1; /* libext2fs takes 0 for now */
	errcode_t e = 0;

	for (const struct fstree_inode *i = t->root; i != NULL; i = i->next)
		if (i->nlink > 0 && i->mtime_s > newest && i->mtime_s <= UINT32_MAX)
			newest = i->mtime_s;
	fs->now = (time_t)newest;
	fs->super->s_mkfs_time = fs->super->s_wtime = fs->super->s_lastcheck = (uint32_t)newest;
	fs->flags &= ~EXT2_FLAG_MASTER_SB_ONLY;
	for (ext2_ino_t i = 1; i < FIRST_INODE && e == 0; i++) {
		e = ext2fs_read_inode(fs, i, &inode);
		if (e != 0 || inode.i_ctime == 0)
			continue;
		inode.i_atime = inode.i_ctime = inode.i_mtime = (uint32_t)newest;
		e = ext2fs_write_inode(fs, i, &inode);
	}
	return e != 0 ? ext2_error(err, e, "set the times of the new file system") : 0;
}

/* mke2fs gives the root its block and lost+found; both directories are written anew. */
static int empty_dir(ext2_filsys fs, ext2_ino_t ino, struct err *err)
{
	struct ext2_inode inode;
	errcode_t e = ext2fs_read_inode(fs, ino, &inode);

	if (e == 0)
		e = ext2fs_punch(fs, ino, &inode, NULL, 0, ~0ULL);
	return e != 0 ? ext2_error(err, e, "clear the new root directory") : 0;
}

/* Number the inodes; lost+found is made when the tree lacks it, since fsck insists on it. */
static int number_inodes(struct fstree *t, struct err *err)
{
	struct fstree_inode like = { .mode = S_IFDIR | 0700 }, *lost = fstree_lookup(t, "lost+found");
	uint32_t next = FIRST_INODE;
	int r = 0;

	if (lost == NULL)
		r = fstree_add(t, "lost+found", &like, &lost, err);
	else if (!S_ISDIR(lost->mode))
		r = err_set(err, -EINVAL, "'lost+found' has to be a directory");
	if (r < 0)
		return r;
	for (struct fstree_inode *i = t->root; i != NULL; i = i->next)
		i->number = i == t->root ? EXT2_ROOT_INO : i == lost ? FIRST_INODE - 1 : i->nlink > 0 ? next++ : 0;
	return 0;
}

static int fill(struct writer *w, const struct fstree *t, const struct fstree_source *source, struct err *err)
{
	errcode_t e = ext2fs_read_bitmaps(w->fs);
	int r = e != 0 ? ext2_error(err, e, "read the bitmaps") : 0;

	if (r == 0)
		r = empty_dir(w->fs, EXT2_ROOT_INO, err);
	if (r == 0)
		r = empty_dir(w->fs, FIRST_INODE - 1, err);
	w->goal = w->fs->super->s_first_data_block;
	for (const struct fstree_inode *i = t->root; r == 0 && i != NULL; i = i->next)
		if (i->nlink > 0)
			r = write_node(w, i, source, err);
	return r;
}

int ext4_write(struct fstree *t, const struct fstree_source *source, const char *path, const struct ext4_options *options,
	       struct progress *progress, struct err *err)
{
	struct writer w = { .progress = progress };
	uint64_t need, size, inodes;
	errcode_t e;
	int r = number_inodes(t, err);

	if (r < 0)
		return r;
	need = ext4_size_of(t);
	size = options->size != 0 ? ALIGN_DOWN(options->size, (uint64_t)EXT4_BLOCK) : need;
	if (size > EXT4_SIZE_MAX)
		return err_set(err, -EFBIG, "the file system would have more than %llu GiB",
			       (unsigned long long)(EXT4_SIZE_MAX >> 30));
	if (size < need)
		return err_set(err, -ENOSPC, "%llu MiB are too small: the files need %llu MiB", (unsigned long long)(size >> 20),
			       (unsigned long long)(need >> 20));
	/* One inode per 16 KiB, as mke2fs has it, of what is beyond the need, for whoever writes to a larger one. */
	inodes = count_inodes(t) + 16 + (size - need) / 16384;
	for (const struct fstree_inode *i = t->root; i != NULL; i = i->next)
		w.total += i->nlink > 0 && S_ISREG(i->mode) ? i->size : 0;
	r = make_empty(path, size, inodes, options, progress, err);
	if (r < 0)
		return r;

	initialize_ext2_error_table();
	w.buffer = malloc((size_t)BUFFER_BLOCKS * EXT4_BLOCK);
	if (w.buffer == NULL)
		return err_set(err, -ENOMEM, "no memory for writing the file system");
	e = ext2fs_open(path, EXT2_FLAG_RW | EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &w.fs);
	if (e != 0) {
		free(w.buffer);
		return ext2_error(err, e, "open the new file system");
	}
	if (options->uuid != NULL)
		r = set_times(w.fs, t, err);
	if (r == 0)
		r = fill(&w, t, source, err);
	free(w.buffer);
	if (r < 0) {
		ext2fs_free(w.fs);
		return r;
	}
	e = ext2fs_close(w.fs);
	return e != 0 ? ext2_error(err, e, "finish the file system") : 0;
}
