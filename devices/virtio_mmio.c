/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio over MMIO, version 2 (virtio 1.2, 4.2).
 *
 * Guest contract: a window of VIRTIO_MMIO_SIZE bytes: control registers, 32 bits wide and aligned, then the device's
 * config space from 0x100, readable and writable in 1, 2, 4 or 8 bytes. A control access of another width is
 * ignored and reads as 0, as do write-only and reserved registers. Reads past the end of the config space give all
 * ones. There are no shared memory regions: their length and address read as all ones. A queue's size and addresses
 * cannot change while it is ready. RING_RESET is not offered, so QueueReset reads 0.
 *
 * Threads: vCPU threads, under the device lock taken here. With KVM a write to QueueNotify that names a queue never
 * arrives: the kernel turns it into the queue's eventfd.
 * Trust: offset, width and value are the guest's.
 */
#include <string.h>

#include "devices/virtio.h"
#include "lib/le.h"
#include "vmm/bus.h"

enum {
	REG_MAGIC = 0x000,
	REG_VERSION = 0x004,
	REG_DEVICE_ID = 0x008,
	REG_VENDOR_ID = 0x00c,
	REG_DEVICE_FEATURES = 0x010,
	REG_DEVICE_FEATURES_SEL = 0x014,
	REG_DRIVER_FEATURES = 0x020,
	REG_DRIVER_FEATURES_SEL = 0x024,
	REG_QUEUE_SEL = 0x030,
	REG_QUEUE_NUM_MAX = 0x034,
	REG_QUEUE_NUM = 0x038,
	REG_QUEUE_READY = 0x044,
	REG_QUEUE_NOTIFY = VIRTIO_MMIO_QUEUE_NOTIFY,
	REG_INTERRUPT_STATUS = 0x060,
	REG_INTERRUPT_ACK = 0x064,
	REG_STATUS = 0x070,
	REG_QUEUE_DESC_LOW = 0x080,
	REG_QUEUE_DESC_HIGH = 0x084,
	REG_QUEUE_DRIVER_LOW = 0x090,
	REG_QUEUE_DRIVER_HIGH = 0x094,
	REG_QUEUE_DEVICE_LOW = 0x0a0,
	REG_QUEUE_DEVICE_HIGH = 0x0a4,
	REG_SHM_LEN_LOW = 0x0b0,
	REG_SHM_LEN_HIGH = 0x0b4,
	REG_SHM_BASE_LOW = 0x0b8,
	REG_SHM_BASE_HIGH = 0x0bc,
	REG_CONFIG_GENERATION = 0x0fc,
	REG_CONFIG = 0x100,
};

#define MAGIC 0x74726976u     /* "virt" */
#define VENDOR_ID 0x52464f43u /* "COFR" */

/* The selected queue, NULL when there is no such queue. */
static struct virtio_queue_state *selected(struct virtio_device *vd)
{
	uint32_t q = vd->common.queue_sel;

	return q < vd->nqueues ? &vd->common.queues[q] : NULL;
}

static uint32_t read_register(struct virtio_device *vd, uint32_t reg)
{
	const struct virtio_common_state *c = &vd->common;
	const struct virtio_queue_state *q = selected(vd);
	uint64_t offered;

	switch (reg) {
	case REG_MAGIC:
		return MAGIC;
	case REG_VERSION:
		return 2;
	case REG_DEVICE_ID:
		return vd->dev.ops->virtio->device_id;
	case REG_VENDOR_ID:
		return VENDOR_ID;
	case REG_DEVICE_FEATURES:
		offered = virtio_offered_features(vd);
		if (c->device_features_sel > 1)
			return 0;
		return (uint32_t)(c->device_features_sel ? offered >> 32 : offered);
	case REG_QUEUE_NUM_MAX:
		return q ? vd->dev.ops->virtio->queue_size : 0;
	case REG_QUEUE_READY:
		return q ? q->ready : 0;
	case REG_INTERRUPT_STATUS:
		return c->interrupt_status;
	case REG_STATUS:
		return c->status;
	case REG_SHM_LEN_LOW:
	case REG_SHM_LEN_HIGH:
	case REG_SHM_BASE_LOW:
	case REG_SHM_BASE_HIGH:
		return UINT32_MAX;
	case REG_CONFIG_GENERATION:
		return c->config_generation;
	default:
		return 0;
	}
}

