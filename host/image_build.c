/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building an image: source -> tree of metadata -> ext4 -> layer -> store.
 *
 * The file system is as large as a disk shall be that programs are installed on (its size costs nothing: what is not
 * written is not there), and becomes one sealed layer with the blocks that have contents.
 *
 * No step needs root or a user namespace, but mmdebstrap's own: owners, devices and attributes go from the source into the
 * file system without existing on the host. A compressed archive, or one from stdin, is first unpacked into a file in the
 * work directory, because the archive is read twice: for the tree, and for the contents.
 *
 * Trust: an archive is hostile; see fstree_tar.c. Programs that decompress see it too, as processes of their own.
 */
#include "host/image_build.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "host/ext4_write.h"
#include "host/fstree_source.h"
#include "host/image_debian.h"
#include "host/image_desktop.h"
#include "host/spawn.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { WAIT_MS = 200 };

struct compression {
	const char *magic;
	size_t magic_len;
	const char *argv[4];
	const char *package;
};

static const struct compression compressions[] = {
	{ "\x1f\x8b", 2, { "gzip", "-dc", NULL }, "gzip" },
	{ "\x28\xb5\x2f\xfd", 4, { "zstd", "-qdc", NULL }, "zstd" },
	{ "\xfd" "7zXZ", 6, { "xz", "-dc", NULL }, "xz-utils" },
	{ "BZh", 3, { "bzip2", "-dc", NULL }, "bzip2" },
	{ "\x04\x22\x4d\x18", 4, { "lz4", "-qdc", NULL }, "lz4" },
};

/* What has arrived of a pipe; waits for it, and notices meanwhile when the user wants an end. */
static ssize_t read_some(int in, char *buffer, size_t size, uint64_t done, struct progress *p, struct err *err)
{
	struct pollfd ready = { .fd = in, .events = POLLIN };

	for (;;) {
		int r = progress_bytes(p, done, 0, err);

		if (r < 0)
			return r;
		if (poll(&ready, 1, WAIT_MS) == 0)
			continue;
		ssize_t n = read(in, buffer, size);

		if (n >= 0 || (errno != EAGAIN && errno != EINTR))
			return n >= 0 ? n : err_errno(err, -errno, "read the archive");
	}
}

int image_build_spool(int in, int out, struct progress *p, struct err *err)
{
	char buffer[64 << 10];
	uint64_t done = 0;
	struct stat st;
	ssize_t n;

	if (fstat(in, &st) < 0)
		return err_errno(err, -errno, "stat the archive");
	if (S_ISCHR(st.st_mode))
		return err_set(err, -EINVAL, "a terminal or another character device is no archive");

	while ((n = read_some(in, buffer, sizeof(buffer), done, p, err)) > 0) {
		int r = fd_write_full(out, buffer, (size_t)n);

		if (r < 0)
			return err_errno(err, r, "write the work file");
		done += (uint64_t)n;
	}
	return (int)n;
}

