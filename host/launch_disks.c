/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of a VM that `coffer run` starts: see launch_disks.h. */
#include "host/launch_disks.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/launch_remote.h"
#include "host/overlay_disk.h"
#include "host/snapshot_record.h"
#include "host/user_disk.h"
#include "host/vmargs.h"
#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"

static uint64_t overlay_size(const struct launch_options *o)
{
	return ALIGN_UP(o->overlay_size ? o->overlay_size : (uint64_t)OVERLAY_DISK_DEFAULT, MIB(1));
}

/* Features of ext4 that are in the way of writing only, by what Linux 5.10 can write: beyond these it mounts read-only. */
static bool is_writable(const char *path)
{
	enum { SUPER = 1024, RO_COMPAT = SUPER + 0x64, WRITABLE = 0x1a77f };
	uint8_t b[SUPER + 1024];
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	return fd >= 0 && fd_pread_full(fd, b, sizeof(b), 0) == sizeof(b) && !(le32_load(b + RO_COMPAT) & ~(uint32_t)WRITABLE);
}

/* What is in layers was made or imported to be written; should the kernel find that it cannot, the agent sees to it. */
bool launch_disks_direct(const struct image *image)
{
	return image->format == IMAGE_FORMAT_EXT4 && (image->nlayers > 0 || is_writable(image->path));
}

/* Its file system has its size already: a smaller disk would cut it. */
static int check_size(const struct launch *l, const struct launch_options *o, struct err *err)
{
	if (!l->direct || !o->overlay_size || overlay_size(o) >= l->image.size)
		return 0;
	return err_set(err, -EINVAL, "--overlay-size: %" PRIu64 " MiB is less than the %" PRIu64 " MiB of the image '%s', whose file system is the root: leave it out, or build the image with a smaller --size",
		       overlay_size(o) >> 20, ALIGN_UP(l->image.size, MIB(1)) >> 20, *l->image.name ? l->image.name : l->image.path);
}

int launch_disks_prepare(const struct launch *l, const struct launch_options *o, struct err *err)
{
	char path[PATH_MAX];
	struct snapshot_layer layer;

	if (l->image_fd < 0)
		return 0;
	if (l->direct)
		return check_size(l, o, err);
	int fd = overlay_disk_open(overlay_size(o), path, &layer, err);

	fd_close(fd);
	return fd < 0 ? fd : 0;
}

static int need_directory(struct launch *l, struct err *err)
{
	return l->dir.disk_dir_fd >= 0 ? 0 : vmdir_create_disks(&l->dir, err);
}

static int add_overlay(struct launch *l, const struct launch_options *o, struct err *err)
{
	struct snapshot_layer layer;
	struct vm_disk *d = NULL;
	char path[PATH_MAX];
	size_t number = l->disks.n;
	int r = need_directory(l, err);

	if (r == 0)
		r = vm_disks_add_layers(&l->disks, overlay_size(o), NULL, NULL, &d, err);
	if (r < 0)
		return r;
	int fd = overlay_disk_open(overlay_size(o), path, &layer, err);

	r = fd < 0 ? fd : vm_disk_add_layer(d, number, l->dir.disk_dir_fd, fd, path, &layer, err);
	if (r == 0)
		r = vm_disk_add_top(d, number, l->dir.disk_dir_fd, err);
	if (r < 0)
		err_prefix(err, "overlay disk in %s/%s: ", l->dir.disks.path, l->dir.id);
	return r;
}

/* The image's layers, in a disk that may be larger, with an empty one of the VM's own above them: also where the guest only reads, so
 * that snapshots treat it like any disk of layers. */
