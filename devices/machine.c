/* SPDX-License-Identifier: Apache-2.0 */
/* The machine: see machine.h. */
#include "devices/machine.h"

#include <errno.h>
#include <string.h>

#include "devices/virtio.h"
#include "lib/util.h"

/* Free pins of the interrupt controller: not the timer (0), cascade (2), COM1 (4), clock (8), event device (9), nor
 * those a guest's kernel keeps for legacy hardware (1, 3, 13). */
static const uint8_t gsi_list[MACHINE_MMIO_MAX] = { 5, 6, 7, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23 };

#define VIRTIO_MMIO_HID "LNRO0005"

static bool needs_window(const struct device_ops *ops)
{
	return ops->bus != DEVICE_PIO;
}

/* If the request is for this kind: its options ("" when it has none), else NULL. */
static const char *match(const char *request, const struct device_ops *ops)
{
	size_t n = strcspn(request, ",");

	if (strlen(ops->name) != n || memcmp(request, ops->name, n) != 0)
		return NULL;
	return request[n] ? request + n + 1 : request + n;
}

static int check_name(const char *request, struct err *err)
{
	char names[ERR_MAX / 2] = "";
	size_t at = 0;

	for (size_t i = 0; i < device_registry_count; i++) {
		if (match(request, device_registry[i]))
			return 0;
		if (at < sizeof(names))
			at += (size_t)snprintf(names + at, sizeof(names) - at, " %s", device_registry[i]->name);
	}
	return err_set(err, -ENODEV, "--device %.60s: no such device, there are:%s", request, names);
}

int machine_check(const struct opt_strv *requests, struct err *err)
{
	for (size_t i = 0; i < requests->n; i++) {
		int r = check_name(requests->v[i], err);

		if (r < 0)
			return r;
	}
	for (size_t k = 0; k < device_registry_count; k++) {
		const struct device_ops *ops = device_registry[k];
		uint32_t n = 0;

		for (size_t i = 0; i < requests->n; i++)
			n += match(requests->v[i], ops) != NULL;
		if (n > ops->instances)
			return err_set(err, -EINVAL, "--device %s: given %u times, there can be %u", ops->name, n,
				       ops->instances);
	}
	return 0;
}

static int add(struct machine *m, const struct device_ops *ops, uint32_t number, const char *options, struct err *err)
{
	struct device_place place = { .index = (uint32_t)m->ndevices, .number = number };
	int r;

	if (m->ndevices == ARRAY_SIZE(m->device) || (needs_window(ops) && m->nwindows == MACHINE_MMIO_MAX))
		return err_set(err, -ENOSPC, "--device %s: one device too many, the machine has room for %d", ops->name,
			       MACHINE_MMIO_MAX);
	if (needs_window(ops)) {
		place.base = MACHINE_MMIO_BASE + MACHINE_MMIO_STEP * m->nwindows;
		place.gsi = gsi_list[m->nwindows];
		m->nwindows++;
	}
	r = device_create(m->vm, ops, &place, options, &m->device[m->ndevices], err);
	if (r == 0)
		m->ndevices++;
	return r;
}

/* All devices of one kind. */
static int add_kind(struct machine *m, const struct device_ops *ops, const struct opt_strv *requests, struct err *err)
{
	uint32_t number = 0;
	int r = 0;

	for (size_t i = 0; i < requests->n && r == 0; i++) {
		const char *options = match(requests->v[i], ops);

		if (options)
			r = add(m, ops, number++, options, err);
	}
	if (r == 0 && number == 0 && ops->implicit)
		r = add(m, ops, 0, NULL, err);
	return r;
}

static void resume_first(struct machine *m, size_t n)
{
	while (n-- > 0)
		device_resume(m->device[n]);
}

static int on_pause(void *opaque)
{
	struct machine *m = opaque;

	for (size_t i = 0; i < m->ndevices; i++) {
		int r = device_quiesce(m->device[i]);

		if (r < 0) {
			log_line(&m->vm->log, LOG_ERROR, "%s cannot be paused: %s", m->device[i]->name, strerror(-r));
			resume_first(m, i);
			return r;
		}
	}
	return 0;
}

static void on_resume(void *opaque)
{
	struct machine *m = opaque;

	resume_first(m, m->ndevices);
}

int machine_open(struct machine *m, struct vm *vm, const struct opt_strv *requests, struct err *err)
{
	struct vm_participant p = { .pause = on_pause, .resume = on_resume, .opaque = m };
	int r = machine_check(requests, err);

	memset(m, 0, sizeof(*m));
	m->vm = vm;
	for (size_t i = 0; i < device_registry_count && r == 0; i++)
		r = add_kind(m, device_registry[i], requests, err);
	return r < 0 ? r : vm_add_participant(vm, &p, err);
}

int machine_start(struct machine *m, struct err *err)
{
	for (size_t i = 0; i < m->ndevices; i++) {
		struct device *d = m->device[i];
		int r = d->ops->start ? d->ops->start(d, err) : 0;

		if (r < 0) {
			err_prefix(err, "%s: ", d->name);
			return r;
		}
	}
	return 0;
}

void machine_close(struct machine *m)
{
	while (m->ndevices > 0)
		device_destroy(m->device[--m->ndevices]);
}

struct device *machine_find(const struct machine *m, const char *name)
{
	for (size_t i = 0; i < m->ndevices; i++)
		if (strcmp(m->device[i]->name, name) == 0)
			return m->device[i];
	return NULL;
}

size_t machine_boot_devices(const struct machine *m, struct boot_device *ret)
{
	for (size_t i = 0; i < m->ndevices; i++) {
		const struct device *d = m->device[i];
		const struct device_ops *ops = d->ops;
		bool is_virtio = ops->bus == DEVICE_VIRTIO;

		ret[i] = (struct boot_device){
			.hid = is_virtio ? VIRTIO_MMIO_HID : ops->hid,
			.base = d->base,
			.size = is_virtio ? VIRTIO_MMIO_SIZE : ops->size,
			.pio = ops->bus == DEVICE_PIO,
			.gsi = is_virtio || ops->needs_irq ? d->irq.gsi : 0,
		};
	}
	return m->ndevices;
}

void machine_print_devices(FILE *out)
{
	for (size_t i = 0; i < device_registry_count; i++) {
		const struct device_ops *ops = device_registry[i];

		fprintf(out, "  %-12s %s\n", ops->name, ops->help);
		for (const struct opt *o = ops->options; o && o->type != OPT_TYPE_END; o++) {
			char key[40];

			snprintf(key, sizeof(key), "%s%s%s", o->name, o->metavar ? "=" : "", o->metavar ? o->metavar : "");
			fprintf(out, "    %-20s %s\n", key, o->help);
		}
	}
}
