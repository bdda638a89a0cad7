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

static void control_bytes_cannot_reach_a_terminal(void **s)
{
	(void)s;
	struct err err = ERR_INIT;

	err_set(&err, -EINVAL, "name '%s'", "a\n\033[2J");
	assert_string_equal(err.text, "name 'a??[2J'");
}

static void control_characters_of_two_bytes_cannot_either(void **s)
{
	(void)s;
	struct err err = ERR_INIT;

	err_set(&err, -EINVAL, "name '%s'", "\xc2\x9b" "2J\xc2\x80\xc2\xa0\xc3\x9b");
	assert_string_equal(err.text, "name '??2J??\xc2\xa0\xc3\x9b'");
}

static void long_texts_are_cut_not_overrun(void **s)
{
	(void)s;
	struct err err = ERR_INIT;
	char big[2 * ERR_MAX];

	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	err_errno(&err, -EIO, "%s", big);
	assert_int_equal(strlen(err.text), ERR_MAX - 1);
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

static void bytes_are_made_printable_up_to_their_number(void **state)
{
	char p[] = "a\0b\n\t\x1b\xc2\x85\xc3\xa9\x7f\x01";

	(void)state;
	err_make_bytes_printable(p, sizeof(p) - 2, "\n\t");
	assert_memory_equal(p, "a?b\n\t???\xc3\xa9?\x01", sizeof(p));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_and_code_are_kept),
		cmocka_unit_test(prefix_goes_in_front),
		cmocka_unit_test(control_bytes_cannot_reach_a_terminal),
		cmocka_unit_test(control_characters_of_two_bytes_cannot_either),
		cmocka_unit_test(long_texts_are_cut_not_overrun),
		cmocka_unit_test(without_an_object_the_code_passes),
		cmocka_unit_test(bytes_are_made_printable_up_to_their_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
