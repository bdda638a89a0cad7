/* SPDX-License-Identifier: Apache-2.0 */
/* The "layers" backend: layers that are compressed, wrapped or remote. */
#include <sys/eventfd.h>

#include "devices/backend/zfile.h"
#include "tests/device/layers_fixture.h"

enum { SIZE = 8 << 20, SHIFT = 18, CHUNK = 1 << SHIFT, CHUNKS = 64 };

/* A fetcher that has the whole blob, gives a chunk when it is told to, and takes it away again. */
struct remote {
	struct block *b;
	int blob, cache;
	uint64_t size;
	uint32_t generation[CHUNKS], next;
	uint64_t asked[CHUNKS * 4];
	unsigned nasked, layer;
	bool answers_in_wait, dead, fails;
};

struct fixture {
	uint8_t *want;       /* the disk */
	int raw;             /* layer */
	struct block *b;
	struct remote r;
	struct block_remote table[2];
	struct rnd rnd;
};

static void fill(struct remote *r, uint64_t chunk)
{
	uint8_t *p = calloc(1, CHUNK);
	uint64_t n = MIN((uint64_t)CHUNK, r->size - chunk * CHUNK);

	assert_int_equal(fd_pread_full(r->blob, p, n, (off_t)(chunk * CHUNK)), n);
	assert_int_equal(fd_pwrite_full(r->cache, p, n, (off_t)(chunk * CHUNK)), 0);
	__atomic_store_n(&r->generation[chunk], ++r->next, __ATOMIC_RELEASE);
	free(p);
}

static void evict(struct remote *r, uint64_t chunk)
{
	__atomic_store_n(&r->generation[chunk], 0, __ATOMIC_RELEASE);
	assert_int_equal(
	    fallocate(r->cache, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(chunk * CHUNK), CHUNK), 0);
}

static void on_want(void *ctx, unsigned layer, uint64_t chunk)
{
	struct remote *r = ctx;

	assert_true(chunk < CHUNKS && r->nasked < ARRAY_SIZE(r->asked));
	r->layer = layer;
	r->asked[r->nasked++] = chunk;
}

static void answer(struct remote *r)
{
	uint64_t chunk = r->asked[--r->nasked];

	if (!r->fails)
		fill(r, chunk);
	block_layers_arrived(r->b, r->layer, chunk, r->fails ? -ETIMEDOUT : 0);
}

static int on_wait(void *ctx)
{
	struct remote *r = ctx;

	if (r->dead)
		return -EPIPE;
	assert_true(r->answers_in_wait && r->nasked > 0);
	answer(r);
	return 0;
}

static const struct block_remote_ops remote_ops = { .want = on_want, .wait = on_wait };

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err err = ERR_INIT;
	int image = file_new();

	f->rnd = (struct rnd){ 5 };
	f->want = calloc(1, SIZE);
	for (int i = 0; i < 300; i++) { /* runs of text and of noise, holes between */
		uint32_t n = 512 * (1 + rnd_below(&f->rnd, 40)), at = 512 * rnd_below(&f->rnd, SIZE / 512 - 41);

		if (i % 2)
			memset(f->want + at, i, n);
		else
			fill_random(&f->rnd, f->want + at, n);
	}
	assert_int_equal(fd_pwrite_full(image, f->want, SIZE, 0), 0);
	f->raw = file_new();
	assert_int_equal(lsmt_pack_raw(image, SIZE, f->raw, NULL, &err), 0);
	close(image);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	block_close(f->b);
	close(f->raw);
	if (f->r.size) {
		close(f->r.blob);
	}
	free(f->want);
	free(f);
	return 0;
}

static int compress(int from, enum zfile_algo algo, uint32_t block_size)
{
	struct zfile_options o = { .algo = algo, .block_size = block_size, .threads = 1 };
	uint64_t n = file_size(from);
	uint8_t *p = malloc(n);
	struct zfile_writer *w;
	struct err err = ERR_INIT;
	int fd = file_new();

	assert_int_equal(fd_pread_full(from, p, n, 0), n);
	assert_int_equal(zfile_writer_open(&o, zfile_write_fd, (void *)(intptr_t)fd, &w, &err), 0);
	assert_int_equal(zfile_writer_write(w, p, n, &err), 0);
	assert_int_equal(zfile_writer_finish(w, NULL, &err), 0);
	zfile_writer_free(w);
	free(p);
	return fd;
}

