/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-gpu commands of any kind, most of them possible, and what must hold whatever a guest says.
 *
 * Input: operations: a command (kind, numbers from a small set or any, pieces of memory as its list, how it is split), guest memory
 * changed, a mode wanted, the state saved and loaded, a reset. What must hold: each command is answered; what scanouts and
 * cursors show lies in the display's memory, in a block that is there; memory and pieces that are in use are those of the resources;
 * after a reset all of it is free; what was saved is loaded, and shows the same.
 */
#include <stdlib.h>
#include <string.h>

#include "devices/backend/display_state.h"
#include "devices/virtio_gpu.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"
#include "tests/harness/driver.h"

enum { RAM = 1 << 20, IN = 256 << 10, OUT = IN + (64 << 10), PIXELS = 512 << 10, MAX_OPS = 100, ENTRIES_MAX = 40, ROOM = 2048 };
enum { OP_COMMAND, OP_COMMAND_2, OP_COMMAND_3, OP_MEMORY, OP_MODE, OP_RELOAD, OP_RESET, OP_PAUSE, NOPS };

struct state {
	struct machine m;
	struct driver d;
	struct virtio_gpu *gpu;
	uint64_t idle; /* bytes of the display's memory that are always in use */
};

struct words {
	uint8_t b[128 + ENTRIES_MAX * 16];
	size_t n;
};

/* Small numbers mostly, and now and then the ones that overflow. */
static uint32_t number(struct fuzz_input *in)
{
	static const uint32_t odd[] = { 0, 1, 63, 64, 65, 256, 4096, 8192, 8193, 16384, 16385, 0x40000000, 0x7fffffff, 0x80000000, UINT32_MAX - 63, UINT32_MAX };
	uint8_t v = fuzz_u8(in);

	if (v < 200)
		return v;
	return v < 250 ? odd[v % ARRAY_SIZE(odd)] : fuzz_u32(in);
}

static void put(struct words *w, uint32_t v)
{
	le32_store(w->b + w->n, v);
	w->n += 4;
}

static void put_entries(struct words *w, struct fuzz_input *in, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t how = fuzz_u8(in);

		put(w, how < 250 ? PIXELS + (how & 0x7fu) * 2048 : fuzz_u32(in));
		put(w, how == 255);
		put(w, how & 0x80 ? number(in) : 16384);
		put(w, 0);
	}
}

/* The words of a command behind its header: n of them any numbers, then its list. */
static void command(struct state *s, struct fuzz_input *in)
{
	static const struct {
		uint16_t type;
		uint8_t words;
		uint8_t count; /* which word says how many pieces there are, from 1; 0: none */
	} kinds[] = {
		{ 0x100, 0, 0 }, { 0x101, 4, 0 }, { 0x102, 2, 0 }, { 0x103, 6, 0 }, { 0x104, 6, 0 }, { 0x105, 8, 0 }, { 0x106, 2, 2 },
		{ 0x107, 2, 0 }, { 0x108, 2, 0 }, { 0x109, 2, 0 }, { 0x10a, 2, 0 }, { 0x10b, 2, 0 }, { 0x10c, 8, 4 }, { 0x10d, 18, 0 },
		{ 0x300, 8, 0 }, { 0x301, 8, 0 }, { 0x201, 10, 0 },
	};
	uint8_t pick = fuzz_u8(in), shape = fuzz_u8(in);
	size_t k = pick % ARRAY_SIZE(kinds);
	uint32_t queue = (kinds[k].type >= 0x300) ^ (pick >= 250), listed = 0, used = 0;
	struct words w = { .n = 0 };

	put(&w, kinds[k].type);
	put(&w, shape & 3);
	for (int i = 0; i < 4; i++)
		put(&w, shape);
	for (uint8_t i = 1; i <= kinds[k].words; i++) {
		uint32_t v = number(in);

		if (kinds[k].type == 0x10c && (i == 2 || i == 3) && v < 190)
			v = i == 2 ? 1 : v & 3;
		if (kinds[k].type == 0x10c && i == 8 && v < 190)
			v = 0;
		if (kinds[k].type == 0x105 && i == 6 && v < 190)
			v = 0;
		if (i == kinds[k].count)
			listed = v = v < 200 ? v % ENTRIES_MAX : v;
		put(&w, v);
	}
	put_entries(&w, in, MIN(listed, (uint32_t)ENTRIES_MAX));
	if (shape & 0x80)
		w.n -= MIN(w.n, (size_t)fuzz_u8(in));
	machine_poke(&s->m, IN, w.b, w.n);
	uint32_t first = (uint32_t)MIN(w.n, (size_t)(shape & 0x40 ? fuzz_u8(in) : 200)), room = shape & 0x20 ? fuzz_u8(in) : ROOM;
	const struct driver_buf b[] = { { IN, first, false }, { IN + first, (uint32_t)w.n - first, false }, { OUT, room, true } };
	uint64_t heap = s->d.heap;

	if (shape & 0x10)
		driver_add_indirect(&s->d, queue, b, 3);
	else
		driver_add(&s->d, queue, b, 3);
	s->d.heap = heap;
	driver_kick(&s->d, queue);
	machine_settle(&s->m);
	FUZZ_REQUIRE(driver_used(&s->d, queue, NULL, &used));
	FUZZ_REQUIRE(room < 24 ? used == 0 : used == 24 || used == 408 || used == 1056);
	FUZZ_REQUIRE(used <= room && !driver_needs_reset(&s->d));
	if (used)
		FUZZ_REQUIRE(machine_peek32(&s->m, OUT) >= 0x1100 && machine_peek32(&s->m, OUT) <= 0x1205);
}

