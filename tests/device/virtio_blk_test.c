/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-blk: what a well-behaved driver sees. Each data test runs with both engines, with O_DIRECT, and over layers. */
#include "tests/device/blk_driver.h"

#include "devices/backend/lsmt.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ALL_WRITE (VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_CONFIG_WCE | VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES | \
		   VIRTIO_BLK_F_SEG_MAX | VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC)

enum { IMAGE_SIZE = 1 << 20 };

static int setup_file(void **state)
{
	static struct blk_test t;
	const char *extra = *state;
	char options[128];

	memset(&t, 0, sizeof(t));
	blk_make_image(&t, IMAGE_SIZE);
	snprintf(options, sizeof(options), "path=%s%s%s", t.image, extra ? "," : "", extra ? extra : "");
	blk_setup(&t, options, ALL_WRITE);
	*state = &t;
	return 0;
}

static int open_unnamed(void)
{
	int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	return fd;
}

/* The same image, below a writable top. */
static int setup_layers(void **state)
{
	static struct blk_test t;
	const char *extra = *state;
	char options[128];
	int base, data = open_unnamed(), index = open_unnamed();

	memset(&t, 0, sizeof(t));
	blk_make_image(&t, IMAGE_SIZE);
	t.through = true;
	base = open(t.image, O_RDONLY | O_CLOEXEC);
	assert_true(base >= 0);
	assert_int_equal(lsmt_create(data, index, IMAGE_SIZE, NULL, NULL, NULL), 0);
	snprintf(options, sizeof(options), "backend=layers,base=%d,top=%d:%d,%s", base, data, index, extra);
	blk_setup(&t, options, ALL_WRITE);
	*state = &t;
	return 0;
}

static int setup_null(void **state)
{
	static struct blk_test t;
	const char *options = *state;

	memset(&t, 0, sizeof(t));
	blk_setup(&t, options ? options : "backend=null,size=1M", ALL_WRITE);
	*state = &t;
	return 0;
}

static int teardown(void **state)
{
	blk_teardown(*state);
	return 0;
}

static void a_read_gives_the_image_bytes(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 3, t->scratch, 4096), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 3 * 512, 4096));
}

static void the_last_sector_can_be_read(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, IMAGE_SIZE / 512 - 1, t->scratch, 512), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, IMAGE_SIZE - 512, 512));
}

static void a_write_changes_the_image_and_nothing_else(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, IMAGE_SIZE), VIRTIO_BLK_S_OK);
	blk_fill(t, t->scratch + 5 * 512, 8192, 1);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 5, t->scratch + 5 * 512, 8192), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 0, IMAGE_SIZE));
}

static void a_whole_disk_in_one_request_of_many_segments(void **state)
{
	struct blk_test *t = *state;
	struct driver_buf b[BLK_SEG_MAX + 2];
	uint64_t header = driver_alloc(&t->d, 16, 16), status = driver_alloc(&t->d, 1, 1), sum = 0;
	uint32_t head;
	uint8_t s;

	blk_header(t, header, VIRTIO_BLK_T_IN, 0);
	b[0] = (struct driver_buf){ header, 16, false };
	/* Odd lengths and odd addresses; their sum is whole sectors. */
	for (int i = 0; i < BLK_SEG_MAX; i++) {
		uint32_t len = i + 1 < BLK_SEG_MAX ? 4097 : IMAGE_SIZE - (uint32_t)sum;

		b[1 + i] = (struct driver_buf){ t->scratch + sum, len, true };
		sum += len;
	}
	b[BLK_SEG_MAX + 1] = (struct driver_buf){ status, 1, true };
	driver_add_indirect(&t->d, 0, b, BLK_SEG_MAX + 2);
	driver_kick(&t->d, 0);
	assert_int_equal(blk_wait(t, 0, &head), IMAGE_SIZE + 1);
	machine_peek(&t->m, status, &s, 1);
	assert_int_equal(s, VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 0, IMAGE_SIZE));
}

static void a_full_queue_of_requests_is_served(void **state)
{
	struct blk_test *t = *state;
	struct blk_req r[80];

	for (uint32_t i = 0; i < ARRAY_SIZE(r); i++)
		r[i] = blk_add(t, 0, VIRTIO_BLK_T_IN, i * 3, t->scratch + i * 1536, 1536);
	driver_kick(&t->d, 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(r); i++)
		assert_int_equal(blk_wait(t, 0, NULL), 1537);
	for (uint32_t i = 0; i < ARRAY_SIZE(r); i++)
		assert_int_equal(blk_status(t, r[i]), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 0, 1536 * ARRAY_SIZE(r)));
}

