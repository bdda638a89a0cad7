/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI tables (specification 6.4).
 *
 * Guest contract: hardware-reduced, so there is no fixed hardware, no FACS, no SCI: sleep and reset are plain registers of
 * the event device (devices/ged.c), and its interrupt runs _EVT, which notifies the power button or the generation
 * id device. Boot flags say that there is no keyboard controller, no VGA and no CMOS clock, which spares the guest
 * the time-outs of probing for them. Interrupts are IOAPIC pins, edge triggered, active high: irqfd is an edge.
 *
 * How it works: one pass over a buffer. Tables that need another's address are written after it (MADT, DSDT, FADT,
 * XSDT), except the RSDP, which must come first and is patched at the end.
 *
 * Snapshot: nothing; the tables live in guest memory.
 */
#include "vmm/x86/acpi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "vmm/x86/aml.h"
#include "vmm/x86/layout.h"
#include "vmm/x86/reset_vector.h"

enum {
	HEADER_SIZE = 36,
	HEADER_LENGTH_AT = 4,
	HEADER_CHECKSUM_AT = 9,
	RSDP_SIZE = 36,
	RSDP_V1_SIZE = 20,
	RSDP_CHECKSUM_AT = 8,
	RSDP_XSDT_AT = 24,
	RSDP_EXT_CHECKSUM_AT = 32,
	TABLE_ALIGN = 16,
};

#define RSDP_SIGNATURE "RSD PTR "
#define OEM_ID "COFFER" /* six characters */

/* FADT: offsets of the few fields that are not zero (5.2.9) */
enum {
	FADT_SIZE = 276,
	FADT_BOOT_ARCH = 109,
	FADT_FLAGS = 112,
	FADT_RESET_REG = 116,
	FADT_RESET_VALUE = 128,
	FADT_MINOR = 131,
	FADT_X_DSDT = 140,
	FADT_SLEEP_CONTROL = 244,
	FADT_SLEEP_STATUS = 256,
	FADT_HYPERVISOR = 268,
	FADT_REVISION = 6,
	FADT_MINOR_REVISION = 4,
};
enum { /* boot architecture: bit 1 clear says "no 8042" */
	BOOT_ARCH_NO_VGA = 1 << 2,
	BOOT_ARCH_NO_CMOS = 1 << 5,
};
enum {
	FLAG_WBINVD = 1 << 0,
	FLAG_C1 = 1 << 2,
	FLAG_NO_FIXED_POWER_BUTTON = 1 << 4,
	FLAG_NO_FIXED_SLEEP_BUTTON = 1 << 5,
	FLAG_RESET_REG = 1 << 10,
	FLAG_HW_REDUCED = 1 << 20,
};
enum { GAS_SYSTEM_IO = 1, GAS_BYTE = 1 };
enum { MADT_LAPIC = 0, MADT_IOAPIC = 1, MADT_LAPIC_NMI = 4, MADT_REVISION = 5, MADT_ENABLED = 1 };
enum { NOTIFY_DEFAULT = 0x80, DSDT_REVISION = 2 };

static uint8_t checksum(const uint8_t *p, size_t n)
{
	uint8_t sum = 0;

	while (n-- > 0)
		sum = (uint8_t)(sum + *p++);
	return (uint8_t)-sum;
}

/* Start a table at the next aligned place; returns where. Length and checksum are filled in by table_end. */
static size_t table_begin(struct aml *a, const char *signature, uint8_t revision)
{
	while (a->len % TABLE_ALIGN && !a->failed)
		aml_put8(a, 0);
	size_t at = a->len;

	aml_put(a, signature, 4);
	aml_put32(a, 0);
	aml_put8(a, revision);
	aml_put8(a, 0);
	aml_put(a, OEM_ID, sizeof(OEM_ID) - 1);
	aml_put(a, OEM_ID "VM", sizeof(OEM_ID "VM") - 1);
	aml_put32(a, 1);
	aml_put(a, "CFFR", 4);
	aml_put32(a, 1);
	return at;
}

static void table_end(struct aml *a, size_t at)
{
	if (a->failed)
		return;
	uint8_t *t = a->buf + at;

	le32_store(t + HEADER_LENGTH_AT, (uint32_t)(a->len - at));
	t[HEADER_CHECKSUM_AT] = checksum(t, a->len - at);
}

