/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Importing: what is it, and then its way into the store.
 *
 *   container image (OCI layout, docker save)  layers -> tree -> ext4 -> one sealed layer
 *   tar, directory                             tree -> ext4 -> one sealed layer
 *   disk (raw, qcow2)                          its file system -> one sealed layer
 *   layers of overlaybd                        copied as they are
 *
 * Archives are read by a jailed process (import_tree.h). Everything is made in a draft of the store and appears by one
 * rename; what fails leaves nothing.
 */
#include "host/image_import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/ext4_write.h"
#include "host/image_build.h"
#include "host/import_chain.h"
#include "host/import_disk.h"
#include "host/import_oci.h"
#include "host/import_source.h"
#include "host/import_tree.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { TAR_MAGIC = 257 };

struct importing {
	const struct image_import_options *o;
	struct image_draft *d;
	struct image *image;
	struct progress *p;
	struct err *note;
	struct oci_platform platform;
	int fd; /* of what is imported */
};

static int make_file(const struct importing *i, const char *name, struct err *err)
{
	int fd = openat(i->d->fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 ? err_errno(err, -errno, "create '%s/%s'", i->d->path, name) : fd;
}

/* Of layers without compression. One may replace what another has, but not much more often than once. */
static uint64_t bytes_max(const struct importing *i)
{
	return i->o->size == 0 ? IMPORT_BYTES_MAX : 2 * i->o->size + IMPORT_BYTES_MORE;
}

enum { UUID_SIZE = 37 };

/* The n-th UUID (version 8) of what is imported. */
static void make_uuid(const struct sha256_ctx *digests, uint8_t n, char ret[UUID_SIZE])
{
	struct sha256_ctx ctx = *digests;
	uint8_t b[SHA256_DIGEST_SIZE];

	sha256_update(&ctx, 1, &n);
	sha256_digest(&ctx, sizeof(b), b);
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x80);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	snprintf(ret, UUID_SIZE, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
		 b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* A tree and where its contents are: the file system, as the image's layer. `digests`, of archives without their compression: the same
 * ones give the same layer. NULL: that is not known. */
static int write_tree(struct importing *i, struct fstree *tree, int contents, const struct sha256_ctx *digests, struct err *err)
{
	struct fstree_source source = { .fd = contents };
	struct ext4_options options = { .size = i->o->size, .label = "coffer-root" };
	char path[PATH_MAX], uuid[2][UUID_SIZE];
	int r;

	if (tree->root->dir.first == NULL)
		return err_set(err, -EINVAL, "'%s' is empty%s", i->o->path,
			       tree->layer > 0 ? ": it has no files, or whiteouts remove all of them" : "");
	r = fstree_name_acls(tree, &source, err);
	if (r < 0)
		return r;
	fstree_note_left_out(tree, i->note);
	progress_stage(i->p, "writing the file system");
	if (options.size == 0)
		options.size = MAX((uint64_t)IMAGE_BUILD_SIZE, 2 * MIN(ext4_size_of(tree), EXT4_SIZE_MAX));
	for (uint8_t n = 0; n < 2 && digests != NULL; n++)
		make_uuid(digests, n, uuid[n]);
	options.uuid = digests != NULL ? uuid[0] : NULL;
	snprintf(path, sizeof(path), "%s/" IMAGE_BUILD_DISK, i->d->path);
	r = ext4_write(tree, &source, path, &options, i->p, err);
	if (r < 0)
		return r;
	unlinkat(i->d->fd, "spool", 0);
	i->image->format = IMAGE_FORMAT_EXT4;
	return image_build_add_disk(i->d, i->image, digests != NULL ? uuid[1] : NULL, i->p, err);
}

/* Options that would say nothing here. */
static int refuse_options(const struct importing *i, const char *what, bool size, bool container, struct err *err)
{
	const char *option = !size && i->o->size != 0	       ? "--size" :
			     !container && i->o->tag != NULL	       ? "--tag" :
			     !container && i->o->platform != NULL ? "--platform" :
								       NULL;

	return option == NULL ? 0 : err_set(err, -EINVAL, "%s has no meaning for '%s', %s", option, i->o->path, what);
}

/* ---- container images ---- */

/* What fills the tree: layers of a container image (`oci` not NULL), or one archive. */
struct unpacked {
	const struct import_oci *oci;
	const struct import_source *from;
	struct import_blob archive;
};

static int unpack(struct importing *i, const struct unpacked *what, struct err *err)
{
	_cleanup_close_ int spool = make_file(i, "spool", err);
	char hex[SHA256_HEX_SIZE] = "";
	struct sha256_ctx digests;
	struct import_tree t;
	struct fstree tree;
	int r;

	if (spool < 0)
		return spool;
	r = fstree_init(&tree, err);
	if (r < 0)
		return r;
	t = IMPORT_TREE(&tree, spool, bytes_max(i));
	if (what->oci != NULL)
		r = import_oci_unpack(what->oci, what->from, &t, i->p, err);
	else
		r = import_tree_add(&t, &what->archive, false, hex, i->p, err);
	import_tree_finish(&t);
	sha256_init(&digests);
	sha256_update(&digests, strlen(hex), (const uint8_t *)hex);
	for (size_t k = 0; what->oci != NULL && k < what->oci->nlayers && r == 0; k++)
		sha256_update(&digests, strlen(what->oci->config.diff_id[k]), (const uint8_t *)what->oci->config.diff_id[k]);
	if (r == 0)
		r = write_tree(i, &tree, spool, &digests, err);
	fstree_finish(&tree);
	return r;
}

static int keep_layers(struct importing *i, const struct import_oci *oci, const struct import_source *s,
		       struct err *err)
{
	for (size_t k = 0; k < oci->nlayers; k++) {
		struct import_blob blob;
		int r = import_oci_layer(oci, s, k, &blob, i->p, err);

		if (r == 0) {
			r = import_chain_add(i->d, i->image, &blob, i->p, err);
			import_blob_close(&blob);
		}
		if (r < 0)
			return err_prefix(err, "layer %zu: ", k + 1), r;
	}
	return import_chain_finish(i->d, i->image, err);
}

static int import_container(struct importing *i, const struct import_source *s, struct err *err)
{
	struct import_oci oci;
	int r = import_oci_open(s, &i->platform, i->o->tag, &oci, err);

	if (r == 0 && oci.overlaybd && refuse_options(i, "whose layers are taken as they are", false, true, err) < 0) {
		import_oci_close(&oci);
		return -EINVAL;
	}
	if (r < 0)
		return r;
	r = oci.overlaybd ? keep_layers(i, &oci, s, err) : unpack(i, &(struct unpacked){ .oci = &oci, .from = s }, err);
	if (r == 0)
		r = oci_config_apply(&oci.config, i->image, err);
	import_oci_close(&oci);
	return r;
}

/* ---- archives and directories ---- */

static int import_tar(struct importing *i, int fd, uint64_t size, struct err *err)
{
	if (refuse_options(i, "which is no container image", true, false, err) < 0)
		return -EINVAL;
	progress_stage(i->p, "reading the archive");
	return unpack(i, &(struct unpacked){ .archive = { .fd = fd, .size = size } }, err);
}

/* An archive without compression: of a container image, or of a root. */
static int import_plain(struct importing *i, int fd, uint64_t size, struct err *err)
{
	struct import_source s;
	/* What our own reader refuses cannot be a container image; the other one says what is wrong with it. */
	int r = import_source_open_tar(fd, &s, NULL, NULL);

	if (r < 0)
		return import_tar(i, fd, size, err);
	if (import_oci_is(&s) && fstree_lookup(&s.tree, "usr") == NULL && fstree_lookup(&s.tree, "bin") == NULL) {
		r = import_container(i, &s, err);
		import_source_close(&s);
		return r;
	}
	import_source_close(&s);
	return import_tar(i, fd, size, err);
}

static int import_compressed(struct importing *i, uint64_t size, struct err *err)
{
	_cleanup_close_ int plain = make_file(i, "archive", err);
	struct stat st;
	int r;

	if (plain < 0)
		return plain;
	progress_stage(i->p, "decompressing the archive");
	r = import_decompress_to(&(struct import_blob){ .fd = i->fd, .size = size }, plain, bytes_max(i), i->p, err);
	if (r == 0 && fstat(plain, &st) < 0)
		r = err_errno(err, -errno, "the work file");
	if (r == 0)
		r = import_plain(i, plain, (uint64_t)st.st_size, err);
	unlinkat(i->d->fd, "archive", 0);
	return r;
}

static int import_dir(struct importing *i, struct err *err)
{
	struct import_source s;
	struct fstree tree;
	int r;

	import_source_open_dir(i->fd, &s);
	if (import_oci_is(&s) && faccessat(i->fd, "usr", F_OK, 0) < 0 && faccessat(i->fd, "bin", F_OK, 0) < 0)
		return import_container(i, &s, err);
	r = import_chain_dir(i->d, i->image, i->fd, i->o->path, i->p, err);
	if (r != 0) /* 1: it was one */
		return r < 0 ? r : refuse_options(i, "layers of overlaybd", false, false, err);
	r = refuse_options(i, "which is no container image", true, false, err);
	if (r == 0)
		r = fstree_init(&tree, err);
	if (r < 0)
		return r;
	progress_stage(i->p, "reading the directory");
	r = fstree_read_dir(&tree, i->fd, i->p, err);
	if (r == 0)
		r = write_tree(i, &tree, i->fd, NULL, err);
	fstree_finish(&tree);
	return r;
}

/* ---- disks ---- */

static int import_disk(struct importing *i, struct err *err)
{
	int r = refuse_options(i, "a disk whose file system is taken as it is", false, false, err);
	_cleanup_close_ int disk = r < 0 ? r : make_file(i, IMAGE_BUILD_DISK, err);

	r = disk < 0 ? disk : import_disk_copy(i->fd, i->o->path, disk, &i->image->format, i->p, i->note, err);

	if (r == 0)
		r = image_build_add_disk(i->d, i->image, NULL, i->p, err);
	if (r == 0 && import_chain_finish(i->d, i->image, err) < 0)
		err_prefix(err, "'%s': ", i->o->path), r = -EINVAL;
	return r;
}

/* ---- what it is ---- */

static bool is_compressed(const uint8_t *head)
{
	static const struct {
		const char *magic;
		size_t n;
	} known[] = {
		{ "\x1f\x8b", 2 }, { "\x28\xb5\x2f\xfd", 4 }, { "\xfd\x37zXZ", 6 }, { "BZh", 3 }, { "\x04\x22\x4d\x18", 4 },
	};

	for (size_t k = 0; k < ARRAY_SIZE(known); k++)
		if (memcmp(head, known[k].magic, known[k].n) == 0)
			return true;
	return false;
}

static int import_file(struct importing *i, const struct stat *st, struct err *err)
{
	uint8_t head[IMAGE_SNIFF] = { 0 };
	ssize_t n = fd_pread_full(i->fd, head, sizeof(head), 0);
	int r;

	if (n < 0)
		return err_errno(err, (int)n, "read '%s'", i->o->path);
	if (!S_ISREG(st->st_mode))
		return import_disk(i, err);
	if (st->st_size == 0)
		return err_set(err, -EINVAL, "'%s' is empty", i->o->path);
	r = import_chain_file(i->d, i->image, i->fd, i->o->path, i->p, err);
	if (r != 0) /* 1: it was one */
		return r < 0 ? r : refuse_options(i, "a layer of overlaybd", false, false, err);
	if (is_compressed(head))
		return import_compressed(i, (uint64_t)st->st_size, err);
	if (memcmp(head + TAR_MAGIC, "ustar", 5) == 0)
		return import_plain(i, i->fd, (uint64_t)st->st_size, err);
	if (import_disk_is(head, (size_t)n))
		return import_disk(i, err);
	if (head[0] == 0 && memcmp(head, head + 1, sizeof(head) - 1) == 0)
		return err_set(err, -EINVAL, "'%s' begins with zeros: an archive that has nothing in it, or an empty disk", i->o->path);
	return err_set(err, -EINVAL,
		       "'%s' is nothing that is known: no tar (also compressed), container image, disk with ext4, "
		       "erofs or squashfs, qcow2, or layer of overlaybd",
		       i->o->path);
}

/* What is read more than once has to be in a file. */
static int open_path(struct importing *i, struct err *err)
{
	_cleanup_close_ int out = -1;
	int fd, r;

	if (strcmp(i->o->path, "-") != 0) {
		fd = open(i->o->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		return fd < 0 ? err_errno(err, -errno, "open '%s'", i->o->path) : fd;
	}
	out = make_file(i, "stream", err);
	if (out < 0)
		return out;
	progress_stage(i->p, "reading stdin");
	r = image_build_spool(STDIN_FILENO, out, i->p, err);
	unlinkat(i->d->fd, "stream", 0);
	return r < 0 ? r : TAKE_FD(out);
}

static int run(struct importing *i, struct err *err)
{
	_cleanup_close_ int fd = open_path(i, err);
	struct stat st;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "open '%s'", i->o->path);
	i->fd = fd;
	if (S_ISDIR(st.st_mode))
		r = import_dir(i, err);
	else if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))
		r = import_file(i, &st, err);
	else
		r = err_set(err, -EINVAL, "'%s' is neither a file, a directory nor a disk", i->o->path);
	return r < 0 ? r : image_draft_publish(i->d, i->image, i->o->replace, i->p, err);
}

