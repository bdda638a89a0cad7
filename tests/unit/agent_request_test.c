/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's request line: what is taken, with which defaults, and what is refused with which error. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guest/agent/request.h"
#include "lib/util.h"

static struct request r;

static int parse(const char *text, struct err *err)
{
	static char *copy; /* the result points into it */
	size_t n = strlen(text);

	free(copy);
	copy = malloc(n ? n : 1);
	memcpy(copy, text, n);
	return request_parse(&r, copy, n, err);
}

static void exec_takes_all_its_fields(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"op\":\"exec\",\"argv\":[\"a\",\"b c\"],\"env\":[\"X=1\",\"Y=\"],\"cwd\":\"/d\",\"user\":\"u:g\",\"tty\":true,"
			       "\"stdin\":true,\"rows\":1,\"cols\":65535,\"timeout_ms\":5,\"grace_ms\":0,\"detach\":true}",
			       NULL),
			 0);
	assert_int_equal(r.op, REQUEST_EXEC);
	assert_int_equal(r.argc, 2);
	assert_string_equal(r.argv[1], "b c");
	assert_null(r.argv[2]);
	assert_int_equal(r.nenv, 2);
	assert_string_equal(r.env[1], "Y=");
	assert_string_equal(r.cwd, "/d");
	assert_string_equal(r.user, "u:g");
	assert_true(r.tty && r.stdin_open && r.detach);
	assert_int_equal(r.rows, 1);
	assert_int_equal(r.cols, 65535);
	assert_int_equal(r.timeout_ms, 5);
	assert_int_equal(r.grace_ms, 0);
}

static void exec_has_defaults(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"op\":\"exec\",\"argv\":[\"a\"]}", NULL), 0);
	assert_null(r.cwd);
	assert_null(r.user);
	assert_false(r.tty || r.stdin_open || r.detach);
	assert_int_equal(r.rows, 24);
	assert_int_equal(r.cols, 80);
	assert_int_equal(r.timeout_ms, 0);
	assert_int_equal(r.grace_ms, 2000);
	assert_int_equal(r.nenv, 0);
}

static void the_operation_may_come_last(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"signal\":9,\"id\":3,\"op\":\"kill\"}", NULL), 0);
	assert_int_equal(r.op, REQUEST_KILL);
	assert_int_equal(r.id, 3);
	assert_int_equal(r.signal, 9);
}

static void follow_depends_on_the_operation(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"op\":\"stat\",\"path\":\"/a\"}", NULL), 0);
	assert_true(r.follow);
	assert_int_equal(parse("{\"op\":\"get\",\"path\":\"/a\"}", NULL), 0);
	assert_false(r.follow);
}

static void configure_decodes_entropy_and_clock(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"op\":\"configure\",\"clock_ns\":1764488685000000001,\"entropy\":\"000102030405060708090a0b0c0d0eFF\","
			       "\"hostname\":\"a.b-C9\",\"machine_id\":\"0123456789abcdef0123456789abcdef\",\"env\":[]}",
			       NULL),
			 0);
	assert_true(r.has_clock && r.has_env);
	assert_true(r.clock_ns == 1764488685000000001);
	assert_int_equal(r.nentropy, 16);
	assert_int_equal(r.entropy[1], 1);
	assert_int_equal(r.entropy[15], 255);
}

static void configure_takes_the_counter_that_belongs_to_the_clock(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"op\":\"configure\",\"clock_ns\":5,\"counter\":9223372036854775807,\"counter_khz\":2600000}", NULL), 0);
	assert_true(r.has_clock && r.has_counter);
	assert_true(r.counter == INT64_MAX);
	assert_int_equal(r.counter_khz, 2600000);
}

static void bytes_that_are_not_utf8_are_kept(void **s)
{
	(void)s;
	assert_int_equal(parse("{\"op\":\"stat\",\"path\":\"/\xff\xc3\"}", NULL), 0);
	assert_string_equal(r.path, "/\xff\xc3");
}

