/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-console: one port, hvc0 in a Linux guest (virtio 1.2, 5.3).
 *
 * Guest contract: queue 0 receives, queue 1 transmits; the size of the terminal and the emergency write register are
 * in the config space; no further ports. Of one transmit request CONSOLE_REQUEST_MAX bytes are taken.
 * How it works: output goes to the console backend, which never waits and never grows; input stays there, and beyond
 * that with its writer, until the guest has supplied a buffer. After CONSOLE_BURST requests the device yields to
 * the rest of the main loop and kicks itself.
 * Threads: queues and input in main, emergency writes on vCPU threads, all under the device lock.
 * Snapshot: the terminal's size. Output that has left the guest and input that has not reached it belong to the host.
 */
#include <errno.h>
#include <string.h>

#include "devices/backend/console.h"
#include "devices/virtio.h"
#include "lib/util.h"

enum { CONSOLE_REQUEST_MAX = 1 << 20, CONSOLE_BURST = 64, CONSOLE_COPY = 1024 };
enum { QUEUE_RECEIVE, QUEUE_TRANSMIT, NQUEUES };

#define F_SIZE (1ull << 0)
#define F_EMERG_WRITE (1ull << 2)

struct console_config {
	le16 cols;
	le16 rows;
	le32 max_nr_ports;
	le32 emerg_wr;
};
_Static_assert(sizeof(struct console_config) == 12, "virtio 1.2, 5.3.4");

#define VIRTIO_CONSOLE_STATE(F, A, S, V) \
	F(1, 1, u16, cols)               \
	F(2, 1, u16, rows)
STATE_STRUCT(virtio_console, VIRTIO_CONSOLE_STATE);
#define STATE_SELF struct virtio_console_state
STATE_SCHEMA(virtio_console, 1, VIRTIO_CONSOLE_STATE);
#undef STATE_SELF

struct virtio_console {
	struct virtio_device vd;
	struct virtio_console_state state;
	struct console console;
	uint16_t cols, rows; /* what a reset gives */
	struct vq_chain chain;
};

struct console_options {
	char *log;
	uint64_t limit;
	bool stdio;
	uint64_t cols, rows;
};

static const struct opt console_options[] = {
	OPT_STRING(struct console_options, log, "log", 0, "FILE", "append the guest's output to FILE, older output to FILE.1"),
	OPT_SIZE(struct console_options, limit, "limit", 0, "SIZE", CONSOLE_LIMIT_MIN, CONSOLE_LIMIT_MAX, 1,
		 "how large each log file may become (1M)"),
	OPT_BOOL(struct console_options, stdio, "stdio", 0, "connect to standard input and output"),
	OPT_U64(struct console_options, cols, "cols", 0, "N", 1, UINT16_MAX, "width of the terminal (80)"),
	OPT_U64(struct console_options, rows, "rows", 0, "N", 1, UINT16_MAX, "height of the terminal (25)"),
	OPT_END,
};

static struct virtio_console *from_device(struct device *d)
{
	return container_of(d, struct virtio_console, vd.dev);
}

static void transmit(struct virtio_console *vc)
{
	uint64_t len = MIN(vc->chain.read_len, (uint64_t)CONSOLE_REQUEST_MAX);

	for (uint64_t at = 0; at < len;) {
		uint8_t buf[CONSOLE_COPY];
		size_t n = vq_chain_read(&vc->vd.vq[QUEUE_TRANSMIT], &vc->chain, at, buf, MIN(len - at, sizeof(buf)));

		if (n == 0)
			break;
		console_write(&vc->console, buf, n);
		at += n;
	}
}

/* Fill the guest's buffer with the input there is: bytes, 0 when there is none. */
static uint32_t receive(struct virtio_console *vc)
{
	uint64_t len = MIN(vc->chain.write_len, (uint64_t)CONSOLE_REQUEST_MAX);
	uint64_t at = 0;

	while (at < len) {
		uint8_t buf[CONSOLE_COPY];
		size_t n = console_read(&vc->console, buf, MIN(len - at, sizeof(buf)));

		if (n == 0)
			break;
		at += vq_chain_write(&vc->vd.vq[QUEUE_RECEIVE], &vc->chain, at, buf, n);
	}
	return (uint32_t)at;
}

