/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtio device made for tests: two queues, 16 bytes of config space, two feature bits. It counts its callbacks;
 * requests on queue 0 are completed at once with all of their writable length, those on queue 1 are held until
 * testdev_complete.
 */
#pragma once
#include "devices/virtio.h"

enum { TESTDEV_ID = 42, TESTDEV_CONFIG = 16, TESTDEV_QUEUE_SIZE = 16 };
#define TESTDEV_F_ONE (1ull << 0)
#define TESTDEV_F_HIGH (1ull << 35)

#define TESTDEV_STATE(F, A, S, V)       \
	A(1, 1, u8, config, TESTDEV_CONFIG) \
	F(2, 1, u16, held_head)         \
	F(3, 1, u8, held)
STATE_STRUCT(testdev, TESTDEV_STATE);

struct testdev {
	struct virtio_device vd;
	struct testdev_state state;
	struct vq_chain chain;
	int activated, deactivated, resets, ready[2], stopped, resumed, quiesced;
	uint32_t config_len; /* of the last config access */
};

extern const struct device_ops testdev_device;

static inline struct testdev *testdev_from(struct device *d) { return (struct testdev *)d; }
/* Complete the request held on queue 1, as an asynchronous back end would. */
void testdev_complete(struct device *d);
