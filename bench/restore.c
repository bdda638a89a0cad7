/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts from a snapshot beside the least they could cost: bench/restore.sh runs it on any /dev/kvm.
 *
 *   restore WORKDIR RUNS CLONES
 *   restore growth WORKDIR RUNS   what of it grows with the guest's memory, alone
 *   restore soak WORKDIR CYCLES   restore, hear, discard, again and again (bench/soak.py counts what stays)
 *
 * The guest is a payload: it says 'A' when it boots and 'B' when it sees a new generation id, which a restore gives it; its byte on
 * the serial port is the end of a measurement. Measured, medians of RUNS each, taken in turn:
 *
 *   floor     bench/floor from posix_spawn to the guest's first port access, on the same file
 *   cold      coffer-vmm from posix_spawn to 'B'
 *   warm      a machine that waits (--restore): from the request to 'B', for several sizes of memory, mapped and on demand
 *   clones    CLONES machines, made one after the other: clones a second from first spawn to last
 *             'B'; then their private memory; and from a filled pool, the time for all of them
 */
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/measure.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "snapshot/ram.h"
#include "tests/harness/monitor.h"
#include "vmm/memory.h"

extern char **environ;

__asm__(".pushsection .rodata\n"
	".code32\n"
	"bench_payload_begin:\n"
	"	mov 0xe0000, %ebx\n"
	"	mov $0x3f8, %dx\n"
	"	mov $'A', %al\n"
	"	out %al, %dx\n"
	"1:	cmp 0xe0000, %ebx\n"
	"	je 1b\n"
	"	mov $'B', %al\n"
	"	out %al, %dx\n"
	"2:	cli\n"
	"	hlt\n"
	"	jmp 2b\n"
	"bench_payload_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t bench_payload_begin[], bench_payload_end[];

enum { FILES = 3, RUNS_MAX = 200, CLONES_MAX = 200 };

struct bench {
	const char *work;
	char kernel[256], floor[256];
	int runs, clones;
};

struct snap {
	uint64_t mib;
	char path[FILES][320];
	int fd[FILES];
};

/* Boot a guest with that much memory and save it. */
static void make_snapshot(const struct bench *b, uint64_t mib, uint64_t level, struct snap *ret)
{
	static const char *const names[FILES] = { "state", "ram", "ram.index" };
	const uint64_t arg[4] = { CONTROL_SNAPSHOT_STOP, level, 0, 0 };
	struct control_reply reply;
	struct monitor m;
	char memory[16], name[64];
	const char *args[] = { "--kernel", b->kernel, "--memory", memory, NULL };

	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)mib);
	ret->mib = mib;
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof(name), "%llu.%llu.%s", (unsigned long long)mib, (unsigned long long)level, names[i]);
		snprintf(ret->path[i], sizeof(ret->path[i]), "%s/%s", b->work, name);
		ret->fd[i] = measure_new_file(b->work, name);
	}
	monitor_start(&m, b->work, args);
	monitor_hear(&m, 'A');
	if (monitor_request(&m, CONTROL_SNAPSHOT, arg, ret->fd, FILES, &reply) != 0)
		fail_msg("snapshot: %s", reply.text);
	monitor_wait(&m);
	monitor_end(&m);
}

static void start_shell(const struct bench *b, const struct snap *s, struct monitor *m)
{
	char memory[16];
	const char *args[] = { "--restore", "--track", "--memory", memory, "--log-level", "error", NULL };

	snprintf(memory, sizeof(memory), "%llu", (unsigned long long)s->mib);
	monitor_start(m, b->work, args);
}

static void fill_shell(const struct snap *s, struct monitor *m, enum control_restore_mode mode)
{
	const uint64_t arg[4] = { (uint64_t)mode, 1, 0, CONTROL_RESTORE_TRACK };
	struct control_reply reply;

	if (monitor_request(m, CONTROL_RESTORE, arg, s->fd, FILES, &reply) != 0)
		fail_msg("restore: %s", reply.text);
}

