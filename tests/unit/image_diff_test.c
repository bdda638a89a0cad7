/* SPDX-License-Identifier: Apache-2.0 */
/* host/image_diff: what is told of two images, what need not be read, and damaged file systems. */
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

#include "devices/backend/lsmt.h"
#include "host/file.h"
#include "host/image_build.h"
#include "host/image_diff.h"
#include "host/image_export.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SIZE = 32 << 20, BLOCK = 4096 };

struct fixture {
	char base[64], source[96];
	struct image_store store;
	char told[8192];
	struct err err;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	strcpy(f->base, "/tmp/coffer-diff-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	snprintf(f->source, sizeof(f->source), "%s/source", f->base);
	assert_int_equal(image_store_init(&f->store, f->base, &f->err), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	file_remove_tree(AT_FDCWD, f->base);
	free(f);
	return 0;
}

/* In the directory that images are built from. */
static void run(struct fixture *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void run(struct fixture *f, const char *format, ...)
{
	char command[PATH_MAX], text[2 * PATH_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	snprintf(text, sizeof(text), "mkdir -p %s && cd %s && { %s; }", f->source, f->source, command);
	assert_int_equal(system(text), 0);
}

static void build(struct fixture *f, const char *name)
{
	struct image_build_options o = { .source = f->source, .name = name, .size = SIZE, .replace = true };

	if (image_build(&f->store, &o, NULL, NULL, &f->err) < 0)
		fail_msg("%s", f->err.text);
}

static int each(void *arg, const struct image_change *c)
{
	struct fixture *f = arg;
	size_t n = strlen(f->told);

	snprintf(f->told + n, sizeof(f->told) - n, "%c%s:%x:%llu:%llu ", "AMD"[c->kind], c->path, c->what,
		 (unsigned long long)c->old_size, (unsigned long long)c->new_size);
	return 0;
}

static int diff(struct fixture *f, const char *a, const char *b)
{
	struct image x, y;
	int r;

	f->told[0] = '\0';
	f->err = ERR_INIT;
	assert_int_equal(image_store_resolve(&f->store, a, &x, &f->err), 0);
	assert_int_equal(image_store_resolve(&f->store, b, &y, &f->err), 0);
	r = image_diff(&x, &y, each, f, NULL, &f->err);
	image_finish(&x);
	image_finish(&y);
	return r;
}

static void assert_told(struct fixture *f, const char *a, const char *b, const char *expected)
{
	if (diff(f, a, b) < 0)
		fail_msg("%s", f->err.text);
	assert_string_equal(f->told, expected);
}

static void raw_of(struct fixture *f, const char *name, char path[PATH_MAX])
{
	struct image image;

	snprintf(path, PATH_MAX, "%s/%s.raw", f->base, name);
	unlink(path);
	assert_int_equal(image_store_resolve(&f->store, name, &image, &f->err), 0);
	if (image_export_formats[0].run(&image, path, -1, NULL, &f->err) < 0)
		fail_msg("%s", f->err.text);
	image_finish(&image);
}

/* Copy the blocks of `now` that differ from those of `then` into a file that else is a hole. */
static void keep_changes(const char *then, const char *now, int out)
{
	_cleanup_close_ int a = open(then, O_RDONLY | O_CLOEXEC), b = open(now, O_RDONLY | O_CLOEXEC);
	uint8_t x[BLOCK], y[BLOCK];
	int r = ftruncate(out, SIZE);

	assert_int_equal(r, 0);
	for (off_t at = 0; at < SIZE; at += BLOCK) {
		assert_int_equal(fd_pread_full(a, x, BLOCK, at), BLOCK);
		assert_int_equal(fd_pread_full(b, y, BLOCK, at), BLOCK);
		if (memcmp(x, y, BLOCK) != 0)
			assert_int_equal(fd_pwrite_full(out, y, BLOCK, at), 0);
	}
}

/* An image of the layers of `on` and one with what debugfs, given these requests, changes. */
static void change(struct fixture *f, const char *on, const char *name, const char *requests)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image below, image = { .format = IMAGE_FORMAT_EXT4, .size = SIZE };
	struct image_layer facts;
	char then[PATH_MAX], now[PATH_MAX + 8];
	int raw, layer;

	raw_of(f, on, then);
	snprintf(now, sizeof(now), "%s.now", then);
	run(f, "cp --sparse=always %s %s && printf '%s' | /sbin/debugfs -w -f - %s >/dev/null 2>&1", then, now, requests, now);
	snprintf(image.name, sizeof(image.name), "%s", name);
	assert_int_equal(image_draft_begin(&f->store, &d, &f->err), 0);
	raw = openat(d.fd, "raw", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	layer = openat(d.fd, "layer", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	keep_changes(then, now, raw);
	assert_int_equal(lsmt_pack_raw(raw, SIZE, layer, NULL, &f->err), 0);
	assert_int_equal(image_layer_measure(layer, "layer", false, &facts, NULL, NULL, &f->err), 0);
	assert_int_equal(image_store_resolve(&f->store, on, &below, &f->err), 0);
	assert_int_equal(image_draft_add_image(&d, &below, &f->err), 0);
	assert_int_equal(image_draft_add_layer(&d, layer, "layer", &facts, &f->err), 0);
	assert_int_equal(image_draft_publish(&d, &image, false, NULL, &f->err), 0);
	image_draft_end(&d);
	image_finish(&below);
	image_finish(&image);
	close(raw);
	close(layer);
}

/* Find `text` in the lowest layer's file of an image and write over it. */
static void damage(struct fixture *f, const char *name, const char *text, const char *with)
{
	char path[PATH_MAX];
	struct image image;
	uint8_t *data, *at;
	size_t len;
	int fd;

	assert_int_equal(image_store_resolve(&f->store, name, &image, &f->err), 0);
	fd = image_layer_open(&image, 0, path, &f->err);
	close(fd);
	image_finish(&image);
	assert_int_equal(file_read(path, SIZE, &data, &len, &f->err), 0);
	at = memmem(data, len, text, strlen(text));
	assert_non_null(at);
	assert_int_equal(chmod(path, 0644), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(fd_pwrite_full(fd, with, strlen(with), at - data), 0);
	close(fd);
	free(data);
}

/* ---- what is told ---- */

static void equal_images_do_not_differ(void **state)
{
	struct fixture *f = *state;

	run(f, "mkdir d && echo x >d/f && ln -s f d/l && mkfifo p && head -c 300000 /dev/urandom >random");
	build(f, "a");
	assert_told(f, "a", "a", "");
	/* Built anew the same files lie in another layer: they are read. */
	build(f, "b");
	assert_told(f, "a", "b", "");
}

static void added_and_removed_trees_are_told_file_by_file(void **state)
{
	struct fixture *f = *state;

	run(f, "mkdir -p keep one/deep && echo 12 >one/deep/f && touch -d @1 keep");
	build(f, "a");
	run(f, "mkdir two && mv one/deep two/ && rmdir one && echo 1 >two.x");
	build(f, "b");
	assert_told(f, "a", "b", "D/one:0:0:0 D/one/deep:0:0:0 D/one/deep/f:0:3:0 A/two:0:0:0 A/two/deep:0:0:0 "
				 "A/two/deep/f:0:0:3 A/two.x:0:0:2 ");
}

static void each_attribute_is_told(void **state)
{
	struct fixture *f = *state;

	if (geteuid() != 0)
		skip(); /* takes another owner */
	run(f, "for x in mode owner size content time type; do printf 1234 >$x; done; ln -s 1 link; mknod dev c 1 3; mkdir dir; touch -h -d @1 *");
	build(f, "a");
	run(f, "chmod 600 mode && chown 5:70000 owner && printf 12345 >size && printf 1235 >content && rm type link dev && "
	       "mkdir type && ln -s 2 link && mknod dev c 1 5 && touch -h -d @1 * && touch -d @2 time dir");
	build(f, "b");
	assert_told(f, "a", "b", "M/content:10:4:4 M/dev:10:0:0 M/link:10:1:1 M/mode:2:4:4 M/owner:4:4:4 M/size:18:4:5 M/time:20:4:4 "
				 "M/type:1:4:0 ");
}

static void attributes_of_files_are_told(void **state)
{
	struct fixture *f = *state;

	run(f, "touch f g");
	build(f, "a");
	change(f, "a", "b", "ea_set /f user.x 1\\n");
	change(f, "b", "c", "ea_set /f user.x 2\\nea_set /g user.y 1\\n");
	assert_told(f, "a", "b", "M/f:40:0:0 ");
	assert_told(f, "b", "c", "M/f:40:0:0 M/g:40:0:0 ");
	assert_told(f, "c", "a", "M/f:40:0:0 M/g:40:0:0 ");
}

static void hole_and_zeros_are_the_same(void **state)
{
	struct fixture *f = *state;

	run(f, "head -c 100000 /dev/zero >f && printf x >>f && touch -d @1 f");
	build(f, "a");
	change(f, "a", "b", "fallocate /f 0 23\\n");
	assert_told(f, "a", "b", "");
	run(f, "printf x | dd of=f bs=1 seek=50000 conv=notrunc status=none; touch -d @1 f");
	build(f, "c");
	assert_told(f, "b", "c", "M/f:10:100001:100001 ");
}

/* ---- layers ---- */

static void layer_above_is_what_differs(void **state)
{
	struct fixture *f = *state;
	char requests[256];

	run(f, "mkdir d && echo old >d/f && head -c 500000 /dev/urandom >random && echo new >%s/new", f->base);
	build(f, "a");
	snprintf(requests, sizeof(requests), "rm /d/f\\nwrite %s/new /n\\n", f->base);
	change(f, "a", "b", requests);
	assert_told(f, "a", "b", "D/d/f:0:4:0 A/n:0:0:4 ");
	assert_told(f, "b", "a", "A/d/f:0:0:4 D/n:0:4:0 ");
}

static void common_blocks_are_not_read(void **state)
{
	struct fixture *f = *state;
	struct image image;
	char path[3 * PATH_MAX];

	run(f, "echo the-marked-contents >f && touch other");
	build(f, "a");
	change(f, "a", "b", "rm /other\\n");
	assert_told(f, "a", "b", "D/other:0:0:0 ");
	/* A copy of the layer with the same digest in its manifest: read, it would differ. */
	assert_int_equal(image_store_resolve(&f->store, "b", &image, &f->err), 0);
	snprintf(path, sizeof(path), "cp %s/%s %s/copy && mv %s/copy %s/%s", image.path, image.layer[0].file, f->base, f->base,
		 image.path, image.layer[0].file);
	assert_int_equal(system(path), 0);
	image_finish(&image);
	damage(f, "b", "the-marked", "not-marked");
	assert_told(f, "a", "b", "D/other:0:0:0 ");
}

/* ---- damage ---- */

static void other_file_systems_are_refused(void **state)
{
	struct fixture *f = *state;
	struct image a, none = { .name = "none", .format = IMAGE_FORMAT_EROFS };

	run(f, "touch f");
	build(f, "a");
	assert_int_equal(image_store_resolve(&f->store, "a", &a, &f->err), 0);
	assert_int_equal(image_diff(&a, &none, each, f, NULL, &f->err), -ENOTSUP);
	assert_non_null(strstr(f->err.text, "'none' is erofs"));
	image_finish(&a);
}

static void damaged_directory_is_named(void **state)
{
	struct fixture *f = *state;

	run(f, "mkdir dir && touch dir/a-name-to-find");
	build(f, "a");
	build(f, "b");
	damage(f, "b", "a-name-to-find", "b-name-to-find");
	assert_true(diff(f, "a", "b") < 0);
	assert_non_null(strstr(f->err.text, "'/dir': read the directory"));
}

static void circle_of_directories_ends(void **state)
{
	struct fixture *f = *state;

	run(f, "mkdir -p d/e && touch f");
	build(f, "a");
	change(f, "a", "b", "link /d /d/e/again\\n");
	assert_int_equal(diff(f, "a", "b"), -EINVAL);
	assert_non_null(strstr(f->err.text, "two places"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(equal_images_do_not_differ),
		TEST(added_and_removed_trees_are_told_file_by_file),
		TEST(each_attribute_is_told),
		TEST(attributes_of_files_are_told),
		TEST(hole_and_zeros_are_the_same),
		TEST(layer_above_is_what_differs),
		TEST(common_blocks_are_not_read),
		TEST(other_file_systems_are_refused),
		TEST(damaged_directory_is_named),
		TEST(circle_of_directories_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
