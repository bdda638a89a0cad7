/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACPI machine language builder: see aml.h.
 *
 * How lengths work: a package length is 1 to 4 bytes that count themselves too. *_begin leaves a hole of four bytes,
 * aml_end fills in as few as needed and moves the contents down. Inner terms are closed first, so nothing that was
 * already written depends on the distance. A resource template is a buffer: its size operand is patched the same way.
 */
#include "vmm/x86/aml.h"

#include <string.h>

enum {
	OP_ZERO = 0x00,
	OP_ONE = 0x01,
	OP_NAME = 0x08,
	OP_BYTE = 0x0a,
	OP_WORD = 0x0b,
	OP_DWORD = 0x0c,
	OP_STRING = 0x0d,
	OP_QWORD = 0x0e,
	OP_SCOPE = 0x10,
	OP_BUFFER = 0x11,
	OP_PACKAGE = 0x12,
	OP_METHOD = 0x14,
	OP_EXT = 0x5b,
	OP_STORE = 0x70,
	OP_AND = 0x7b,
	OP_NOTIFY = 0x86,
	OP_IF = 0xa0,
	EXT_REGION = 0x80,
	EXT_FIELD = 0x81,
	EXT_DEVICE = 0x82,
	REGION_SYSTEM_IO = 1,
	FIELD_DWORD_WRITE_ZEROS = 0x43,
	METHOD_SERIALIZED = 8,
	LEN_HOLE = 4,
	SEG_LEN = 4,
};

void aml_init(struct aml *a, void *buf, size_t cap)
{
	memset(a, 0, sizeof(*a));
	a->buf = buf;
	a->cap = cap;
}

void aml_put(struct aml *a, const void *bytes, size_t n)
{
	if (a->failed || n > a->cap - a->len) {
		a->failed = true;
		return;
	}
	memcpy(a->buf + a->len, bytes, n);
	a->len += n;
}

static void put_le(struct aml *a, uint64_t v, size_t n)
{
	uint8_t b[8];

	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)(v >> (8 * i));
	aml_put(a, b, n);
}

void aml_put8(struct aml *a, uint8_t v)
{
	put_le(a, v, 1);
}

void aml_put16(struct aml *a, uint16_t v)
{
	put_le(a, v, 2);
}

void aml_put32(struct aml *a, uint32_t v)
{
	put_le(a, v, 4);
}

void aml_put64(struct aml *a, uint64_t v)
{
	put_le(a, v, 8);
}

static void begin(struct aml *a)
{
	if (a->depth == AML_MAX_DEPTH) {
		a->failed = true;
		return;
	}
	a->open[a->depth].at = a->len;
	a->open[a->depth].resources = false;
	a->depth++;
	put_le(a, 0, LEN_HOLE);
}

/* Encode `body` bytes plus the length's own; returns how many bytes that took. */
static size_t encode_length(uint8_t out[LEN_HOLE], size_t body)
{
	size_t n = body + 1 < 0x40 ? 1 : body + 2 < 0x1000 ? 2 : body + 3 < 0x100000 ? 3 : 4;
	size_t total = body + n;

	if (n == 1) {
		out[0] = (uint8_t)total;
		return n;
	}
	out[0] = (uint8_t)((n - 1) << 6 | (total & 0xf));
	for (size_t i = 1; i < n; i++)
		out[i] = (uint8_t)(total >> (4 + 8 * (i - 1)));
	return n;
}

/* The buffer's size operand, a word, stands between the length and the descriptors. */
static void end_resources(struct aml *a, size_t at)
{
	size_t size_at = at + LEN_HOLE + 1;

	aml_put8(a, 0x79); /* end tag */
	aml_put8(a, 0);    /* checksum: not computed */
	if (a->failed)
		return;
	size_t n = a->len - (size_at + 2);

	a->buf[size_at] = (uint8_t)n;
	a->buf[size_at + 1] = (uint8_t)(n >> 8);
}

void aml_end(struct aml *a)
{
	uint8_t bytes[LEN_HOLE];

	if (a->depth == 0) {
		a->failed = true;
		return;
	}
	a->depth--;
	size_t at = a->open[a->depth].at;

	if (a->open[a->depth].resources)
		end_resources(a, at);
	if (a->failed)
		return;
	size_t body = a->len - at - LEN_HOLE;
	size_t n = encode_length(bytes, body);

	memmove(a->buf + at + n, a->buf + at + LEN_HOLE, body);
	memcpy(a->buf + at, bytes, n);
	a->len = at + n + body;
}

void aml_namestring(struct aml *a, const char *name)
{
	char seg[SEG_LEN];
	size_t n;

	if (*name == '\\') {
		aml_put8(a, '\\');
		name++;
	}
	n = strlen(name);
	if (n == 0 || n > SEG_LEN) {
		a->failed = true;
		return;
	}
	memset(seg, '_', sizeof(seg));
	memcpy(seg, name, n);
	aml_put(a, seg, sizeof(seg));
}

void aml_scope_begin(struct aml *a, const char *name)
{
	aml_put8(a, OP_SCOPE);
	begin(a);
	aml_namestring(a, name);
}

