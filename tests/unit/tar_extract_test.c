/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking: modes, times, links, and no way out of the directory. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/tar_extract.h"
#include "lib/util.h"

static char top[64], inside[80], outside[80];
static int dirfd;
static struct tar_extract x;
static struct err err;
static char stream[1024 * 1024];
static size_t length;

static void run(const char *command)
{
	char full[1024];

	snprintf(full, sizeof(full), "cd %s && %s", top, command);
	assert_int_equal(system(full), 0);
}

static int setup(void **s)
{
	(void)s;
	strcpy(top, "/tmp/coffer-extract-XXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(inside, sizeof(inside), "%s/in", top);
	snprintf(outside, sizeof(outside), "%s/out", top);
	assert_int_equal(mkdir(inside, 0755), 0);
	assert_int_equal(mkdir(outside, 0755), 0);
	dirfd = open(inside, O_RDONLY | O_DIRECTORY);
	length = 0;
	return 0;
}

static int teardown(void **s)
{
	char command[128];

	(void)s;
	close(dirfd);
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

static void add(enum tar_type type, const char *name, const char *link, uint32_t mode, const char *content)
{
	struct tar_entry *e = calloc(1, sizeof(*e));
	ssize_t n;

	e->type = type;
	e->mode = mode;
	e->uid = 12;
	e->gid = 34;
	e->mtime_s = 1000000000;
	e->mtime_ns = 5;
	e->size = content ? strlen(content) : 0;
	strcpy(e->name, name);
	strcpy(e->link, link);
	n = tar_header_make(e, stream + length, sizeof(stream) - length);
	assert_true(n > 0);
	length += (size_t)n;
	if (content) {
		memset(stream + length, 0, ALIGN_UP(e->size, (uint64_t)TAR_BLOCK));
		memcpy(stream + length, content, e->size);
		length += ALIGN_UP(e->size, (uint64_t)TAR_BLOCK);
	}
	free(e);
}

static int unpack_with(const struct tar_extract_options *o)
{
	int rc = 0;

	err = ERR_INIT;
	tar_extract_init(&x, dirfd, o);
	for (size_t pos = 0; pos < length && rc == 0; pos += 1000)
		rc = tar_extract_feed(&x, stream + pos, MIN((size_t)1000, length - pos), &err);
	if (rc == 0)
		rc = tar_extract_finish(&x, &err);
	tar_extract_abort(&x);
	return rc;
}

static int unpack(void)
{
	struct tar_extract_options o = { .uid = geteuid(), .gid = getegid() };

	return unpack_with(&o);
}

static struct stat status(const char *name)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		fail_msg("%s: %s", name, strerror(errno));
	return st;
}

static bool exists(const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void expect_content(const char *name, const char *content)
{
	char buf[256] = "";
	int fd = openat(dirfd, name, O_RDONLY);

	if (fd < 0)
		fail_msg("%s: %s", name, strerror(errno));
	assert_true(read(fd, buf, sizeof(buf) - 1) >= 0);
	assert_string_equal(buf, content);
	close(fd);
}

static void all_kinds_are_made_as_described(void **s)
{
	char target[16] = "";
	mode_t mask = umask(077);

	(void)s;
	add(TAR_DIR, "d", "", 0751, NULL);
	add(TAR_FILE, "d/f", "", 04755, "content");
	add(TAR_FILE, "d/ro", "", 0444, "x");
	add(TAR_SYMLINK, "d/l", "f", 0777, NULL);
	add(TAR_HARDLINK, "d/h", "d/f", 0, NULL);
	add(TAR_FIFO, "d/p", "", 0623, NULL);
	add(TAR_DIR, "d/e", "", 0500, NULL);
	add(TAR_FILE, "d/e/g", "", 0600, "in a read-only directory");
	assert_int_equal(unpack(), 0);
	umask(mask);
	assert_int_equal(status("d").st_mode, S_IFDIR | 0751);
	assert_int_equal(status("d/f").st_mode, S_IFREG | 04755);
	expect_content("d/f", "content");
	assert_int_equal(status("d/ro").st_mode, S_IFREG | 0444);
	assert_true(S_ISLNK(status("d/l").st_mode));
	assert_true(readlinkat(dirfd, "d/l", target, sizeof(target)) == 1 && target[0] == 'f');
	assert_int_equal(status("d/h").st_ino, status("d/f").st_ino);
	assert_int_equal(status("d/p").st_mode, S_IFIFO | 0623);
	assert_int_equal(status("d/e").st_mode, S_IFDIR | 0500);
	expect_content("d/e/g", "in a read-only directory");
	assert_int_equal(x.entries, 8);
}

static void times_are_kept_also_of_directories(void **s)
{
	static const char *const names[] = { "d", "d/f", "d/l", "d/e", "d/e/g" };

	(void)s;
	add(TAR_DIR, "d", "", 0755, NULL);
	add(TAR_FILE, "d/f", "", 0644, "x");
	add(TAR_DIR, "d/e", "", 0755, NULL);
	add(TAR_FILE, "d/e/g", "", 0644, "x");
	add(TAR_SYMLINK, "d/l", "f", 0777, NULL);
	add(TAR_DIR, "z", "", 0755, NULL);
	assert_int_equal(unpack(), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		assert_int_equal(status(names[i]).st_mtim.tv_sec, 1000000000);
		assert_int_equal(status(names[i]).st_mtim.tv_nsec, 5);
	}
}

static void owners_are_as_asked_for(void **s)
{
	struct tar_extract_options keep = { .keep_owner = true }, given = { .uid = 56, .gid = 78 };

	(void)s;
	if (geteuid() != 0) {
		print_message("giving files away needs root\n");
		skip();
	}
	add(TAR_DIR, "new/d", "", 0755, NULL);
	add(TAR_FILE, "new/d/f", "", 04755, "x");
	add(TAR_SYMLINK, "new/d/l", "f", 0777, NULL);
	assert_int_equal(unpack_with(&keep), 0);
	assert_int_equal(status("new/d").st_uid, 12);
	assert_int_equal(status("new/d/f").st_gid, 34);
	assert_int_equal(status("new/d/f").st_mode, S_IFREG | 04755); /* set-uid survives the change of owner */
	assert_int_equal(status("new/d/l").st_uid, 12);
	run("rm -r in/new");
	assert_int_equal(unpack_with(&given), 0);
	assert_int_equal(status("new/d/f").st_uid, 56);
	assert_int_equal(status("new/d/l").st_gid, 78);
	assert_int_equal(status("new").st_uid, 56); /* not in the stream */
}

static void missing_directories_are_made(void **s)
{
	(void)s;
	add(TAR_FILE, "./a//b/./c/f", "", 0644, "x");
	assert_int_equal(unpack(), 0);
	expect_content("a/b/c/f", "x");
	assert_int_equal(status("a/b").st_mode, S_IFDIR | 0755);
}

static void existing_directories_are_left_as_they_are(void **s)
{
	(void)s;
	run("mkdir -m 700 in/d");
	add(TAR_DIR, ".", "", 0777, NULL);
	add(TAR_DIR, "d", "", 0777, NULL);
	add(TAR_FILE, "d/f", "", 0644, "x");
	assert_int_equal(unpack(), 0);
	assert_int_equal(status("d").st_mode, S_IFDIR | 0700);
	assert_int_equal(status(".").st_mode, S_IFDIR | 0755);
}

static void files_take_the_place_of_files_and_links(void **s)
{
	(void)s;
	run("echo old >in/f; ln in/f in/other; echo precious >out/p; ln -s ../out/p in/l; ln -s nowhere in/m");
	add(TAR_FILE, "f", "", 0644, "new");
	add(TAR_FILE, "l", "", 0644, "new");
	add(TAR_SYMLINK, "m", "f", 0777, NULL);
	assert_int_equal(unpack(), 0);
	expect_content("f", "new");
	expect_content("other", "old\n");
	expect_content("l", "new");
	expect_content("m", "new");
	run("grep -q precious out/p");
}

static void a_hard_link_made_again_is_no_error(void **s)
{
	(void)s;
	add(TAR_FILE, "f", "", 0644, "x");
	add(TAR_HARDLINK, "h", "f", 0, NULL);
	add(TAR_HARDLINK, "h", "f", 0, NULL);
	assert_int_equal(unpack(), 0);
	assert_int_equal(status("f").st_nlink, 2);
	run("test $(ls -A in | wc -l) = 2");
}

static void directories_and_files_never_replace_each_other(void **s)
{
	(void)s;
	run("mkdir in/d; touch in/f");
	add(TAR_FILE, "d", "", 0644, "x");
	assert_int_equal(unpack(), -EISDIR);
	length = 0;
	add(TAR_DIR, "f", "", 0755, NULL);
	assert_int_equal(unpack(), -ENOTDIR);
	length = 0;
	add(TAR_FILE, "f/g", "", 0755, "x");
	assert_int_equal(unpack(), -ENOTDIR);
	run("test -d in/d && test -f in/f && test $(ls -A in | wc -l) = 2");
}

static void names_that_lead_out_are_refused(void **s)
{
	static const char *const names[] = { "../out/evil", "a/../../out/evil", "..", "a/..", "/evil", "//evil", "./../evil", "a/b/../../../out/evil" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		length = 0;
		add(TAR_FILE, names[i], "", 0644, "x");
		if (unpack() != -EINVAL)
			fail_msg("not refused: %s", names[i]);
		length = 0;
		add(TAR_DIR, names[i], "", 0755, NULL);
		assert_int_equal(unpack(), -EINVAL);
		length = 0;
		add(TAR_FILE, "f", "", 0644, "x");
		add(TAR_HARDLINK, "h", names[i], 0, NULL);
		assert_int_equal(unpack(), -EINVAL);
	}
	run("test -z \"$(ls -A out)\" && test ! -e /evil");
}

static void names_with_dots_in_them_are_fine(void **s)
{
	(void)s;
	add(TAR_FILE, "..a", "", 0644, "x");
	add(TAR_FILE, "a..", "", 0644, "x");
	add(TAR_FILE, "...", "", 0644, "x");
	assert_int_equal(unpack(), 0);
	assert_true(exists("..a") && exists("a..") && exists("..."));
}

static void links_of_the_stream_lead_nowhere(void **s)
{
	char absolute[128];

	(void)s;
	add(TAR_SYMLINK, "l", "../out", 0777, NULL);
	add(TAR_FILE, "l/evil", "", 0644, "x");
	assert_int_equal(unpack(), -EXDEV);
	assert_non_null(strstr(err.text, "leads out"));
	snprintf(absolute, sizeof(absolute), "%s", outside);
	length = 0;
	add(TAR_SYMLINK, "m", absolute, 0777, NULL);
	add(TAR_FILE, "m/evil", "", 0644, "x");
	assert_int_equal(unpack(), -EXDEV);
	length = 0;
	add(TAR_SYMLINK, "n", "../out", 0777, NULL);
	add(TAR_DIR, "n", "", 0700, NULL);
	assert_int_equal(unpack(), -EXDEV);
	run("test -z \"$(ls -A out)\"");
}

static void a_hard_link_through_a_link_is_refused(void **s)
{
	(void)s;
	run("echo secret >out/secret; ln -s ../out in/old");
	add(TAR_HARDLINK, "h", "old/secret", 0, NULL);
	assert_int_equal(unpack(), -EXDEV);
	assert_false(exists("h"));
}

static void a_hard_link_to_a_link_does_not_follow_it(void **s)
{
	(void)s;
	run("echo secret >out/secret");
	add(TAR_SYMLINK, "l", "../out/secret", 0777, NULL);
	add(TAR_HARDLINK, "h", "l", 0, NULL);
	assert_int_equal(unpack(), 0);
	assert_true(S_ISLNK(status("h").st_mode));
}

static void links_inside_are_followed(void **s)
{
	(void)s;
	run("mkdir -p in/usr/bin; ln -s usr/bin in/bin");
	add(TAR_DIR, "bin", "", 0755, NULL);
	add(TAR_FILE, "bin/tool", "", 0755, "x");
	assert_int_equal(unpack(), 0);
	expect_content("usr/bin/tool", "x");
	assert_true(S_ISLNK(status("bin").st_mode));
}

static void without_links_those_inside_are_not_followed_either(void **s)
{
	struct tar_extract_options o = { .no_links = true, .uid = geteuid(), .gid = getegid() };

	(void)s;
	run("mkdir -p in/a; ln -s a in/l");
	add(TAR_DIR, "l", "", 0755, NULL);
	assert_int_equal(unpack_with(&o), -ELOOP);
	assert_non_null(strstr(err.text, "unpack 'l': there is a symbolic link in the place of a directory: remove it first"));
	length = 0;
	add(TAR_FILE, "l/f", "", 0755, "x");
	assert_int_equal(unpack_with(&o), -ELOOP);
	length = 0;
	add(TAR_FILE, "l/new/f", "", 0755, "x"); /* its directories are not made through the link */
	assert_int_equal(unpack_with(&o), -ELOOP);
	run("test -z \"$(ls -A in/a)\"");
	length = 0;
	add(TAR_FILE, "l", "", 0755, "x");
	assert_int_equal(unpack_with(&o), 0);
	expect_content("l", "x");
	assert_true(S_ISREG(status("l").st_mode));
}

static void in_the_root_absolute_links_stay_inside(void **s)
{
	struct tar_extract_options o = { .in_root = true, .uid = geteuid(), .gid = getegid() };

	(void)s;
	run("mkdir in/run; ln -s /run in/var; ln -s ../../../../out in/up");
	add(TAR_FILE, "var/f", "", 0644, "x");
	assert_int_equal(unpack_with(&o), 0);
	expect_content("run/f", "x");
	length = 0;
	add(TAR_FILE, "up/f", "", 0644, "x");
	assert_int_equal(unpack_with(&o), -ENOENT); /* there is no /out in that root */
	run("test -z \"$(ls -A out)\"");
}

static void messages_name_the_whole_path_when_it_is_known(void **s)
{
	struct tar_extract_options o = { .where = "/a/b", .uid = geteuid(), .gid = getegid() };

	(void)s;
	run("mkdir in/d");
	add(TAR_FILE, "d", "", 0644, "x");
	assert_int_equal(unpack_with(&o), -EISDIR);
	assert_string_equal(err.text, "unpack '/a/b/d': put in place: Is a directory");
	o.where = "/";
	assert_int_equal(unpack_with(&o), -EISDIR);
	assert_string_equal(err.text, "unpack '/d': put in place: Is a directory");
}

static void a_file_that_is_not_whole_does_not_appear(void **s)
{
	(void)s;
	run("echo old >in/f");
	add(TAR_FILE, "f", "", 0644, "this is new content");
	length -= TAR_BLOCK - 4;
	assert_int_equal(unpack(), -EINVAL);
	expect_content("f", "old\n");
	run("test $(ls -A in | wc -l) = 1");
}

static void deep_trees_are_unpacked(void **s)
{
	char name[TAR_PATH_MAX] = "d";

	(void)s;
	for (int i = 0; i < TAR_EXTRACT_DEPTH + 20; i++) {
		add(TAR_DIR, name, "", 0755, NULL);
		strcat(name, "/d");
	}
	add(TAR_FILE, name, "", 0644, "deep");
	assert_int_equal(unpack(), 0);
	expect_content(name, "deep");
	assert_int_equal(status("d").st_mtim.tv_sec, 1000000000);
}

static void what_gnu_tar_writes_is_understood(void **s)
{
	static const char *const formats[] = { "gnu", "pax", "ustar", "oldgnu", "v7" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++) {
		char command[512], path[128];
		int fd;
		ssize_t n;

		snprintf(command, sizeof(command),
			 "rm -rf src in/* t.tar; mkdir -p src/sub/%s; echo hello >src/sub/f; chmod 4711 src/sub/f; ln -s f src/sub/l; "
			 "ln src/sub/f src/h; echo long >src/sub/$(printf %%0%dd 7); touch -d @1234567890 src/sub/f; "
			 "tar --format=%s -cf t.tar -C src .",
			 i < 2 ? "dddddddddddddddddddddddddddddddddddddddddddddddddddddddddd/eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee/fffffffffffff" : "d",
			 i < 2 ? 200 : 20, formats[i]);
		run(command);
		snprintf(path, sizeof(path), "%s/t.tar", top);
		fd = open(path, O_RDONLY);
		n = read(fd, stream, sizeof(stream));
		assert_true(n > 0 && n < (ssize_t)sizeof(stream));
		close(fd);
		length = (size_t)n;
		if (unpack() < 0)
			fail_msg("%s: %s", formats[i], err.text);
		run("diff -r src in && test $(stat -c %a in/sub/f) = 4711 && test $(stat -c %Y in/sub/f) = 1234567890 && "
		    "test $(stat -c %h in/h) = 2 && test $(readlink in/sub/l) = f");
	}
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(all_kinds_are_made_as_described),
		T(times_are_kept_also_of_directories),
		T(owners_are_as_asked_for),
		T(missing_directories_are_made),
		T(existing_directories_are_left_as_they_are),
		T(files_take_the_place_of_files_and_links),
		T(a_hard_link_made_again_is_no_error),
		T(directories_and_files_never_replace_each_other),
		T(names_that_lead_out_are_refused),
		T(names_with_dots_in_them_are_fine),
		T(links_of_the_stream_lead_nowhere),
		T(a_hard_link_through_a_link_is_refused),
		T(a_hard_link_to_a_link_does_not_follow_it),
		T(links_inside_are_followed),
		T(without_links_those_inside_are_not_followed_either),
		T(in_the_root_absolute_links_stay_inside),
		T(messages_name_the_whole_path_when_it_is_known),
		T(a_file_that_is_not_whole_does_not_appear),
		T(deep_trees_are_unpacked),
		T(what_gnu_tar_writes_is_understood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
