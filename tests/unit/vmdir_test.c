/* SPDX-License-Identifier: Apache-2.0 */
/* A VM's directories: names, two of a kind, what is read back from hostile files, what a sweep takes away. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/vmdir.h"
#include "tests/harness/home.h"

static struct home home;

static bool exists(const char *below)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", home.path, below);
	return access(path, F_OK) == 0;
}

static void names_are_checked(void **s)
{
	static const char *const good[] = { "a", "0", "work", "a.b_c-d", "0123456789abcdef" };
	static const char *const bad[] = { "", ".", "..", "-a", "_a", ".a", "A", "a b", "a/b", "a:b", "\303\244" };
	char name[66];

	(void)s;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(vmdir_check_id(good[i], NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(vmdir_check_id(bad[i], NULL), -EINVAL);
	memset(name, 'a', 65);
	name[65] = 0;
	assert_int_equal(vmdir_check_id(name, NULL), -EINVAL);
	name[64] = 0;
	assert_int_equal(vmdir_check_id(name, NULL), 0);
}

static void a_name_that_is_in_use_is_refused_in_one_line(void **s)
{
	struct err err = ERR_INIT;
	struct vmdir a, b;

	(void)s;
	assert_int_equal(vmdir_create("work", &a, NULL), 0);
	assert_int_equal(vmdir_create("work", &b, &err), -EEXIST);
	assert_string_equal(err.text, "a VM named 'work' is running: 'coffer kill work' ends it");
	vmdir_remove(&a, NULL);
	vmdir_close(&a);
	assert_int_equal(vmdir_create("work", &b, NULL), 0);
	vmdir_close(&b);
}

static void a_random_id_has_eight_hexadecimal_digits(void **s)
{
	struct vmdir a, b;

	(void)s;
	assert_int_equal(vmdir_create(NULL, &a, NULL), 0);
	assert_int_equal(vmdir_create(NULL, &b, NULL), 0);
	assert_int_equal(strlen(a.id), 8);
	assert_int_equal(strspn(a.id, "0123456789abcdef"), 8);
	assert_string_not_equal(a.id, b.id);
	vmdir_close(&a);
	vmdir_close(&b);
}

static void the_directory_is_private(void **s)
{
	struct vmdir d;
	struct stat st;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(fstat(d.fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	vmdir_close(&d);
}

static void removing_takes_the_disks_too(void **s)
{
	struct vmdir d;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_create_disks(&d, NULL), 0);
	close(openat(d.disk_dir_fd, "disk1-0.data", O_CREAT | O_WRONLY, 0600));
	assert_true(exists("run/coffer/x"));
	assert_true(exists("state/coffer/vms/x/disk1-0.data"));
	assert_int_equal(vmdir_remove(&d, NULL), 0);
	assert_false(exists("run/coffer/x"));
	assert_false(exists("state/coffer/vms/x"));
	vmdir_close(&d);
}

static void what_a_crash_left_goes_with_the_next_sweep(void **s)
{
	struct vmdir d, live;

	(void)s;
	assert_int_equal(vmdir_create("live", &live, NULL), 0);
	assert_int_equal(vmdir_create_disks(&live, NULL), 0);
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_create_disks(&d, NULL), 0);
	vmdir_close(&d); /* as when all its processes are gone */
	assert_int_equal(vmdir_sweep(NULL, NULL, NULL), 0);
	assert_false(exists("run/coffer/x"));
	assert_false(exists("state/coffer/vms/x"));
	assert_true(exists("run/coffer/live"));
	assert_true(exists("state/coffer/vms/live"));
	vmdir_close(&live);
}

static void disks_whose_directory_a_reboot_took_go_with_the_next_sweep(void **s)
{
	struct vmdir d;
	char path[128], away[128];

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_create_disks(&d, NULL), 0);
	vmdir_close(&d);
	snprintf(path, sizeof(path), "%s/run/coffer/x", home.path);
	snprintf(away, sizeof(away), "%s/gone", home.path);
	assert_int_equal(rename(path, away), 0);
	assert_int_equal(vmdir_sweep(NULL, NULL, NULL), 0);
	assert_false(exists("state/coffer/vms/x"));
}

static void the_configuration_comes_back_as_it_was(void **s)
{
	struct vm_config c = { .created_ms = 1764488685123, .cpus = 4, .memory = 1ull << 31, .image = (char[]){ "debian" },
			       .kernel = (char[]){ "/boot/k" }, .command = (char[]){ "sh -c 'a \"b\"'" }, .keep = true };
	struct vm_config back;
	struct vmdir d;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_config(&d, &c, NULL), 0);
	assert_int_equal(vmdir_read_config(d.fd, &back, NULL), 0);
	assert_string_equal(back.id, "x");
	assert_int_equal(back.created_ms, c.created_ms);
	assert_int_equal(back.cpus, 4);
	assert_int_equal(back.memory, 1ull << 31);
	assert_string_equal(back.image, "debian");
	assert_string_equal(back.command, c.command);
	assert_string_equal(back.user, "");
	assert_true(back.keep);
	vm_config_finish(&back);
	vmdir_close(&d);
}

static void a_command_that_is_not_utf8_is_no_error(void **s)
{
	struct vm_config c = { .command = (char[]){ "x\377y" } }, back;
	struct vmdir d;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_config(&d, &c, NULL), 0);
	assert_int_equal(vmdir_read_config(d.fd, &back, NULL), 0);
	assert_string_equal(back.command, "x\\xffy");
	vm_config_finish(&back);
	vmdir_close(&d);
}

