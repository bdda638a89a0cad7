/* SPDX-License-Identifier: Apache-2.0 */
/* The machine without KVM: which devices there are, where they lie, what is announced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "devices/machine.h"
#include "devices/virtio.h"
#include "lib/util.h"

static void open_vm(struct vm *vm)
{
	struct err err = ERR_INIT;

	assert_int_equal(vm_init(vm, &err), 0);
	assert_int_equal(mem_init(&vm->mem, -1, MIB(4), &err), 0);
}

static void open_machine(struct machine *m, struct vm *vm, const struct opt_strv *requests)
{
	struct err err = ERR_INIT;

	open_vm(vm);
	if (machine_open(m, vm, requests, &err) < 0)
		fail_msg("%s", err.text);
}

static void close_machine(struct machine *m)
{
	struct vm *vm = m->vm;

	machine_close(m);
	vm_finish(vm);
}

static void implicit_devices_are_always_there(void **state)
{
	static const char *const names[] = { "serial0", "i80420", "pvpanic0", "ged0", "vmgenid0" };
	const struct opt_strv none = { 0 };
	struct machine m;
	struct vm vm;

	(void)state;
	open_machine(&m, &vm, &none);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_non_null(machine_find(&m, names[i]));
	assert_null(machine_find(&m, "rng0"));
	assert_non_null(bus_find(&vm.bus, BUS_PIO, 0x3f8));
	assert_non_null(bus_find(&vm.bus, BUS_PIO, 0x64));
	assert_null(bus_find(&vm.bus, BUS_MMIO, MACHINE_MMIO_BASE));
	close_machine(&m);
}

static void an_option_for_an_implicit_device_makes_no_second_one(void **state)
{
	const struct opt_strv options = { .v = { "vmgenid,id=000102030405060708090a0b0c0d0e0f" }, .n = 1 };
	const struct opt_strv none = { 0 };
	struct machine m;
	size_t before;
	struct vm vm;
	uint8_t b[2];

	(void)state;
	open_machine(&m, &vm, &none);
	before = m.ndevices;
	close_machine(&m);
	open_machine(&m, &vm, &options);
	assert_int_equal(m.ndevices, before);
	assert_int_equal(mem_read(&vm.mem, GPA(BOOT_VMGENID_GPA), b, 2), 0);
	assert_int_equal(b[1], 1); /* it got its options */
	close_machine(&m);
}

static void the_registry_orders_kinds_and_the_options_order_within(void **state)
{
	const struct opt_strv requests = {
		.v = { "blk,backend=null,size=1M", "rng", "blk,backend=null,size=2M,serial=second" }, .n = 3
	};
	struct machine m;
	struct vm vm;

	(void)state;
	open_machine(&m, &vm, &requests);
	assert_int_equal(machine_find(&m, "rng0")->base, MACHINE_MMIO_BASE);
	assert_int_equal(machine_find(&m, "blk0")->base, MACHINE_MMIO_BASE + MACHINE_MMIO_STEP);
	assert_int_equal(machine_find(&m, "blk1")->base, MACHINE_MMIO_BASE + 2 * MACHINE_MMIO_STEP);
	/* virtio config space, capacity in sectors */
	uint32_t sectors = 0;

	assert_true(bus_read(&vm.bus, BUS_MMIO, machine_find(&m, "blk1")->base + 0x100, &sectors, 4));
	assert_int_equal(sectors, 4096);
	close_machine(&m);
}

static void windows_and_interrupts_follow_the_lists(void **state)
{
	static const uint32_t gsi[] = { 5, 6, 7, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23 };
	struct boot_device boot[BOOT_MAX_DEVICES];
	struct opt_strv requests = { .n = 0 };
	struct machine m;
	struct vm vm;
	size_t n, window = 0;

	(void)state;
	for (size_t i = 0; i < device_registry_count; i++) {
		static char text[8][128];
		const struct device_ops *ops = device_registry[i];

		if (ops->bus != DEVICE_VIRTIO || requests.n == ARRAY_SIZE(text))
			continue;
		snprintf(text[requests.n], sizeof(text[0]), "%s%s%s", ops->name, ops->test_options ? "," : "",
			 ops->test_options ? ops->test_options : "");
		requests.v[requests.n] = text[requests.n];
		requests.n++;
	}
	assert_true(requests.n > 1);
	open_machine(&m, &vm, &requests);
	n = machine_boot_devices(&m, boot);
	assert_int_equal(n, m.ndevices);
	for (size_t i = 0; i < n; i++) {
		if (!boot[i].hid || strcmp(boot[i].hid, "LNRO0005") != 0)
			continue;
		assert_int_equal(boot[i].base, MACHINE_MMIO_BASE + MACHINE_MMIO_STEP * window);
		assert_int_equal(boot[i].gsi, gsi[window]);
		assert_int_equal(boot[i].size, VIRTIO_MMIO_SIZE);
		assert_false(boot[i].pio);
		assert_int_equal(bus_find(&vm.bus, BUS_MMIO, boot[i].base)->base, boot[i].base);
		window++;
	}
	assert_int_equal(window, requests.n);
	close_machine(&m);
}