static void random_requests_match_a_model(void **state)
{
	struct blk_test *t = *state;
	struct rnd rnd = { 42 };
	uint64_t model = t->scratch + MIB(2); /* what the disk should hold, in guest memory for blk_same */

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, model, IMAGE_SIZE), VIRTIO_BLK_S_OK);
	for (int i = 0; i < 200; i++) {
		uint32_t n = 1 + rnd_below(&rnd, 64), sector = rnd_below(&rnd, IMAGE_SIZE / 512 - n);
		uint32_t kind = rnd_below(&rnd, 4);
		uint64_t odd = rnd_below(&rnd, 3); /* memory alignment */
		uint8_t buf[64 * 512];
		struct virtio_blk_range g = blk_range(sector, n, rnd_below(&rnd, 2));

		if (kind == 0) {
			assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &g, 1), VIRTIO_BLK_S_OK);
			mem_zero(&t->m.vm.mem, GPA(model + sector * 512), n * 512);
			continue;
		}
		if (kind == 1) {
			blk_fill(t, t->scratch + odd, n * 512, rnd_next(&rnd));
			machine_peek(&t->m, t->scratch + odd, buf, n * 512);
			machine_poke(&t->m, model + sector * 512, buf, n * 512);
			assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, sector, t->scratch + odd, n * 512), VIRTIO_BLK_S_OK);
			continue;
		}
		uint8_t want[64 * 512];

		assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, sector, t->scratch + odd, n * 512), VIRTIO_BLK_S_OK);
		machine_peek(&t->m, t->scratch + odd, buf, n * 512);
		machine_peek(&t->m, model + sector * 512, want, n * 512);
		assert_memory_equal(buf, want, n * 512);
	}
	assert_true(blk_same(t, model, 0, IMAGE_SIZE));
}

static void flush_succeeds(void **state)
{
	assert_int_equal(blk_do(*state, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
}

static void discard_gives_the_space_back(void **state)
{
	struct blk_test *t = *state;
	struct virtio_blk_range g[] = { blk_range(0, 1024, 0), blk_range(0, 0, 0), blk_range(1024, 1024, 0) };
	struct stat before, after;

	assert_int_equal(stat(t->image, &before), 0);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, g, ARRAY_SIZE(g)), VIRTIO_BLK_S_OK);
	assert_int_equal(stat(t->image, &after), 0);
	assert_int_equal(after.st_size, before.st_size);
	assert_true(after.st_blocks < before.st_blocks);
}

static void write_zeroes_gives_zeros(void **state)
{
	struct blk_test *t = *state;

	for (uint32_t unmap = 0; unmap < 2; unmap++) {
		struct virtio_blk_range g = blk_range(7 + unmap * 100, 90, unmap);

		assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, IMAGE_SIZE), VIRTIO_BLK_S_OK);
		assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &g, 1), VIRTIO_BLK_S_OK);
		mem_zero(&t->m.vm.mem, GPA(t->scratch + (7 + unmap * 100) * 512), 90 * 512);
		assert_true(blk_same(t, t->scratch, 0, IMAGE_SIZE));
	}
}

static void the_serial_number_is_told(void **state)
{
	struct blk_test *t = *state;
	char id[21] = "xxxxxxxxxxxxxxxxxxxx";

	machine_poke(&t->m, t->scratch, id, 20);
	struct blk_req r = blk_add(t, 0, VIRTIO_BLK_T_GET_ID, 0, t->scratch, 20);

	driver_kick(&t->d, 0);
	assert_int_equal(blk_wait(t, 0, NULL), 21);
	assert_int_equal(blk_status(t, r), VIRTIO_BLK_S_OK);
	machine_peek(&t->m, t->scratch, id, 20);
	assert_memory_equal(id, "root-1\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
}

static void a_serial_number_of_twenty_characters_has_no_end(void **state)
{
	struct blk_test *t = *state;
	char id[20];

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_GET_ID, 0, t->scratch, 20), VIRTIO_BLK_S_OK);
	machine_peek(&t->m, t->scratch, id, 20);
	assert_memory_equal(id, "abcdefghijklmnopqrst", 20);
}

