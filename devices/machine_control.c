/* SPDX-License-Identifier: Apache-2.0 */
/* What the control socket asks of devices: finds the device and passes the request on. Main thread. */
#include <errno.h>
#include <stdio.h>

#include "devices/ged.h"
#include "devices/machine.h"
#include "devices/virtio_balloon.h"
#include "devices/virtio_blk.h"
#include "vmm/control.h"

static int power_button(void *opaque, struct err *err)
{
	struct device *ged = machine_find(opaque, "ged0");

	if (!ged)
		return err_set(err, -ENODEV, "this machine has no power button");
	device_lock(ged);
	ged_power_button(ged);
	device_unlock(ged);
	return 0;
}

static int balloon_set(void *opaque, uint64_t mib, struct err *err)
{
	struct device *d = machine_find(opaque, "balloon0");

	return d ? balloon_set_target(d, mib, err) : err_set(err, -ENODEV, "this machine has no balloon");
}

static uint64_t balloon_get(void *opaque)
{
	struct device *d = machine_find(opaque, "balloon0");

	return d ? balloon_actual(d) : 0;
}

static int disk_resize(void *opaque, uint64_t disk, uint64_t bytes, struct err *err)
{
	struct device *d;
	char name[24];

	snprintf(name, sizeof(name), "blk%llu", (unsigned long long)disk);
	d = machine_find(opaque, name);
	if (!d)
		return err_set(err, -ENODEV, "there is no disk %llu", (unsigned long long)disk);
	return virtio_blk_resize(d, bytes, err);
}

void machine_control_hooks(struct machine *m, struct control_hooks *ret)
{
	*ret = (struct control_hooks){
		.power_button = power_button,
		.balloon_set = balloon_set,
		.balloon_get = balloon_get,
		.disk_resize = disk_resize,
		.opaque = m,
	};
}
