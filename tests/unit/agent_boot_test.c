/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's words of the kernel command line. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest/agent/boot.h"
#include "guest/agent/handler.h"

static void words_are_picked_out(void **s)
{
	struct boot_words w;

	(void)s;
	boot_parse_cmdline("console=ttyS0 coffer.root=/dev/vda  quiet coffer.overlay=/dev/vdb\tcoffer.hostname=a-b coffer.init=/sbin/init coffer.display=1280x800\n", &w);
	assert_string_equal(w.root, "/dev/vda");
	assert_string_equal(w.overlay, "/dev/vdb");
	assert_string_equal(w.hostname, "a-b");
	assert_string_equal(w.init, "/sbin/init");
	assert_string_equal(w.display, "1280x800");
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

static void rw_and_ro_say_whether_the_root_may_be_written(void **s)
{
	struct boot_words w;

	(void)s;
	boot_parse_cmdline("ro coffer.root=/dev/vda rw", &w);
	assert_true(w.rw);
	boot_parse_cmdline("rw rwx ro", &w);
	assert_false(w.rw);
	boot_parse_cmdline("rw=1 xrw", &w);
	assert_false(w.rw);
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

static void a_root_without_etc_gets_one_for_the_machine_id(void **s)
{
	char dir[] = "/tmp/agent-boot-XXXXXX", etc[64], file[96], line[64] = "";
	struct err err = ERR_INIT;
	struct stat st;

	(void)s;
	assert_non_null(mkdtemp(dir));
	snprintf(etc, sizeof(etc), "%s/etc", dir);
	snprintf(file, sizeof(file), "%s/machine-id", etc);
	mode_t old = umask(077);

	assert_int_equal(control_write_machine_id(etc, "0123456789abcdef0123456789abcdef", &err), 0);
	umask(old);
	assert_int_equal(stat(etc, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	FILE *f = fopen(file, "re");

	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	assert_string_equal(line, "0123456789abcdef0123456789abcdef\n");
	unlink(file);
	rmdir(etc);
	rmdir(dir);
}

static void an_etc_that_cannot_be_made_is_named(void **s)
{
	struct err err = ERR_INIT;

	(void)s;
	assert_int_equal(control_write_machine_id("/proc/no-such-etc", "0123456789abcdef0123456789abcdef", &err), -ENOENT);
	assert_non_null(strstr(err.text, "machine_id: make /proc/no-such-etc"));
}

/* The one error that configure passes over. */
static void a_read_only_root_is_told_apart(void **s)
{
	char dir[] = "/tmp/agent-boot-XXXXXX", etc[64];
	struct err err = ERR_INIT;

	(void)s;
	assert_non_null(mkdtemp(dir));
	snprintf(etc, sizeof(etc), "%s/etc", dir);
	bool mounted = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		       mount("none", dir, "tmpfs", MS_RDONLY, NULL) == 0;
	int r = mounted ? control_write_machine_id(etc, "0123456789abcdef0123456789abcdef", &err) : -EROFS;

	if (mounted)
		umount(dir);
	rmdir(dir);
	assert_int_equal(r, -EROFS);
	if (!mounted)
		skip(); /* not root */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(words_are_picked_out),
		cmocka_unit_test(the_last_of_several_counts),
		cmocka_unit_test(similar_and_empty_words_are_left_alone),
		cmocka_unit_test(rw_and_ro_say_whether_the_root_may_be_written),
		cmocka_unit_test(long_values_are_cut),
		cmocka_unit_test(a_root_without_etc_gets_one_for_the_machine_id),
		cmocka_unit_test(an_etc_that_cannot_be_made_is_named),
		cmocka_unit_test(a_read_only_root_is_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