static void config_describes_the_disk(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;

	assert_int_equal(driver_config(d, 0, 8), 2048);   /* capacity */
	assert_int_equal(driver_config(d, 8, 4), 0);      /* size_max: not offered */
	assert_int_equal(driver_config(d, 12, 4), 254);   /* seg_max */
	assert_int_equal(driver_config(d, 20, 4), 512);   /* blk_size */
	assert_int_equal(driver_config(d, 24, 1), 3);     /* physical_block_exp */
	assert_int_equal(driver_config(d, 26, 2), 8);     /* min_io_size */
	assert_int_equal(driver_config(d, 33, 1), 0);     /* unused0 */
	assert_int_equal(driver_config(d, 34, 2), 4);     /* num_queues */
	assert_int_equal(driver_config(d, 36, 4), 1 << 22);
	assert_int_equal(driver_config(d, 40, 4), 32);
	assert_int_equal(driver_config(d, 44, 4), 8);
	assert_int_equal(driver_config(d, 48, 4), 1 << 19);
	assert_int_equal(driver_config(d, 52, 4), 32);
	assert_int_equal(driver_config(d, 56, 4), 1);     /* may unmap, unused1 */
	assert_int_equal(driver_reg(d, MMIO_DEVICE_ID), 2);
	assert_true(driver_offered(d) & VIRTIO_BLK_F_MQ);
	assert_false(driver_offered(d) & VIRTIO_BLK_F_RO);
}

static void every_queue_works(void **state)
{
	struct blk_test *t = *state;

	for (uint32_t q = 0; q < 4; q++) {
		struct blk_req r = blk_add(t, q, VIRTIO_BLK_T_IN, q, t->scratch, 512);

		driver_kick(&t->d, q);
		assert_int_equal(blk_wait(t, q, NULL), 513);
		assert_int_equal(blk_status(t, r), VIRTIO_BLK_S_OK);
	}
	driver_set_reg(&t->d, MMIO_QUEUE_SEL, 4);
	assert_int_equal(driver_reg(&t->d, MMIO_QUEUE_NUM_MAX), 0);
}

static void a_completion_raises_one_interrupt(void **state)
{
	struct blk_test *t = *state;

	machine_irqs(t->dev);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
	assert_int_equal(machine_irqs(t->dev), 1);
	assert_int_equal(driver_reg(&t->d, MMIO_INTERRUPT_STATUS), 1);
}

static void a_read_only_disk_says_so_and_refuses_writes(void **state)
{
	struct blk_test *t = *state;
	struct virtio_blk_range g = blk_range(0, 8, 0);

	assert_true(driver_offered(&t->d) & VIRTIO_BLK_F_RO);
	assert_false(driver_offered(&t->d) & (VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES));
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 0, t->scratch, 512), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_DISCARD, &g, 1), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_ranges(t, VIRTIO_BLK_T_WRITE_ZEROES, &g, 1), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_null(t)->served[BLOCK_WRITE], 0);
}

static int setup_read_only(void **state)
{
	static struct blk_test t;

	memset(&t, 0, sizeof(t));
	/* The driver acknowledges nothing, not even RO. */
	blk_setup(&t, "backend=null,size=1M,ro", 0);
	*state = &t;
	return 0;
}

/* Cache modes: is a completed write durable? (virtio 1.2, 5.2.6.2) */
static uint32_t durable_after(struct blk_test *t, uint64_t features, int writeback)
{
	driver_start(&t->d, features, 0);
	if (writeback >= 0)
		machine_write(&t->m, t->dev, MMIO_CONFIG + 32, (uint64_t)writeback, 1);
	blk_null(t)->durable = 0;
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
	return blk_null(t)->durable;
}

static void writes_are_durable_without_flush(void **state)
{
	assert_int_equal(durable_after(*state, 0, -1), 1);
}

static void writes_wait_for_flush_when_it_is_negotiated(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(durable_after(t, VIRTIO_BLK_F_FLUSH, -1), 0);
	assert_int_equal(driver_config(&t->d, 32, 1), 1);
}