static void check_surface(const struct state *s, const struct display_scanout_state *sc)
{
	const struct display_surface *f = &sc->surface;

	if (sc->cursor_visible)
		FUZZ_REQUIRE(display_bytes(s->m.vm.display, sc->cursor_offset, GPU_CURSOR_BYTES));
	if (!f->width)
		return;
	FUZZ_REQUIRE(f->width >= DISPLAY_SIZE_MIN && f->width <= DISPLAY_SIZE_MAX && f->height >= DISPLAY_SIZE_MIN && f->height <= DISPLAY_SIZE_MAX);
	FUZZ_REQUIRE(gpu_format_is_known(f->format) && f->stride >= f->width * 4);
	FUZZ_REQUIRE(display_bytes(s->m.vm.display, f->offset, (uint64_t)f->stride * (f->height - 1) + f->width * 4));
}

static void check(const struct state *s)
{
	const struct gpu_resources *t = s->gpu->host.resources;
	uint64_t used = s->idle, chunks = 0, unused = 0;

	for (uint32_t i = 0; i < t->n; i++) {
		const struct gpu_resource *r = &t->slot[t->order[i]];
		uint64_t bytes = 0;
		uint32_t entries = 0;

		FUZZ_REQUIRE(i == 0 || r->st.id > t->slot[t->order[i - 1]].st.id);
		if (!gpu_is_blob(r))
			used += ALIGN_UP(gpu_pixel_bytes(r), (uint64_t)MEM_PAGE_SIZE);
		for (uint32_t c = r->backing.first; c; c = s->gpu->host.pool.chunk[c - 1].next) {
			bytes += s->gpu->host.pool.chunk[c - 1].bytes;
			entries += s->gpu->host.pool.chunk[c - 1].n;
			chunks++;
		}
		FUZZ_REQUIRE(bytes == r->backing.bytes && entries == r->backing.nentries);
	}
	for (uint32_t c = s->gpu->host.pool.free; c; c = s->gpu->host.pool.chunk[c - 1].next)
		unused++;
	FUZZ_REQUIRE(chunks + unused == s->gpu->host.pool.fresh);
	for (uint32_t i = 0; i < s->gpu->host.nscanouts; i++) {
		check_surface(s, &s->m.vm.display->scanout[i]);
		used += ALIGN_UP(s->gpu->host.shadow[i].size, (uint64_t)MEM_PAGE_SIZE);
	}
	FUZZ_REQUIRE(display_memory_used(s->m.vm.display) == used);
}

