/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 16550A serial port, COM1.
 *
 * Guest contract: the National PC16550D data sheet, as far as software can tell without a wire. Sending takes no time: the
 * transmitter is always empty again at once. Received bytes wait in a FIFO of 16 (of 1 with FIFOs off); what does not
 * fit yet waits on the host side, so nothing is overrun except in loop-back. Registers are bytes: of a wider access
 * only the first counts. OUT2 does not gate the interrupt.
 *
 * How it works: the interrupt is an edge, so it is raised whenever a cause appears that was not there before. The
 * transmitter-empty cause appears after each byte and when its interrupt is enabled, and goes when IIR reports it.
 *
 * Threads: registers from vCPU threads, input from main, both under the device lock. Output goes to the console
 * backend, which never waits.
 * Trust: the guest's bytes are passed on unread; so are the host's.
 * Snapshot: the registers and the receive FIFO. Output that has left the guest and input that has not reached it
 * belong to the host. A cause pending at the snapshot is raised again on resume.
 */
#include <errno.h>
#include <string.h>

#include "devices/backend/console.h"
#include "devices/device.h"
#include "lib/util.h"

enum { BASE = 0x3f8, GSI = 4, SIZE = 8, FIFO_SIZE = 16 };

enum { REG_DATA, REG_IER, REG_IIR_FCR, REG_LCR, REG_MCR, REG_LSR, REG_MSR, REG_SCR };

enum { IER_RX = 1, IER_THRE = 2, IER_LINE = 4, IER_MODEM = 8, IER_MASK = 0xf };
enum { IIR_MODEM = 0x0, IIR_NONE = 0x1, IIR_THRE = 0x2, IIR_RX = 0x4, IIR_LINE = 0x6, IIR_TIMEOUT = 0xc, IIR_FIFO = 0xc0 };
enum { FCR_ENABLE = 0x1, FCR_CLEAR_RX = 0x2, FCR_KEPT = 0xc9, FCR_TRIGGER_SHIFT = 6 };
enum { LCR_DLAB = 0x80 };
enum { MCR_DTR = 1, MCR_RTS = 2, MCR_OUT1 = 4, MCR_OUT2 = 8, MCR_LOOP = 0x10, MCR_MASK = 0x1f };
enum { LSR_READY = 0x1, LSR_OVERRUN = 0x2, LSR_ERRORS = 0x1e, LSR_THRE = 0x20, LSR_EMPTY = 0x40 };
enum { MSR_DELTAS = 0xf, MSR_RI_TRAILING = 0x4, MSR_CTS = 0x10, MSR_DSR = 0x20, MSR_RI = 0x40, MSR_DCD = 0x80 };

/* Interrupt causes, by falling priority */
enum { CAUSE_LINE = 1, CAUSE_RX = 2, CAUSE_THRE = 4, CAUSE_MODEM = 8, CAUSE_MASK = 0xf };

#define SERIAL_STATE(F, A, S, V)                                                  \
	F(1, 1, u8, ier)                                                          \
	F(2, 1, u8, fcr)                                                          \
	F(3, 1, u8, lcr)                                                          \
	F(4, 1, u8, mcr)                                                          \
	F(5, 1, u8, lsr_errors)                                                   \
	F(6, 1, u8, msr_deltas)                                                   \
	F(7, 1, u8, scr)                                                          \
	F(8, 1, u16, divisor)                                                     \
	F(9, 1, u8, thre_pending) /* transmitter became empty, IIR has not told */ \
	F(10, 1, u8, causes)      /* enabled and present, already raised */       \
	F(11, 1, u8, rx_len)                                                      \
	A(12, 1, u8, rx, FIFO_SIZE) /* oldest first, zeros behind rx_len */
STATE_STRUCT(serial, SERIAL_STATE);
#define STATE_SELF struct serial_state
STATE_SCHEMA(serial, 1, SERIAL_STATE);
#undef STATE_SELF

struct serial {
	struct device dev;
	struct serial_state st;
	struct console console;
};

struct serial_options {
	char *log;
	uint64_t limit;
	bool stdio;
};

static const struct opt serial_options[] = {
	OPT_STRING(struct serial_options, log, "log", 0, "FILE", "append the guest's output to FILE, older output to FILE.1"),
	OPT_SIZE(struct serial_options, limit, "limit", 0, "SIZE", CONSOLE_LIMIT_MIN, CONSOLE_LIMIT_MAX, 1,
		 "how large each log file may become (1M)"),
	OPT_BOOL(struct serial_options, stdio, "stdio", 0, "connect to standard input and output"),
	OPT_END,
};

static struct serial *from_device(struct device *d)
{
	return container_of(d, struct serial, dev);
}

static bool fifo_on(const struct serial_state *st)
{
	return st->fcr & FCR_ENABLE;
}

static uint8_t rx_room(const struct serial_state *st)
{
	uint8_t size = fifo_on(st) ? FIFO_SIZE : 1;

	return size > st->rx_len ? (uint8_t)(size - st->rx_len) : 0;
}

