/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libext2fs over an image's layers: see image_ext4.h.
 *
 * libext2fs opens a disk by its name, through functions that have no place for more; so the name is the address of
 * what is already open.
 *
 * Trust: the file system is hostile; libext2fs checks what it reads (checksums, numbers of blocks and inodes), and no
 * block outside the disk is read.
 */
#include "host/image_ext4.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static errcode_t disk_open(const char *name, int flags, io_channel *ret)
{
	uintptr_t address = (uintptr_t)strtoull(name, NULL, 16);
	io_channel c = calloc(1, sizeof(*c));
	struct image_ext4 *e;

	if (c == NULL || (flags & IO_FLAG_RW)) {
		free(c);
		return flags & IO_FLAG_RW ? EROFS : ENOMEM;
	}
	c->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	c->block_size = 1024;
	c->refcount = 1;
	memcpy(&e, &address, sizeof(address));
	c->manager = e->manager;
	c->private_data = &e->disk;
	*ret = c;
	return 0;
}

static errcode_t disk_close(io_channel c)
{
	if (--c->refcount == 0)
		free(c);
	return 0;
}

static errcode_t disk_set_block_size(io_channel c, int size)
{
	if (size <= 0 || size > 64 << 10)
		return EINVAL;
	c->block_size = size;
	return 0;
}

/* A negative count is one of bytes. */
static errcode_t disk_read(io_channel c, unsigned long long block, int count, void *data)
{
	const struct image_disk *d = c->private_data;
	uint64_t n = count < 0 ? (uint64_t)-(int64_t)count : (uint64_t)count * (uint64_t)c->block_size;

	if (block > d->size / (uint64_t)c->block_size)
		return EINVAL;
	return -image_disk_read(d, data, n, block * (uint64_t)c->block_size);
}

static errcode_t disk_read_short(io_channel c, unsigned long block, int count, void *data)
{
	return disk_read(c, block, count, data);
}

static errcode_t disk_write(io_channel c, unsigned long long block, int count, const void *data)
{
	(void)c, (void)block, (void)count, (void)data;
	return EROFS;
}

static errcode_t disk_write_short(io_channel c, unsigned long block, int count, const void *data)
{
	return disk_write(c, block, count, data);
}

static errcode_t disk_flush(io_channel c)
{
	(void)c;
	return 0;
}

static struct struct_io_manager *manager(struct struct_io_manager *m)
{
	*m = (struct struct_io_manager){
		.magic = EXT2_ET_MAGIC_IO_MANAGER,
		.name = "layers of an image",
		.open = disk_open,
		.close = disk_close,
		.set_blksize = disk_set_block_size,
		.read_blk = disk_read_short,
		.write_blk = disk_write_short,
		.flush = disk_flush,
		.read_blk64 = disk_read,
		.write_blk64 = disk_write,
	};
	return m;
}

int image_ext4_error(errcode_t code, const char *what, struct err *err)
{
	int e = code == EXT2_ET_NO_MEMORY ? -ENOMEM : code > 0 && code < 4096 ? -(int)code : -EINVAL;

	return err_set(err, e, "%s: %s", what, error_message(code));
}

/* The library reads past damage there, and would look for inodes in wrong places. What a journal is still to write may be these
 * very blocks. */
static int check_groups(ext2_filsys fs, struct err *err)
{
	errcode_t e;

	if (ext2fs_has_feature_journal_needs_recovery(fs->super))
		return 0;
	for (dgrp_t g = 0; g < fs->group_desc_count; g++)
		if (!ext2fs_group_desc_csum_verify(fs, g))
			return err_set(err, -EINVAL, "its file system: the descriptor of block group %u is damaged (checksum)", g);
	e = ext2fs_check_desc(fs);
	return e != 0 ? image_ext4_error(e, "its file system", err) : 0;
}

static int open_fs(const struct image *image, struct image_ext4 *e, errcode_t *ret_code, struct err *err)
{
	char name[24];
	int r = image_disk_open(image, &e->disk, err);

	if (r < 0)
		return r;
	initialize_ext2_error_table();
	snprintf(name, sizeof(name), "%" PRIxPTR, (uintptr_t)e);
	e->manager = malloc(sizeof(*e->manager));
	*ret_code = e->manager == NULL ? EXT2_ET_NO_MEMORY : ext2fs_open(name, EXT2_FLAG_64BITS, 0, 0, manager(e->manager), &e->fs);
	if (*ret_code == 0)
		return check_groups(e->fs, err);
	e->fs = NULL;
	return image_ext4_error(*ret_code, "its file system", err);
}

int image_ext4_open(const struct image *image, struct image_ext4 *ret, struct err *err)
{
	const char *label = image->name[0] != '\0' ? image->name : image->path;
	errcode_t code = 0;
	int r;

	*ret = IMAGE_EXT4_NONE;
	if (image->format != IMAGE_FORMAT_EXT4)
		return err_set(err, -ENOTSUP, "image '%s' is %s: only files of an ext4 can be looked at", label,
			       image_format_name(image->format));
	r = open_fs(image, ret, &code, err);
	if (r < 0) {
		image_ext4_close(ret);
		err_prefix(err, "image '%s': ", label);
	}
	return r;
}

int image_ext4_check(const struct image *image, struct err *err)
{
	struct image_ext4 e = IMAGE_EXT4_NONE;
	errcode_t code = 0;
	int r = open_fs(image, &e, &code, err);

	image_ext4_close(&e);
	return code == EXT2_ET_UNSUPP_FEATURE || code == EXT2_ET_RO_UNSUPP_FEATURE ? 0 : r;
}

void image_ext4_close(struct image_ext4 *e)
{
	if (e->fs != NULL)
		ext2fs_free(e->fs);
	free(e->manager);
	image_disk_close(&e->disk);
	*e = IMAGE_EXT4_NONE;
}
