/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's ACPI 6.4 tables, hardware-reduced: RSDP, XSDT, FADT, MADT, DSDT. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "vmm/boot.h"

enum { ACPI_MAX_SIZE = 64 << 10 };

/* Build the tables as they must lie at guest address `at` (16-byte aligned), the RSDP first: bytes used, or -errno. */
long acpi_build(const struct boot_config *config, uint64_t at, void *buf, size_t len, struct err *err);

/* Build them and put them at X86_RSDP: 0 or -errno. */
int acpi_write(struct mem *m, const struct boot_config *config, struct err *err);