static void fixed_devices_are_announced_as_they_are(void **state)
{
	static const struct boot_device want[] = {
		{ .hid = "PNP0501", .base = 0x3f8, .size = 8, .pio = true, .gsi = 4 },
		{ .hid = "QEMU0001", .base = 0x505, .size = 1, .pio = true, .gsi = 0 },
		{ .hid = BOOT_HID_GED, .base = 0x600, .size = GED_REG_SIZE, .pio = true, .gsi = 9 },
		{ .hid = BOOT_HID_VMGENID, .base = 0, .size = 0, .pio = true, .gsi = 0 },
	};
	struct boot_device boot[BOOT_MAX_DEVICES];
	const struct opt_strv none = { 0 };
	struct machine m;
	struct vm vm;
	size_t n;

	(void)state;
	open_machine(&m, &vm, &none);
	n = machine_boot_devices(&m, boot);
	for (size_t w = 0; w < ARRAY_SIZE(want); w++) {
		size_t i = 0;

		while (i < n && (!boot[i].hid || strcmp(boot[i].hid, want[w].hid) != 0))
			i++;
		assert_true(i < n);
		assert_int_equal(boot[i].base, want[w].base);
		assert_int_equal(boot[i].size, want[w].size);
		assert_int_equal(boot[i].pio, want[w].pio);
		assert_int_equal(boot[i].gsi, want[w].gsi);
	}
	close_machine(&m);
}

static void unknown_names_are_refused_with_the_list(void **state)
{
	static const char *const bad[] = { "foo", "foo,a=b", "", ",", "rn", "rngg", "RNG" };
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const struct opt_strv requests = { .v = { bad[i] }, .n = 1 };

		err = ERR_INIT;
		assert_int_equal(machine_check(&requests, &err), -ENODEV);
		assert_non_null(strstr(err.text, " rng"));
		assert_non_null(strstr(err.text, " serial"));
	}
}

static void more_than_there_can_be_is_refused(void **state)
{
	const struct opt_strv requests = { .v = { "rng", "serial", "rng" }, .n = 3 };
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(machine_check(&requests, &err), -EINVAL);
	assert_non_null(strstr(err.text, "rng: given 2 times, there can be 1"));
}

static void a_device_that_does_not_open_names_itself_and_leaves_nothing(void **state)
{
	const struct opt_strv requests = { .v = { "rng,source=/nonexistent/file" }, .n = 1 };
	struct err err = ERR_INIT;
	struct machine m;
	struct vm vm;

	(void)state;
	open_vm(&vm);
	assert_int_equal(machine_open(&m, &vm, &requests, &err), -ENOENT);
	assert_non_null(strstr(err.text, "rng0: "));
	machine_close(&m);
	assert_int_equal(m.ndevices, 0);
	machine_close(&m);
	vm_finish(&vm);
}

static void pausing_quiesces_every_device_and_resuming_wakes_it(void **state)
{
	const struct opt_strv requests = { .v = { "rng" }, .n = 1 };
	struct machine m;
	struct vm vm;

	(void)state;
	open_machine(&m, &vm, &requests);
	assert_int_equal(machine_start(&m, NULL), 0);
	assert_int_equal(vm_set_state(&vm, VM_CONFIGURED, NULL), 0);
	assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
		for (size_t i = 0; i < m.ndevices; i++)
			assert_true(m.device[i]->quiesced);
		assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
		for (size_t i = 0; i < m.ndevices; i++)
			assert_false(m.device[i]->quiesced);
	}
	close_machine(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(implicit_devices_are_always_there),
		cmocka_unit_test(an_option_for_an_implicit_device_makes_no_second_one),
		cmocka_unit_test(the_registry_orders_kinds_and_the_options_order_within),
		cmocka_unit_test(windows_and_interrupts_follow_the_lists),
		cmocka_unit_test(fixed_devices_are_announced_as_they_are),
		cmocka_unit_test(unknown_names_are_refused_with_the_list),
		cmocka_unit_test(more_than_there_can_be_is_refused),
		cmocka_unit_test(a_device_that_does_not_open_names_itself_and_leaves_nothing),
		cmocka_unit_test(pausing_quiesces_every_device_and_resuming_wakes_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
