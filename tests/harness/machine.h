/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake machine for device tests: guest memory, bus, loop and devices, but no KVM and no vCPU. Interrupts are counted
 * on their eventfds; everything runs in the test's thread. Set-up failures abort with the reason.
 */
#pragma once
#include "devices/device.h"
#include "vmm/vm.h"

enum { MACHINE_MAX_DEVICES = 16 };

struct machine {
	struct vm vm;
	struct device *dev[MACHINE_MAX_DEVICES];
	uint32_t ndev;
};

void machine_init(struct machine *m, uint64_t ram);
void machine_finish(struct machine *m);

/* Add a device of this registry name (or these ops); machine_try_add returns what device_create does. */
struct device *machine_add(struct machine *m, const char *name, const char *options);
int machine_try_add(struct machine *m, const struct device_ops *ops, const char *options, struct device **ret,
		    struct err *err);

/* Access a device's range through the bus, as a vCPU would; after a write the loop handles what became ready. */
uint64_t machine_read(struct machine *m, struct device *d, uint64_t offset, uint32_t len);
void machine_write(struct machine *m, struct device *d, uint64_t offset, uint64_t value, uint32_t len);

/* Handle everything that is ready now. */
void machine_settle(struct machine *m);
/* Interrupts since the last call. */
uint64_t machine_irqs(struct device *d);
/* Run the loop until the device has raised an interrupt (for asynchronous back ends); takes them all. */
uint64_t machine_wait_irq(struct machine *m, struct device *d);

/* Guest memory; abort when outside. */
void machine_poke(struct machine *m, uint64_t gpa, const void *buf, size_t len);
void machine_peek(struct machine *m, uint64_t gpa, void *buf, size_t len);
uint16_t machine_peek16(struct machine *m, uint64_t gpa);
uint32_t machine_peek32(struct machine *m, uint64_t gpa);
void machine_poke16(struct machine *m, uint64_t gpa, uint16_t v);

/* A small generator for traces: the same seed gives the same numbers everywhere. */
struct rnd {
	uint64_t s;
};
uint64_t rnd_next(struct rnd *r);
uint32_t rnd_below(struct rnd *r, uint32_t n); /* 0..n-1 */
