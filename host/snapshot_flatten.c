/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot and its parents made one, with one layer for each disk: see snapshot_flatten.h.
 *
 * The id names contents: it stays, and so the state (which has it inside) and diffs that name it as their parent are
 * still right. Layers of disks need no parent, but their number is limited and each snapshot adds one.
 *
 * Everything is made in a draft, which takes the snapshot's place by one rename. Who has files of the old one open, or
 * links to them (a VM that was restored from it, a pool), keeps them. What is not changed is linked.
 *
 * Trust: frames of memory are compared with their checksums as they are read, layers before they are merged: damage
 * does not get a good checksum here.
 */
#include "host/snapshot_flatten.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "devices/backend/lsmt.h"
#include "host/image.h"
#include "host/snapshot_take.h"
#include "host/vm_disks.h"
#include "lib/fd.h"
#include "lib/util.h"

static int take_over(const struct snapshot *s, const char *name, int fd, const struct snapshot_draft *d,
		     struct err *err)
{
	char path[PATH_MAX + SNAPSHOT_FILE_NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s/%s", s->path, name);
	int r = vm_disk_link(fd, path, d->fd, name, err);

	if (r != 0)
		return r < 0 ? r : 0;
	r = vm_disk_copy(fd, d->fd, name, err);
	fd_close(r);
	return r < 0 ? r : 0;
}

/* ---- disks ---- */

/* Layers that stay as they are, the lowest ones: those of an image that is here, which share their file with it; and
 * whatever is up to one that is not plain LSMT, or remote (without a descriptor). */
static size_t lowest_to_merge(const struct snapshot_disk *d, const struct image *image, const int *fd)
{
	size_t n = 0;

	while (n < d->nlayers && n < image->nlayers && *d->layer[n].digest && !strcmp(d->layer[n].digest, image->layer[n].xxh))
		n++;
	for (size_t k = n; k < d->nlayers; k++) {
		char magic[4];

		if (fd[k] < 0 || fd_pread_full(fd[k], magic, sizeof(magic), 0) != sizeof(magic) || memcmp(magic, "LSMT", sizeof(magic)) != 0)
			n = k + 1;
	}
	return n;
}

/* What gets a checksum anew is compared with the old one first. */
static int check_digest(const struct snapshot *s, const struct snapshot_layer *l, int fd, struct err *err)
{
	char digest[SNAPSHOT_DIGEST_LEN + 1];
	int r = snapshot_digest_file(fd, l->file, digest, err);

	if (r == 0 && strcmp(digest, l->digest) != 0)
		r = err_set(err, -EINVAL, "'%s' is damaged: its checksum is %s, not %s", l->file, digest, l->digest);
	if (r < 0)
		err_prefix(err, "snapshot '%s': ", s->name);
	return r;
}

/* Layers from `first` on become one, which takes the place of the first. */
static int merge_layers(const struct snapshot *s, struct snapshot_disk *to, size_t first, const int *fd,
			const struct snapshot_draft *d, struct err *err)
{
	const char *name[SNAPSHOT_LAYERS_MAX];
	size_t n = to->nlayers - first;
	struct snapshot_layer *l = &to->layer[first];
	struct lsmt_info info = { 0 };
	int r = 0;

	for (size_t k = 0; k < n && r == 0; k++) {
		name[k] = to->layer[first + k].file;
		r = check_digest(s, &to->layer[first + k], fd[first + k], err);
	}
	_cleanup_close_ int out = r < 0 ? -1 : snapshot_draft_create(d, l->file, err);

	if (r == 0)
		r = MIN(out, 0);
	if (r == 0)
		r = lsmt_merge(fd + first, name, n, first > 0 || *to->path, out, err);
	if (r == 0)
		r = lsmt_inspect(out, l->file, &info, err);
	if (r == 0)
		r = snapshot_digest_file(out, l->file, l->digest, err);
	if (r == 0 && fchmod(out, 0400) < 0)
		r = err_errno(err, -errno, "chmod '%s'", l->file);
	if (r < 0)
		return r;
	l->size = info.file_size;
	l->index_hash = info.index_hash;
	l->sha256[0] = '\0'; /* it is no blob of a registry any more */
	for (size_t k = first + 1; k < to->nlayers; k++)
		snapshot_layer_finish(&to->layer[k]);
	to->nlayers = first + 1;
	return 0;
}

static int flatten_disk(const struct snapshot *s, struct snapshot_disk *to, const struct image *image,
			const struct snapshot_draft *d, struct err *err)
{
	int fd[SNAPSHOT_LAYERS_MAX], r = 0;
	size_t open = 0;

	for (; open < to->nlayers && r == 0; open++) {
		bool remote = snapshot_layer_is_remote(&to->layer[open]);

		fd[open] = remote ? -1 : snapshot_open_file(s, to->layer[open].file, to->layer[open].size, err);
		r = remote ? 0 : MIN(fd[open], 0);
	}
	size_t first = r < 0 ? 0 : lowest_to_merge(to, image, fd);

	if (r == 0 && to->nlayers - first < 2)
		first = to->nlayers;
	for (size_t k = 0; k < first && r == 0; k++)
		r = fd[k] < 0 ? 0 : take_over(s, to->layer[k].file, fd[k], d, err);
	if (r == 0 && first < to->nlayers)
		r = merge_layers(s, to, first, fd, d, err);
	while (open > 0)
		fd_close(fd[--open]);
	return r;
}

static int flatten_disks(const struct snapshot *s, struct snapshot_manifest *m, const struct snapshot_draft *d,
			 struct err *err)
{
	struct image image = { 0 };
	int r = 0;