static void refusals_name_the_field(void **s)
{
	static const struct {
		const char *text;
		int rc;
		const char *says;
	} cases[] = {
		{ "", -EINVAL, "JSON" },
		{ "[]", -EINVAL, "object" },
		{ "{\"op\":\"ping\"} x", -EINVAL, "JSON" },
		{ "{\"op\":\"ping\"", -EINVAL, "JSON" },
		{ "{}", -EINVAL, "'op' is missing" },
		{ "{\"op\":5}", -EINVAL, "'op' must be a string" },
		{ "{\"op\":\"ping\",\"op\":\"ping\"}", -EINVAL, "'op' is given twice" },
		{ "{\"op\":\"fly\"}", -EOPNOTSUPP, "'fly'" },
		{ "{\"op\":\"ping\",\"x\":1}", -EOPNOTSUPP, "'x'" },
		{ "{\"op\":\"ping\",\"path\":\"/\"}", -EOPNOTSUPP, "'path'" },
		{ "{\"op\":\"ping\",\"entropy\":\"00\"}", -EOPNOTSUPP, "'entropy'" },
		{ "{\"op\":\"exec\"}", -EINVAL, "'argv'" },
		{ "{\"op\":\"exec\",\"argv\":[]}", -EINVAL, "'argv'" },
		{ "{\"op\":\"exec\",\"argv\":[\"\"]}", -EINVAL, "the program, is empty" },
		{ "{\"op\":\"exec\",\"argv\":\"ls\"}", -EINVAL, "array" },
		{ "{\"op\":\"exec\",\"argv\":[1]}", -EINVAL, "array" },
		{ "{\"op\":\"exec\",\"argv\":[[\"a\"]]}", -EINVAL, "array" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"argv\":[\"b\"]}", -EINVAL, "twice" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"env\":[\"X\"]}", -EINVAL, "NAME=value" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"env\":[\"=x\"]}", -EINVAL, "NAME=value" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"cwd\":\"x\"}", -EINVAL, "'cwd'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"cwd\":\"\"}", -EINVAL, "'cwd'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"tty\":1}", -EINVAL, "'tty' must be true or false" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"rows\":0}", -EINVAL, "'rows'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"cols\":65536}", -EINVAL, "'cols'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"timeout_ms\":-1}", -EINVAL, "'timeout_ms'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"timeout_ms\":1.5}", -EINVAL, "'timeout_ms'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"timeout_ms\":99999999999999999999}", -EINVAL, "'timeout_ms'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"grace_ms\":600001}", -EINVAL, "'grace_ms'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\\u0000b\"]}", -EINVAL, "JSON" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"attach\":false}", -EINVAL, "'attach'" },
		{ "{\"op\":\"poweroff\",\"grace_ms\":60001}", -EINVAL, "'grace_ms'" },
		{ "{\"op\":\"attach\"}", -EINVAL, "'id'" },
		{ "{\"op\":\"attach\",\"id\":1,\"received\":1}", -EINVAL, "'received'" },
		{ "{\"op\":\"attach\",\"id\":1,\"resume\":1,\"received\":-1}", -EINVAL, "'received'" },
		{ "{\"op\":\"attach\",\"id\":1,\"resume\":true}", -EINVAL, "'resume'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"resume\":0}", -EINVAL, "'resume'" },
		{ "{\"op\":\"exec\",\"argv\":[\"a\"],\"resume\":1,\"detach\":true}", -EINVAL, "'resume'" },
		{ "{\"op\":\"kill\",\"id\":1}", -EINVAL, "'signal'" },
		{ "{\"op\":\"kill\",\"id\":1,\"signal\":65}", -EINVAL, "'signal'" },
		{ "{\"op\":\"stat\"}", -EINVAL, "'path'" },
		{ "{\"op\":\"stat\",\"path\":\"a\"}", -EINVAL, "'path'" },
		{ "{\"op\":\"get\",\"path\":\"/\",\"name\":\"a/b\"}", -EINVAL, "'name'" },
		{ "{\"op\":\"get\",\"path\":\"/\",\"name\":\"..\"}", -EINVAL, "'name'" },
		{ "{\"op\":\"put\",\"path\":\"/\",\"owner\":\"0\",\"keep_owner\":true}", -EINVAL, "exclude" },
		{ "{\"op\":\"configure\",\"clock_ns\":-1}", -EINVAL, "'clock_ns'" },
		{ "{\"op\":\"configure\",\"counter\":1,\"counter_khz\":1}", -EINVAL, "'clock_ns'" },
		{ "{\"op\":\"configure\",\"clock_ns\":1,\"counter\":0}", -EINVAL, "'counter_khz'" },
		{ "{\"op\":\"configure\",\"clock_ns\":1,\"counter_khz\":1}", -EINVAL, "'counter'" },
		{ "{\"op\":\"configure\",\"clock_ns\":1,\"counter\":-1,\"counter_khz\":1}", -EINVAL, "'counter'" },
		{ "{\"op\":\"configure\",\"clock_ns\":1,\"counter\":1,\"counter_khz\":0}", -EINVAL, "'counter_khz'" },
		{ "{\"op\":\"configure\",\"clock_ns\":1,\"counter\":1,\"counter_khz\":100000001}", -EINVAL, "'counter_khz'" },
		{ "{\"op\":\"configure\",\"entropy\":\"00\"}", -EINVAL, "'entropy'" },
		{ "{\"op\":\"configure\",\"entropy\":\"0001020304050607080900010203040g\"}", -EINVAL, "'entropy'" },
		{ "{\"op\":\"configure\",\"hostname\":\"a b\"}", -EINVAL, "'hostname'" },
		{ "{\"op\":\"configure\",\"hostname\":\"\"}", -EINVAL, "'hostname'" },
		{ "{\"op\":\"configure\",\"machine_id\":\"0123\"}", -EINVAL, "'machine_id'" },
		{ "{\"op\":\"configure\",\"machine_id\":\"0123456789ABCDEF0123456789abcdef\"}", -EINVAL, "'machine_id'" },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err err = ERR_INIT;
		int rc = parse(cases[i].text, &err);

		if (rc != cases[i].rc || !strstr(err.text, cases[i].says))
			fail_msg("%s: %d '%s', expected %d '%s'", cases[i].text, rc, err.text, cases[i].rc, cases[i].says);
	}
}