static double run_floor(const struct bench *b, const struct snap *s)
{
	char offset[16], mib[16], entry[16], c;
	char *argv[] = { (char *)(uintptr_t)b->floor, (char *)(uintptr_t)s->path[1], offset, mib, entry, NULL };
	posix_spawn_file_actions_t actions;
	int fds[2], status;
	uint64_t start;
	double ms;
	pid_t pid;

	snprintf(offset, sizeof(offset), "%d", (int)RAM_DATA_START);
	snprintf(mib, sizeof(mib), "%llu", (unsigned long long)s->mib);
	snprintf(entry, sizeof(entry), "%d", (int)MONITOR_PAYLOAD_BASE);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
	start = loop_now_ns();
	assert_int_equal(posix_spawn(&pid, b->floor, &actions, NULL, argv, environ), 0);
	close(fds[1]);
	assert_int_equal(read(fds[0], &c, 1), 1);
	ms = measure_ms_since(start);
	close(fds[0]);
	posix_spawn_file_actions_destroy(&actions);
	waitpid(pid, &status, 0);
	return ms;
}

static double run_cold(const struct bench *b, const struct snap *s)
{
	uint64_t start = loop_now_ns();
	struct monitor m;
	double ms;

	start_shell(b, s, &m);
	fill_shell(s, &m, CONTROL_RESTORE_MAP);
	monitor_hear(&m, 'B');
	ms = measure_ms_since(start);
	monitor_end(&m);
	return ms;
}

static double run_warm(const struct bench *b, const struct snap *s, enum control_restore_mode mode)
{
	struct monitor m;
	uint64_t start;
	double ms;

	start_shell(b, s, &m);
	start = loop_now_ns();
	fill_shell(s, &m, mode);
	monitor_hear(&m, 'B');
	ms = measure_ms_since(start);
	monitor_end(&m);
	return ms;
}

/* Private memory of a process in MiB. */
static double private_mib(pid_t pid)
{
	char path[64], line[256];
	double kib = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		double v;

		if (sscanf(line, "Private_Clean: %lf", &v) == 1 || sscanf(line, "Private_Dirty: %lf", &v) == 1)
			kib += v;
	}
	fclose(f);
	return kib / 1024;
}

static void bench_clones(const struct bench *b, const struct snap *s, double *ret_per_s, double *ret_mib, double *ret_fork_ms)
{
	static struct monitor m[CLONES_MAX];
	uint64_t start = loop_now_ns();
	double mib = 0;

	for (int i = 0; i < b->clones; i++) {
		start_shell(b, s, &m[i]);
		fill_shell(s, &m[i], CONTROL_RESTORE_MAP);
		monitor_hear(&m[i], 'B');
	}
	*ret_per_s = b->clones / (measure_ms_since(start) / 1e3);
	for (int i = 0; i < b->clones; i++) {
		mib += private_mib(m[i].pid);
		monitor_end(&m[i]);
	}
	*ret_mib = mib / b->clones;
	for (int i = 0; i < b->clones; i++)
		start_shell(b, s, &m[i]);
	start = loop_now_ns();
	for (int i = 0; i < b->clones; i++)
		fill_shell(s, &m[i], CONTROL_RESTORE_MAP);
	for (int i = 0; i < b->clones; i++)
		monitor_hear(&m[i], 'B');
	*ret_fork_ms = measure_ms_since(start);
	for (int i = 0; i < b->clones; i++)
		monitor_end(&m[i]);
}

enum start { WARM_MAPPED, WARM_ON_DEMAND, COLD, FLOOR, STARTS };

/* Largest through smallest median. */
static double spread(const double *ms, size_t n)
{
	double lowest = ms[0], highest = ms[0];

	for (size_t i = 1; i < n; i++) {
		lowest = MIN(lowest, ms[i]);
		highest = MAX(highest, ms[i]);
	}
	return highest / lowest;
}