	if (m->image && *m->image && !strchr(m->image, '/'))
		image_resolve(m->image, &image, NULL);
	for (size_t i = 0; i < m->ndisks && r == 0; i++)
		r = flatten_disk(s, &m->disk[i], &image, d, err);
	image_finish(&image);
	return r;
}

/* ---- memory ---- */

static int id_of(const char *hex, struct ram_id *ret)
{
	for (int i = 0; i < RAM_ID_SIZE; i++) {
		const char *digits = hex + 2 * (size_t)i;

		if (!isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
			return -EINVAL;
		ret->b[i] = (uint8_t)strtoul((char[]){ digits[0], digits[1], 0 }, NULL, 16);
	}
	return 0;
}

static int write_memory(const struct restore_source *src, const struct snapshot_draft *d, uint64_t level,
			struct snapshot_manifest *m, struct err *err)
{
	struct ram_source chain[RAM_CHAIN_MAX];
	struct ram_image *image;
	struct ram_id id;
	struct stat st;
	_cleanup_close_ int data = snapshot_draft_create(d, SNAPSHOT_RAM, err);
	_cleanup_close_ int index = data < 0 ? -1 : snapshot_draft_create(d, SNAPSHOT_RAM_INDEX, err);

	if (index < 0 || id_of(m->id, &id) < 0)
		return -EINVAL;
	for (unsigned i = 0; i < src->nchain; i++)
		chain[i] = (struct ram_source){ src->ram_fd[i], src->index_fd[i] };
	int r = ram_image_open(chain, src->nchain, m->memory, &image, err);

	if (r < 0)
		return r;
	r = ram_image_flatten(image, data, index, (int)level, &id, err);
	ram_image_close(image);
	if (r == 0)
		r = snapshot_hash_file(index, SNAPSHOT_RAM_INDEX, &m->ram_index.size, m->ram_index.hash, err);
	if (r == 0 && (fstat(data, &st) < 0 || fchmod(data, 0400) < 0 || fchmod(index, 0400) < 0))
		r = err_errno(err, -errno, SNAPSHOT_RAM);
	if (r == 0)
		m->ram.size = (uint64_t)st.st_size;
	return r;
}

/* Nothing to be merged and no other level: the files that are there. */
static int take_memory(const struct restore_source *src, const struct snapshot_draft *d, struct err *err)
{
	int r = take_over(&src->snap, SNAPSHOT_RAM, src->ram_fd[0], d, err);

	return r < 0 ? r : take_over(&src->snap, SNAPSHOT_RAM_INDEX, src->index_fd[0], d, err);
}

int snapshot_flatten(const struct restore_source *src, const char *to, uint64_t level, struct progress *progress,
		     struct err *err)
{
	struct snapshot_draft d;
	struct snapshot_manifest m = { 0 };
	bool replace = !to;
	int r = snapshot_draft_begin(to ? to : src->snap.path, replace, &d, err);

	if (r < 0)
		return r;
	r = snapshot_manifest_copy(&src->snap.m, &m);
	if (r < 0)
		err_set(err, r, "out of memory");
	if (r == 0) {
		m.parent_id[0] = 0;
		m.parent_path[0] = 0;
		progress_stage(progress, "writing memory");
		r = src->nchain == 1 && m.level == level ? take_memory(src, &d, err) : write_memory(src, &d, level, &m, err);
		m.level = level;
	}
	if (r == 0)
		r = take_over(&src->snap, SNAPSHOT_STATE, src->state_fd, &d, err);
	if (r == 0) {
		progress_stage(progress, "writing disks");
		r = flatten_disks(&src->snap, &m, &d, err);
	}
	if (r == 0) {
		progress_stage(progress, "writing to disk");
		r = snapshot_draft_publish(&d, &m, replace, err);
	}
	snapshot_draft_end(&d);
	snapshot_manifest_finish(&m);
	if (r < 0)
		err_prefix(err, "flatten '%s': ", src->snap.name);
	return r;
}
