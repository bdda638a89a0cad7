/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host/image_import with coffer-import: an image that umoci built of layers with everything in them (import_layers.py), compared with
 * what `umoci unpack` makes of it: types, modes, owners, times, attributes, links, devices and contents. As another user than
 * root, umoci cannot make owners and devices: skipped.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/file.h"
#include "host/image_export.h"
#include "host/image_ext4.h"
#include "host/image_import.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { LINES_MAX = 4096, LINE_SIZE = 5000 };

/* A tree as sorted lines. */
struct list {
	char *line[LINES_MAX];
	size_t n;
};

struct fixture {
	char base[64];
	struct image_store store;
	struct err err;
	struct list list[2]; /* unpacked, imported */
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char program[PATH_MAX];

	assert_non_null(f);
	assert_non_null(getenv("B"));
	snprintf(program, sizeof(program), "%s/coffer-import", getenv("B"));
	setenv("COFFER_IMPORT", program, 1);
	strcpy(f->base, "/tmp/coffer-import-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	assert_int_equal(image_store_init(&f->store, f->base, &f->err), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < f->list[k].n; i++)
			free(f->list[k].line[i]);
	file_remove_tree(AT_FDCWD, f->base);
	free(f);
	return 0;
}

/* Run in the fixture's directory. */
static void shell(const struct fixture *f, const char *script)
{
	char command[2048];

	snprintf(command, sizeof(command), "set -e; exec >/dev/null; cd %s; %s", f->base, script);
	if (system(command) != 0)
		fail_msg("failed: %s", script);
}

/* ---- lists ---- */

struct line {
	const char *path; /* without a leading slash; "" is the root */
	uint32_t mode, uid, gid;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t size, links;
	uint32_t major, minor;
	char hash[SHA256_HEX_SIZE]; /* of the contents or the target */
	char xattrs[1024];
};

static void add_line(struct list *l, const struct line *e)
{
	char text[LINE_SIZE];
	bool dir = S_ISDIR(e->mode);

	assert_true(l->n < LINES_MAX);
	snprintf(text, sizeof(text), "%s mode=%o owner=%u:%u mtime=%lld.%09u size=%llu links=%llu dev=%u:%u %.12s%s", e->path, e->mode,
		 e->uid, e->gid, (long long)e->mtime_s, e->mtime_ns, dir ? 0 : (unsigned long long)e->size,
		 dir ? 0 : (unsigned long long)e->links, e->major, e->minor, e->hash, e->xattrs);
	l->line[l->n] = strdup(text);
	assert_non_null(l->line[l->n]);
	l->n++;
}

static void add_xattr(struct line *e, const char *name, const void *value, size_t n)
{
	size_t used = strlen(e->xattrs);
	const uint8_t *v = value;

	used += (size_t)snprintf(e->xattrs + used, sizeof(e->xattrs) - used, " %s=", name);
	for (size_t i = 0; i < n && used < sizeof(e->xattrs); i++)
		used += (size_t)snprintf(e->xattrs + used, sizeof(e->xattrs) - used, "%02x", v[i]);
}

static bool is_kept(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- an unpacked directory ---- */

static void hash_bytes(struct line *e, const void *p, size_t n)
{
	struct sha256_ctx s;

	sha256_init(&s);
	sha256_update(&s, n, p);
	sha256_end_hex(&s, e->hash);
}

static void hash_file(struct line *e, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ uint8_t *all = malloc(e->size + 1);

	assert_non_null(all);
	assert_int_equal(fd_read_full(fd, all, e->size), e->size);
	hash_bytes(e, all, e->size);
}

static struct list *walking; /* nftw passes nothing along */
static size_t walking_prefix;

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	struct line e = { .path = path + walking_prefix, .mode = st->st_mode, .uid = st->st_uid, .gid = st->st_gid,
			  .mtime_s = st->st_mtim.tv_sec, .mtime_ns = (uint32_t)st->st_mtim.tv_nsec, .links = st->st_nlink };
	char names[1024], value[1024], *sorted[16];
	size_t nnames = 0;
	ssize_t n;

	(void)type, (void)ftw;
	e.path += *e.path == '/';
	if (S_ISREG(st->st_mode)) {
		e.size = (uint64_t)st->st_size;
		hash_file(&e, path);
	} else if (S_ISLNK(st->st_mode)) {
		n = readlink(path, value, sizeof(value));
		e.size = (uint64_t)n;
		hash_bytes(&e, value, (size_t)n);
	} else if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) {
		e.major = major(st->st_rdev);
		e.minor = minor(st->st_rdev);
	}
	n = llistxattr(path, names, sizeof(names));
	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1)
		if (is_kept(names + at) && nnames < ARRAY_SIZE(sorted))
			sorted[nnames++] = names + at;
	qsort(sorted, nnames, sizeof(sorted[0]), compare);
	for (size_t i = 0; i < nnames; i++)
		add_xattr(&e, sorted[i], value, (size_t)lgetxattr(path, sorted[i], value, sizeof(value)));
	add_line(walking, &e);
	return 0;
}

