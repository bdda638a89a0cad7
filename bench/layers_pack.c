/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `coffer pack` does when the cut is made: a layer of what has changed becomes a compressed file with its checksums, beside the
 * zstd program on the same bytes, both with two threads at level 3, from the page cache into a new file, in turn; medians.
 *
 *   layers_pack DIR ROUNDS   DIR/raw: the bytes that have changed
 *
 *   pack_ratio     time of the pack / of `zstd -T2`; pack_cpu_ratio: of processor time
 *   pack_size      bytes of the file / of zstd's, whose blocks are larger: it cannot be read from the middle
 *   open64_ms      until 64 layers on one another, made of the first 32 MiB, are attached; open64_mib: what is resident for them then
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure.h"
#include "devices/backend/block_layers.h"
#include "devices/backend/lsmt.h"
#include "host/pack_layer.h"
#include "lib/le.h"
#include "lib/util.h"
#include "tests/harness/stack.h"

enum { ROUNDS_MAX = 99, LAYERS = 64, STACK_BYTES = 32 << 20 };

extern char **environ;

static void die(const char *what, const struct err *err)
{
	fprintf(stderr, "layers_pack: %s: %s\n", what, err && err->text[0] ? err->text : strerror(errno));
	exit(1);
}

static int file_at(const char *dir, const char *name, int flags)
{
	char path[4300];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
	if (fd < 0)
		die(path, NULL);
	return fd;
}

struct cost {
	double seconds, cpu;
	uint64_t bytes;
};

static double cpu_of(int who)
{
	struct rusage u;

	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static struct cost run_zstd(const char *dir)
{
	char in[4300], out[4300];
	char *argv[] = { "zstd", "-q", "-f", "-3", "-T2", "-o", out, in, NULL };
	double cpu = cpu_of(RUSAGE_CHILDREN);
	uint64_t since = loop_now_ns();
	struct stat st;
	int status;
	pid_t pid;

	snprintf(in, sizeof(in), "%s/layer", dir);
	snprintf(out, sizeof(out), "%s/zstd", dir);
	unlink(out);
	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0 || waitpid(pid, &status, 0) != pid || status != 0 ||
	    stat(out, &st) < 0)
		die("zstd", NULL);
	return (struct cost){ (double)(loop_now_ns() - since) / 1e9, cpu_of(RUSAGE_CHILDREN) - cpu, (uint64_t)st.st_size };
}

static struct cost run_pack(const char *dir, int fd)
{
	const struct zfile_options z = { .algo = ZFILE_ZSTD, .level = 3, .threads = 2 };
	const char *name = "layer";
	double cpu = cpu_of(RUSAGE_SELF);
	uint64_t since = loop_now_ns();
	struct image_layer layer;
	struct err err = ERR_INIT;
	char path[4300];
	int out;

	snprintf(path, sizeof(path), "%s/packed", dir);
	unlink(path);
	out = file_at(dir, "packed", O_CREAT | O_EXCL);
	if (pack_layer_file(&fd, &name, 1, &z, out, NULL, NULL, &layer, &err) < 0)
		die("pack", &err);
	close(out);
	return (struct cost){ (double)(loop_now_ns() - since) / 1e9, cpu_of(RUSAGE_SELF) - cpu, layer.bytes };
}

static double resident_mib(void)
{
	unsigned long size, resident = 0;
	FILE *f = fopen("/proc/self/statm", "re");

	if (!f || fscanf(f, "%lu %lu", &size, &resident) != 2)
		die("/proc/self/statm", NULL);
	fclose(f);
	return (double)resident * 4096 / 1048576;
}

/* In a process of its own, so that what it takes is new. */
static void open_many(int *fds, double ret[2])
{
	struct block_stack s = { .base_fd = -1, .layer_fd = fds, .nlayers = LAYERS, .top_data_fd = -1, .top_index_fd = -1 };
	struct block_config c = { .backend = "layers", .stack = &s, .ro = true, .depth = 128 };
	double *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid = shared == MAP_FAILED ? -1 : fork();
	int status;

	if (pid == 0) {
		double before = resident_mib();
		uint64_t since = loop_now_ns();
		struct err err = ERR_INIT;
		struct block *b;

		if (block_open(&c, &b, &err) < 0)
			die("open 64 layers", &err);
		shared[0] = (double)(loop_now_ns() - since) / 1e6;
		shared[1] = resident_mib() - before;
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		die("open 64 layers", NULL);
	memcpy(ret, shared, 2 * sizeof(*ret));
	munmap(shared, 4096);
}

static void many(const char *dir, const uint8_t *raw, uint64_t size, int rounds, double ret[2])
{
	double ms[ROUNDS_MAX], one[2];
	int fds[LAYERS];
	struct image_layer layer;
	struct err err = ERR_INIT;
	char name[32];

	for (unsigned k = 0; k < LAYERS; k++) {
		snprintf(name, sizeof(name), "many%u", k);
		fds[k] = file_at(dir, name, O_CREAT | O_TRUNC);
		if (stack_make_layer(raw, MIN(size, (uint64_t)STACK_BYTES), k, LAYERS, fds[k], &layer, &err) < 0)
			die("make 64 layers", &err);
	}
	for (int i = 0; i < rounds; i++) {
		open_many(fds, one);
		ms[i] = one[0];
	}
	ret[0] = measure_median(ms, rounds);
	ret[1] = one[1];
}

int main(int argc, char **argv)
{
	double time[ROUNDS_MAX], cpu[ROUNDS_MAX], mibs[ROUNDS_MAX], stack[2];
	int rounds = argc == 3 ? atoi(argv[2]) : 0;
	struct cost z = { 0 }, p = { 0 };
	struct err err = ERR_INIT;
	uint64_t size;
	uint8_t *m;
	int raw, fd;

	if (rounds < 1 || rounds > ROUNDS_MAX)
		die("usage: layers_pack DIR ROUNDS", NULL);
	raw = file_at(argv[1], "raw", 0);
	size = (uint64_t)lseek(raw, 0, SEEK_END) & ~4095ull;
	m = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, raw, 0);
	if (size < 1 << 20 || m == MAP_FAILED)
		die("DIR/raw", NULL);
	memset(m + 1024, 0, 1024); /* a superblock, without which nothing is packed */
	le16_store(m + 1024 + 0x38, 0xef53);
	le16_store(m + 1024 + 0x3a, 1);
	many(argv[1], m, size, rounds, stack);
	fd = file_at(argv[1], "layer", O_CREAT | O_TRUNC);
	if (lsmt_pack_raw(raw, size, fd, NULL, &err) < 0)
		die("make a layer", &err);
	munmap(m, size);
	for (int i = -1; i < rounds; i++) {
		z = run_zstd(argv[1]);
		p = run_pack(argv[1], fd);
		if (i < 0)
			continue; /* warm */
		time[i] = p.seconds / z.seconds;
		cpu[i] = p.cpu / z.cpu;
		mibs[i] = (double)size / 1048576 / p.seconds;
	}
	printf("mib=%llu pack_mibs=%.0f\n", (unsigned long long)size >> 20, measure_median(mibs, rounds));
	printf("pack_ratio=%.2f pack_cpu_ratio=%.2f pack_size=%.2f open64_ms=%.1f open64_mib=%.1f\n", measure_median(time, rounds),
	       measure_median(cpu, rounds), (double)p.bytes / (double)z.bytes, stack[0], stack[1]);
	return 0;
}
