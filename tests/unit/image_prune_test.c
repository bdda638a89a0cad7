/* SPDX-License-Identifier: Apache-2.0 */
/* host/image_prune and host/image_list: what goes and what stays, what images share and which is made on which. */
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
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/file.h"
#include "host/image_prune.h"
#include "host/snapshot_store.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SIZE = 1 << 20 };
#define SHA(c) c c c c c c c c c c c c c c c c
#define SHA_A SHA("aaaa")
#define SHA_B SHA("bbbb")

struct fixture {
	char base[64];
	struct image_store store;
	char told[4096]; /* names of what goes */
	uint64_t bytes;
	struct err err;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[128];

	assert_non_null(f);
	strcpy(f->base, "/tmp/coffer-prune-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	snprintf(path, sizeof(path), "%s/cache", f->base);
	setenv("XDG_CACHE_HOME", path, 1);
	snprintf(path, sizeof(path), "%s/data", f->base);
	setenv("XDG_DATA_HOME", path, 1);
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

static void add_layer(struct image_draft *d, int fill)
{
	_cleanup_close_ int raw = openat(d->fd, "raw", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	_cleanup_close_ int fd = openat(d->fd, "layer", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct err err = ERR_INIT;
	struct image_layer facts;
	uint8_t block[4096];

	memset(block, fill, sizeof(block));
	assert_int_equal(fd_pwrite_full(raw, block, sizeof(block), 0), 0);
	assert_int_equal(lsmt_pack_raw(raw, SIZE, fd, "01234567-89ab-4def-8123-456789abcdef", &err), 0);
	assert_int_equal(image_layer_measure(fd, "layer", false, &facts, NULL, NULL, &err), 0);
	assert_int_equal(image_draft_add_layer(d, fd, "layer", &facts, &err), 0);
}

/* An image on another one (NULL: none) with one more layer (0: none), or with a remote one. */
static void make(struct fixture *f, const char *name, const char *on, int fill, const char *remote)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image image = { .size = SIZE }, below;

	snprintf(image.name, sizeof(image.name), "%s", name);
	assert_int_equal(image_draft_begin(&f->store, &d, &f->err), 0);
	if (on != NULL) {
		assert_int_equal(image_store_resolve(&f->store, on, &below, &f->err), 0);
		assert_int_equal(image_draft_add_image(&d, &below, &f->err), 0);
		image_finish(&below);
	}
	if (fill != 0)
		add_layer(&d, fill);
	if (remote != NULL) {
		struct image_layer far = { .url = (char[]){ "https://example.org/x" }, .bytes = 1 };

		strcpy(far.sha256, remote);
		assert_int_equal(image_draft_add_layer(&d, -1, NULL, &far, &f->err), 0);
	}
	if (image_draft_publish(&d, &image, false, NULL, &f->err) < 0)
		fail_msg("%s", f->err.text);
	image_draft_end(&d);
	image_finish(&image);
}

static const char *put(struct fixture *f, const char *sub, const char *name)
{
	static char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", f->base, sub);
	assert_int_equal(file_make_dirs(path, 0700, &f->err), 0);
	snprintf(path, sizeof(path), "%s/%s/%s", f->base, sub, name);
	assert_int_equal(file_write_atomic(path, "12345", 5, 0600, false, &f->err), 0);
	return path;
}

static void tell(void *arg, const char *path, uint64_t bytes)
{
	struct fixture *f = arg;

	strcat(f->told, strrchr(path, '/') + 1);
	strcat(f->told, " ");
	f->bytes += bytes;
}

static const char *prune_what(struct fixture *f, bool dry, bool blobs)
{
	f->told[0] = '\0';
	f->bytes = 0;
	if (image_prune(&f->store, dry, blobs, tell, f, &f->err) < 0)
		fail_msg("%s", f->err.text);
	return f->told;
}

static const char *prune(struct fixture *f, bool dry) { return prune_what(f, dry, false); }
static const char *prune_blobs(struct fixture *f, bool dry) { return prune_what(f, dry, true); }

static void make_old(const char *path)
{
	const struct timespec t[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };

	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

/* ---- prune ---- */

static void nothing_is_no_error(void **state)
{
	assert_string_equal(prune(*state, false), "");
}

static void dead_builds_go_and_live_ones_stay(void **state)
{
	struct fixture *f = *state;
	struct image_draft d = IMAGE_DRAFT_NONE;

	assert_int_equal(image_draft_begin(&f->store, &d, &f->err), 0);
	put(f, "builds/dead", "lock");
	put(f, "builds/dead", "disk");
	assert_string_equal(prune(f, true), "dead ");
	assert_true(f->bytes > 0);
	assert_string_equal(prune(f, false), "dead ");
	assert_string_equal(prune(f, false), "");
	assert_int_equal(access(d.path, F_OK), 0);
	image_draft_end(&d);
}

static void templates_go_unless_linked(void **state)
{
	struct fixture *f = *state;
	char link_path[128];

	snprintf(link_path, sizeof(link_path), "%s/vm", f->base);
	assert_int_equal(link(put(f, "cache/coffer/overlay", "ext4-v2-16777216.lsmt"), link_path), 0);
	put(f, "cache/coffer/overlay", "ext4-v1-16777216.lsmt");
	put(f, "cache/coffer/overlay", "notes");
	assert_string_equal(prune(f, false), "ext4-v1-16777216.lsmt ");
	assert_int_equal(unlink(link_path), 0);
	assert_string_equal(prune(f, false), "ext4-v2-16777216.lsmt ");
}

static void half_files_go_when_they_are_old(void **state)
{
	struct fixture *f = *state;

	put(f, "cache/coffer/overlay", ".new-123456");
	put(f, "cache/coffer/debian", "bookworm-1.tar.zst.abcdef");
	make_old(put(f, "cache/coffer/debian", "bookworm-1.tar.zst"));
	assert_string_equal(prune(f, false), "");
	make_old(put(f, "cache/coffer/overlay", ".new-123456"));
	make_old(put(f, "cache/coffer/debian", "bookworm-1.tar.zst.abcdef"));
	assert_string_equal(prune(f, false), ".new-123456 bookworm-1.tar.zst.abcdef ");
}

static void blobs_go_unless_an_image_has_them(void **state)
{
	struct fixture *f = *state;

	make(f, "far", NULL, 0, SHA_A);
	put(f, "cache/coffer/blobs/sha256-" SHA_A, "chunks");
	put(f, "cache/coffer/blobs/sha256-" SHA_B, "chunks");
	put(f, "cache/coffer/blobs", "readme");
	assert_string_equal(prune_blobs(f, true), "sha256-" SHA_B " ");
	assert_string_equal(prune_blobs(f, false), "sha256-" SHA_B " ");
	assert_int_equal(image_store_remove(&f->store, "far", &f->err), 0);
	assert_string_equal(prune_blobs(f, false), "sha256-" SHA_A " ");
}

static void locked_blobs_stay(void **state)
{
	struct fixture *f = *state;
	int fd = open(put(f, "cache/coffer/blobs/sha256-" SHA_A, "chunks"), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_SH), 0);
	assert_string_equal(prune_blobs(f, false), "");
	close(fd);
	assert_string_equal(prune_blobs(f, false), "sha256-" SHA_A " ");
}

static void blobs_stay_while_an_image_cannot_be_read(void **state)
{
	struct fixture *f = *state;

	put(f, "images/broken", "manifest.json");
	put(f, "cache/coffer/blobs/sha256-" SHA_A, "chunks");
	assert_string_equal(prune_blobs(f, false), "");
}

static void blobs_stay_unless_told(void **state)
{
	struct fixture *f = *state;

	put(f, "cache/coffer/blobs/sha256-" SHA_A, "chunks");
	assert_string_equal(prune(f, false), "");
}

/* A snapshot in the store whose only layer is the blob of this digest. */
static void make_snapshot(struct fixture *f, const char *sha256)
{
	static char url[] = "https://example.org/blob", empty[] = "", word[] = "x", device[] = "rng";
	char path[PATH_MAX];
	struct snapshot_layer layer = { .file = empty, .size = 4096, .url = url };
	struct snapshot_disk disk = { .kind = SNAPSHOT_DISK_LAYERS, .size = SIZE, .path = empty, .image = word, .layer = &layer, .nlayers = 1 };
	struct snapshot_manifest m = { .version = word, .id = "0123456789abcdef0123456789abcdef", .parent_path = empty, .cpus = 1,
				       .memory = MIB(128), .cmdline = empty, .device = (char *[]){ device }, .ndevices = 1,
				       .cpu = { "GenuineIntel", 6, 85, 7, "0123456789abcdef" }, .kvm = word, .disk = &disk, .ndisks = 1,
				       .state = { 1, "00000000000000aa" }, .ram = { 1, "" }, .ram_index = { 1, "00000000000000bb" },
				       .image = word, .user = empty, .cwd = empty, .kernel = empty, .hostname = empty },
				 parsed;
	_cleanup_free_ char *text = NULL;

	strcpy(layer.sha256, sha256);
	text = snapshot_manifest_format(&m);
	assert_non_null(text);
	if (snapshot_manifest_parse("m", SNAPSHOT_WHAT_SNAPSHOT, text, strlen(text), &parsed, &f->err) < 0)
		fail_msg("%s", f->err.text);
	snapshot_manifest_finish(&parsed);
	put(f, "data/coffer/snapshots/kept", SNAPSHOT_STATE);
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/kept/" SNAPSHOT_MANIFEST, f->base);
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, false, &f->err), 0);
}

/* The image that it was made of may be gone. */
static void blobs_stay_that_only_a_snapshot_has(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];