/* What is shown, in one number. */
static uint64_t picture(const struct state *s)
{
	uint64_t h = 1469598103934665603ull;

	for (uint32_t i = 0; i < s->gpu->host.nscanouts; i++) {
		const struct display_surface *f = &s->m.vm.display->scanout[i].surface;

		h = (h ^ f->width ^ (uint64_t)f->height << 16 ^ (uint64_t)f->format << 32) * 1099511628211ull;
		for (uint32_t y = 0; y < f->height; y++) {
			const uint8_t *p = display_bytes(s->m.vm.display, f->offset + (uint64_t)y * f->stride, f->width * 4);

			for (uint32_t x = 0; x < f->width; x++)
				h = (h ^ le32_load(p + 4 * x)) * 1099511628211ull;
		}
	}
	return h;
}

static void reload(struct state *s)
{
	struct device *d = &s->gpu->vd.dev;
	size_t room = device_saved_size(d);
	_cleanup_free_ uint8_t *blob = malloc(room);
	uint64_t before = picture(s);
	struct err err = ERR_INIT;
	long n;

	FUZZ_REQUIRE(blob && device_quiesce(d) == 0 && room <= device_saved_max(d));
	n = device_save(d, blob, room);
	FUZZ_REQUIRE(n > 0 && (size_t)n <= room);
	if (device_load(d, blob, (size_t)n, &err) < 0)
		fuzz_violated(err.text, __FILE__, __LINE__);
	device_resume(d);
	FUZZ_REQUIRE(picture(s) == before);
}

static void start(struct state *s)
{
	s->d.heap = KIB(16);
	driver_start(&s->d, VIRTIO_GPU_F_EDID | VIRTIO_GPU_F_RESOURCE_BLOB | VIRTIO_F_INDIRECT_DESC, 16);
}

static void step(struct state *s, struct fuzz_input *in)
{
	struct display *d = s->m.vm.display;
	uint8_t bytes[256], op = fuzz_u8(in);

	switch (op % NOPS) {
	case OP_COMMAND:
	case OP_COMMAND_2:
	case OP_COMMAND_3:
		command(s, in);
		break;
	case OP_MEMORY:
		memset(bytes, fuzz_u8(in), sizeof(bytes));
		machine_poke(&s->m, PIXELS + fuzz_u32(in) % (RAM - PIXELS - sizeof(bytes)), bytes, sizeof(bytes));
		break;
	case OP_MODE:
		op = fuzz_u8(in);
		d->gpu->mode(d->gpu_opaque, op & 3, 64 + fuzz_u16(in) % 8129, 64 + fuzz_u16(in) % 8129);
		break;
	case OP_RELOAD:
		reload(s);
		break;
	case OP_RESET:
		driver_set_reg(&s->d, MMIO_STATUS, 0);
		FUZZ_REQUIRE(display_memory_used(d) == s->idle);
		start(s);
		break;
	case OP_PAUSE:
		FUZZ_REQUIRE(device_quiesce(&s->gpu->vd.dev) == 0);
		device_resume(&s->gpu->vd.dev);
		break;
	default:
		break;
	}
	check(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Made once: a reset is a new beginning, but for the wanted modes. */
	static struct state s;
	struct fuzz_input in = { data, size };

	if (!s.gpu) {
		machine_init(&s.m, RAM);
		s.gpu = virtio_gpu_from(machine_add(&s.m, "gpu", "memory=2M,scanouts=2,width=64,height=64"));
		s.idle = display_memory_used(s.m.vm.display);
	}
	mem_discard(&s.m.vm.mem, GPA(0), RAM);
	driver_init(&s.d, &s.m, &s.gpu->vd.dev);
	start(&s);
	for (int i = 0; i < MAX_OPS && in.left; i++)
		step(&s, &in);
	driver_set_reg(&s.d, MMIO_STATUS, 0);
	FUZZ_REQUIRE(display_memory_used(s.m.vm.display) == s.idle);
	machine_irqs(&s.gpu->vd.dev);
	return 0;
}
