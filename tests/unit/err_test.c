/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts: one printable line, code passed through, prefix in front. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/err.h"

static void text_and_code_are_kept(void **s)
{
	(void)s;
	struct err err = ERR_INIT;

	assert_int_equal(err_errno(&err, -ENOENT, "disk %d: open '%s'", 0, "x.img"), -ENOENT);
	assert_string_equal(err.text, "disk 0: open 'x.img': No such file or directory");
	assert_int_equal(err.code, -ENOENT);
}

static void prefix_goes_in_front(void **s)
{
	(void)s;
	struct err err = ERR_INIT;

	err_set(&err, -EINVAL, "bad");
	err_prefix(&err, "blk%d: ", 1);
	assert_int_equal(err.code, -EINVAL);
	assert_string_equal(err.text, "blk1: bad");
}

static void what_a_terminal_must_not_have_is_escaped(void **s)
{
	(void)s;
	struct err err = ERR_INIT;

	err_set(&err, -EINVAL, "name '%s'", "a\n\033[2J\377");
	assert_string_equal(err.text, "name 'a\\x0a\\x1b[2J\\xff'");
	err_prefix(&err, "%s: ", "\xc2\x9b");
	assert_string_equal(err.text, "\\xc2\\x9b: name 'a\\x0a\\x1b[2J\\xff'");
}

static void long_texts_are_cut_with_a_sign_and_not_overrun(void **s)
{
	(void)s;
	struct err err = ERR_INIT;
	char big[2 * ERR_MAX];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	err_errno(&err, -EIO, "%s", big);
	assert_int_equal(strlen(err.text), ERR_MAX - 1);
	assert_string_equal(err.text + ERR_MAX - 4, "...");
	err_prefix(&err, "%s", big);
	assert_int_equal(strlen(err.text), ERR_MAX - 1);
}

static void without_an_object_the_code_passes(void **s)
{
	(void)s;
	assert_int_equal(err_set(NULL, -EPERM, "x"), -EPERM);
	assert_int_equal(err_errno(NULL, -EPERM, "x"), -EPERM);
	err_prefix(NULL, "x: ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_and_code_are_kept),
		cmocka_unit_test(prefix_goes_in_front),
		cmocka_unit_test(what_a_terminal_must_not_have_is_escaped),
		cmocka_unit_test(long_texts_are_cut_with_a_sign_and_not_overrun),
		cmocka_unit_test(without_an_object_the_code_passes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
