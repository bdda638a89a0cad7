/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, pausing, saving and destroying devices: see device.h.
 *
 * Threads: main. The bus glue runs on vCPU threads and takes the device lock around the device's callbacks.
 * Snapshot: one blob per device, [le32 length, common virtio state] [le32 length, the device's state] [le32 length, extra].
 */
#include "devices/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices/virtio.h"
#include "lib/fd.h"
#include "lib/le.h"

static void glue_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	struct device *d = opaque;

	device_lock(d);
	d->ops->read(d, offset, data, len);
	device_unlock(d);
}

static void glue_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct device *d = opaque;

	device_lock(d);
	d->ops->write(d, offset, data, len);
	device_unlock(d);
}

static const struct bus_ops glue_ops = { .read = glue_read, .write = glue_write };

static struct virtio_device *as_virtio(const struct device *d)
{
	return d->ops->bus == DEVICE_VIRTIO ? virtio_from_device((struct device *)d) : NULL;
}

static void reset(struct device *d)
{
	if (as_virtio(d))
		virtio_reset(as_virtio(d));
	else if (d->ops->reset)
		d->ops->reset(d);
}

static int open_device(struct device *d, const char *options, struct err *err)
{
	const struct device_ops *ops = d->ops;
	_cleanup_free_ void *parsed = NULL;
	int r = 0;

	if (ops->options) {
		parsed = calloc(1, ops->opt_size);
		if (!parsed)
			return err_errno(err, -ENOMEM, "options");
		if (options && *options)
			r = opt_parse_list(ops->options, parsed, options, err);
	} else if (options && *options) {
		r = err_set(err, -EINVAL, "takes no options, got '%s'", options);
	}
	if (r == 0 && ops->open)
		r = ops->open(d, parsed, err);
	if (ops->options)
		opt_free(ops->options, parsed);
	return r;
}

static int plug(struct device *d, struct err *err)
{
	const struct device_ops *ops = d->ops;
	struct bus *bus = &d->vm->bus;
	int r;

	if (ops->needs_irq || ops->bus == DEVICE_VIRTIO) {
		r = irq_line_init(&d->irq, d->vm->vm_fd, d->irq.gsi, err);
		if (r < 0)
			return r;
	}
	if (ops->bus != DEVICE_VIRTIO && ops->size == 0) /* without registers */
		return 0;
	switch (ops->bus) {
	case DEVICE_PIO:
		return bus_add(bus, BUS_PIO, d->base, ops->size, &glue_ops, d, d->name, err);
	case DEVICE_MMIO:
		return bus_add(bus, BUS_MMIO, d->base, ops->size, &glue_ops, d, d->name, err);
	case DEVICE_VIRTIO:
		r = virtio_plug(as_virtio(d), err);
		if (r < 0)
			return r;
		return bus_add(bus, BUS_MMIO, d->base, VIRTIO_MMIO_SIZE, &virtio_mmio_bus_ops, d, d->name, err);
	}
	return -EINVAL;
}

int device_create(struct vm *vm, const struct device_ops *ops, const struct device_place *place, const char *options,
		  struct device **ret, struct err *err)
{
	struct device *d = calloc(1, ops->instance_size);
	int r;

	if (!d)
		return err_errno(err, -ENOMEM, "%s%u", ops->name, place->number);
	d->ops = ops;
	d->vm = vm;
	d->index = place->index;
	d->base = ops->bus == DEVICE_PIO ? ops->base : place->base;
	d->irq = (struct irq_line){ .fd = -1, .gsi = ops->bus == DEVICE_PIO ? ops->gsi : place->gsi };
	snprintf(d->name, sizeof(d->name), "%s%u", ops->name, place->number);
	pthread_mutex_init(&d->lock, NULL);
	r = open_device(d, options, err);
	if (r == 0 && as_virtio(d))
		r = virtio_open(as_virtio(d), err);
	if (r == 0) {
		reset(d);
		r = plug(d, err);
	}
	if (r < 0) {
		err_prefix(err, "%s: ", d->name);
		device_destroy(d);
		return r;
	}
	*ret = d;
	return 0;
}

void device_destroy(struct device *d)
{
	if (!d)
		return;
	if (as_virtio(d))
		virtio_close(as_virtio(d));
	if (d->ops->close)
		d->ops->close(d);
	irq_line_finish(&d->irq);
	pthread_mutex_destroy(&d->lock);
	free(d);
}

