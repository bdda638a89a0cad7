/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host does to a device while its guest runs: the events of the random traces. A device whose visible state can
 * change without the guest's doing has an entry here. (Not events that change the host's resources: a fresh
 * device would have to be made with the changed ones.)
 */
#include <string.h>

#include "devices/ged.h"
#include "devices/virtio_balloon.h"
#include "devices/virtio_gpu.h"
#include "devices/virtio_input.h"
#include "devices/vmgenid.h"
#include "lib/util.h"
#include "tests/harness/trace.h"

static void ged_event(struct device *d, struct rnd *r)
{
	device_lock(d);
	ged_notify(d, 1u << rnd_below(r, 3));
	device_unlock(d);
}

static void vmgenid_event(struct device *d, struct rnd *r)
{
	uint8_t id[VMGENID_SIZE];

	memset(id, (int)rnd_below(r, 256), sizeof(id));
	device_lock(d);
	vmgenid_set(d, id);
	device_unlock(d);
}

static void balloon_event(struct device *d, struct rnd *r)
{
	struct balloon_stats s;

	if (rnd_below(r, 2))
		balloon_stats(d, &s);
	else
		balloon_set_target(d, rnd_below(r, (TRACE_RAM >> 20) + 2), NULL);
}

/* Keys of a keyboard, pressed, let go of, and impossible. */
static void input_event(struct device *d, struct rnd *r)
{
	struct display_input_event e[DISPLAY_EVENTS_MAX];
	size_t n = 1 + rnd_below(r, ARRAY_SIZE(e));

	for (size_t i = 0; i < n; i++)
		e[i] = (struct display_input_event){ le16_make(1), le16_make((uint16_t)(1 + rnd_below(r, 250))), le32_make(rnd_below(r, 2)) };
	virtio_input_inject(d, e, n);
}

/* As a viewer that is resized. */
static void gpu_event(struct device *d, struct rnd *r)
{
	uint32_t scanout = rnd_below(r, DISPLAY_SCANOUTS_MAX), width = 64 + rnd_below(r, 8000), height = 64 + rnd_below(r, 4000);

	device_lock(d);
	gpu_mode(virtio_gpu_from(d), scanout, width, height);
	device_unlock(d);
}

static const struct {
	const char *name;
	trace_event_fn *fn;
} events[] = {
	{ "ged", ged_event },
	{ "vmgenid", vmgenid_event },
	{ "balloon", balloon_event },
	{ "gpu", gpu_event },
	{ "input", input_event },
};

trace_request_fn *trace_request(const struct device_ops *ops)
{
	return strcmp(ops->name, "gpu") == 0 ? trace_gpu_request : NULL;
}

trace_event_fn *trace_event(const struct device_ops *ops)
{
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (strcmp(events[i].name, ops->name) == 0)
			return events[i].fn;
	return NULL;
}
