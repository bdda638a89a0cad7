/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host/image_debian with programs of that name that the test makes: what they are told, that their tar becomes the image,
 * that it is kept, and when the kept one is used.
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
#include <unistd.h>
#include <cmocka.h>

#include "host/file.h"
#include "host/image_build.h"
#include "host/image_export.h"
#include "lib/fd.h"
#include "lib/util.h"

struct fixture {
	char base[64];
	char path[PATH_MAX]; /* PATH as it was */
	struct image_store store;
	struct err err, note;
};

static void put_program(struct fixture *f, const char *name, const char *script)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/bin/%s", f->base, name);
	assert_int_equal(file_write_atomic(path, script, strlen(script), 0755, false, &f->err), 0);
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char text[PATH_MAX + 128];

	assert_non_null(f);
	strcpy(f->base, "/tmp/coffer-debian-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	snprintf(text, sizeof(text), "%s/bin", f->base);
	assert_int_equal(mkdir(text, 0755), 0);
	snprintf(f->path, sizeof(f->path), "%s", getenv("PATH"));
	snprintf(text, sizeof(text), "%s/bin:%s", f->base, f->path);
	setenv("PATH", text, 1);
	snprintf(text, sizeof(text), "%s/cache", f->base);
	setenv("XDG_CACHE_HOME", text, 1);
	setenv("BASE", f->base, 1);
	assert_int_equal(image_store_init(&f->store, f->base, &f->err), 0);
	put_program(f, "apt-config",
		    "#!/bin/sh\necho 'Acquire::http::Proxy \"http://proxy.example:3128\";'\necho 'Acquire::Check-Date \"false\";'\n"
		    "echo 'Acquire::http::Empty \"\";'\necho 'APT::Install-Recommends \"true\";'\necho 'Dir::Etc \"etc/apt\";'\n");
	put_program(f, "mmdebstrap",
		    "#!/bin/sh\nprintf '%s\\n' \"$@\" >$BASE/args\ncat >$BASE/stdin\necho 'I: working' >&2\n"
		    "mkdir -p $BASE/root/bin\necho made >$BASE/root/bin/sh\ntar -C $BASE/root -c .\n");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	setenv("PATH", f->path, 1);
	file_remove_tree(AT_FDCWD, f->base);
	free(f);
	return 0;
}

static void assert_made(struct fixture *f, const char *name)
{
	char path[PATH_MAX];
	_cleanup_close_ int fd = -1;
	struct image image;

	assert_int_equal(image_store_resolve(&f->store, name, &image, &f->err), 0);
	snprintf(path, sizeof(path), "%s/disk", f->base);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(image_export_raw(&image, fd, NULL, &f->err), 0);
	assert_int_equal(system("/sbin/debugfs -R 'cat /bin/sh' $BASE/disk 2>/dev/null | grep -qx made"), 0);
	image_finish(&image);
}

static int build(struct fixture *f, struct image_build_options o)
{
	o.source = IMAGE_DEBIAN;
	f->err = f->note = ERR_INIT;
	return image_build(&f->store, &o, NULL, &f->note, &f->err);
}

static void assert_line(struct fixture *f, const char *file, const char *line, int count)
{
	char command[512];

	snprintf(command, sizeof(command), "test $(grep -cxF -- '%s' %s/%s) = %d || { cat %s/%s; exit 1; }", line, f->base, file, count,
		 f->base, file);
	assert_int_equal(system(command), 0);
}

static void fail_mmdebstrap(struct fixture *f)
{
	put_program(f, "mmdebstrap", "#!/bin/sh\necho partial\necho 'E: no mirror answers' >&2\necho 'I: cleaning' >&2\nexit 1\n");
}

static void tar_becomes_the_image(void **state)
{
	struct fixture *f = *state;
	struct image image;

	assert_int_equal(build(f, (struct image_build_options){ 0 }), 0);
	assert_int_equal(f->note.code, 0);
	assert_int_equal(image_store_resolve(&f->store, "debian", &image, &f->err), 0);
	assert_string_equal(image.source, "debian bookworm: python3,git,ca-certificates");
	assert_made(f, "debian");
	image_finish(&image);
}