int device_quiesce(struct device *d)
{
	int r = 0;

	device_lock(d);
	if (!d->quiesced) {
		if (d->ops->quiesce)
			r = d->ops->quiesce(d);
		if (r == 0) {
			d->quiesced = true;
			if (as_virtio(d))
				virtio_view(as_virtio(d));
		}
	}
	device_unlock(d);
	return r;
}

void device_resume(struct device *d)
{
	device_lock(d);
	if (d->quiesced) {
		d->quiesced = false;
		if (as_virtio(d))
			virtio_view(as_virtio(d));
		if (d->ops->resume)
			d->ops->resume(d);
		if (as_virtio(d))
			virtio_resume(as_virtio(d));
	}
	device_unlock(d);
}

enum { PART_HEADER = 4 };

static size_t lists_size(const struct device *d)
{
	size_t n = PART_HEADER + (d->ops->schema ? state_encoded_size(d->ops->schema) : 0);

	if (as_virtio(d))
		n += PART_HEADER + state_encoded_size(&virtio_common_schema);
	return n;
}

size_t device_saved_size(const struct device *d)
{
	return lists_size(d) + (d->ops->extra ? PART_HEADER + d->ops->extra->bound(d) : 0);
}

size_t device_saved_max(const struct device *d)
{
	return lists_size(d) + (d->ops->extra ? PART_HEADER + d->ops->extra->max(d) : 0);
}

static uint8_t *save_part(uint8_t *out, const struct state_schema *s, const void *state)
{
	size_t n = s ? state_encoded_size(s) : 0;

	le32_store(out, (uint32_t)n);
	if (s)
		state_encode(s, state, out + PART_HEADER, n);
	return out + PART_HEADER + n;
}

long device_save(const struct device *d, void *buf, size_t len)
{
	uint8_t *out = buf;

	if (len < device_saved_size(d))
		return -ENOSPC;
	if (as_virtio(d))
		out = save_part(out, &virtio_common_schema, &as_virtio(d)->common);
	out = save_part(out, d->ops->schema, (const char *)d + d->ops->state_offset);
	if (d->ops->extra) {
		size_t n = d->ops->extra->save(d, out + PART_HEADER);

		le32_store(out, (uint32_t)n);
		out += PART_HEADER + n;
	}
	return out - (uint8_t *)buf;
}

/* The next part: *ret is where it begins, *in and *len what follows it. */
static int next_part(const uint8_t **in, size_t *len, const uint8_t **ret, size_t *ret_len, struct err *err)
{
	uint32_t n;

	if (*len < PART_HEADER)
		return err_set(err, -EINVAL, "the state is cut off");
	n = le32_load(*in);
	if (n > *len - PART_HEADER)
		return err_set(err, -EINVAL, "the state is cut off: %u bytes announced, %zu left", n,
			       *len - PART_HEADER);
	*ret = *in + PART_HEADER;
	*ret_len = n;
	*in += PART_HEADER + n;
	*len -= PART_HEADER + n;
	return 0;
}

static int load_part(const uint8_t **in, size_t *len, const struct state_schema *s, void *state, struct err *err)
{
	const uint8_t *part = NULL;
	size_t n = 0;
	int r = next_part(in, len, &part, &n, err);

	if (r < 0)
		return r;
	if (s)
		return state_decode(s, state, part, n, err);
	return n ? err_set(err, -EINVAL, "%zu bytes of state for a device that has none", n) : 0;
}

static int load(struct device *d, const uint8_t *in, size_t len, struct err *err)
{
	struct virtio_device *vd = as_virtio(d);
	const uint8_t *extra = NULL;
	size_t extra_len = 0;
	int r = 0;

	if (vd)
		r = load_part(&in, &len, &virtio_common_schema, &vd->common, err);
	if (r == 0)
		r = load_part(&in, &len, d->ops->schema, device_state(d), err);
	if (r == 0 && d->ops->extra)
		r = next_part(&in, &len, &extra, &extra_len, err);
	if (r == 0 && len)
		r = err_set(err, -EINVAL, "%zu bytes left over", len);
	if (r == 0 && vd)
		r = virtio_check(vd, err);
	if (r == 0 && d->ops->check)
		r = d->ops->check(d, err);
	if (r == 0 && d->ops->extra)
		r = d->ops->extra->load(d, extra, extra_len, err);
	return r;
}

int device_load(struct device *d, const void *buf, size_t len, struct err *err)
{
	int r;

	device_lock(d);
	d->quiesced = true;
	reset(d);
	r = load(d, buf, len, err);
	if (r < 0) {
		err_prefix(err, "%s: ", d->name);
		reset(d);
	} else if (as_virtio(d)) {
		virtio_loaded(as_virtio(d));
	}
	device_unlock(d);
	return r;
}
