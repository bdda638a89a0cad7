/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disks' part of taking a snapshot: see snapshot_layers.h.
 *
 * A VM's stack is what its record names, then the generations it has written since (vm_disks.h), the last of which is
 * the top. The record is behind when a snapshot was taken and its command killed: so generations are always looked for.
 *
 * Which of them is the top is sure only when the monitor has answered: one that a killed command asked may be at it still,
 * with the next pair open already. So nothing is written into a pair before that. By then the monitor has also written
 * all that the logs of older pairs lacked.
 *
 * A layer that is remote goes into a snapshot as a file if all of it is here by now (under a name in the VM's directory, or in the
 * cache of blobs, where it is held until it is linked), else as what it is: an address, a digest and a size. What had arrived of it is
 * found in the cache again.
 */
#include "host/snapshot_layers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "host/blob_cache.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { LAYERS_RESERVE = 8 };

/* ---- finding ---- */

static int add(struct snapshot_layers_disk *d, int fd, const char *file, const char *digest, struct err *err)
{
	_cleanup_close_ int own = fd;
	struct snapshot_layers_one *more = realloc(d->layer, (d->nlayers + 1) * sizeof(*more));

	if (!more)
		return err_set(err, -ENOMEM, "out of memory");
	d->layer = more;
	if (d->nlayers == SNAPSHOT_LAYERS_MAX)
		return err_set(err, -E2BIG, "disk %zu has %zu layers, as many as a snapshot can have: make them one in the "
			       "snapshot that it was restored from ('coffer snapshot flatten NAME'), and go on from there", d->number,
			       d->nlayers);
	struct snapshot_layers_one *l = &d->layer[d->nlayers++];

	*l = (struct snapshot_layers_one){ .fd = TAKE_FD(own), .hold_fd = -1 };
	snprintf(l->file, sizeof(l->file), "%s", file);
	snprintf(l->digest, sizeof(l->digest), "%s", digest);
	return 0;
}

/* The cache's file if it is whole: 1 with a path, the file and what holds it; 0: it is not. */
static int open_blob(const struct snapshot_layer *l, char path[PATH_MAX], int *ret_fd, int *ret_hold, struct err *err)
{
	struct blob_cache cache;
	struct blob blob = BLOB_NONE;
	char link[64];
	ssize_t n;
	int r = blob_cache_open(&cache, err);

	if (r < 0)
		return r;
	r = blob_cache_get(&cache, l->sha256, l->size, &blob, err);
	if (r == 0 && blob_is_verified(&blob)) {
		r = blob_cache_readers(&cache, l->sha256, ret_fd, ret_hold, err);
		snprintf(link, sizeof(link), "/proc/self/fd/%d", *ret_fd);
		n = r < 0 ? 0 : readlink(link, path, PATH_MAX - 1);
		path[MAX(n, (ssize_t)0)] = '\0';
		r = r < 0 ? r : 1;
	}
	blob_close(&blob);
	blob_cache_close(&cache);
	return r;
}

static int add_blob(struct snapshot_layers_disk *d, const struct snapshot_layer *l, struct err *err)
{
	_cleanup_close_ int fd = -1, hold = -1;
	char path[PATH_MAX] = "";
	int r = open_blob(l, path, &fd, &hold, err);

	if (r >= 0)
		r = add(d, TAKE_FD(fd), path, l->digest, err);
	if (r < 0)
		return err_prefix(err, "remote layer %zu of disk %zu: ", d->nlayers, d->number), r;
	d->layer[d->nlayers - 1].hold_fd = TAKE_FD(hold);
	return 0;
}

