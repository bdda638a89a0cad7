/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-blk: reset, pause, save, resize, and a host whose disk fails. */
#include "tests/device/blk_driver.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

static int setup(void **state)
{
	static struct blk_test t;

	memset(&t, 0, sizeof(t));
	blk_setup(&t, "backend=null,size=1M,queues=2", VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_CONFIG_WCE);
	*state = &t;
	return 0;
}

static int setup_engine(void **state)
{
	static struct blk_test t;
	const char *extra = *state;
	char options[128];

	memset(&t, 0, sizeof(t));
	blk_make_image(&t, MIB(1));
	snprintf(options, sizeof(options), "path=%s,%s", t.image, extra);
	blk_setup(&t, options, VIRTIO_BLK_F_FLUSH);
	*state = &t;
	return 0;
}

static int teardown(void **state)
{
	blk_teardown(*state);
	return 0;
}

static struct virtio_blk *blk_of(struct blk_test *t)
{
	return (struct virtio_blk *)t->dev;
}

static void a_reset_leaves_nothing_in_flight_and_tells_nothing(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;
	struct blk_req r = blk_add(t, 0, VIRTIO_BLK_T_IN, 0, t->scratch, 4096);

	blk_null(t)->hold = true;
	driver_kick(d, 0);
	assert_int_equal(blk_of(t)->host.busy, 1);
	driver_set_reg(d, MMIO_STATUS, 0);
	assert_int_equal(blk_of(t)->host.busy, 0);
	assert_int_equal(machine_peek16(&t->m, d->q[0].used + 2), 0);
	assert_int_equal(blk_status(t, r), BLK_NO_STATUS);
	blk_null(t)->hold = false;
	driver_start(d, 0, 0);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
}

static void guest_memory_is_not_written_after_a_reset(void **state)
{
	struct blk_test *t = *state;
	uint8_t *mark = malloc(MIB(1)), *got = malloc(MIB(1));

	memset(mark, 0x5a, MIB(1));
	for (int round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < 16; i++)
			blk_add(t, 0, VIRTIO_BLK_T_IN, i * 128, t->scratch + i * 65536, 65536);
		driver_kick(&t->d, 0);
		driver_set_reg(&t->d, MMIO_STATUS, 0);
		machine_poke(&t->m, t->scratch, mark, MIB(1));
		machine_settle(&t->m);
		machine_peek(&t->m, t->scratch, got, MIB(1));
		assert_memory_equal(got, mark, MIB(1));
		driver_start(&t->d, VIRTIO_BLK_F_FLUSH, 0);
	}
	free(mark);
	free(got);
}

static void a_queue_taken_away_is_drained_first(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;
	struct blk_req r = blk_add(t, 1, VIRTIO_BLK_T_IN, 0, t->scratch, 4096);

	blk_null(t)->hold = true;
	driver_kick(d, 1);
	driver_set_reg(d, MMIO_QUEUE_SEL, 1);
	driver_set_reg(d, MMIO_QUEUE_READY, 0);
	assert_int_equal(blk_of(t)->host.busy, 0);
	assert_int_equal(blk_status(t, r), VIRTIO_BLK_S_OK);
}

static void quiesce_completes_what_is_in_flight_and_starts_nothing(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;
	struct blk_req r = blk_add(t, 0, VIRTIO_BLK_T_IN, 0, t->scratch, 4096), later;

	blk_null(t)->hold = true;
	driver_kick(d, 0);
	assert_int_equal(blk_status(t, r), BLK_NO_STATUS);
	assert_int_equal(device_quiesce(t->dev), 0);
	assert_int_equal(blk_status(t, r), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_of(t)->host.busy, 0);
	blk_null(t)->hold = false;
	later = blk_add(t, 0, VIRTIO_BLK_T_IN, 0, t->scratch, 512);
	driver_kick(d, 0);
	assert_int_equal(blk_status(t, later), BLK_NO_STATUS);
	device_resume(t->dev);
	assert_int_equal(blk_status(t, later), VIRTIO_BLK_S_OK);
}

static void engines_quiesce_with_all_data_in_place(void **state)
{
	struct blk_test *t = *state;

	for (uint32_t i = 0; i < 16; i++)
		blk_add(t, 0, VIRTIO_BLK_T_IN, i * 128, t->scratch + i * 65536, 65536);
	device_lock(t->dev);
	virtio_notify(&blk_of(t)->vd, 0);
	device_unlock(t->dev);
	assert_int_equal(device_quiesce(t->dev), 0);
	for (uint32_t i = 0; i < 16; i++)
		assert_true(driver_used(&t->d, 0, NULL, NULL));
	assert_true(blk_same(t, t->scratch, 0, MIB(1)));
}

static bool is_dirty(uint64_t gpa, uint64_t *bits)
{
	return bits[gpa >> 18] >> (gpa >> 12 & 63) & 1;
}

