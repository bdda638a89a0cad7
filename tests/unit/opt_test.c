/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: both parsers, values and their limits, error texts, help layout. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/opt.h"
#include "lib/util.h"

struct conf {
	bool tty;
	bool stdin_open;
	uint64_t cpus;
	uint64_t memory;
	char *path;
	struct opt_strv env;
	double timeout;
};

static const struct opt table[] = {
	OPT_STRING(struct conf, path, "path", 'p', "FILE", "the disk image, with words enough here to need a second line of text"),
	OPT_BOOL(struct conf, tty, "tty", 't', "allocate a terminal"),
	OPT_BOOL(struct conf, stdin_open, "interactive", 'i', "keep stdin open"),
	OPT_U64(struct conf, cpus, "cpus", 'n', "N", 1, 32, "virtual CPUs"),
	OPT_SIZE(struct conf, memory, "memory", 'm', "SIZE", MIB(1), GIB(64), MIB(1), "memory"),
	OPT_LIST(struct conf, env, "env", 'e', "K=V", "environment"),
	OPT_SECONDS(struct conf, timeout, "timeout", 0, "S", "time-out"),
	OPT_END,
};

#define ARGS(...) char *argv[] = { (char *)"prog", __VA_ARGS__, NULL }; int argc = (int)ARRAY_SIZE(argv) - 1

static void long_and_short_options_reach_the_struct(void **s)
{
	(void)s;
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	ARGS((char *)"--cpus", (char *)"4", (char *)"-m512", (char *)"--path=x,y", (char *)"-it", (char *)"-e", (char *)"A=1", (char *)"--env=B=2",
	     (char *)"--timeout", (char *)"1.5m");

	assert_int_equal(opt_parse_args(table, &c, argc, argv, true, &err), argc);
	assert_int_equal(c.cpus, 4);
	assert_int_equal(c.memory, MIB(512));
	assert_string_equal(c.path, "x,y");
	assert_true(c.tty && c.stdin_open);
	assert_int_equal(c.env.n, 2);
	assert_string_equal(c.env.v[1], "B=2");
	assert_true(c.timeout == 90.0);
}

static void first_operand_stops_when_asked(void **s)
{
	(void)s;
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	ARGS((char *)"-t", (char *)"cmd", (char *)"--cpus", (char *)"99");

	assert_int_equal(opt_parse_args(table, &c, argc, argv, true, &err), 2);
	assert_int_equal(c.cpus, 0);
}

static void operands_mixed_with_options_keep_their_order(void **s)
{
	(void)s;
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	ARGS((char *)"a", (char *)"-t", (char *)"b", (char *)"--cpus=2", (char *)"--", (char *)"-c");
	int first = opt_parse_args(table, &c, argc, argv, false, &err);

	assert_int_equal(argc - first, 3);
	assert_string_equal(argv[first], "a");
	assert_string_equal(argv[first + 1], "b");
	assert_string_equal(argv[first + 2], "-c");
	assert_true(c.tty);
	assert_int_equal(c.cpus, 2);
}

static void operands_without_separator_end_last(void **s)
{
	(void)s;
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	ARGS((char *)"a", (char *)"b", (char *)"-t");
	int first = opt_parse_args(table, &c, argc, argv, false, &err);

	assert_int_equal(first, 2);
	assert_string_equal(argv[2], "a");
	assert_string_equal(argv[3], "b");
}

static void refuse(const char *a, const char *b, const char *text)
{
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	char *argv[] = { (char *)"prog", (char *)(uintptr_t)a, (char *)(uintptr_t)b, NULL };

	assert_int_equal(opt_parse_args(table, &c, b ? 3 : 2, argv, true, &err), -EINVAL);
	assert_string_equal(err.text, text);
}

static void what_was_given_is_told_whatever_its_value(void **state)
{
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	struct opt_line line = { .stop_at_operand = false };
	ARGS("a", "--timeout", "0", "-tn4", "b", "--interactive=off");

	(void)state;
	assert_int_equal(opt_parse_line(table, &c, argc, argv, &line, &err), argc - 2);
	assert_int_equal(line.given, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 6);
}

static void negative_numbers_are_operands_where_they_are_wanted(void **state)
{
	struct conf c = { 0 };
	struct err err = ERR_INIT;
	struct opt_line line = { .numbers = true };
	ARGS("a", "-5", "-t", "-1,5");

	(void)state;
	assert_int_equal(opt_parse_line(table, &c, argc, argv, &line, &err), argc - 3);
	assert_string_equal(argv[argc - 2], "-5");
	assert_string_equal(argv[argc - 1], "-1,5");
	assert_int_equal(line.given, 1u << 1);
	char *again[] = { (char *)"prog", (char *)"-5", NULL };

	assert_int_equal(opt_parse_args(table, &c, 2, again, false, &err), -EINVAL);
	assert_non_null(strstr(err.text, "'-5' begins like an option"));
}

