/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups out of the image's own files, and the environment that follows from them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest/agent/environment.h"
#include "guest/agent/user.h"
#include "lib/fd.h"

static char passwd[] = "/tmp/coffer-passwd-XXXXXX", group[] = "/tmp/coffer-group-XXXXXX";

static void write_files(const char *p, const char *g)
{
	int a = mkstemp(passwd), b = mkstemp(group);

	assert_true(a >= 0 && b >= 0);
	assert_int_equal(fd_write_full(a, p, strlen(p)), 0);
	assert_int_equal(fd_write_full(b, g, strlen(g)), 0);
	close(a);
	close(b);
}

static int setup(void **s)
{
	(void)s;
	write_files("root:x:0:0:root:/root:/bin/bash\n"
		    "# comment\n"
		    "broken:x:notanumber:0::/:\n"
		    "big:x:4294967295:0::/:\n"
		    "ann:x:1000:1001:Ann,,,:/home/ann:/bin/zsh\n"
		    "short:x:7:8::rel\n"
		    "twin:x:1000:5::/twin:/bin/sh\n"
		    "1234:x:55:56::/n:/bin/sh\n"
		    "last:x:9:9::/last:/bin/last",
		    "root:x:0:\n"
		    "adm:x:4:ann,root\n"
		    "ann:x:1001:\n"
		    "wheel:x:10:root,annette,ann\n"
		    "own:x:1001:ann\n"
		    "anna:x:11:xann,annx\n"
		    "99:x:77:\n");
	return 0;
}

static int teardown(void **s)
{
	(void)s;
	unlink(passwd);
	unlink(group);
	strcpy(passwd, "/tmp/coffer-passwd-XXXXXX");
	strcpy(group, "/tmp/coffer-group-XXXXXX");
	return 0;
}

static struct user look(const char *spec)
{
	struct err err = ERR_INIT;
	struct user u;

	if (user_lookup(passwd, group, spec, &u, &err) < 0)
		fail_msg("%s: %s", spec, err.text);
	return u;
}

static int fails(const char *spec)
{
	struct user u;

	return user_lookup(passwd, group, spec, &u, NULL);
}

static void a_name_brings_its_groups(void **s)
{
	struct user u = look("ann");

	(void)s;
	assert_int_equal(u.uid, 1000);
	assert_int_equal(u.gid, 1001);
	assert_string_equal(u.home, "/home/ann");
	assert_string_equal(u.shell, "/bin/zsh");
	assert_int_equal(u.ngroups, 3);
	assert_int_equal(u.groups[0], 1001);
	assert_int_equal(u.groups[1], 4);
	assert_int_equal(u.groups[2], 10);
}

static void a_number_finds_its_first_entry(void **s)
{
	struct user u = look("1000");

	(void)s;
	assert_string_equal(u.name, "ann");
	assert_int_equal(u.ngroups, 3);
}

static void a_number_without_an_entry_has_group_0(void **s)
{
	struct user u = look("4242");

	(void)s;
	assert_int_equal(u.uid, 4242);
	assert_int_equal(u.gid, 0);
	assert_string_equal(u.name, "");
	assert_string_equal(u.home, "/");
	assert_int_equal(u.ngroups, 1);
}

static void a_name_of_digits_is_a_name_first(void **s)
{
	(void)s;
	assert_int_equal(look("1234").uid, 55);
	assert_int_equal(look("0:99").gid, 77);
}

static void a_given_group_is_the_only_one(void **s)
{
	struct user u = look("ann:wheel");

	(void)s;
	assert_int_equal(u.gid, 10);
	assert_int_equal(u.ngroups, 0);
	assert_int_equal(look("ann:500").gid, 500);
}

static void an_entry_may_lack_its_newline_and_its_shell(void **s)
{
	(void)s;
	assert_int_equal(look("last").uid, 9);
	assert_string_equal(look("last").shell, "/bin/last");
	assert_string_equal(look("short").home, "/"); /* not absolute */
	assert_string_equal(look("short").shell, "");
}