static void pages_are_dirty_when_the_data_has_arrived(void **state)
{
	struct blk_test *t = *state;
	uint64_t bits[MIB(64) / 4096 / 64] = { 0 };
	struct err err = ERR_INIT;
	struct blk_req r = blk_add(t, 0, VIRTIO_BLK_T_IN, 0, t->scratch, 3 * 4096);

	blk_null(t)->hold = true;
	driver_kick(&t->d, 0);
	/* Tracking begins with the request in flight. */
	assert_int_equal(mem_dirty_start(&t->m.vm.mem, &err), 0);
	assert_int_equal(device_quiesce(t->dev), 0);
	assert_int_equal(mem_dirty_collect(&t->m.vm.mem, bits, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_true(is_dirty(t->scratch + (uint64_t)i * 4096, bits));
	assert_false(is_dirty(t->scratch + 3 * 4096, bits));
	assert_true(is_dirty(r.status, bits));
	assert_true(is_dirty(t->d.q[0].used, bits));
	mem_dirty_stop(&t->m.vm.mem);
}

static void the_state_survives_a_save(void **state)
{
	struct blk_test *t = *state;
	uint8_t blob[4096];
	struct err err = ERR_INIT;
	long n;

	machine_write(&t->m, t->dev, MMIO_CONFIG + 32, 0, 1);
	assert_int_equal(device_quiesce(t->dev), 0);
	n = device_save(t->dev, blob, sizeof(blob));
	assert_true(n > 0);
	struct device *other = machine_add(&t->m, "blk", "backend=null,size=1M,queues=2");

	assert_int_equal(device_load(other, blob, (size_t)n, &err), 0);
	device_resume(other);
	assert_int_equal(machine_read(&t->m, other, MMIO_CONFIG + 32, 1), 0);
	t->dev = t->d.dev = other;
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
	assert_int_equal(blk_null(t)->durable, 1);
}

static void a_state_of_another_disk_is_refused(void **state)
{
	struct blk_test *t = *state;
	static const struct { const char *options, *text; } cases[] = {
		{ "backend=null,size=2M,queues=2", "2048 sectors, this one has 4096" },
		{ "backend=null,size=1M,queues=3", "2 queues, this disk has 3" },
	};
	uint8_t blob[4096];
	long n;

	assert_int_equal(device_quiesce(t->dev), 0);
	n = device_save(t->dev, blob, sizeof(blob));
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct device *other = machine_add(&t->m, "blk", cases[i].options);
		struct err err = ERR_INIT;

		assert_true(device_load(other, blob, (size_t)n, &err) < 0);
		if (!strstr(err.text, cases[i].text))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].text);
	}
}

static void an_impossible_cache_mode_is_refused(void **state)
{
	struct blk_test *t = *state;
	uint8_t blob[4096];
	struct err err = ERR_INIT;
	long n;

	blk_of(t)->state.writeback = 3;
	assert_int_equal(device_quiesce(t->dev), 0);
	n = device_save(t->dev, blob, sizeof(blob));
	assert_true(device_load(t->dev, blob, (size_t)n, &err) < 0);
	assert_non_null(strstr(err.text, "cache mode 3"));
}

static void a_grown_disk_is_announced_and_usable(void **state)
{
	struct blk_test *t = *state;
	struct driver *d = &t->d;
	uint32_t generation = driver_reg(d, MMIO_CONFIG_GENERATION);
	struct err err = ERR_INIT;
	struct stat st;

	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 2048, t->scratch, 512), VIRTIO_BLK_S_IOERR);
	machine_irqs(t->dev);
	assert_int_equal(virtio_blk_resize(t->dev, MIB(3), &err), 0);
	assert_int_equal(machine_irqs(t->dev), 1);
	assert_int_equal(driver_reg(d, MMIO_INTERRUPT_STATUS) & 2, 2);
	assert_int_not_equal(driver_reg(d, MMIO_CONFIG_GENERATION), generation);
	assert_int_equal(driver_config(d, 0, 8), 6144);
	assert_int_equal(stat(t->image, &st), 0);
	assert_int_equal(st.st_size, MIB(3));
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 6143, t->scratch, 512), VIRTIO_BLK_S_OK);
}

static void resize_0_takes_the_size_the_file_has(void **state)
{
	struct blk_test *t = *state;
	struct err err = ERR_INIT;

	assert_int_equal(truncate(t->image, MIB(2) + 100), 0);
	assert_int_equal(virtio_blk_resize(t->dev, 0, &err), 0);
	assert_int_equal(driver_config(&t->d, 0, 8), 4096);
	machine_irqs(t->dev);
	assert_int_equal(virtio_blk_resize(t->dev, 0, &err), 0);
	assert_int_equal(machine_irqs(t->dev), 0);
}

static void a_disk_does_not_shrink(void **state)
{
	struct blk_test *t = *state;
	struct err err = ERR_INIT;

	assert_int_equal(virtio_blk_resize(t->dev, KIB(512), &err), -EINVAL);
	assert_non_null(strstr(err.text, "blk0: a disk in use cannot shrink: 1048576 bytes now, 524288 asked for"));
	assert_int_equal(virtio_blk_resize(t->dev, MIB(1) + 100, &err), -EINVAL);
	assert_non_null(strstr(err.text, "not a multiple of 512 (100 over)"));
	assert_int_equal(truncate(t->image, 512), 0);
	assert_int_equal(virtio_blk_resize(t->dev, 0, &err), -EINVAL);
	assert_non_null(strstr(err.text, "has shrunk from 1048576 to 512"));
	assert_int_equal(driver_config(&t->d, 0, 8), 2048);
}

