/* SPDX-License-Identifier: Apache-2.0 */
/* The fake machine: see machine.h. */
#include "tests/harness/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices/virtio.h"
#include "lib/le.h"

#define MMIO_BASE 0xD0000000ull
#define MMIO_STEP 0x1000ull

static void __attribute__((noreturn)) die(const char *what, const struct err *err)
{
	fprintf(stderr, "harness: %s: %s\n", what, err ? err->text : "failed");
	abort();
}

void machine_init(struct machine *m, uint64_t ram)
{
	struct err err = ERR_INIT;

	memset(m, 0, sizeof(*m));
	if (vm_init(&m->vm, &err) < 0)
		die("vm_init", &err);
	if (mem_init(&m->vm.mem, -1, ram, &err) < 0)
		die("mem_init", &err);
}

void machine_finish(struct machine *m)
{
	for (uint32_t i = 0; i < m->ndev; i++)
		device_destroy(m->dev[i]);
	vm_finish(&m->vm);
	memset(m, 0, sizeof(*m));
}

int machine_try_add(struct machine *m, const struct device_ops *ops, const char *options, struct device **ret,
		    struct err *err)
{
	struct device_place place = { .index = m->ndev, .base = MMIO_BASE + MMIO_STEP * m->ndev, .gsi = 5 + m->ndev };
	int r;

	if (m->ndev == MACHINE_MAX_DEVICES)
		die(ops->name, NULL);
	for (uint32_t i = 0; i < m->ndev; i++)
		if (m->dev[i]->ops == ops)
			place.number++;
	r = device_create(&m->vm, ops, &place, options, &m->dev[m->ndev], err);
	if (r < 0)
		return r;
	*ret = m->dev[m->ndev++];
	return 0;
}

struct device *machine_add(struct machine *m, const char *name, const char *options)
{
	const struct device_ops *ops = device_find(name);
	struct err err = ERR_INIT;
	struct device *d;

	if (!ops)
		die(name, NULL);
	if (machine_try_add(m, ops, options, &d, &err) < 0)
		die(name, &err);
	return d;
}

static enum bus_space space_of(const struct device *d)
{
	return d->ops->bus == DEVICE_PIO ? BUS_PIO : BUS_MMIO;
}

uint64_t machine_read(struct machine *m, struct device *d, uint64_t offset, uint32_t len)
{
	uint8_t data[8] = { 0 };

	bus_read(&m->vm.bus, space_of(d), d->base + offset, data, len);
	return le64_load(data);
}

void machine_write(struct machine *m, struct device *d, uint64_t offset, uint64_t value, uint32_t len)
{
	uint8_t data[8];

	le64_store(data, value);
	bus_write(&m->vm.bus, space_of(d), d->base + offset, data, len);
	machine_settle(m);
}

void machine_settle(struct machine *m)
{
	while (loop_step(&m->vm.loop, 0) > 0)
		;
}

uint64_t machine_irqs(struct device *d)
{
	uint64_t n = 0;

	if (d->irq.fd <= 0 || read(d->irq.fd, &n, sizeof(n)) != sizeof(n))
		return 0;
	return n;
}

uint64_t machine_wait_irq(struct machine *m, struct device *d)
{
	/* The bound only turns a hang into a report. */
	for (int seconds = 0; seconds < 120;) {
		uint64_t n = machine_irqs(d);

		if (n) {
			machine_settle(m);
			return n + machine_irqs(d);
		}
		if (loop_step(&m->vm.loop, 1000) == 0)
			seconds++;
	}
	die("no interrupt came", NULL);
}

void machine_poke(struct machine *m, uint64_t gpa, const void *buf, size_t len)
{
	if (mem_write(&m->vm.mem, GPA(gpa), buf, len) < 0)
		die("poke outside memory", NULL);
}

void machine_peek(struct machine *m, uint64_t gpa, void *buf, size_t len)
{
	if (mem_read(&m->vm.mem, GPA(gpa), buf, len) < 0)
		die("peek outside memory", NULL);
}

uint16_t machine_peek16(struct machine *m, uint64_t gpa)
{
	uint8_t b[2];

	machine_peek(m, gpa, b, sizeof(b));
	return le16_load(b);
}

uint32_t machine_peek32(struct machine *m, uint64_t gpa)
{
	uint8_t b[4];

	machine_peek(m, gpa, b, sizeof(b));
	return le32_load(b);
}

void machine_poke16(struct machine *m, uint64_t gpa, uint16_t v)
{
	uint8_t b[2];

	le16_store(b, v);
	machine_poke(m, gpa, b, sizeof(b));
}

/* Steele and Vigna's splitmix64: 64 bits of state, any seed is a good one. */
uint64_t rnd_next(struct rnd *r)
{
	uint64_t z = (r->s += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

uint32_t rnd_below(struct rnd *r, uint32_t n)
{
	return (uint32_t)((rnd_next(r) >> 32) * n >> 32);
}