/* Raise the interrupt for causes that have just appeared. */
static void update(struct serial *s)
{
	struct serial_state *st = &s->st;
	uint8_t causes = 0;

	if (st->ier & IER_LINE && st->lsr_errors)
		causes |= CAUSE_LINE;
	if (st->ier & IER_RX && st->rx_len)
		causes |= CAUSE_RX;
	if (st->ier & IER_THRE && st->thre_pending)
		causes |= CAUSE_THRE;
	if (st->ier & IER_MODEM && st->msr_deltas)
		causes |= CAUSE_MODEM;
	if (causes & ~st->causes)
		irq_raise(&s->dev.irq);
	st->causes = causes;
}

/* Move what the host has for us into the FIFO; not in loop-back, where the receiver hears only ourselves. */
static void refill(struct serial *s)
{
	struct serial_state *st = &s->st;

	if (rx_room(st) && !(st->mcr & MCR_LOOP))
		st->rx_len += (uint8_t)console_read(&s->console, st->rx + st->rx_len, rx_room(st));
}

static uint8_t read_data(struct serial *s)
{
	struct serial_state *st = &s->st;
	uint8_t v = st->rx[0];

	if (st->rx_len == 0)
		return 0;
	memmove(st->rx, st->rx + 1, FIFO_SIZE - 1);
	st->rx[FIFO_SIZE - 1] = 0;
	if (--st->rx_len == 0) {
		st->causes &= (uint8_t)~CAUSE_RX; /* what comes now is a new cause */
		refill(s);
	}
	update(s);
	return v;
}

static void write_data(struct serial *s, uint8_t v)
{
	struct serial_state *st = &s->st;

	if (!(st->mcr & MCR_LOOP))
		console_write(&s->console, &v, 1);
	else if (rx_room(st))
		st->rx[st->rx_len++] = v;
	else
		st->lsr_errors |= LSR_OVERRUN;
	st->thre_pending = 1;
	update(s);
}

static void write_ier(struct serial *s, uint8_t v)
{
	/* Enabling it while the transmitter is empty, which it always is, brings the interrupt. */
	if (v & ~s->st.ier & IER_THRE)
		s->st.thre_pending = 1;
	s->st.ier = v & IER_MASK;
	update(s);
}

/* FIFO bytes that make a full announcement; fewer are announced as a time-out, without waiting for one. */
static uint8_t trigger_level(const struct serial_state *st)
{
	static const uint8_t levels[] = { 1, 4, 8, 14 };

	return fifo_on(st) ? levels[st->fcr >> FCR_TRIGGER_SHIFT] : 1;
}

static uint8_t read_iir(struct serial *s)
{
	struct serial_state *st = &s->st;
	uint8_t fifo = fifo_on(st) ? IIR_FIFO : 0;

	if (st->causes & CAUSE_LINE)
		return fifo | IIR_LINE;
	if (st->causes & CAUSE_RX)
		return fifo | (st->rx_len >= trigger_level(st) ? IIR_RX : IIR_TIMEOUT);
	if (st->causes & CAUSE_THRE) {
		st->thre_pending = 0;
		update(s);
		return fifo | IIR_THRE;
	}
	return fifo | (st->causes & CAUSE_MODEM ? IIR_MODEM : IIR_NONE);
}

static void write_fcr(struct serial *s, uint8_t v)
{
	struct serial_state *st = &s->st;

	/* Turning the FIFOs on or off empties them too. */
	if (v & FCR_CLEAR_RX || (v ^ st->fcr) & FCR_ENABLE) {
		st->rx_len = 0;
		memset(st->rx, 0, sizeof(st->rx));
	}
	st->fcr = v & FCR_ENABLE ? v & FCR_KEPT : 0;
	update(s);
	refill(s);
	update(s);
}

/* The modem's side of the lines: a peer that is always there, or in loop-back our own outputs. */
static uint8_t modem_lines(uint8_t mcr)
{
	uint8_t v = 0;

	if (!(mcr & MCR_LOOP))
		return MSR_CTS | MSR_DSR | MSR_DCD;
	v |= mcr & MCR_RTS ? MSR_CTS : 0;
	v |= mcr & MCR_DTR ? MSR_DSR : 0;
	v |= mcr & MCR_OUT1 ? MSR_RI : 0;
	v |= mcr & MCR_OUT2 ? MSR_DCD : 0;
	return v;
}

static void write_mcr(struct serial *s, uint8_t v)
{
	struct serial_state *st = &s->st;
	uint8_t before = modem_lines(st->mcr), after = modem_lines(v & MCR_MASK);
	uint8_t changed = (uint8_t)((before ^ after) >> 4);

	/* Ring counts only when it ends. */
	if (!(before & ~after & MSR_RI))
		changed &= (uint8_t)~MSR_RI_TRAILING;
	st->mcr = v & MCR_MASK;
	st->msr_deltas |= changed;
	refill(s);
	update(s);
}

