/* SPDX-License-Identifier: Apache-2.0 */
/* From the options of run to a display's devices, and back. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "host/snapshot_manifest.h"
#include "host/vm_display.h"
#include "lib/util.h"

static void without_options_there_is_no_display(void **s)
{
	static const char *const tiers[] = { NULL, "microvm" };
	struct vm_display d = { .width = 1 };
	struct opt_strv devices = { 0 };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(tiers); i++) {
		assert_int_equal(vm_display_parse(tiers[i], NULL, NULL, &d, NULL), 0);
		assert_int_equal(d.width, 0);
		assert_int_equal(vm_display_add_devices(&d, &devices, NULL), 0);
		assert_int_equal(devices.n, 0);
	}
}

static void each_option_alone_makes_one(void **s)
{
	static const char *const options[][3] = { { "vm", NULL, NULL }, { NULL, "1280x800", NULL }, { NULL, NULL, "2d" }, { "vm", "1280x800", "2d" } };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		struct vm_display d = { 0 };
		struct opt_strv devices = { .v = { "rng" }, .n = 1 };

		assert_int_equal(vm_display_parse(options[i][0], options[i][1], options[i][2], &d, NULL), 0);
		assert_int_equal(vm_display_add_devices(&d, &devices, NULL), 0);
		assert_int_equal(devices.n, 5);
		assert_string_equal(devices.v[1], "gpu,width=1280,height=800,socket=display.sock");
		assert_string_equal(devices.v[2], "input,kind=keyboard");
		assert_string_equal(devices.v[3], "input,kind=pointer");
		assert_string_equal(devices.v[4], "input,kind=touch");
	}
}

static void its_devices_may_be_in_a_snapshot_and_tell_its_size(void **s)
{
	struct vm_display d;
	struct opt_strv devices = { 0 };
	char text[VM_DISPLAY_TEXT];

	(void)s;
	assert_int_equal(vm_display_parse(NULL, "8192x64", NULL, &d, NULL), 0);
	assert_int_equal(vm_display_add_devices(&d, &devices, NULL), 0);
	for (size_t i = 0; i < devices.n; i++)
		assert_true(snapshot_device_is_plain(devices.v[i]));
	vm_display_find((char *const *)(uintptr_t)devices.v, devices.n, text);
	assert_string_equal(text, "8192x64");
}

static void a_large_one_has_memory_for_its_pictures(void **s)
{
	struct vm_display d;
	struct opt_strv devices = { 0 };

	(void)s;
	assert_int_equal(vm_display_parse(NULL, "8192x8192", NULL, &d, NULL), 0);
	assert_int_equal(vm_display_add_devices(&d, &devices, NULL), 0);
	assert_string_equal(devices.v[0], "gpu,width=8192,height=8192,memory=1G,socket=display.sock");
}

static void with_virgl_the_device_is_one_of_3d(void **s)
{
	struct vm_display d;
	struct opt_strv devices = { 0 };

	(void)s;
	assert_int_equal(vm_display_parse(NULL, NULL, "virgl", &d, NULL), 0);
	assert_int_equal(vm_display_add_devices(&d, &devices, NULL), 0);
	assert_string_equal(devices.v[0], "gpu,width=1280,height=800,3d,socket=display.sock");
	assert_true(vm_display_is_3d(devices.v[0]));
	assert_true(vm_display_is_3d("gpu,width=64,3d"));
	assert_false(vm_display_is_3d("gpu,width=64,socket=3d"));
	assert_false(vm_display_is_3d("gpu,3dx,x3d"));
	assert_false(vm_display_is_3d("blk,3d"));
}

static void what_is_no_size_is_refused_with_the_form(void **s)
{
	static const char *const bad[] = { "", "x", "1280", "1280x", "x800", "1280x800x", "1280X800", "63x64", "64x63", "8193x64", "64x8193", " 64x64",
					   "64x64 ", "-64x64", "4294967360x64", "000064x64" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err err = ERR_INIT;
		struct vm_display d = { .width = 7 };

		assert_int_equal(vm_display_parse(NULL, bad[i], NULL, &d, &err), -EINVAL);
		assert_non_null(strstr(err.text, "WIDTHxHEIGHT"));
		assert_int_equal(d.width, 7);
	}
}

static void what_run_does_not_start_is_refused(void **s)
{
	static const struct {
		const char *tier, *size, *gpu;
		int code;
	} bad[] = {
		{ "function", NULL, NULL, -ENOTSUP }, { "container", NULL, NULL, -ENOTSUP }, { "desk", NULL, NULL, -EINVAL },
		{ "microvm", "640x480", NULL, -EINVAL }, { "microvm", NULL, "2d", -EINVAL }, { NULL, NULL, "3d", -EINVAL },
	};

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err err = ERR_INIT;
		struct vm_display d;

		assert_int_equal(vm_display_parse(bad[i].tier, bad[i].size, bad[i].gpu, &d, &err), bad[i].code);
		assert_null(strchr(err.text, '\n'));
	}
}

static void a_second_one_is_refused(void **s)
{
	static const char *const own[] = { "gpu", "gpu,width=800", "input,kind=pointer" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		struct vm_display d;
		struct opt_strv devices = { .v = { own[i] }, .n = 1 };

		assert_int_equal(vm_display_parse("vm", NULL, NULL, &d, NULL), 0);
		assert_int_equal(vm_display_add_devices(&d, &devices, NULL), -EINVAL);
		assert_int_equal(devices.n, 1);
	}
}

static void a_display_of_others_that_is_none_is_not_told(void **s)
{
	static const char *const device[] = { "gpu", "gpu,width=1", "gpu,width=9999999999,height=800", "gpu,xwidth=800,height=800", "gpux,width=800,height=800",
					      "rng" };

	(void)s;
	for (size_t i = 0; i < ARRAY_SIZE(device); i++) {
		char text[VM_DISPLAY_TEXT] = "?", *list[] = { (char *)(uintptr_t)device[i] };

		vm_display_find(list, 1, text);
		assert_string_equal(text, "");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_options_there_is_no_display),
		cmocka_unit_test(each_option_alone_makes_one),
		cmocka_unit_test(its_devices_may_be_in_a_snapshot_and_tell_its_size),
		cmocka_unit_test(a_large_one_has_memory_for_its_pictures),
		cmocka_unit_test(with_virgl_the_device_is_one_of_3d),
		cmocka_unit_test(what_is_no_size_is_refused_with_the_form),
		cmocka_unit_test(what_run_does_not_start_is_refused),
		cmocka_unit_test(a_second_one_is_refused),
		cmocka_unit_test(a_display_of_others_that_is_none_is_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
