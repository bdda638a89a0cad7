/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot and its parents, opened and checked: see restore.h.
 *
 * What a restore checks by itself: manifests, names and sizes of all files, the index of every layer, and whatever lies
 * outside (images, bases) by size and time. State, memory and its index have checksums that the monitor checks as it
 * reads them. `verify` reads everything here.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "host/restore.h"
#include "host/snapshot_host.h"
#include "host/vm_disks.h"
#include "lib/fd.h"

/* ---- opening ---- */

static int open_memory(struct restore_source *src, const struct snapshot *s, struct err *err)
{
	unsigned n = src->nchain++;

	src->ram_fd[n] = src->index_fd[n] = -1;
	src->ram_fd[n] = snapshot_open_file(s, SNAPSHOT_RAM, s->m.ram.size, err);
	if (src->ram_fd[n] < 0)
		return src->ram_fd[n];
	src->index_fd[n] = snapshot_open_file(s, SNAPSHOT_RAM_INDEX, s->m.ram_index.size, err);
	src->compressed = s->m.level > 0;
	return src->index_fd[n] < 0 ? src->index_fd[n] : 0;
}

static int open_parents(struct restore_source *src, const struct snapshot *s, struct err *err)
{
	struct snapshot parent;

	if (!s->m.parent_id[0])
		return 0;
	if (src->nchain == RAM_CHAIN_MAX)
		return err_set(err, -EMLINK, "snapshot '%s' has more than %d ancestors, or is its own", src->snap.name,
			       RAM_CHAIN_MAX - 1);
	int r = snapshot_open_parent(s, &parent, err);

	if (r < 0)
		return r;
	if (parent.m.memory != src->snap.m.memory)
		r = err_set(err, -EINVAL,
			    "snapshot '%s' is of a machine with another size of memory than its child '%s'",
					parent.name, s->name);
	if (r == 0)
		r = open_memory(src, &parent, err);
	if (r == 0)
		r = open_parents(src, &parent, err);
	snapshot_close(&parent);
	return r;
}

int restore_source_take(struct snapshot *s, struct restore_source *ret, struct err *err)
{
	struct restore_source *src = calloc(1, sizeof(*src));
	int r;

	if (!src) {
		snapshot_close(s);
		return err_set(err, -ENOMEM, "out of memory");
	}
	src->snap = *s;
	*s = SNAPSHOT_NONE;
	src->state_fd = snapshot_open_file(&src->snap, SNAPSHOT_STATE, src->snap.m.state.size, err);
	r = src->state_fd < 0 ? src->state_fd : open_memory(src, &src->snap, err);
	if (r == 0)
		r = open_parents(src, &src->snap, err);
	if (r < 0)
		restore_source_close(src);
	else
		*ret = *src;
	free(src);
	return r;
}

int restore_source_open(const char *name, struct restore_source *ret, struct err *err)
{
	struct snapshot s;
	int r = snapshot_open(name, &s, err);

	return r < 0 ? r : restore_source_take(&s, ret, err);
}

void restore_source_close(struct restore_source *src)
{
	for (unsigned i = 0; i < src->nchain; i++) {
		fd_close(src->ram_fd[i]);
		fd_close(src->index_fd[i]);
	}
	fd_close(src->state_fd);
	snapshot_close(&src->snap);
	*src = RESTORE_SOURCE_NONE;
}

/* ---- checking ---- */

static int check_outside(const struct snapshot *s, const struct snapshot_disk *d, struct err *err)
{
	const char *path = d->path;
	int64_t mtime;
	uint64_t size;
	int r = 0;

	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && *d->image)
		r = err_set(err, -errno,
			    "snapshot '%s' needs the image '%s', and '%s': %s: build or copy it there again", s->name,
					d->image,
			    path, strerror(errno));
	else if (fd < 0)
		r = err_set(err, -errno, "snapshot '%s' needs the disk '%s': %s: bring it back there", s->name, path,
			    strerror(errno));
	else if (vm_disk_file_facts(fd, &size, &mtime) < 0)
		r = err_set(err, -EINVAL, "snapshot '%s' needs the disk '%s', which is no file and no block device now",
			    s->name, path);
	else if (size != d->path_size || mtime != d->path_mtime_ns)
		r = err_set(err, -ESTALE,
			    "snapshot '%s' needs %s '%s' as it was then; it has been changed since: the guest's file system would not fit",
			    s->name, *d->image ? "the image" : "the disk", *d->image ? d->image : path);
	return r;
}

/* Of a remote layer nothing is here but what the cache may have, whose use checks it: the monitor when it is attached, and a
 * digest when all has arrived. */
