/* SPDX-License-Identifier: Apache-2.0 */
/* The fake virtio driver: see driver.h. */
#include "tests/harness/driver.h"

#include <string.h>

#include "lib/le.h"
#include "lib/util.h"

void driver_init(struct driver *d, struct machine *m, struct device *dev)
{
	*d = (struct driver){ .m = m, .dev = dev, .heap = KIB(64) };
}

uint64_t driver_alloc(struct driver *d, uint64_t size, uint64_t align)
{
	uint64_t at = ALIGN_UP(d->heap, align);

	d->heap = at + size;
	return at;
}

uint32_t driver_reg(struct driver *d, uint32_t reg)
{
	return (uint32_t)machine_read(d->m, d->dev, reg, 4);
}

void driver_set_reg(struct driver *d, uint32_t reg, uint32_t v)
{
	machine_write(d->m, d->dev, reg, v, 4);
}

uint64_t driver_config(struct driver *d, uint32_t offset, uint32_t len)
{
	return machine_read(d->m, d->dev, MMIO_CONFIG + offset, len);
}

uint64_t driver_offered(struct driver *d)
{
	uint64_t f;

	driver_set_reg(d, MMIO_DEVICE_FEATURES_SEL, 0);
	f = driver_reg(d, MMIO_DEVICE_FEATURES);
	driver_set_reg(d, MMIO_DEVICE_FEATURES_SEL, 1);
	return f | (uint64_t)driver_reg(d, MMIO_DEVICE_FEATURES) << 32;
}

bool driver_negotiate(struct driver *d, uint64_t features)
{
	features |= VIRTIO_F_VERSION_1;
	driver_set_reg(d, MMIO_STATUS, 0);
	driver_set_reg(d, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE);
	driver_set_reg(d, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE | VIRTIO_S_DRIVER);
	driver_set_reg(d, MMIO_DRIVER_FEATURES_SEL, 0);
	driver_set_reg(d, MMIO_DRIVER_FEATURES, (uint32_t)features);
	driver_set_reg(d, MMIO_DRIVER_FEATURES_SEL, 1);
	driver_set_reg(d, MMIO_DRIVER_FEATURES, (uint32_t)(features >> 32));
	driver_set_reg(d, MMIO_STATUS, VIRTIO_S_ACKNOWLEDGE | VIRTIO_S_DRIVER | VIRTIO_S_FEATURES_OK);
	if (!(driver_reg(d, MMIO_STATUS) & VIRTIO_S_FEATURES_OK))
		return false;
	d->features = features;
	return true;
}

void driver_place_queue(struct driver *d, uint32_t q, uint16_t size)
{
	struct driver_queue *dq = &d->q[q];

	*dq = (struct driver_queue){ .size = size };
	dq->desc = driver_alloc(d, 16ull * size, 16);
	dq->avail = driver_alloc(d, 6 + 2ull * size, 2);
	dq->used = driver_alloc(d, 6 + 8ull * size, 4);
	mem_zero(&d->m->vm.mem, GPA(dq->desc), d->heap - dq->desc);
}

static void set_address(struct driver *d, uint32_t reg, uint64_t v)
{
	driver_set_reg(d, reg, (uint32_t)v);
	driver_set_reg(d, reg + 4, (uint32_t)(v >> 32));
}

bool driver_enable_queue(struct driver *d, uint32_t q)
{
	driver_set_reg(d, MMIO_QUEUE_SEL, q);
	driver_set_reg(d, MMIO_QUEUE_NUM, d->q[q].size);
	set_address(d, MMIO_QUEUE_DESC, d->q[q].desc);
	set_address(d, MMIO_QUEUE_DRIVER, d->q[q].avail);
	set_address(d, MMIO_QUEUE_DEVICE, d->q[q].used);
	driver_set_reg(d, MMIO_QUEUE_READY, 1);
	return driver_reg(d, MMIO_QUEUE_READY) == 1;
}

