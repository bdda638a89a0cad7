/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Put a kernel into guest memory and say where its boot processor starts. Architecture-neutral face of
 * vmm/x86/ (bzimage, elf, params, acpi).
 *
 * boot_load recognises the kernel by its bytes, reads it and the initrd straight into guest memory, and writes
 * what the boot protocol wants beside it: command line, memory map, and the tables that announce `device`.
 * It is called once, before the vCPUs run, on memory that nobody has written to: zeros are relied on.
 *
 * Trust: the kernel, the initrd and the command line are hostile. Each refusal is one line that names the file.
 * Snapshot: nothing; everything written here lives in guest memory afterwards.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "vmm/memory.h"

/* The page that holds the vmgenid identifier (16 bytes at its start); reserved in the guest's memory map. */
#define BOOT_VMGENID_GPA 0xE0000ull

/* Ports of the event device (devices/ged.c), relative to its base: shared with the tables that announce them. */
enum {
	GED_REG_SLEEP_CONTROL = 0, /* byte: GED_SLEEP_ENABLE | type << GED_SLEEP_TYPE_SHIFT */
	GED_REG_SLEEP_STATUS = 1,  /* byte: always 0 */
	GED_REG_RESET = 2,         /* byte: GED_RESET_VALUE resets */
	GED_REG_EVENTS = 4,        /* le32: pending GED_EVENT_*; a read clears them */
	GED_REG_SIZE = 8,
};
enum { GED_RESET_VALUE = 1, GED_SLEEP_TYPE_S5 = 5, GED_SLEEP_ENABLE = 1 << 5, GED_SLEEP_TYPE_SHIFT = 2 };
enum {
	GED_EVENT_POWER_BUTTON = 1u << 0,
	GED_EVENT_VMGENID = 1u << 1,
	GED_EVENT_ALL = GED_EVENT_POWER_BUTTON | GED_EVENT_VMGENID,
};

enum { BOOT_MAX_DEVICES = 64 };

/* Hardware ids that the tables treat specially */
#define BOOT_HID_GED "ACPI0013"     /* event device: its base is the port of devices/ged.c */
#define BOOT_HID_VMGENID "CFFR0001" /* generation id: no range; guests know it by its compatible ids */

/* A platform device to announce. One with a NULL hid is skipped. */
struct boot_device {
	const char *hid;  /* ACPI hardware id: "LNRO0005", "PNP0501", "QEMU0001" */
	uint64_t base;    /* of its one range */
	uint64_t size;    /* 0: no range */
	bool pio;         /* the range is ports */
	uint32_t gsi;     /* interrupt, edge triggered; 0: none */
};

struct boot_config {
	int kernel_fd;           /* borrowed; opened by boot_open_file or alike */
	const char *kernel_name; /* for messages */
	int initrd_fd;           /* borrowed; -1: none */
	const char *initrd_name;
	const char *cmdline;     /* NULL: empty */
	uint32_t nvcpus;         /* 1..VM_MAX_VCPUS; APIC ids are 0..nvcpus-1 */
	const struct boot_device *device;
	size_t ndevices;         /* <= BOOT_MAX_DEVICES */
};

enum boot_protocol { BOOT_LINUX64, BOOT_PVH };

/* What the boot processor starts with; consumed by arch_vcpu_enter (arch.h). */
struct boot_entry {
	enum boot_protocol protocol;
	uint64_t ip;
	uint64_t arg;       /* LINUX64: boot_params in rsi; PVH: hvm_start_info in ebx */
	uint64_t rsdp;      /* where the ACPI root pointer was put */
	uint64_t kernel_start, kernel_end; /* memory the kernel claims, for messages and tests */
	uint64_t initrd_start, initrd_size; /* 0, 0: none */
};

/* Open a file that must be a regular one, without ever blocking on it (a FIFO, a device): a descriptor or -errno.
 * `what` is "kernel" or "initrd". */
int boot_open_file(const char *path, const char *what, struct err *err);

/* 0 or -errno with a text. *ret is untouched on failure; guest memory is not. */
int boot_load(struct mem *m, const struct boot_config *config, struct boot_entry *ret, struct err *err);