void aml_device_begin(struct aml *a, const char *name)
{
	aml_put8(a, OP_EXT);
	aml_put8(a, EXT_DEVICE);
	begin(a);
	aml_namestring(a, name);
}

void aml_method_begin(struct aml *a, const char *name, uint8_t nargs)
{
	aml_put8(a, OP_METHOD);
	begin(a);
	aml_namestring(a, name);
	aml_put8(a, nargs | METHOD_SERIALIZED);
}

void aml_package_begin(struct aml *a, uint8_t n)
{
	aml_put8(a, OP_PACKAGE);
	begin(a);
	aml_put8(a, n);
}

void aml_field_begin(struct aml *a, const char *region)
{
	aml_put8(a, OP_EXT);
	aml_put8(a, EXT_FIELD);
	begin(a);
	aml_namestring(a, region);
	aml_put8(a, FIELD_DWORD_WRITE_ZEROS);
}

void aml_if_begin(struct aml *a)
{
	aml_put8(a, OP_IF);
	begin(a);
}

void aml_resources_begin(struct aml *a)
{
	aml_put8(a, OP_BUFFER);
	begin(a);
	if (!a->failed)
		a->open[a->depth - 1].resources = true;
	aml_put8(a, OP_WORD);
	aml_put16(a, 0);
}

void aml_name(struct aml *a, const char *name)
{
	aml_put8(a, OP_NAME);
	aml_namestring(a, name);
}

void aml_integer(struct aml *a, uint64_t v)
{
	if (v <= 1) {
		aml_put8(a, v ? OP_ONE : OP_ZERO);
	} else if (v <= UINT8_MAX) {
		aml_put8(a, OP_BYTE);
		aml_put8(a, (uint8_t)v);
	} else if (v <= UINT16_MAX) {
		aml_put8(a, OP_WORD);
		aml_put16(a, (uint16_t)v);
	} else if (v <= UINT32_MAX) {
		aml_put8(a, OP_DWORD);
		aml_put32(a, (uint32_t)v);
	} else {
		aml_put8(a, OP_QWORD);
		aml_put64(a, v);
	}
}

void aml_string(struct aml *a, const char *s)
{
	aml_put8(a, OP_STRING);
	aml_put(a, s, strlen(s) + 1);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Three capital letters, five bits each from 'A' = 1, then four hex digits; stored big-endian. */
static bool eisa_id(const char *id, uint32_t *ret)
{
	uint32_t v = 0;

	if (strlen(id) != 7)
		return false;
	for (int i = 0; i < 7; i++) {
		if (i < 3) {
			if (id[i] < 'A' || id[i] > 'Z')
				return false;
			v = v << 5 | (uint32_t)(id[i] - 'A' + 1);
		} else {
			if (hex_digit(id[i]) < 0)
				return false;
			v = v << 4 | (uint32_t)hex_digit(id[i]);
		}
	}
	*ret = __builtin_bswap32(v);
	return true;
}

void aml_hid(struct aml *a, const char *id)
{
	uint32_t v;

	if (!eisa_id(id, &v)) {
		aml_string(a, id);
		return;
	}
	aml_put8(a, OP_DWORD);
	aml_put32(a, v);
}

void aml_region_io(struct aml *a, const char *name, uint16_t base, uint8_t len)
{
	aml_put8(a, OP_EXT);
	aml_put8(a, EXT_REGION);
	aml_namestring(a, name);
	aml_put8(a, REGION_SYSTEM_IO);
	aml_integer(a, base);
	aml_integer(a, len);
}

void aml_field_unit(struct aml *a, const char *name, uint8_t bits)
{
	aml_namestring(a, name);
	aml_put8(a, bits); /* a package length of one byte */
}

void aml_store(struct aml *a, const char *from, uint8_t to_local)
{
	aml_put8(a, OP_STORE);
	aml_namestring(a, from);
	aml_put8(a, to_local);
}

void aml_and(struct aml *a, uint8_t local, uint64_t mask)
{
	aml_put8(a, OP_AND);
	aml_put8(a, local);
	aml_integer(a, mask);
	aml_put8(a, OP_ZERO); /* no target */
}

void aml_notify(struct aml *a, const char *device, uint8_t value)
{
	aml_put8(a, OP_NOTIFY);
	aml_namestring(a, device);
	aml_integer(a, value);
}

void aml_res_io(struct aml *a, uint16_t base, uint8_t len)
{
	aml_put8(a, 0x47); /* small item 8, 7 bytes */
	aml_put8(a, 1);    /* decodes 16 bits */
	aml_put16(a, base);
	aml_put16(a, base);
	aml_put8(a, 0);    /* alignment: fixed anyway */
	aml_put8(a, len);
}

void aml_res_memory32(struct aml *a, uint32_t base, uint32_t len)
{
	aml_put8(a, 0x86);
	aml_put16(a, 9);
	aml_put8(a, 1); /* read-write */
	aml_put32(a, base);
	aml_put32(a, len);
}

void aml_res_interrupt(struct aml *a, uint32_t gsi)
{
	aml_put8(a, 0x89);
	aml_put16(a, 6);
	aml_put8(a, 1 | 1 << 1); /* consumer, edge, active high, exclusive */
	aml_put8(a, 1);
	aml_put32(a, gsi);
}