	make_snapshot(f, SHA_A);
	put(f, "cache/coffer/blobs/sha256-" SHA_A, "chunks");
	put(f, "cache/coffer/blobs/sha256-" SHA_B, "chunks");
	assert_string_equal(prune_blobs(f, false), "sha256-" SHA_B " ");
	snprintf(path, sizeof(path), "%s/data/coffer/snapshots/kept", f->base);
	assert_int_equal(file_remove_tree(AT_FDCWD, path), 0);
	assert_string_equal(prune_blobs(f, false), "sha256-" SHA_A " ");
}

static void blobs_stay_while_a_snapshot_cannot_be_read(void **state)
{
	struct fixture *f = *state;

	put(f, "data/coffer/snapshots/broken", "manifest.json");
	put(f, "cache/coffer/blobs/sha256-" SHA_A, "chunks");
	assert_string_equal(prune_blobs(f, false), "");
}

/* ---- list ---- */

static void shared_layers_count_once(void **state)
{
	struct fixture *f = *state;
	struct image_entry *list;
	uint64_t total;
	size_t n;

	make(f, "base", NULL, 1, NULL);
	make(f, "app", "base", 2, NULL);
	make(f, "other", NULL, 3, NULL);
	assert_int_equal(image_store_list_total(&f->store, &list, &n, &total, &f->err), 0);
	assert_int_equal(n, 3);
	assert_string_equal(list[0].image.name, "app");
	assert_true(list[1].disk > 0 && list[1].shared == list[1].disk);
	assert_int_equal(list[0].shared, list[1].disk);
	assert_int_equal(list[2].shared, 0);
	assert_int_equal(total, list[0].disk + list[2].disk);
	image_store_list_free(list, n);
}

