/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI event device: power-off, reset and events for a hardware-reduced guest (ACPI 6.4, 4.8.3.7, 5.6.9).
 *
 * Guest contract: the registers of vmm/boot.h (GED_REG_*), announced by the tables: sleep control (S5 ends the guest with
 * "poweroff"; other states are not offered and ignored), sleep status, reset, and pending events. An event raises the
 * interrupt; the _EVT method reads the events, which clears them, and notifies who is meant.
 *
 * Threads: registers from vCPU threads, ged_notify from main, under the device lock.
 * Snapshot: events pending; they are raised again on resume.
 */
#include "devices/ged.h"

#include <errno.h>
#include <string.h>

#include "lib/le.h"
#include "lib/util.h"

enum { BASE = 0x600, GSI = 9, EVENTS_WIDTH = 4 };

#define GED_STATE(F, A, S, V) F(1, 1, u32, events)
STATE_STRUCT(ged, GED_STATE);
#define STATE_SELF struct ged_state
STATE_SCHEMA(ged, 1, GED_STATE);
#undef STATE_SELF

struct ged {
	struct device dev;
	struct ged_state st;
};

static struct ged *from_device(struct device *d)
{
	return container_of(d, struct ged, dev);
}

void ged_notify(struct device *d, uint32_t events)
{
	from_device(d)->st.events |= events & GED_EVENT_ALL;
	irq_raise(&d->irq);
}

void ged_power_button(struct device *d)
{
	ged_notify(d, GED_EVENT_POWER_BUTTON);
}

static void ged_read(struct device *d, uint64_t offset, void *data, uint32_t len)
{
	struct ged_state *st = &from_device(d)->st;

	memset(data, 0, len);
	if (offset != GED_REG_EVENTS || len != EVENTS_WIDTH)
		return;
	le32_store(data, st->events);
	st->events = 0;
}

static void ged_write(struct device *d, uint64_t offset, const void *data, uint32_t len)
{
	uint8_t v = *(const uint8_t *)data;
	uint8_t type = v >> GED_SLEEP_TYPE_SHIFT & 7;

	(void)len;
	if (offset == GED_REG_SLEEP_CONTROL && v & GED_SLEEP_ENABLE && type == GED_SLEEP_TYPE_S5)
		vm_request_stop(d->vm, VM_STOP_POWEROFF, "the guest powered off");
	else if (offset == GED_REG_RESET && v == GED_RESET_VALUE)
		vm_request_stop(d->vm, VM_STOP_REBOOT, "the guest asked for a reset");
}

static void ged_reset(struct device *d)
{
	from_device(d)->st = (struct ged_state){ 0 };
}

static void ged_resume(struct device *d)
{
	if (from_device(d)->st.events)
		irq_raise(&d->irq);
}

static int ged_check(struct device *d, struct err *err)
{
	uint32_t events = from_device(d)->st.events;

	if (events & ~(uint32_t)GED_EVENT_ALL)
		return err_set(err, -EINVAL, "unknown events 0x%x pending", events);
	return 0;
}

const struct device_ops ged_device = {
	.name = "ged",
	.help = "ACPI events: power-off, reset, power button",
	.bus = DEVICE_PIO,
	.base = BASE,
	.size = GED_REG_SIZE,
	.gsi = GSI,
	.needs_irq = true,
	.hid = BOOT_HID_GED,
	.instances = 1,
	.implicit = true,
	.instance_size = sizeof(struct ged),
	.schema = &ged_schema,
	.state_offset = offsetof(struct ged, st),
	.reset = ged_reset,
	.read = ged_read,
	.write = ged_write,
	.resume = ged_resume,
	.check = ged_check,
};
