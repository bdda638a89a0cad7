/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoder, decoder and printer for state lists: see state.h.
 *
 * How it works: all three walk the schema's table; nothing else knows the layout of a state. The decoder works on
 * a copy and hands it over only when every byte has been accounted for, so that a refused input changes nothing.
 * Recursion is bounded by the schema, never by the input.
 *
 * Trust: everything given to state_decode is hostile. Lengths are compared as differences, never added up.
 */
#include "snapshot/state.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/le.h"

enum { HEADER_LEN = 4, FIELD_LEN = 8, ELEMENT_LEN = 4 };

static size_t type_size(enum state_type t)
{
	switch (t) {
	case STATE_U8:
		return 1;
	case STATE_U16:
		return 2;
	case STATE_U32:
		return 4;
	case STATE_U64:
		return 8;
	case STATE_NESTED:
		break;
	}
	return 0;
}

static size_t payload_size(const struct state_field *f)
{
	if (f->type == STATE_NESTED)
		return f->count * (ELEMENT_LEN + state_encoded_size(f->nested));
	return f->count * type_size(f->type);
}

size_t state_encoded_size(const struct state_schema *s)
{
	size_t n = HEADER_LEN;

	for (uint16_t i = 0; i < s->nfields; i++)
		n += FIELD_LEN + payload_size(&s->fields[i]);
	return n;
}

static void put_scalar(uint8_t *out, const void *in, enum state_type t)
{
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;

	switch (t) {
	case STATE_U8:
		memcpy(out, in, 1);
		break;
	case STATE_U16:
		memcpy(&v16, in, sizeof(v16));
		le16_store(out, v16);
		break;
	case STATE_U32:
		memcpy(&v32, in, sizeof(v32));
		le32_store(out, v32);
		break;
	case STATE_U64:
		memcpy(&v64, in, sizeof(v64));
		le64_store(out, v64);
		break;
	case STATE_NESTED:
		break;
	}
}

static void get_scalar(void *out, const uint8_t *in, enum state_type t)
{
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;

	switch (t) {
	case STATE_U8:
		memcpy(out, in, 1);
		break;
	case STATE_U16:
		v16 = le16_load(in);
		memcpy(out, &v16, sizeof(v16));
		break;
	case STATE_U32:
		v32 = le32_load(in);
		memcpy(out, &v32, sizeof(v32));
		break;
	case STATE_U64:
		v64 = le64_load(in);
		memcpy(out, &v64, sizeof(v64));
		break;
	case STATE_NESTED:
		break;
	}
}

/* The buffer is known to be large enough. */
static uint8_t *encode(const struct state_schema *s, const uint8_t *state, uint8_t *out)
{
	le16_store(out, s->version);
	le16_store(out + 2, s->nfields);
	out += HEADER_LEN;
	for (uint16_t i = 0; i < s->nfields; i++) {
		const struct state_field *f = &s->fields[i];
		const uint8_t *in = state + f->offset;

		le16_store(out, f->id);
		out[2] = (uint8_t)f->type;
		out[3] = 0;
		le32_store(out + 4, (uint32_t)payload_size(f));
		out += FIELD_LEN;
		for (uint32_t e = 0; e < f->count; e++) {
			if (f->type == STATE_NESTED) {
				le32_store(out, (uint32_t)state_encoded_size(f->nested));
				out = encode(f->nested, in, out + ELEMENT_LEN);
				in += f->nested->size;
			} else {
				put_scalar(out, in, f->type);
				out += type_size(f->type);
				in += type_size(f->type);
			}
		}
	}
	return out;
}

long state_encode(const struct state_schema *s, const void *state, void *buf, size_t len)
{
	if (len < state_encoded_size(s))
		return -ENOSPC;
	return encode(s, state, buf) - (uint8_t *)buf;
}

static const struct state_field *find_field(const struct state_schema *s, uint16_t id, uint16_t *ret_index)
{
	for (uint16_t i = 0; i < s->nfields; i++) {
		if (s->fields[i].id == id) {
			*ret_index = i;
			return &s->fields[i];
		}
	}
	return NULL;
}

static int decode(const struct state_schema *s, uint8_t *state, const uint8_t *in, size_t len, struct err *err);

static int decode_nested(const struct state_schema *s, const struct state_field *f, uint8_t *out, const uint8_t *in,
			 size_t len, struct err *err)
{
	for (uint32_t e = 0; e < f->count; e++) {
		uint32_t n;
		int r;

		if (len < ELEMENT_LEN)
			return err_set(err, -EINVAL, "%s.%s[%u]: cut off", s->name, f->name, e);
		n = le32_load(in);
		in += ELEMENT_LEN;
		len -= ELEMENT_LEN;
		if (n > len)
			return err_set(err, -EINVAL, "%s.%s[%u]: %u bytes announced, %zu left", s->name, f->name, e, n,
				       len);
		r = decode(f->nested, out, in, n, err);
		if (r < 0)
			return r;
		in += n;
		len -= n;
		out += f->nested->size;
	}
	if (len)
		return err_set(err, -EINVAL, "%s.%s: %zu bytes left over", s->name, f->name, len);
	return 0;
}