static void programs_are_told_what_was_asked(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(build(f, (struct image_build_options){ .name = "other", .suite = "trixie",
								.mirror = "http://mirror.example/debian",
								.include = { .v = { "gcc,make", "vim" }, .n = 2 } }), 0);
	assert_line(f, "args", "--variant=minbase", 1);
	assert_line(f, "args", "--include=python3,git,ca-certificates,gcc,make,vim", 1);
	assert_line(f, "args", "trixie", 1);
	assert_line(f, "args", "-", 2);
	assert_line(f, "stdin", "deb http://mirror.example/debian trixie main", 1);
}

static void ways_to_the_mirror_go_along(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(build(f, (struct image_build_options){ 0 }), 0);
	assert_line(f, "args", "--aptopt=Acquire::http::Proxy \"http://proxy.example:3128\";", 1);
	assert_line(f, "args", "--aptopt=Acquire::Check-Date \"false\";", 1);
	assert_int_equal(system("test $(grep -c aptopt $BASE/args) = 2"), 0);
}

static void kept_packages_serve_when_no_mirror_answers(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(build(f, (struct image_build_options){ .name = "one" }), 0);
	fail_mmdebstrap(f);
	assert_int_equal(build(f, (struct image_build_options){ .name = "two" }), 0);
	assert_int_not_equal(f->note.code, 0);
	assert_non_null(strstr(f->note.text, "no mirror answers"));
	assert_made(f, "two");
}

static void kept_packages_are_those_of_the_same_options(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(build(f, (struct image_build_options){ .name = "one" }), 0);
	fail_mmdebstrap(f);
	assert_int_equal(build(f, (struct image_build_options){ .name = "two", .include = { .v = { "vim" }, .n = 1 } }), -EIO);
	assert_non_null(strstr(f->err.text, "no mirror answers"));
	assert_int_equal(system("test ! -e $BASE/images/two && test -z \"$(ls $BASE/builds)\""), 0);
}

static void cached_asks_no_mirror(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(build(f, (struct image_build_options){ .cached = true }), -ENOENT);
	assert_int_equal(build(f, (struct image_build_options){ 0 }), 0);
	put_program(f, "mmdebstrap", "#!/bin/sh\n: >$BASE/called\nexit 1\n");
	assert_int_equal(build(f, (struct image_build_options){ .name = "two", .cached = true }), 0);
	assert_int_equal(f->note.code, 0);
	assert_int_equal(system("test ! -e $BASE/called"), 0);
}

static void damaged_kept_packages_do_not_hide_the_reason(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(build(f, (struct image_build_options){ .name = "one" }), 0);
	assert_int_equal(system("for x in $BASE/cache/coffer/debian/*; do truncate -s 30 $x; done"), 0);
	fail_mmdebstrap(f);
	assert_int_equal(build(f, (struct image_build_options){ .name = "two" }), -EIO);
	assert_non_null(strstr(f->err.text, "no mirror answers"));
	assert_int_equal(build(f, (struct image_build_options){ .name = "two", .cached = true }), -EIO);
	assert_non_null(strstr(f->err.text, ".tar.zst"));
}

static void malformed_options_are_refused(void **state)
{
	struct fixture *f = *state;

	put_program(f, "mmdebstrap", "#!/bin/sh\n: >$BASE/called\nexit 1\n");
	assert_int_equal(build(f, (struct image_build_options){ .suite = "../x" }), -EINVAL);
	assert_int_equal(build(f, (struct image_build_options){ .suite = "" }), -EINVAL);
	assert_int_equal(build(f, (struct image_build_options){ .suite = "-x" }), -EINVAL);
	assert_int_equal(build(f, (struct image_build_options){ .mirror = "mirror" }), -EINVAL);
	assert_int_equal(build(f, (struct image_build_options){ .mirror = "http://a b" }), -EINVAL);
	assert_int_equal(build(f, (struct image_build_options){ .include = { .v = { "a;b" }, .n = 1 } }), -EINVAL);
	assert_int_equal(build(f, (struct image_build_options){ .include = { .v = { "" }, .n = 1 } }), -EINVAL);
	assert_int_equal(system("test ! -e $BASE/called"), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tar_becomes_the_image),
		TEST(programs_are_told_what_was_asked),
		TEST(ways_to_the_mirror_go_along),
		TEST(kept_packages_serve_when_no_mirror_answers),
		TEST(kept_packages_are_those_of_the_same_options),
		TEST(cached_asks_no_mirror),
		TEST(damaged_kept_packages_do_not_hide_the_reason),
		TEST(malformed_options_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
