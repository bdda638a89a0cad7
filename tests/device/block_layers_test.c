/* SPDX-License-Identifier: Apache-2.0 */
/* The "layers" backend: contents against a plain array, with both engines; stacks, sealing, what is refused. */
#include "tests/device/layers_fixture.h"

enum { SIZE = 1 << 20, SECTORS = SIZE / 512 };

struct fixture {
	const char *aio;
	struct block *b;
	int data, index; /* of the top, the disk's */
	uint8_t *want;
	struct rnd rnd;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct block_stack s = { .base_fd = -1 };

	f->aio = *state;
	f->rnd = (struct rnd){ 11 };
	f->want = calloc(1, SIZE);
	pair_new(&f->data, &f->index, SIZE);
	s.top_data_fd = f->data;
	s.top_index_fd = f->index;
	f->b = disk_open(&s, f->aio, NULL);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	block_close(f->b);
	free(f->want);
	free(f);
	return 0;
}

static void random_range(struct fixture *f, uint32_t longest, uint64_t *off, uint64_t *len)
{
	uint32_t n = 1 + rnd_below(&f->rnd, longest);

	*off = rnd_below(&f->rnd, SECTORS - n) * 512ull;
	*len = n * 512ull;
}

/* n random writes, zeroes and discards, each waited for. */
static void scribble(struct fixture *f, int n)
{
	uint8_t buf[64 * 512];

	for (int i = 0; i < n; i++) {
		uint32_t kind = rnd_below(&f->rnd, 8), flags = rnd_below(&f->rnd, 6) == 0 ? BLOCK_F_DURABLE : 0;
		uint64_t off, len;

		random_range(f, 64, &off, &len);
		if (kind == 0) {
			assert_int_equal(disk_do(f->b, BLOCK_WRITE_ZEROES, off, NULL, len, flags), 0);
			memset(f->want + off, 0, len);
		} else if (kind == 1) {
			assert_int_equal(disk_do(f->b, BLOCK_DISCARD, off, NULL, len, 0), 0);
			memset(f->want + off, 0, len);
		} else if (kind == 2) {
			assert_int_equal(disk_do(f->b, BLOCK_FLUSH, 0, NULL, 0, 0), 0);
		} else {
			fill_random(&f->rnd, buf, len);
			assert_int_equal(disk_do(f->b, BLOCK_WRITE, off, buf, len, flags), 0);
			memcpy(f->want + off, buf, len);
		}
	}
}

static void a_new_disk_reads_zeros(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(f->b->size, SIZE);
	assert_false(f->b->ro);
	disk_holds(f->b, f->want);
}

static void random_requests_match_the_model(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 10; i++) {
		scribble(f, 60);
		disk_holds(f->b, f->want);
	}
}

/* Reads into iovecs cut anywhere, zero lengths included, over many small segments. */
static void reads_into_scattered_memory(void **state)
{
	struct fixture *f = *state;
	uint8_t *got = malloc(SIZE);

	scribble(f, 300);
	for (int i = 0; i < 200; i++) {
		struct iovec iov[40];
		uint64_t off, len, at = 0;
		struct waited w = { .done = false };

		random_range(f, 700, &off, &len);
		memset(got, 0xaa, len + 1);
		w.req =
		    (struct block_request){ .op = BLOCK_READ, .offset = off, .len = len, .iov = iov, .done = on_waited };
		for (int k = 0; k < 40; k++) {
			uint64_t n = k == 39
					 ? len - at
					 : MIN(len - at, (uint64_t)rnd_below(&f->rnd, 3) * rnd_below(&f->rnd, 20000));

			iov[k] = (struct iovec){ got + at, n };
			at += n;
		}
		w.req.niov = 40;
		block_submit(f->b, &w.req);
		waited_finish(f->b, &w);
		assert_int_equal(w.result, 0);
		assert_memory_equal(got, f->want + off, len);
		assert_int_equal(got[len], 0xaa);
	}
	free(got);
}

enum { BATCH = 700 }; /* more than the pool of parts */