/* A tar with one file, the layer. */
static int wrap(int from)
{
	uint64_t n = file_size(from), sum = 0;
	uint8_t head[512] = "layer", *p = calloc(1, n + 2048);
	int fd = file_new();

	snprintf((char *)head + 100, 8, "%07o", 0644);
	snprintf((char *)head + 108, 8, "%07o", 0);
	snprintf((char *)head + 116, 8, "%07o", 0);
	snprintf((char *)head + 124, 12, "%011llo", (unsigned long long)n);
	snprintf((char *)head + 136, 12, "%011o", 0);
	memset(head + 148, ' ', 8);
	head[156] = '0';
	memcpy(head + 257, "ustar\00000", 8);
	for (int i = 0; i < 512; i++)
		sum += head[i];
	snprintf((char *)head + 148, 7, "%06llo", (unsigned long long)sum);
	assert_int_equal(fd_pread_full(from, p + 512, n, 0), n);
	memcpy(p, head, 512);
	assert_int_equal(fd_pwrite_full(fd, p, ALIGN_UP(n + 512, (uint64_t)512) + 1024, 0), 0);
	free(p);
	return fd;
}

/* One layer, whose descriptor it gets. */
static int try_open(struct fixture *f, int layer, bool remote, const char *aio, struct err *err)
{
	struct block_stack s = { .base_fd = -1, .layer_fd = &layer, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1 };
	struct block_config c = { .backend = "layers", .aio = aio, .ro = true, .size = SIZE, .depth = 64 };
	int r;

	if (remote) {
		f->r.blob = layer;
		f->r.size = file_size(layer);
		assert_true(f->r.size <= (uint64_t)CHUNKS * CHUNK);
		f->r.cache = layer = file_new();
		assert_int_equal(ftruncate(layer, (off_t)f->r.size), 0);
		f->table[0] = (struct block_remote){ .generation = f->r.generation, .chunks = CHUNKS, .shift = SHIFT };
		s.remote = f->table;
		s.remote_ops = &remote_ops;
		s.remote_ctx = &f->r;
	}
	assert_int_equal(block_open(&c, &f->b, err), 0);
	assert_int_equal(block_start(f->b, NULL, err), 0);
	f->r.b = f->b;
	r = block_layers_attach(f->b, &s, err);
	if (r < 0)
		close(layer);
	return r;
}

static void open_it(struct fixture *f, int layer, bool remote, const char *aio)
{
	struct err err = ERR_INIT;

	f->r.answers_in_wait = true;
	if (try_open(f, layer, remote, aio, &err) < 0)
		fail_msg("%s", err.text);
	f->r.answers_in_wait = false;
}

static void again(struct fixture *f)
{
	block_close(f->b);
	f->b = NULL;
}

static void reads_match(struct fixture *f)
{
	uint8_t *got = malloc(SIZE);

	disk_holds(f->b, f->want);
	for (int i = 0; i < 300; i++) {
		uint32_t n = 512 * (1 + rnd_below(&f->rnd, i % 3 ? 16 : 600)), at = 512 * rnd_below(&f->rnd, SIZE / 512 - 600);

		assert_int_equal(disk_do(f->b, BLOCK_READ, at, got, n, 0), 0);
		assert_memory_equal(got, f->want + at, n);
	}
	free(got);
}

static void compressed_layers_read_as_what_they_hold(void **state)
{
	static const uint32_t sizes[] = { 4096, 32768, 65536 };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		open_it(f, compress(f->raw, i % 2 ? ZFILE_LZ4 : ZFILE_ZSTD, sizes[i]), false, i % 2 ? "threads" : "io_uring");
		reads_match(f);
		again(f);
	}
}

static void wrapped_layers_are_unwrapped(void **state)
{
	struct fixture *f = *state;
	int z = compress(f->raw, ZFILE_ZSTD, 0);

	open_it(f, wrap(f->raw), false, "io_uring");
	reads_match(f);
	again(f);
	open_it(f, wrap(z), false, "io_uring");
	reads_match(f);
	close(z);
}