static void list_dir(const char *path, struct list *l)
{
	walking = l;
	walking_prefix = strlen(path);
	assert_int_equal(nftw(path, visit, 64, FTW_PHYS), 0);
	qsort(l->line, l->n, sizeof(l->line[0]), compare);
}

/* ---- an image ---- */

struct walk {
	ext2_filsys fs;
	struct list *list;
	char path[PATH_MAX];
};

static void list_inode(struct walk *w, ext2_ino_t ino);

static int each_entry(ext2_ino_t dir, int entry, struct ext2_dir_entry *d, int offset, int size, char *buf, void *arg)
{
	struct walk *w = arg;
	size_t len = strlen(w->path);
	int n = ext2fs_dirent_name_len(d);

	(void)dir, (void)entry, (void)offset, (void)size, (void)buf;
	if (d->inode == 0 || strncmp(d->name, ".", (size_t)n) == 0 || (n == 2 && memcmp(d->name, "..", 2) == 0) ||
	    (len == 0 && n == 10 && memcmp(d->name, "lost+found", 10) == 0))
		return 0;
	snprintf(w->path + len, sizeof(w->path) - len, "%s%.*s", len > 0 ? "/" : "", n, d->name);
	list_inode(w, d->inode);
	w->path[len] = '\0';
	return 0;
}

static int each_xattr(char *name, char *value, size_t n, void *arg)
{
	add_xattr(arg, name, value, n);
	return 0;
}

static int64_t time_of(uint32_t seconds, uint32_t extra)
{
	return (int64_t)(int32_t)seconds + ((int64_t)(extra & 3) << 32);
}

static void read_contents(struct walk *w, ext2_ino_t ino, struct line *e)
{
	uint8_t *all = malloc(e->size + 1);
	ext2_file_t file;
	unsigned got;

	assert_non_null(all);
	assert_int_equal(ext2fs_file_open(w->fs, ino, 0, &file), 0);
	for (uint64_t at = 0; at < e->size; at += got)
		assert_int_equal(ext2fs_file_read(file, all + at, (unsigned)(e->size - at), &got), 0);
	ext2fs_file_close(file);
	hash_bytes(e, all, e->size);
	free(all);
}

/* The attributes of a line in the order of their names. */
static void sort_xattrs(struct line *e)
{
	char copy[sizeof(e->xattrs)], *word[16], *rest = copy;
	size_t n = 0;

	strcpy(copy, e->xattrs);
	for (char *s; (s = strsep(&rest, " ")) != NULL && n < ARRAY_SIZE(word);)
		if (*s != '\0')
			word[n++] = s;
	qsort(word, n, sizeof(word[0]), compare);
	e->xattrs[0] = '\0';
	for (size_t i = 0; i < n; i++) {
		strcat(e->xattrs, " ");
		strcat(e->xattrs, word[i]);
	}
}

