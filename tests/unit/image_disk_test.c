/* SPDX-License-Identifier: Apache-2.0 */
/* host/image_disk and host/image_export: stacks of layers read as one disk, and written as one file. */
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
#include "devices/backend/zfile.h"
#include "host/file.h"
#include "host/image_disk.h"
#include "host/image_export.h"
#include "host/image_store.h"
#include "lib/fd.h"
#include "lib/tar.h"
#include "lib/util.h"

enum { SIZE = 1 << 20 };

struct fixture {
	char base[64], path[128];
	struct image_store store;
	struct image_draft draft;
	struct image image;
	uint8_t *expected; /* SIZE bytes */
	bool wrapped;      /* layers are put into ZFiles, every other one into a tar besides */
	unsigned nwrapped;
	struct err err;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	f->expected = calloc(1, SIZE);
	strcpy(f->base, "/tmp/coffer-disk-XXXXXX");
	assert_non_null(mkdtemp(f->base));
	snprintf(f->path, sizeof(f->path), "%s/out", f->base);
	assert_int_equal(image_store_init(&f->store, f->base, &f->err), 0);
	f->draft = IMAGE_DRAFT_NONE;
	assert_int_equal(image_draft_begin(&f->store, &f->draft, &f->err), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	image_finish(&f->image);
	image_draft_end(&f->draft);
	file_remove_tree(AT_FDCWD, f->base);
	free(f->expected);
	free(f);
	return 0;
}

struct part {
	uint64_t off, n;
	uint8_t fill;
};

/* The layer in `fd` as a ZFile, in a tar if `tar`, in its place. What is asked of it stays the same. */
static void wrap(struct fixture *f, int fd, enum zfile_algo algo, bool tar)
{
	_cleanup_close_ int out = openat(f->draft.fd, "wrapped", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	_cleanup_free_ struct tar_entry *e = calloc(1, sizeof(*e));
	_cleanup_free_ uint8_t *buf = malloc(SIZE * 2), *head = malloc(TAR_HEADER_MAX);
	const struct zfile_options options = { .algo = algo, .block_size = 4096, .threads = 1 };
	struct lsmt_info before, after;
	struct zfile_writer *w;
	uint64_t size;

	assert_int_equal(lsmt_inspect(fd, "layer", &before, &f->err), 0);
	assert_false(before.compressed);
	ssize_t n = fd_pread_full(fd, buf, SIZE * 2, 0);

	assert_int_equal(zfile_writer_open(&options, zfile_write_fd, (void *)(intptr_t)out, &w, &f->err), 0);
	assert_int_equal(zfile_writer_write(w, buf, (size_t)n, &f->err), 0);
	assert_int_equal(zfile_writer_finish(w, &size, &f->err), 0);
	zfile_writer_free(w);
	assert_int_equal(fd_pread_full(out, buf, SIZE * 2, 0), size);
	assert_int_equal(ftruncate(fd, 0), 0);
	e->type = TAR_FILE;
	e->size = (int64_t)size;
	strcpy(e->name, "overlaybd.commit");
	n = tar ? tar_header_make(e, head, TAR_HEADER_MAX) : 0;
	assert_true(n >= 0);
	assert_int_equal(fd_pwrite_full(fd, head, (size_t)n, 0), 0);
	assert_int_equal(fd_pwrite_full(fd, buf, size, n), 0);
	if (tar)
		assert_int_equal(ftruncate(fd, ALIGN_UP(n + (off_t)size, (off_t)TAR_BLOCK) + 2 * TAR_BLOCK), 0);
	if (lsmt_inspect(fd, "layer", &after, &f->err) < 0)
		fail_msg("%s", f->err.text);
	assert_true(after.compressed);
	assert_int_equal(after.virtual_size, before.virtual_size);
	assert_int_equal(after.entries, before.entries);
	assert_int_equal(after.index_hash, before.index_hash);
	assert_string_equal(after.uuid, before.uuid);
	assert_int_equal(after.file_size, lseek(fd, 0, SEEK_END));
}

/* One more layer with these parts; for a raw one the file has `raw_size` bytes. */
static void add(struct fixture *f, const struct part *part, size_t n, uint64_t raw_size)
{
	_cleanup_close_ int raw = openat(f->draft.fd, "raw", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	_cleanup_close_ int layer = openat(f->draft.fd, "layer", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct image_layer facts;
	int r = ftruncate(raw, raw_size ? (off_t)raw_size : SIZE);

	assert_int_equal(r, 0);
	for (size_t i = 0; i < n; i++) {
		memset(f->expected + part[i].off, part[i].fill, part[i].n);
		assert_int_equal(fd_pwrite_full(raw, f->expected + part[i].off, part[i].n, (off_t)part[i].off), 0);
	}
	if (!raw_size)
		assert_int_equal(lsmt_pack_raw(raw, SIZE, layer, NULL, &f->err), 0);
	if (!raw_size && f->wrapped) {
		wrap(f, layer, f->nwrapped % 2 ? ZFILE_LZ4 : ZFILE_ZSTD, f->nwrapped % 2);
		f->nwrapped++;
	}
	assert_int_equal(image_layer_measure(raw_size ? raw : layer, "layer", raw_size > 0, &facts, NULL, NULL, &f->err), 0);
	r = image_draft_add_layer(&f->draft, raw_size ? raw : layer, raw_size ? "raw" : "layer", &facts, &f->err);
	if (r < 0)
		fail_msg("%s", f->err.text);
}

static void publish(struct fixture *f)
{
	struct image image = { .name = "one", .size = SIZE };

	if (image_draft_publish(&f->draft, &image, true, NULL, &f->err) < 0)
		fail_msg("%s", f->err.text);
	image_finish(&image);
	assert_int_equal(image_store_resolve(&f->store, "one", &f->image, &f->err), 0);
}

static void make_stack(struct fixture *f, bool base)
{
	const struct part lowest[] = { { 0, 4096, 1 }, { 65536, 131072, 2 }, { SIZE / 2 - 4096, 4096, 9 } };
	const struct part middle[] = { { 69632, 4096, 3 }, { SIZE - 4096, 4096, 4 } };
	const struct part upper[] = { { 61440, 8192, 5 } };

	add(f, lowest, ARRAY_SIZE(lowest), base ? SIZE / 2 : 0);
	add(f, middle, ARRAY_SIZE(middle), 0);
	add(f, upper, ARRAY_SIZE(upper), 0);
	publish(f);
}

static void check_reads(struct fixture *f)
{
	_cleanup_free_ uint8_t *buf = malloc(SIZE);
	struct image_disk d = IMAGE_DISK_NONE;

	assert_int_equal(image_disk_open(&f->image, &d, &f->err), 0);
	assert_int_equal(image_disk_read(&d, buf, SIZE, 0), 0);
	assert_memory_equal(buf, f->expected, SIZE);
	/* Ends that are no sectors', across the borders of layers. */
	for (uint64_t off = 61430; off < 69640; off += 7) {
		assert_int_equal(image_disk_read(&d, buf, 5001, off), 0);
		assert_memory_equal(buf, f->expected + off, 5001);
	}
	assert_int_equal(image_disk_read(&d, buf, 1, SIZE), -EINVAL);
	assert_int_equal(image_disk_read(&d, buf, 2, SIZE - 1), -EINVAL);
	assert_int_equal(image_disk_read(&d, buf, 1, UINT64_MAX), -EINVAL);
	image_disk_close(&d);
}

static void upper_layers_cover_lower_ones(void **state)
{
	make_stack(*state, false);
	check_reads(*state);
}

static void compressed_and_wrapped_layers_read_the_same(void **state)
{
	struct fixture *f = *state;

	f->wrapped = true;
	make_stack(f, true);
	assert_int_equal(f->nwrapped, 2);
	check_reads(f);
}

static void raw_layer_may_be_shorter_than_the_disk(void **state)
{
	make_stack(*state, true);
	check_reads(*state);
}

static void file_given_as_a_path_is_a_disk(void **state)
{
	struct fixture *f = *state;

	memset(f->expected + 8192, 7, 512);
	assert_int_equal(file_write_atomic(f->path, f->expected, SIZE, 0644, false, &f->err), 0);
	assert_int_equal(image_store_resolve(&f->store, f->path, &f->image, &f->err), 0);
	check_reads(f);
}

static void data_are_found_between_holes(void **state)
{
	struct fixture *f = *state;
	struct image_disk d = IMAGE_DISK_NONE;
	uint64_t at = 0, start, end, sum = 0;

	make_stack(f, false);
	assert_int_equal(image_disk_open(&f->image, &d, &f->err), 0);
	while (image_disk_next_data(&d, at, &start, &end)) {
		assert_true(start >= at && end > start && end <= SIZE);
		for (uint64_t i = at; i < start; i++)
			assert_int_equal(f->expected[i], 0);
		sum += end - start;
		at = end;
	}
	assert_int_equal(sum, 4096 + 4096 + 131072 + 4096 + 4096);
	image_disk_close(&d);
}

/* A smaller one may lie in it. */
static void layer_of_a_larger_disk_is_refused(void **state)
{
	struct fixture *f = *state;
	struct image_disk d = IMAGE_DISK_NONE;

	make_stack(f, false);
	f->image.size = 2 * SIZE;
	assert_int_equal(image_disk_open(&f->image, &d, &f->err), 0);
	image_disk_close(&d);
	f->image.size = SIZE / 2;
	assert_int_equal(image_disk_open(&f->image, &d, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "layer 1"));
}

static void damaged_index_is_refused(void **state)
{
	struct fixture *f = *state;
	struct image_disk d = IMAGE_DISK_NONE;
	char path[PATH_MAX];
	int fd;

	make_stack(f, false);
	fd = image_layer_open(&f->image, 1, path, &f->err);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(chmod(path, 0644), 0);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(fd_pwrite_full(fd, "\xff\xff\xff\xff\xff\xff\x01\x01", 8, (off_t)f->image.layer[1].bytes - 8192), 0);
	close(fd);
	assert_int_equal(image_disk_open(&f->image, &d, &f->err), -EINVAL);
	assert_non_null(strstr(f->err.text, "'one': layer 2: index entry 0"));
}

static void raw_export_is_a_sparse_file(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ uint8_t *buf = malloc(SIZE);
	struct stat st;
	int fd;

	make_stack(f, true);
	assert_int_equal(image_export_formats[0].run(&f->image, f->path, -1, NULL, &f->err), 0);
	fd = open(f->path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	assert_int_equal(st.st_size, SIZE);
	assert_true(st.st_blocks * 512 < SIZE / 2);
	assert_int_equal(fd_pread_full(fd, buf, SIZE, 0), SIZE);
	assert_memory_equal(buf, f->expected, SIZE);
	close(fd);
	/* Nothing is replaced. */
	assert_int_equal(image_export_formats[0].run(&f->image, f->path, -1, NULL, &f->err), -EEXIST);
}

static void raw_export_goes_through_a_pipe(void **state)
{
	struct fixture *f = *state;
	_cleanup_free_ uint8_t *buf = malloc(SIZE + 1);
	int fd[2], status;
	pid_t pid;

	make_stack(f, false);
	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		close(fd[0]);
		_exit(image_export_formats[0].run(&f->image, "-", fd[1], NULL, &f->err) == 0 ? 0 : 1);
	}
	close(fd[1]);
	assert_int_equal(fd_read_full(fd[0], buf, SIZE + 1), SIZE);
	assert_memory_equal(buf, f->expected, SIZE);
	close(fd[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(upper_layers_cover_lower_ones),
		TEST(compressed_and_wrapped_layers_read_the_same),
		TEST(raw_layer_may_be_shorter_than_the_disk),
		TEST(file_given_as_a_path_is_a_disk),
		TEST(data_are_found_between_holes),
		TEST(layer_of_a_larger_disk_is_refused),
		TEST(damaged_index_is_refused),
		TEST(raw_export_is_a_sparse_file),
		TEST(raw_export_goes_through_a_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
