/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long until a guest says something, here and in QEMU's microvm machine: bench/boot.sh runs it.
 *
 *   boot VMM KERNEL WORKDIR RUNS [MEMORY_MIB]
 *
 * Two guests, each started RUNS times by each monitor in turn, so that a slow moment hits both:
 * - a payload of a few instructions with a PVH note: exec to its byte on the serial port is the monitor's own time;
 * - KERNEL with an initramfs whose init writes one line and waits: exec to that line, VM exits until then (all of them,
 *   from KVM's debugfs), and what of the monitor is resident beside guest memory.
 *
 * The guests wait after their word and are killed, so that nothing is counted twice. QEMU runs as its documentation
 * recommends for short start times: no option ROMs, PIT, PIC or RTC, qboot as firmware.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/measure.h"
#include "lib/fd.h"
#include "lib/util.h"

extern char **environ;

#define EXITS_FILE "/sys/kernel/debug/kvm/exits"
#define MARKER "COFFER-BENCH-INIT"
#define PAYLOAD_BASE 0x100000u
enum { MAX_RUNS = 1000, MAX_ARGS = 48, PATH_LEN = 512, OUTPUT_MAX = 256 << 10, TIMEOUT_MS = 600 * 1000 };

struct sample {
	double ms;
	double exits; /* negative: unknown */
	double rss_mib;
};

struct bench {
	const char *vmm, *kernel, *work;
	char payload[PATH_LEN], initramfs[PATH_LEN], log[PATH_LEN], dir[PATH_LEN], memory[16];
	uint64_t memory_bytes;
	int runs;
};

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "boot: ");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, "\n");
	va_end(ap);
	exit(1);
}

static void write_file(const char *path, const void *data, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || fd_write_full(fd, data, n) < 0)
		die("%s: %s", path, strerror(errno));
	fd_close(fd);
}

static void put_elf(uint8_t *file, uint16_t phnum, uint64_t entry, uint64_t base, size_t len)
{
	const Elf64_Ehdr e = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			       .e_type = ET_EXEC,
			       .e_machine = EM_X86_64,
			       .e_version = EV_CURRENT,
			       .e_entry = entry,
			       .e_phoff = sizeof(e),
			       .e_ehsize = sizeof(e),
			       .e_phentsize = sizeof(Elf64_Phdr),
			       .e_phnum = phnum };
	const Elf64_Phdr p = { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = base, .p_paddr = base, .p_filesz = len,
			       .p_memsz = len, .p_align = 4096 };

	memcpy(file, &e, sizeof(e));
	memcpy(file + sizeof(e), &p, sizeof(p));
}

/* out 'C' to COM1, then halt for good. */
static void make_payload(const char *path)
{
	enum { NOTE = 0x100, CODE = 0x200, SIZE = 0x400 };
	static const uint8_t code[] = { 0x66, 0xba, 0xf8, 0x03, 0xb0, 'C', 0xee, 0xfa, 0xf4, 0xeb, 0xfd };
	const uint32_t note[] = { 4, 4, 18, 0x006e6558, PAYLOAD_BASE + CODE };
	const Elf64_Phdr p = { .p_type = PT_NOTE, .p_offset = NOTE, .p_vaddr = PAYLOAD_BASE + NOTE,
			       .p_paddr = PAYLOAD_BASE + NOTE, .p_filesz = sizeof(note), .p_memsz = sizeof(note), .p_align = 4 };
	uint8_t file[SIZE] = { 0 };

	put_elf(file, 2, PAYLOAD_BASE + CODE, PAYLOAD_BASE, SIZE);
	memcpy(file + sizeof(Elf64_Ehdr) + sizeof(p), &p, sizeof(p));
	memcpy(file + NOTE, note, sizeof(note));
	memcpy(file + CODE, code, sizeof(code));
	write_file(path, file, sizeof(file));
}

/* One cpio entry ("newc"). */
static size_t cpio_put(char *out, uint32_t ino, const char *name, uint32_t mode, const void *data, uint32_t n, uint32_t major,
		       uint32_t minor)
{
	size_t at = (size_t)sprintf(out, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", ino, mode, 0u, 0u, 1u, 0u, n,
				    0u, 0u, major, minor, (uint32_t)strlen(name) + 1, 0u);

	at += (size_t)sprintf(out + at, "%s", name) + 1;
	while (at % 4)
		out[at++] = 0;
	memcpy(out + at, data, n);
	at += n;
	while (at % 4)
		out[at++] = 0;
	return at;
}