static int decode_field(const struct state_schema *s, const struct state_field *f, uint8_t *state, uint8_t type,
			const uint8_t *in, size_t len, struct err *err)
{
	uint8_t *out = state + f->offset;
	size_t width = type_size(f->type);

	if (type != f->type)
		return err_set(err, -EINVAL, "%s.%s: type %u instead of %u", s->name, f->name, type, f->type);
	if (f->type == STATE_NESTED)
		return decode_nested(s, f, out, in, len, err);
	if (len != f->count * width)
		return err_set(err, -EINVAL, "%s.%s: %zu bytes instead of %zu", s->name, f->name, len,
			       f->count * width);
	for (uint32_t e = 0; e < f->count; e++)
		get_scalar(out + e * width, in + e * width, f->type);
	return 0;
}

static int decode(const struct state_schema *s, uint8_t *state, const uint8_t *in, size_t len, struct err *err)
{
	bool seen[STATE_MAX_FIELDS] = { false };
	uint16_t version, n;

	assert(s->nfields <= STATE_MAX_FIELDS);
	if (len < HEADER_LEN)
		return err_set(err, -EINVAL, "%s: %zu bytes are too few for a state", s->name, len);
	version = le16_load(in);
	n = le16_load(in + 2);
	in += HEADER_LEN;
	len -= HEADER_LEN;
	if (version == 0)
		return err_set(err, -EINVAL, "%s: version 0 does not exist", s->name);
	if (version > s->version)
		return err_set(err, -ENOTSUP, "%s: version %u is newer than this program's %u: use a newer release",
			       s->name, version, s->version);
	for (uint16_t i = 0; i < n; i++) {
		const struct state_field *f;
		uint16_t id, index;
		uint32_t flen;
		int r;

		if (len < FIELD_LEN)
			return err_set(err, -EINVAL, "%s: cut off at field %u of %u", s->name, i + 1u, n);
		id = le16_load(in);
		flen = le32_load(in + 4);
		f = find_field(s, id, &index);
		if (!f)
			return err_set(err, -ENOTSUP, "%s: field id %u is unknown to this program", s->name, id);
		if (seen[index])
			return err_set(err, -EINVAL, "%s.%s: appears twice", s->name, f->name);
		if (f->since > version)
			return err_set(err, -EINVAL, "%s.%s: not part of version %u", s->name, f->name, version);
		if (in[3] != 0)
			return err_set(err, -EINVAL, "%s.%s: reserved byte is %u", s->name, f->name, in[3]);
		if (flen > len - FIELD_LEN)
			return err_set(err, -EINVAL, "%s.%s: %u bytes announced, %zu left", s->name, f->name, flen,
				       len - FIELD_LEN);
		seen[index] = true;
		r = decode_field(s, f, state, in[2], in + FIELD_LEN, flen, err);
		if (r < 0)
			return r;
		in += FIELD_LEN + flen;
		len -= FIELD_LEN + flen;
	}
	if (len)
		return err_set(err, -EINVAL, "%s: %zu bytes left over", s->name, len);
	for (uint16_t i = 0; i < s->nfields; i++)
		if (!seen[i] && s->fields[i].since <= version)
			return err_set(err, -EINVAL, "%s.%s: missing", s->name, s->fields[i].name);
	return 0;
}

int state_decode(const struct state_schema *s, void *state, const void *buf, size_t len, struct err *err)
{
	_cleanup_free_ void *copy = malloc(s->size);
	int r;

	if (!copy)
		return err_set(err, -ENOMEM, "%s: no memory for %u bytes", s->name, s->size);
	memcpy(copy, state, s->size);
	r = decode(s, copy, buf, len, err);
	if (r == 0)
		memcpy(state, copy, s->size);
	return r;
}

struct printer {
	char *buf;
	size_t len;
	size_t at; /* what would have been written */
};

static void __attribute__((format(printf, 2, 3))) print(struct printer *p, const char *fmt, ...)
{
	size_t room = p->at < p->len ? p->len - p->at : 0;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(room ? p->buf + p->at : NULL, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		p->at += (size_t)n;
}

static void print_schema(struct printer *p, const struct state_schema *s, int depth)
{
	static const char *const type_name[] = {
		[STATE_U8] = "u8", [STATE_U16] = "u16", [STATE_U32] = "u32", [STATE_U64] = "u64",
	};

	for (uint16_t i = 0; i < s->nfields; i++) {
		const struct state_field *f = &s->fields[i];

		print(p, "%*s%u %u ", depth * 2, "", f->id, f->since);
		if (f->type == STATE_NESTED) {
			print(p, "%s[%u] %s version %u\n", f->nested->name, f->count, f->name, f->nested->version);
			print_schema(p, f->nested, depth + 1);
		} else {
			print(p, "%s[%u] %s\n", type_name[f->type], f->count, f->name);
		}
	}
}

size_t state_schema_print(const struct state_schema *s, char *buf, size_t len)
{
	struct printer p = { .buf = buf, .len = len };

	if (len)
		buf[0] = '\0';
	print(&p, "%s version %u\n", s->name, s->version);
	print_schema(&p, s, 1);
	return p.at;
}