static void what_is_not_there_is_said(void **s)
{
	(void)s;
	assert_int_equal(fails("nobody"), -ENOENT);
	assert_int_equal(fails("ann:nogroup"), -ENOENT);
	assert_int_equal(fails("broken"), -ENOENT);
	assert_int_equal(fails("big"), -ENOENT);
	assert_int_equal(fails("4294967295"), -ENOENT);
	assert_int_equal(fails("99999999999"), -ENOENT);
	assert_int_equal(fails(""), -EINVAL);
	assert_int_equal(fails(":0"), -EINVAL);
	assert_int_equal(fails("ann:"), -EINVAL);
}

static void missing_files_leave_numbers(void **s)
{
	struct user u;

	(void)s;
	assert_int_equal(user_lookup("/nonexistent/p", "/nonexistent/g", "5:6", &u, NULL), 0);
	assert_int_equal(u.uid, 5);
	assert_int_equal(u.gid, 6);
	assert_int_equal(user_lookup("/nonexistent/p", "/nonexistent/g", "root", &u, NULL), -ENOENT);
}

static void over_long_lines_are_passed_over(void **s)
{
	char *p = malloc(3 * USER_LINE_MAX), *at = p;

	(void)s;
	teardown(s);
	at += sprintf(at, "first:x:1:1::/:/x\nlong:x:2:2::/:");
	memset(at, 'x', USER_LINE_MAX + 100);
	at += USER_LINE_MAX + 100;
	strcpy(at, "\nafter:x:3:3::/:/y\n");
	write_files(p, "");
	assert_int_equal(look("first").uid, 1);
	assert_int_equal(fails("long"), -ENOENT);
	assert_int_equal(look("after").uid, 3);
	free(p);
}

static void environment_later_entries_win(void **s)
{
	static struct environment e;
	struct user u = look("ann");
	struct agent_env d = { .count = 2, .bytes = 18, .text = "LANG=C\0HOME=/def" };
	const char *extra[] = { "LANG=de", "NEW=", "PATHX=1" };

	(void)s;
	environment_make(&e, &u, true, &d, extra, 3);
	assert_string_equal(environment_get(&e, "LANG"), "de");
	assert_string_equal(environment_get(&e, "HOME"), "/def");
	assert_string_equal(environment_get(&e, "USER"), "ann");
	assert_string_equal(environment_get(&e, "LOGNAME"), "ann");
	assert_string_equal(environment_get(&e, "SHELL"), "/bin/zsh");
	assert_string_equal(environment_get(&e, "TERM"), "xterm");
	assert_string_equal(environment_get(&e, "NEW"), "");
	assert_string_equal(environment_get(&e, "PATH"), ENVIRONMENT_PATH);
	assert_string_equal(environment_get(&e, "PATHX"), "1");
	assert_null(environment_get(&e, "NONE"));
	assert_null(e.v[e.n]);
	assert_int_equal(e.n, 9);
}

static void environment_without_a_terminal_has_no_term(void **s)
{
	static struct environment e;
	struct user u = look("4242");
	struct agent_env d = { 0 };

	(void)s;
	environment_make(&e, &u, false, &d, NULL, 0);
	assert_null(environment_get(&e, "TERM"));
	assert_null(environment_get(&e, "USER"));
	assert_string_equal(environment_get(&e, "HOME"), "/");
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_name_brings_its_groups),
		T(a_number_finds_its_first_entry),
		T(a_number_without_an_entry_has_group_0),
		T(a_name_of_digits_is_a_name_first),
		T(a_given_group_is_the_only_one),
		T(an_entry_may_lack_its_newline_and_its_shell),
		T(what_is_not_there_is_said),
		T(missing_files_leave_numbers),
		T(over_long_lines_are_passed_over),
		T(environment_later_entries_win),
		T(environment_without_a_terminal_has_no_term),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
