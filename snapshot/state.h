/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State as data: a field list is the definition of the struct it describes.
 *
 * A device (or any owner of guest-visible state) writes one X-macro:
 *
 *   #define VIRTIO_RNG_STATE(F, A, S, V)                         \
 *           F(1, 1, u32, status)              one scalar         \
 *           A(2, 1, u8, config, 64)           an array of scalars\
 *           S(3, 2, virtio_queue, ctl)        a nested state     \
 *           V(4, 1, virtio_queue, queues, 8)  an array of them
 *   STATE_STRUCT(virtio_rng, VIRTIO_RNG_STATE);        in the header or the .c: the struct
 *   STATE_SCHEMA(virtio_rng, 2, VIRTIO_RNG_STATE);     in one .c: the schema `virtio_rng_schema`
 *
 * giving `struct virtio_rng_state` and `const struct state_schema virtio_rng_schema`. Each member is
 * (id, since, type, name): id is its name on the wire and never reused (a reused id fails to compile
 * in STATE_STRUCT), since is the schema version in which it appeared (a static assertion refuses one
 * above the current version). Wire types are u8, u16, u32, u64 and nested lists. A pointer, an fd, a
 * size_t or an enum has no wire type: such a member cannot be written at all.
 *
 * Wire format of one state, all little-endian: le16 version, le16 number of fields, then per field
 * le16 id, u8 type, u8 0, le32 byte length, payload (scalars packed; nested states each as le32 length
 * and their own encoding). A decoder accepts any version up to its own; a field that is missing keeps the
 * value already in the struct (the caller resets it first), provided it is newer than the stored
 * version: a field the stored version should have had is an error. An unknown id, a field newer than the stored
 * version, a wrong type or length, a doubled field or trailing bytes are refused. The order of fields is free. Trust: the input is hostile; every error names the
 * schema and the field. Decoding does not validate values: that is the owner's check operation.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum { STATE_MAX_FIELDS = 256 }; /* in one list */

enum state_type { STATE_U8 = 1, STATE_U16 = 2, STATE_U32 = 3, STATE_U64 = 4, STATE_NESTED = 5 };

struct state_schema;

struct state_field {
	uint16_t id;
	uint16_t since;
	enum state_type type;
	uint32_t offset; /* in the struct */
	uint32_t count;  /* elements; 1 for a scalar */
	const char *name;
	const struct state_schema *nested; /* STATE_NESTED only */
};

struct state_schema {
	const char *name;
	uint16_t version;
	uint16_t nfields;
	uint32_t size; /* of the struct */
	const struct state_field *fields;
};

typedef uint8_t state_c_u8;
typedef uint16_t state_c_u16;
typedef uint32_t state_c_u32;
typedef uint64_t state_c_u64;
enum {
	state_t_u8 = STATE_U8,
	state_t_u16 = STATE_U16,
	state_t_u32 = STATE_U32,
	state_t_u64 = STATE_U64,
};

#define STATE_F_MEMBER(id, since, type, name) state_c_##type name;
#define STATE_A_MEMBER(id, since, type, name, n) state_c_##type name[n];
#define STATE_S_MEMBER(id, since, tag, name) struct tag##_state name;
#define STATE_V_MEMBER(id, since, tag, name, n) struct tag##_state name[n];

/* Used as struct members of a never-instantiated struct: a reused id is a duplicate member. */
#define STATE_F_UNIQUE(id, since, type, name) char id_##id;
#define STATE_A_UNIQUE(id, since, type, name, n) char id_##id;
#define STATE_S_UNIQUE(id, since, tag, name) char id_##id;
#define STATE_V_UNIQUE(id, since, tag, name, n) char id_##id;

#define STATE_F_SINCE(id, since, type, name) && (since) >= 1 && (since) <= state_version_
#define STATE_A_SINCE(id, since, type, name, n) && (since) >= 1 && (since) <= state_version_
#define STATE_S_SINCE(id, since, tag, name) && (since) >= 1 && (since) <= state_version_
#define STATE_V_SINCE(id, since, tag, name, n) && (since) >= 1 && (since) <= state_version_

#define STATE_STRUCT(tag, LIST)                                                                       \
	struct tag##_state {                                                                           \
		LIST(STATE_F_MEMBER, STATE_A_MEMBER, STATE_S_MEMBER, STATE_V_MEMBER)                  \
	};                                                                                             \
	struct tag##_state_ids_ {                                                                      \
		LIST(STATE_F_UNIQUE, STATE_A_UNIQUE, STATE_S_UNIQUE, STATE_V_UNIQUE)                  \
	};                                                                                             \
	extern const struct state_schema tag##_schema

#define STATE_F_DESC(i, s, t, m) { (i), (s), (enum state_type)state_t_##t, offsetof(STATE_SELF, m), 1, #m, NULL },
#define STATE_A_DESC(i, s, t, m, n) { (i), (s), (enum state_type)state_t_##t, offsetof(STATE_SELF, m), (n), #m, NULL },
#define STATE_S_DESC(i, s, tag, m) { (i), (s), STATE_NESTED, offsetof(STATE_SELF, m), 1, #m, &tag##_schema },
#define STATE_V_DESC(i, s, tag, m, n) { (i), (s), STATE_NESTED, offsetof(STATE_SELF, m), (n), #m, &tag##_schema },

/* The lists do not carry their own tag, so offsets are taken through the name STATE_SELF, which the file defines
 * (e.g. `#define STATE_SELF struct virtio_rng_state`) before STATE_SCHEMA and undefines after it. */
#define STATE_SCHEMA(tag, ver, LIST)                                                                   \
	static inline __attribute__((unused)) void tag##_state_checks_(void)                           \
	{                                                                                              \
		enum { state_version_ = (ver) };                                                       \
		_Static_assert(1 LIST(STATE_F_SINCE, STATE_A_SINCE, STATE_S_SINCE, STATE_V_SINCE),     \
			       #tag ": a field is newer than the schema: raise the version");         \
	}                                                                                              \
	STATE_SCHEMA_TABLE_(tag, ver, LIST)

#define STATE_SCHEMA_TABLE_(tag, ver, LIST)                                                            \
	static const struct state_field tag##_fields_[] = {                                           \
		LIST(STATE_F_DESC, STATE_A_DESC, STATE_S_DESC, STATE_V_DESC)                          \
	};                                                                                             \
	_Static_assert(sizeof(tag##_fields_) / sizeof(tag##_fields_[0]) <= STATE_MAX_FIELDS,          \
		       #tag ": too many fields");                                                      \
	const struct state_schema tag##_schema = {                                                    \
		.name = #tag,                                                                          \
		.version = (ver),                                                                      \
		.nfields = sizeof(tag##_fields_) / sizeof(tag##_fields_[0]),                          \
		.size = sizeof(struct tag##_state),                                                    \
		.fields = tag##_fields_,                                                               \
	}

/* Bytes that state_encode will write. */
size_t state_encoded_size(const struct state_schema *s);

/* Encode *state (s->size bytes) into buf; returns bytes written or -ENOSPC. */
long state_encode(const struct state_schema *s, const void *state, void *buf, size_t len);

/* Decode exactly len bytes into *state, which must hold reset values; untouched on failure.
 * Returns 0, or -EINVAL / -ENOTSUP (newer version or unknown field) with a text. */
int state_decode(const struct state_schema *s, void *state, const void *buf, size_t len, struct err *err);

/* The schema as text, "name version N", then one line a field ("id since type[count] name"), nested lists indented:
 * what the golden files hold. Returns the length (may exceed len, as snprintf). */
size_t state_schema_print(const struct state_schema *s, char *buf, size_t len);