/* Many at once, overlapping: each sector holds what one of its writers wrote, or what was there if it has none. */
static void overlapping_writes_leave_one_of_them(void **state)
{
	struct fixture *f = *state;
	struct waited *w = calloc(BATCH, sizeof(*w));
	uint8_t *buf = malloc((size_t)BATCH * 32 * 512), *got = malloc(SIZE);

	scribble(f, 50);
	for (int i = 0; i < BATCH; i++) {
		uint64_t off, len;

		random_range(f, 32, &off, &len);
		memset(buf + i * 32 * 512, i % 251, len);
		memcpy(buf + i * 32 * 512, &i, sizeof(i));
		for (uint64_t s = 0; s < len; s += 512)
			memcpy(buf + i * 32 * 512 + s, &i, sizeof(i));
		waited_submit(f->b, &w[i], i % 9 == 8 ? BLOCK_READ : BLOCK_WRITE, off,
			      i % 9 == 8 ? got : buf + i * 32 * 512, len, 0);
	}
	block_kick(f->b);
	block_drain(f->b);
	for (int i = 0; i < BATCH; i++)
		assert_true(w[i].done && w[i].result == 0);
	assert_int_equal(disk_do(f->b, BLOCK_READ, 0, got, SIZE, 0), 0);
	for (uint64_t at = 0; at < SIZE; at += 512) {
		bool found = false, any = false;

		for (int i = 0; i < BATCH; i++) {
			if (w[i].req.op != BLOCK_WRITE || at < w[i].req.offset || at >= w[i].req.offset + w[i].req.len)
				continue;
			any = true;
			found |= memcmp(got + at, buf + i * 32 * 512 + (at - w[i].req.offset), 512) == 0;
		}
		if (any ? !found : memcmp(got + at, f->want + at, 512) != 0)
			fail_msg("sector %u", (unsigned)(at / 512));
	}
	free(got);
	free(buf);
	free(w);
}

static void a_request_longer_than_an_entry_is_split(void **state)
{
	uint64_t size = MIB(40), len = 3ull * LSMT_LENGTH_MAX * 512 + 1536;
	struct block_stack s = { .base_fd = -1 };
	struct rnd rnd = { 5 };
	uint8_t *p = malloc(len), *q = calloc(1, size);
	struct fixture *f = *state;
	struct block *b;

	pair_new(&s.top_data_fd, &s.top_index_fd, size);
	b = disk_open(&s, f->aio, NULL);
	fill_random(&rnd, p, len);
	memcpy(q + 4096, p, len);
	assert_int_equal(disk_do(b, BLOCK_WRITE, 4096, p, len, BLOCK_F_DURABLE), 0);
	disk_holds(b, q);
	assert_int_equal(disk_do(b, BLOCK_WRITE_ZEROES, 512, NULL, size - 1024, BLOCK_F_UNMAP), 0);
	memset(q, 0, size);
	disk_holds(b, q);
	block_close(b);
	free(p);
	free(q);
}

static void discarding_what_is_nowhere_leaves_no_trace(void **state)
{
	struct fixture *f = *state;
	uint8_t sector[512] = { 1 };

	assert_int_equal(disk_do(f->b, BLOCK_DISCARD, 0, NULL, SIZE, 0), 0);
	assert_int_equal(layers_of(f->b)->index.count, 0);
	assert_int_equal(disk_do(f->b, BLOCK_WRITE, 512, sector, 512, 0), 0);
	assert_int_equal(disk_do(f->b, BLOCK_DISCARD, 0, NULL, SIZE, 0), 0);
	assert_int_equal(layers_of(f->b)->index.count, 1);
	disk_holds(f->b, f->want);
}

/* More entries than the log's ring has, without a single flush. */
static void the_log_empties_itself(void **state)
{
	struct fixture *f = *state;
	uint8_t sector[512];

	for (int i = 0; i < 3 * LAYERS_LOG_ENTRIES; i++) {
		uint64_t at = rnd_below(&f->rnd, SECTORS) * 512ull;

		memset(sector, i, sizeof(sector));
		memcpy(f->want + at, sector, sizeof(sector));
		if (i % 2) {
			assert_int_equal(disk_do(f->b, BLOCK_WRITE, at, sector, 512, 0), 0);
		} else {
			memset(f->want + at, 0, 512);
			assert_int_equal(disk_do(f->b, BLOCK_WRITE_ZEROES, at, NULL, 512, 0), 0);
		}
	}
	block_drain(f->b);
	assert_true(file_size(f->index) > (uint64_t)LAYERS_LOG_ENTRIES * LSMT_ENTRY_BYTES);
	disk_holds(f->b, f->want);
}

static void a_closed_pair_opens_with_what_it_had(void **state)
{
	static const char *const caches[] = { "writeback", "writethrough", "unsafe" };
	struct fixture *f = *state;

	for (size_t i = 0; i < ARRAY_SIZE(caches); i++) {
		struct block_stack s = { .base_fd = -1, .top_data_fd = dup(f->data), .top_index_fd = dup(f->index) };

		scribble(f, 100);
		block_close(f->b);
		f->data = s.top_data_fd;
		f->index = s.top_index_fd;
		f->b = disk_open(&s, f->aio, caches[i]);
		assert_string_equal(f->b->note, "");
		disk_holds(f->b, f->want);
	}
}

