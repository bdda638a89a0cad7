/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root disk images: what they are, and how a VM gets at one.
 *
 * An image is a directory in the store ($XDG_DATA_HOME or ~/.local/share, as root /var/lib, then coffer/images/NAME)
 * with rootfs.img, a file system without a partition table, and manifest.json, which says what it is. It appears
 * by one rename when both are whole and on disk, and is never written again: any number of VMs share it read-only.
 *
 * A VM holds a shared flock on rootfs.img for as long as it uses it (image_open takes it); removing an image takes an
 * exclusive one first.
 */
#pragma once
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum {
	IMAGE_NAME_MAX = 64,
	IMAGE_SOURCE_MAX = 512,
	IMAGE_SHA256_LEN = 64,
	IMAGE_ENV_MAX = 64,            /* entries of the default environment and of the default command */
	IMAGE_MANIFEST_MAX = 256 << 10, /* bytes of manifest.json */
};

enum image_format {
	IMAGE_FORMAT_UNKNOWN, /* a disk without a file system that Coffer knows; maybe with partitions */
	IMAGE_FORMAT_EXT4,
	IMAGE_FORMAT_EROFS,
	IMAGE_FORMAT_SQUASHFS,
};

struct image {
	char name[IMAGE_NAME_MAX + 1]; /* empty when it was given as a path */
	char path[PATH_MAX];           /* of the disk file, absolute */
	enum image_format format;
	uint64_t size;                 /* bytes of the disk */

	/* From the manifest; empty for a path. */
	char source[IMAGE_SOURCE_MAX + 1];
	char sha256[IMAGE_SHA256_LEN + 1];
	int64_t created;                   /* seconds since 1970 */
	char *user;                        /* default "USER[:GROUP]", or NULL */
	char *cwd;                         /* default directory, or NULL */
	char **env;                        /* default environment, NULL-terminated, or NULL */
	char **cmd;                        /* default command, NULL-terminated, or NULL */
};

/* NAME of an image in the store, or, when it has a '/' in it, the PATH of a raw disk file. Fills *ret, to be released
 * by image_finish; on failure *ret is zeroed and the reason names what to do. */
int image_resolve(const char *name_or_path, struct image *ret, struct err *err);
void image_finish(struct image *image); /* NULL and zeroed ones too */

/* Open the disk read-only with a shared lock, for as long as the descriptor (or a copy of it) is open.
 * Returns the descriptor; -EBUSY when it is being removed. */
int image_open(const struct image *image, struct err *err);

const char *image_format_name(enum image_format format); /* "ext4", ...; "raw" when unknown */

/* [a-z0-9][a-z0-9._-]{0,63}: 0 or -EINVAL with a text. */
int image_name_check(const char *name, struct err *err);