static void list_inode(struct walk *w, ext2_ino_t ino)
{
	struct ext2_inode_large i;
	struct ext2_xattr_handle *h;
	struct line e = { .path = w->path };

	assert_int_equal(ext2fs_read_inode_full(w->fs, ino, (struct ext2_inode *)&i, sizeof(i)), 0);
	e.mode = i.i_mode;
	e.uid = inode_uid(i);
	e.gid = inode_gid(i);
	e.mtime_s = time_of(i.i_mtime, i.i_mtime_extra);
	e.mtime_ns = i.i_mtime_extra >> 2;
	e.links = i.i_links_count;
	if (S_ISREG(e.mode)) {
		e.size = EXT2_I_SIZE(&i);
		read_contents(w, ino, &e);
	} else if (S_ISLNK(e.mode)) {
		e.size = EXT2_I_SIZE(&i);
		if (e.size <= 59)
			hash_bytes(&e, i.i_block, e.size);
		else
			read_contents(w, ino, &e);
	} else if (S_ISCHR(e.mode) || S_ISBLK(e.mode)) {
		uint32_t b = i.i_block[1];

		e.major = i.i_block[0] ? i.i_block[0] >> 8 : (b & 0xfff00) >> 8;
		e.minor = i.i_block[0] ? i.i_block[0] & 0xff : (b & 0xff) | (b >> 12 & 0xfff00);
	}
	assert_int_equal(ext2fs_xattrs_open(w->fs, ino, &h), 0);
	assert_int_equal(ext2fs_xattrs_read(h), 0);
	ext2fs_xattrs_iterate(h, each_xattr, &e);
	ext2fs_xattrs_close(&h);
	sort_xattrs(&e);
	add_line(w->list, &e);
	if (S_ISDIR(e.mode))
		assert_int_equal(ext2fs_dir_iterate2(w->fs, ino, 0, NULL, each_entry, w), 0);
}

static void list_image(struct fixture *f, const char *name, struct list *l)
{
	struct image_ext4 e = IMAGE_EXT4_NONE;
	struct walk w = { .list = l };
	struct image image;

	assert_int_equal(image_store_resolve(&f->store, name, &image, &f->err), 0);
	assert_int_equal(image_ext4_open(&image, &e, &f->err), 0);
	w.fs = e.fs;
	list_inode(&w, EXT2_ROOT_INO);
	image_ext4_close(&e);
	image_finish(&image);
	qsort(l->line, l->n, sizeof(l->line[0]), compare);
}

static void assert_same(const struct list *want, const struct list *have)
{
	size_t bad = 0;

	for (size_t i = 0, k = 0; i < want->n || k < have->n;) {
		int c = i == want->n ? 1 : k == have->n ? -1 : strcmp(want->line[i], have->line[k]);

		if (c != 0 && bad++ < 40)
			fprintf(stderr, "%s %s\n", c < 0 ? "umoci:" : "image:", c < 0 ? want->line[i] : have->line[k]);
		i += c <= 0;
		k += c >= 0;
	}
	assert_int_equal(bad, 0);
}

/* ---- tests ---- */

static int import_sized(struct fixture *f, const char *path, const char *name, uint64_t size)
{
	struct err note = ERR_INIT;
	char at[PATH_MAX];

	f->err = ERR_INIT;
	snprintf(at, sizeof(at), "%s/%s", f->base, path);
	return image_import(&f->store, &(struct image_import_options){ .path = at, .name = name, .size = size }, NULL, &note,
			    &f->err);
}

static void import(struct fixture *f, const char *path, const char *name)
{
	if (import_sized(f, path, name, 0) < 0)
		fail_msg("%s: %s", path, f->err.text);
}

static void id_of(struct fixture *f, const char *name, char ret[IMAGE_SHA256_LEN + 1])
{
	struct image image;

	assert_int_equal(image_store_resolve(&f->store, name, &image, &f->err), 0);
	memcpy(ret, image.id, sizeof(image.id));
	image_finish(&image);
}

static void make_layout(const struct fixture *f)
{
	shell(f, "python3 $TOP/tests/long/import_layers.py .; umoci init --layout lay; umoci new --image lay:one");
	shell(f, "for k in 1 2 3 4 5 6; do umoci raw add-layer --image lay:one layer$k.tar; done");
	shell(f, "umoci config --image lay:one --config.env A=1 --config.entrypoint /e --config.cmd c --config.user 5:6 --config.workingdir /w");
	shell(f, "umoci gc --layout lay");
}

