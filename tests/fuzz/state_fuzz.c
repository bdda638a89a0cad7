/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saved states of every registered device, as a hostile snapshot might hold them.
 *
 * Input: the device's name in 8 bytes, padded with zeros (another first byte picks one by its number), then what
 * device_load gets. What it accepts must be saved as the same state again, and must survive a guest: the device is
 * resumed and driven for a while by a trace made from the input's length.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness/testdev.h"
#include "tests/harness/trace.h"

enum { NAME_LEN = 8, STEPS = 16, MAX_DEVICES = 32 };

static const struct device_ops *pick(const uint8_t *name, size_t *ret_i)
{
	for (size_t i = 0; i < device_registry_count; i++) {
		if (strncmp(device_registry[i]->name, (const char *)name, NAME_LEN) == 0) {
			*ret_i = i + 1;
			return device_registry[i];
		}
	}
	*ret_i = name[0] % (device_registry_count + 1);
	return *ret_i ? device_registry[*ret_i - 1] : &testdev_device;
}

/* (Fields come in any order and newer ones may be missing, so the input itself need not be what is saved.) */
static void check_saved(struct device *d)
{
	size_t room = device_saved_size(d);
	_cleanup_free_ uint8_t *one = malloc(room), *two = malloc(room);
	struct err err = ERR_INIT;
	long n;

	FUZZ_REQUIRE(one && two);
	n = device_save(d, one, room);
	FUZZ_REQUIRE(n > 0 && n <= (long)room);
	FUZZ_REQUIRE(device_load(d, one, (size_t)n, &err) == 0);
	FUZZ_REQUIRE(device_saved_size(d) <= room && device_save(d, two, room) == n);
	FUZZ_REQUIRE(memcmp(one, two, (size_t)n) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Made once and loaded again and again: loading resets. */
	static struct machine machines[MAX_DEVICES];
	static struct device *devices[MAX_DEVICES];
	const struct device_ops *ops;
	struct err err = ERR_INIT;
	struct trace t;
	size_t i;

	if (size < NAME_LEN)
		return 0;
	ops = pick(data, &i);
	FUZZ_REQUIRE(i < MAX_DEVICES);
	if (!devices[i]) {
		machine_init(&machines[i], TRACE_RAM);
		FUZZ_REQUIRE(machine_try_add(&machines[i], ops, ops->test_options, &devices[i], &err) == 0);
	}
	mem_discard(&machines[i].vm.mem, GPA(0), TRACE_RAM);
	if (device_load(devices[i], data + NAME_LEN, size - NAME_LEN, &err) < 0) {
		FUZZ_REQUIRE(err.text[0]);
		FUZZ_REQUIRE(ops->bus != DEVICE_VIRTIO || virtio_from_device(devices[i])->common.status == 0);
		return 0;
	}
	check_saved(devices[i]);
	device_resume(devices[i]);
	machine_settle(&machines[i]);
	trace_init(&t, &machines[i], devices[i]);
	for (uint64_t step = 0; step < STEPS; step++)
		trace_step(&t, size * STEPS + step, NULL, 0);
	FUZZ_REQUIRE(device_quiesce(devices[i]) == 0);
	machine_irqs(devices[i]);
	return 0;
}