static int open_work_file(const struct image_draft *d, const char *name, struct err *err)
{
	int fd = openat(d->fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 ? err_errno(err, -errno, "create '%s/%s'", d->path, name) : fd;
}

/* Turn *fd, an archive, into an uncompressed one in a regular file. */
static int make_plain(const struct image_draft *d, int *fd, struct progress *p, struct err *err)
{
	const struct compression *c = NULL;
	uint8_t head[8] = { 0 };
	struct stat st;
	int out, r;

	if (fstat(*fd, &st) < 0)
		return err_errno(err, -errno, "stat the archive");
	if (!S_ISREG(st.st_mode)) {
		out = open_work_file(d, "stream", err);
		if (out < 0)
			return out;
		progress_stage(p, "reading the archive");
		r = image_build_spool(*fd, out, p, err);
		fd_close(*fd);
		*fd = out;
		if (r < 0)
			return r;
	}
	r = (int)fd_pread_full(*fd, head, sizeof(head), 0);
	if (r < 0)
		return err_errno(err, r, "read the archive");
	for (size_t i = 0; i < ARRAY_SIZE(compressions); i++)
		if (memcmp(head, compressions[i].magic, compressions[i].magic_len) == 0)
			c = &compressions[i];
	if (c == NULL)
		return 0;
	out = open_work_file(d, "archive", err);
	if (out < 0)
		return out;
	progress_stage(p, "decompressing the archive");
	if (lseek(*fd, 0, SEEK_SET) < 0)
		r = err_errno(err, -errno, "read the archive");
	else
		r = spawn_run(&(struct spawn){ .argv = c->argv, .in = *fd, .out = out, .package = c->package, .progress = p,
					       .show_size = true },
			      err);
	fd_close(*fd);
	*fd = out;
	return r < 0 ? r : 0;
}

/* What people have at hand that is an archive and yet no root file system. */
static int check_tree(const struct fstree *t, const char *source, struct err *err)
{
	if (t->root->dir.first == NULL)
		return err_set(err, -EINVAL, "'%s' is empty", source);
	if (fstree_lookup(t, "usr") == NULL && fstree_lookup(t, "bin") == NULL &&
	    (fstree_lookup(t, "oci-layout") != NULL || fstree_lookup(t, "manifest.json") != NULL))
		return err_set(err, -EINVAL,
			       "'%s' has container image layers, not a root file system: use 'coffer image import'",
			       source);
	return 0;
}

static void give_to_root(struct fstree *t)
{
	for (struct fstree_inode *i = t->root; i != NULL; i = i->next)
		i->uid = i->gid = 0;
}

static bool is_debian(const struct image_build_options *o)
{
	return strcmp(o->source, IMAGE_DEBIAN) == 0 || strcmp(o->source, IMAGE_DESKTOP) == 0;
}

/* Open the source and read its tree. *ret_fd is where contents come from. */
static int read_source(const struct image_build_options *o, const struct image_draft *d, struct fstree *t, struct image *image,
		       int *ret_fd, struct progress *p, struct err *note, struct err *err)
{
	_cleanup_close_ int fd = -1;
	bool is_dir = false;
	struct stat st;
	int r = 0;

	if (is_debian(o)) {
		fd = open_work_file(d, "archive", err);
		if (fd < 0)
			return fd;
		r = image_debian_tar(o, fd, image->source, p, note, err);
	} else if (strcmp(o->source, "-") == 0) {
		fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			return err_errno(err, -errno, "stdin");
		snprintf(image->source, sizeof(image->source), "stdin");
		r = make_plain(d, &fd, p, err);
	} else {
		fd = open(o->source, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO's writer may never come */
		if (fd < 0 && errno == ENOENT)
			return err_errno(err, -ENOENT, "the source, '%s' (debian, desktop, a directory, a tar, or - for stdin)", o->source);
		if (fd < 0 || fstat(fd, &st) < 0)
			return err_errno(err, -errno, "open '%s'", o->source);
		is_dir = S_ISDIR(st.st_mode);
		snprintf(image->source, sizeof(image->source), "%.*s", IMAGE_SOURCE_MAX, o->source);
		if (!is_dir)
			r = make_plain(d, &fd, p, err);
	}
	if (r == 0) {
		progress_stage(p, "reading the source");
		r = is_dir ? fstree_read_dir(t, fd, p, err) : fstree_read_tar(t, fd, p, err);
	}
	if (r == 0 && strcmp(o->source, IMAGE_DESKTOP) == 0)
		r = image_desktop_add(t, fd, image, err);
	if (r == 0)
		r = check_tree(t, o->source, err);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

int image_build_add_disk(struct image_draft *d, struct image *image, const char *uuid, struct progress *p, struct err *err)
{
	_cleanup_close_ int raw = openat(d->fd, IMAGE_BUILD_DISK, O_RDONLY | O_CLOEXEC), fd = -1;
	struct image_layer facts;
	struct stat st;
	int r;

	if (raw < 0 || fstat(raw, &st) < 0)
		return err_errno(err, -errno, "open '%s/" IMAGE_BUILD_DISK "'", d->path);
	progress_stage(p, "packing the layer");
	fd = open_work_file(d, "layer", err);
	if (fd < 0)
		return fd;
	r = lsmt_pack_raw(raw, (uint64_t)st.st_size, fd, uuid, err);
	if (r < 0)
		return r;
	unlinkat(d->fd, IMAGE_BUILD_DISK, 0);
	progress_stage(p, "computing the checksums");
	r = image_layer_measure(fd, "the new layer", false, &facts, &image->size, p, err);
	return r < 0 ? r : image_draft_add_layer(d, fd, "layer", &facts, err);
}

static int build_in(struct image_draft *d, const struct image_build_options *o, struct image *image, struct progress *p,
		    struct err *note, struct err *err)
{
	struct ext4_options options = { .size = o->size, .label = "coffer-root" };
	_cleanup_close_ int fd = -1;
	struct fstree tree;
	char path[PATH_MAX];
	int r = fstree_init(&tree, err);

	if (r < 0)
		return r;
	r = read_source(o, d, &tree, image, &fd, p, note, err);
	if (r == 0) {
		struct fstree_source source = { .fd = fd };

		r = fstree_name_acls(&tree, &source, err);
		if (o->root_owner)
			give_to_root(&tree);
		if (note == NULL || note->code == 0)
			fstree_note_left_out(&tree, note);
		progress_stage(p, "writing the file system");
		if (options.size == 0)
			options.size = MAX((uint64_t)IMAGE_BUILD_SIZE, 2 * ext4_size_of(&tree));
		snprintf(path, sizeof(path), "%s/" IMAGE_BUILD_DISK, d->path);
		if (r == 0)
			r = ext4_write(&tree, &source, path, &options, p, err);
	}
	fstree_finish(&tree);
	if (r < 0)
		return r;
	image->format = IMAGE_FORMAT_EXT4;
	r = image_build_add_disk(d, image, NULL, p, err);
	return r < 0 ? r : image_draft_publish(d, image, o->replace, p, err);
}

static int check_options(const struct image_build_options *o, struct err *err)
{
	const struct {
		const char *name;
		bool given;
	} debian_only[] = {
		{ "suite", o->suite != NULL }, { "mirror", o->mirror != NULL }, { "include", o->include.n > 0 }, { "cached", o->cached },
	};

	if (o->with.n > 0 && strcmp(o->source, IMAGE_DESKTOP) != 0)
		return err_set(err, -EINVAL, "--with is for the source 'desktop' only, not for '%s'", TEXT_CUT(o->source));
	if (image_desktop_check_with(&o->with, err) < 0)
		return -EINVAL;
	if (is_debian(o))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(debian_only); i++)
		if (debian_only[i].given)
			return err_set(err, -EINVAL, "--%s is for the sources 'debian' and 'desktop' only, not for '%s'", debian_only[i].name,
				       TEXT_CUT(o->source));
	if (!text_is_utf8(o->source)) /* the manifest has it */
		return err_set(err, -EINVAL, "the path of the source, '%s', is not UTF-8: rename it, or pass a tar to stdin",
			       TEXT_CUT(o->source));
	return 0;
}

int image_build(const struct image_store *s, const struct image_build_options *o, struct progress *p, struct err *note,
		struct err *err)
{
	struct image image = { 0 };
	struct image_draft d = IMAGE_DRAFT_NONE;
	const char *name = o->name;
	int r = check_options(o, err);

	if (r < 0)
		return r;
	if (name == NULL && is_debian(o))
		name = o->source;
	if (name == NULL)
		return err_set(err, -EINVAL, "--name is missing: what shall the image of '%s' be called?", o->source);
	r = image_store_check_free(s, name, o->replace, err);
	if (r == 0)
		r = image_draft_begin(s, &d, err);
	if (r < 0)
		return r;
	snprintf(image.name, sizeof(image.name), "%s", name);
	r = build_in(&d, o, &image, p, note, err);
	image_finish(&image);
	progress_stage(p, "cleaning up");
	image_draft_end(&d);
	progress_end(p);
	return r;
}
