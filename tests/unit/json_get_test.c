/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON objects: types, bounds, what is missing, and what the error says. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "host/json_get.h"

static json_t *object(const char *text)
{
	json_t *o = json_loads(text, JSON_ALLOW_NUL, NULL);

	assert_non_null(o);
	return o;
}

static void assert_error(int r, struct err *err, const char *text)
{
	assert_int_equal(r, -EINVAL);
	assert_string_equal(err->text, text);
}

static void a_document_has_a_size_and_a_type(void **s)
{
	struct err err = ERR_INIT;
	json_t *o;

	(void)s;
	o = json_get_document("{}", 2, 2, JSON_OBJECT, &err);
	assert_non_null(o);
	json_decref(o);
	assert_null(json_get_document("{}", 2, 1, JSON_OBJECT, &err));
	assert_string_equal(err.text, "2 bytes; at most 1 are taken");
	assert_null(json_get_document("{}", 2, 2, JSON_ARRAY, &err));
	assert_string_equal(err.text, "not an array");
	assert_null(json_get_document("[]", 2, 2, JSON_OBJECT, &err));
	assert_string_equal(err.text, "not an object");
	assert_null(json_get_document("{\"a\":1,\"a\":1}", 13, 100, JSON_OBJECT, &err));
	assert_null(json_get_document("{", 1, 100, JSON_OBJECT, &err));
	assert_int_equal(strncmp(err.text, "line 1: ", 8), 0);
}

static void a_string_is_bounded_and_has_no_zero(void **s)
{
	json_t *o = object("{\"a\":\"four\",\"z\":\"x\\u0000y\",\"n\":1,\"null\":null}");
	struct err err = ERR_INIT;
	const char *text = "before";
	char *copy = NULL;

	(void)s;
	assert_int_equal(json_get_string(o, "a", 4, true, &text, &err), 0);
	assert_string_equal(text, "four");
	assert_int_equal(json_get_copy(o, "a", 4, true, &copy, &err), 0);
	assert_string_equal(copy, "four");
	free(copy);
	text = "before";
	assert_error(json_get_string(o, "a", 3, true, &text, &err), &err, "\"a\" is not a string of at most 3 bytes");
	assert_error(json_get_string(o, "z", 9, true, &text, &err), &err, "\"z\" is not a string of at most 9 bytes");
	assert_error(json_get_string(o, "n", 9, true, &text, &err), &err, "\"n\" is not a string of at most 9 bytes");
	assert_error(json_get_string(o, "none", 9, true, &text, &err), &err, "\"none\" is missing");
	assert_error(json_get_string(o, "null", 9, true, &text, &err), &err, "\"null\" is not a string of at most 9 bytes");
	assert_int_equal(json_get_string(o, "none", 9, false, &text, &err), 0);
	assert_int_equal(json_get_string(o, "null", 9, false, &text, &err), 0);
	assert_int_equal(json_get_string(NULL, "a", 9, false, &text, &err), 0);
	assert_string_equal(text, "before");
	json_decref(o);
}

static void hexadecimal_has_its_length_and_lower_case(void **s)
{
	json_t *o = object("{\"h\":\"09af\",\"u\":\"09AF\",\"l\":\"09af0\",\"e\":\"\"}");
	struct err err = ERR_INIT;
	char hex[5] = "old";

	(void)s;
	assert_error(json_get_hex(o, "u", 4, true, hex, &err), &err, "\"u\" is not 4 hexadecimal digits");
	assert_error(json_get_hex(o, "l", 4, true, hex, &err), &err, "\"l\" is not 4 hexadecimal digits");
	assert_error(json_get_hex(o, "e", 4, false, hex, &err), &err, "\"e\" is not 4 hexadecimal digits");
	assert_int_equal(json_get_hex(o, "none", 4, false, hex, &err), 0);
	assert_string_equal(hex, "old");
	assert_int_equal(json_get_hex(o, "h", 4, true, hex, &err), 0);
	assert_string_equal(hex, "09af");
	json_decref(o);
}

