/* SPDX-License-Identifier: Apache-2.0 */
/* The "layers" backend: 64 packs on one another, most of them compressed. */
#include "host/image.h"
#include "tests/device/blk_driver.h"
#include "tests/device/layers_fixture.h"
#include "tests/harness/stack.h"

enum { SIZE = 8 << 20, LAYERS = 64 };

struct fixture {
	uint8_t *want;
	int fd[LAYERS];
	struct block *b;
	struct rnd rnd;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct image_layer layer;
	struct err err = ERR_INIT;

	f->rnd = (struct rnd){ 11 };
	f->want = calloc(1, SIZE);
	for (int i = 0; i < 300; i++) {
		uint32_t n = 512 * (1 + rnd_below(&f->rnd, 60)), at = 512 * rnd_below(&f->rnd, SIZE / 512 - 61);

		if (i % 2)
			memset(f->want + at, i, n);
		else
			fill_random(&f->rnd, f->want + at, n);
	}
	memset(f->want + 1024, 0, 1024);
	le16_store(f->want + 1024 + 0x38, 0xef53);
	le16_store(f->want + 1024 + 0x3a, 1);
	for (unsigned k = 0; k < LAYERS; k++) {
		f->fd[k] = file_new();
		if (stack_make_layer(f->want, SIZE, k, LAYERS, f->fd[k], &layer, &err) < 0)
			fail_msg("%s", err.text);
	}
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

static void all_read_as_the_disk_they_are_of(void **state)
{
	struct fixture *f = *state;
	struct block_stack s = { .base_fd = -1, .layer_fd = f->fd, .nlayers = LAYERS, .top_data_fd = -1, .top_index_fd = -1 };

	f->b = disk_open(&s, "io_uring", NULL);
	reads_match(f);
}

static void what_is_written_above_them_hides_them(void **state)
{
	struct fixture *f = *state;
	struct block_stack s = { .base_fd = -1, .layer_fd = f->fd, .nlayers = LAYERS };

	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE);
	f->b = disk_open(&s, "threads", NULL);
	for (int i = 0; i < 200; i++) {
		uint32_t n = 512 * (1 + rnd_below(&f->rnd, 30)), at = 512 * rnd_below(&f->rnd, SIZE / 512 - 31);

		if (i % 3 == 0) {
			memset(f->want + at, 0, n);
			assert_int_equal(disk_do(f->b, BLOCK_DISCARD, at, NULL, n, 0), 0);
		} else {
			fill_random(&f->rnd, f->want + at, n);
			assert_int_equal(disk_do(f->b, BLOCK_WRITE, at, f->want + at, n, 0), 0);
		}
	}
	assert_int_equal(disk_do(f->b, BLOCK_FLUSH, 0, NULL, 0, 0), 0);
	reads_match(f);
}

/* As the monitor gets them: all descriptors in words. */
static void a_device_takes_them_by_their_descriptors(void **state)
{
	struct fixture *f = *state;
	static struct blk_test t;
	char text[1024];
	int n = snprintf(text, sizeof(text), "backend=layers,size=%d,ro", SIZE);
	uint8_t got[65536];

	for (int k = 0; k < LAYERS; k++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%d", k ? ":" : ",layers=", f->fd[k]);
	memset(&t, 0, sizeof(t));
	blk_setup(&t, text, VIRTIO_BLK_F_RO);
	for (uint32_t at = 0; at < SIZE; at += sizeof(got)) {
		assert_int_equal(blk_do(&t, VIRTIO_BLK_T_IN, at / 512, t.scratch, sizeof(got)), VIRTIO_BLK_S_OK);
		machine_peek(&t.m, t.scratch, got, sizeof(got));
		assert_memory_equal(got, f->want + at, sizeof(got));
	}
	blk_teardown(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(all_read_as_the_disk_they_are_of, setup, teardown),
		cmocka_unit_test_setup_teardown(what_is_written_above_them_hides_them, setup, teardown),
		cmocka_unit_test_setup_teardown(a_device_takes_them_by_their_descriptors, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
