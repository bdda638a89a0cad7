/* SPDX-License-Identifier: Apache-2.0 */
/* The verdict on a machine: from given facts, and from facts found below a made-up root. */
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

#include "host/doctor.h"
#include "host/file.h"
#include "tests/harness/home.h"

static struct home home;

static const struct doctor_facts good = { .kvm_present = true, .kvm_api = 12, .sys_readable = true, .kvm_intel = true, .vmx = true,
					  .user = "me", .memory_total = 8ull << 30, .memory_available = 4ull << 30,
					  .lab_qemu = true, .lab_kernel = true, .lab_python = true };

static struct doctor_report judge(struct doctor_facts f)
{
	struct doctor_report r = { 0 };

	doctor_judge(&f, &r);
	return r;
}

static const struct doctor_line *find(const struct doctor_report *r, const char *name)
{
	for (size_t i = 0; i < r->nlines; i++)
		if (!strcmp(r->line[i].name, name))
			return &r->line[i];
	fail_msg("no line '%s'", name);
	return NULL;
}

static void hardware_with_all_capabilities_is_full(void **s)
{
	struct doctor_report r = judge(good);

	(void)s;
	assert_int_equal(r.verdict, DOCTOR_FULL);
	assert_int_equal(find(&r, "kvm")->level, DOCTOR_OK);
	assert_int_equal(find(&r, "capabilities")->level, DOCTOR_OK);
	assert_int_equal(find(&r, "hardware")->level, DOCTOR_OK);
}

static void amd_is_as_good(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.vmx = f.kvm_intel = false;
	f.svm = f.kvm_amd = true;
	assert_int_equal(judge(f).verdict, DOCTOR_FULL);
}

static void no_device_is_none_and_says_what_to_do(void **s)
{
	struct doctor_facts f = { .sys_readable = true };
	struct doctor_report r = judge(f);

	(void)s;
	assert_int_equal(r.verdict, DOCTOR_NONE);
	assert_non_null(strstr(r.text, "no /dev/kvm"));
	assert_non_null(strstr(r.text, "tests/lab/lab"));
}

static void a_processor_that_could_is_told_apart(void **s)
{
	struct doctor_facts f = { .sys_readable = true, .vmx = true };
	struct doctor_report r = judge(f);

	(void)s;
	assert_int_equal(r.verdict, DOCTOR_NONE);
	assert_non_null(strstr(r.text, "kvm_intel"));
}

static void missing_permission_names_the_group(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.kvm_open_error = EACCES;
	struct doctor_report r = judge(f);

	assert_int_equal(r.verdict, DOCTOR_NONE);
	assert_non_null(strstr(r.text, "usermod -aG kvm me"));
}

static void kvm_pvm_is_partial(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.kvm_intel = f.vmx = false;
	f.kvm_pvm = true;
	struct doctor_report r = judge(f);

	assert_int_equal(r.verdict, DOCTOR_PARTIAL);
	assert_non_null(strstr(r.text, "kvm_pvm"));
	assert_int_equal(find(&r, "hardware")->level, DOCTOR_BAD);
}

static void kvm_pvm_in_place_of_hardware_that_is_there_is_told(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.kvm_intel = false;
	f.kvm_pvm = true;
	struct doctor_report r = judge(f);
	const struct doctor_line *l = find(&r, "hardware");

	assert_int_equal(r.verdict, DOCTOR_PARTIAL);
	assert_int_equal(l->level, DOCTOR_BAD);
	assert_string_equal(l->text, "vmx, but /dev/kvm is kvm_pvm and not kvm_intel: Linux guests do not boot on it in useful time");
	f.vmx = false;
	f.svm = true;
	r = judge(f);
	assert_non_null(strstr(find(&r, "hardware")->text, "svm, but /dev/kvm is kvm_pvm and not kvm_amd"));
}

static void kvm_pvm_without_a_device_is_not_said_to_be_the_device(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.kvm_intel = f.kvm_present = false;
	f.kvm_pvm = true;
	struct doctor_report r = judge(f);

	assert_int_equal(r.verdict, DOCTOR_NONE);
	assert_int_equal(find(&r, "hardware")->level, DOCTOR_BAD);
	assert_string_equal(find(&r, "hardware")->text, "vmx, kvm_pvm");
}

static void a_device_without_hardware_is_partial(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.vmx = false;
	assert_int_equal(judge(f).verdict, DOCTOR_PARTIAL);
}

