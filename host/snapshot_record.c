/* SPDX-License-Identifier: Apache-2.0 */
/* What a running VM is made of: see snapshot_record.h. */
#include "host/snapshot_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"

static int no_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int copy_disk(const struct snapshot_disk *from, struct snapshot_disk *to)
{
	*to = (struct snapshot_disk){ .kind = from->kind, .size = from->size, .path_size = from->path_size,
				      .path_mtime_ns = from->path_mtime_ns };
	to->path = strdup(from->path);
	to->image = strdup(from->image);
	to->layer = calloc(from->nlayers ? from->nlayers : 1, sizeof(*to->layer));
	if (!to->path || !to->image || !to->layer)
		return -ENOMEM;
	for (size_t i = 0; i < from->nlayers; i++) {
		to->nlayers = i + 1;
		if (snapshot_layer_copy(&from->layer[i], NULL, &to->layer[i]) < 0)
			return -ENOMEM;
	}
	return 0;
}

int snapshot_record_set_disks(struct snapshot_manifest *m, const struct vm_disks *v, struct err *err)
{
	m->disk = calloc(v->n ? v->n : 1, sizeof(*m->disk));
	if (!m->disk)
		return no_memory(err);
	for (size_t i = 0; i < v->n; i++) {
		m->ndisks = i + 1;
		if (copy_disk(&v->disk[i]->d, &m->disk[i]) < 0)
			return no_memory(err);
	}
	return 0;
}

int snapshot_record_add_device(struct snapshot_manifest *m, const char *device, struct err *err)
{
	char **more = realloc(m->device, (m->ndevices + 1) * sizeof(*more));

	if (!more)
		return no_memory(err);
	m->device = more;
	m->device[m->ndevices] = strdup(device);
	return m->device[m->ndevices] ? (m->ndevices++, 0) : no_memory(err);
}

int snapshot_record_write(int dirfd, struct snapshot_manifest *m, struct err *err)
{
	m->what = SNAPSHOT_WHAT_VM;
	m->id[0] = 0;
	m->state = m->ram = m->ram_index = (struct snapshot_file){ 0 };
	_cleanup_free_ char *text = snapshot_manifest_format(m);

	if (!text)
		return err_set(err, -EINVAL, VMDIR_MACHINE ": a path in it is not UTF-8");
	return vmdir_write_file(dirfd, VMDIR_MACHINE, text, strlen(text), err);
}

int snapshot_record_read(int dirfd, struct snapshot_manifest *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	long n = vmdir_read_file(dirfd, VMDIR_MACHINE, SNAPSHOT_MANIFEST_MAX, &text, err);

	if (n == -ENOENT)
		return err_set(err, -ENOENT,
			       "it was started by a version of Coffer without snapshots, or with a disk's path that is not UTF-8: start it anew");
	return n < 0 ? (int)n : snapshot_manifest_parse(VMDIR_MACHINE, SNAPSHOT_WHAT_VM, text, (size_t)n, ret, err);
}
