/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers from and for others: the one that overlaybd's own tools made reads to its known digest and holds a clean ext4;
 * what is written here is read by tests/tools/overlaybd_decode.py, which was written from the format's description.
 */
#include "tests/unit/zfile_fixture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "devices/backend/lsmt_format.h"
#include "host/sha256.h"
#include "lib/tar.h"

#define REAL "tests/data/overlaybd-ext4_64.tar.gz"
#define REAL_SHA256 "799dbd74cbcfbd7f37611057130b20fda0e1e671280df97cc3a05d73620d5ac7"
enum { STREAM_SIZE = 541937664, PIECE = 1 << 20 };

struct fixture {
	char dir[64];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	strcpy(f->dir, "/tmp/coffer-overlaybd-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	*state = f;
	return 0;
}

static void __attribute__((format(printf, 1, 2))) run(const char *fmt, ...)
{
	char command[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	if (system(command) != 0)
		fail_msg("%s", command);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	run("rm -rf '%s'", f->dir);
	free(f);
	return 0;
}

static int open_in(const struct fixture *f, const char *name)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	return fd;
}

/* Holes for what is zeros, in units of 4 KiB. */
static void write_sparse(int fd, const uint8_t *p, size_t n, uint64_t off)
{
	static const uint8_t zeros[4096];

	for (size_t at = 0; at < n; at += sizeof(zeros)) {
		size_t part = MIN(sizeof(zeros), n - at);

		if (memcmp(p + at, zeros, part) != 0)
			assert_int_equal(fd_pwrite_full(fd, p + at, part, (off_t)(off + at)), 0);
	}
}

/* The disk of a layer: written sparse if disk_fd >= 0, and a digest over each sector that is not zeros, its number
 * first. */
struct walk {
	int layer_fd, disk_fd;
	struct sha256_ctx sha;
	uint8_t *p; /* room for the longest segment */
};

static int walk_segment(void *arg, const struct lsmt_seg *s)
{
	static const uint8_t zeros[512];
	struct walk *w = arg;
	uint8_t *p = w->p;

	if (s->zeroed)
		return 0;
	assert_int_equal(fd_pread_full(w->layer_fd, p, s->length * 512ul, (off_t)(s->moffset * 512)), s->length * 512ul);
	for (uint32_t i = 0; i < s->length; i++)
		if (memcmp(p + i * 512ul, zeros, 512) != 0) {
			uint8_t number[8];

			le64_store(number, s->offset + i);
			sha256_update(&w->sha, sizeof(number), number);
			sha256_update(&w->sha, 512, p + i * 512ul);
		}
	if (w->disk_fd >= 0)
		write_sparse(w->disk_fd, p, s->length * 512ul, s->offset * 512);
	return 0;
}

static void walk_layer(int layer_fd, int disk_fd, uint64_t *ret_size, char ret_hex[SHA256_HEX_SIZE])
{
	struct walk w = { .layer_fd = layer_fd, .disk_fd = disk_fd };
	uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
	struct lsmt_sealed l = { 0 };
	struct err err = ERR_INIT;

	w.p = malloc(LSMT_LENGTH_MAX * 512ul);
	sha256_init(&w.sha);
	if (lsmt_sealed_open(layer_fd, "layer", &l, &err) < 0 ||
	    lsmt_sealed_walk(layer_fd, "layer", &l, buf, walk_segment, &w, &err) < 0)
		fail_msg("%s", err.text);
	*ret_size = l.head.virtual_size;
	sha256_end_hex(&w.sha, ret_hex);
	free(w.p);
	free(buf);
}

static void the_layer_made_by_overlaybd_reads_to_its_digest(void **state)
{
	struct fixture *f = *state;
	struct sha256_ctx sha;
	struct zfile_ctx *x = zfile_ctx_create();
	struct zfile *z = NULL;
	struct err err = ERR_INIT;
	uint8_t *buf = malloc(PIECE);
	char hex[SHA256_HEX_SIZE];
	uint64_t size = 0;
	int fd, stream, disk;

	run("tar -xzf " REAL " -C '%s' --no-same-owner", f->dir);
	fd = open_in(f, "ext4_64");
	stream = open_in(f, "stream");
	if (zfile_open_fd(fd, "ext4_64", &z, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(zfile_info(z)->size, STREAM_SIZE);
	assert_int_equal(zfile_info(z)->algo, ZFILE_LZ4);
	assert_true(zfile_info(z)->memory < 5 * zfile_info(z)->blocks);
	sha256_init(&sha);
	for (uint64_t off = 0; off < STREAM_SIZE; off += PIECE) {
		size_t n = MIN((uint64_t)PIECE, STREAM_SIZE - off);

		assert_int_equal(zfile_pread(z, x, buf, n, off), n);
		sha256_update(&sha, n, buf);
		write_sparse(stream, buf, n, off);
	}
	sha256_end_hex(&sha, hex);
	assert_string_equal(hex, REAL_SHA256);
	assert_int_equal(ftruncate(stream, STREAM_SIZE), 0);

	disk = open_in(f, "disk");
	walk_layer(stream, disk, &size, hex);
	assert_int_equal(size, GIB(64));
	assert_int_equal(ftruncate(disk, (off_t)size), 0);
	run("PATH=$PATH:/sbin:/usr/sbin; e2fsck -fn '%s/disk' >'%s/log' 2>&1 || { cat '%s/log'; exit 1; }", f->dir, f->dir,
	    f->dir);
	run("grep -q ' 11/4194304 files .* 407675/16777216 blocks' '%s/log'", f->dir);
	close(disk);
	close(stream);
	close(fd);
	zfile_close(z);
	zfile_ctx_destroy(x);
	free(buf);
}

/* A sealed layer of a raw image with data here and there. Its bytes are in *ret. */
static int make_layer(struct fixture *f, struct bytes *ret)
{
	struct bytes c = content_make(700000, 3);
	int raw = open_in(f, "raw"), fd = open_in(f, "layer");
	struct err err = ERR_INIT;
	struct stat st;

	assert_int_equal(ftruncate(raw, 16 << 20), 0);
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(fd_pwrite_full(raw, c.p + i * 65536, 10000 + i * 5000, (off_t)(i * 1500160)), 0);
	if (lsmt_pack_raw(raw, 16 << 20, fd, NULL, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(fstat(fd, &st), 0);
	ret->n = (size_t)st.st_size;
	ret->p = malloc(ret->n);
	assert_int_equal(fd_pread_full(fd, ret->p, ret->n, 0), ret->n);
	free(c.p);
	close(raw);
	return fd;
}

/* The decoder says of DIR/name what is expected. */
static void decode(const struct fixture *f, const char *name, const char *kind, bool tar, const char *stream,
		   const char *disk)
{
	run("tests/tools/overlaybd_decode.py '%s/%s' >'%s/json'", f->dir, name, f->dir);
	run("grep -qF '\"kind\": \"%s\", \"tar\": %s, ' '%s/json'", kind, tar ? "true" : "false", f->dir);
	run("grep -qF '\"virtual_size\": 16777216, ' '%s/json'", f->dir);
	run("grep -qF '\"stream\": \"%s\", \"disk\": \"%s\"}' '%s/json' || { cat '%s/json'; exit 1; }", stream, disk, f->dir,
	    f->dir);
}

static void an_independent_decoder_reads_what_is_written(void **state)
{
	static const struct {
		const char *kind;
		struct zfile_options o;
		const char *tar; /* name of the entry */
	} made[] = {
		{ "lz4", { .algo = ZFILE_LZ4, .block_size = 4096 }, NULL },
		{ "lz4", { .algo = ZFILE_LZ4, .level = 9 }, "overlaybd.commit" },
		{ "zstd", { .algo = ZFILE_ZSTD, .block_size = 65536 }, NULL },
		{ "zstd", { .algo = ZFILE_ZSTD }, "overlaybd.commit" },
		{ "lsmt", { .algo = 0 }, "overlaybd.commit" },
	};
	char stream[SHA256_HEX_SIZE], disk[SHA256_HEX_SIZE];
	struct fixture *f = *state;
	struct sha256_ctx sha;
	struct bytes layer;
	uint64_t size = 0;
	int fd = make_layer(f, &layer);

	walk_layer(fd, -1, &size, disk);
	assert_int_equal(size, 16 << 20);
	close(fd);
	sha256_init(&sha);
	sha256_update(&sha, layer.n, layer.p);
	sha256_end_hex(&sha, stream);
	decode(f, "layer", "lsmt", false, stream, disk);
	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		struct bytes out = made[i].o.algo ? zfile_make(&layer, &made[i].o, layer.n) : layer;
		struct tar_entry *e = calloc(1, sizeof(*e));
		uint8_t head[TAR_HEADER_MAX], zeros[3 * TAR_BLOCK] = { 0 };
		char name[16];

		snprintf(name, sizeof(name), "made%zu", i);
		fd = open_in(f, name);
		if (made[i].tar) {
			ssize_t n;

			e->type = TAR_FILE;
			e->size = out.n;
			strcpy(e->name, made[i].tar);
			n = tar_header_make(e, head, sizeof(head));
			assert_true(n > 0);
			assert_int_equal(fd_write_full(fd, head, (size_t)n), 0);
		}
		assert_int_equal(fd_write_full(fd, out.p, out.n), 0);
		if (made[i].tar)
			assert_int_equal(fd_write_full(fd, zeros, 2 * TAR_BLOCK + (TAR_BLOCK - out.n % TAR_BLOCK) % TAR_BLOCK), 0);
		close(fd);
		free(e);
		if (made[i].o.algo)
			free(out.p);
		decode(f, name, made[i].kind, made[i].tar, stream, disk);
	}
	free(layer.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_layer_made_by_overlaybd_reads_to_its_digest, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_independent_decoder_reads_what_is_written, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
