/* SPDX-License-Identifier: Apache-2.0 */
/* The small platform devices: keyboard controller, pvpanic, ACPI events, generation id. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "devices/ged.h"
#include "devices/vmgenid.h"
#include "tests/harness/machine.h"

enum { RAM = 2 << 20, BLOB = 256 };
enum { KBD_DATA = 0, KBD_COMMAND = 4 };

struct fixture {
	struct machine m;
	struct device *kbd, *panic, *ged, *genid;
};

static int setup(void **ctx)
{
	static struct fixture f;

	machine_init(&f.m, RAM);
	f.kbd = machine_add(&f.m, "i8042", NULL);
	f.panic = machine_add(&f.m, "pvpanic", NULL);
	f.ged = machine_add(&f.m, "ged", NULL);
	f.genid = machine_add(&f.m, "vmgenid", "id=000102030405060708090A0b0c0d0e0f");
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	machine_finish(&((struct fixture *)*ctx)->m);
	return 0;
}

static enum vm_stop stopped(struct fixture *f)
{
	return (enum vm_stop)f->m.vm.stop_reason;
}

static uint8_t command(struct fixture *f, uint8_t c)
{
	machine_write(&f->m, f->kbd, KBD_COMMAND, c, 1);
	return (uint8_t)machine_read(&f->m, f->kbd, KBD_DATA, 1);
}

static void test_i8042_reset_command(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->kbd, KBD_COMMAND, 0xfe, 1);
	assert_int_equal(stopped(f), VM_STOP_REBOOT);
}

static void test_i8042_reset_by_output_port(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->kbd, KBD_COMMAND, 0xd1, 1);
	machine_write(&f->m, f->kbd, KBD_DATA, 0x03, 1);
	assert_int_equal(stopped(f), VM_STOP_NONE);
	machine_write(&f->m, f->kbd, KBD_COMMAND, 0xd1, 1);
	machine_write(&f->m, f->kbd, KBD_DATA, 0x02, 1);
	assert_int_equal(stopped(f), VM_STOP_REBOOT);
}

static void test_i8042_pulse_of_other_lines_is_no_reset(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->kbd, KBD_COMMAND, 0xff, 1);
	machine_write(&f->m, f->kbd, KBD_DATA, 0xfe, 1);
	assert_int_equal(stopped(f), VM_STOP_NONE);
}

static void test_i8042_is_never_busy(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(machine_read(&f->m, f->kbd, KBD_COMMAND, 1) & 0x03, 0);
	machine_write(&f->m, f->kbd, KBD_COMMAND, 0xaa, 1);
	assert_int_equal(machine_read(&f->m, f->kbd, KBD_COMMAND, 1) & 0x03, 0x01);
	assert_int_equal(machine_read(&f->m, f->kbd, KBD_DATA, 1), 0x55);
	assert_int_equal(machine_read(&f->m, f->kbd, KBD_COMMAND, 1) & 0x03, 0);
}

static void test_i8042_control_byte(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->kbd, KBD_COMMAND, 0x60, 1);
	machine_write(&f->m, f->kbd, KBD_DATA, 0x47, 1);
	assert_int_equal(command(f, 0x20), 0x47);
	command(f, 0xad);
	assert_int_equal(command(f, 0x20), 0x57);
}

static void test_i8042_has_no_mouse(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->kbd, KBD_COMMAND, 0xd3, 1);
	machine_write(&f->m, f->kbd, KBD_DATA, 0x5a, 1);
	assert_int_not_equal(machine_read(&f->m, f->kbd, KBD_DATA, 1), 0x5a);
	assert_int_equal(command(f, 0xa9), 0x01);
}

static void test_pvpanic_offers_and_reports_a_panic(void **ctx)
{
	struct fixture *f = *ctx;

	assert_int_equal(machine_read(&f->m, f->panic, 0, 1), 1);
	machine_write(&f->m, f->panic, 0, 2, 1); /* crash loaded: not offered */
	assert_int_equal(stopped(f), VM_STOP_NONE);
	machine_write(&f->m, f->panic, 0, 1, 1);
	assert_int_equal(stopped(f), VM_STOP_PANIC);
	assert_string_equal(f->m.vm.stop_text, "the guest's kernel panicked");
}

static void test_sleep_s5_powers_off(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->ged, GED_REG_SLEEP_STATUS, 0x80, 1); /* Linux clears the wake status first */
	machine_write(&f->m, f->ged, GED_REG_SLEEP_CONTROL, 5 << 2 | 1 << 5, 1);
	assert_int_equal(stopped(f), VM_STOP_POWEROFF);
}