/* The manifest has it. */
static int check_path(const char *path, struct err *err)
{
	return text_is_utf8(path) ? 0 : err_set(err, -EINVAL, "the path '%s' is not UTF-8: rename it", TEXT_CUT(path));
}

int image_import(const struct image_store *s, const struct image_import_options *o, struct progress *p,
		 struct err *note, struct err *err)
{
	struct image image = { 0 };
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct importing i = { .o = o, .d = &d, .image = &image, .p = p, .note = note, .fd = -1 };
	int r = image_store_check_free(s, o->name, o->replace, err);

	if (r == 0)
		r = oci_platform_parse(o->platform != NULL ? o->platform : IMAGE_IMPORT_PLATFORM, &i.platform, err);
	if (r == 0)
		r = check_path(o->path, err);
	if (r == 0)
		r = image_draft_begin(s, &d, err);
	if (r < 0)
		return r;
	snprintf(image.name, sizeof(image.name), "%s", o->name);
	snprintf(image.source, sizeof(image.source), "%.*s", IMAGE_SOURCE_MAX,
		 o->source != NULL ? o->source : strcmp(o->path, "-") == 0 ? "stdin" : o->path);
	r = run(&i, err);
	image_finish(&image);
	progress_stage(p, "cleaning up");
	image_draft_end(&d);
	progress_end(p);
	return r;
}