static void seal_top(struct fixture *f)
{
	struct block_sealing *s = NULL;
	struct err err = ERR_INIT;
	int data, index;

	pair_new(&data, &index, SIZE);
	block_drain(f->b);
	if (block_layers_seal(f->b, data, index, &s, &err) < 0)
		fail_msg("%s", err.text);
	scribble(f, 20); /* goes on meanwhile */
	if (block_sealing_finish(s, &err) < 0)
		fail_msg("%s", err.text);
	block_sealing_free(s);
	f->data = data;
	f->index = index;
}

/* A chain of sealed tops gives the same disk, seen by a second stack of the same files. */
static void sealed_tops_make_a_stack(void **state)
{
	struct fixture *f = *state;
	int fds[9], n = 0;
	struct block_stack s = { .base_fd = -1, .layer_fd = fds, .top_data_fd = -1, .top_index_fd = -1 };
	struct block *copy;

	while (n < 8) {
		scribble(f, 60);
		fds[n++] = dup(f->data);
		seal_top(f);
		disk_holds(f->b, f->want);
	}
	fds[n++] = dup(f->data);
	block_drain(f->b);
	seal_top(f); /* scribbles on above */
	for (int i = 0; i < n; i++) {
		struct lsmt_info info;
		struct err err = ERR_INIT;

		if (lsmt_inspect(fds[i], "layer", &info, &err) < 0)
			fail_msg("%s", err.text);
		assert_int_equal(info.virtual_size, SIZE);
		assert_int_equal(info.file_size, file_size(fds[i]));
		assert_true(info.entries > 0);
	}
	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE);
	s.nlayers = n;
	copy = disk_open(&s, f->aio, NULL);
	uint8_t *a = malloc(SIZE), *b = malloc(SIZE);

	/* All layers but the last top, whose contents the copy has not: it gets them by hand. */
	assert_int_equal(disk_do(copy, BLOCK_READ, 0, a, SIZE, 0), 0);
	for (uint64_t at = 0; at < SECTORS; at++) {
		struct lsmt_seg seg;

		if (lsmt_index_lookup(&layers_of(f->b)->index, at, 1, &seg) && seg.tag == layers_of(f->b)->top)
			memcpy(a + at * 512, f->want + at * 512, 512);
	}
	assert_memory_equal(a, f->want, SIZE);
	assert_int_equal(disk_do(f->b, BLOCK_READ, 0, b, SIZE, 0), 0);
	assert_memory_equal(b, f->want, SIZE);
	block_close(copy);
	free(a);
	free(b);
}

static void a_base_shows_through(void **state)
{
	struct fixture *f = *state;
	int base = file_new(), fds[1];
	uint8_t *p = malloc(SIZE);
	struct block_stack s = { .base_fd = base, .top_data_fd = -1, .top_index_fd = -1, .layer_fd = fds };
	struct block *b;

	/* A base that ends inside the disk, and not at a whole sector. */
	fill_random(&f->rnd, p, SIZE);
	assert_int_equal(fd_pwrite_full(base, p, SIZE / 2 + 100, 0), 0);
	memset(p + SIZE / 2, 0, SIZE / 2);
	block_drain(f->b);
	memcpy(f->want, p, SIZE);
	block_close(f->b);
	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE);
	f->b = disk_open(&s, f->aio, NULL);
	disk_holds(f->b, f->want);
	scribble(f, 200);
	disk_holds(f->b, f->want);
	assert_int_equal(fd_pread_full(base, p, SIZE / 2, 0), SIZE / 2); /* unchanged: compared by the next stack */
	s = (struct block_stack){ .base_fd = dup(base), .top_data_fd = -1, .top_index_fd = -1 };
	assert_true(s.base_fd >= 0);
	b = disk_open(&s, f->aio, NULL);
	assert_true(b->ro);
	assert_int_equal(b->size, SIZE / 2);
	disk_holds(b, p);
	assert_int_equal(disk_do(b, BLOCK_WRITE, 0, p, 512, 0), -EROFS);
	assert_int_equal(disk_do(b, BLOCK_FLUSH, 0, NULL, 0, 0), 0);
	block_close(b);
	free(p);
}