static int add_image_layers(struct launch *l, const struct launch_options *o, uint64_t size, struct err *err)
{
	const struct image *image = &l->image;
	struct vm_disk *d = NULL;
	size_t number = l->disks.n, k = 0;
	const char *base = image->nlayers == 0 ? image->path : NULL;
	char path[PATH_MAX];
	int r = need_directory(l, err);

	if (r == 0 && image->nlayers > 0 && image->layer[0].raw) {
		int fd = image_layer_open(image, k++, path, err);

		fd_close(fd);
		r = fd < 0 ? fd : 0;
		base = path;
	}
	if (r == 0)
		r = vm_disks_add_layers(&l->disks, size, base, image->name, &d, err);
	for (size_t i = k; i < image->nlayers && r == 0; i++)
		if (image->layer[i].url != NULL)
			r = launch_remote_note(l, image->layer[i].url, image->layer[i].sha256, image->layer[i].bytes, err);
	if (r == 0 && launch_remote_any(image))
		r = launch_remote_open(l, o, d, err);
	for (; k < image->nlayers && r == 0; k++) {
		const struct image_layer *from = &image->layer[k];

		if (from->url != NULL) {
			r = launch_remote_add(l, d, number, from->xxh, err);
			continue;
		}
		struct snapshot_layer layer = { .size = from->bytes, .index_hash = from->index_hash };
		int fd = image_layer_open(image, k, path, err);

		memcpy(layer.digest, from->xxh, sizeof(layer.digest));
		r = fd < 0 ? fd : vm_disk_add_held_layer(d, number, l->dir.disk_dir_fd, fd, path, &layer, err);
	}
	if (r == 0)
		r = vm_disk_add_top(d, number, l->dir.disk_dir_fd, err);
	if (r < 0)
		err_prefix(err, "root disk in %s/%s: ", l->dir.disks.path, l->dir.id);
	return r;
}

static int add_root(struct launch *l, const struct launch_options *o, struct err *err)
{
	int r = check_size(l, o, err);

	if (r < 0)
		return r;
	if (l->direct)
		return add_image_layers(l, o, MAX(ALIGN_UP(l->image.size, MIB(1)), overlay_size(o)), err);
	r = l->image.nlayers == 0 ? vm_disks_add_file(&l->disks, l->image.path, true, l->image.name, err) :
				    add_image_layers(l, o, l->image.size, err);
	return r < 0 ? r : add_overlay(l, o, err);
}

static int add_cow(struct launch *l, const char *path, struct err *err)
{
	struct vm_disk *d = NULL;
	size_t number = l->disks.n;
	int r = need_directory(l, err);

	if (r == 0)
		r = vm_disks_add_layers(&l->disks, 0, path, NULL, &d, err);
	return r < 0 ? r : vm_disk_add_top(d, number, l->dir.disk_dir_fd, err);
}

static int add_user_disk(struct launch *l, const char *text, struct err *err)
{
	struct user_disk d;
	int r = user_disk_parse(text, &d, err);

	if (r < 0)
		return r;
	l->read_write_disks |= !d.ro && !d.cow;
	r = d.cow ? add_cow(l, d.path, err) : vm_disks_add_file(&l->disks, d.path, d.ro, NULL, err);
	if (r < 0)
		err_prefix(err, "--disk '%s': ", text);
	return r;
}

int launch_disks_make(struct launch *l, const struct launch_options *o, struct err *err)
{
	int r = 0;

	if (l->image_fd >= 0)
		r = add_root(l, o, err);
	l->user_disks = &o->disks;
	l->first_user_disk = l->disks.n;
	for (size_t i = 0; i < o->disks.n && r == 0; i++)
		r = add_user_disk(l, o->disks.v[i], err);
	return r;
}

static int fill_record(struct snapshot_manifest *m, const struct launch *l, const struct launch_options *o,
		       struct err *err)
{
	struct {
		char **to;
		const char *value;
	} strings[] = {
		{ &m->version, COFFER_VERSION }, { &m->image, o->image ? o->image : LAUNCH_DEFAULT_IMAGE },
		{ &m->user, l->image.user }, { &m->cwd, l->image.cwd }, { &m->kernel, l->kernel }, { &m->hostname,
												     l->dir.id },
	};
	int r = 0;

	m->cpus = o->cpus;
	m->memory = ALIGN_DOWN(o->memory, MIB(1));
	m->cmdline = vmargs_cmdline(l, o);
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		*strings[i].to = strdup(strings[i].value ? strings[i].value : "");
		if (!*strings[i].to)
			return err_set(err, -ENOMEM, "out of memory");
	}
	for (size_t i = 0; vmargs_devices[i] && r == 0; i++)
		r = vmargs_device_replaced(&o->devices, vmargs_devices[i]) ? 0 :
			snapshot_record_add_device(m, vmargs_devices[i], err);
	for (size_t i = 0; i < o->devices.n && r == 0; i++)
		r = snapshot_record_add_device(m, o->devices.v[i], err);
	return r < 0 ? r : snapshot_record_set_disks(m, &l->disks, err);
}

int launch_disks_record(const struct launch *l, const struct launch_options *o, struct err *err)
{
	struct snapshot_manifest m = { 0 };
	int r = fill_record(&m, l, o, err);

	if (r == 0)
		r = snapshot_record_write(l->dir.fd, &m, err);
	snapshot_manifest_finish(&m);
	return r == -EINVAL ? 0 : r;
}