static void a_number_is_in_its_range(void **s)
{
	json_t *o = object("{\"n\":5,\"m\":-1,\"r\":5.0,\"s\":\"5\"}");
	struct err err = ERR_INIT;
	uint64_t n = 77;

	(void)s;
	assert_error(json_get_u64(o, "n", 6, 9, &n, &err), &err, "\"n\" is not a number from 6 to 9");
	assert_error(json_get_u64(o, "n", 0, 4, &n, &err), &err, "\"n\" is not a number from 0 to 4");
	assert_error(json_get_u64(o, "m", 0, UINT64_MAX, &n, &err), &err, "\"m\" is not a number from 0 to 18446744073709551615");
	assert_error(json_get_u64(o, "r", 0, 9, &n, &err), &err, "\"r\" is not a number from 0 to 9");
	assert_error(json_get_u64(o, "s", 0, 9, &n, &err), &err, "\"s\" is not a number from 0 to 9");
	assert_error(json_get_u64(o, "none", 0, 9, &n, &err), &err, "\"none\" is missing");
	assert_int_equal(n, 77);
	assert_int_equal(json_get_u64(o, "n", 5, 5, &n, &err), 0);
	assert_int_equal(n, 5);
	json_decref(o);
}

static void an_array_has_so_many_elements(void **s)
{
	json_t *o = object("{\"a\":[1,2],\"n\":1}");
	struct err err = ERR_INIT;
	const json_t *a = NULL;

	(void)s;
	assert_error(json_get_array(o, "a", 3, 9, &a, &err), &err, "\"a\" is not an array of 3 to 9 elements");
	assert_error(json_get_array(o, "a", 0, 1, &a, &err), &err, "\"a\" is not an array of 0 to 1 elements");
	assert_error(json_get_array(o, "n", 0, 1, &a, &err), &err, "\"n\" is not an array of 0 to 1 elements");
	assert_null(a);
	assert_int_equal(json_get_array(o, "a", 2, 2, &a, &err), 0);
	assert_int_equal(json_array_size(a), 2);
	json_decref(o);
}

static void a_list_of_strings_is_bounded_and_empty_is_none(void **s)
{
	json_t *o = object("{\"a\":[\"x\",\"yy\"],\"e\":[],\"m\":[\"x\",1]}");
	struct err err = ERR_INIT;
	char **v = NULL;

	(void)s;
	assert_error(json_get_strings(o, "a", 1, 9, &v, &err), &err, "\"a\" is not an array of at most 1 strings");
	assert_error(json_get_strings(o, "a", 9, 1, &v, &err), &err, "\"a\": entry 2 is not a string of at most 1 bytes");
	assert_error(json_get_strings(o, "m", 9, 9, &v, &err), &err, "\"m\": entry 2 is not a string of at most 9 bytes");
	assert_int_equal(json_get_strings(o, "e", 9, 9, &v, &err), 0);
	assert_int_equal(json_get_strings(o, "none", 9, 9, &v, &err), 0);
	assert_null(v);
	assert_int_equal(json_get_strings(o, "a", 2, 2, &v, &err), 0);
	assert_string_equal(v[0], "x");
	assert_string_equal(v[1], "yy");
	assert_null(v[2]);
	json_strings_free(v);
	json_decref(o);
}

static void any_text_becomes_json(void **s)
{
	json_t *o = json_text("\xc3\xa9\x1b"), *odd = json_text("a\377");

	(void)s;
	assert_string_equal(json_string_value(o), "\xc3\xa9\x1b");
	assert_string_equal(json_string_value(odd), "a\\xff");
	assert_null(json_text(NULL));
	json_decref(o);
	json_decref(odd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_document_has_a_size_and_a_type),
		cmocka_unit_test(a_string_is_bounded_and_has_no_zero),
		cmocka_unit_test(hexadecimal_has_its_length_and_lower_case),
		cmocka_unit_test(a_number_is_in_its_range),
		cmocka_unit_test(an_array_has_so_many_elements),
		cmocka_unit_test(a_list_of_strings_is_bounded_and_empty_is_none),
		cmocka_unit_test(any_text_becomes_json),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
