/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an image is made from: an archive, and what it is said to be: a manifest.
 *
 * Input: the first byte chooses. An archive becomes a tree, whose counts then have to agree with each other: every entry
 * is in its directory, names are possible file names, link counts and numbers of subdirectories are those of
 * the entries. A manifest that is accepted has to survive being written and read again.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/ext4_write.h"
#include "host/fstree_source.h"
#include "host/image_store.h"
#include "lib/fd.h"
#include "tests/fuzz/fuzz.h"

static void check_dir(const struct fstree *t, struct fstree_inode *dir)
{
	uint32_t subdirs = 0;

	for (struct fstree_dirent *d = dir->dir.first; d != NULL; d = d->next) {
		FUZZ_REQUIRE(d->dir == dir && d->name_len > 0 && d->name_len <= FSTREE_NAME_MAX);
		FUZZ_REQUIRE(strlen(d->name) == d->name_len && strchr(d->name, '/') == NULL);
		FUZZ_REQUIRE(strcmp(d->name, ".") != 0 && strcmp(d->name, "..") != 0);
		FUZZ_REQUIRE(d->inode->nlink > 0);
		d->inode->number++; /* names seen */
		if (S_ISDIR(d->inode->mode)) {
			FUZZ_REQUIRE(d->inode->dir.parent == dir && d->inode->nlink == 1);
			subdirs++;
		}
	}
	FUZZ_REQUIRE(subdirs == dir->dir.subdirs);
	FUZZ_REQUIRE(t->inodes <= FSTREE_INODES_MAX);
}

static void archive(const uint8_t *data, size_t size)
{
	struct fstree t;
	int fd = memfd_create("archive", MFD_CLOEXEC), r;

	if (fd < 0 || fd_write_full(fd, data, size) < 0 || fstree_init(&t, NULL) < 0)
		abort();
	r = fstree_read_tar(&t, fd, NULL, NULL);
	if (r == 0)
		r = fstree_name_acls(&t, &(struct fstree_source){ .fd = fd }, NULL);
	t.root->number = 1;
	for (struct fstree_inode *i = t.root; i != NULL; i = i->next) {
		if (S_ISDIR(i->mode) && i->nlink > 0)
			check_dir(&t, i);
		/* An archive that was taken has all the contents that it says. */
		FUZZ_REQUIRE(r < 0 || i->nlink == 0 || !S_ISREG(i->mode) || i->file.offset + i->size <= size);
	}
	for (struct fstree_inode *i = t.root; i != NULL; i = i->next)
		FUZZ_REQUIRE(i->number == i->nlink);
	FUZZ_REQUIRE(ext4_size_of(&t) % EXT4_BLOCK == 0 || ext4_size_of(&t) == UINT64_MAX);
	fstree_finish(&t);
	close(fd);
}

static void manifest(const uint8_t *data, size_t size)
{
	struct image image, again;
	char *text;

	if (image_manifest_parse((const char *)data, size, &image, NULL) < 0)
		return;
	text = image_manifest_format(&image);
	FUZZ_REQUIRE(text != NULL);
	FUZZ_REQUIRE(image_manifest_parse(text, strlen(text), &again, NULL) == 0);
	FUZZ_REQUIRE(again.size == image.size && again.format == image.format && again.created == image.created);
	FUZZ_REQUIRE(strcmp(again.id, image.id) == 0 && strcmp(again.source, image.source) == 0);
	FUZZ_REQUIRE(image.nlayers >= 1 && image.nlayers <= IMAGE_LAYERS_MAX && again.nlayers == image.nlayers);
	for (size_t k = 0; k < image.nlayers; k++) {
		const struct image_layer *a = &image.layer[k], *b = &again.layer[k];

		FUZZ_REQUIRE((a->file == NULL) != (a->url == NULL) && (a->file == NULL || strchr(a->file, '/') == NULL));
		FUZZ_REQUIRE(!a->raw || (k == 0 && a->bytes <= image.size));
		FUZZ_REQUIRE(a->raw == b->raw && a->bytes == b->bytes && a->index_hash == b->index_hash &&
			     a->created == b->created && strcmp(a->sha256, b->sha256) == 0 && strcmp(a->xxh, b->xxh) == 0);
	}
	free(text);
	image_finish(&image);
	image_finish(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	if (data[0] == 'm')
		manifest(data + 1, size - 1);
	else
		archive(data + 1, size - 1);
	return 0;
}