/* A path into the cache says nothing: the blob may have been removed, and begun anew. */
static int add_recorded(struct snapshot_layers_disk *d, int dir_fd, const struct snapshot_layer *l, struct err *err)
{
	bool here = *l->file && !(l->url && l->file[0] == '/');
	int fd = here ? openat(dir_fd, l->file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1, r;

	if (here && fd < 0)
		return err_errno(err, -errno, "layer '%s' of disk %zu", l->file, d->number);
	r = here ? add(d, fd, l->file, l->digest, err) : add_blob(d, l, err);
	if (r == 0)
		d->layer[d->nlayers - 1].blob = *l->sha256 ? l : NULL;
	return r;
}

static const struct snapshot_layer *find(const struct snapshot_disk *d, const char *file)
{
	for (size_t i = 0; i < d->nlayers; i++)
		if (!strcmp(d->layer[i].file, file))
			return &d->layer[i];
	return NULL;
}

/* One whose sealing failed then (no space) and that has been a layer since: now that the monitor is done. */
static int seal_late(int dir_fd, size_t number, unsigned generation, struct err *err)
{
	char data[40], index[40];
	struct lsmt_info info;

	vm_disk_pair_names(number, generation, data, index);
	_cleanup_close_ int fd = openat(dir_fd, data, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int log = openat(dir_fd, index, O_RDWR | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "layer '%s'", data);
	if (log < 0 || lsmt_inspect(fd, data, &info, NULL) == 0)
		return 0;
	return lsmt_seal_pair(fd, log, data, err);
}

static int add_generations(struct snapshot_layers_disk *d, int dir_fd, const struct snapshot_disk *recorded,
			   struct err *err)
{
	unsigned generation[VM_DISK_GENERATIONS_MAX];
	int n = vm_disk_generations(dir_fd, d->number, generation, err), r = 0;

	if (n < 0)
		return n;
	if (n == 0)
		return err_set(err, -ENOENT, "the writable layer of disk %zu is not in the VM's directory", d->number);
	d->next = generation[n - 1] + 1;
	for (int i = 0; i < n && r == 0; i++) {
		char data[40], index[40];

		vm_disk_pair_names(d->number, generation[i], data, index);
		if (find(recorded, data))
			continue;
		int fd = openat(dir_fd, data, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

		r = fd < 0 ? err_errno(err, -errno, "layer '%s'", data) : add(d, fd, data, "", err);
		if (r == 0) {
			d->layer[d->nlayers - 1].late = i < n - 1;
			d->layer[d->nlayers - 1].generation = generation[i];
		}
	}
	return r;
}

/* The last few are for the one that ends the VM, so that there is a way on. */
static int check_number(const struct snapshot_layers_disk *d, const char *id, bool last, struct err *err)
{
	if (last || d->nlayers <= SNAPSHOT_LAYERS_MAX - LAYERS_RESERVE)
		return 0;
	return err_set(err, -E2BIG, "disk %zu has %zu layers, and each snapshot adds one; this makes them one: "
		       "'coffer snapshot %s --stop --to NAME', 'coffer snapshot flatten NAME', 'coffer restore NAME --name %s'",
		       d->number, d->nlayers, id, id);
}

int snapshot_layers_open(struct snapshot_layers *l, struct vmdir *dir, const struct snapshot_manifest *record, bool last,
			 struct err *err)
{
	int r = 0;

	l->dir = dir;
	for (size_t i = 0; i < record->ndisks && r == 0; i++) {
		const struct snapshot_disk *have = &record->disk[i];

		if (have->kind != SNAPSHOT_DISK_LAYERS)
			continue;
		struct snapshot_layers_disk *d = &l->disk[l->n++];

		*d = (struct snapshot_layers_disk){ .number = i, .size = have->size, .new_fd = { -1, -1 } };
		if (dir->disk_dir_fd < 0)
			r = vmdir_open_disks(dir, err);
		for (size_t k = 0; k < have->nlayers && r == 0; k++)
			r = add_recorded(d, dir->disk_dir_fd, &have->layer[k], err);
		if (r == 0)
			r = add_generations(d, dir->disk_dir_fd, have, err);
		if (r == 0)
			r = check_number(d, dir->id, last, err);
	}
	return r;
}

/* ---- into the draft ---- */

static void layer_name(const struct snapshot_layers_disk *d, size_t k, char out[SNAPSHOT_FILE_NAME_MAX])
{
	snprintf(out, SNAPSHOT_FILE_NAME_MAX, "disk%zu-%zu.lsmt", d->number, k);
}

static int link_layer(const struct snapshot_layers *l, const struct snapshot_layers_disk *d, size_t k,
		      const struct snapshot_draft *draft, struct err *err)
{
	struct snapshot_layers_one *one = &d->layer[k];
	char name[SNAPSHOT_FILE_NAME_MAX], path[3 * PATH_MAX];

	if (one->fd < 0)
		return 0;
	layer_name(d, k, name);
	if (one->file[0] == '/')
		snprintf(path, sizeof(path), "%s", one->file);
	else
		snprintf(path, sizeof(path), "%s/%s/%s", l->dir->disks.path, l->dir->id, one->file);
	int r = vm_disk_link(one->fd, path, draft->fd, name, err);

	one->linked = r > 0;
	return r < 0 ? r : 0;
}

int snapshot_layers_prepare(struct snapshot_layers *l, const struct snapshot_draft *draft, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < l->n && r == 0; i++) {
		struct snapshot_layers_disk *d = &l->disk[i];

		for (size_t k = 0; k < d->nlayers && r == 0; k++)
			r = link_layer(l, d, k, draft, err);
		if (r == 0)
			r = vm_disk_create_pair(l->dir->disk_dir_fd, d->number, d->next, d->size, d->new_fd, err);
	}
	return r;
}

size_t snapshot_layers_new_pairs(const struct snapshot_layers *l, int *ret_fd)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		ret_fd[n++] = l->disk[i].new_fd[0];
		ret_fd[n++] = l->disk[i].new_fd[1];
	}
	return n;
}

int snapshot_layers_seal_late(const struct snapshot_layers *l, const struct snapshot_layers_disk *d, size_t k, struct err *err)
{
	return d->layer[k].late ? seal_late(l->dir->disk_dir_fd, d->number, d->layer[k].generation, err) : 0;
}

static int describe_remote(const struct snapshot_layer *from, struct snapshot_layer *to, struct err *err)
{
	int r = snapshot_layer_copy(from, "", to);

	to->index_hash = 0;
	to->digest[0] = '\0';
	return r < 0 ? err_set(err, r, "out of memory") : 0;
}

