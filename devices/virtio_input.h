/* SPDX-License-Identifier: Apache-2.0 */
/* virtio-input for its tests; everyone else reaches it through the display (devices/backend/display.h). */
#pragma once
#include "devices/device.h"
#include "lib/display_proto.h"

enum { VIRTIO_INPUT_PENDING = 256 }; /* events that wait for the guest's buffers, at most */

/* Main thread, without the device's lock: what display_input_ops.inject says. */
int virtio_input_inject(struct device *d, const struct display_input_event *event, size_t n);
/* Has the driver given back every buffer, and does nothing wait? */
bool virtio_input_idle(struct device *d);
uint32_t virtio_input_leds(struct device *d);
