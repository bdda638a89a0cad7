/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot and its parents made one: see snapshot_flatten.h.
 *
 * The id names contents: it stays, and so the state (which has it inside) and diffs that name it as their parent are
 * still right.
 */
#include "host/snapshot_flatten.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/snapshot_take.h"
#include "host/vm_disks.h"
#include "lib/fd.h"

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

static int take_layers(const struct snapshot *s, const struct snapshot_draft *d, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < s->m.ndisks; i++)
		for (size_t k = 0; k < s->m.disk[i].nlayers && r == 0; k++) {
			const struct snapshot_layer *l = &s->m.disk[i].layer[k];
			_cleanup_close_ int fd = snapshot_open_file(s, l->file, l->size, err);

			r = fd < 0 ? fd : take_over(s, l->file, fd, d, err);
		}
	return r;
}

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
		m.level = level;
		progress_stage(progress, "writing memory");
		r = write_memory(src, &d, level, &m, err);
	}
	if (r == 0)
		r = take_over(&src->snap, SNAPSHOT_STATE, src->state_fd, &d, err);
	if (r == 0)
		r = take_layers(&src->snap, &d, err);
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