static const struct boot_device *find(const struct boot_config *c, const char *hid)
{
	for (size_t i = 0; i < c->ndevices; i++)
		if (c->device[i].hid && strcmp(c->device[i].hid, hid) == 0)
			return &c->device[i];
	return NULL;
}

static void dsdt_resources(struct aml *a, const struct boot_device *d)
{
	aml_name(a, "_CRS");
	aml_resources_begin(a);
	if (d->size && d->pio)
		aml_res_io(a, (uint16_t)d->base, (uint8_t)d->size);
	else if (d->size)
		aml_res_memory32(a, (uint32_t)d->base, (uint32_t)d->size);
	if (d->gsi)
		aml_res_interrupt(a, d->gsi);
	aml_end(a);
}

/* A device that is just an id and resources. uid counts devices of the same hid. */
static void dsdt_plain(struct aml *a, const struct boot_device *d, size_t i, uint32_t uid)
{
	char name[5];

	snprintf(name, sizeof(name), "D%03u", (unsigned)i % 1000);
	aml_device_begin(a, name);
	aml_name(a, "_HID");
	aml_hid(a, d->hid);
	aml_name(a, "_UID");
	aml_integer(a, uid);
	if (!d->pio && d->size) {
		aml_name(a, "_CCA"); /* DMA is coherent */
		aml_integer(a, 1);
	}
	dsdt_resources(a, d);
	aml_end(a);
}

/* The identifier's address is a package of its low and high halves ("Virtual Machine Generation ID", Microsoft). */
static void dsdt_vmgenid(struct aml *a)
{
	aml_device_begin(a, "VGEN");
	aml_name(a, "_HID");
	aml_hid(a, BOOT_HID_VMGENID);
	aml_name(a, "_CID");
	aml_package_begin(a, 2);
	aml_string(a, "VM_Gen_Counter");
	aml_string(a, "VMGENCTR");
	aml_end(a);
	aml_name(a, "_DDN");
	aml_string(a, "VM_Gen_Counter");
	aml_name(a, "ADDR");
	aml_package_begin(a, 2);
	aml_integer(a, (uint32_t)BOOT_VMGENID_GPA);
	aml_integer(a, BOOT_VMGENID_GPA >> 32);
	aml_end(a);
	aml_end(a);
}

static void notify_if(struct aml *a, uint32_t event, const char *device)
{
	aml_if_begin(a);
	aml_and(a, AML_LOCAL0, event);
	aml_notify(a, device, NOTIFY_DEFAULT);
	aml_end(a);
}

/* Reading the event register clears it, so it is read once. */
static void dsdt_ged(struct aml *a, const struct boot_device *d, bool vmgenid)
{
	aml_device_begin(a, "PWRB");
	aml_name(a, "_HID");
	aml_hid(a, "PNP0C0C");
	aml_name(a, "_UID");
	aml_integer(a, 0);
	aml_end(a);

	aml_device_begin(a, "GED");
	aml_name(a, "_HID");
	aml_hid(a, BOOT_HID_GED);
	aml_name(a, "_UID");
	aml_integer(a, 0);
	aml_name(a, "_CRS");
	aml_resources_begin(a);
	aml_res_interrupt(a, d->gsi);
	aml_end(a);
	aml_region_io(a, "EREG", (uint16_t)(d->base + GED_REG_EVENTS), 4);
	aml_field_begin(a, "EREG");
	aml_field_unit(a, "EVTS", 32);
	aml_end(a);
	aml_method_begin(a, "_EVT", 1);
	aml_store(a, "EVTS", AML_LOCAL0);
	notify_if(a, GED_EVENT_POWER_BUTTON, "PWRB");
	if (vmgenid)
		notify_if(a, GED_EVENT_VMGENID, "VGEN");
	aml_end(a);
	aml_end(a);
}

static void dsdt_sleep_state(struct aml *a)
{
	aml_name(a, "\\_S5");
	aml_package_begin(a, 4);
	aml_integer(a, GED_SLEEP_TYPE_S5);
	for (int i = 0; i < 3; i++)
		aml_integer(a, 0);
	aml_end(a);
}

