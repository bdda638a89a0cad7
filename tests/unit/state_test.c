/* SPDX-License-Identifier: Apache-2.0 */
/* State lists: what is written, what is accepted, what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/le.h"
#include "snapshot/state.h"

#define INNER_STATE(F, A, S, V) \
	F(1, 1, u16, x)         \
	F(2, 2, u8, y)
STATE_STRUCT(inner, INNER_STATE);
#define STATE_SELF struct inner_state
STATE_SCHEMA(inner, 2, INNER_STATE);
#undef STATE_SELF

#define OUTER_STATE(F, A, S, V) \
	F(1, 1, u8, a)          \
	F(2, 1, u16, b)         \
	F(3, 1, u32, c)         \
	F(4, 1, u64, d)         \
	A(5, 1, u16, e, 3)      \
	S(6, 1, inner, one)     \
	V(7, 2, inner, many, 2) \
	F(9, 3, u32, late)
STATE_STRUCT(outer, OUTER_STATE);
#define STATE_SELF struct outer_state
STATE_SCHEMA(outer, 3, OUTER_STATE);
#undef STATE_SELF

/* The same list as version 1 of this program knew it. */
#define OLD_STATE(F, A, S, V) \
	F(1, 1, u8, a)        \
	F(2, 1, u16, b)       \
	F(3, 1, u32, c)       \
	F(4, 1, u64, d)       \
	A(5, 1, u16, e, 3)    \
	S(6, 1, inner, one)
STATE_STRUCT(old, OLD_STATE);
#define STATE_SELF struct old_state
STATE_SCHEMA(old, 1, OLD_STATE);
#undef STATE_SELF

#define SMALL_STATE(F, A, S, V) F(1, 1, u8, a) F(2, 1, u8, b)
STATE_STRUCT(small, SMALL_STATE);
#define STATE_SELF struct small_state
STATE_SCHEMA(small, 1, SMALL_STATE);
#undef STATE_SELF

static const struct outer_state sample = {
	.a = 0x11,
	.b = 0x2233,
	.c = 0x44556677,
	.d = 0x8899aabbccddeeff,
	.e = { 1, 2, 3 },
	.one = { .x = 4, .y = 5 },
	.many = { { .x = 6, .y = 7 }, { .x = 8, .y = 9 } },
	.late = 10,
};

static void assert_outer_equal(const struct outer_state *x, const struct outer_state *y)
{
	assert_int_equal(x->a, y->a);
	assert_int_equal(x->b, y->b);
	assert_int_equal(x->c, y->c);
	assert_true(x->d == y->d);
	assert_memory_equal(x->e, y->e, sizeof(x->e));
	assert_int_equal(x->one.x, y->one.x);
	assert_int_equal(x->one.y, y->one.y);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(x->many[i].x, y->many[i].x);
		assert_int_equal(x->many[i].y, y->many[i].y);
	}
	assert_int_equal(x->late, y->late);
}

static void a_state_survives_encoding_and_decoding(void **ctx)
{
	struct outer_state out = { 0 };
	uint8_t buf[512];
	long n = state_encode(&outer_schema, &sample, buf, sizeof(buf));

	(void)ctx;
	assert_int_equal(n, state_encoded_size(&outer_schema));
	assert_int_equal(state_decode(&outer_schema, &out, buf, (size_t)n, NULL), 0);
	assert_outer_equal(&out, &sample);
}

static void the_wire_format_is_the_documented_one(void **ctx)
{
	static const uint8_t expect[] = { 1, 0, 2, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0xaa, 2, 0, 1, 0, 1, 0, 0, 0, 0xbb };
	struct small_state s = { .a = 0xaa, .b = 0xbb };
	uint8_t buf[64];

	(void)ctx;
	assert_int_equal(state_encode(&small_schema, &s, buf, sizeof(buf)), sizeof(expect));
	assert_memory_equal(buf, expect, sizeof(expect));
}

static void encoding_into_a_short_buffer_is_refused(void **ctx)
{
	uint8_t buf[512];

	(void)ctx;
	assert_int_equal(state_encode(&outer_schema, &sample, buf, state_encoded_size(&outer_schema) - 1), -ENOSPC);
}