/* Read in a row, each block is decompressed once. */
static void small_reads_in_a_row_decompress_a_block_once(void **state)
{
	struct fixture *f = *state;
	uint8_t got[4096];

	memset(f->want, 7, SIZE);
	int image = file_new(), layer = file_new();
	struct err err = ERR_INIT;

	assert_int_equal(fd_pwrite_full(image, f->want, SIZE, 0), 0);
	assert_int_equal(lsmt_pack_raw(image, SIZE, layer, NULL, &err), 0);
	open_it(f, compress(layer, ZFILE_ZSTD, 65536), false, "io_uring");
	close(image);
	close(layer);
	for (int i = 0; i < 16; i++) {
		assert_int_equal(disk_do(f->b, BLOCK_READ, 1048576 + 4096 * i, got, 4096, 0), 0);
		assert_memory_equal(got, f->want, 4096);
	}
	int used = 0;

	for (int i = 0; i < LAYERS_SLOTS; i++)
		used += layers_of(f->b)->slow.slot[i].state == LAYERS_SLOT_VALID;
	assert_true(used <= 2); /* the content begins with a header block */
}

static void a_damaged_block_fails_its_reads_and_no_others(void **state)
{
	struct fixture *f = *state;
	int layer = compress(f->raw, ZFILE_ZSTD, 65536), copy = dup(layer);
	uint8_t *got = malloc(SIZE), bad;
	uint64_t at = file_size(layer) / 2;
	int failed = 0, good = 0;

	assert_int_equal(fd_pread_full(layer, &bad, 1, (off_t)at), 1);
	open_it(f, layer, false, "io_uring");
	bad ^= 1;
	assert_int_equal(fd_pwrite_full(copy, &bad, 1, (off_t)at), 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < SIZE; i += 4096) {
			int r = disk_do(f->b, BLOCK_READ, (uint64_t)i, got, 4096, 0);

			assert_true(r == 0 || r == -EIO);
			failed += r != 0;
			good += r == 0;
			if (r == 0)
				assert_memory_equal(got, f->want + i, 4096);
		}
		assert_true(failed > 0 && good > failed);
		assert_non_null(strstr(f->b->fault, "layer 1: compressed block "));
		assert_non_null(strstr(f->b->fault, " cannot be read: it is damaged"));
		bad ^= 1; /* mended, it is read */
		assert_int_equal(fd_pwrite_full(copy, &bad, 1, (off_t)at), 0);
		if (round == 0) {
			disk_holds(f->b, f->want);
			bad ^= 1;
			assert_int_equal(fd_pwrite_full(copy, &bad, 1, (off_t)at), 0);
			for (int i = 0; i < LAYERS_SLOTS; i++) /* forget what was read well */
				layers_of(f->b)->slow.slot[i].state = LAYERS_SLOT_FREE;
			failed = good = 0;
		}
	}
	close(copy);
	free(got);
}

/* ---- remote ---- */

static int remote_layer(struct fixture *f, bool z)
{
	return z ? compress(f->raw, ZFILE_LZ4, 4096) : dup(f->raw);
}

static void missing_chunks_are_waited_for_and_nothing_else_waits(void **state)
{
	struct fixture *f = *state;

	for (int z = 0; z < 2; z++) {
		struct waited w[64];
		uint8_t *got = malloc(SIZE);
		unsigned done = 0, asked = 0;

		memset(f->r.generation, 0, sizeof(f->r.generation));
		f->r.nasked = 0;
		open_it(f, remote_layer(f, z), true, "io_uring");
		assert_int_equal(f->r.nasked, 0);
		for (int i = 0; i < 64; i++) /* all at once */
			waited_submit(f->b, &w[i], BLOCK_READ, i * (SIZE / 64), got + i * (SIZE / 64), SIZE / 64, 0);
		block_kick(f->b);
		assert_true(f->r.nasked > 1);
		for (unsigned i = 0; i < f->r.nasked; i++) /* each once */
			for (unsigned k = 0; k < i; k++)
				assert_int_not_equal(f->r.asked[i], f->r.asked[k]);
		while (done < 64) {
			struct pollfd p = { .fd = f->b->event_fd, .events = POLLIN };

			if (poll(&p, 1, f->r.nasked ? 0 : 60000) == 1)
				block_complete(f->b);
			else if (f->r.nasked) {
				answer(&f->r);
				asked++;
			}
			done = 0;
			for (int i = 0; i < 64; i++)
				done += w[i].done;
		}
		for (int i = 0; i < 64; i++)
			assert_int_equal(w[i].result, 0);
		assert_memory_equal(got, f->want, SIZE);
		assert_true(asked <= CHUNKS);
		again(f);
		if (z == 0)
			close(f->r.blob);
		free(got);
	}
}

