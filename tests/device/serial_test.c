/* SPDX-License-Identifier: Apache-2.0 */
/* The 16550A's registers, interrupts and saved state. Loop-back stands in for a peer that sends. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/harness/machine.h"

enum { RAM = 1 << 20, BLOB = 1 << 10 };
enum { DATA, IER, IIR, LCR, MCR, LSR, MSR, SCR, FCR = IIR };

struct fixture {
	struct machine m;
	struct device *d;
};

static int setup(void **ctx)
{
	static struct fixture f;

	machine_init(&f.m, RAM);
	f.d = machine_add(&f.m, "serial", NULL);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	machine_finish(&((struct fixture *)*ctx)->m);
	return 0;
}

static uint8_t in(struct fixture *f, uint32_t reg)
{
	return (uint8_t)machine_read(&f->m, f->d, reg, 1);
}

static void out(struct fixture *f, uint32_t reg, uint8_t v)
{
	machine_write(&f->m, f->d, reg, v, 1);
}

static void loop_back(struct fixture *f, const char *bytes)
{
	out(f, MCR, 0x10);
	for (; *bytes; bytes++)
		out(f, DATA, (uint8_t)*bytes);
}

static void test_idle_line_status(void **ctx)
{
	assert_int_equal(in(*ctx, LSR), 0x60);
	assert_int_equal(in(*ctx, IIR), 0x01);
	assert_int_equal(in(*ctx, MSR) & 0xf0, 0xb0);
}

static void test_divisor_is_behind_dlab(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, LCR, 0x83);
	out(f, DATA, 0x34);
	out(f, IER, 0x12);
	assert_int_equal(in(f, DATA), 0x34);
	assert_int_equal(in(f, IER), 0x12);
	out(f, LCR, 0x03);
	assert_int_equal(in(f, IER), 0);
	assert_int_equal(in(f, LCR), 0x03);
}

static void test_scratch_keeps_its_value(void **ctx)
{
	out(*ctx, SCR, 0xa5);
	assert_int_equal(in(*ctx, SCR), 0xa5);
}

static void test_fifo_enable_shows_in_iir(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, FCR, 0x01);
	assert_int_equal(in(f, IIR), 0xc1);
	out(f, FCR, 0x00);
	assert_int_equal(in(f, IIR), 0x01);
}

static void test_loop_back_receives_what_is_sent(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, FCR, 0x01);
	loop_back(f, "ab");
	assert_int_equal(in(f, LSR), 0x61);
	assert_int_equal(in(f, DATA), 'a');
	assert_int_equal(in(f, DATA), 'b');
	assert_int_equal(in(f, LSR), 0x60);
	assert_int_equal(in(f, DATA), 0);
}

static void test_overrun_keeps_what_is_there(void **ctx)
{
	struct fixture *f = *ctx;

	loop_back(f, "ab"); /* no FIFO: room for one */
	assert_int_equal(in(f, LSR), 0x63);
	assert_int_equal(in(f, LSR), 0x61); /* reading cleared the error */
	assert_int_equal(in(f, DATA), 'a');
}

static void test_fifo_holds_16(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, FCR, 0x01);
	loop_back(f, "0123456789abcdef");
	assert_int_equal(in(f, LSR), 0x61);
	out(f, DATA, 'x');
	assert_int_equal(in(f, LSR), 0x63);
	for (int i = 0; i < 16; i++)
		assert_int_equal(in(f, DATA), "0123456789abcdef"[i]);
}

static void test_clearing_the_fifo_drops_its_bytes(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, FCR, 0x01);
	loop_back(f, "abc");
	out(f, FCR, 0x03);
	assert_int_equal(in(f, LSR), 0x60);
}

static void test_loop_back_modem_lines(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, MCR, 0x1a); /* RTS, OUT2: what Linux looks for */
	assert_int_equal(in(f, MSR) & 0xf0, 0x90);
	out(f, MCR, 0x15); /* DTR, OUT1 */
	assert_int_equal(in(f, MSR) & 0xf0, 0x60);
}

static void test_modem_deltas_clear_on_read(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, MCR, 0x10); /* CTS, DSR and DCD fall */
	assert_int_equal(in(f, MSR), 0x0b);
	assert_int_equal(in(f, MSR), 0x00);
}

static void test_receive_interrupt(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, MCR, 0x10);
	out(f, IER, 0x01);
	machine_irqs(f->d);
	out(f, DATA, 'a');
	assert_int_equal(machine_irqs(f->d), 1);
	assert_int_equal(in(f, IIR), 0x04);
	in(f, DATA);
	assert_int_equal(in(f, IIR), 0x01);
}

static void test_fewer_than_the_trigger_level_are_a_time_out(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, FCR, 0x41); /* four */
	out(f, IER, 0x01);
	loop_back(f, "abc");
	assert_int_equal(in(f, IIR), 0xcc);
	out(f, DATA, 'd');
	assert_int_equal(in(f, IIR), 0xc4);
}

static void test_enabling_the_transmit_interrupt_raises_it(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, IER, 0x02);
	assert_int_equal(machine_irqs(f->d), 1);
	assert_int_equal(in(f, IIR), 0x02);
	assert_int_equal(in(f, IIR), 0x01); /* told once */
	out(f, IER, 0x00);
	out(f, IER, 0x02);
	assert_int_equal(in(f, IIR), 0x02); /* and again when enabled again */
}

