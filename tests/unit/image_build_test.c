/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host/image_build with its sources and the ext4 writer: images of directories and archives, looked at by e2fsck and
 * debugfs, and archives that want something else than to be an image.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>

#include "host/file.h"
#include "host/image_build.h"
#include "host/image_export.h"
#include "lib/fd.h"
#include "lib/tar.h"
#include "lib/util.h"

struct fixture {
	char base[64];
	char source[96]; /* directory or archive to build from */
	char image[192]; /* the disk of "one", unpacked */
	struct image_store store;
	struct err err;

	/* The archive being written. */
	int tar;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	strcpy(f->base, "/tmp/coffer-build-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	assert_int_equal(image_store_init(&f->store, f->base, &f->err), 0);
	snprintf(f->source, sizeof(f->source), "%s/source", f->base);
	snprintf(f->image, sizeof(f->image), "%s/disk", f->base);
	f->tar = -1;
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	fd_close(f->tar);
	file_remove_tree(AT_FDCWD, f->base);
	free(f);
	return 0;
}

/* ---- making sources ---- */

static void open_tar(struct fixture *f)
{
	f->tar = open(f->source, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(f->tar >= 0);
}

static void put_member(struct fixture *f, struct tar_entry e, const void *data)
{
	char buf[TAR_HEADER_MAX];
	ssize_t n = tar_header_make(&e, buf, sizeof(buf));

	assert_true(n > 0);
	assert_int_equal(fd_write_full(f->tar, buf, (size_t)n), 0);
	if (e.size == 0)
		return;
	assert_int_equal(fd_write_full(f->tar, data, e.size), 0);
	memset(buf, 0, TAR_BLOCK);
	assert_int_equal(fd_write_full(f->tar, buf, -e.size & (TAR_BLOCK - 1)), 0);
}

static struct tar_entry member(enum tar_type type, const char *name, uint32_t mode)
{
	struct tar_entry e = { .type = type, .mode = mode };

	snprintf(e.name, sizeof(e.name), "%s", name);
	return e;
}

static void put_file(struct fixture *f, const char *name, const char *text)
{
	struct tar_entry e = member(TAR_FILE, name, 0644);

	e.size = strlen(text);
	put_member(f, e, text);
}

static void put_link(struct fixture *f, enum tar_type type, const char *name, const char *target)
{
	struct tar_entry e = member(type, name, 0777);

	snprintf(e.link, sizeof(e.link), "%s", target);
	put_member(f, e, NULL);
}

/* A raw header, for what the writer does not make. */
static void put_raw(struct fixture *f, const char *name, char type, const char *devmajor, const char *devminor, const void *data,
		    size_t size)
{
	unsigned char h[TAR_BLOCK] = { 0 };
	unsigned sum = 0;

	snprintf((char *)h, 100, "%s", name);
	strcpy((char *)h + 100, "0000600");
	strcpy((char *)h + 108, "0000000");
	strcpy((char *)h + 116, "0000000");
	snprintf((char *)h + 124, 12, "%011zo", size);
	strcpy((char *)h + 136, "00000000000");
	h[156] = (unsigned char)type;
	memcpy(h + 257, "ustar\0" "00", 8);
	snprintf((char *)h + 329, 8, "%s", devmajor);
	snprintf((char *)h + 337, 8, "%s", devminor);
	memset(h + 148, ' ', 8);
	for (size_t i = 0; i < sizeof(h); i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
	assert_int_equal(fd_write_full(f->tar, h, sizeof(h)), 0);
	if (size > 0) {
		memset(h, 0, sizeof(h));
		memcpy(h, data, size);
		assert_int_equal(fd_write_full(f->tar, h, sizeof(h)), 0);
	}
}

static void end_tar(struct fixture *f)
{
	static const char zeros[2 * TAR_BLOCK];

	assert_int_equal(fd_write_full(f->tar, zeros, sizeof(zeros)), 0);
	f->tar = fd_close(f->tar);
}

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
	char command[PATH_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	assert_int_equal(system(command), 0);
}

/* ---- building and looking ---- */

/* The image's disk as a file, for e2fsprogs. */
static void unpack_disk(struct fixture *f)
{
	_cleanup_close_ int fd = open(f->image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct image image;

	assert_true(fd >= 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &f->err), 0);
	if (image_export_raw(&image, fd, NULL, &f->err) < 0)
		fail_msg("%s", f->err.text);
	image_finish(&image);
}

static int build_with(struct fixture *f, struct image_build_options o)
{
	int r;

	o.source = f->source;
	o.name = "one";
	f->err = ERR_INIT;
	r = image_build(&f->store, &o, NULL, NULL, &f->err);
	if (r == 0)
		unpack_disk(f);
	return r;
}

static int build(struct fixture *f)
{
	return build_with(f, (struct image_build_options){ 0 });
}

static void check_fs(struct fixture *f)
{
	run("/sbin/e2fsck -fn '%s' >'%s/fsck' 2>&1 || { cat '%s/fsck'; exit 1; }", f->image, f->base, f->base);
}

static void build_and_check(struct fixture *f)
{
	int r = build(f);

	if (r < 0)
		print_message("%s\n", f->err.text);
	assert_int_equal(r, 0);
	check_fs(f);
}

/* What debugfs prints for `request`. */
static const char *debugfs(struct fixture *f, const char *request, char *out, size_t len)
{
	char command[PATH_MAX];
	size_t n;
	FILE *p;

	snprintf(command, sizeof(command), "/sbin/debugfs -R '%s' '%s' 2>/dev/null", request, f->image);
	p = popen(command, "r");
	assert_non_null(p);
	n = fread(out, 1, len - 1, p);
	out[n] = '\0';
	pclose(p);
	return out;
}

static void assert_has(const char *text, const char *part)
{
	if (strstr(text, part) == NULL)
		fail_msg("'%s' is not in:\n%s", part, text);
}

static unsigned leftovers(struct fixture *f)
{
	char command[PATH_MAX];
	unsigned n = 99;
	FILE *p;

	snprintf(command, sizeof(command), "ls -A '%s/builds' '%s/images' | grep -vc : || true", f->base, f->base);
	p = popen(command, "r");
	assert_non_null(p);
	assert_int_equal(fscanf(p, "%u", &n), 1);
	pclose(p);
	return n - (n > 0); /* the empty line between the two lists */
}

static void assert_refused(struct fixture *f, int code, const char *words)
{
	int r = build(f);

	if (r != code)
		print_message("%d: %s\n", r, f->err.text);
	assert_int_equal(r, code);
	assert_has(f->err.text, words);
	assert_int_equal(leftovers(f), 0);
}

/* ---- directories ---- */

static void directory_becomes_an_image(void **state)
{
	struct fixture *f = *state;
	char out[4096];

	run("mkdir -p '%s/etc/deep/er' && cd '%s' && echo hello >etc/motd && chmod 640 etc/motd && ln -s /etc/motd link && "
	    "chmod 1777 etc/deep && mkfifo pipe && : >empty && ln etc/motd etc/hard",
	    f->source, f->source);
	build_and_check(f);
	assert_string_equal(debugfs(f, "cat /etc/motd", out, sizeof(out)), "hello\n");
	assert_has(debugfs(f, "stat /etc/motd", out, sizeof(out)), "Mode:  0640");
	assert_has(out, "Links: 2");
	assert_has(debugfs(f, "stat /etc/deep", out, sizeof(out)), "Mode:  01777");
	assert_has(out, "Links: 3");
	assert_has(debugfs(f, "stat /link", out, sizeof(out)), "Fast link dest: \"/etc/motd\"");
	assert_has(debugfs(f, "stat /pipe", out, sizeof(out)), "Type: FIFO");
	assert_has(debugfs(f, "stat /empty", out, sizeof(out)), "Size: 0");
}

static void owners_are_those_of_the_source(void **state)
{
	struct fixture *f = *state;
	char out[4096], mine[64];

	run("mkdir '%s' && : >'%s/f'", f->source, f->source);
	build_and_check(f);
	snprintf(mine, sizeof(mine), "User: %5u   Group: %5u", (unsigned)geteuid(), (unsigned)getegid());
	assert_has(debugfs(f, "stat /f", out, sizeof(out)), mine);
}

static void sources_can_be_given_to_root(void **state)
{
	struct fixture *f = *state;
	char out[4096];
	struct tar_entry e = member(TAR_FILE, "f", 0644);

	e.uid = 1000;
	e.gid = 70000;
	open_tar(f);
	put_member(f, e, NULL);
	end_tar(f);
	assert_int_equal(build_with(f, (struct image_build_options){ .root_owner = true }), 0);
	assert_has(debugfs(f, "stat /f", out, sizeof(out)), "User:     0   Group:     0");
}

static void holes_stay_holes(void **state)
{
	struct fixture *f = *state;
	char out[4096];
	struct stat st;

	run("mkdir '%s' && cd '%s' && truncate -s 64M sparse && printf x | dd of=sparse bs=1 seek=33554432 conv=notrunc status=none",
	    f->source, f->source);
	build_and_check(f);
	assert_has(debugfs(f, "stat /sparse", out, sizeof(out)), "Size: 67108864");
	assert_has(out, "Blockcount: 8\n");
	assert_int_equal(stat(f->image, &st), 0);
	assert_true(st.st_size > (off_t)MIB(64));
	assert_true(st.st_blocks * 512 < (off_t)MIB(4));
}

static void large_file_is_the_same(void **state)
{
	struct fixture *f = *state;

	char path[128], text[32];
	int fd;

	/* Pieces of a block each between holes: more extents than an inode and one index block hold. */
	run("mkdir '%s' && head -c 20000001 /dev/urandom >'%s/random'", f->source, f->source);
	snprintf(path, sizeof(path), "%s/pieces", f->source);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	for (int i = 0; i < 400; i++)
		assert_int_equal(fd_pwrite_full(fd, text, (size_t)snprintf(text, sizeof(text), "block %d", i), i * 8192), 0);
	close(fd);
	build_and_check(f);
	run("/sbin/debugfs -R 'dump /random %s/back' '%s' 2>/dev/null && cmp '%s/random' '%s/back'", f->base, f->image, f->source,
	    f->base);
	run("/sbin/debugfs -R 'dump /pieces %s/back2' '%s' 2>/dev/null && cmp '%s/pieces' '%s/back2'", f->base, f->image, f->source,
	    f->base);
}

static void directory_of_many_files_is_whole(void **state)
{
	struct fixture *f = *state;

	run("mkdir '%s' && cd '%s' && seq -f 'a-file-with-a-rather-long-name-%%05g' 1 3000 | xargs touch", f->source, f->source);
	build_and_check(f);
	run("test $(/sbin/debugfs -R 'ls -p /' '%s' 2>/dev/null | grep -c a-file) = 3000", f->image);
}

static void equal_sources_differ_only_in_the_file_systems_id(void **state)
{
	struct fixture *f = *state;
	char out[4096], again[4096];

	run("mkdir '%s' && cd '%s' && echo b >b && echo a >a && mkdir c && touch -d @1000 a b c .", f->source, f->source);
	build_and_check(f);
	debugfs(f, "ls -l /", out, sizeof(out));
	run("rm -rf '%s/images/one' && cd '%s' && rm a && echo a >a && touch -d @1000 a .", f->base, f->source);
	build_and_check(f);
	assert_string_equal(debugfs(f, "ls -l /", again, sizeof(again)), out);
}

static void mtime_is_kept(void **state)
{
	struct fixture *f = *state;
	char out[4096];

	run("mkdir '%s' && cd '%s' && touch -d '2004-05-06 07:08:09.123456789 UTC' f && touch -d '2200-01-01 UTC' late", f->source, f->source);
	build_and_check(f);
	setenv("TZ", "UTC", 1);
	assert_has(debugfs(f, "stat /f", out, sizeof(out)), "mtime: 0x4099e459:1d6f3454");
	assert_has(debugfs(f, "stat /late", out, sizeof(out)), "2200");
	unsetenv("TZ");
}

static void attributes_of_files_are_kept(void **state)
{
	struct fixture *f = *state;
	char path[192], out[4096];

	run("mkdir '%s' && : >'%s/f'", f->source, f->source);
	snprintf(path, sizeof(path), "%s/f", f->source);
	if (setxattr(path, "user.note", "yes", 3, 0) < 0)
		skip(); /* the file system of /tmp has none */
	build_and_check(f);
	assert_has(debugfs(f, "ea_list /f", out, sizeof(out)), "user.note (3) = \"yes\"");
}

static void empty_directory_is_refused(void **state)
{
	struct fixture *f = *state;

	run("mkdir '%s'", f->source);
	assert_refused(f, -EINVAL, "is empty");
}

/* ---- archives ---- */

static void archive_becomes_an_image(void **state)
{
	struct fixture *f = *state;
	struct tar_entry e = member(TAR_FILE, "./etc/shadow", 0600);
	char out[4096];

	open_tar(f);
	put_member(f, member(TAR_DIR, ".", 0755), NULL);
	put_member(f, member(TAR_DIR, "./etc", 0750), NULL);
	e.uid = 1234;
	e.gid = 100000;
	e.mtime_s = 0x4099e5c9;
	e.size = 6;
	put_member(f, e, "secret");
	put_link(f, TAR_SYMLINK, "./etc/mtab", "../proc/mounts");
	put_link(f, TAR_HARDLINK, "./etc/gshadow", "./etc/shadow");
	put_member(f, member(TAR_FIFO, "./pipe", 0622), NULL);
	end_tar(f);
	build_and_check(f);
	assert_string_equal(debugfs(f, "cat /etc/gshadow", out, sizeof(out)), "secret");
	assert_has(debugfs(f, "stat /etc/shadow", out, sizeof(out)), "Mode:  0600");
	assert_has(out, "User:  1234   Group: 100000");
	assert_has(out, "Links: 2");
	assert_has(out, "mtime: 0x4099e5c9");
	assert_has(debugfs(f, "stat /etc", out, sizeof(out)), "Mode:  0750");
	assert_has(debugfs(f, "stat /etc/mtab", out, sizeof(out)), "\"../proc/mounts\"");
}

static void compressed_archives_are_unpacked(void **state)
{
	static const char *const programs[] = { "gzip", "xz", "zstd -q" };
	struct fixture *f = *state;
	char out[4096];

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		open_tar(f);
		put_file(f, "f", programs[i]);
		end_tar(f);
		run("%s <'%s' >'%s.z' && mv '%s.z' '%s'", programs[i], f->source, f->source, f->source, f->source);
		assert_int_equal(build_with(f, (struct image_build_options){ .replace = true }), 0);
		assert_string_equal(debugfs(f, "cat /f", out, sizeof(out)), programs[i]);
	}
}

static void truncated_compressed_archive_is_refused(void **state)
{
	struct fixture *f = *state;

	open_tar(f);
	put_file(f, "f", "text");
	end_tar(f);
	run("gzip <'%s' | head -c 40 >'%s.z' && mv '%s.z' '%s'", f->source, f->source, f->source, f->source);
	assert_refused(f, -EIO, "gzip");
}

static void devices_are_in_the_image_only(void **state)
{
	struct fixture *f = *state;
	char out[4096];

	open_tar(f);
	put_raw(f, "dev/null", '3', "0000001", "0000003", NULL, 0);
	put_raw(f, "dev/sda", '4', "0000010", "0000000", NULL, 0);
	put_raw(f, "dev/big", '3', "0007777", "3777777", NULL, 0);
	end_tar(f);
	build_and_check(f);
	assert_has(debugfs(f, "stat /dev/null", out, sizeof(out)), "Device major/minor number: 01:03");
	assert_has(debugfs(f, "stat /dev/sda", out, sizeof(out)), "Type: block special");
	assert_has(debugfs(f, "stat /dev/big", out, sizeof(out)), "4095:1048575");
}

static void device_numbers_beyond_linux_are_refused(void **state)
{
	struct fixture *f = *state;

	open_tar(f);
	put_raw(f, "dev/x", '3', "0010000", "0000000", NULL, 0);
	end_tar(f);
	assert_refused(f, -EINVAL, "4096:0");
}

static void capabilities_of_programs_are_kept(void **state)
{
	/* "LENGTH KEY=VALUE\n": the value is a version 2 capability set with CAP_NET_RAW. */
	static const char record[] = "55 SCHILY.xattr.security.capability=\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\n"
				     "36 SCHILY.xattr.security.selinux=xx\n";
	struct fixture *f = *state;
	char out[4096];

	_Static_assert(sizeof(record) - 1 == 57 + 36, "what the records say");
	char patched[sizeof(record)];
	memcpy(patched, record, sizeof(record));
	memcpy(patched, "57", 2);
	open_tar(f);
	put_raw(f, "PaxHeader", 'x', "", "", patched, sizeof(record) - 1);
	put_file(f, "ping", "program");
	put_file(f, "other", "program");
	end_tar(f);
	build_and_check(f);
	assert_has(debugfs(f, "ea_list /ping", out, sizeof(out)), "security.capability (20)");
	assert_null(strstr(out, "selinux"));
	assert_null(strstr(debugfs(f, "ea_list /other", out, sizeof(out)), "capability"));
}

static void long_names_arrive(void **state)
{
	struct fixture *f = *state;
	char name[300], target[300], out[4096];

	memset(name, 'n', 255);
	name[255] = '\0';
	memset(target, 't', 299);
	target[299] = '\0';
	open_tar(f);
	put_file(f, name, "long");
	put_link(f, TAR_SYMLINK, "link", target);
	end_tar(f);
	build_and_check(f);
	assert_has(debugfs(f, "ls /", out, sizeof(out)), name);
	assert_has(debugfs(f, "stat /link", out, sizeof(out)), "Size: 299");
	assert_string_equal(debugfs(f, "cat /link", out, sizeof(out)), target);
}

static void names_beyond_the_limit_are_refused(void **state)
{
	struct fixture *f = *state;
	char name[300];

	memset(name, 'n', 256);
	name[256] = '\0';
	open_tar(f);
	put_file(f, name, "long");
	end_tar(f);
	assert_refused(f, -EINVAL, "256 bytes");
}

static void ways_out_are_refused(void **state)
{
	static const char *const names[] = { "../evil", "a/../../evil", "/..", "..", "a/.." };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		open_tar(f);
		put_file(f, names[i], "evil");
		end_tar(f);
		assert_refused(f, -EINVAL, names[i]);
	}
}

static void absolute_names_are_inside(void **state)
{
	struct fixture *f = *state;
	char out[4096], path[128];

	snprintf(path, sizeof(path), "%s/outside", f->base);
	open_tar(f);
	put_file(f, path, "text");
	put_link(f, TAR_SYMLINK, "abs", "/etc/passwd");
	end_tar(f);
	build_and_check(f);
	assert_int_equal(access(path, F_OK), -1);
	assert_string_equal(debugfs(f, (snprintf(out, sizeof(out), "cat %s", path), out), out, sizeof(out)), "text");
}

static void file_beneath_a_link_is_refused(void **state)
{
	struct fixture *f = *state;

	open_tar(f);
	put_link(f, TAR_SYMLINK, "l", f->base);
	put_file(f, "l/evil", "evil");
	end_tar(f);
	assert_refused(f, -EINVAL, "symbolic link");
}

static void hard_link_out_is_refused(void **state)
{
	static const char *const targets[] = { "/etc/passwd", "../../etc/passwd", "absent" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		open_tar(f);
		put_link(f, TAR_HARDLINK, "l", targets[i]);
		end_tar(f);
		assert_refused(f, -EINVAL, "hard link");
	}
}

static void cut_archive_is_refused(void **state)
{
	struct fixture *f = *state;
	struct tar_entry e = member(TAR_FILE, "f", 0644);
	char buf[TAR_HEADER_MAX];

	open_tar(f);
	e.size = (uint64_t)1 << 40;
	assert_int_equal(fd_write_full(f->tar, buf, (size_t)tar_header_make(&e, buf, sizeof(buf))), 0);
	end_tar(f);
	assert_refused(f, -EINVAL, "cut off");
}

static void what_is_no_archive_is_refused(void **state)
{
	struct fixture *f = *state;

	run("head -c 4096 /dev/zero | tr '\\0' x >'%s'", f->source);
	assert_refused(f, -EINVAL, "checksum");
	run(": >'%s'", f->source);
	assert_refused(f, -EINVAL, "empty");
	run("rm '%s'", f->source);
	assert_refused(f, -ENOENT, f->source);
}

static void sparse_member_is_refused(void **state)
{
	struct fixture *f = *state;

	open_tar(f);
	put_raw(f, "f", 'S', "", "", NULL, 0);
	end_tar(f);
	assert_refused(f, -EOPNOTSUPP, "'S'");
}

static void saved_container_images_are_recognised(void **state)
{
	struct fixture *f = *state;

	open_tar(f);
	put_file(f, "manifest.json", "[]");
	put_file(f, "abc/layer.tar", "x");
	end_tar(f);
	assert_refused(f, -EINVAL, "image import");
}

static void last_of_two_members_counts(void **state)
{
	struct fixture *f = *state;
	char out[4096];

	open_tar(f);
	put_file(f, "f", "first and longer");
	put_link(f, TAR_HARDLINK, "g", "f");
	put_file(f, "f", "second");
	put_link(f, TAR_SYMLINK, "lost+found/l", "x");
	end_tar(f);
	build_and_check(f);
	assert_string_equal(debugfs(f, "cat /f", out, sizeof(out)), "second");
	assert_string_equal(debugfs(f, "cat /g", out, sizeof(out)), "first and longer");
	assert_has(debugfs(f, "ls /lost+found", out, sizeof(out)), " l ");
}

static void lost_and_found_is_a_directory(void **state)
{
	struct fixture *f = *state;

	open_tar(f);
	put_file(f, "lost+found", "x");
	end_tar(f);
	assert_refused(f, -EINVAL, "lost+found");
}

/* ---- sizes ---- */

static void size_is_as_asked(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	open_tar(f);
	put_file(f, "f", "x");
	end_tar(f);
	/* Several block groups: the metadata of those above 2 GiB is apart from the first. */
	assert_int_equal(build_with(f, (struct image_build_options){ .size = GIB(2) + MIB(256) }), 0);
	check_fs(f);
	assert_int_equal(stat(f->image, &st), 0);
	assert_int_equal(st.st_size, GIB(2) + MIB(256));
	assert_true(st.st_blocks * 512 < (off_t)MIB(8));
}

static void size_costs_nothing_but_its_number(void **state)
{
	struct fixture *f = *state;
	struct image small, large;

	open_tar(f);
	put_file(f, "f", "x");
	end_tar(f);
	assert_int_equal(build_with(f, (struct image_build_options){ .size = MIB(64) }), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &small, &f->err), 0);
	assert_int_equal(build_with(f, (struct image_build_options){ .replace = true }), 0);
	check_fs(f);
	assert_int_equal(image_store_resolve(&f->store, "one", &large, &f->err), 0);
	assert_int_equal(large.size, IMAGE_BUILD_SIZE);
	assert_int_equal(large.nlayers, 1);
	assert_true(large.layer[0].bytes < small.layer[0].bytes + KIB(256));
	image_finish(&small);
	image_finish(&large);
}