static void a_missing_newer_field_keeps_its_reset_value(void **ctx)
{
	struct old_state old = { .a = 1, .b = 2, .c = 3, .d = 4, .one = { .x = 5, .y = 6 } };
	struct outer_state out = { .late = 77, .many = { { .x = 78 } } };
	uint8_t buf[512];
	long n = state_encode(&old_schema, &old, buf, sizeof(buf));

	(void)ctx;
	assert_int_equal(state_decode(&outer_schema, &out, buf, (size_t)n, NULL), 0);
	assert_int_equal(out.c, 3);
	assert_int_equal(out.late, 77);
	assert_int_equal(out.many[0].x, 78);
}

/* Decode must fail with `code`, name `what` and change nothing. */
static void assert_refused(const struct state_schema *s, const void *buf, size_t len, int code, const char *what)
{
	struct outer_state out, before;
	struct err err = ERR_INIT;

	memset(&out, 0x5a, sizeof(out));
	before = out;
	assert_int_equal(state_decode(s, &out, buf, len, &err), code);
	assert_memory_equal(&out, &before, sizeof(out));
	assert_non_null(strstr(err.text, what));
}

static void a_missing_old_field_is_refused(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0xaa };

	(void)ctx;
	assert_refused(&small_schema, in, sizeof(in), -EINVAL, "small.b: missing");
}

static void an_unknown_field_is_refused(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 1, 0, 3, 0, 1, 0, 1, 0, 0, 0, 0xaa };

	(void)ctx;
	assert_refused(&small_schema, in, sizeof(in), -ENOTSUP, "field id 3");
}

static void a_doubled_field_is_refused(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 2, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0xaa, 1, 0, 1, 0, 1, 0, 0, 0, 0xbb };

	(void)ctx;
	assert_refused(&small_schema, in, sizeof(in), -EINVAL, "small.a: appears twice");
}

static void a_wrong_type_is_refused(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 1, 0, 1, 0, 2, 0, 1, 0, 0, 0, 0xaa };

	(void)ctx;
	assert_refused(&small_schema, in, sizeof(in), -EINVAL, "small.a: type 2");
}

static void a_wrong_length_is_refused(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 1, 0, 1, 0, 1, 0, 2, 0, 0, 0, 0xaa, 0xaa };

	(void)ctx;
	assert_refused(&small_schema, in, sizeof(in), -EINVAL, "small.a: 2 bytes instead of 1");
}

static void trailing_bytes_are_refused(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 2, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0xaa, 2, 0, 1, 0, 1, 0, 0, 0, 0xbb, 0 };

	(void)ctx;
	assert_refused(&small_schema, in, sizeof(in), -EINVAL, "1 bytes left over");
}

static void a_newer_version_and_version_zero_are_refused(void **ctx)
{
	uint8_t buf[512];
	size_t n = state_encoded_size(&outer_schema);

	(void)ctx;
	state_encode(&outer_schema, &sample, buf, sizeof(buf));
	le16_store(buf, 4);
	assert_refused(&outer_schema, buf, n, -ENOTSUP, "version 4");
	le16_store(buf, 0);
	assert_refused(&outer_schema, buf, n, -EINVAL, "version 0");
}

static void a_field_newer_than_the_stored_version_is_refused(void **ctx)
{
	uint8_t buf[512];
	size_t n = state_encoded_size(&outer_schema);

	(void)ctx;
	state_encode(&outer_schema, &sample, buf, sizeof(buf));
	le16_store(buf, 2);
	assert_refused(&outer_schema, buf, n, -EINVAL, "outer.late: not part of version 2");
}

static void every_truncation_is_refused(void **ctx)
{
	uint8_t buf[512];
	size_t n = state_encoded_size(&outer_schema);

	(void)ctx;
	state_encode(&outer_schema, &sample, buf, sizeof(buf));
	for (size_t len = 0; len < n; len++)
		assert_refused(&outer_schema, buf, len, -EINVAL, "outer");
}