static int check_layer(const struct snapshot *s, const struct snapshot_disk *d, const struct snapshot_layer *l,
		       bool whole, struct err *err)
{
	if (snapshot_layer_is_remote(l))
		return 0;
	_cleanup_close_ int fd = snapshot_open_file(s, l->file, l->size, err);
	char digest[SNAPSHOT_DIGEST_LEN + 1];
	struct lsmt_info info;

	if (fd < 0)
		return fd;
	int r = lsmt_inspect(fd, l->file, &info, err);

	if (r == 0 && (info.index_hash != l->index_hash || info.virtual_size > d->size))
		r = err_set(err, -EINVAL, "'%s' is not the layer of the manifest: its index is damaged or another's",
			    l->file);
	if (r == 0 && whole)
		r = snapshot_digest_file(fd, l->file, digest, err);
	if (r == 0 && whole && strcmp(digest, l->digest) != 0)
		r = err_set(err, -EINVAL, "'%s' is damaged: its checksum is %s, not %s", l->file, digest, l->digest);
	if (r < 0)
		err_prefix(err, "snapshot '%s': ", s->name);
	return r;
}

static int check_disks(const struct restore_source *src, bool whole, struct err *err)
{
	const struct snapshot_manifest *m = &src->snap.m;
	int r = 0;

	for (size_t i = 0; i < m->ndisks && r == 0; i++) {
		const struct snapshot_disk *d = &m->disk[i];

		if (*d->path)
			r = check_outside(&src->snap, d, err);
		for (size_t k = 0; k < d->nlayers && r == 0; k++)
			r = check_layer(&src->snap, d, &d->layer[k], whole, err);
	}
	return r;
}

int restore_source_check(const struct restore_source *src, struct err *err)
{
	const struct snapshot_manifest *m = &src->snap.m;
	struct snapshot_cpu cpu;
	const char *kvm;

	snapshot_host_identify(&cpu, &kvm);
	int r = snapshot_host_check(&m->cpu, m->kvm, &cpu, kvm, err);

	if (r < 0) {
		err_prefix(err, "snapshot '%s': ", src->snap.name);
		return r;
	}
	return check_disks(src, false, err);
}

/* ---- verifying ---- */

static int verify_file(const struct snapshot *s, int fd, const char *name, const struct snapshot_file *f,
		       struct err *err)
{
	char hash[SNAPSHOT_HASH_LEN + 1];
	int r = snapshot_hash_file(fd, name, NULL, hash, err);

	if (r == 0 && strcmp(hash, f->hash) != 0)
		r = err_set(err, -EINVAL, "'%s' is damaged: its checksum is %s, not %s", name, hash, f->hash);
	if (r < 0)
		err_prefix(err, "snapshot '%s': ", s->name);
	return r;
}

static void show(void *arg, uint64_t done, uint64_t total)
{
	progress_bytes(arg, done, total, NULL);
}

static int verify_memory(const struct restore_source *src, struct progress *progress, struct err *err)
{
	struct ram_source chain[RAM_CHAIN_MAX];
	struct ram_image *image;

	for (unsigned i = 0; i < src->nchain; i++)
		chain[i] = (struct ram_source){ src->ram_fd[i], src->index_fd[i] };
	int r = ram_image_open(chain, src->nchain, src->snap.m.memory, &image, err);

	if (r == 0) {
		r = ram_image_verify(image, progress ? show : NULL, progress, err);
		ram_image_close(image);
	}
	if (r < 0)
		err_prefix(err, "snapshot '%s': ", src->snap.name);
	return r;
}

int restore_source_verify(const struct restore_source *src, struct progress *progress, struct err *err)
{
	int r = verify_file(&src->snap, src->state_fd, SNAPSHOT_STATE, &src->snap.m.state, err);

	if (r == 0)
		r = verify_file(&src->snap, src->index_fd[0], SNAPSHOT_RAM_INDEX, &src->snap.m.ram_index, err);
	if (r == 0) {
		progress_stage(progress, "verifying memory");
		r = verify_memory(src, progress, err);
	}
	if (r == 0) {
		progress_stage(progress, "verifying disks");
		r = check_disks(src, true, err);
	}
	return r;
}

/* ---- modes ---- */

static bool userfaultfd_works(void)
{
	int fd = ram_lazy_open_uffd(NULL);

	fd_close(fd);
	return fd >= 0;
}

enum restore_mode restore_choose_mode(const struct restore_source *src)
{
	return !src->compressed ? RESTORE_MAP : userfaultfd_works() ? RESTORE_LAZY : RESTORE_EAGER;
}

const char *restore_mode_name(enum restore_mode m)
{
	static const char *const names[] = { "auto", "map", "eager", "lazy" };

	return names[m];
}
