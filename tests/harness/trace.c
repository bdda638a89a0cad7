/* SPDX-License-Identifier: Apache-2.0 */
/* Random traces: see trace.h. */
#include "tests/harness/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/le.h"
#include "lib/util.h"

enum { RINGS = 64 << 10, TABLES = 384 << 10, BUFFERS = 512 << 10, MAX_BUFS = 6, MAX_LEN = 8192 };

struct text {
	char *buf;
	size_t len;
};

static void __attribute__((format(printf, 2, 3))) say(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (!t->buf)
		return;
	va_start(ap, fmt);
	n = vsnprintf(t->buf, t->len, fmt, ap);
	va_end(ap);
	if (n > 0 && (size_t)n < t->len) {
		t->buf += n;
		t->len -= (size_t)n;
	}
}

void trace_init(struct trace *t, struct machine *m, struct device *dev)
{
	driver_init(&t->d, m, dev);
}

struct trace trace_continue(const struct trace *t, struct machine *m, struct device *dev)
{
	struct trace n = *t;

	n.d.m = m;
	n.d.dev = dev;
	return n;
}

/* Values that mean something to a device more often than plain random ones. */
static uint64_t odd_value(struct rnd *r)
{
	static const uint64_t v[] = { 0, 1, 2, 3, 4, 7, 8, 15, 16, 0x80, 0xff, 512, 4096, 0xffff, 0x7fffffff,
				      0xffffffff, 1ull << 32, UINT64_MAX, BUFFERS, TRACE_RAM };

	switch (rnd_below(r, 3)) {
	case 0:
		return v[rnd_below(r, ARRAY_SIZE(v))];
	case 1:
		return rnd_below(r, 256);
	default:
		return rnd_next(r);
	}
}

static uint64_t access_device(struct trace *t, struct rnd *r, struct text *text)
{
	static const uint32_t reg[] = {
		MMIO_MAGIC,	    MMIO_DEVICE_FEATURES,  MMIO_DEVICE_FEATURES_SEL, MMIO_DRIVER_FEATURES,
		MMIO_DRIVER_FEATURES_SEL, MMIO_QUEUE_SEL,  MMIO_QUEUE_NUM_MAX,	     MMIO_QUEUE_NUM,
		MMIO_QUEUE_READY,   MMIO_QUEUE_NOTIFY,	   MMIO_INTERRUPT_STATUS,    MMIO_INTERRUPT_ACK,
		MMIO_STATUS,	    MMIO_QUEUE_DESC,	   MMIO_QUEUE_DRIVER,	     MMIO_QUEUE_DEVICE,
		MMIO_SHM_LEN,	    MMIO_CONFIG_GENERATION,
	};
	struct device *d = t->d.dev;
	uint32_t len = 1u << rnd_below(r, d->ops->bus == DEVICE_PIO ? 3 : 4);
	uint64_t off, v;

	if (d->ops->bus != DEVICE_VIRTIO) {
		off = rnd_below(r, MAX((uint32_t)d->ops->size, 1u));
		if (rnd_below(r, 2))
			len = 1;
	} else if (rnd_below(r, 3) == 0) {
		off = MMIO_CONFIG + rnd_below(r, MAX(d->ops->virtio->config_size, 4u) + 4);
	} else {
		off = reg[rnd_below(r, ARRAY_SIZE(reg))];
		if (rnd_below(r, 8))
			len = 4;
	}
	if (rnd_below(r, 2)) {
		v = machine_read(t->d.m, d, off, len);
		say(text, "read%u 0x%llx = 0x%llx", len * 8, (unsigned long long)off, (unsigned long long)v);
		return v;
	}
	v = odd_value(r);
	say(text, "write%u 0x%llx 0x%llx", len * 8, (unsigned long long)off, (unsigned long long)v);
	machine_write(t->d.m, d, off, v, len);
	return 0;
}

static void start(struct trace *t, struct rnd *r, struct text *text)
{
	uint64_t offered = driver_offered(&t->d);
	uint64_t features = rnd_below(r, 2) ? offered : offered & rnd_next(r);
	uint16_t size = (uint16_t)(2u << rnd_below(r, 5));

	t->d.heap = RINGS;
	driver_start(&t->d, features, size);
	say(text, "start with features 0x%llx, queues of %u", (unsigned long long)features, size);
}

static void rubbish(struct trace *t, struct rnd *r, uint64_t at, uint32_t len)
{
	uint8_t b[64];

	while (len) {
		uint32_t n = MIN(len, (uint32_t)sizeof(b));

		for (uint32_t i = 0; i < n; i++)
			b[i] = (uint8_t)rnd_next(r);
		machine_poke(t->d.m, at, b, n);
		at += n;
		len -= n;
	}
}

