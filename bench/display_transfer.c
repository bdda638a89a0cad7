/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A picture of the guest's on its way to the display: TRANSFER_TO_HOST_2D of 1280 x 800 pixels through the whole device (rings in guest
 * memory, command, backing, display's memory), against memcpy of the same pages. They are scattered one by one, the worst a guest can
 * have: processors fetch ahead within a page only, so one copy of as many bytes in one piece is given for comparison.
 * All take turns, in rounds of a few milliseconds, so that what else the machine does meets all of them; by processor time.
 *
 * Last line: `display_transfer transfer_gbps=N memcpy_gbps=N one_piece_gbps=N transfer_ratio=N`: medians; the ratio is that of
 * memcpy's time to the device's in each round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/measure.h"
#include "devices/virtio_gpu.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { WIDTH = 1280, HEIGHT = 800, BYTES = WIDTH * HEIGHT * 4, PAGES = BYTES / 4096, ROUNDS = 101, TURNS = 10 };
enum { IN = 4 << 20, OUT = 5 << 20, PIXELS = 16 << 20, ONE_PIECE = 32 << 20, RAM = 64 << 20 };

struct bench {
	struct machine m;
	struct driver d;
	struct virtio_gpu *gpu;
	const uint8_t *pixels, *one_piece; /* in guest memory */
	uint8_t *dst;                      /* in the display's */
};

static void command(struct bench *b, const void *c, size_t len)
{
	const struct driver_buf buf[] = { { IN, (uint32_t)len, false }, { OUT, 24, true } };

	machine_poke(&b->m, IN, c, len);
	driver_add(&b->d, GPU_QUEUE_CONTROL, buf, 2);
	driver_kick(&b->d, GPU_QUEUE_CONTROL);
	if (!driver_used(&b->d, GPU_QUEUE_CONTROL, NULL, NULL) || machine_peek32(&b->m, OUT) != VIRTIO_GPU_RESP_OK_NODATA) {
		fprintf(stderr, "command 0x%x: 0x%x\n", le32_load(c), machine_peek32(&b->m, OUT));
		exit(1);
	}
}

/* Every page has another neighbour than in the picture. */
static uint64_t page_at(uint32_t i)
{
	return PIXELS + (uint64_t)(i * 389 % PAGES) * 8192;
}

static void prepare(struct bench *b)
{
	static struct {
		struct gpu_attach a;
		struct gpu_entry_wire e[PAGES];
	} attach;
	const struct gpu_create_2d create = { { .type = le32_make(VIRTIO_GPU_CMD_RESOURCE_CREATE_2D) }, le32_make(1), le32_make(DISPLAY_B8G8R8X8),
					      le32_make(WIDTH), le32_make(HEIGHT) };
	uint8_t page[4096];

	machine_init(&b->m, RAM);
	b->gpu = virtio_gpu_from(machine_add(&b->m, "gpu", NULL));
	driver_init(&b->d, &b->m, &b->gpu->vd.dev);
	driver_start(&b->d, VIRTIO_F_EVENT_IDX | VIRTIO_F_INDIRECT_DESC, 0);
	command(b, &create, sizeof(create));
	attach.a = (struct gpu_attach){ { .type = le32_make(VIRTIO_GPU_CMD_RESOURCE_ATTACH_BACKING) }, le32_make(1), le32_make(PAGES) };
	for (uint32_t i = 0; i < PAGES; i++) {
		memset(page, (int)i, sizeof(page));
		machine_poke(&b->m, page_at(i), page, sizeof(page));
		machine_poke(&b->m, ONE_PIECE + (uint64_t)i * sizeof(page), page, sizeof(page));
		attach.e[i] = (struct gpu_entry_wire){ .addr = le64_make(page_at(i)), .length = le32_make(4096) };
	}
	command(b, &attach, sizeof(attach));
}

static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * The mean of TURNS turns, each by itself: a turn of the device goes through the main loop, whose system calls cost what they cost and
 * may leave address translations to be found anew (on a host that is virtual itself they do). So before a turn of memcpy the loop is asked,
 * too, and that is not counted; nor is a first turn, which brings the pages into the caches.
 */
static double measure(struct bench *b, void (*turn)(struct bench *b))
{
	double sum = 0;

	for (int i = 0; i <= TURNS; i++) {
		double start;

		machine_settle(&b->m);
		start = cpu_now();
		turn(b);
		__asm__ volatile("" ::: "memory");
		if (i > 0)
			sum += cpu_now() - start;
	}
	return sum / TURNS;
}

static void by_device(struct bench *b)
{
	const struct gpu_transfer c = { .h = { .type = le32_make(VIRTIO_GPU_CMD_TRANSFER_TO_HOST_2D) }, .resource_id = le32_make(1),
					.r = { .width = le32_make(WIDTH), .height = le32_make(HEIGHT) } };

	command(b, &c, sizeof(c));
}

static const uint8_t *host_view(struct bench *b, uint64_t gpa, uint32_t len)
{
	struct iovec iov;

	if (mem_iov(&b->m.vm.mem, GPA(gpa), len, false, &iov) < 0)
		exit(1);
	return iov.iov_base;
}

/* The same pages, one after another, by the function: as the device, it does not know when it is compiled how many bytes they will be. */
static void by_memcpy(struct bench *b)
{
	static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

	for (uint32_t p = 0; p < PAGES; p++)
		copy(b->dst + (size_t)p * 4096, b->pixels + (page_at(p) - PIXELS), 4096);
}

/* As many bytes in one piece, which no guest has. */
static void by_one_memcpy(struct bench *b)
{
	memcpy(b->dst, b->one_piece, BYTES);
}

int main(void)
{
	static struct bench b;
	static double device[ROUNDS], copy[ROUNDS], one[ROUNDS], ratio[ROUNDS];
	int64_t at;

	prepare(&b);
	at = display_alloc(b.m.vm.display, BYTES); /* of the same kind of memory */
	b.dst = at < 0 ? NULL : display_bytes(b.m.vm.display, (uint64_t)at, BYTES);
	if (!b.dst)
		return 1;
	b.pixels = host_view(&b, PIXELS, 2 * BYTES);
	b.one_piece = host_view(&b, ONE_PIECE, BYTES);
	for (int i = 0; i < ROUNDS; i++) {
		device[i] = measure(&b, by_device);
		copy[i] = measure(&b, by_memcpy);
		one[i] = measure(&b, by_one_memcpy);
		ratio[i] = copy[i] / device[i];
	}
	printf("display_transfer transfer_gbps=%.2f memcpy_gbps=%.2f one_piece_gbps=%.2f transfer_ratio=%.2f\n",
	       BYTES / measure_median(device, ROUNDS) / 1e9, BYTES / measure_median(copy, ROUNDS) / 1e9,
	       BYTES / measure_median(one, ROUNDS) / 1e9, measure_median(ratio, ROUNDS));
	machine_finish(&b.m);
	return 0;
}
