/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events for the guest's operating system through the ACPI generic event device (ged.c).
 *
 * The caller holds the device's lock. Events (GED_EVENT_*) and registers are in vmm/boot.h.
 */
#pragma once
#include "devices/device.h"
#include "vmm/boot.h"

/* Mark events (GED_EVENT_*) pending and interrupt the guest. */
void ged_notify(struct device *ged, uint32_t events);
/* The power button was pressed. */
void ged_power_button(struct device *ged);