static void only_disks_are_resized(void **state)
{
	struct blk_test *t = *state;
	struct device *rng = machine_add(&t->m, "rng", NULL);
	struct err err = ERR_INIT;

	assert_int_equal(virtio_blk_resize(rng, 0, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "rng0 is not a disk"));
}

static void host_errors_become_ioerr_with_a_limited_log(void **state)
{
	struct blk_test *t = *state;
	int log = memfd_create("log", 0), lines = 0;
	char text[8192];
	ssize_t n;

	t->m.vm.log = (struct log){ .fd = log, .level = LOG_DEBUG, .prefix = "test" };
	blk_null(t)->fail = -ENOSPC;
	for (int i = 0; i < 200; i++)
		assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 8, t->scratch, 512), VIRTIO_BLK_S_IOERR);
	blk_null(t)->fail = 0;
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 8, t->scratch, 512), VIRTIO_BLK_S_OK);
	n = pread(log, text, sizeof(text) - 1, 0);
	assert_true(n > 0);
	text[n] = 0;
	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	assert_in_range(lines, 1, LOG_BURST + 1);
	assert_non_null(strstr(text, "blk0: write of 512 bytes at 4096: No space left on device"));
	close(log);
}

/* A limit of the process plays the full disk: the write that crosses it is cut, the rest of it fails. */
static void a_write_that_hits_a_full_disk_gets_ioerr(void **state)
{
	struct blk_test *t = *state;
	struct rlimit old, limit;

	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	limit = (struct rlimit){ KIB(512), old.rlim_max };
	assert_int_equal(truncate(t->image, KIB(256)), 0);
	assert_int_equal(truncate(t->image, MIB(1)), 0);
	blk_fill(t, t->scratch, 8192, 5);
	setrlimit(RLIMIT_FSIZE, &limit);
	uint8_t status = blk_do(t, VIRTIO_BLK_T_OUT, KIB(512) / 512 - 8, t->scratch, 8192);

	setrlimit(RLIMIT_FSIZE, &old);
	assert_int_equal(status, VIRTIO_BLK_S_IOERR);
	assert_true(blk_same(t, t->scratch, KIB(512) - 4096, 4096));
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, KIB(512) / 512 - 8, t->scratch, 8192), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, KIB(512) - 4096, 8192));
}

static void a_long_serial_number_is_refused(void **state)
{
	struct blk_test *t = *state;
	struct err err = ERR_INIT;
	struct device *d;

	assert_int_equal(machine_try_add(&t->m, &virtio_blk_device, "backend=null,size=1M,serial=abcdefghijklmnopqrstu", &d, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "has 21 characters: use at most 20"));
}

static int filters;

static int count_filter(struct vm *vm, struct err *err)
{
	(void)vm;
	(void)err;
	__atomic_add_fetch(&filters, 1, __ATOMIC_SEQ_CST);
	return 0;
}

static void threads_are_made_by_start_with_their_filter_first(void **state)
{
	struct blk_test *t = *state;
	struct err err = ERR_INIT;

	t->m.vm.worker_isolate = count_filter;
	filters = 0;
	assert_int_equal(t->dev->ops->start(t->dev, &err), 0);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, 512), VIRTIO_BLK_S_OK);
	assert_in_range(__atomic_load_n(&filters, __ATOMIC_SEQ_CST), 1, 4);
}

#define LIFE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define ENGINE(fn, options) { #fn " (" options ")", fn, setup_engine, teardown, (void *)(options) }
#define ENGINES(fn) ENGINE(fn, "aio=io_uring"), ENGINE(fn, "aio=threads")

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIFE(a_reset_leaves_nothing_in_flight_and_tells_nothing),
		ENGINES(guest_memory_is_not_written_after_a_reset),
		ENGINE(guest_memory_is_not_written_after_a_reset, "cache=none"),
		LIFE(a_queue_taken_away_is_drained_first),
		LIFE(quiesce_completes_what_is_in_flight_and_starts_nothing),
		ENGINES(engines_quiesce_with_all_data_in_place),
		LIFE(pages_are_dirty_when_the_data_has_arrived),
		LIFE(the_state_survives_a_save),
		LIFE(a_state_of_another_disk_is_refused),
		LIFE(an_impossible_cache_mode_is_refused),
		ENGINE(a_grown_disk_is_announced_and_usable, "serial=x"),
		ENGINE(resize_0_takes_the_size_the_file_has, "serial=x"),
		ENGINE(a_disk_does_not_shrink, "serial=x"),
		LIFE(only_disks_are_resized),
		LIFE(host_errors_become_ioerr_with_a_limited_log),
		ENGINES(a_write_that_hits_a_full_disk_gets_ioerr),
		LIFE(a_long_serial_number_is_refused),
		ENGINE(threads_are_made_by_start_with_their_filter_first, "aio=threads"),
	};

	return cmocka_run_group_tests_name("virtio_blk_life", tests, NULL, NULL);
}
