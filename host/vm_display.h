/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM's display: from the options of run to the monitor's devices, and back from the devices to what people are told.
 *
 * The devices are all there is to it: they are in the VM's record, so a snapshot, a restore, a clone and a pool's shell have the
 * same ones without knowing of displays.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/opt.h"

enum {
	VM_DISPLAY_WIDTH = 1280, /* of --tier vm without --display */
	VM_DISPLAY_HEIGHT = 800,
	VM_DISPLAY_TEXT = 16,    /* "8192x8192" and its zero, and some */
	VM_DISPLAY_DEVICE = 96,
};

struct vm_display {
	uint32_t width, height; /* when it starts; 0 0: there is none */
	bool three_d;           /* --gpu virgl */
	char gpu[VM_DISPLAY_DEVICE];
};

/* The values of --tier, --display and --gpu, each NULL when not given. 0; -EINVAL for what is wrong or contradictory, -ENOTSUP
 * for what this command does not do. */
int vm_display_parse(const char *tier, const char *size, const char *gpu, struct vm_display *ret, struct err *err);

/* Its devices behind the user's own; they borrow from *d. Nothing without a display. -EINVAL when the user has one of these. */
int vm_display_add_devices(struct vm_display *d, struct opt_strv *devices, struct err *err);

/* Is it a display (an option of --device) with 3D? */
bool vm_display_is_3d(const char *device);

/* "1280x800", or "" for a VM whose devices (options of --device) have no display. What devices say may come from others'
 * snapshots: what is no size is no display. */
void vm_display_find(char *const *device, size_t n, char ret[VM_DISPLAY_TEXT]);
