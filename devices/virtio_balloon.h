/* SPDX-License-Identifier: Apache-2.0 */
/* What the host can ask of a balloon; see virtio_balloon.c. All from main, without the device lock. */
#pragma once
#include <stdint.h>

#include "devices/device.h"

/* Statistics by tag (virtio 1.2, 5.5.6.3); in bytes where they are sizes. */
enum { BALLOON_STATS = 16 };
struct balloon_stats {
	uint32_t valid; /* bit n: value[n] was reported */
	uint64_t value[BALLOON_STATS];
};

/* Ask the guest to give up `mib` MiB in total; it answers in its own time, as far as it can. -EINVAL when that is more than
 * the VM has. */
int balloon_set_target(struct device *d, uint64_t mib, struct err *err);
uint64_t balloon_target(struct device *d); /* MiB */
uint64_t balloon_actual(struct device *d); /* MiB in the balloon now, as the guest says; at most its memory */
/* The statistics the guest sent last; asks for new ones, which come later. */
void balloon_stats(struct device *d, struct balloon_stats *ret);