static void parent_is_the_image_with_most_of_the_layers(void **state)
{
	struct fixture *f = *state;
	struct image_entry *list;
	size_t n;

	make(f, "a", NULL, 1, NULL);
	make(f, "b", "a", 2, NULL);
	make(f, "c", "b", 3, NULL);
	make(f, "same", "b", 0, NULL);
	make(f, "z", NULL, 4, NULL);
	assert_int_equal(image_store_list(&f->store, &list, &n, &f->err), 0);
	assert_int_equal(n, 5);
	assert_null(list[0].parent);
	assert_ptr_equal(list[1].parent, &list[0]);
	assert_ptr_equal(list[2].parent, &list[1]);
	assert_ptr_equal(list[3].parent, &list[1]); /* equal layers: below the first of them */
	assert_null(list[4].parent);
	image_store_list_free(list, n);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_no_error),
		TEST(dead_builds_go_and_live_ones_stay),
		TEST(templates_go_unless_linked),
		TEST(half_files_go_when_they_are_old),
		TEST(blobs_go_unless_an_image_has_them),
		TEST(locked_blobs_stay),
		TEST(blobs_stay_while_an_image_cannot_be_read),
		TEST(blobs_stay_unless_told),
		TEST(blobs_stay_that_only_a_snapshot_has),
		TEST(blobs_stay_while_a_snapshot_cannot_be_read),
		TEST(shared_layers_count_once),
		TEST(parent_is_the_image_with_most_of_the_layers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
