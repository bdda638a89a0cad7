/* SPDX-License-Identifier: Apache-2.0 */
/* A VM's layers made one: contents, what stays zeroed, the superblock, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/lsmt_format.h"
#include "devices/backend/lsmt.h"
#include "devices/backend/layer_file.h"
#include "host/image_store.h"
#include "host/pack.h"
#include "host/pack_layer.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SIZE = 1 << 20, SUPER = 1024 };

static const char *const names[] = { "low", "high", "third" };

static int file_new(void)
{
	int fd = memfd_create("layer", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void put_super(uint8_t *disk, uint16_t state, uint32_t incompat)
{
	le16_store(disk + SUPER + 0x38, 0xef53);
	le16_store(disk + SUPER + 0x3a, state);
	le32_store(disk + SUPER + 0x60, incompat);
}

/* A layer with what is not zero in these bytes. */
static int layer_of(const uint8_t *bytes, size_t n)
{
	int raw = file_new(), fd = file_new();
	struct err err = ERR_INIT;

	assert_int_equal(fd_pwrite_full(raw, bytes, n, 0), 0);
	if (lsmt_pack_raw(raw, n, fd, NULL, &err) < 0)
		fail_msg("%s", err.text);
	close(raw);
	return fd;
}

/* A layer with one entry. */
static int layer_with(const struct lsmt_seg *s, uint8_t fill)
{
	const struct lsmt_head head = { .virtual_size = SIZE };
	uint8_t entry[LSMT_BLOCK], data[8 * 512];
	struct err err = ERR_INIT;
	int fd = file_new();

	memset(data, fill, sizeof(data));
	assert_int_equal(fd_pwrite_full(fd, data, sizeof(data), LSMT_BLOCK), 0);
	lsmt_entry_encode(s, entry);
	if (lsmt_seal_file(fd, &head, LSMT_HEADER_SECTORS + 8, entry, 1, &err) < 0)
		fail_msg("%s", err.text);
	return fd;
}

struct reader {
	int fd;
	uint8_t *disk;
	uint64_t zeroed, next;
};

static int read_each(void *arg, const struct lsmt_seg *s)
{
	struct reader *r = arg;

	if (s->zeroed) {
		r->zeroed += s->length;
		return 0;
	}
	assert_true(s->moffset == r->next || r->next == 0); /* data are in the order of the disk */
	r->next = s->moffset + s->length;
	assert_int_equal(fd_pread_full(r->fd, r->disk + s->offset * 512, (size_t)s->length * 512, (off_t)(s->moffset * 512)),
			 (ssize_t)s->length * 512);
	return 0;
}

