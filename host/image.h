/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Root disk images: what they are, and how a VM gets at one.
 *
 * An image is a directory in the store ($XDG_DATA_HOME or ~/.local/share, as root /var/lib, then coffer/images/NAME): a
 * manifest.json, which says what it is, and its layers, files that are never written again. It appears by one rename when all
 * is whole and on disk. The lowest layer may be a raw file system (erofs, squashfs); all others are sealed LSMT layers, plain
 * or in a ZFile. What two images share are hard links to one file, so nothing counts references: a layer goes when the last
 * image, VM or snapshot that has it goes. A layer that is remote has no file here, but where it comes from.
 *
 * A VM holds a shared flock on manifest.json for as long as it uses the image (image_open takes it); removing an image takes
 * an exclusive one first.
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
	IMAGE_XXH_LEN = 32,
	IMAGE_ENV_MAX = 64,            /* entries of the default environment and of the default command */
	IMAGE_MANIFEST_MAX = 256 << 10, /* bytes of manifest.json */
	IMAGE_LAYERS_MAX = 200,
	IMAGE_MESSAGE_MAX = 1024,
	IMAGE_URL_MAX = 2048,
	IMAGE_FILE_MAX = 128,          /* bytes of a layer file's name */
};

enum image_format {
	IMAGE_FORMAT_UNKNOWN, /* a disk without a file system that Coffer knows; maybe with partitions */
	IMAGE_FORMAT_EXT4,
	IMAGE_FORMAT_EROFS,
	IMAGE_FORMAT_SQUASHFS,
};

struct image_layer {
	bool raw;                          /* a disk as it is; only the lowest */
	char *file;                        /* name in the image's directory; NULL: remote */
	char *url;                         /* of a remote one's blob, else NULL */
	uint64_t bytes;                    /* of the file or blob */
	char sha256[IMAGE_SHA256_LEN + 1]; /* of it */
	char xxh[IMAGE_XXH_LEN + 1];       /* XXH3-128 of it, what snapshots note of layers; "": not known (remote) */
	uint64_t index_hash;               /* struct lsmt_info; 0: raw or remote */
	int64_t created;                   /* seconds since 1970 */
	char *message;                     /* what `coffer pack --message` said, or NULL */
};

struct image {
	char name[IMAGE_NAME_MAX + 1]; /* empty when it was given as a path */
	char path[PATH_MAX];           /* absolute: the image's directory, or the disk file when it was given as a path */
	enum image_format format;
	uint64_t size;                 /* bytes of the disk that the layers are */
	struct image_layer *layer;     /* lowest first; none for a path: the file itself is the disk */
	size_t nlayers;

	/* From the manifest; empty for a path. */
	char source[IMAGE_SOURCE_MAX + 1];
	char id[IMAGE_SHA256_LEN + 1];     /* SHA-256 of the layers' SHA-256 (32 bytes each), lowest first */
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

/* Hold the image: a descriptor of its manifest.json with a shared lock, or for a path one of the disk file, for as
 * long as that (or a copy of it) is open. -EBUSY when it is being removed. */
int image_open(const struct image *image, struct err *err);

/* The file of layer k of an image of the store, for reading; its size is what the manifest says. *ret_path (NULL: not
 * wanted, else PATH_MAX bytes) is where it is, for linking. Of a remote layer it is the cache's, when all of it is there and verified;
 * -EREMOTE when not. */
int image_layer_open(const struct image *image, size_t k, char *ret_path, struct err *err);
void image_layer_finish(struct image_layer *layer);

/* Which file system a disk has, by the magic numbers in its first IMAGE_SNIFF bytes. */
enum { IMAGE_SNIFF = 2048 };
enum image_format image_format_sniff(const uint8_t *block);
/* -EINVAL when that file system says it is larger than `size` bytes. */
int image_format_check(const uint8_t *block, uint64_t size, struct err *err);
const char *image_format_name(enum image_format format); /* "ext4", ...; "raw" when unknown */

/* -ENOENT, with the line that every command has for it. */
int image_missing(const char *name, struct err *err);

/* http:// or https://, and nothing in it but printable ASCII. */
bool image_url_is_valid(const char *s);

/* [a-z0-9][a-z0-9._-]{0,63}: 0 or -EINVAL with a text. */
int image_name_check(const char *name, struct err *err);
