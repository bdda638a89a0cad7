/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small builder of ACPI machine language (ACPI 6.4, chapter 20): just the terms our DSDT uses.
 *
 * Bytes go into the caller's buffer. A term that encloses others is opened by a *_begin call and closed by aml_end, which
 * writes its length. Running out of room or of nesting only sets `failed`: check it once, at the end.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AML_MAX_DEPTH = 8 };

struct aml {
	uint8_t *buf;
	size_t len, cap;
	bool failed;
	struct { size_t at; bool resources; } open[AML_MAX_DEPTH]; /* where each unfinished length belongs */
	int depth;
};

void aml_init(struct aml *a, void *buf, size_t cap);

/* Raw little-endian bytes, for tables and operators without a call of their own. */
void aml_put(struct aml *a, const void *bytes, size_t n);
void aml_put8(struct aml *a, uint8_t v);
void aml_put16(struct aml *a, uint16_t v);
void aml_put32(struct aml *a, uint32_t v);
void aml_put64(struct aml *a, uint64_t v);

/* Terms that enclose. Names are one segment of up to four characters, or "\\" followed by one. */
void aml_scope_begin(struct aml *a, const char *name);
void aml_device_begin(struct aml *a, const char *name);
void aml_method_begin(struct aml *a, const char *name, uint8_t nargs); /* serialized */
void aml_package_begin(struct aml *a, uint8_t n);
void aml_field_begin(struct aml *a, const char *region);               /* DWordAcc, NoLock, WriteAsZeros */
void aml_if_begin(struct aml *a);                                      /* the predicate follows */
void aml_resources_begin(struct aml *a);                               /* a resource template: aml_res_* only */
void aml_end(struct aml *a);

/* Terms and data objects */
void aml_namestring(struct aml *a, const char *name);
void aml_name(struct aml *a, const char *name); /* Name (name, ...): the object follows */
void aml_integer(struct aml *a, uint64_t v);
void aml_string(struct aml *a, const char *s);
void aml_hid(struct aml *a, const char *id);    /* "PNP0501" as a compressed EISA id, others as a string */
void aml_region_io(struct aml *a, const char *name, uint16_t base, uint8_t len);
void aml_field_unit(struct aml *a, const char *name, uint8_t bits); /* bits < 64 */

enum { AML_LOCAL0 = 0x60, AML_ARG0 = 0x68 };
void aml_store(struct aml *a, const char *from, uint8_t to_local);
void aml_and(struct aml *a, uint8_t local, uint64_t mask); /* And (local, mask) as a value */
void aml_notify(struct aml *a, const char *device, uint8_t value);

/* Resource descriptors */
void aml_res_io(struct aml *a, uint16_t base, uint8_t len);
void aml_res_memory32(struct aml *a, uint32_t base, uint32_t len); /* read-write */
void aml_res_interrupt(struct aml *a, uint32_t gsi);               /* consumer, edge, active high, exclusive */