static void the_driver_switches_the_write_cache(void **state)
{
	struct blk_test *t = *state;
	uint64_t f = VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_CONFIG_WCE;

	assert_int_equal(durable_after(t, f, 0), 1);
	assert_int_equal(driver_config(&t->d, 32, 1), 0);
	assert_int_equal(durable_after(t, f, 1), 0);
	assert_int_equal(driver_config(&t->d, 32, 1), 1);
	assert_int_equal(durable_after(t, f, -1), 0); /* a reset forgets */
}

static void the_write_cache_cannot_be_switched_without_the_feature(void **state)
{
	assert_int_equal(durable_after(*state, VIRTIO_BLK_F_FLUSH, 0), 0);
}

static void wce_without_flush_starts_write_through(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(durable_after(t, VIRTIO_BLK_F_CONFIG_WCE, -1), 1);
	assert_int_equal(driver_config(&t->d, 32, 1), 0);
}

static void a_write_through_disk_is_one_for_every_driver(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(durable_after(t, 0, -1), 1);
	assert_int_equal(durable_after(t, VIRTIO_BLK_F_FLUSH, -1), 1);
	assert_int_equal(durable_after(t, VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_CONFIG_WCE, -1), 1);
	assert_int_equal(driver_config(&t->d, 32, 1), 0);
	/* Unless the driver asks for the cache. */
	assert_int_equal(durable_after(t, VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_CONFIG_WCE, 1), 0);
}

#define FILE_TEST(fn, options) \
	{ #fn " (" #options ")", fn, setup_file, teardown, (void *)(options) }
#define LAYERS_TEST(fn, options) \
	{ #fn " (layers " #options ")", fn, setup_layers, teardown, (void *)(options) }
#define EVERY_FILE(fn) FILE_TEST(fn, "aio=io_uring"), FILE_TEST(fn, "aio=threads"), FILE_TEST(fn, "cache=none"), \
	FILE_TEST(fn, "cache=writethrough"), LAYERS_TEST(fn, "aio=io_uring"), LAYERS_TEST(fn, "aio=threads"), \
	LAYERS_TEST(fn, "cache=writethrough"), LAYERS_TEST(fn, "cache=unsafe")
#define NULL_TEST(fn, options) { #fn, fn, setup_null, teardown, (void *)(options) }

int main(void)
{
	const struct CMUnitTest tests[] = {
		EVERY_FILE(a_read_gives_the_image_bytes),
		EVERY_FILE(the_last_sector_can_be_read),
		EVERY_FILE(a_write_changes_the_image_and_nothing_else),
		EVERY_FILE(a_whole_disk_in_one_request_of_many_segments),
		EVERY_FILE(a_full_queue_of_requests_is_served),
		EVERY_FILE(random_requests_match_a_model),
		EVERY_FILE(flush_succeeds),
		FILE_TEST(flush_succeeds, "cache=unsafe"),
		FILE_TEST(discard_gives_the_space_back, "aio=io_uring"),
		FILE_TEST(discard_gives_the_space_back, "aio=threads"),
		FILE_TEST(discard_gives_the_space_back, "cache=none"),
		EVERY_FILE(write_zeroes_gives_zeros),
		NULL_TEST(the_serial_number_is_told, "backend=null,size=1M,serial=root-1"),
		NULL_TEST(a_serial_number_of_twenty_characters_has_no_end, "backend=null,size=1M,serial=abcdefghijklmnopqrst"),
		NULL_TEST(config_describes_the_disk, "backend=null,size=1M,queues=4"),
		NULL_TEST(every_queue_works, "backend=null,size=1M,queues=4"),
		NULL_TEST(a_completion_raises_one_interrupt, NULL),
		cmocka_unit_test_setup_teardown(a_read_only_disk_says_so_and_refuses_writes, setup_read_only, teardown),
		NULL_TEST(writes_are_durable_without_flush, NULL),
		NULL_TEST(writes_wait_for_flush_when_it_is_negotiated, NULL),
		NULL_TEST(the_driver_switches_the_write_cache, NULL),
		NULL_TEST(the_write_cache_cannot_be_switched_without_the_feature, NULL),
		NULL_TEST(wce_without_flush_starts_write_through, NULL),
		NULL_TEST(a_write_through_disk_is_one_for_every_driver, "backend=null,size=1M,cache=writethrough"),
	};

	return cmocka_run_group_tests_name("virtio_blk", tests, NULL, NULL);
}