static void a_layer_of_a_smaller_disk_lies_in_a_larger_one(void **state)
{
	struct fixture *f = *state;
	uint8_t *p = calloc(1, SIZE);
	int raw = file_new(), layer = file_new(), copy;
	struct block_config c = { .backend = "layers", .size = SIZE, .aio = f->aio, .depth = 8 };
	struct block_stack s = { .base_fd = -1, .layer_fd = &layer, .nlayers = 1 };
	struct rnd r = { 77 };
	struct err err = ERR_INIT;
	struct block *b;

	fill_random(&r, p, SIZE / 2);
	assert_int_equal(fd_pwrite_full(raw, p, SIZE / 2, 0), 0);
	assert_int_equal(lsmt_pack_raw(raw, SIZE / 2, layer, NULL, &err), 0);
	copy = file_copy(layer);
	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE);
	assert_int_equal(block_open(&c, &b, &err), 0);
	assert_int_equal(block_layers_attach(b, &s, &err), 0);
	disk_holds(b, p);
	fill_random(&r, p + SIZE / 2 - 4096, 8192);
	assert_int_equal(disk_do(b, BLOCK_WRITE, SIZE / 2 - 4096, p + SIZE / 2 - 4096, 8192, 0), 0);
	disk_holds(b, p);
	block_close(b);
	/* but not the other way round */
	c.size = SIZE / 4;
	s.layer_fd = &copy;
	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE / 4);
	assert_int_equal(block_open(&c, &b, &err), 0);
	assert_int_equal(block_layers_attach(b, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "layer 1 of 1: a disk of 524288 bytes, this one has 262144"));
	block_close(b);
	close(s.top_data_fd);
	close(s.top_index_fd);
	close(copy);
	close(raw);
	free(p);
}

static void requests_fail_until_layers_are_attached(void **state)
{
	struct fixture *f = *state;
	struct block_config c = { .backend = "layers", .size = SIZE, .aio = f->aio, .depth = 8 };
	struct block_stack s = { .base_fd = -1 };
	struct err err = ERR_INIT;
	uint8_t buf[512];
	struct block *b;

	assert_int_equal(block_open(&c, &b, &err), 0);
	assert_int_equal(b->size, SIZE);
	assert_int_equal(disk_do(b, BLOCK_READ, 0, buf, 512, 0), -EIO);
	assert_int_equal(disk_do(b, BLOCK_WRITE, 0, buf, 512, 0), -EIO);
	assert_int_equal(disk_do(b, BLOCK_FLUSH, 0, NULL, 0, 0), -EIO);
	/* A stack that does not fit leaves it so. */
	pair_new(&s.top_data_fd, &s.top_index_fd, 2 * SIZE);
	assert_int_equal(block_layers_attach(b, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "top: a disk of 2097152 bytes, this one has 1048576"));
	assert_int_equal(disk_do(b, BLOCK_READ, 0, buf, 512, 0), -EIO);
	close(s.top_data_fd);
	close(s.top_index_fd);
	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE);
	assert_int_equal(block_layers_attach(b, &s, &err), 0);
	assert_int_equal(disk_do(b, BLOCK_WRITE, 0, buf, 512, BLOCK_F_DURABLE), 0);
	assert_int_equal(block_layers_attach(b, &s, &err), -EBUSY);
	assert_int_equal(block_resize(b, 2 * SIZE, &err), -ENOTSUP);
	block_close(b);
}