static int read_config_text(const char *text)
{
	struct vm_config c = { 0 };
	struct vmdir d;
	int r;

	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_file(d.fd, VMDIR_CONFIG, text, strlen(text), NULL), 0);
	r = vmdir_read_config(d.fd, &c, NULL);
	vm_config_finish(&c);
	vmdir_close(&d);
	return r;
}

static void a_damaged_configuration_is_an_error(void **s)
{
	static const char *const bad[] = {
		"", "{", "[]", "{}", "null", "{\"version\":1}",
		"{\"version\":1,\"id\":\"x\",\"created_ms\":1,\"cpus\":\"1\",\"memory\":1,\"keep\":false}",
		"{\"version\":1,\"id\":\"x\",\"created_ms\":1,\"cpus\":1,\"memory\":1,\"keep\":false}",
		"{\"version\":2,\"id\":\"x\",\"created_ms\":1,\"cpus\":1,\"memory\":1,\"keep\":false,\"image\":\"\",\"user\":\"\","
		"\"cwd\":\"\",\"kernel\":\"\",\"command\":\"\"}",
		"{\"version\":1,\"id\":\"x\",\"created_ms\":1,\"cpus\":-1,\"memory\":1,\"keep\":false,\"image\":\"\",\"user\":\"\","
		"\"cwd\":\"\",\"kernel\":\"\",\"command\":\"\"}",
	};

	(void)s;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(read_config_text(bad[i]), -EINVAL);
}

static void a_file_that_is_too_large_or_none_is_an_error(void **s)
{
	char *data = NULL, *big = calloc(1, 101);
	struct vmdir d;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_file(d.fd, "f", big, 101, NULL), 0);
	assert_int_equal(vmdir_read_file(d.fd, "f", 100, &data, NULL), -EFBIG);
	assert_int_equal(vmdir_read_file(d.fd, "none", 100, &data, NULL), -ENOENT);
	assert_int_equal(mkfifoat(d.fd, "fifo", 0600), 0);
	assert_int_equal(vmdir_read_file(d.fd, "fifo", 100, &data, NULL), -EINVAL);
	assert_int_equal(symlinkat("/etc/passwd", d.fd, "link"), 0);
	assert_int_equal(vmdir_read_file(d.fd, "link", 100, &data, NULL), -ELOOP);
	assert_null(data);
	free(big);
	vmdir_close(&d);
}

static void the_status_is_escaped_and_put_into_words(void **s)
{
	static const char text[] = "{\"stop\":\"panic\",\"text\":\"a\\u001b[31mb\\nc\"}\n";
	struct vm_status status;
	struct vmdir d;
	char words[ERR_MAX];

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_file(d.fd, VMDIR_STATUS, text, strlen(text), NULL), 0);
	assert_int_equal(vmdir_read_status(d.fd, &status, NULL), 0);
	assert_string_equal(status.stop, "panic");
	assert_string_equal(status.text, "a\\x1b[31mb\\x0ac");
	vm_status_describe(&status, words, sizeof(words));
	assert_string_equal(words, "the guest's kernel panicked (a\\x1b[31mb\\x0ac)");
	vmdir_close(&d);
}

static void an_empty_status_means_that_the_monitor_was_killed(void **s)
{
	struct vm_status status;
	struct vmdir d;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_file(d.fd, VMDIR_STATUS, "", 0, NULL), 0);
	assert_int_equal(vmdir_read_status(d.fd, &status, NULL), -ENOENT);
	vmdir_close(&d);
}

static void opening_an_ended_vm_says_why_it_ended_and_removes_it(void **s)
{
	static const char text[] = "{\"stop\":\"poweroff\",\"text\":\"\"}\n";
	struct err err = ERR_INIT;
	struct vmdir d;

	(void)s;
	assert_int_equal(vmdir_create("x", &d, NULL), 0);
	assert_int_equal(vmdir_write_file(d.fd, VMDIR_STATUS, text, strlen(text), NULL), 0);
	vmdir_close(&d);
	assert_int_equal(vmdir_open("x", &d, &err), -ENOENT);
	assert_string_equal(err.text, "the VM 'x' has ended: the guest powered off");
	assert_false(exists("run/coffer/x"));
	assert_int_equal(vmdir_open("x", &d, &err), -ENOENT);
	assert_string_equal(err.text, "there is no VM 'x': 'coffer ps' lists the running ones");
}

static void an_unusable_runtime_directory_is_one_clear_line(void **s)
{
	struct err err = ERR_INIT;
	struct vmdir d;

	(void)s;
	setenv("XDG_RUNTIME_DIR", "/proc/nowhere", 1);
	assert_true(vmdir_create("x", &d, &err) < 0);
	assert_non_null(strstr(err.text, "/proc/nowhere"));
}

#define T(name) cmocka_unit_test_prestate_setup_teardown(name, home_set_up, home_tear_down, &home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(names_are_checked),
		T(a_name_that_is_in_use_is_refused_in_one_line),
		T(a_random_id_has_eight_hexadecimal_digits),
		T(the_directory_is_private),
		T(removing_takes_the_disks_too),
		T(what_a_crash_left_goes_with_the_next_sweep),
		T(disks_whose_directory_a_reboot_took_go_with_the_next_sweep),
		T(the_configuration_comes_back_as_it_was),
		T(a_command_that_is_not_utf8_is_no_error),
		T(a_damaged_configuration_is_an_error),
		T(a_file_that_is_too_large_or_none_is_an_error),
		T(the_status_is_escaped_and_put_into_words),
		T(an_empty_status_means_that_the_monitor_was_killed),
		T(opening_an_ended_vm_says_why_it_ended_and_removes_it),
		T(an_unusable_runtime_directory_is_one_clear_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
