/* SPDX-License-Identifier: Apache-2.0 */
/* Why a VM ended, in one line, from the files that its monitor left. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/vm_end.h"
#include "tests/harness/home.h"

static struct home home;
static struct vmdir d;

static int set_up(void **s)
{
	(void)s;
	home_make(&home);
	return vmdir_create("x", &d, NULL);
}

static int tear_down(void **s)
{
	(void)s;
	vmdir_close(&d);
	home_remove(&home);
	return 0;
}

static void put(const char *name, const char *text)
{
	assert_int_equal(vmdir_write_file(d.fd, name, text, strlen(text), NULL), 0);
}

static void expect(bool booting, int wait_status, enum vm_end_kind kind, const char *text)
{
	struct err err = ERR_INIT;

	assert_int_equal(vm_end_explain(d.fd, -1, booting, wait_status, &err), kind);
	assert_string_equal(err.text, text);
}

enum { EXITED_1 = 1 << 8, KILLED_11 = 11 };

static void a_panic_comes_with_the_kernel_s_words(void **s)
{
	(void)s;
	put(VMDIR_STATUS, "{\"stop\":\"panic\",\"text\":\"\"}\n");
	put(VMDIR_CONSOLE, "booting\r\n[    1.0] Kernel panic - not syncing: VFS: Unable\033[31m to mount\r\n[    1.1] more\r\n");
	expect(true, EXITED_1, VM_END_GUEST, "the guest's kernel panicked; it said: Kernel panic - not syncing: VFS: Unable\\x1b[31m to mount");
}

static void a_guest_that_goes_down_while_booting_is_quoted(void **s)
{
	(void)s;
	put(VMDIR_STATUS, "{\"stop\":\"poweroff\",\"text\":\"\"}\n");
	put(VMDIR_CONSOLE, "no init found\n\n");
	expect(true, 0, VM_END_GUEST, "the guest powered off; it said: no init found");
	expect(false, 0, VM_END_GUEST, "the guest powered off");
}

static void a_kill_is_told_apart(void **s)
{
	(void)s;
	put(VMDIR_STATUS, "{\"stop\":\"killed\",\"text\":\"killed on request\"}\n");
	put(VMDIR_CONSOLE, "something\n");
	expect(true, 0, VM_END_KILLED, "it was killed");
}

static void a_monitor_that_could_not_start_is_quoted(void **s)
{
	(void)s;
	put(VMDIR_STATUS, "");
	put(VMDIR_LOG, "coffer-vmm: warn: first\ncoffer-vmm: kernel '/k': not a kernel\n");
	expect(true, EXITED_1, VM_END_FAILED, "monitor: kernel '/k': not a kernel");
}

static void a_monitor_that_crashed_says_by_which_signal(void **s)
{
	(void)s;
	expect(true, KILLED_11, VM_END_FAILED, "the monitor was ended by signal 11");
	put(VMDIR_LOG, "coffer-vmm: about to crash\n");
	expect(true, KILLED_11, VM_END_FAILED, "the monitor was ended by signal 11: about to crash");
}

static void silence_is_said_too(void **s)
{
	(void)s;
	expect(true, EXITED_1, VM_END_FAILED, "the monitor ended with status 1 and said nothing");
	expect(false, -1, VM_END_FAILED, "its monitor was killed");
}

static void a_console_full_of_rubbish_stays_one_bounded_line(void **s)
{
	char *text = malloc(100001);
	struct err err = ERR_INIT;

	(void)s;
	for (int i = 0; i < 100000; i++)
		text[i] = (char)(i % 9 + 1);
	text[100000] = 0;
	put(VMDIR_STATUS, "{\"stop\":\"crash\",\"text\":\"\"}\n");
	put(VMDIR_CONSOLE, text);
	free(text);
	assert_int_equal(vm_end_explain(d.fd, -1, false, 0, &err), VM_END_GUEST);
	assert_true(strlen(err.text) < ERR_MAX);
	for (const char *p = err.text; *p; p++)
		assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_panic_comes_with_the_kernel_s_words),
		T(a_guest_that_goes_down_while_booting_is_quoted),
		T(a_kill_is_told_apart),
		T(a_monitor_that_could_not_start_is_quoted),
		T(a_monitor_that_crashed_says_by_which_signal),
		T(silence_is_said_too),
		T(a_console_full_of_rubbish_stays_one_bounded_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