static void serve_transmit(struct virtio_console *vc)
{
	struct virtio_queue *q = &vc->vd.vq[QUEUE_TRANSMIT];
	int served = 0, r;

	do {
		vq_disable_notify(q);
		while ((r = vq_pop(q, &vc->chain)) > 0) {
			transmit(vc);
			vq_push(q, vc->chain.head, 0);
			if (++served == CONSOLE_BURST) {
				virtio_kick(&vc->vd, QUEUE_TRANSMIT);
				virtio_signal_queue(&vc->vd, QUEUE_TRANSMIT);
				return;
			}
		}
	} while (r == 0 && vq_enable_notify(q));
	virtio_signal_queue(&vc->vd, QUEUE_TRANSMIT);
	if (r < 0)
		virtio_fail(&vc->vd, "malformed transmit request");
}

static void serve_receive(struct virtio_console *vc)
{
	struct virtio_queue *q = &vc->vd.vq[QUEUE_RECEIVE];
	int r;

	do {
		while ((r = vq_pop(q, &vc->chain)) > 0) {
			uint32_t n = receive(vc);

			/* A buffer without room is given back; one with room waits for input. */
			if (n == 0 && vc->chain.write_len) {
				vq_unpop(q);
				virtio_signal_queue(&vc->vd, QUEUE_RECEIVE);
				return;
			}
			vq_push(q, vc->chain.head, n);
		}
		/* Out of buffers: hear of the next one. */
	} while (r == 0 && vq_enable_notify(q));
	virtio_signal_queue(&vc->vd, QUEUE_RECEIVE);
	if (r < 0)
		virtio_fail(&vc->vd, "malformed receive request");
}

static void console_queue_ready(struct virtio_device *vd, uint32_t q)
{
	struct virtio_console *vc = from_device(&vd->dev);

	if (q == QUEUE_TRANSMIT)
		serve_transmit(vc);
	else
		serve_receive(vc);
}

static void on_input(struct console *c)
{
	struct virtio_console *vc = container_of(c, struct virtio_console, console);

	device_lock(&vc->vd.dev);
	if (virtio_queue_live(&vc->vd, QUEUE_RECEIVE))
		serve_receive(vc);
	device_unlock(&vc->vd.dev);
}

static uint64_t console_features(struct virtio_device *vd)
{
	(void)vd;
	return F_SIZE | F_EMERG_WRITE;
}

/* Linux looks at the size only when it is told of a change. */
static void console_activate(struct virtio_device *vd)
{
	if (!vd->dev.quiesced) /* not after a load: it was told before */
		virtio_signal_config(vd);
}

static void console_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	const struct virtio_console_state *st = &from_device(&vd->dev)->state;
	const struct console_config c = {
		.cols = le16_make(st->cols),
		.rows = le16_make(st->rows),
		.max_nr_ports = le32_make(1),
	};

	memcpy(data, (const char *)&c + offset, len);
}

static void console_config_write(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len)
{
	(void)len;
	if (offset == offsetof(struct console_config, emerg_wr))
		console_write(&from_device(&vd->dev)->console, data, 1);
}

static int console_dev_open(struct device *d, const void *options, struct err *err)
{
	const struct console_options *o = options;
	struct virtio_console *vc = from_device(d);

	vc->cols = (uint16_t)(o->cols ? o->cols : 80);
	vc->rows = (uint16_t)(o->rows ? o->rows : 25);
	return console_open(&vc->console, &d->vm->loop, o->log, o->limit, o->stdio, on_input, err);
}

static void console_dev_close(struct device *d)
{
	console_close(&from_device(d)->console);
}

static void console_reset(struct device *d)
{
	struct virtio_console *vc = from_device(d);

	vc->state = (struct virtio_console_state){ .cols = vc->cols, .rows = vc->rows };
}

static int console_check(struct device *d, struct err *err)
{
	const struct virtio_console_state *st = &from_device(d)->state;

	if (st->cols == 0 || st->rows == 0)
		return err_set(err, -EINVAL, "a terminal of %u by %u characters is impossible", st->cols, st->rows);
	return 0;
}

static const struct virtio_ops console_virtio = {
	.device_id = 3,
	.nqueues_max = NQUEUES,
	.queue_size = 64,
	.features = console_features,
	.config_size = sizeof(struct console_config),
	.config_read = console_config_read,
	.config_write = console_config_write,
	.activate = console_activate,
	.queue_ready = console_queue_ready,
};

const struct device_ops virtio_console_device = {
	.name = "console",
	.help = "terminal hvc0 (virtio-console)",
	.bus = DEVICE_VIRTIO,
	.instances = 4,
	.instance_size = sizeof(struct virtio_console),
	.options = console_options,
	.opt_size = sizeof(struct console_options),
	.test_options = "cols=132,rows=43",
	.schema = &virtio_console_schema,
	.state_offset = offsetof(struct virtio_console, state),
	.virtio = &console_virtio,
	.open = console_dev_open,
	.reset = console_reset,
	.check = console_check,
	.close = console_dev_close,
};