static uint32_t uid_of(const struct boot_config *c, size_t i)
{
	uint32_t uid = 0;

	for (size_t k = 0; k < i; k++)
		if (c->device[k].hid && strcmp(c->device[k].hid, c->device[i].hid) == 0)
			uid++;
	return uid;
}

static size_t put_dsdt(struct aml *a, const struct boot_config *c)
{
	const struct boot_device *ged = find(c, BOOT_HID_GED), *vmgenid = find(c, BOOT_HID_VMGENID);
	size_t at = table_begin(a, "DSDT", DSDT_REVISION);
	char name[5];

	if (ged)
		dsdt_sleep_state(a);
	aml_scope_begin(a, "\\_SB");
	for (uint32_t i = 0; i < c->nvcpus; i++) {
		snprintf(name, sizeof(name), "C%03u", i % 1000);
		aml_device_begin(a, name);
		aml_name(a, "_HID");
		aml_hid(a, "ACPI0007");
		aml_name(a, "_UID"); /* as in the MADT */
		aml_integer(a, i);
		aml_end(a);
	}
	if (vmgenid)
		dsdt_vmgenid(a);
	if (ged)
		dsdt_ged(a, ged, vmgenid != NULL);
	for (size_t i = 0; i < c->ndevices; i++) {
		const struct boot_device *d = &c->device[i];

		if (d->hid && d != ged && d != vmgenid)
			dsdt_plain(a, d, i, uid_of(c, i));
	}
	aml_end(a);
	table_end(a, at);
	return at;
}

static size_t put_madt(struct aml *a, const struct boot_config *c)
{
	size_t at = table_begin(a, "APIC", MADT_REVISION);

	aml_put32(a, X86_LAPIC);
	aml_put32(a, 0); /* no PC-AT interrupt controllers to silence */
	for (uint32_t i = 0; i < c->nvcpus; i++) {
		aml_put8(a, MADT_LAPIC);
		aml_put8(a, 8);
		aml_put8(a, (uint8_t)i); /* processor _UID */
		aml_put8(a, (uint8_t)i); /* APIC id */
		aml_put32(a, MADT_ENABLED);
	}
	aml_put8(a, MADT_IOAPIC);
	aml_put8(a, 12);
	aml_put8(a, 0); /* id, as KVM's */
	aml_put8(a, 0);
	aml_put32(a, X86_IOAPIC);
	aml_put32(a, 0); /* its pins are GSIs from 0 */
	aml_put8(a, MADT_LAPIC_NMI);
	aml_put8(a, 6);
	aml_put8(a, 0xff); /* on every processor */
	aml_put16(a, 0);
	aml_put8(a, 1); /* LINT1 */
	table_end(a, at);
	return at;
}

/* Generic address structure of a byte-wide port */
static void store_port(uint8_t *p, uint64_t port)
{
	p[0] = GAS_SYSTEM_IO;
	p[1] = 8;
	p[2] = 0;
	p[3] = GAS_BYTE;
	le64_store(p + 4, port);
}

static size_t put_fadt(struct aml *a, const struct boot_config *c, uint64_t dsdt)
{
	const struct boot_device *ged = find(c, BOOT_HID_GED);
	uint32_t flags = FLAG_WBINVD | FLAG_C1 | FLAG_NO_FIXED_POWER_BUTTON | FLAG_NO_FIXED_SLEEP_BUTTON | FLAG_HW_REDUCED;
	size_t at = table_begin(a, "FACP", FADT_REVISION);
	static const uint8_t zeros[FADT_SIZE - HEADER_SIZE];

	aml_put(a, zeros, sizeof(zeros));
	if (a->failed)
		return at;
	uint8_t *t = a->buf + at;

	le16_store(t + FADT_BOOT_ARCH, BOOT_ARCH_NO_VGA | BOOT_ARCH_NO_CMOS);
	t[FADT_MINOR] = FADT_MINOR_REVISION;
	le64_store(t + FADT_X_DSDT, dsdt);
	memcpy(t + FADT_HYPERVISOR, OEM_ID, sizeof(OEM_ID));
	if (ged) {
		flags |= FLAG_RESET_REG;
		store_port(t + FADT_RESET_REG, ged->base + GED_REG_RESET);
		t[FADT_RESET_VALUE] = GED_RESET_VALUE;
		store_port(t + FADT_SLEEP_CONTROL, ged->base + GED_REG_SLEEP_CONTROL);
		store_port(t + FADT_SLEEP_STATUS, ged->base + GED_REG_SLEEP_STATUS);
	}
	le32_store(t + FADT_FLAGS, flags);
	table_end(a, at);
	return at;
}

