/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtio device side of the transport boundary (virtio 1.2, chapter 2). Transports know no device types;
 * devices know no transport: they see features, a config space, queues and these callbacks.
 *
 * A virtio device's instance starts with struct virtio_device, which starts with struct device. The common state
 * (status, features, queues) is a field list of its own, saved by the framework before the device's.
 *
 * Callbacks run with the device lock held: config and activate from a vCPU thread, notify from main (ioeventfd)
 * or, without KVM, from whoever wrote the notify register.
 */
#pragma once
#include "devices/device.h"
#include "devices/virtio_queue.h"

/* Device status bits (virtio 1.2, 2.1) */
enum {
	VIRTIO_S_ACKNOWLEDGE = 1,
	VIRTIO_S_DRIVER = 2,
	VIRTIO_S_DRIVER_OK = 4,
	VIRTIO_S_FEATURES_OK = 8,
	VIRTIO_S_NEEDS_RESET = 64,
	VIRTIO_S_FAILED = 128,
};

/* Feature bits every device gets from the framework */
#define VIRTIO_F_INDIRECT_DESC (1ull << 28)
#define VIRTIO_F_EVENT_IDX (1ull << 29)
#define VIRTIO_F_VERSION_1 (1ull << 32)

enum { VIRTIO_MAX_QUEUES = 16, VIRTIO_MAX_CONFIG = 256 };

struct virtio_device;

struct virtio_ops {
	uint32_t device_id; /* virtio 1.2, chapter 5 */
	uint32_t nqueues_max;
	uint16_t queue_size;
	uint64_t (*features)(struct virtio_device *vd); /* device bits, without the framework's */
	uint32_t (*nqueues)(struct virtio_device *vd);  /* <= nqueues_max, fixed after open */
	/* Config space; offset + len already within config_size. write may be NULL: ignored. */
	uint32_t config_size;
	void (*config_read)(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len);
	void (*config_write)(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len);
	void (*activate)(struct virtio_device *vd);     /* DRIVER_OK: features and queues are final */
	void (*queue_ready)(struct virtio_device *vd, uint32_t q); /* the driver rang queue q (or resume kicks it) */
	void (*deactivate)(struct virtio_device *vd);   /* device reset: drop requests in flight, touch no guest memory after */
};

#define VIRTIO_COMMON_STATE(F, A, S, V)                 \
	F(1, 1, u32, status)                            \
	F(2, 1, u32, device_features_sel)               \
	F(3, 1, u32, driver_features_sel)               \
	F(4, 1, u64, driver_features)                   \
	F(5, 1, u32, queue_sel)                         \
	F(6, 1, u32, interrupt_status)                  \
	F(7, 1, u32, config_generation)                 \
	V(8, 1, virtio_queue, queues, VIRTIO_MAX_QUEUES)
STATE_STRUCT(virtio_common, VIRTIO_COMMON_STATE);

struct virtio_device {
	struct device dev;
	struct virtio_common_state common;
	struct virtio_queue vq[VIRTIO_MAX_QUEUES]; /* run-time view over common.queues */
	bool active;                               /* between activate and deactivate */
	int notify_fd[VIRTIO_MAX_QUEUES];          /* ioeventfds, -1 without */
	struct loop_fd notify_watch[VIRTIO_MAX_QUEUES];
};

static inline struct virtio_device *virtio_from_device(struct device *d) { return (struct virtio_device *)d; }
static inline bool virtio_has(const struct virtio_device *vd, uint64_t feature)
{
	return (vd->common.driver_features & feature) == feature;
}

/* For devices. Raise the used-buffer interrupt for queue q if the driver wants it (EVENT_IDX or flags). */
void virtio_signal_queue(struct virtio_device *vd, uint32_t q);
/* Config changed: bump the generation and raise the configuration interrupt. */
void virtio_signal_config(struct virtio_device *vd);
/* The driver broke the rules: NEEDS_RESET, configuration interrupt, queues stop. reason goes to the log, limited. */
void virtio_fail(struct virtio_device *vd, const char *reason);

/* For transports and the machine. */
uint64_t virtio_offered_features(struct virtio_device *vd);
void virtio_set_status(struct virtio_device *vd, uint32_t status);
void virtio_reset(struct virtio_device *vd);
void virtio_notify(struct virtio_device *vd, uint32_t q); /* takes no lock: the caller holds it */
extern const struct bus_ops virtio_mmio_bus_ops;          /* opaque is the struct virtio_device */
#define VIRTIO_MMIO_SIZE 0x200u
