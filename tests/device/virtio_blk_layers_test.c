/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-blk over layers: options, attaching late, sealing under a guest. (Data: virtio_blk_test.) */
#include "tests/device/blk_driver.h"
#include "tests/device/layers_fixture.h"

enum { SIZE = 1 << 20 };

static int setup(void **state)
{
	static struct blk_test t;

	memset(&t, 0, sizeof(t));
	t.through = true;
	blk_setup(&t, "backend=layers,size=1M", VIRTIO_BLK_F_FLUSH | VIRTIO_BLK_F_DISCARD);
	*state = &t;
	return 0;
}

static int teardown(void **state)
{
	blk_teardown(*state);
	return 0;
}

static void attach(struct blk_test *t, int *data, int *index)
{
	struct block_stack s = { .base_fd = -1 };
	struct err err = ERR_INIT;

	pair_new(&s.top_data_fd, &s.top_index_fd, SIZE);
	if (virtio_blk_attach(t->dev, &s, &err) < 0)
		fail_msg("%s", err.text);
	*data = s.top_data_fd;
	*index = s.top_index_fd;
}

static void a_disk_without_layers_has_its_size_and_fails(void **state)
{
	struct blk_test *t = *state;

	assert_int_equal(driver_config(&t->d, 0, 8), SIZE / 512);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_IN, 0, t->scratch, 512), VIRTIO_BLK_S_IOERR);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 0, t->scratch, 512), VIRTIO_BLK_S_IOERR);
}

static void layers_that_come_later_are_used_from_then_on(void **state)
{
	struct blk_test *t = *state;
	int data, index;

	attach(t, &data, &index);
	blk_fill(t, t->scratch, 8192, 1);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 5, t->scratch, 8192), VIRTIO_BLK_S_OK);
	assert_true(blk_same(t, t->scratch, 5 * 512, 8192));
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(file_size(index), LSMT_BLOCK + LSMT_ENTRY_BYTES);
}

static void layers_of_another_size_are_refused_by_name(void **state)
{
	struct blk_test *t = *state;
	struct block_stack s = { .base_fd = -1 };
	struct err err = ERR_INIT;

	pair_new(&s.top_data_fd, &s.top_index_fd, 2 * SIZE);
	assert_int_equal(virtio_blk_attach(t->dev, &s, &err), -EINVAL);
	assert_non_null(strstr(err.text, t->dev->name));
	assert_non_null(strstr(err.text, ": top: a disk of 2097152 bytes"));
	close(s.top_data_fd);
	close(s.top_index_fd);
}

static void a_disk_of_another_kind_takes_no_layers(void **state)
{
	struct block_stack s = { .base_fd = -1, .top_data_fd = -1, .top_index_fd = -1 };
	struct err err = ERR_INIT;
	struct machine m;
	struct device *disk, *rng;

	(void)state;
	machine_init(&m, MIB(1));
	disk = machine_add(&m, "blk", "backend=null,size=1M");
	rng = machine_add(&m, "rng", "");
	assert_int_equal(virtio_blk_attach(disk, &s, &err), -ENOTSUP);
	assert_int_equal(virtio_blk_attach(rng, &s, &err), -ENOTSUP);
	assert_non_null(virtio_blk_block(disk));
	assert_null(virtio_blk_block(rng));
	machine_finish(&m);
}

/* As a snapshot does, with the guest's requests before and after. */
static void the_top_is_sealed_under_a_guest(void **state)
{
	struct blk_test *t = *state;
	struct block *b = virtio_blk_block(t->dev);
	struct block_sealing *s = NULL;
	struct lsmt_info info;
	struct err err = ERR_INIT;
	int data, index, next[2];

	attach(t, &data, &index);
	blk_fill(t, t->scratch, MIB(1), 1);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 0, t->scratch, 65536), VIRTIO_BLK_S_OK);
	pair_new(&next[0], &next[1], SIZE);
	device_lock(t->dev);
	block_drain(b);
	assert_int_equal(block_layers_seal(b, next[0], next[1], &s, &err), 0);
	device_unlock(t->dev);
	blk_fill(t, t->scratch + 4096, 4096, 2);
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_OUT, 8, t->scratch + 4096, 4096), VIRTIO_BLK_S_OK);
	/* A flush covers what the old top had not been told to keep. */
	assert_int_equal(blk_do(t, VIRTIO_BLK_T_FLUSH, 0, 0, 0), VIRTIO_BLK_S_OK);
	assert_int_equal(file_size(index), LSMT_BLOCK + LSMT_ENTRY_BYTES);
	assert_int_equal(file_size(next[1]), LSMT_BLOCK + LSMT_ENTRY_BYTES);
	assert_int_equal(block_sealing_finish(s, &err), 0);
	block_sealing_free(s);
	assert_true(blk_same(t, t->scratch, 0, 65536));
	assert_int_equal(lsmt_inspect(data, "layer", &info, &err), 0);
	assert_int_equal(info.entries, 1);
}

static void refused(const char *options, const char *text)
{
	struct err err = ERR_INIT;
	struct machine m;
	struct device *d;

	machine_init(&m, MIB(1));
	assert_true(machine_try_add(&m, &virtio_blk_device, options, &d, &err) < 0);
	if (!strstr(err.text, text))
		fail_msg("'%s' does not say '%s'", err.text, text);
	machine_finish(&m);
}

static void options_that_make_no_sense_are_refused(void **state)
{
	(void)state;
	refused("backend=layers", "size 0 is not a positive multiple");
	refused("backend=layers,size=1000", "size 1000 is not");
	refused("backend=layers,path=x", "takes size=SIZE, not a path");
	refused("backend=layers,size=1M,cache=none", "cache=none is not for layers");
	refused("backend=layers,layers=", "layers '': numbers of descriptors");
	refused("backend=layers,layers=a", "layers 'a': numbers");
	refused("backend=layers,layers=3:", "layers '3:': numbers");
	refused("backend=layers,layers=3::4", "numbers");
	refused("backend=layers,layers=-1", "numbers");
	refused("backend=layers,layers=99999999999999999999", "numbers");
	refused("backend=layers,base=1:2", "1 descriptors at most");
	refused("backend=layers,top=3", "data file and index file are needed");
	refused("backend=layers,top=3:4:5", "2 descriptors at most");
	refused("backend=layers,top=900:901", "top: descriptor 900: Bad file descriptor");
	refused("backend=layers,base=900", "base: descriptor 900: Bad file descriptor");
	refused("backend=null,size=1M,base=3", "use backend=layers");
	refused("path=x,base=3", "use backend=layers");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_disk_without_layers_has_its_size_and_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(layers_that_come_later_are_used_from_then_on, setup, teardown),
		cmocka_unit_test_setup_teardown(layers_of_another_size_are_refused_by_name, setup, teardown),
		cmocka_unit_test(a_disk_of_another_kind_takes_no_layers),
		cmocka_unit_test_setup_teardown(the_top_is_sealed_under_a_guest, setup, teardown),
		cmocka_unit_test(options_that_make_no_sense_are_refused),
	};

	return cmocka_run_group_tests_name("virtio_blk_layers", tests, NULL, NULL);
}
