/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keyboard controller without a keyboard, for the reset line behind it.
 *
 * Guest contract: ports 0x60 and 0x64 of an 8042. Pulsing the reset line (command 0xFE, or writing the output port
 * with bit 0 clear) ends the guest with "reboot". The commands an operating system probes with are answered at once, so
 * that nobody waits for a time-out: self test passes, no mouse, nothing on the keyboard port. The ACPI tables say
 * that there is no 8042, so Linux does not even ask.
 *
 * Snapshot: the control byte, the output port and a byte or command under way.
 */
#include <errno.h>
#include <string.h>

#include "devices/device.h"
#include "lib/util.h"

enum { BASE = 0x60, SIZE = 5, REG_DATA = 0, REG_COMMAND = 4 };

enum { STATUS_OUTPUT_FULL = 0x01, STATUS_SYSTEM = 0x04, STATUS_UNLOCKED = 0x10 };

enum {
	CMD_READ_CONTROL = 0x20,
	CMD_WRITE_CONTROL = 0x60,
	CMD_AUX_DISABLE = 0xa7,
	CMD_AUX_ENABLE = 0xa8,
	CMD_AUX_TEST = 0xa9,
	CMD_SELF_TEST = 0xaa,
	CMD_KEYBOARD_TEST = 0xab,
	CMD_KEYBOARD_DISABLE = 0xad,
	CMD_KEYBOARD_ENABLE = 0xae,
	CMD_READ_OUTPUT = 0xd0,
	CMD_WRITE_OUTPUT = 0xd1,
	CMD_AUX_LOOP = 0xd3,
	CMD_AUX_SEND = 0xd4,
	CMD_PULSE = 0xf0, /* to 0xff: the low bits that are clear are pulsed */
};
enum { SELF_TEST_PASSED = 0x55, TEST_OK = 0x00, TEST_STUCK = 0x01, AUX_LOOP_BROKEN = 0x00 };
enum { OUTPUT_RESET = 0x01, OUTPUT_A20 = 0x02 };
enum { CONTROL_SYSTEM = 0x04, CONTROL_KEYBOARD_OFF = 0x10, CONTROL_AUX_OFF = 0x20 };

#define I8042_STATE(F, A, S, V)                                              \
	F(1, 1, u8, control)                                                 \
	F(2, 1, u8, output_port)                                             \
	F(3, 1, u8, output)      /* byte for the guest */                    \
	F(4, 1, u8, output_full)                                             \
	F(5, 1, u8, command)     /* one that waits for its data byte, or 0 */
STATE_STRUCT(i8042, I8042_STATE);
#define STATE_SELF struct i8042_state
STATE_SCHEMA(i8042, 1, I8042_STATE);
#undef STATE_SELF

struct i8042 {
	struct device dev;
	struct i8042_state st;
};

static struct i8042 *from_device(struct device *d)
{
	return container_of(d, struct i8042, dev);
}

static void reset_line(struct i8042 *k)
{
	vm_request_stop(k->dev.vm, VM_STOP_REBOOT, "the guest asked for a reset (keyboard controller)");
}

static void answer(struct i8042 *k, uint8_t v)
{
	k->st.output = v;
	k->st.output_full = 1;
}

static bool takes_data(uint8_t command)
{
	return command == CMD_WRITE_CONTROL || command == CMD_WRITE_OUTPUT || command == CMD_AUX_LOOP ||
	       command == CMD_AUX_SEND;
}

static void write_command(struct i8042 *k, uint8_t command)
{
	struct i8042_state *st = &k->st;

	st->command = takes_data(command) ? command : 0;
	switch (command) {
	case CMD_READ_CONTROL:
		answer(k, st->control);
		break;
	case CMD_READ_OUTPUT:
		answer(k, st->output_port);
		break;
	case CMD_SELF_TEST:
		st->control |= CONTROL_SYSTEM;
		answer(k, SELF_TEST_PASSED);
		break;
	case CMD_KEYBOARD_TEST:
		answer(k, TEST_OK);
		break;
	case CMD_AUX_TEST:
		answer(k, TEST_STUCK);
		break;
	case CMD_AUX_DISABLE:
		st->control |= CONTROL_AUX_OFF;
		break;
	case CMD_AUX_ENABLE:
		st->control &= (uint8_t)~CONTROL_AUX_OFF;
		break;
	case CMD_KEYBOARD_DISABLE:
		st->control |= CONTROL_KEYBOARD_OFF;
		break;
	case CMD_KEYBOARD_ENABLE:
		st->control &= (uint8_t)~CONTROL_KEYBOARD_OFF;
		break;
	default:
		if (command >= CMD_PULSE && !(command & OUTPUT_RESET))
			reset_line(k);
		break;
	}
}

static void write_data(struct i8042 *k, uint8_t v)
{
	struct i8042_state *st = &k->st;

	switch (st->command) {
	case CMD_WRITE_CONTROL:
		st->control = v;
		break;
	case CMD_WRITE_OUTPUT:
		st->output_port = v;
		if (!(v & OUTPUT_RESET))
			reset_line(k);
		break;
	case CMD_AUX_LOOP:
		answer(k, AUX_LOOP_BROKEN);
		break;
	default: /* to a keyboard or mouse that is not there */
		break;
	}
	st->command = 0;
}

static void i8042_read(struct device *d, uint64_t offset, void *data, uint32_t len)
{
	struct i8042_state *st = &from_device(d)->st;
	uint8_t v = 0xff;

	if (offset == REG_DATA) {
		v = st->output;
		st->output_full = 0;
	} else if (offset == REG_COMMAND) {
		v = STATUS_UNLOCKED | (st->control & CONTROL_SYSTEM ? STATUS_SYSTEM : 0) |
		    (st->output_full ? STATUS_OUTPUT_FULL : 0);
	}
	memset(data, 0xff, len);
	*(uint8_t *)data = v;
}

static void i8042_write(struct device *d, uint64_t offset, const void *data, uint32_t len)
{
	uint8_t v = *(const uint8_t *)data;

	(void)len;
	if (offset == REG_COMMAND)
		write_command(from_device(d), v);
	else if (offset == REG_DATA)
		write_data(from_device(d), v);
}

static void i8042_reset(struct device *d)
{
	from_device(d)->st = (struct i8042_state){
		.control = CONTROL_SYSTEM | CONTROL_KEYBOARD_OFF | CONTROL_AUX_OFF,
		.output_port = OUTPUT_RESET | OUTPUT_A20,
	};
}

static int i8042_check(struct device *d, struct err *err)
{
	const struct i8042_state *st = &from_device(d)->st;

	if (st->output_full > 1)
		return err_set(err, -EINVAL, "output_full is %u", st->output_full);
	if (st->command && !takes_data(st->command))
		return err_set(err, -EINVAL, "command 0x%02x cannot wait for data", st->command);
	return 0;
}

const struct device_ops i8042_device = {
	.name = "i8042",
	.help = "keyboard controller: only its reset line",
	.bus = DEVICE_PIO,
	.base = BASE,
	.size = SIZE,
	.instances = 1,
	.implicit = true,
	.instance_size = sizeof(struct i8042),
	.schema = &i8042_schema,
	.state_offset = offsetof(struct i8042, st),
	.reset = i8042_reset,
	.read = i8042_read,
	.write = i8042_write,
	.check = i8042_check,
};
