/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: all devices of one VM, made from the registry and the --device options.
 *
 * The registry's order and, within a kind, the order of the options fix addresses, interrupts and positions: the same
 * options give the same machine. Windows of virtio and MMIO devices lie at MACHINE_MMIO_BASE, a page each; their
 * interrupts are the entries of a fixed list. Implicit devices are always there, an option only gives them options.
 *
 * The machine is a participant of the VM: pausing quiesces all devices in order, resuming wakes them in reverse.
 * Threads: main.
 */
#pragma once
#include "devices/device.h"
#include "lib/opt.h"
#include "vmm/boot.h"

#define MACHINE_MMIO_BASE 0xD0000000ull
#define MACHINE_MMIO_STEP 0x1000ull
enum { MACHINE_MMIO_MAX = 16 /* as many interrupts are left for them */ };

struct machine {
	struct vm *vm;
	struct device *device[BOOT_MAX_DEVICES];
	size_t ndevices;
	size_t nwindows;
};

/* Do such devices exist, and as many of them? 0, or -ENODEV / -EINVAL with a text. */
int machine_check(const struct opt_strv *requests, struct err *err);
/* Make everything: requests are "NAME[,key=value...]". vm->mem exists, vm->bus is not frozen. 0 or -errno with a text;
 * machine_close undoes what was made. */
int machine_open(struct machine *m, struct vm *vm, const struct opt_strv *requests, struct err *err);
/* Inside the jail, before system calls are filtered: devices start their threads. */
int machine_start(struct machine *m, struct err *err);
void machine_close(struct machine *m); /* accepts a zeroed one; the vCPUs are stopped */

/* The one that is called that ("blk0"); NULL: none. */
struct device *machine_find(const struct machine *m, const char *name);
/* What boot_load announces: fills at most BOOT_MAX_DEVICES entries, returns their number. */
size_t machine_boot_devices(const struct machine *m, struct boot_device *ret);
/* Every kind of device with its options, for --help. */
void machine_print_devices(FILE *out);

/* What the control socket asks of devices (machine_control.c). The machine outlives the hooks. */
struct control_hooks;
void machine_control_hooks(struct machine *m, struct control_hooks *ret);