/* An init without a library: write the marker to descriptor 1, then wait for signals for ever. */
static void make_initramfs(const char *path)
{
	enum { CODE = 0x100, TEXT = 0x140, SIZE = 0x180 };
	static const char text[] = MARKER "\n";
	static const uint8_t code[] = {
		0xb8, 1, 0, 0, 0,                                     /* mov eax, write */
		0xbf, 1, 0, 0, 0,                                     /* mov edi, 1 */
		0x48, 0x8d, 0x35, TEXT - CODE - 17, 0, 0, 0,          /* lea rsi, text */
		0xba, sizeof(text) - 1, 0, 0, 0,                      /* mov edx, length */
		0x0f, 0x05,                                           /* syscall */
		0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7,            /* pause, again and again */
	};
	uint8_t init[SIZE] = { 0 };
	char *out = calloc(1, 8192);
	size_t n = 0;

	put_elf(init, 1, 0x400000 + CODE, 0x400000, SIZE);
	memcpy(init + CODE, code, sizeof(code));
	memcpy(init + TEXT, text, sizeof(text));
	n += cpio_put(out + n, 1, "dev", S_IFDIR | 0755, "", 0, 0, 0);
	n += cpio_put(out + n, 2, "dev/console", S_IFCHR | 0600, "", 0, 5, 1);
	n += cpio_put(out + n, 3, "init", S_IFREG | 0755, init, sizeof(init), 0, 0);
	n += cpio_put(out + n, 0, "TRAILER!!!", 0, "", 0, 0, 0);
	write_file(path, out, ALIGN_UP(n, (size_t)512));
	free(out);
}

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static double read_exits(void)
{
	FILE *f = fopen(EXITS_FILE, "re");
	double v = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%lf", &v) != 1)
		v = -1;
	fclose(f);
	return v;
}

/* Resident bytes of all mappings but guest memory, which is the one as large as that. */
static double read_rss(pid_t pid, uint64_t guest)
{
	char path[64], line[512];
	uint64_t size = 0, rss = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)pid);
	f = fopen(path, "re");
	if (!f)
		die("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		unsigned long long kib;

		if (sscanf(line, "Size: %llu", &kib) == 1)
			size = kib << 10;
		else if (sscanf(line, "Rss: %llu", &kib) == 1 && size < guest / 2)
			rss += kib << 10;
	}
	fclose(f);
	return (double)rss / (1 << 20);
}

static void show_log(const char *path)
{
	char buf[2048];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : fd_read_full(fd, buf, sizeof(buf));

	fd_close(fd);
	if (n > 0)
		fprintf(stderr, "%.*s\n", (int)n, buf);
}

/* Start argv, wait for the word on its standard output, measure, kill. */
static struct sample measure(const struct bench *b, char *const *argv, const char *word)
{
	posix_spawn_file_actions_t a;
	struct sample s = { .exits = -1 };
	size_t got = 0;
	char *out = malloc(OUTPUT_MAX + 1);
	int p[2];
	pid_t pid;

