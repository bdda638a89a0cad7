/* SPDX-License-Identifier: Apache-2.0 */
/* host/image and host/image_store: names, manifests, resolving, locks, removal, and what a crash leaves. */
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
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/file.h"
#include "host/image_store.h"
#include "lib/fd.h"
#include "lib/util.h"

#define SHA "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
/* SHA-256 of the 32 bytes that SHA says. */
#define ID "4884fdaafea47c29fea7159d0daddd9c085d6200e1359e85bb81736af6b7c837"
#define XXH "0123456789abcdef0123456789abcdef"
#define WHEN "\"created\":\"2026-01-02T03:04:05Z\""
#define LAYER(place, more) "{\"kind\":\"lsmt\"," place ",\"bytes\":8192,\"sha256\":\"" SHA "\"," WHEN more "}"
#define HASHES ",\"xxh128\":\"" XXH "\",\"index_hash\":\"00000000000000ab\""
#define FILE_LAYER LAYER("\"file\":\"a.lsmt\"", HASHES)
#define REST "," WHEN ",\"id\":\"" ID "\",\"size\":4096,\"format\":\"ext4\""
#define BEGIN "{\"version\":2" REST
#define HEAD BEGIN ",\"layers\":[" FILE_LAYER "]"

struct fixture {
	char base[64];
	struct image_store store;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;