static void an_image_of_umoci_is_what_umoci_unpacks(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];
	struct image image;

	if (geteuid() != 0)
		skip();
	make_layout(f);
	shell(f, "umoci unpack --image lay:one bundle");
	import(f, "lay", "one");
	snprintf(path, sizeof(path), "%s/bundle/rootfs", f->base);
	list_dir(path, &f->list[0]);
	list_image(f, "one", &f->list[1]);
	assert_same(&f->list[0], &f->list[1]);
	assert_true(f->list[0].n > 80);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &f->err), 0);
	assert_string_equal(image.env[1] != NULL ? image.env[1] : image.env[0], "A=1");
	assert_string_equal(image.cmd[0], "/e");
	assert_string_equal(image.cmd[1], "c");
	assert_string_equal(image.user, "5:6");
	assert_string_equal(image.cwd, "/w");
	image_finish(&image);
}

/* The same image in other wrappings is the same tree. */
static void layouts_and_saved_images_in_archives_are_the_same_image(void **state)
{
	static const char *const forms[] = { "lay.tar", "lay.tar.zst", "zstd", "saved.tar", "saved.tar.gz" };
	struct fixture *f = *state;

	shell(f, "mkdir -p r/etc r/bin; echo one >r/etc/one; ln r/etc/one r/bin/two; ln -s one r/etc/three");
	shell(f, "umoci init --layout lay; umoci new --image lay:x; umoci insert --rootless --image lay:x r /; umoci gc --layout lay");
	shell(f, "tar cf lay.tar -C lay .; zstd -q lay.tar; gzip -k lay.tar");
	shell(f, "skopeo --tmpdir . copy -q --dest-compress-format zstd --dest-compress oci:lay:x oci:zstd:x");
	shell(f, "skopeo --tmpdir . copy -q oci:lay:x docker-archive:saved.tar:app:1; gzip -k saved.tar");
	import(f, "lay", "lay");
	list_image(f, "lay", &f->list[0]);
	assert_int_equal(f->list[0].n, 6);
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		char name[16];

		snprintf(name, sizeof(name), "form%zu", i);
		import(f, forms[i], name);
		for (size_t k = 0; k < f->list[1].n; k++)
			free(f->list[1].line[k]);
		f->list[1].n = 0;
		list_image(f, name, &f->list[1]);
		assert_same(&f->list[0], &f->list[1]);
	}
	shell(f, "test $(stat -c %h images/lay/*.lsmt) = 6");
}

static void one_archive_is_one_layer_however_it_is_compressed(void **state)
{
	struct fixture *f = *state;
	char id[3][IMAGE_SHA256_LEN + 1];

	shell(f, "mkdir -p r/etc; seq 1 1000 >r/etc/one; ln -s one r/etc/two; mkfifo r/p; tar cf a.tar -C r .; gzip -k a.tar; zstd -q a.tar");
	import(f, "a.tar", "a");
	import(f, "a.tar.gz", "b");
	import(f, "a.tar.zst", "c");
	id_of(f, "a", id[0]);
	id_of(f, "b", id[1]);
	id_of(f, "c", id[2]);
	assert_string_equal(id[0], id[1]);
	assert_string_equal(id[0], id[2]);
	shell(f, "test $(stat -c %h images/a/*.lsmt) = 3");
	/* Another archive, and another size, is another layer. */
	shell(f, "echo more >>r/etc/one; tar cf more.tar -C r .");
	import(f, "more.tar", "d");
	assert_int_equal(import_sized(f, "a.tar", "e", 64 << 20), 0);
	id_of(f, "d", id[1]);
	id_of(f, "e", id[2]);
	assert_string_not_equal(id[0], id[1]);
	assert_string_not_equal(id[0], id[2]);
}

/* One that has been damaged since. */
static void only_the_same_bytes_are_shared(void **state)
{
	struct fixture *f = *state;

	shell(f, "mkdir -p r/etc; seq 1 1000 >r/etc/one; tar cf a.tar -C r .");
	import(f, "a.tar", "a");
	shell(f, "chmod u+w images/a/*.lsmt; printf x | dd of=$(echo images/a/*.lsmt) bs=1 seek=5000 conv=notrunc status=none");
	import(f, "a.tar", "b");
	shell(f, "test $(stat -c %h images/b/*.lsmt) = 1");
}

