/* SPDX-License-Identifier: Apache-2.0 */
/* The VM generation identifier (vmgenid.c): a new one tells the guest that it is a copy. */
#pragma once
#include "devices/device.h"

enum { VMGENID_SIZE = 16 };

/* Write a new identifier into guest memory. The caller holds the device's lock and then, with the event device's lock,
 * calls ged_notify(ged, GED_EVENT_VMGENID). 0 or -errno. */
int vmgenid_set(struct device *dev, const uint8_t id[VMGENID_SIZE]);
/* The same with a random one. */
int vmgenid_renew(struct device *dev);