	assert_non_null(f);
	strcpy(f->base, "/tmp/coffer-image-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	assert_int_equal(image_store_init(&f->store, f->base, &err), 0);
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

static int open_temp(void)
{
	int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

/* A disk of `blocks` times 512 bytes with ext4's magic number. */
static void write_disk(const char *path, size_t blocks)
{
	uint8_t *disk = calloc(blocks, 512);
	struct err err = ERR_INIT;

	disk[1080] = 0x53;
	disk[1081] = 0xef;
	assert_int_equal(file_write_atomic(path, disk, blocks * 512, 0644, false, &err), 0);
	free(disk);
}

/* A draft with one sealed layer of a disk of 4096 bytes, made of `fill`. */
static void add_layer(struct image_draft *d, int fill)
{
	_cleanup_close_ int raw = open_temp(), fd = openat(d->fd, "layer", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct err err = ERR_INIT;
	struct image_layer facts;
	uint8_t block[4096];
	uint64_t size;

	memset(block, fill, sizeof(block));
	assert_int_equal(fd_pwrite_full(raw, block, sizeof(block), 0), 0);
	assert_true(fd >= 0);
	assert_int_equal(lsmt_pack_raw(raw, sizeof(block), fd, "01234567-89ab-4def-8123-456789abcdef", &err), 0);
	assert_int_equal(image_layer_measure(fd, "layer", false, &facts, &size, NULL, &err), 0);
	assert_int_equal(size, 4096);
	if (image_draft_add_layer(d, fd, "layer", &facts, &err) < 0)
		fail_msg("%s", err.text);
}

static int publish(const struct fixture *f, const char *name, bool replace, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image image = { .format = IMAGE_FORMAT_EXT4, .size = 4096 };
	int r;

	*err = ERR_INIT;
	snprintf(image.name, sizeof(image.name), "%s", name);
	r = image_draft_begin(&f->store, &d, err);
	assert_int_equal(r, 0);
	add_layer(&d, 1);
	r = image_draft_publish(&d, &image, replace, NULL, err);
	image_draft_end(&d);
	image_finish(&image);
	return r;
}

static unsigned count_entries(const char *dir)
{
	char command[PATH_MAX + 32];
	unsigned n = 0;
	FILE *p;

	snprintf(command, sizeof(command), "ls -A '%s' | wc -l", dir);
	p = popen(command, "r");
	assert_non_null(p);
	assert_int_equal(fscanf(p, "%u", &n), 1);
	pclose(p);
	return n;
}

static void names_have_a_form(void **state)
{
	static const char *const good[] = { "a", "0", "debian", "a.b_c-d", "0123456789012345678901234567890123456789012345678901234567890123" };
	static const char *const bad[] = { "", ".", "..", ".a", "-a", "_a", "A", "a/b", "/a", "a b", "a\n", "\xc3\xa4", "a:b",
					   "01234567890123456789012345678901234567890123456789012345678901234" };
	struct err err = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(image_name_check(good[i], &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(image_name_check(bad[i], &err), -EINVAL);
}

static void manifest_survives_a_round_trip(void **state)
{
	char *env[] = { "PATH=/bin", "QUOTE=\"\\\n", NULL }, *cmd[] = { "sh", "-c", "exit 7", NULL };
	struct image_layer layer[] = {
		{ .raw = true, .file = "x.raw", .bytes = 4096, .sha256 = SHA, .xxh = XXH, .created = 1767323045 },
		{ .file = "x.lsmt", .bytes = 8193, .sha256 = SHA, .xxh = XXH, .index_hash = UINT64_MAX - 1,
		  .created = 1767323046, .message = "packed \"here\"" },
		{ .url = "https://example.org/v2/x", .bytes = 1, .sha256 = SHA, .created = 1767323047 },
	};
	struct image image = { .name = "x", .format = IMAGE_FORMAT_EXT4, .size = 1 << 20, .created = 1767323045, .source = "src",
			       .user = "me:us", .cwd = "/home", .env = env, .cmd = cmd, .layer = layer,
			       .nlayers = ARRAY_SIZE(layer) };
	struct err err = ERR_INIT;
	struct image back;
	char *text;

	(void)state;
	image_id_compute(&image, image.id);
	text = image_manifest_format(&image);
	assert_non_null(text);
	if (image_manifest_parse(text, strlen(text), &back, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(back.size, image.size);
	assert_int_equal(back.created, image.created);
	assert_string_equal(back.source, "src");
	assert_string_equal(back.id, image.id);
	assert_string_equal(back.user, "me:us");
	assert_string_equal(back.cwd, "/home");
	assert_string_equal(back.env[1], env[1]);
	assert_null(back.env[2]);
	assert_string_equal(back.cmd[2], "exit 7");
	assert_int_equal(back.nlayers, 3);
	assert_true(back.layer[0].raw && !back.layer[1].raw && !back.layer[2].raw);
	assert_string_equal(back.layer[1].file, "x.lsmt");
	assert_null(back.layer[1].url);
	assert_int_equal(back.layer[1].bytes, 8193);
	assert_string_equal(back.layer[1].xxh, XXH);
	assert_true(back.layer[1].index_hash == UINT64_MAX - 1);
	assert_int_equal(back.layer[1].created, 1767323046);
	assert_string_equal(back.layer[1].message, layer[1].message);
	assert_null(back.layer[2].file);
	assert_string_equal(back.layer[2].url, layer[2].url);
	assert_string_equal(back.layer[2].xxh, "");
	image_finish(&back);
	free(text);
}

static void damaged_manifests_are_refused(void **state)
{
	static const char *const texts[] = {
		"",
		"{",
		"[]",
		"null",
		"{}",
		HEAD,
		HEAD "} x",
		HEAD ",\"version\":2}", /* twice */
		"{\"version\":3" REST ",\"layers\":[" FILE_LAYER "]}",
		HEAD ",\"env\":\"A=1\"}",
		HEAD ",\"env\":[1]}",
		HEAD ",\"cmd\":{\"a\":1}}",
		HEAD ",\"user\":7}",
		HEAD ",\"source\":[]}",
		BEGIN "}",
		BEGIN ",\"layers\":[]}",
		BEGIN ",\"layers\":{}}",
		"{\"version\":2,\"created\":\"yesterday\",\"id\":\"" ID "\",\"size\":4096,\"format\":\"ext4\",\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"" ID "\",\"size\":-512,\"format\":\"ext4\",\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"" ID "\",\"size\":4095,\"format\":\"ext4\",\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"" ID "\",\"size\":4.5e3,\"format\":\"ext4\",\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"" ID "\",\"size\":4096,\"format\":\"ntfs\",\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"" ID "\",\"size\":4096,\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"abc\",\"size\":4096,\"format\":\"ext4\",\"layers\":[" FILE_LAYER "]}",
		"{\"version\":2," WHEN ",\"id\":\"" SHA "\",\"size\":4096,\"format\":\"ext4\",\"layers\":[" FILE_LAYER "]}", /* another id */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct err err = ERR_INIT;
		struct image image;

		assert_int_equal(image_manifest_parse(texts[i], strlen(texts[i]), &image, &err), -EINVAL);
		assert_memory_equal(err.text, "manifest:", 9);
	}
}

static void damaged_layers_are_refused(void **state)
{
	static const struct {
		const char *layer, *words;
	} all[] = {
		{ "7", "" },
		{ "{}", "kind" },
		{ LAYER("\"file\":\"../a\"", HASHES), "no name" },
		{ LAYER("\"file\":\"a/b\"", HASHES), "no name" },
		{ LAYER("\"file\":\"\"", HASHES), "no name" },
		{ LAYER("\"file\":\".\"", HASHES), "no name" },
		{ LAYER("\"file\":\"manifest.json\"", HASHES), "no name" },
		{ LAYER("\"file\":\"a\",\"url\":\"http://a\"", HASHES), "either" },
		{ LAYER("\"later\":1", HASHES), "either" },
		{ LAYER("\"url\":\"file:///etc/passwd\"", ""), "http" },
		{ LAYER("\"url\":\"http://a b\"", ""), "http" },
		{ LAYER("\"file\":\"a\"", ""), "xxh128" },
		{ LAYER("\"file\":\"a\"", ",\"xxh128\":\"" XXH "\""), "index_hash" },
		{ LAYER("\"file\":\"a\"", HASHES ",\"message\":7"), "message" },
		{ FILE_LAYER ",{\"kind\":\"raw\",\"file\":\"b\",\"bytes\":1,\"sha256\":\"" SHA "\",\"xxh128\":\"" XXH "\"," WHEN "}",
		  "manifest: layer 2: a raw layer" },
		{ "{\"kind\":\"raw\",\"file\":\"b\",\"bytes\":4097,\"sha256\":\"" SHA "\",\"xxh128\":\"" XXH "\"," WHEN "}",
		  "the disk 4096" },
		{ "{\"kind\":\"lsmt\",\"file\":\"b\",\"bytes\":-1,\"sha256\":\"" SHA "\",\"xxh128\":\"" XXH "\"," WHEN "}", "bytes" },
		{ "{\"kind\":\"cow\",\"file\":\"b\"}", "kind" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		struct err err = ERR_INIT;
		struct image image;
		char text[4096];

		snprintf(text, sizeof(text), BEGIN ",\"layers\":[%s]}", all[i].layer);
		assert_int_equal(image_manifest_parse(text, strlen(text), &image, &err), -EINVAL);
		if (strstr(err.text, all[i].words) == NULL)
			fail_msg("'%s' is not in: %s", all[i].words, err.text);
	}
}

static void layers_have_a_limit(void **state)
{
	static char text[IMAGE_MANIFEST_MAX];
	size_t n = (size_t)sprintf(text, BEGIN ",\"layers\":[" FILE_LAYER);
	struct err err = ERR_INIT;
	struct image image;

	(void)state;
	for (int i = 0; i < IMAGE_LAYERS_MAX; i++)
		n += (size_t)sprintf(text + n, "," FILE_LAYER);
	sprintf(text + n, "]}");
	assert_int_equal(image_manifest_parse(text, strlen(text), &image, &err), -EINVAL);
	assert_non_null(strstr(err.text, "1 to 200"));
}

static void image_of_an_earlier_release_is_to_be_built_again(void **state)
{
	static const char text[] = "{\"version\":1," WHEN ",\"sha256\":\"" SHA "\",\"size\":4096,\"format\":\"ext4\"}";
	struct err err = ERR_INIT;
	struct image image;

	(void)state;
	assert_int_equal(image_manifest_parse(text, strlen(text), &image, &err), -EINVAL);
	assert_non_null(strstr(err.text, "build it again, with --replace"));
}

static void manifest_members_are_optional_or_unknown(void **state)
{
	static const char text[] = HEAD ",\"env\":null,\"cmd\":[],\"later\":{\"x\":[1]}}";
	struct err err = ERR_INIT;
	struct image image;

	(void)state;
	assert_int_equal(image_manifest_parse(text, strlen(text), &image, &err), 0);
	assert_null(image.user);
	assert_null(image.env);
	assert_null(image.cmd);
	image_finish(&image);
}

static void manifest_lists_have_a_limit(void **state)
{
	char text[16384];
	size_t n = (size_t)sprintf(text, HEAD ",\"env\":[\"A=0\"");
	struct err err = ERR_INIT;
	struct image image;

	(void)state;
	for (unsigned i = 1; i <= IMAGE_ENV_MAX; i++)
		n += (size_t)sprintf(text + n, ",\"A=%u\"", i);
	n += (size_t)sprintf(text + n, "]}");
	assert_int_equal(image_manifest_parse(text, n, &image, &err), -EINVAL);
	assert_int_equal(image_manifest_parse(text, (size_t)IMAGE_MANIFEST_MAX + 1, &image, &err), -EINVAL);
	assert_non_null(strstr(err.text, "at most 262144 are taken"));
}

static void published_image_is_found_by_name(void **state)
{
	struct fixture *f = *state;
	struct image image;
	char path[PATH_MAX];
	struct err err;
	struct stat st;
	int fd;

	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &err), 0);
	assert_string_equal(image.name, "one");
	assert_int_equal(image.format, IMAGE_FORMAT_EXT4);
	assert_int_equal(image.size, 4096);
	assert_int_equal(strlen(image.id), 64);
	assert_int_equal(image.nlayers, 1);
	assert_memory_equal(image.layer[0].file, image.layer[0].sha256, 64);
	assert_int_not_equal(image.layer[0].index_hash, 0);
	fd = image_layer_open(&image, 0, path, &err);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0444);
	image_finish(&image);
	assert_int_equal(count_entries(f->store.builds), 0);
}

static void unknown_name_says_what_to_do(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct image image;

	assert_int_equal(image_store_resolve(&f->store, "none", &image, &err), -ENOENT);
	assert_non_null(strstr(err.text, "coffer image"));
	assert_int_equal(image_store_resolve(&f->store, "..", &image, &err), -EINVAL);
	assert_int_equal(image_store_resolve(&f->store, "", &image, &err), -EINVAL);
}

static void path_is_taken_as_a_disk(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct image image;
	char path[128], link[128];

	snprintf(path, sizeof(path), "%s/disk", f->base);
	snprintf(link, sizeof(link), "%s/link", f->base);
	write_disk(path, 8);
	assert_int_equal(symlink("disk", link), 0);
	assert_int_equal(image_store_resolve(&f->store, link, &image, &err), 0);
	assert_string_equal(image.path, path);
	assert_string_equal(image.name, "");
	assert_int_equal(image.format, IMAGE_FORMAT_EXT4);
	image_finish(&image);
}

static void disk_without_a_file_system_is_raw(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct image image;
	char path[128];

	snprintf(path, sizeof(path), "%s/disk", f->base);
	assert_int_equal(file_write_atomic(path, "\1", 1, 0644, false, &err), 0);
	assert_int_equal(truncate(path, 1024), 0);
	assert_int_equal(image_store_resolve(&f->store, path, &image, &err), 0);
	assert_int_equal(image.format, IMAGE_FORMAT_UNKNOWN);
	assert_string_equal(image_format_name(image.format), "raw");
}

static void what_is_no_disk_is_refused(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	struct image image;
	char path[128];

	assert_int_equal(image_store_resolve(&f->store, f->base, &image, &err), -EISDIR);
	assert_non_null(strstr(err.text, "coffer image build"));
	snprintf(path, sizeof(path), "%s/fifo", f->base);
	assert_int_equal(mkfifo(path, 0644), 0);
	assert_int_equal(image_store_resolve(&f->store, path, &image, &err), -EINVAL);
	snprintf(path, sizeof(path), "%s/odd", f->base);
	assert_int_equal(file_write_atomic(path, "x", 1, 0644, false, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, path, &image, &err), -EINVAL);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(image_store_resolve(&f->store, path, &image, &err), -EINVAL);
	snprintf(path, sizeof(path), "%s/absent", f->base);
	assert_int_equal(image_store_resolve(&f->store, path, &image, &err), -ENOENT);
	assert_string_equal(image.path, "");
}

static void layer_path(const struct fixture *f, const char *name, char path[PATH_MAX])
{
	struct err err = ERR_INIT;
	struct image image;
	int fd;

	assert_int_equal(image_store_resolve(&f->store, name, &image, &err), 0);
	fd = image_layer_open(&image, 0, path, &err);
	assert_true(fd >= 0);
	close(fd);
	image_finish(&image);
}

static void damaged_image_is_named(void **state)
{
	struct fixture *f = *state;
	struct image image;
	char path[PATH_MAX];
	struct err err;

	assert_int_equal(publish(f, "one", false, &err), 0);
	layer_path(f, "one", path);
	assert_int_equal(chmod(path, 0644), 0);
	assert_int_equal(truncate(path, 2048), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'one': it is damaged: layer 1"));
	assert_int_equal(unlink(path), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &err), -EINVAL);
	assert_non_null(strstr(err.text, "layer 1"));
}

static void second_image_of_a_name_is_refused(void **state)
{
	struct fixture *f = *state;
	struct err err;

	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(publish(f, "one", false, &err), -EEXIST);
	assert_non_null(strstr(err.text, "--replace"));
	assert_int_equal(count_entries(f->store.images), 1);
	assert_int_equal(count_entries(f->store.builds), 0);
}

static void replacing_leaves_the_new_one(void **state)
{
	struct fixture *f = *state;
	struct image before, after;
	struct stat a, b;
	struct err err;

	assert_int_equal(publish(f, "one", true, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &before, &err), 0);
	assert_int_equal(stat(before.path, &a), 0);
	assert_int_equal(publish(f, "one", true, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &after, &err), 0);
	assert_int_equal(stat(after.path, &b), 0);
	assert_int_not_equal(a.st_ino, b.st_ino);
	assert_int_equal(count_entries(f->store.builds), 0);
	image_finish(&before);
	image_finish(&after);
}

static void image_in_use_is_neither_removed_nor_replaced(void **state)
{
	struct fixture *f = *state;
	struct image image;
	struct err err;
	int fd;

	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &err), 0);
	fd = image_open(&image, &err);
	assert_true(fd >= 0);
	assert_int_equal(image_store_remove(&f->store, "one", &err), -EBUSY);
	assert_non_null(strstr(err.text, "in use"));
	assert_int_equal(publish(f, "one", true, &err), -EBUSY);
	close(fd);
	assert_int_equal(image_store_remove(&f->store, "one", &err), 0);
	image_finish(&image);
	assert_int_equal(count_entries(f->store.images), 0);
	assert_int_equal(count_entries(f->store.builds), 0);
}

static void many_share_an_image(void **state)
{
	struct fixture *f = *state;
	struct image image;
	struct err err;
	int fds[8];

	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = image_open(&image, &err);
		assert_true(fds[i] >= 0);
		assert_int_equal(write(fds[i], "x", 1), -1); /* read-only */
	}
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		close(fds[i]);
	image_finish(&image);
}

static void image_removed_after_resolving_is_noticed(void **state)
{
	struct fixture *f = *state;
	struct image image;
	struct err err;

	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &image, &err), 0);
	assert_int_equal(image_store_remove(&f->store, "one", &err), 0);
	assert_int_equal(image_open(&image, &err), -ENOENT);
	image_finish(&image);
}

static void removing_what_is_not_there_says_so(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	assert_int_equal(image_store_remove(&f->store, "none", &err), -ENOENT);
	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(image_store_remove(&f->store, "none", &err), -ENOENT);
	assert_int_equal(image_store_remove(&f->store, "../images/one", &err), -EINVAL);
	assert_int_equal(count_entries(f->store.images), 1);
}

static void half_an_image_can_be_removed(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];
	struct err err = ERR_INIT;

