/* SPDX-License-Identifier: Apache-2.0 */
/* Encodings of ACPI machine language against bytes worked out by hand from ACPI 6.4, chapter 20. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/util.h"
#include "vmm/x86/aml.h"

static uint8_t buf[2 << 20];

static struct aml start(size_t cap)
{
	struct aml a;

	memset(buf, 0xee, sizeof(buf));
	aml_init(&a, buf, cap);
	return a;
}

static void is(const struct aml *a, const void *want, size_t n)
{
	assert_false(a->failed);
	assert_int_equal(a->len, n);
	assert_memory_equal(a->buf, want, n);
}

static void test_integers_take_the_shortest_form(void **ctx)
{
	struct aml a = start(64);
	const uint8_t want[] = { 0x00, 0x01, 0x0a, 2,    0x0a, 0xff, 0x0b, 0x00, 0x01, 0x0b, 0xff, 0xff, 0x0c, 0, 0, 1, 0,
				 0x0e, 0,    0,    0,    0,    1,    0,    0,    0 };
	const uint64_t v[] = { 0, 1, 2, 0xff, 0x100, 0xffff, 0x10000, 0x100000000 };

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(v); i++)
		aml_integer(&a, v[i]);
	is(&a, want, sizeof(want));
}

static void test_names_are_padded(void **ctx)
{
	struct aml a = start(64);

	(void)ctx;
	aml_namestring(&a, "GED");
	aml_namestring(&a, "\\_SB");
	aml_namestring(&a, "_CRS");
	is(&a, "GED_\\_SB__CRS", 13);
}

static void test_bad_names_fail(void **ctx)
{
	const char *const bad[] = { "", "TOOLONG", "\\" };

	(void)ctx;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct aml a = start(64);

		aml_namestring(&a, bad[i]);
		assert_true(a.failed);
	}
}

static void test_eisa_id_is_compressed(void **ctx)
{
	struct aml a = start(64);
	const uint8_t pnp0501[] = { 0x0c, 0x41, 0xd0, 0x05, 0x01 };

	(void)ctx;
	aml_hid(&a, "PNP0501");
	is(&a, pnp0501, sizeof(pnp0501));
}

static void test_other_ids_are_strings(void **ctx)
{
	struct aml a = start(64);

	(void)ctx;
	aml_hid(&a, "LNRO0005");
	is(&a, "\x0dLNRO0005", 10);
}

/* A scope with n bytes in it: its package length covers itself, the name and the bytes. */
static void scope_of(size_t n, const uint8_t *length, size_t length_len)
{
	struct aml a = start(sizeof(buf));

	aml_scope_begin(&a, "ABCD");
	for (size_t i = 0; i < n; i++)
		aml_put8(&a, (uint8_t)i);
	aml_end(&a);
	assert_false(a.failed);
	assert_int_equal(a.len, 1 + length_len + 4 + n);
	assert_int_equal(buf[0], 0x10);
	assert_memory_equal(buf + 1, length, length_len);
	assert_memory_equal(buf + 1 + length_len, "ABCD", 4);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(buf[1 + length_len + 4 + i], (uint8_t)i);
}

static void test_package_length_at_its_borders(void **ctx)
{
	(void)ctx;
	scope_of(0x3f - 5, (const uint8_t[]){ 0x3f }, 1);
	scope_of(0x3f - 4, (const uint8_t[]){ 0x41, 0x04 }, 2); /* 0x41 bytes: the length grew by one itself */
	scope_of(0xfff - 6, (const uint8_t[]){ 0x4f, 0xff }, 2);
	scope_of(0xfff - 5, (const uint8_t[]){ 0x81, 0x00, 0x01 }, 3);
	scope_of(0xfffff - 7, (const uint8_t[]){ 0x8f, 0xff, 0xff }, 3);
	scope_of(0xfffff - 6, (const uint8_t[]){ 0xc1, 0x00, 0x00, 0x01 }, 4);
}

static void test_nested_terms(void **ctx)
{
	struct aml a = start(64);
	const uint8_t want[] = { 0x10, 0x16, '\\', '_',  'S',  'B',  '_',  0x5b, 0x82, 0x0e, 'D', 'E', 'V',
				 '0',  0x08, '_',  'U',  'I',  'D',  0x0a, 0x07, 0xa3, 0xa3 };

	(void)ctx;
	aml_scope_begin(&a, "\\_SB");
	aml_device_begin(&a, "DEV0");
	aml_name(&a, "_UID");
	aml_integer(&a, 7);
	aml_put8(&a, 0xa3);
	aml_put8(&a, 0xa3);
	aml_end(&a);
	aml_end(&a);
	is(&a, want, sizeof(want));
}

static void test_resource_template(void **ctx)
{
	struct aml a = start(64);
	const uint8_t want[] = { 0x11, 0x17, 0x0b, 0x13, 0x00,                         /* buffer of 19 bytes */
				 0x47, 0x01, 0xf8, 0x03, 0xf8, 0x03, 0x00, 0x08,       /* ports */
				 0x89, 0x06, 0x00, 0x03, 0x01, 0x04, 0x00, 0x00, 0x00, /* interrupt 4 */
				 0x79, 0x00 };

	(void)ctx;
	aml_resources_begin(&a);
	aml_res_io(&a, 0x3f8, 8);
	aml_res_interrupt(&a, 4);
	aml_end(&a);
	is(&a, want, sizeof(want));
}

static void test_running_out_of_room_only_fails(void **ctx)
{
	(void)ctx;
	for (size_t cap = 0; cap < 20; cap++) {
		struct aml a = start(cap);

		aml_scope_begin(&a, "ABCD");
		aml_resources_begin(&a);
		aml_res_io(&a, 1, 1);
		aml_end(&a);
		aml_end(&a);
		assert_true(a.failed);
		assert_true(a.len <= cap);
		assert_int_equal(buf[cap], 0xee);
	}
}

static void test_nesting_too_deep_or_unbalanced_fails(void **ctx)
{
	struct aml a = start(1024);

	(void)ctx;
	for (int i = 0; i <= AML_MAX_DEPTH; i++)
		aml_scope_begin(&a, "ABCD");
	assert_true(a.failed);
	a = start(1024);
	aml_end(&a);
	assert_true(a.failed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers_take_the_shortest_form),
		cmocka_unit_test(test_names_are_padded),
		cmocka_unit_test(test_bad_names_fail),
		cmocka_unit_test(test_eisa_id_is_compressed),
		cmocka_unit_test(test_other_ids_are_strings),
		cmocka_unit_test(test_package_length_at_its_borders),
		cmocka_unit_test(test_nested_terms),
		cmocka_unit_test(test_resource_template),
		cmocka_unit_test(test_running_out_of_room_only_fails),
		cmocka_unit_test(test_nesting_too_deep_or_unbalanced_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
