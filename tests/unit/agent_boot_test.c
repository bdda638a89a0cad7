/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's words of the kernel command line. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "guest/agent/boot.h"

static void words_are_picked_out(void **s)
{
	struct boot_words w;

	(void)s;
	boot_parse_cmdline("console=ttyS0 coffer.root=/dev/vda  quiet coffer.overlay=/dev/vdb\tcoffer.hostname=a-b coffer.init=/sbin/init\n", &w);
	assert_string_equal(w.root, "/dev/vda");
	assert_string_equal(w.overlay, "/dev/vdb");
	assert_string_equal(w.hostname, "a-b");
	assert_string_equal(w.init, "/sbin/init");
	assert_string_equal(w.machine_id, "");
}

static void the_last_of_several_counts(void **s)
{
	struct boot_words w;

	(void)s;
	boot_parse_cmdline("coffer.root=/a coffer.root=/b", &w);
	assert_string_equal(w.root, "/b");
}

static void similar_and_empty_words_are_left_alone(void **s)
{
	struct boot_words w;

	(void)s;
	boot_parse_cmdline("xcoffer.root=/a coffer.rootx=/b coffer.root coffer.root= coffer.ROOT=/c", &w);
	assert_string_equal(w.root, "");
	boot_parse_cmdline("", &w);
	assert_string_equal(w.root, "");
}

static void long_values_are_cut(void **s)
{
	char line[1024] = "coffer.hostname=";
	struct boot_words w;

	(void)s;
	memset(line + strlen(line), 'x', 600);
	boot_parse_cmdline(line, &w);
	assert_int_equal(strlen(w.hostname), BOOT_WORD_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_picked_out),
		cmocka_unit_test(the_last_of_several_counts),
		cmocka_unit_test(similar_and_empty_words_are_left_alone),
		cmocka_unit_test(long_values_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