/* A buffer begins with small little-endian words, as most headers do. */
static void fill(struct trace *t, struct rnd *r, uint64_t at, uint32_t len)
{
	for (uint32_t i = 0; i + 4 <= len && i < 64; i += 4) {
		uint8_t b[4];

		le32_store(b, (uint32_t)odd_value(r) & (rnd_below(r, 4) ? 0xf : UINT32_MAX));
		machine_poke(t->d.m, at + i, b, sizeof(b));
	}
}

static uint32_t pick_queue(struct trace *t, struct rnd *r)
{
	uint32_t q = rnd_below(r, MAX(virtio_from_device(t->d.dev)->nqueues, 1u));

	return t->d.q[q].size ? q : VIRTIO_MAX_QUEUES;
}

static void request(struct trace *t, struct rnd *r, struct text *text)
{
	static const uint32_t lens[] = { 0, 1, 4, 8, 12, 16, 44, 64, 512, 1024, 4096, MAX_LEN };
	struct driver_buf b[MAX_BUFS];
	uint16_t n = (uint16_t)(1 + rnd_below(r, MAX_BUFS));
	uint16_t nread = (uint16_t)rnd_below(r, n + 1u);
	uint32_t q = pick_queue(t, r);

	if (q == VIRTIO_MAX_QUEUES)
		return;
	say(text, "queue %u:", q);
	for (uint16_t i = 0; i < n; i++) {
		b[i] = (struct driver_buf){
			.gpa = BUFFERS + (uint64_t)i * MAX_LEN * 2 + (rnd_below(r, 2) ? 0 : rnd_below(r, 64)),
			.len = lens[rnd_below(r, ARRAY_SIZE(lens))],
			.write = i >= nread,
		};
		if (i == 0 && nread && rnd_below(r, 2))
			b[i].len = 16; /* what a block request begins with */
		fill(t, r, b[i].gpa, b[i].len);
		say(text, " %s%u", b[i].write ? "w" : "r", b[i].len);
	}
	if (nread && trace_request(t->d.dev->ops) && rnd_below(r, 8)) {
		uint8_t bytes[TRACE_REQUEST_MAX];

		b[0].len = (uint32_t)trace_request(t->d.dev->ops)(r, q, bytes);
		machine_poke(t->d.m, b[0].gpa, bytes, b[0].len);
	}
	if (rnd_below(r, 40) == 0)
		b[rnd_below(r, n)].gpa = odd_value(r);
	/* A ring is never filled beyond its size, or the index would look broken most of the time. */
	if (t->d.q[q].avail_idx - machine_peek16(t->d.m, t->d.q[q].used + 2) >= t->d.q[q].size)
		return;
	if (n > t->d.q[q].size || (t->d.features & VIRTIO_F_INDIRECT_DESC && rnd_below(r, 2))) {
		uint64_t heap = t->d.heap;

		t->d.heap = TABLES + rnd_below(r, 16) * 256;
		driver_add_indirect(&t->d, q, b, n);
		t->d.heap = heap;
	} else {
		driver_add(&t->d, q, b, n);
	}
	if (rnd_below(r, 4)) {
		say(text, ", kick");
		driver_kick(&t->d, q);
	}
}

static uint64_t acknowledge(struct trace *t, struct text *text)
{
	uint32_t v = driver_reg(&t->d, MMIO_INTERRUPT_STATUS);

	say(text, "acknowledge %u", v);
	driver_set_reg(&t->d, MMIO_INTERRUPT_ACK, v);
	return v;
}

uint64_t trace_step(struct trace *t, uint64_t seed, char *buf, size_t len)
{
	struct rnd r = { seed };
	struct text text = { buf, len };
	uint32_t what = rnd_below(&r, 100);
	trace_event_fn *event = trace_event(t->d.dev->ops);
	uint32_t q;

	if (event && rnd_below(&r, 8) == 0) {
		say(&text, "event of the host");
		event(t->d.dev, &r);
		machine_settle(t->d.m);
		return 0;
	}
	if (t->d.dev->ops->bus != DEVICE_VIRTIO)
		return access_device(t, &r, &text);
	if (what < 15)
		return access_device(t, &r, &text);
	if (what < 25)
		return acknowledge(t, &text);
	if (what < 33 || !t->d.q[0].size) {
		start(t, &r, &text);
	} else if (what < 35) {
		say(&text, "rubbish");
		rubbish(t, &r, RINGS + rnd_below(&r, 8192), 1 + rnd_below(&r, 64));
	} else if (what < 42) {
		q = rnd_below(&r, VIRTIO_MAX_QUEUES);
		say(&text, "kick %u", q);
		driver_kick(&t->d, q);
	} else {
		request(t, &r, &text);
	}
	return 0;
}