static void size_that_is_too_small_is_refused(void **state)
{
	struct fixture *f = *state;

	run("mkdir '%s' && head -c 30000000 /dev/zero | tr '\\0' x >'%s/f'", f->source, f->source);
	assert_int_equal(build_with(f, (struct image_build_options){ .size = MIB(20) }), -ENOSPC);
	assert_has(f->err.text, "too small");
	assert_int_equal(leftovers(f), 0);
}

static void default_size_holds_many_small_files(void **state)
{
	struct fixture *f = *state;

	/* A thousand small files: inodes and directories are most of what is needed. */
	run("mkdir '%s' && cd '%s' && seq 1 50 | xargs mkdir && for d in $(seq 1 50); do for i in $(seq 1 20); do : >$d/$i; done; done",
	    f->source, f->source);
	build_and_check(f);
}

static void name_is_needed(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	assert_int_equal(image_build(&f->store, &(struct image_build_options){ .source = f->source }, NULL, NULL, &err), -EINVAL);
	assert_has(err.text, "--name");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(directory_becomes_an_image),
		TEST(owners_are_those_of_the_source),
		TEST(sources_can_be_given_to_root),
		TEST(holes_stay_holes),
		TEST(large_file_is_the_same),
		TEST(directory_of_many_files_is_whole),
		TEST(equal_sources_differ_only_in_the_file_systems_id),
		TEST(mtime_is_kept),
		TEST(attributes_of_files_are_kept),
		TEST(empty_directory_is_refused),
		TEST(archive_becomes_an_image),
		TEST(compressed_archives_are_unpacked),
		TEST(truncated_compressed_archive_is_refused),
		TEST(devices_are_in_the_image_only),
		TEST(device_numbers_beyond_linux_are_refused),
		TEST(capabilities_of_programs_are_kept),
		TEST(long_names_arrive),
		TEST(names_beyond_the_limit_are_refused),
		TEST(ways_out_are_refused),
		TEST(absolute_names_are_inside),
		TEST(file_beneath_a_link_is_refused),
		TEST(hard_link_out_is_refused),
		TEST(cut_archive_is_refused),
		TEST(what_is_no_archive_is_refused),
		TEST(sparse_member_is_refused),
		TEST(saved_container_images_are_recognised),
		TEST(last_of_two_members_counts),
		TEST(lost_and_found_is_a_directory),
		TEST(size_is_as_asked),
		TEST(size_costs_nothing_but_its_number),
		TEST(size_that_is_too_small_is_refused),
		TEST(default_size_holds_many_small_files),
		TEST(name_is_needed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