static void test_other_sleep_states_do_nothing(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->ged, GED_REG_SLEEP_CONTROL, 3 << 2 | 1 << 5, 1);
	machine_write(&f->m, f->ged, GED_REG_SLEEP_CONTROL, 5 << 2, 1); /* without SLP_EN */
	machine_write(&f->m, f->ged, GED_REG_RESET, 0, 1);
	assert_int_equal(stopped(f), VM_STOP_NONE);
	assert_int_equal(machine_read(&f->m, f->ged, GED_REG_SLEEP_STATUS, 1), 0);
}

static void test_reset_register(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->ged, GED_REG_RESET, GED_RESET_VALUE, 1);
	assert_int_equal(stopped(f), VM_STOP_REBOOT);
}

static void test_events_interrupt_and_clear_on_read(void **ctx)
{
	struct fixture *f = *ctx;

	ged_power_button(f->ged);
	ged_notify(f->ged, GED_EVENT_VMGENID);
	assert_int_equal(machine_irqs(f->ged), 2);
	assert_int_equal(machine_read(&f->m, f->ged, GED_REG_EVENTS, 1), 0); /* only whole reads count */
	assert_int_equal(machine_read(&f->m, f->ged, GED_REG_EVENTS, 4), GED_EVENT_ALL);
	assert_int_equal(machine_read(&f->m, f->ged, GED_REG_EVENTS, 4), 0);
}

static size_t save(struct device *d, uint8_t *blob)
{
	long n;

	assert_int_equal(device_quiesce(d), 0);
	n = device_save(d, blob, BLOB);
	assert_true(n > 0);
	return (size_t)n;
}

static void test_event_pending_at_a_save_interrupts_after_the_load(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t blob[BLOB];
	size_t n;

	ged_power_button(f->ged);
	n = save(f->ged, blob);
	machine_irqs(f->ged);
	assert_int_equal(device_load(f->ged, blob, n, NULL), 0);
	device_resume(f->ged);
	assert_int_equal(machine_irqs(f->ged), 1);
	assert_int_equal(machine_read(&f->m, f->ged, GED_REG_EVENTS, 4), GED_EVENT_POWER_BUTTON);
}

static void test_unknown_pending_event_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t blob[BLOB];
	size_t n = save(f->ged, blob);

	blob[n - 1] = 0x80;
	assert_int_equal(device_load(f->ged, blob, n, NULL), -EINVAL);
}

static void test_i8042_impossible_command_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t blob[BLOB];
	size_t n = save(f->kbd, blob);

	blob[n - 1] = 0xfe; /* the last field: a command that takes no data */
	assert_int_equal(device_load(f->kbd, blob, n, NULL), -EINVAL);
	device_resume(f->kbd);
	assert_int_equal(stopped(f), VM_STOP_NONE);
}

static void test_vmgenid_is_in_memory(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t id[VMGENID_SIZE];

	machine_peek(&f->m, BOOT_VMGENID_GPA, id, sizeof(id));
	for (int i = 0; i < VMGENID_SIZE; i++)
		assert_int_equal(id[i], i);
}

static void test_vmgenid_renewed_differs(void **ctx)
{
	struct fixture *f = *ctx;
	uint8_t id[2][VMGENID_SIZE];

	for (int i = 0; i < 2; i++) {
		assert_int_equal(vmgenid_renew(f->genid), 0);
		machine_peek(&f->m, BOOT_VMGENID_GPA, id[i], VMGENID_SIZE);
	}
	assert_memory_not_equal(id[0], id[1], VMGENID_SIZE);
}

static void test_vmgenid_bad_id_is_refused(void **ctx)
{
	struct fixture *f = *ctx;
	const char *const bad[] = { "id=00", "id=000102030405060708090a0b0c0d0e0g", "id=000102030405060708090a0b0c0d0e0f00" };

	for (size_t i = 0; i < 3; i++) {
		struct err err = ERR_INIT;
		struct device *d;

		assert_int_equal(machine_try_add(&f->m, device_find("vmgenid"), bad[i], &d, &err), -EINVAL);
		assert_true(strstr(err.text, "32 hexadecimal digits"));
	}
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_i8042_reset_command),
		T(test_i8042_reset_by_output_port),
		T(test_i8042_pulse_of_other_lines_is_no_reset),
		T(test_i8042_is_never_busy),
		T(test_i8042_control_byte),
		T(test_i8042_has_no_mouse),
		T(test_pvpanic_offers_and_reports_a_panic),
		T(test_sleep_s5_powers_off),
		T(test_other_sleep_states_do_nothing),
		T(test_reset_register),
		T(test_events_interrupt_and_clear_on_read),
		T(test_event_pending_at_a_save_interrupts_after_the_load),
		T(test_unknown_pending_event_is_refused),
		T(test_i8042_impossible_command_is_refused),
		T(test_vmgenid_is_in_memory),
		T(test_vmgenid_renewed_differs),
		T(test_vmgenid_bad_id_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
