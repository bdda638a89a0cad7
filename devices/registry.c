/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of all devices. The machine walks it in order: the order fixes addresses, interrupts and ids, so a new
 * device goes to the end of its group and nothing is ever moved.
 */
#include <string.h>

#include "devices/device.h"
#include "lib/util.h"

extern const struct device_ops serial_device;
extern const struct device_ops i8042_device;
extern const struct device_ops pvpanic_device;
extern const struct device_ops ged_device;
extern const struct device_ops vmgenid_device;
extern const struct device_ops virtio_rng_device;
extern const struct device_ops virtio_blk_device;
extern const struct device_ops virtio_vsock_device;
extern const struct device_ops virtio_console_device;
extern const struct device_ops virtio_balloon_device;
extern const struct device_ops virtio_gpu_device;
extern const struct device_ops virtio_input_device;

const struct device_ops *const device_registry[] = {
	/* platform */
	&serial_device,
	&i8042_device,
	&pvpanic_device,
	&ged_device,
	&vmgenid_device,
	/* virtio */
	&virtio_rng_device,
	&virtio_blk_device,
	&virtio_console_device,
	&virtio_balloon_device,
	&virtio_vsock_device,
	&virtio_gpu_device,
	&virtio_input_device, /* after the device that opens the display */
};
const size_t device_registry_count = ARRAY_SIZE(device_registry);

const struct device_ops *device_find(const char *name)
{
	for (size_t i = 0; i < device_registry_count; i++)
		if (strcmp(device_registry[i]->name, name) == 0)
			return device_registry[i];
	return NULL;
}