static void without_sys_the_flags_decide(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.sys_readable = f.kvm_intel = false;
	assert_int_equal(judge(f).verdict, DOCTOR_FULL);
}

static void a_missing_capability_is_named(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	strcpy(f.kvm_missing, "KVM_CAP_IRQFD");
	struct doctor_report r = judge(f);

	assert_int_equal(r.verdict, DOCTOR_NONE);
	assert_non_null(strstr(r.text, "KVM_CAP_IRQFD"));
}

static void what_is_only_useful_is_a_warning(void **s)
{
	struct doctor_facts f = good;

	(void)s;
	f.io_uring_error = EPERM;
	f.userfaultfd_error = EPERM;
	f.seccomp_error = ENOSYS;
	f.lab_qemu = false;
	f.memory_available = 100 << 20;
	struct doctor_report r = judge(f);

	assert_int_equal(r.verdict, DOCTOR_FULL);
	assert_int_equal(find(&r, "io_uring")->level, DOCTOR_WARN);
	assert_int_equal(find(&r, "userfaultfd")->level, DOCTOR_WARN);
	assert_int_equal(find(&r, "seccomp")->level, DOCTOR_WARN);
	assert_int_equal(find(&r, "memory")->level, DOCTOR_WARN);
	assert_non_null(strstr(find(&r, "lab")->text, "install qemu-system-x86"));
}

static void make_file(const char *path, const char *text)
{
	char full[256], dir[256];

	snprintf(full, sizeof(full), "%s%s", home.path, path);
	strcpy(dir, full);
	*strrchr(dir, '/') = 0;
	assert_int_equal(file_make_dirs(dir, 0700, NULL), 0);
	assert_int_equal(file_write_atomic(full, text, strlen(text), 0644, false, NULL), 0);
}

static void facts_are_read_below_the_root(void **s)
{
	struct doctor_facts f = { 0 };

	(void)s;
	make_file("/sys/module/kvm_amd/refcnt", "0\n");
	make_file("/proc/meminfo", "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n");
	make_file("/boot/vmlinuz-6.1.0-1-cloud-amd64", "");
	make_file("/usr/bin/python3", "");
	doctor_gather_kvm(home.path, &f);
	doctor_gather_rest(home.path, &f);
	assert_true(f.sys_readable);
	assert_true(f.kvm_amd);
	assert_false(f.kvm_intel);
	assert_false(f.kvm_pvm);
	assert_false(f.kvm_present);
	assert_int_equal(f.memory_total, 2 << 20);
	assert_int_equal(f.memory_available, 1 << 20);
	assert_true(f.lab_python);
	assert_false(f.lab_qemu);
	assert_false(f.lab_kernel);
	make_file("/boot/vmlinuz-6.1.0-1-amd64", "");
	doctor_gather_rest(home.path, &f);
	assert_true(f.lab_kernel);
}

static void a_file_in_the_device_s_place_is_no_kvm(void **s)
{
	struct doctor_facts f = { 0 };
	struct doctor_report r = { 0 };

	(void)s;
	make_file("/dev/kvm", "");
	doctor_gather_kvm(home.path, &f);
	assert_true(f.kvm_present);
	assert_int_equal(f.kvm_api, -1);
	doctor_judge_kvm(&f, &r);
	assert_int_equal(r.verdict, DOCTOR_NONE);
}

static void the_verdict_and_every_line_are_one_line(void **s)
{
	struct doctor_report r = judge((struct doctor_facts){ 0 });

	(void)s;
	assert_null(strchr(r.text, '\n'));
	assert_true(r.nlines > 0);
	for (size_t i = 0; i < r.nlines; i++)
		assert_null(strchr(r.line[i].text, '\n'));
}

#define T(name) cmocka_unit_test_prestate_setup_teardown(name, home_set_up, home_tear_down, &home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(hardware_with_all_capabilities_is_full), T(amd_is_as_good), T(no_device_is_none_and_says_what_to_do),
		T(a_processor_that_could_is_told_apart), T(missing_permission_names_the_group), T(kvm_pvm_is_partial),
		T(kvm_pvm_without_a_device_is_not_said_to_be_the_device), T(kvm_pvm_in_place_of_hardware_that_is_there_is_told), T(a_device_without_hardware_is_partial), T(without_sys_the_flags_decide), T(a_missing_capability_is_named),
		T(what_is_only_useful_is_a_warning), T(facts_are_read_below_the_root),
		T(a_file_in_the_device_s_place_is_no_kvm), T(the_verdict_and_every_line_are_one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