static void an_error_in_a_nested_state_names_it(void **ctx)
{
	uint8_t buf[512];
	size_t n = state_encoded_size(&outer_schema);

	(void)ctx;
	state_encode(&outer_schema, &sample, buf, sizeof(buf));
	/* The state of `one` begins after the header, the five fields before it, its own header and its length. */
	size_t at = 4 + (8 + 1) + (8 + 2) + (8 + 4) + (8 + 8) + (8 + 6) + 8 + 4;

	assert_int_equal(le16_load(buf + at), 2);
	le16_store(buf + at, 9);
	assert_refused(&outer_schema, buf, n, -ENOTSUP, "inner: version 9");
}

static void lengths_near_the_32_bit_limit_are_refused(void **ctx)
{
	uint8_t buf[512];
	size_t n = state_encoded_size(&outer_schema);

	(void)ctx;
	for (uint32_t off = 4; off + 4 <= n; off++) {
		struct outer_state out = { 0 };

		state_encode(&outer_schema, &sample, buf, sizeof(buf));
		le32_store(buf + off, UINT32_MAX - 3);
		/* Some offsets hit a payload, where it is a value like any other; none may be read out of bounds. */
		state_decode(&outer_schema, &out, buf, n, NULL);
	}
	state_encode(&outer_schema, &sample, buf, sizeof(buf));
	le32_store(buf + 8, UINT32_MAX);
	assert_refused(&outer_schema, buf, n, -EINVAL, "outer.a: 4294967295 bytes announced");
}

static void the_order_of_fields_is_free(void **ctx)
{
	static const uint8_t in[] = { 1, 0, 2, 0, 2, 0, 1, 0, 1, 0, 0, 0, 0xbb, 1, 0, 1, 0, 1, 0, 0, 0, 0xaa };
	struct small_state s = { 0 };

	(void)ctx;
	assert_int_equal(state_decode(&small_schema, &s, in, sizeof(in), NULL), 0);
	assert_int_equal(s.a, 0xaa);
	assert_int_equal(s.b, 0xbb);
}

static void a_schema_prints_as_text(void **ctx)
{
	static const char expect[] = "outer version 3\n"
				     "  1 1 u8[1] a\n"
				     "  2 1 u16[1] b\n"
				     "  3 1 u32[1] c\n"
				     "  4 1 u64[1] d\n"
				     "  5 1 u16[3] e\n"
				     "  6 1 inner[1] one version 2\n"
				     "    1 1 u16[1] x\n"
				     "    2 2 u8[1] y\n"
				     "  7 2 inner[2] many version 2\n"
				     "    1 1 u16[1] x\n"
				     "    2 2 u8[1] y\n"
				     "  9 3 u32[1] late\n";
	char buf[512], few[8];

	(void)ctx;
	assert_int_equal(state_schema_print(&outer_schema, buf, sizeof(buf)), sizeof(expect) - 1);
	assert_string_equal(buf, expect);
	assert_int_equal(state_schema_print(&outer_schema, few, sizeof(few)), sizeof(expect) - 1);
	assert_string_equal(few, "outer v");
	assert_int_equal(state_schema_print(&outer_schema, NULL, 0), sizeof(expect) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_state_survives_encoding_and_decoding),
		cmocka_unit_test(the_wire_format_is_the_documented_one),
		cmocka_unit_test(encoding_into_a_short_buffer_is_refused),
		cmocka_unit_test(a_missing_newer_field_keeps_its_reset_value),
		cmocka_unit_test(a_missing_old_field_is_refused),
		cmocka_unit_test(an_unknown_field_is_refused),
		cmocka_unit_test(a_doubled_field_is_refused),
		cmocka_unit_test(a_wrong_type_is_refused),
		cmocka_unit_test(a_wrong_length_is_refused),
		cmocka_unit_test(trailing_bytes_are_refused),
		cmocka_unit_test(a_newer_version_and_version_zero_are_refused),
		cmocka_unit_test(a_field_newer_than_the_stored_version_is_refused),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(an_error_in_a_nested_state_names_it),
		cmocka_unit_test(lengths_near_the_32_bit_limit_are_refused),
		cmocka_unit_test(the_order_of_fields_is_free),
		cmocka_unit_test(a_schema_prints_as_text),
	};

	return cmocka_run_group_tests_name("state", tests, NULL, NULL);
}