/* What was read while its chunk was evicted is not given to anyone. */
static void an_evicted_chunk_is_never_read(void **state)
{
	struct fixture *f = *state;
	uint8_t *got = malloc(SIZE);

	for (int z = 0; z < 2; z++) {
		memset(f->r.generation, 0, sizeof(f->r.generation));
		f->r.nasked = 0;
		open_it(f, remote_layer(f, z), true, z ? "io_uring" : "threads");
		for (int i = 0; i < 1500; i++) {
			uint32_t n = 512 * (1 + rnd_below(&f->rnd, 100)), at = 512 * rnd_below(&f->rnd, SIZE / 512 - 100);
			struct waited w;

			waited_submit(f->b, &w, BLOCK_READ, at, got, n, 0);
			block_kick(f->b);
			while (!w.done) {
				struct pollfd p = { .fd = f->b->event_fd, .events = POLLIN };
				uint64_t c = rnd_below(&f->rnd, (uint32_t)(f->r.size / CHUNK + 1));

				if (rnd_below(&f->rnd, 3) == 0)
					evict(&f->r, c);
				if (f->r.nasked)
					answer(&f->r);
				else if (poll(&p, 1, 60000) == 1)
					block_complete(f->b);
			}
			assert_int_equal(w.result, 0);
			assert_memory_equal(got, f->want + at, n);
		}
		again(f);
		if (z == 0)
			close(f->r.blob);
	}
	free(got);
}

static void what_cannot_be_fetched_fails_and_can_be_had_later(void **state)
{
	struct fixture *f = *state;
	uint8_t *got = malloc(SIZE);
	struct waited w;

	open_it(f, remote_layer(f, false), true, "io_uring");
	memset(f->r.generation, 0, sizeof(f->r.generation));
	f->r.fails = true;
	waited_submit(f->b, &w, BLOCK_READ, 0, got, SIZE, 0);
	block_kick(f->b);
	while (!w.done) {
		struct pollfd p = { .fd = f->b->event_fd, .events = POLLIN };

		if (f->r.nasked)
			answer(&f->r);
		else if (poll(&p, 1, 60000) == 1)
			block_complete(f->b);
	}
	assert_int_equal(w.result, -EIO);
	assert_non_null(strstr(f->b->fault, "layer 1: byte "));
	f->r.fails = false;
	f->r.answers_in_wait = true;
	waited_submit(f->b, &w, BLOCK_READ, 0, got, SIZE, 0);
	block_kick(f->b);
	block_drain(f->b); /* waits for the fetcher */
	assert_true(w.done && w.result == 0);
	assert_memory_equal(got, f->want, SIZE);
	memset(f->r.generation, 0, sizeof(f->r.generation));
	f->r.dead = true;
	waited_submit(f->b, &w, BLOCK_READ, 0, got, SIZE, 0);
	block_drain(f->b);
	assert_true(w.done && w.result == -EIO);
	free(got);
}

static void a_layer_that_cannot_be_fetched_is_not_attached(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;

	f->r.dead = true;
	assert_int_equal(try_open(f, remote_layer(f, true), true, "io_uring", &err), -EPIPE);
	assert_non_null(strstr(err.text, "layer 1 of 1"));
}

static void too_few_generations_are_refused(void **state)
{
	struct fixture *f = *state;
	struct err err = ERR_INIT;
	int layer = dup(f->raw);
	struct block_remote few[2] = { { .generation = f->r.generation, .chunks = 1, .shift = SHIFT } };
	struct block_stack s = { .base_fd = -1, .layer_fd = &layer, .nlayers = 1, .top_data_fd = -1, .top_index_fd = -1,
				 .remote = few, .remote_ops = &remote_ops, .remote_ctx = &f->r };
	struct block_config c = { .backend = "layers", .ro = true, .size = SIZE, .depth = 64 };

	assert_int_equal(block_open(&c, &f->b, &err), 0);
	assert_int_equal(block_layers_attach(f->b, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "layer 1 of 1: 1 generations are too few"));
	close(layer);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(compressed_layers_read_as_what_they_hold),
		T(wrapped_layers_are_unwrapped),
		T(small_reads_in_a_row_decompress_a_block_once),
		T(a_damaged_block_fails_its_reads_and_no_others),
		T(missing_chunks_are_waited_for_and_nothing_else_waits),
		T(an_evicted_chunk_is_never_read),
		T(what_cannot_be_fetched_fails_and_can_be_had_later),
		T(a_layer_that_cannot_be_fetched_is_not_attached),
		T(too_few_generations_are_refused),
	};

	return cmocka_run_group_tests_name("layers_source", tests, NULL, NULL);
}
