/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every registered device against an arbitrary guest.
 *
 * Input: the device's name in 8 bytes as for state_fuzz, then what the guest does: register accesses of all widths, writes
 * to its memory, kicks, a start as a driver does it, pauses, saving and loading. Whatever it does, the device may at most ask
 * for a reset.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness/testdev.h"
#include "tests/harness/trace.h"

enum { NAME_LEN = 8, MAX_OPS = 200, MAX_DEVICES = 32, RINGS = 64 << 10 };
enum { OP_READ, OP_WRITE, OP_CONFIG, OP_START, OP_MEMORY, OP_CHAIN, OP_KICK, OP_PAUSE, OP_RELOAD, OP_EVENT, NOPS };

static const struct device_ops *pick(const uint8_t *name, size_t *ret_i)
{
	for (size_t i = 0; i < device_registry_count; i++) {
		if (strncmp(device_registry[i]->name, (const char *)name, NAME_LEN) == 0) {
			*ret_i = i + 1;
			return device_registry[i];
		}
	}
	*ret_i = name[0] % (device_registry_count + 1);
	return *ret_i ? device_registry[*ret_i - 1] : &testdev_device;
}

static void reload(struct device *d)
{
	size_t n = device_saved_size(d);
	_cleanup_free_ uint8_t *blob = malloc(n);
	struct err err = ERR_INIT;

	FUZZ_REQUIRE(blob && device_quiesce(d) == 0);
	long saved = device_save(d, blob, n);

	FUZZ_REQUIRE(saved > 0 && saved <= (long)n && n <= device_saved_max(d));
	/* No guest may bring its device into a state that cannot be restored. */
	if (device_load(d, blob, (size_t)saved, &err) < 0)
		fuzz_violated(err.text, __FILE__, __LINE__);
	device_resume(d);
}

static void chain(struct trace *t, struct fuzz_input *in)
{
	struct driver_buf b[4];
	uint8_t shape = fuzz_u8(in), write = fuzz_u8(in);
	uint32_t q = shape >> 4;
	uint16_t n = (uint16_t)(1 + (shape & 3));

	for (uint16_t i = 0; i < n; i++)
		b[i] = (struct driver_buf){
			.gpa = fuzz_u32(in) % (TRACE_RAM + 16), .len = fuzz_u16(in), .write = write >> i & 1
		};
	if (q >= VIRTIO_MAX_QUEUES || t->d.q[q].size < 4)
		return;
	if (shape & 8) {
		uint64_t heap = t->d.heap;

		driver_add_indirect(&t->d, q, b, n);
		t->d.heap = heap;
	} else {
		driver_add(&t->d, q, b, n);
	}
}

static void step(struct trace *t, struct fuzz_input *in)
{
	struct device *d = t->d.dev;
	bool virtio = d->ops->bus == DEVICE_VIRTIO;
	uint8_t op = fuzz_u8(in);
	uint32_t width = 1u << (op >> 6), at;
	uint8_t bytes[64];

	switch (op % NOPS) {
	case OP_READ:
		machine_read(t->d.m, d, fuzz_u16(in) % 0x200, width);
		break;
	case OP_WRITE:
		at = fuzz_u16(in) % 0x200;
		/* Most registers are of this width and alignment. */
		machine_write(t->d.m, d, virtio ? at & ~3u : at, fuzz_u32(in), virtio ? 4 : width);
		break;
	case OP_CONFIG:
		machine_write(t->d.m, d, (virtio ? MMIO_CONFIG : 0) + fuzz_u8(in), fuzz_u64(in), width);
		break;
	case OP_START:
		if (virtio) {
			t->d.heap = RINGS;
			driver_start(&t->d, fuzz_u32(in) & driver_offered(&t->d), (uint16_t)(4u << fuzz_u8(in) % 4));
		}
		break;
	case OP_MEMORY:
		at = fuzz_u32(in) % (TRACE_RAM - sizeof(bytes));
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = fuzz_u8(in);
		machine_poke(t->d.m, at, bytes, sizeof(bytes));
		break;
	case OP_CHAIN:
		if (virtio)
			chain(t, in);
		break;
	case OP_KICK:
		if (virtio)
			driver_kick(&t->d, op >> 4);
		break;
	case OP_PAUSE:
		FUZZ_REQUIRE(device_quiesce(d) == 0);
		device_resume(d);
		break;
	case OP_RELOAD:
		reload(d);
		break;
	case OP_EVENT:
		if (trace_event(d->ops)) {
			struct rnd r = { op };

			trace_event(d->ops)(d, &r);
		}
		break;
	default:
		break;
	}
}

/* A device that was made once and is brought back to its first state by loading that. */
struct bench {
	struct machine m;
	struct device *d;
	uint8_t *pristine;
	size_t len;
};

static void prepare(struct bench *b, const struct device_ops *ops)
{
	if (!b->d) {
		machine_init(&b->m, TRACE_RAM);
		FUZZ_REQUIRE(machine_try_add(&b->m, ops, ops->test_options, &b->d, NULL) == 0);
		size_t n = device_saved_size(b->d);

		b->pristine = malloc(n);
		FUZZ_REQUIRE(b->pristine && device_quiesce(b->d) == 0);
		b->len = (size_t)device_save(b->d, b->pristine, n);
		FUZZ_REQUIRE(b->len <= n);
	}
	mem_discard(&b->m.vm.mem, GPA(0), TRACE_RAM);
	FUZZ_REQUIRE(device_load(b->d, b->pristine, b->len, NULL) == 0);
	device_resume(b->d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bench benches[MAX_DEVICES];
	const struct device_ops *ops;
	struct fuzz_input in;
	struct trace t;
	struct bench *b;
	size_t i;

	if (size < NAME_LEN)
		return 0;
	in = (struct fuzz_input){ data + NAME_LEN, size - NAME_LEN };
	ops = pick(data, &i);
	FUZZ_REQUIRE(i < MAX_DEVICES);
	b = &benches[i];
	prepare(b, ops);
	trace_init(&t, &b->m, b->d);
	for (int n = 0; n < MAX_OPS && in.left; n++)
		step(&t, &in);
	FUZZ_REQUIRE(device_quiesce(b->d) == 0);
	machine_irqs(b->d);
	return 0;
}