static int collect_layer(const struct snapshot_layers_disk *d, size_t k, int dir_fd, const struct snapshot_draft *draft,
			 struct snapshot_layer *to, struct err *err)
{
	const struct snapshot_layers_one *one = &d->layer[k];
	char name[SNAPSHOT_FILE_NAME_MAX];
	struct lsmt_info info;
	int r = one->late ? seal_late(dir_fd, d->number, one->generation, err) : 0;

	if (r < 0)
		return r;
	if (one->fd < 0)
		return describe_remote(one->blob, to, err);
	layer_name(d, k, name);
	to->file = strdup(name);
	if (!to->file)
		return err_set(err, -ENOMEM, "out of memory");
	if (!one->linked) {
		int copy = vm_disk_copy(one->fd, draft->fd, name, err);

		if (copy < 0)
			return copy;
		fd_close(copy);
	}
	r = lsmt_inspect(one->fd, one->file, &info, err);
	if (r < 0)
		return r;
	to->size = info.file_size;
	to->index_hash = info.index_hash;
	snprintf(to->digest, sizeof(to->digest), "%s", one->digest);
	if (one->blob)
		snprintf(to->sha256, sizeof(to->sha256), "%s", one->blob->sha256);
	return to->digest[0] ? 0 : snapshot_digest_file(one->fd, one->file, to->digest, err);
}

int snapshot_layers_collect(struct snapshot_layers *l, const struct snapshot_draft *draft, struct snapshot_manifest *m,
			    uint64_t *ret_bytes, struct err *err)
{
	int r = 0;

	*ret_bytes = 0;
	for (size_t i = 0; i < l->n && r == 0; i++) {
		const struct snapshot_layers_disk *d = &l->disk[i];
		struct snapshot_disk *to = &m->disk[d->number], old = *to;

		/* The old ones may be the record that `l` looks into. */
		to->nlayers = 0;
		to->layer = calloc(d->nlayers, sizeof(*to->layer));
		if (!to->layer)
			r = err_set(err, -ENOMEM, "out of memory");
		for (size_t k = 0; to->layer && k < d->nlayers && r == 0; k++) {
			to->nlayers = k + 1;
			r = collect_layer(d, k, l->dir->disk_dir_fd, draft, &to->layer[k], err);
			*ret_bytes += d->layer[k].fd >= 0 ? to->layer[k].size : 0;
		}
		for (size_t k = 0; k < old.nlayers; k++)
			snapshot_layer_finish(&old.layer[k]);
		free(old.layer);
	}
	return r;
}

void snapshot_layers_close(struct snapshot_layers *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct snapshot_layers_disk *d = &l->disk[i];
		unsigned generation[VM_DISK_GENERATIONS_MAX];
		bool made = d->new_fd[0] >= 0;

		for (size_t k = 0; k < d->nlayers; k++) {
			fd_close(d->layer[k].fd);
			fd_close(d->layer[k].hold_fd);
		}
		free(d->layer);
		fd_close(d->new_fd[0]);
		fd_close(d->new_fd[1]);
		if (made)
			vm_disk_generations(l->dir->disk_dir_fd, d->number, generation, NULL);
	}
	*l = SNAPSHOT_LAYERS_NONE;
}

/* ---- the record ---- */

static int remember_disk(struct snapshot_disk *d, const struct snapshot_disk *taken, size_t number, int dir_fd,
			 struct err *err)
{
	unsigned generation[VM_DISK_GENERATIONS_MAX];
	int n = vm_disk_generations(dir_fd, number, generation, err);
	struct snapshot_layer *more = n < 0 ? NULL : realloc(d->layer, (taken->nlayers + 1) * sizeof(*more));

	if (n < 0)
		return n;
	if (!more || d->nlayers > taken->nlayers)
		return err_set(err, -EINVAL, "the record of disk %zu does not fit", number);
	d->layer = more;
	for (size_t k = 0; k < d->nlayers; k++)
		if (*taken->layer[k].digest)
			snprintf(d->layer[k].digest, sizeof(d->layer[k].digest), "%s", taken->layer[k].digest);
	for (int i = 0; i < n && d->nlayers < taken->nlayers; i++) {
		char data[40], index[40];

		vm_disk_pair_names(number, generation[i], data, index);
		if (find(d, data))
			continue;
		struct snapshot_layer *l = &d->layer[d->nlayers];

		d->nlayers++;
		if (snapshot_layer_copy(&taken->layer[d->nlayers - 1], data, l) < 0)
			return err_set(err, -ENOMEM, "out of memory");
		unlinkat(dir_fd, index, 0); /* sealed: its index is in it */
	}
	return 0;
}

int snapshot_layers_remember(struct snapshot_manifest *record, const struct snapshot_manifest *taken,
			     const struct vmdir *dir, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < record->ndisks && i < taken->ndisks && r == 0; i++)
		if (record->disk[i].kind == SNAPSHOT_DISK_LAYERS)
			r = remember_disk(&record->disk[i], &taken->disk[i], i, dir->disk_dir_fd, err);
	return r;
}
