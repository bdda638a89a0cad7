/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The virtio device side of the transport boundary (virtio 1.2, chapter 2). Transports know no device types;
 * devices know no transport: they see features, a config space, queues and these callbacks.
 *
 * A virtio device's instance starts with struct virtio_device, which starts with struct device. The common state
 * (status, features, queues) is a field list of its own, saved by the framework before the device's.
 *
 * Callbacks run with the device lock held. config_read, config_write, activate, deactivate and queue_stop come from
 * a vCPU thread, where no loop_* call is allowed: a device that has something for the loop to do then asks
 * virtio_main_call for a main_work callback. queue_ready and main_work come from main. Without KVM everything comes
 * from the caller's thread, at once. While the device is quiesced, not active or failed, vq_pop finds nothing and
 * queue_ready is not called.
 *
 * The driver's reset runs deactivate, clears the common state and then calls the device's own reset.
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
	/* DRIVER_OK: features and queues are final. Also after a restore, with the decoded state in place: derive
	 * run-time settings here, leave the state alone. */
	void (*activate)(struct virtio_device *vd);
	void (*queue_ready)(struct virtio_device *vd, uint32_t q); /* the driver rang queue q (or resume kicks it) */
	void (*deactivate)(struct virtio_device *vd);   /* device reset: drop requests in flight, touch no guest memory after */
	/* The driver takes queue q away (it may free the buffers next): drain its requests in flight. May be NULL when
	 * there can be none. */
	void (*queue_stop)(struct virtio_device *vd, uint32_t q);
	void (*main_work)(struct virtio_device *vd);    /* after virtio_main_call; may be NULL */
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
	uint32_t nqueues;                          /* fixed after open */
	/* What wakes main: one eventfd a queue (with KVM an ioeventfd), and one for main_work. */
	struct virtio_wake {
		struct loop_fd watch;
		struct virtio_device *vd;
		uint32_t q;
		int fd; /* owned */
	} wake[VIRTIO_MAX_QUEUES + 1];
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

/* Any thread, any time: have main call queue_ready(q) soon (a device that stops early to be fair to others does). */
void virtio_kick(struct virtio_device *vd, uint32_t q);
/* Any thread: have main call main_work soon; without KVM it is called before this returns. Device lock held. */
void virtio_main_call(struct virtio_device *vd);
/* May queue q be used right now? */
static inline bool virtio_queue_live(const struct virtio_device *vd, uint32_t q)
{
	return q < vd->nqueues && !vd->vq[q].stopped && vd->common.queues[q].ready;
}

/* For transports and the machine. */
uint64_t virtio_offered_features(struct virtio_device *vd);
void virtio_set_driver_features(struct virtio_device *vd, uint32_t sel, uint32_t bits);
void virtio_set_status(struct virtio_device *vd, uint32_t status);
void virtio_set_queue_ready(struct virtio_device *vd, uint32_t q, bool ready);
void virtio_reset(struct virtio_device *vd);
void virtio_notify(struct virtio_device *vd, uint32_t q); /* takes no lock: the caller holds it */
/* For device.c: the virtio parts of its steps. */
int virtio_open(struct virtio_device *vd, struct err *err); /* after the device's own open */
int virtio_plug(struct virtio_device *vd, struct err *err); /* eventfds, KVM ioeventfds, loop watches */
void virtio_close(struct virtio_device *vd);                /* accepts a half-opened one */
void virtio_view(struct virtio_device *vd);                 /* vq[] again from common and dev.quiesced */
void virtio_resume(struct virtio_device *vd);
int virtio_check(struct virtio_device *vd, struct err *err); /* the decoded common state */
void virtio_loaded(struct virtio_device *vd);                /* all checks passed: activate if it was active */
extern const struct bus_ops virtio_mmio_bus_ops;          /* opaque is the struct virtio_device */
#define VIRTIO_MMIO_SIZE 0x200u
#define VIRTIO_MMIO_QUEUE_NOTIFY 0x50u
