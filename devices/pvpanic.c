/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pvpanic: a port through which the guest's kernel says that it panicked (QEMU docs/specs/pvpanic).
 *
 * Guest contract: one byte at port 0x505. Reading gives the events the host understands, writing reports them.
 * "Crash loaded" (the guest will dump its own memory) is not among them: a guest that has a crash kernel goes
 * on with it and reboots in the end.
 * Snapshot: no state.
 */
#include <string.h>

#include "devices/device.h"

enum { BASE = 0x505, SIZE = 1 };
enum { EVENT_PANICKED = 1 << 0 };

static void pvpanic_read(struct device *d, uint64_t offset, void *data, uint32_t len)
{
	(void)d;
	(void)offset;
	memset(data, 0xff, len);
	*(uint8_t *)data = EVENT_PANICKED;
}

static void pvpanic_write(struct device *d, uint64_t offset, const void *data, uint32_t len)
{
	(void)offset;
	(void)len;
	if (*(const uint8_t *)data & EVENT_PANICKED)
		vm_request_stop(d->vm, VM_STOP_PANIC, "the guest's kernel panicked");
}

const struct device_ops pvpanic_device = {
	.name = "pvpanic",
	.help = "panic notification of the guest's kernel",
	.bus = DEVICE_PIO,
	.base = BASE,
	.size = SIZE,
	.hid = "QEMU0001",
	.instances = 1,
	.implicit = true,
	.instance_size = sizeof(struct device),
	.read = pvpanic_read,
	.write = pvpanic_write,
};