static uint8_t read_lsr(struct serial *s)
{
	struct serial_state *st = &s->st;
	uint8_t v = LSR_THRE | LSR_EMPTY | st->lsr_errors | (st->rx_len ? LSR_READY : 0);

	st->lsr_errors = 0;
	update(s);
	return v;
}

static uint8_t read_msr(struct serial *s)
{
	uint8_t v = modem_lines(s->st.mcr) | s->st.msr_deltas;

	s->st.msr_deltas = 0;
	update(s);
	return v;
}

static uint8_t read_reg(struct serial *s, uint64_t offset)
{
	struct serial_state *st = &s->st;
	bool dlab = st->lcr & LCR_DLAB;

	switch (offset) {
	case REG_DATA:
		return dlab ? st->divisor & 0xff : read_data(s);
	case REG_IER:
		return dlab ? (uint8_t)(st->divisor >> 8) : st->ier;
	case REG_IIR_FCR:
		return read_iir(s);
	case REG_LCR:
		return st->lcr;
	case REG_MCR:
		return st->mcr;
	case REG_LSR:
		return read_lsr(s);
	case REG_MSR:
		return read_msr(s);
	case REG_SCR:
		return st->scr;
	default:
		return 0xff;
	}
}

static void serial_read(struct device *d, uint64_t offset, void *data, uint32_t len)
{
	memset(data, 0xff, len);
	*(uint8_t *)data = read_reg(from_device(d), offset);
}

static void serial_write(struct device *d, uint64_t offset, const void *data, uint32_t len)
{
	struct serial *s = from_device(d);
	struct serial_state *st = &s->st;
	uint8_t v = *(const uint8_t *)data;
	bool dlab = st->lcr & LCR_DLAB;

	(void)len;
	switch (offset) {
	case REG_DATA:
		if (dlab)
			st->divisor = (uint16_t)((st->divisor & 0xff00) | v);
		else
			write_data(s, v);
		break;
	case REG_IER:
		if (dlab)
			st->divisor = (uint16_t)((st->divisor & 0xff) | v << 8);
		else
			write_ier(s, v);
		break;
	case REG_IIR_FCR:
		write_fcr(s, v);
		break;
	case REG_LCR:
		st->lcr = v;
		break;
	case REG_MCR:
		write_mcr(s, v);
		break;
	case REG_SCR:
		st->scr = v;
		break;
	default: /* LSR and MSR are read-only */
		break;
	}
}

static void on_input(struct console *c)
{
	struct serial *s = container_of(c, struct serial, console);

	device_lock(&s->dev);
	if (!s->dev.quiesced) {
		refill(s);
		update(s);
	}
	device_unlock(&s->dev);
}

static int serial_open(struct device *d, const void *options, struct err *err)
{
	const struct serial_options *o = options;

	return console_open(&from_device(d)->console, &d->vm->loop, o->log, o->limit, o->stdio, on_input, err);
}

static void serial_reset(struct device *d)
{
	struct serial_state *st = &from_device(d)->st;

	*st = (struct serial_state){ .divisor = 12 /* 9600 baud */, .mcr = MCR_OUT2, .lcr = 3 /* 8 bits */ };
}

static void serial_resume(struct device *d)
{
	struct serial *s = from_device(d);

	if (s->st.causes)
		irq_raise(&d->irq);
	refill(s);
	update(s);
}

static int serial_check(struct device *d, struct err *err)
{
	const struct serial_state *st = &from_device(d)->st;

	if (st->ier & ~IER_MASK || st->mcr & ~MCR_MASK || st->fcr & ~FCR_KEPT || (st->fcr && !fifo_on(st)) ||
	    st->lsr_errors & ~LSR_ERRORS || st->msr_deltas & ~MSR_DELTAS || st->thre_pending > 1 || st->causes & ~CAUSE_MASK)
		return err_set(err, -EINVAL, "a register has bits that cannot be set");
	if (st->rx_len > (fifo_on(st) ? FIFO_SIZE : 1))
		return err_set(err, -EINVAL, "%u bytes in the receive FIFO", st->rx_len);
	for (int i = st->rx_len; i < FIFO_SIZE; i++)
		if (st->rx[i])
			return err_set(err, -EINVAL, "bytes behind the end of the receive FIFO");
	return 0;
}

static void serial_close(struct device *d)
{
	console_close(&from_device(d)->console);
}

const struct device_ops serial_device = {
	.name = "serial",
	.help = "16550A serial port (COM1, ttyS0)",
	.bus = DEVICE_PIO,
	.base = BASE,
	.size = SIZE,
	.gsi = GSI,
	.needs_irq = true,
	.hid = "PNP0501",
	.instances = 1,
	.implicit = true,
	.instance_size = sizeof(struct serial),
	.options = serial_options,
	.opt_size = sizeof(struct serial_options),
	.schema = &serial_schema,
	.state_offset = offsetof(struct serial, st),
	.open = serial_open,
	.reset = serial_reset,
	.read = serial_read,
	.write = serial_write,
	.resume = serial_resume,
	.check = serial_check,
	.close = serial_close,
};