/* What the layer says, over what is in `disk`; returns how many sectors it zeroes. */
static uint64_t read_layer(int fd, uint8_t *disk)
{
	uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
	struct reader r = { .fd = fd, .disk = disk };
	struct err err = ERR_INIT;
	struct lsmt_sealed l;

	assert_non_null(buf);
	if (lsmt_sealed_open(fd, "new", &l, &err) < 0 || lsmt_sealed_walk(fd, "new", &l, buf, read_each, &r, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(l.head.virtual_size, SIZE);
	assert_int_equal(strlen(l.head.uuid), LSMT_UUID_LEN);
	free(buf);
	return r.zeroed;
}

static int write_fd(void *ctx, const void *buf, size_t n)
{
	return fd_write_full(*(int *)ctx, buf, n);
}

static void layers_are_laid_over_one_another(void **state)
{
	uint8_t *disk = calloc(1, SIZE), *want = calloc(1, SIZE), *got = calloc(1, SIZE);
	struct pack_layer_facts facts;
	struct err err = ERR_INIT;
	int fd[3], out = file_new();

	(void)state;
	for (size_t i = 0; i < SIZE / 2; i++)
		disk[i] = (uint8_t)(i / 512 + 1);
	put_super(disk, 0, 0);
	fd[0] = layer_of(disk, SIZE);
	fd[1] = layer_with(&(struct lsmt_seg){ .offset = 101, .length = 5, .moffset = LSMT_HEADER_SECTORS }, 0x77);
	fd[2] = layer_with(&(struct lsmt_seg){ .offset = 103, .length = 900, .zeroed = true }, 0);
	memcpy(want, disk, SIZE / 2);
	memset(want + 101 * 512, 0x77, 5 * 512);
	memset(want + 103 * 512, 0, 900 * 512);
	want[SUPER + 0x3a] = 1;
	if (pack_layer_write(fd, names, 3, write_fd, &out, NULL, &facts, &err) < 0)
		fail_msg("%s", err.text);
	memset(got, 0, SIZE);
	assert_int_equal(read_layer(out, got), 900);
	assert_memory_equal(got, want, SIZE);
	assert_int_equal(facts.size, SIZE);
	assert_int_equal(facts.data, (SIZE / 2 / 512 - (1003 - 103)) * 512);
	for (size_t i = 0; i < 3; i++)
		close(fd[i]);
	close(out);
	free(disk);
	free(want);
	free(got);
}

static void one_layer_is_copied_without_its_garbage(void **state)
{
	uint8_t *disk = calloc(1, SIZE), *got = calloc(1, SIZE);
	struct err err = ERR_INIT;
	struct stat st;
	int fd, out = file_new();

	(void)state;
	memset(disk + 8192, 9, 4096);
	put_super(disk, 1, 0);
	fd = layer_of(disk, SIZE);
	assert_int_equal(pack_layer_write(&fd, names, 1, write_fd, &out, NULL, NULL, &err), 0);
	assert_int_equal(read_layer(out, got), 0);
	assert_memory_equal(got, disk, SIZE);
	assert_int_equal(fstat(out, &st), 0);
	assert_int_equal(st.st_size, LSMT_BLOCK + 2 * 4096 + LSMT_BLOCK + LSMT_BLOCK);
	close(fd);
	close(out);
	free(disk);
	free(got);
}

static int refused(uint16_t fs_state, uint32_t incompat, struct err *err)
{
	uint8_t *disk = calloc(1, SIZE);
	int fd, out = file_new(), r;
	struct stat st;

	put_super(disk, fs_state, incompat);
	fd = layer_of(disk, SIZE);
	r = pack_layer_write(&fd, names, 1, write_fd, &out, NULL, NULL, err);
	assert_int_equal(fstat(out, &st), 0);
	assert_int_equal(st.st_size, 0);
	close(fd);
	close(out);
	free(disk);
	return r;
}

static void a_file_system_with_errors_or_a_journal_to_replay_is_refused(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(refused(2, 0, &err), -EUCLEAN);
	assert_non_null(strstr(err.text, "found errors"));
	assert_int_equal(refused(1, 4, &err), -EUCLEAN);
	assert_non_null(strstr(err.text, "journal"));
}

static void layers_without_a_superblock_are_no_file_system(void **state)
{
	int fd = layer_with(&(struct lsmt_seg){ .offset = 3, .length = 5, .moffset = LSMT_HEADER_SECTORS }, 1), out = file_new();
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(pack_layer_write(&fd, names, 1, write_fd, &out, NULL, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "superblock"));
	close(fd);
	fd = layer_with(&(struct lsmt_seg){ .offset = 2, .length = 2, .moffset = LSMT_HEADER_SECTORS }, 1);
	assert_int_equal(pack_layer_write(&fd, names, 1, write_fd, &out, NULL, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "no ext4"));
	close(fd);
	close(out);
}

/* What lies in the layer, plain again, and where it says so. */
static int unwrap(int fd)
{
	struct layer_file *f;
	struct err err = ERR_INIT;
	uint8_t buf[4096];
	int plain = file_new();

	if (layer_file_open(fd, "new", &f, &err) < 0)
		fail_msg("%s", err.text);
	for (uint64_t at = 0; at < f->bytes.size; at += sizeof(buf)) {
		ssize_t n = layer_file_read(f, buf, sizeof(buf), at);

		assert_true(n > 0);
		assert_int_equal(fd_pwrite_full(plain, buf, (size_t)n, (off_t)at), 0);
	}
	layer_file_close(f);
	return plain;
}

static void a_file_is_what_is_said_of_it(const struct zfile_options *z, bool compressed)
{
	uint8_t *disk = calloc(1, SIZE), *got = calloc(1, SIZE);
	struct image_layer said = { 0 }, is = { 0 };
	struct pack_layer_facts facts;
	struct err err = ERR_INIT;
	struct lsmt_info info;
	struct stat st;
	int fd, out = file_new(), plain;

	for (size_t i = 0; i < SIZE / 2; i++)
		disk[i] = (uint8_t)(i * i / 4096);
	memset(disk + SUPER, 0, PACK_SUPER_BYTES);
	put_super(disk, 1, 0);
	fd = layer_of(disk, SIZE);
	if (pack_layer_file(&fd, names, 1, z, out, NULL, &facts, &said, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(facts.size, SIZE);
	if (lsmt_inspect(out, "new", &info, &err) < 0 || image_layer_measure(out, "new", false, &is, NULL, NULL, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(info.compressed, compressed);
	assert_int_equal(info.virtual_size, SIZE);
	assert_int_equal(info.entries, facts.entries);
	assert_int_equal(said.index_hash, info.index_hash);
	assert_int_equal(fstat(out, &st), 0);
	assert_int_equal(said.bytes, st.st_size);
	assert_int_equal(is.bytes, said.bytes);
	assert_string_equal(is.sha256, said.sha256);
	assert_string_equal(is.xxh, said.xxh);
	assert_int_equal(is.index_hash, said.index_hash);
	assert_false(said.raw);
	assert_true(said.created > 0);
	plain = unwrap(out);
	assert_int_equal(read_layer(plain, got), 0);
	assert_memory_equal(got, disk, SIZE);
	close(fd);
	close(out);
	close(plain);
	free(disk);
	free(got);
}

static void a_plain_file_is_what_is_said_of_it(void **state)
{
	(void)state;
	a_file_is_what_is_said_of_it(NULL, false);
}

static void a_zstd_file_is_what_is_said_of_it(void **state)
{
	(void)state;
	a_file_is_what_is_said_of_it(&(struct zfile_options){ .algo = ZFILE_ZSTD }, true);
}

static void an_lz4_file_is_what_is_said_of_it(void **state)
{
	(void)state;
	a_file_is_what_is_said_of_it(&(struct zfile_options){ .algo = ZFILE_LZ4, .threads = 1 }, true);
}

static void a_file_that_cannot_be_written_ends_it(void **state)
{
	const struct zfile_options z = { .algo = ZFILE_ZSTD };
	uint8_t *disk = calloc(1, SIZE);
	struct image_layer said = { 0 };
	struct err err = ERR_INIT;
	int fd, out = open("/dev/full", O_RDWR | O_CLOEXEC);

	(void)state;
	put_super(disk, 1, 0);
	fd = layer_of(disk, SIZE);
	assert_int_equal(pack_layer_file(&fd, names, 1, &z, out, NULL, NULL, &said, &err), -ENOSPC);
	assert_int_equal(pack_layer_file(&fd, names, 1, NULL, out, NULL, NULL, &said, &err), -ENOSPC);
	assert_int_equal(said.bytes, 0);
	close(fd);
	close(out);
	free(disk);
}

static int full(void *ctx, const void *buf, size_t n)
{
	(void)ctx;
	(void)buf;
	(void)n;
	return -ENOSPC;
}

static void a_sink_that_fails_ends_it(void **state)
{
	uint8_t *disk = calloc(1, SIZE);
	struct err err = ERR_INIT;
	int fd;

	(void)state;
	put_super(disk, 1, 0);
	fd = layer_of(disk, SIZE);
	assert_int_equal(pack_layer_write(&fd, names, 1, full, NULL, NULL, NULL, &err), -ENOSPC);
	close(fd);
	free(disk);
}

static void a_checksum_is_compared_and_made_anew(void **state)
{
	uint8_t super[PACK_SUPER_BYTES] = { 0 };
	struct err err = ERR_INIT;

	(void)state;
	le16_store(super + 0x38, 0xef53);
	assert_int_equal(pack_super_clean(super, &err), 0);
	assert_int_equal(le32_load(super + 0x3fc), 0); /* none without the feature */
	le32_store(super + 0x64, 0x400);
	assert_int_equal(pack_super_clean(super, &err), -EINVAL);
	assert_non_null(strstr(err.text, "checksum"));
	le16_store(super + 0x3a, 1);
	uint32_t c = ~0u;

	for (size_t i = 0; i < 0x3fc; i++)
		for (int k = 0; k < 8; k++)
			c = c >> 1 ^ (((c ^ super[i] >> k) & 1) ? 0x82f63b78u : 0);
	le32_store(super + 0x3fc, c);
	assert_int_equal(pack_super_clean(super, &err), 0);
	assert_int_equal(le32_load(super + 0x3fc), c);
}

static void compression_is_told_by_a_word(void **state)
{
	static const char *const bad[] = { "", "zip", "zstd:", "zstd:0", "zstd:20", "lz4:13", "zstdx", "none:1", "lz4:x" };
	struct err err = ERR_INIT;
	struct pack p = { 0 };

	(void)state;
	assert_int_equal(pack_parse_compress("none", &p, &err), 0);
	assert_false(p.compress);
	assert_int_equal(pack_parse_compress("zstd:7", &p, &err), 0);
	assert_true(p.compress);
	assert_int_equal(p.zfile.algo, ZFILE_ZSTD);
	assert_int_equal(p.zfile.level, 7);
	assert_int_equal(pack_parse_compress("lz4", &p, &err), 0);
	assert_int_equal(p.zfile.algo, ZFILE_LZ4);
	assert_int_equal(p.zfile.level, 0);
	assert_int_equal(pack_parse_compress(NULL, &p, &err), 0);
	assert_true(p.compress);
	assert_int_equal(p.zfile.algo, ZFILE_ZSTD);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(pack_parse_compress(bad[i], &p, &err), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_are_laid_over_one_another),
		cmocka_unit_test(one_layer_is_copied_without_its_garbage),
		cmocka_unit_test(a_file_system_with_errors_or_a_journal_to_replay_is_refused),
		cmocka_unit_test(layers_without_a_superblock_are_no_file_system),
		cmocka_unit_test(a_plain_file_is_what_is_said_of_it),
		cmocka_unit_test(a_zstd_file_is_what_is_said_of_it),
		cmocka_unit_test(an_lz4_file_is_what_is_said_of_it),
		cmocka_unit_test(a_file_that_cannot_be_written_ends_it),
		cmocka_unit_test(a_sink_that_fails_ends_it),
		cmocka_unit_test(a_checksum_is_compared_and_made_anew),
		cmocka_unit_test(compression_is_told_by_a_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