static void stacks_that_make_no_sense_are_refused(void **state)
{
	struct fixture *f = *state;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), raw = file_new(), ro, append, data, index, data2, index2;
	int layers[] = { raw };
	struct err err;
	char path[64];

	pair_new(&data, &index, SIZE);
	pair_new(&data2, &index2, SIZE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", data);
	ro = open(path, O_RDONLY | O_CLOEXEC);
	append = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	const struct {
		struct block_stack s;
		bool ro;
		const char *text;
	} cases[] = {
		{ { -1, NULL, 0, -1, -1, NULL, NULL, NULL }, true, "no layers" },
		{ { -1, NULL, 0, data, -1, NULL, NULL, NULL }, false, "half a pair" },
		{ { -1, NULL, 0, data, index, NULL, NULL, NULL }, true, "a read-only disk has no top" },
		{ { data, NULL, 0, data, index, NULL, NULL, NULL }, false, "stands twice" },
		{ { -1, NULL, 0, data, data, NULL, NULL, NULL }, false, "stands twice" },
		{ { -1, layers, 256, data, index, NULL, NULL, NULL }, false, "255 at most" },
		{ { -1, NULL, 0, index, data, NULL, NULL, NULL }, false, "not a layer's data file" },
		{ { -1, NULL, 0, data, data2, NULL, NULL, NULL }, false, "not a layer's index file" },
		{ { -1, NULL, 0, data, index2, NULL, NULL, NULL }, false, "do not belong together" },
		{ { -1, NULL, 0, ro, index, NULL, NULL, NULL }, false, "not open for reading and writing" },
		{ { -1, NULL, 0, append, index, NULL, NULL, NULL }, false, "O_APPEND" },
		{ { -1, NULL, 0, 9999, index, NULL, NULL, NULL }, false, "descriptor 9999" },
		{ { -1, NULL, 0, null, index, NULL, NULL, NULL }, false, "not a regular file" },
		{ { null, NULL, 0, data, index, NULL, NULL, NULL }, false, "neither a regular file nor a block device" },
		{ { -1, layers, 1, -1, -1, NULL, NULL, NULL }, true, "layer 1 of 1: 0 bytes are too short" },
		{ { raw, NULL, 0, -1, -1, NULL, NULL, NULL }, true, "no sector" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct block_config c = {
		    .backend = "layers", .stack = &cases[i].s, .ro = cases[i].ro, .aio = f->aio, .depth = 8};
		struct block *b = NULL;

		err = ERR_INIT;
		assert_true(block_open(&c, &b, &err) < 0);
		assert_null(b);
		if (!strstr(err.text, cases[i].text))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
	}
	close(null);
	close(raw);
	close(ro);
	close(append);
	close(data);
	close(index);
	close(data2);
	close(index2);
}

static void sealing_needs_an_empty_pair_of_the_same_size(void **state)
{
	struct fixture *f = *state;
	struct block_sealing *s = NULL;
	struct err err = ERR_INIT;
	int data, index;

	pair_new(&data, &index, 2 * SIZE);
	assert_int_equal(block_layers_seal(f->b, data, index, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "new top: a disk of"));
	assert_int_equal(block_layers_seal(f->b, dup(f->data), dup(f->index), &s, &err), 0);
	block_sealing_free(s); /* the pair was empty, if the same: nothing was sealed */
	scribble(f, 10);
	disk_holds(f->b, f->want);
	s = NULL;
	assert_int_equal(block_layers_seal(f->b, f->data, f->index, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not empty"));
	assert_null(s);
	close(data);
	close(index);
}

static void a_disk_takes_255_layers_and_no_more(void **state)
{
	struct fixture *f = *state;
	struct block_sealing *s = NULL;
	struct err err = ERR_INIT;
	int data, index;

	for (int i = 0; i < LSMT_LAYERS_MAX; i++) {
		scribble(f, 1);
		block_drain(f->b);
		pair_new(&data, &index, SIZE);
		if (block_layers_seal(f->b, data, index, &s, &err) < 0)
			fail_msg("%d: %s", i, err.text);
		block_sealing_free(s);
	}
	disk_holds(f->b, f->want);
	pair_new(&data, &index, SIZE);
	assert_int_equal(block_layers_seal(f->b, data, index, &s, &err), -E2BIG);
	close(data);
	close(index);
	scribble(f, 50);
	disk_holds(f->b, f->want);
}

#define ENGINE_TEST(fn, aio) { #fn " (" aio ")", fn, setup, teardown, (void *)(aio) }
#define BOTH(fn) ENGINE_TEST(fn, "io_uring"), ENGINE_TEST(fn, "threads")

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(a_new_disk_reads_zeros),
		BOTH(random_requests_match_the_model),
		BOTH(reads_into_scattered_memory),
		BOTH(overlapping_writes_leave_one_of_them),
		BOTH(a_request_longer_than_an_entry_is_split),
		BOTH(discarding_what_is_nowhere_leaves_no_trace),
		ENGINE_TEST(the_log_empties_itself, "io_uring"),
		BOTH(a_closed_pair_opens_with_what_it_had),
		BOTH(sealed_tops_make_a_stack),
		BOTH(a_base_shows_through),
		BOTH(a_layer_of_a_smaller_disk_lies_in_a_larger_one),
		BOTH(requests_fail_until_layers_are_attached),
		BOTH(stacks_that_make_no_sense_are_refused),
		BOTH(sealing_needs_an_empty_pair_of_the_same_size),
		BOTH(a_disk_takes_255_layers_and_no_more),
	};

	return cmocka_run_group_tests_name("block_layers", tests, NULL, NULL);
}
