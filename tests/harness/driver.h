/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake virtio driver over the MMIO transport: what a guest's driver does, in the test's hands. Rings and buffers come
 * from a simple heap in guest memory.
 */
#pragma once
#include "devices/virtio.h"
#include "tests/harness/machine.h"

/* virtio 1.2, 4.2.2: the tests' own copy of the register layout */
enum {
	MMIO_MAGIC = 0x000,
	MMIO_VERSION = 0x004,
	MMIO_DEVICE_ID = 0x008,
	MMIO_VENDOR_ID = 0x00c,
	MMIO_DEVICE_FEATURES = 0x010,
	MMIO_DEVICE_FEATURES_SEL = 0x014,
	MMIO_DRIVER_FEATURES = 0x020,
	MMIO_DRIVER_FEATURES_SEL = 0x024,
	MMIO_QUEUE_SEL = 0x030,
	MMIO_QUEUE_NUM_MAX = 0x034,
	MMIO_QUEUE_NUM = 0x038,
	MMIO_QUEUE_READY = 0x044,
	MMIO_QUEUE_NOTIFY = 0x050,
	MMIO_INTERRUPT_STATUS = 0x060,
	MMIO_INTERRUPT_ACK = 0x064,
	MMIO_STATUS = 0x070,
	MMIO_QUEUE_DESC = 0x080,
	MMIO_QUEUE_DRIVER = 0x090,
	MMIO_QUEUE_DEVICE = 0x0a0,
	MMIO_SHM_SEL = 0x0ac,
	MMIO_SHM_LEN = 0x0b0,
	MMIO_SHM_BASE = 0x0b8,
	MMIO_QUEUE_RESET = 0x0c0,
	MMIO_CONFIG_GENERATION = 0x0fc,
	MMIO_CONFIG = 0x100,
};

enum { DRIVER_DESC_NEXT = 1, DRIVER_DESC_WRITE = 2, DRIVER_DESC_INDIRECT = 4 };

struct driver_queue {
	uint16_t size;
	uint64_t desc, avail, used; /* guest addresses */
	uint16_t free_desc;         /* next descriptor to use; wraps: nothing is tracked */
	uint16_t avail_idx;
	uint16_t last_used;
};

struct driver {
	struct machine *m;
	struct device *dev;
	uint64_t features; /* negotiated */
	uint64_t heap;     /* next free guest address */
	struct driver_queue q[VIRTIO_MAX_QUEUES];
};

struct driver_buf {
	uint64_t gpa;
	uint32_t len;
	bool write; /* by the device */
};

void driver_init(struct driver *d, struct machine *m, struct device *dev); /* heap at 64 KiB */
uint64_t driver_alloc(struct driver *d, uint64_t size, uint64_t align);

uint32_t driver_reg(struct driver *d, uint32_t reg);
void driver_set_reg(struct driver *d, uint32_t reg, uint32_t v);
uint64_t driver_config(struct driver *d, uint32_t offset, uint32_t len);
uint64_t driver_offered(struct driver *d);

/* Reset, acknowledge, take `features` (VERSION_1 is added); does FEATURES_OK stick? */
bool driver_negotiate(struct driver *d, uint64_t features);
/* Program queue q at the addresses in d->q[q] (driver_place_queue makes them) and enable it; is it ready? */
void driver_place_queue(struct driver *d, uint32_t q, uint16_t size);
bool driver_enable_queue(struct driver *d, uint32_t q);
/* All of it: negotiate, every queue with `size` entries (0: its maximum), DRIVER_OK. */
void driver_start(struct driver *d, uint64_t features, uint16_t size);

/* Write one descriptor of queue q's table, or of a table at `table`. */
void driver_desc(struct driver *d, uint64_t table, uint16_t i, uint64_t gpa, uint32_t len, uint16_t flags,
		 uint16_t next);
/* Make a chain from the buffers, put it into the avail ring; returns its head. No notification. */
uint16_t driver_add(struct driver *d, uint32_t q, const struct driver_buf *b, uint16_t n);
/* The same with all buffers in an indirect table. */
uint16_t driver_add_indirect(struct driver *d, uint32_t q, const struct driver_buf *b, uint16_t n);
/* Make head available as it is. */
void driver_publish(struct driver *d, uint32_t q, uint16_t head);
void driver_kick(struct driver *d, uint32_t q);
/* Next used element: false when there is none. */
bool driver_used(struct driver *d, uint32_t q, uint32_t *ret_head, uint32_t *ret_len);
bool driver_needs_reset(struct driver *d);