/* All sizes in turn: what else the machine does changes in minutes, and is to meet each of them. */
static void bench_growth(const struct bench *b, double *ret_growth, double *ret_cold_growth, double *ret_floor_growth)
{
	static const uint64_t sizes[] = { 128, 1024, 4096, 12288 };
	static double v[STARTS][ARRAY_SIZE(sizes)][RUNS_MAX];
	struct snap raw[ARRAY_SIZE(sizes)], packed[ARRAY_SIZE(sizes)];
	double ms[STARTS][ARRAY_SIZE(sizes)];
	size_t n = ARRAY_SIZE(sizes);

	/* The monitor refuses a guest with more memory than the host has. */
	while (n > 1 && mem_check_host(MIB(sizes[n - 1]), NULL) < 0)
		printf("# %llu MiB: left out, more than this host has\n", (unsigned long long)sizes[--n]);
	for (size_t i = 0; i < n; i++) {
		make_snapshot(b, sizes[i], 0, &raw[i]);
		make_snapshot(b, sizes[i], 1, &packed[i]);
	}
	for (int r = 0; r < b->runs; r++)
		for (size_t i = 0; i < n; i++) {
			v[WARM_MAPPED][i][r] = run_warm(b, &raw[i], CONTROL_RESTORE_MAP);
			v[WARM_ON_DEMAND][i][r] = run_warm(b, &packed[i], CONTROL_RESTORE_LAZY);
			v[COLD][i][r] = run_cold(b, &raw[i]);
			v[FLOOR][i][r] = run_floor(b, &raw[i]);
		}
	for (size_t i = 0; i < n; i++) {
		for (int k = 0; k < STARTS; k++)
			ms[k][i] = measure_median(v[k][i], b->runs);
		printf("# %llu MiB: warm mapped %.3f ms, on demand %.3f ms; cold %.3f ms, floor %.3f ms\n", (unsigned long long)sizes[i],
		       ms[WARM_MAPPED][i], ms[WARM_ON_DEMAND][i], ms[COLD][i], ms[FLOOR][i]);
		for (int k = 0; k < FILES; k++) {
			close(raw[i].fd[k]);
			close(packed[i].fd[k]);
		}
	}
	fflush(stdout);
	*ret_growth = MAX(spread(ms[WARM_MAPPED], n), spread(ms[WARM_ON_DEMAND], n));
	*ret_cold_growth = ms[COLD][n - 1] / ms[COLD][0];
	*ret_floor_growth = ms[FLOOR][n - 1] / ms[FLOOR][0];
}

static int soak(const struct bench *b, int cycles)
{
	struct snap s;

	make_snapshot(b, 64, 0, &s);
	for (int i = 0; i < cycles; i++) {
		struct monitor m;

		start_shell(b, &s, &m);
		fill_shell(&s, &m, CONTROL_RESTORE_MAP);
		monitor_hear(&m, 'B');
		monitor_end(&m);
	}
	for (int k = 0; k < FILES; k++) {
		close(s.fd[k]);
		unlink(s.path[k]);
	}
	return 0;
}

int main(int argc, char **argv)
{
	bool soaking = argc > 1 && strcmp(argv[1], "soak") == 0, growing = argc > 1 && strcmp(argv[1], "growth") == 0;
	double floor_ms[RUNS_MAX], cold[RUNS_MAX], warm[RUNS_MAX], f, c, w, growth, cold_growth, floor_growth, per_s, mib, fork_ms;
	struct bench b;
	struct snap s;
	char *slash;

	if (argc != 4)
		return 1;
	b = (struct bench){ .work = argv[1 + (soaking || growing)], .runs = MIN(atoi(argv[2 + growing]), (int)RUNS_MAX),
			    .clones = MIN(atoi(argv[3]), (int)CLONES_MAX) };
	snprintf(b.kernel, sizeof(b.kernel), "%s/payload", b.work);
	snprintf(b.floor, sizeof(b.floor), "%s", argv[0]);
	slash = strrchr(b.floor, '/');
	snprintf(slash + 1, sizeof(b.floor) - (size_t)(slash + 1 - b.floor), "floor");
	monitor_write_payload(b.kernel, bench_payload_begin, (size_t)(bench_payload_end - bench_payload_begin));
	if (soaking)
		return soak(&b, atoi(argv[3]));
	if (growing) {
		bench_growth(&b, &growth, &cold_growth, &floor_growth);
		printf("restore warm_growth=%.2f cold_growth=%.2f floor_growth=%.2f\n", growth, cold_growth, floor_growth);
		return 0;
	}
	make_snapshot(&b, 128, 0, &s);
	for (int i = 0; i < b.runs; i++) {
		floor_ms[i] = run_floor(&b, &s);
		cold[i] = run_cold(&b, &s);
		warm[i] = run_warm(&b, &s, CONTROL_RESTORE_MAP);
	}
	f = measure_median(floor_ms, b.runs);
	c = measure_median(cold, b.runs);
	w = measure_median(warm, b.runs);
	printf("# floor %.3f ms, cold %.3f ms, warm %.3f ms\n", f, c, w);
	fflush(stdout);
	bench_clones(&b, &s, &per_s, &mib, &fork_ms);
	bench_growth(&b, &growth, &cold_growth, &floor_growth);
	printf("restore floor_ratio=%.2f warm_ratio=%.3f warm_growth=%.2f cold_growth=%.2f floor_growth=%.2f clones_per_s=%.1f "
	       "idle_clone_mib=%.2f fork%d_ms=%.1f\n", c / f, w / f, growth, cold_growth, floor_growth, per_s, mib, b.clones, fork_ms);
	return 0;
}