/* {"op":OP,"argv":["a"],FIELD:["A=b","A=b",...]} with n entries */
static char *with_list(const char *op, const char *head, const char *entry, size_t n)
{
	char *text = malloc(64 + n * (strlen(entry) + 1)), *p = text;

	p += sprintf(p, "{\"op\":\"%s\",%s[", op, head);
	for (size_t i = 0; i < n; i++)
		p += sprintf(p, "%s%s", i ? "," : "", entry);
	strcpy(p, "]}");
	return text;
}

static void lists_have_limits(void **s)
{
	static const struct {
		const char *op, *head, *entry;
		size_t n;
	} cases[] = {
		{ "exec", "\"argv\":", "\"a\"", AGENT_ARGV_MAX },
		{ "exec", "\"argv\":[\"a\"],\"env\":", "\"A=b\"", AGENT_ENV_MAX },
		{ "configure", "\"env\":", "\"A=b\"", AGENT_DEFAULT_ENV_MAX },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		for (size_t more = 0; more < 2; more++) {
			char *text = with_list(cases[i].op, cases[i].head, cases[i].entry, cases[i].n + more);

			assert_int_equal(parse(text, NULL), more ? -E2BIG : 0);
			free(text);
		}
}

static void default_environment_has_a_limit_in_bytes(void **s)
{
	char *text = malloc(AGENT_DEFAULT_ENV_BYTES + 100), *p = text;

	(void)s;
	p += sprintf(p, "{\"op\":\"configure\",\"env\":[\"A=");
	memset(p, 'x', AGENT_DEFAULT_ENV_BYTES - 3); /* with "A=" and the NUL just enough */
	strcpy(p + AGENT_DEFAULT_ENV_BYTES - 3, "\"]}");
	assert_int_equal(parse(text, NULL), 0);
	strcpy(p + AGENT_DEFAULT_ENV_BYTES - 3, "y\"]}");
	assert_int_equal(parse(text, NULL), -E2BIG);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exec_takes_all_its_fields),
		cmocka_unit_test(exec_has_defaults),
		cmocka_unit_test(the_operation_may_come_last),
		cmocka_unit_test(follow_depends_on_the_operation),
		cmocka_unit_test(configure_decodes_entropy_and_clock),
		cmocka_unit_test(configure_takes_the_counter_that_belongs_to_the_clock),
		cmocka_unit_test(bytes_that_are_not_utf8_are_kept),
		cmocka_unit_test(refusals_name_the_field),
		cmocka_unit_test(lists_have_limits),
		cmocka_unit_test(default_environment_has_a_limit_in_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
