/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk's own cost: random reads of 4 KiB from a file in the page cache, 32 at a time, through the whole device
 * (rings in guest memory, request, backend, completion) and by a bare io_uring loop on the same file. The two take turns and
 * the medians are compared: rates by the clock, the ratio by processor time, which other load on the machine does not change.
 * No guest, no KVM: exits and interrupts are not in it; the fake driver's own work is.
 *
 * Usage: blk FILE. Last line: `blk device_kiops=N floor_kiops=N ratio=N`, ratio being the floor's time over the device's.
 */
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "bench/measure.h"
#include "devices/virtio_blk.h"
#include "lib/util.h"
#include "tests/harness/driver.h"

enum { DEPTH = 32, BLOCK = 4096, BATCHES = 2000, ROUNDS = 9 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

struct cost {
	double rate; /* reads a second */
	double cpu;  /* seconds a read */
};

struct start {
	uint64_t ns;
	clock_t cpu;
};

static struct start begin(void)
{
	return (struct start){ loop_now_ns(), clock() };
}

static struct cost end(struct start s)
{
	const double n = BATCHES * DEPTH;

	return (struct cost){ n / ((double)(loop_now_ns() - s.ns) / 1e9), (double)(clock() - s.cpu) / CLOCKS_PER_SEC / n };
}

/* --- the floor --------------------------------------------------------- */

static struct cost run_floor(int fd, uint64_t blocks, uint8_t *memory)
{
	static struct io_uring ring;
	static bool made;
	struct rnd rnd = { 1 };
	struct start t0;

	if (!made && (io_uring_queue_init(DEPTH, &ring, 0) < 0 || io_uring_register_files(&ring, &fd, 1) < 0))
		die("io_uring");
	made = true;
	t0 = begin();
	for (int b = 0; b < BATCHES; b++) {
		struct io_uring_cqe *cqe;

		for (unsigned i = 0; i < DEPTH; i++) {
			struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);

			io_uring_prep_read(sqe, 0, memory + i * BLOCK, BLOCK, rnd_next(&rnd) % blocks * BLOCK);
			io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
		}
		if (io_uring_submit_and_wait(&ring, DEPTH) != DEPTH)
			die("io_uring_enter");
		for (unsigned i = 0; i < DEPTH; i++) {
			if (io_uring_wait_cqe(&ring, &cqe) < 0 || cqe->res != BLOCK)
				die("read");
			io_uring_cqe_seen(&ring, cqe);
		}
	}
	return end(t0);
}

/* --- the device -------------------------------------------------------- */

struct bench {
	struct machine m;
	struct driver d;
	struct device *dev;
	uint64_t header, data, status;
};

static void open_device(struct bench *b, const char *path)
{
	char options[4200];

	machine_init(&b->m, MIB(64));
	snprintf(options, sizeof(options), "path=%s,ro", path);
	b->dev = machine_add(&b->m, "blk", options);
	driver_init(&b->d, &b->m, b->dev);
	driver_start(&b->d, VIRTIO_F_EVENT_IDX, 128);
	b->header = driver_alloc(&b->d, 16 * DEPTH, 16);
	b->status = driver_alloc(&b->d, DEPTH, 16);
	b->data = driver_alloc(&b->d, DEPTH * BLOCK, BLOCK);
}

/* As a driver does: the chains stay, only the sectors change. */
static void add_chains(struct bench *b)
{
	uint64_t desc = b->d.q[0].desc;

	for (uint16_t i = 0; i < DEPTH; i++) {
		driver_desc(&b->d, desc, (uint16_t)(3 * i), b->header + 16 * i, 16, DRIVER_DESC_NEXT, (uint16_t)(3 * i + 1));
		driver_desc(&b->d, desc, (uint16_t)(3 * i + 1), b->data + BLOCK * i, BLOCK, DRIVER_DESC_NEXT | DRIVER_DESC_WRITE,
			    (uint16_t)(3 * i + 2));
		driver_desc(&b->d, desc, (uint16_t)(3 * i + 2), b->status + i, 1, DRIVER_DESC_WRITE, 0);
	}
}

static struct cost run_device(struct bench *b, uint64_t blocks)
{
	struct virtio_device *vd = virtio_from_device(b->dev);
	struct rnd rnd = { 1 };
	struct start t0 = begin();

	for (int n = 0; n < BATCHES; n++) {
		int done = 0;

		for (uint16_t i = 0; i < DEPTH; i++) {
			struct virtio_blk_header h = { .sector = le64_make(rnd_next(&rnd) % blocks * (BLOCK / BLOCK_SECTOR)) };

			machine_poke(&b->m, b->header + 16 * i, &h, sizeof(h));
			driver_publish(&b->d, 0, (uint16_t)(3 * i));
		}
		device_lock(b->dev);
		virtio_notify(vd, 0);
		device_unlock(b->dev);
		for (;;) {
			uint32_t len;

			while (driver_used(&b->d, 0, NULL, &len)) {
				if (len != BLOCK + 1)
					die("device");
				done++;
			}
			if (done == DEPTH)
				break;
			loop_step(&b->m.vm.loop, -1);
		}
	}
	return end(t0);
}

int main(int argc, char **argv)
{
	static struct bench b;
	static uint8_t memory[DEPTH * BLOCK] __attribute__((aligned(BLOCK)));
	double floor_rate[ROUNDS], device_rate[ROUNDS], ratio[ROUNDS];
	struct stat st;
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_size < BLOCK)
		die("usage: blk FILE");
	open_device(&b, argv[1]);
	add_chains(&b);
	for (int i = 0; i < ROUNDS; i++) {
		struct cost f = run_floor(fd, (uint64_t)st.st_size / BLOCK, memory);
		struct cost d = run_device(&b, (uint64_t)st.st_size / BLOCK);

		floor_rate[i] = f.rate;
		device_rate[i] = d.rate;
		ratio[i] = f.cpu / d.cpu;
	}
	printf("blk device_kiops=%.0f floor_kiops=%.0f ratio=%.2f\n", measure_median(device_rate, ROUNDS) / 1e3,
	       measure_median(floor_rate, ROUNDS) / 1e3, measure_median(ratio, ROUNDS));
	machine_finish(&b.m);
	return 0;
}