static void set_half(uint64_t *v, bool high, uint32_t half)
{
	*v = high ? (*v & 0xffffffffull) | (uint64_t)half << 32 : (*v & ~0xffffffffull) | half;
}

static void write_queue(struct virtio_device *vd, uint32_t reg, uint32_t v)
{
	struct virtio_queue_state *q = selected(vd);

	if (!q || q->ready)
		return;
	switch (reg) {
	case REG_QUEUE_NUM:
		q->size = v <= UINT16_MAX ? (uint16_t)v : 0; /* refused when the queue is enabled */
		break;
	case REG_QUEUE_DESC_LOW:
	case REG_QUEUE_DESC_HIGH:
		set_half(&q->desc, reg == REG_QUEUE_DESC_HIGH, v);
		break;
	case REG_QUEUE_DRIVER_LOW:
	case REG_QUEUE_DRIVER_HIGH:
		set_half(&q->avail, reg == REG_QUEUE_DRIVER_HIGH, v);
		break;
	case REG_QUEUE_DEVICE_LOW:
	case REG_QUEUE_DEVICE_HIGH:
		set_half(&q->used, reg == REG_QUEUE_DEVICE_HIGH, v);
		break;
	default:
		break;
	}
}

static void write_register(struct virtio_device *vd, uint32_t reg, uint32_t v)
{
	struct virtio_common_state *c = &vd->common;

	switch (reg) {
	case REG_DEVICE_FEATURES_SEL:
		c->device_features_sel = v;
		break;
	case REG_DRIVER_FEATURES:
		virtio_set_driver_features(vd, c->driver_features_sel, v);
		break;
	case REG_DRIVER_FEATURES_SEL:
		c->driver_features_sel = v;
		break;
	case REG_QUEUE_SEL:
		c->queue_sel = v;
		break;
	case REG_QUEUE_READY:
		virtio_set_queue_ready(vd, c->queue_sel, v & 1);
		break;
	case REG_QUEUE_NOTIFY:
		/* Work belongs to main; without KVM there is only one thread. */
		if (vd->dev.vm->vm_fd >= 0)
			virtio_kick(vd, v);
		else
			virtio_notify(vd, v);
		break;
	case REG_INTERRUPT_ACK:
		c->interrupt_status &= ~v;
		break;
	case REG_STATUS:
		virtio_set_status(vd, v);
		break;
	default:
		write_queue(vd, reg, v);
		break;
	}
}

static void mmio_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	struct virtio_device *vd = opaque;
	const struct virtio_ops *ops = vd->dev.ops->virtio;

	device_lock(&vd->dev);
	if (offset >= REG_CONFIG) {
		uint32_t at = (uint32_t)(offset - REG_CONFIG);

		memset(data, 0xff, len);
		if (ops->config_read && at < ops->config_size && len <= ops->config_size - at)
			ops->config_read(vd, at, data, len);
	} else {
		memset(data, 0, len);
		if (len == 4 && offset % 4 == 0)
			le32_store(data, read_register(vd, (uint32_t)offset));
	}
	device_unlock(&vd->dev);
}

static void mmio_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct virtio_device *vd = opaque;
	const struct virtio_ops *ops = vd->dev.ops->virtio;

	device_lock(&vd->dev);
	if (offset >= REG_CONFIG) {
		uint32_t at = (uint32_t)(offset - REG_CONFIG);

		if (ops->config_write && at < ops->config_size && len <= ops->config_size - at)
			ops->config_write(vd, at, data, len);
	} else if (len == 4 && offset % 4 == 0) {
		write_register(vd, (uint32_t)offset, le32_load(data));
	}
	device_unlock(&vd->dev);
}

const struct bus_ops virtio_mmio_bus_ops = { .read = mmio_read, .write = mmio_write };