static void bad_options_are_named_with_value_and_form(void **s)
{
	(void)s;
	refuse("--cpu", "4", "unknown option '--cpu': see --help");
	refuse("-x", NULL, "unknown option '-x': see --help");
	refuse("--cpus", NULL, "--cpus: needs a value (N)");
	refuse("--cpus", "33", "--cpus: '33' is outside the range from 1 to 32");
	refuse("--cpus", "-1", "--cpus: '-1' is not a number");
	refuse("--cpus", "4x", "--cpus: '4x' is not a number");
	refuse("--memory", "1Q", "--memory: '1Q' is not a size (like 512M or 2G)");
	refuse("--memory", "0", "--memory: '0' is outside the range from 1M to 64G");
	refuse("--tty=maybe", NULL, "--tty: 'maybe' is neither on nor off");
	refuse("--timeout", "nan", "--timeout: 'nan' is not a time (like 30, 0.5, 500ms, 2m or 1h)");
}

static void list_form_fills_the_same_struct(void **s)
{
	(void)s;
	struct conf c = { 0 };
	struct err err = ERR_INIT;

	assert_int_equal(opt_parse_list(table, &c, "disk,,1.img,tty,memory=1G", &err), 0);
	assert_string_equal(c.path, "disk,1.img");
	assert_true(c.tty);
	assert_int_equal(c.memory, GIB(1));
	opt_free(table, &c);
	assert_null(c.path);
}

static void list_form_refuses_unknown_and_empty_keys(void **s)
{
	(void)s;
	struct conf c = { 0 };
	struct err err = ERR_INIT;

	assert_int_equal(opt_parse_list(table, &c, "path=x,frob=1", &err), -EINVAL);
	assert_string_equal(err.text, "unknown key 'frob'");
	assert_int_equal(opt_parse_list(table, &c, "path=x,=", &err), -EINVAL);
	assert_int_equal(opt_parse_list(table, &c, "cpus", &err), -EINVAL);
	assert_string_equal(err.text, "cpus: needs a value (cpus=N)");
	opt_free(table, &c);
}

static void a_size_in_bytes_that_is_out_of_range_asks_for_a_unit(void **s)
{
	static const struct opt bytes[] = { OPT_SIZE(struct { uint64_t v; }, v, "size", 0, "SIZE", 1 << 20, 1 << 30, 1, ""), OPT_END };
	char *argv[] = { (char *)"x", (char *)"--size", (char *)"20", NULL };
	struct err err = ERR_INIT;
	uint64_t v = 7;

	(void)s;
	assert_int_equal(opt_parse_args(bytes, &v, 3, argv, false, &err), -EINVAL);
	assert_string_equal(err.text, "--size: '20' is in bytes, outside the range from 1M to 1G: a unit is K, M, G or T, as in 512M");
	argv[2] = (char *)"20K";
	assert_int_equal(opt_parse_args(bytes, &v, 3, argv, false, &err), -EINVAL);
	assert_string_equal(err.text, "--size: '20K' is outside the range from 1M to 1G");
	assert_int_equal(v, 7);
}

static void sizes_and_overflow(void **s)
{
	(void)s;
	uint64_t v;

	assert_int_equal(opt_parse_size("3", 1, &v), 0);
	assert_int_equal(v, 3);
	assert_int_equal(opt_parse_size("2GiB", 1, &v), 0);
	assert_int_equal(v, GIB(2));
	assert_int_equal(opt_parse_size("16777216T", 1, &v), -EINVAL);
	assert_int_equal(opt_parse_size("18446744073709551616", 1, &v), -EINVAL);
	assert_int_equal(opt_parse_size("", 1, &v), -EINVAL);
	assert_int_equal(opt_parse_u64("0xff", &v), 0);
	assert_int_equal(v, 255);
	assert_int_equal(opt_parse_u64(" 1", &v), -EINVAL);
}

static void help_is_aligned_and_wrapped(void **s)
{
	(void)s;
	char *buf;
	size_t len;
	FILE *f = open_memstream(&buf, &len);

	opt_print_help(table, f);
	fclose(f);
	assert_non_null(strstr(buf, "  -p, --path FILE           the disk image, with words enough here to need a\n"
				    "                            second line of text\n"));
	assert_non_null(strstr(buf, "      --timeout S           time-out\n"));
	for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
		assert_true(strlen(line) <= 80);
	free(buf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(long_and_short_options_reach_the_struct),
		cmocka_unit_test(first_operand_stops_when_asked),
		cmocka_unit_test(operands_mixed_with_options_keep_their_order),
		cmocka_unit_test(operands_without_separator_end_last),
		cmocka_unit_test(what_was_given_is_told_whatever_its_value),
		cmocka_unit_test(negative_numbers_are_operands_where_they_are_wanted),
		cmocka_unit_test(bad_options_are_named_with_value_and_form),
		cmocka_unit_test(list_form_fills_the_same_struct),
		cmocka_unit_test(list_form_refuses_unknown_and_empty_keys),
		cmocka_unit_test(sizes_and_overflow),
		cmocka_unit_test(a_size_in_bytes_that_is_out_of_range_asks_for_a_unit),
		cmocka_unit_test(help_is_aligned_and_wrapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