static void a_tar_is_what_tar_extracts(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];

	if (geteuid() != 0)
		skip();
	shell(f, "python3 $TOP/tests/long/import_layers.py .; mkdir x; tar -xpf gnu-sparse.tar -C x");
	shell(f, "echo x >x/.wh.file; chmod 755 x; touch -d @5 x/.wh.file x; tar cf root.tar --sparse -C x .; xz -1 root.tar");
	import(f, "root.tar.xz", "root");
	snprintf(path, sizeof(path), "%s/x", f->base);
	list_dir(path, &f->list[0]);
	list_image(f, "root", &f->list[1]);
	assert_same(&f->list[0], &f->list[1]);
}

static void an_exported_layout_is_imported_as_the_same_layers(void **state)
{
	struct fixture *f = *state;
	char id[2][IMAGE_SHA256_LEN + 1], path[PATH_MAX];
	struct image image;

	shell(f, "mkdir -p r/etc; echo one >r/etc/one");
	import(f, "r", "one");
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &f->err), 0);
	snprintf(path, sizeof(path), "%s/out", f->base);
	assert_int_equal(image_export_oci(&image, path, -1, NULL, &f->err), 0);
	assert_int_equal(image_export_oci(&image, path, -1, NULL, &f->err), -EEXIST);
	image_finish(&image);
	/* Other programs take it, with its digests. */
	shell(f, "skopeo --tmpdir . copy -q --preserve-digests oci:out dir:copied; grep -q overlaybd/blob-digest copied/manifest.json");
	import(f, "out", "two");
	id_of(f, "one", id[0]);
	id_of(f, "two", id[1]);
	assert_string_equal(id[0], id[1]);
	shell(f, "test -z \"$(ls -d out.* 2>/dev/null)\"");
}

static void layers_of_overlaybd_are_kept_as_they_are(void **state)
{
	struct fixture *f = *state;
	char id[4][IMAGE_SHA256_LEN + 1];
	struct image image;

	shell(f, "tar xzf $TOP/tests/data/overlaybd-ext4_64.tar.gz; mkdir dir named wrap; cp ext4_64 dir/overlaybd.commit; cp ext4_64 named/00");
	shell(f, "echo '{\"lowers\":[{\"file\":\"/somewhere/overlaybd.commit\"}]}' >dir/config.v1.json; tar cf wrapped --format=ustar ext4_64");
	import(f, "ext4_64", "file");
	import(f, "dir", "dir");
	import(f, "named", "named");
	import(f, "wrapped", "wrapped");
	id_of(f, "file", id[0]);
	id_of(f, "dir", id[1]);
	id_of(f, "named", id[2]);
	assert_string_equal(id[0], id[1]);
	assert_string_equal(id[0], id[2]);
	shell(f, "test $(stat -c %h images/file/*.lsmt) = 3");
	assert_int_equal(image_store_resolve(&f->store, "wrapped", &image, &f->err), 0);
	assert_int_equal(image.size, 64ull << 30);
	assert_int_equal(image.format, IMAGE_FORMAT_EXT4);
	image_finish(&image);
}

static void the_root_of_a_disk_is_taken(void **state)
{
	struct fixture *f = *state;
	struct image image;

	shell(f, "truncate -s 8M fs; mke2fs -q -F -t ext4 fs; qemu-img convert -O qcow2 fs fs.qcow2");
	/* A table with a partition of FAT at sector 1 and one of Linux at 64. */
	shell(f, "python3 -c '\n"
		 "import struct\n"
		 "e = lambda kind, at, n: struct.pack(\"<B3sB3sII\", 0, bytes(3), kind, bytes(3), at, n)\n"
		 "head = bytes(446) + e(12, 1, 60) + e(0x83, 64, 16384) + bytes(32) + b\"\\x55\\xaa\"\n"
		 "open(\"disk\", \"wb\").write(head + bytes(63 * 512) + open(\"fs\", \"rb\").read())\n"
		 "two = bytes(446) + e(0x83, 1, 60) + e(0x83, 64, 16384) + bytes(32) + b\"\\x55\\xaa\"\n"
		 "open(\"two\", \"wb\").write(two + bytes(63 * 512) + open(\"fs\", \"rb\").read())\n"
		 "beyond = bytes(446) + e(0x83, 64, 1 << 30) + bytes(48) + b\"\\x55\\xaa\"\n"
		 "open(\"beyond\", \"wb\").write(beyond + bytes(1 << 20))\n'");
	import(f, "fs", "fs");
	import(f, "fs.qcow2", "qcow2");
	import(f, "disk", "disk");
	for (int k = 0; k < 3; k++) {
		static const char *const names[] = { "fs", "qcow2", "disk" };

		assert_int_equal(image_store_resolve(&f->store, names[k], &image, &f->err), 0);
		assert_int_equal(image.size, 8 << 20);
		assert_int_equal(image.format, IMAGE_FORMAT_EXT4);
		image_finish(&image);
	}
	assert_int_equal(import_sized(f, "two", "two", 0), -EINVAL);
	assert_non_null(strstr(f->err.text, "2 partitions"));
	assert_int_equal(import_sized(f, "beyond", "beyond", 0), -EINVAL);
	assert_non_null(strstr(f->err.text, "not inside the disk"));
}