	snprintf(path, sizeof(path), "%s/broken/deeper", f->store.images);
	assert_int_equal(file_make_dirs(path, 0755, &err), 0);
	assert_int_equal(image_store_remove(&f->store, "broken", &err), 0);
	assert_int_equal(count_entries(f->store.images), 0);
}

/* A build that is killed: its child of builds stays, with what it had. */
static void leftovers_of_a_killed_build_go_with_the_next(void **state)
{
	struct fixture *f = *state;
	struct image_entry *list;
	struct err err;
	size_t n;
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		struct image_draft d = IMAGE_DRAFT_NONE;
		char path[PATH_MAX];

		if (image_draft_begin(&f->store, &d, NULL) < 0)
			_exit(1);
		snprintf(path, sizeof(path), "%s/disk", d.path);
		write_disk(path, 8);
		_exit(0); /* nothing is cleaned up */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(count_entries(f->store.builds), 1);
	assert_int_equal(image_store_list(&f->store, &list, &n, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(count_entries(f->store.builds), 0);
}

static void build_that_goes_on_is_left_alone(void **state)
{
	struct fixture *f = *state;
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct err err = ERR_INIT;

	assert_int_equal(image_draft_begin(&f->store, &d, &err), 0);
	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(access(d.path, F_OK), 0);
	image_draft_end(&d);
	assert_int_equal(count_entries(f->store.builds), 0);
}

static void layers_of_another_image_are_shared(void **state)
{
	struct fixture *f = *state;
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image one, two = { .name = "two", .format = IMAGE_FORMAT_EXT4, .size = 4096 };
	char path[PATH_MAX];
	struct stat st;
	struct err err;

	assert_int_equal(publish(f, "one", false, &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "one", &one, &err), 0);
	assert_int_equal(image_draft_begin(&f->store, &d, &err), 0);
	assert_int_equal(image_draft_add_image(&d, &one, &err), 0);
	add_layer(&d, 2);
	assert_int_equal(image_draft_publish(&d, &two, false, NULL, &err), 0);
	image_draft_end(&d);
	image_finish(&one);
	image_finish(&two);

	layer_path(f, "one", path);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_nlink, 2);
	assert_int_equal(image_store_remove(&f->store, "one", &err), 0);
	assert_int_equal(image_store_resolve(&f->store, "two", &two, &err), 0);
	assert_int_equal(two.nlayers, 2);
	image_finish(&two);
}

static void image_without_layers_is_refused(void **state)
{
	struct fixture *f = *state;
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image image = { .name = "one", .size = 4096 };
	struct err err = ERR_INIT;

	assert_int_equal(image_draft_begin(&f->store, &d, &err), 0);
	assert_int_equal(image_draft_publish(&d, &image, false, NULL, &err), -EINVAL);
	image_draft_end(&d);
}

static void remote_layer_has_no_file(void **state)
{
	struct fixture *f = *state;
	struct image_layer facts = { .url = (char[]){ "http://127.0.0.1/x" }, .bytes = 5, .sha256 = SHA };
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image image = { .name = "far", .size = 4096 };
	struct err err = ERR_INIT;

	assert_int_equal(image_draft_begin(&f->store, &d, &err), 0);
	assert_int_equal(image_draft_add_layer(&d, -1, NULL, &facts, &err), 0);
	if (image_draft_publish(&d, &image, false, NULL, &err) < 0)
		fail_msg("%s", err.text);
	image_draft_end(&d);
	image_finish(&image);
	assert_int_equal(image_store_resolve(&f->store, "far", &image, &err), 0);
	assert_int_equal(image_layer_open(&image, 0, NULL, &err), -EREMOTE);
	image_finish(&image);
}

static void list_is_sorted_and_has_the_unusable_ones(void **state)
{
	struct fixture *f = *state;
	struct image_entry *list;
	char path[PATH_MAX];
	struct err err = ERR_INIT;
	size_t n;

	assert_int_equal(image_store_list(&f->store, &list, &n, &err), 0);
	assert_int_equal(n, 0);
	assert_int_equal(publish(f, "zeta", false, &err), 0);
	assert_int_equal(publish(f, "alpha", false, &err), 0);
	snprintf(path, sizeof(path), "%s/broken", f->store.images);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(image_store_list(&f->store, &list, &n, &err), 0);
	assert_int_equal(n, 3);
	assert_string_equal(list[0].image.name, "alpha");
	assert_string_equal(list[1].image.name, "broken");
	assert_int_not_equal(list[1].problem.code, 0);
	assert_int_equal(list[2].problem.code, 0);
	assert_true(list[2].disk > 0);
	image_store_list_free(list, n);
}

static void store_is_where_the_environment_says(void **state)
{
	struct image_store s;
	struct err err = ERR_INIT;

	(void)state;
	setenv("XDG_DATA_HOME", "/data/x", 1);
	assert_int_equal(image_store_init(&s, NULL, &err), 0);
	assert_string_equal(s.images, "/data/x/coffer/images");
	setenv("XDG_DATA_HOME", "relative", 1); /* to be ignored */
	setenv("HOME", "/home/me", 1);
	assert_int_equal(image_store_init(&s, NULL, &err), 0);
	assert_string_equal(s.images, geteuid() == 0 ? "/var/lib/coffer/images" : "/home/me/.local/share/coffer/images");
	unsetenv("XDG_DATA_HOME");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(names_have_a_form),
		TEST(manifest_survives_a_round_trip),
		TEST(damaged_manifests_are_refused),
		TEST(damaged_layers_are_refused),
		TEST(layers_have_a_limit),
		TEST(image_of_an_earlier_release_is_to_be_built_again),
		TEST(manifest_members_are_optional_or_unknown),
		TEST(manifest_lists_have_a_limit),
		TEST(published_image_is_found_by_name),
		TEST(unknown_name_says_what_to_do),
		TEST(path_is_taken_as_a_disk),
		TEST(disk_without_a_file_system_is_raw),
		TEST(what_is_no_disk_is_refused),
		TEST(damaged_image_is_named),
		TEST(second_image_of_a_name_is_refused),
		TEST(replacing_leaves_the_new_one),
		TEST(image_in_use_is_neither_removed_nor_replaced),
		TEST(many_share_an_image),
		TEST(image_removed_after_resolving_is_noticed),
		TEST(removing_what_is_not_there_says_so),
		TEST(half_an_image_can_be_removed),
		TEST(leftovers_of_a_killed_build_go_with_the_next),
		TEST(build_that_goes_on_is_left_alone),
		TEST(layers_of_another_image_are_shared),
		TEST(image_without_layers_is_refused),
		TEST(remote_layer_has_no_file),
		TEST(list_is_sorted_and_has_the_unusable_ones),
		TEST(store_is_where_the_environment_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