static void test_sent_byte_raises_the_transmit_interrupt_again(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, IER, 0x02);
	in(f, IIR);
	machine_irqs(f->d);
	for (int i = 0; i < 16; i++)
		out(f, DATA, 'x');
	assert_int_equal(machine_irqs(f->d), 1); /* one edge for the burst */
	assert_int_equal(in(f, IIR), 0x02);
}

static void test_line_errors_come_before_data(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, IER, 0x05);
	loop_back(f, "ab");
	assert_int_equal(in(f, IIR), 0x06);
	in(f, LSR);
	assert_int_equal(in(f, IIR), 0x04);
}

static void test_wide_access_touches_one_register(void **ctx)
{
	struct fixture *f = *ctx;

	machine_write(&f->m, f->d, SCR, 0x5a, 1);
	machine_write(&f->m, f->d, LCR, 0xff03, 2);
	assert_int_equal(in(f, LCR), 0x03);
	assert_int_equal(in(f, MCR), 0x08);
	assert_int_equal(machine_read(&f->m, f->d, LCR, 4), 0xffffff03);
}

static void test_status_registers_ignore_writes(void **ctx)
{
	struct fixture *f = *ctx;

	out(f, LSR, 0xff);
	out(f, MSR, 0xff);
	assert_int_equal(in(f, LSR), 0x60);
	assert_int_equal(in(f, MSR), 0xb0);
}

static size_t save(struct device *d, uint8_t *blob)
{
	long n;

	assert_int_equal(device_quiesce(d), 0);
	n = device_save(d, blob, BLOB);
	assert_true(n > 0);
	return (size_t)n;
}

static void test_transmit_interrupt_pending_at_a_save_comes_after_the_load(void **ctx)
{
	struct fixture *f = *ctx;
	struct machine other;
	struct device *d;
	uint8_t blob[BLOB];
	size_t n;

	out(f, IER, 0x02);
	n = save(f->d, blob);
	machine_init(&other, RAM);
	d = machine_add(&other, "serial", NULL);
	assert_int_equal(device_load(d, blob, n, NULL), 0);
	assert_int_equal(machine_irqs(d), 0);
	device_resume(d);
	assert_int_equal(machine_irqs(d), 1);
	assert_int_equal(machine_read(&other, d, IIR, 1), 0x02);
	machine_finish(&other);
}

static void test_saved_fifo_is_read_after_the_load(void **ctx)
{
	struct fixture *f = *ctx;
	struct machine other;
	struct device *d;
	uint8_t blob[BLOB];
	size_t n;

	out(f, FCR, 0x01);
	loop_back(f, "abc");
	in(f, DATA);
	n = save(f->d, blob);
	machine_init(&other, RAM);
	d = machine_add(&other, "serial", NULL);
	assert_int_equal(device_load(d, blob, n, NULL), 0);
	device_resume(d);
	assert_int_equal(machine_read(&other, d, DATA, 1), 'b');
	assert_int_equal(machine_read(&other, d, DATA, 1), 'c');
	machine_finish(&other);
}

/* The payload of field `id` in a saved blob. */
static uint8_t *field(uint8_t *blob, uint16_t id)
{
	uint8_t *p = blob + 4 + 4; /* length of the part, version and count */

	while (le16_load(p) != id)
		p += 8 + le32_load(p + 4);
	return p + 8;
}

static void refuses(struct fixture *f, uint16_t id, uint8_t value)
{
	uint8_t blob[BLOB];
	struct err err = ERR_INIT;
	size_t n = save(f->d, blob);

	*field(blob, id) = value;
	assert_int_equal(device_load(f->d, blob, n, &err), -EINVAL);
	assert_true(strstr(err.text, "serial0"));
	device_resume(f->d);
	assert_int_equal(in(f, LSR), 0x60); /* reset, and alive */
}

static void test_refuses_too_long_a_fifo(void **ctx)
{
	refuses(*ctx, 11, 17);
}

static void test_refuses_a_second_byte_without_fifo(void **ctx)
{
	refuses(*ctx, 11, 2);
}

static void test_refuses_bits_that_cannot_be_set(void **ctx)
{
	refuses(*ctx, 1, 0x10);
	refuses(*ctx, 2, 0x02);
	refuses(*ctx, 4, 0x20);
	refuses(*ctx, 9, 2);
	refuses(*ctx, 10, 0x10);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_idle_line_status),
		T(test_divisor_is_behind_dlab),
		T(test_scratch_keeps_its_value),
		T(test_fifo_enable_shows_in_iir),
		T(test_loop_back_receives_what_is_sent),
		T(test_overrun_keeps_what_is_there),
		T(test_fifo_holds_16),
		T(test_clearing_the_fifo_drops_its_bytes),
		T(test_loop_back_modem_lines),
		T(test_modem_deltas_clear_on_read),
		T(test_receive_interrupt),
		T(test_fewer_than_the_trigger_level_are_a_time_out),
		T(test_enabling_the_transmit_interrupt_raises_it),
		T(test_sent_byte_raises_the_transmit_interrupt_again),
		T(test_line_errors_come_before_data),
		T(test_wide_access_touches_one_register),
		T(test_status_registers_ignore_writes),
		T(test_transmit_interrupt_pending_at_a_save_comes_after_the_load),
		T(test_saved_fifo_is_read_after_the_load),
		T(test_refuses_too_long_a_fifo),
		T(test_refuses_a_second_byte_without_fifo),
		T(test_refuses_bits_that_cannot_be_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