static void the_root_of_a_disk_with_a_gpt_is_taken(void **state)
{
	static const struct {
		const char *out, *kinds, *error;
	} cases[] = {
		{ "root", "efi linux linux root", NULL }, { "linux", "efi linux", NULL }, { "two", "efi linux linux", "2 of them for Linux" },
		{ "none", "efi efi", "0 of them for Linux" }, { "out", "efi outside", "not inside the disk" },
		{ "x-many", "root", "GPT is damaged" },
	};
	struct fixture *f = *state;
	struct image image;

	shell(f, "truncate -s 8M fs; mke2fs -q -F -t ext4 fs");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char script[200];
		int r;

		snprintf(script, sizeof(script), "python3 $TOP/tests/long/make_gpt.py fs %s %s", cases[i].out, cases[i].kinds);
		shell(f, script);
		r = import_sized(f, cases[i].out, cases[i].out, 0);
		if (cases[i].error != NULL) {
			assert_int_equal(r, -EINVAL);
			if (strstr(f->err.text, cases[i].error) == NULL)
				fail_msg("%s: %s", cases[i].out, f->err.text);
			continue;
		}
		if (r < 0)
			fail_msg("%s: %s", cases[i].out, f->err.text);
		assert_int_equal(image_store_resolve(&f->store, cases[i].out, &image, &f->err), 0);
		assert_int_equal(image.size, 8 << 20);
		assert_int_equal(image.format, IMAGE_FORMAT_EXT4);
		image_finish(&image);
	}
}

static void hostile_images_are_refused_and_leave_nothing(void **state)
{
	struct fixture *f = *state;
	struct dirent **list;
	char path[PATH_MAX];
	int n, bad = 0;

	shell(f, "mkdir cases; python3 $TOP/tests/long/import_hostile.py cases");
	snprintf(path, sizeof(path), "%s/cases", f->base);
	n = scandir(path, &list, NULL, alphasort);
	assert_true(n > 30);
	for (int k = 0; k < n; k++) {
		_cleanup_free_ uint8_t *says = NULL;
		size_t len;

		if (list[k]->d_name[0] != '.') {
			snprintf(path, sizeof(path), "%s/cases/%s/says", f->base, list[k]->d_name);
			assert_int_equal(file_read(path, 4096, &says, &len, &f->err), 0);
			snprintf(path, sizeof(path), "cases/%s/it", list[k]->d_name);
			if (import_sized(f, path, "hostile", 16 << 20) >= 0 || strstr(f->err.text, (char *)says) == NULL) {
				fprintf(stderr, "%s: '%s' does not say '%s'\n", list[k]->d_name, f->err.text, says);
				bad++;
			}
		}
		free(list[k]);
	}
	free(list);
	assert_int_equal(bad, 0);
	shell(f, "test -z \"$(ls builds)\"; test -z \"$(ls images)\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_image_of_umoci_is_what_umoci_unpacks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(layouts_and_saved_images_in_archives_are_the_same_image, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_tar_is_what_tar_extracts, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_exported_layout_is_imported_as_the_same_layers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(layers_of_overlaybd_are_kept_as_they_are, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_archive_is_one_layer_however_it_is_compressed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(only_the_same_bytes_are_shared, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_root_of_a_disk_is_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_root_of_a_disk_with_a_gpt_is_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(hostile_images_are_refused_and_leave_nothing, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("image_import", tests, NULL, NULL);
}