static size_t put_xsdt(struct aml *a, uint64_t fadt, uint64_t madt)
{
	size_t at = table_begin(a, "XSDT", 1);

	aml_put64(a, fadt);
	aml_put64(a, madt);
	table_end(a, at);
	return at;
}

static void put_rsdp(uint8_t *p, uint64_t xsdt)
{
	memset(p, 0, RSDP_SIZE);
	memcpy(p, RSDP_SIGNATURE, sizeof(RSDP_SIGNATURE) - 1);
	memcpy(p + 9, OEM_ID, sizeof(OEM_ID) - 1);
	p[15] = 2; /* revision: with the XSDT */
	le32_store(p + RSDP_V1_SIZE, RSDP_SIZE);
	le64_store(p + RSDP_XSDT_AT, xsdt);
	p[RSDP_CHECKSUM_AT] = checksum(p, RSDP_V1_SIZE);
	p[RSDP_EXT_CHECKSUM_AT] = checksum(p, RSDP_SIZE);
}

static int check_device(const struct boot_device *d, struct err *err)
{
	uint64_t limit = d->pio ? 0x10000 : 0x100000000;
	uint64_t max_size = d->pio ? UINT8_MAX : UINT32_MAX;

	if (d->size > max_size || d->base > limit - d->size)
		return err_set(err, -EINVAL, "ACPI: %s at 0x%llx, size 0x%llx cannot be announced", d->hid,
			       (unsigned long long)d->base, (unsigned long long)d->size);
	return 0;
}

long acpi_build(const struct boot_config *config, uint64_t at, void *buf, size_t len, struct err *err)
{
	struct aml a;
	int r;

	if (config->ndevices > BOOT_MAX_DEVICES)
		return err_set(err, -EINVAL, "ACPI: %zu devices, at most %d can be announced", config->ndevices,
			       BOOT_MAX_DEVICES);
	if (config->nvcpus < 1 || config->nvcpus > UINT8_MAX)
		return err_set(err, -EINVAL, "ACPI: %u vCPUs cannot be announced", config->nvcpus);
	for (size_t i = 0; i < config->ndevices; i++) {
		if (!config->device[i].hid)
			continue;
		r = check_device(&config->device[i], err);
		if (r < 0)
			return r;
	}
	aml_init(&a, buf, len);
	if (len < RSDP_SIZE)
		return err_set(err, -ENOSPC, "ACPI: no room for the tables");
	a.len = RSDP_SIZE;
	size_t madt = put_madt(&a, config);
	size_t dsdt = put_dsdt(&a, config);
	size_t fadt = put_fadt(&a, config, at + dsdt);
	size_t xsdt = put_xsdt(&a, at + fadt, at + madt);

	if (a.failed)
		return err_set(err, -ENOSPC, "ACPI: the tables do not fit into %zu bytes", len);
	put_rsdp(buf, at + xsdt);
	return (long)a.len;
}

int acpi_write(struct mem *m, const struct boot_config *config, struct err *err)
{
	_Static_assert(X86_RSDP + ACPI_MAX_SIZE <= X86_RESET_VECTOR, "the tables fit below 1 MiB");
	_cleanup_free_ uint8_t *buf = malloc(ACPI_MAX_SIZE);
	long n;
	int r;

	if (!buf)
		return err_set(err, -ENOMEM, "ACPI: out of memory");
	n = acpi_build(config, X86_RSDP, buf, ACPI_MAX_SIZE, err);
	if (n < 0)
		return (int)n;
	r = mem_write(m, GPA(X86_RSDP), buf, (size_t)n);
	if (r == 0)
		r = reset_vector_write(m, config);
	return r < 0 ? err_errno(err, r, "ACPI: write the tables") : 0;
}