	if (pipe2(p, O_CLOEXEC) < 0)
		die("pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_addopen(&a, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&a, p[1], 1);
	posix_spawn_file_actions_addopen(&a, 2, b->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	double before = read_exits(), start = now_ms();

	errno = posix_spawn(&pid, argv[0], &a, NULL, argv, environ);
	if (errno)
		die("%s: %s", argv[0], strerror(errno));
	posix_spawn_file_actions_destroy(&a);
	fd_close(p[1]);
	do {
		struct pollfd pfd = { .fd = p[0], .events = POLLIN };
		ssize_t n = poll(&pfd, 1, TIMEOUT_MS) > 0 ? read(p[0], out + got, OUTPUT_MAX - got) : 0;

		if (n <= 0) {
			show_log(b->log);
			die("%s ended or said nothing for long before '%s'; it said: %.*s", argv[0], word, (int)got, out);
		}
		got += (size_t)n;
		out[got] = 0;
	} while (!memmem(out, got, word, strlen(word)));
	s.ms = now_ms() - start;
	s.exits = before < 0 ? -1 : read_exits() - before;
	s.rss_mib = read_rss(pid, b->memory_bytes);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fd_close(p[0]);
	free(out);
	return s;
}

static struct sample run_coffer(const struct bench *b, bool linux_guest)
{
	char *argv[MAX_ARGS] = { (char *)b->vmm, "--dir", (char *)b->dir, "--memory", (char *)b->memory, "--log-level", "error",
				 "--device", "serial,stdio", "--kernel",
				 (char *)(linux_guest ? b->kernel : b->payload) };
	int n = 11;

	if (linux_guest) {
		argv[n++] = "--initrd";
		argv[n++] = (char *)b->initramfs;
		argv[n++] = "--cmdline";
		argv[n++] = "console=ttyS0 quiet panic=-1";
	}
	argv[n] = NULL;
	return measure(b, argv, linux_guest ? MARKER : "C");
}

static struct sample run_qemu(const struct bench *b, bool linux_guest)
{
	char *argv[MAX_ARGS] = { "/usr/bin/qemu-system-x86_64",
				 "-M", "microvm,x-option-roms=off,pit=off,pic=off,rtc=off,isa-serial=on",
				 "-bios", "/usr/share/qemu/qboot.rom", "-accel", "kvm", "-cpu", "host", "-m", (char *)b->memory,
				 "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel",
				 (char *)(linux_guest ? b->kernel : b->payload) };
	int n = 20;

	if (linux_guest) {
		argv[n++] = "-initrd";
		argv[n++] = (char *)b->initramfs;
		argv[n++] = "-append";
		argv[n++] = "console=ttyS0 quiet panic=-1";
	}
	argv[n] = NULL;
	return measure(b, argv, linux_guest ? MARKER : "C");
}

static double median(const struct sample *s, int n, size_t offset)
{
	double v[MAX_RUNS];

	for (int i = 0; i < n; i++)
		memcpy(&v[i], (const char *)&s[i] + offset, sizeof(v[i]));
	return measure_median(v, n);
}

struct pair {
	struct sample coffer[MAX_RUNS], qemu[MAX_RUNS];
};

static void run_all(const struct bench *b, bool linux_guest, struct pair *ret)
{
	for (int i = 0; i < b->runs; i++) {
		ret->coffer[i] = run_coffer(b, linux_guest);
		ret->qemu[i] = run_qemu(b, linux_guest);
	}
	printf("%s, medians of %d: coffer %.1f ms, QEMU microvm %.1f ms", linux_guest ? "Linux to user space" : "payload", b->runs,
	       median(ret->coffer, b->runs, offsetof(struct sample, ms)), median(ret->qemu, b->runs, offsetof(struct sample, ms)));
	printf("; exits %.0f, %.0f; beside guest memory %.2f MiB, %.2f MiB\n",
	       median(ret->coffer, b->runs, offsetof(struct sample, exits)),
	       median(ret->qemu, b->runs, offsetof(struct sample, exits)),
	       median(ret->coffer, b->runs, offsetof(struct sample, rss_mib)),
	       median(ret->qemu, b->runs, offsetof(struct sample, rss_mib)));
	fflush(stdout);
}

static double ratio(const struct bench *b, const struct pair *p, size_t offset)
{
	return median(p->coffer, b->runs, offset) / median(p->qemu, b->runs, offset);
}

int main(int argc, char **argv)
{
	static struct pair payload, guest;
	struct bench b = { .memory = "256" };

	if (argc < 5 || argc > 6)
		die("usage: boot VMM KERNEL WORKDIR RUNS [MEMORY_MIB]");
	b.vmm = argv[1];
	b.kernel = argv[2];
	b.work = argv[3];
	b.runs = atoi(argv[4]);
	if (argc == 6)
		snprintf(b.memory, sizeof(b.memory), "%s", argv[5]);
	if (b.runs < 1 || b.runs > MAX_RUNS)
		die("RUNS must be 1 to %d", MAX_RUNS);
	b.memory_bytes = MIB(strtoul(b.memory, NULL, 10));
	snprintf(b.payload, sizeof(b.payload), "%s/payload.elf", b.work);
	snprintf(b.initramfs, sizeof(b.initramfs), "%s/initramfs.cpio", b.work);
	snprintf(b.log, sizeof(b.log), "%s/monitor.log", b.work);
	snprintf(b.dir, sizeof(b.dir), "%s/vm", b.work);
	if (mkdir(b.dir, 0700) < 0 && errno != EEXIST)
		die("%s: %s", b.dir, strerror(errno));
	make_payload(b.payload);
	make_initramfs(b.initramfs);
	/* Once each, uncounted: pages of programs and files come into the cache. */
	run_coffer(&b, false);
	run_qemu(&b, false);
	run_all(&b, false, &payload);
	run_all(&b, true, &guest);
	printf("boot start_ratio=%.3f ratio_qemu=%.3f ", ratio(&b, &payload, offsetof(struct sample, ms)),
	       ratio(&b, &guest, offsetof(struct sample, ms)));
	if (guest.coffer[0].exits < 0)
		printf("exits_ratio=unknown ");
	else
		printf("exits_ratio=%.3f ", ratio(&b, &guest, offsetof(struct sample, exits)));
	printf("rss_mib=%.2f\n", median(guest.coffer, b.runs, offsetof(struct sample, rss_mib)));
	return 0;
}