void driver_start(struct driver *d, uint64_t features, uint16_t size)
{
	driver_negotiate(d, features);
	for (uint32_t q = 0; q < VIRTIO_MAX_QUEUES; q++) {
		uint32_t max;

		driver_set_reg(d, MMIO_QUEUE_SEL, q);
		max = driver_reg(d, MMIO_QUEUE_NUM_MAX);
		if (max == 0)
			break;
		driver_place_queue(d, q, (uint16_t)(size && size < max ? size : max));
		driver_enable_queue(d, q);
	}
	driver_set_reg(d, MMIO_STATUS, driver_reg(d, MMIO_STATUS) | VIRTIO_S_DRIVER_OK);
}

void driver_desc(struct driver *d, uint64_t table, uint16_t i, uint64_t gpa, uint32_t len, uint16_t flags,
		 uint16_t next)
{
	uint8_t b[16];

	le64_store(b, gpa);
	le32_store(b + 8, len);
	le16_store(b + 12, flags);
	le16_store(b + 14, next);
	machine_poke(d->m, table + 16ull * i, b, sizeof(b));
}

void driver_publish(struct driver *d, uint32_t q, uint16_t head)
{
	struct driver_queue *dq = &d->q[q];

	machine_poke16(d->m, dq->avail + 4 + 2ull * (dq->avail_idx % dq->size), head);
	machine_poke16(d->m, dq->avail + 2, ++dq->avail_idx);
}

uint16_t driver_add(struct driver *d, uint32_t q, const struct driver_buf *b, uint16_t n)
{
	struct driver_queue *dq = &d->q[q];
	uint16_t head = dq->free_desc;

	for (uint16_t i = 0; i < n; i++) {
		uint16_t at = dq->free_desc, next = (uint16_t)((at + 1) % dq->size);
		uint16_t flags = (uint16_t)((b[i].write ? DRIVER_DESC_WRITE : 0) | (i + 1 < n ? DRIVER_DESC_NEXT : 0));

		driver_desc(d, dq->desc, at, b[i].gpa, b[i].len, flags, next);
		dq->free_desc = next;
	}
	driver_publish(d, q, head);
	return head;
}

uint16_t driver_add_indirect(struct driver *d, uint32_t q, const struct driver_buf *b, uint16_t n)
{
	struct driver_queue *dq = &d->q[q];
	uint64_t table = driver_alloc(d, 16ull * n, 16);
	uint16_t head = dq->free_desc;

	for (uint16_t i = 0; i < n; i++) {
		uint16_t flags = (uint16_t)((b[i].write ? DRIVER_DESC_WRITE : 0) | (i + 1 < n ? DRIVER_DESC_NEXT : 0));

		driver_desc(d, table, i, b[i].gpa, b[i].len, flags, (uint16_t)(i + 1));
	}
	driver_desc(d, dq->desc, head, table, 16u * n, DRIVER_DESC_INDIRECT, 0);
	dq->free_desc = (uint16_t)((head + 1) % dq->size);
	driver_publish(d, q, head);
	return head;
}

void driver_kick(struct driver *d, uint32_t q)
{
	driver_set_reg(d, MMIO_QUEUE_NOTIFY, q);
}

bool driver_used(struct driver *d, uint32_t q, uint32_t *ret_head, uint32_t *ret_len)
{
	struct driver_queue *dq = &d->q[q];
	uint64_t at = dq->used + 4 + 8ull * (dq->last_used % dq->size);

	if (machine_peek16(d->m, dq->used + 2) == dq->last_used)
		return false;
	if (ret_head)
		*ret_head = machine_peek32(d->m, at);
	if (ret_len)
		*ret_len = machine_peek32(d->m, at + 4);
	dq->last_used++;
	return true;
}

bool driver_needs_reset(struct driver *d)
{
	return driver_reg(d, MMIO_STATUS) & VIRTIO_S_NEEDS_RESET;
}
