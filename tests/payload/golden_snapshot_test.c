/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of released versions start in this one: tests/golden/snapshots/VERSION-VENDOR/{state,ram,ram.index}, each of a guest of a
 * few instructions in 4 MiB, taken by that version on a processor of that vendor. A processor of another cannot take them.
 *
 *   golden_snapshot_test --write DIRECTORY   make one with today's coffer-vmm (never change an old one)
 */
#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/monitor.h"

#define DIRECTORY "tests/golden/snapshots"
enum { FILES = 3 };
static const char *const names[FILES] = { "state", "ram", "ram.index" };

/* Says 'A', and 'B' when its generation id has changed and its word in memory is the one it wrote. */
__asm__(".pushsection .rodata\n"
	".code32\n"
	"golden_begin:\n"
	"	mov 0xe0000, %ebx\n"
	"	movl $0x600df00d, 0x200000\n"
	"	mov $0x3f8, %dx\n"
	"	mov $'A', %al\n"
	"	out %al, %dx\n"
	"1:	cmp 0xe0000, %ebx\n"
	"	je 1b\n"
	"	mov $'X', %al\n"
	"	cmpl $0x600df00d, 0x200000\n"
	"	jne 2f\n"
	"	mov $'B', %al\n"
	"2:	out %al, %dx\n"
	"3:	cli\n"
	"	hlt\n"
	"	jmp 3b\n"
	"golden_end:\n"
	".code64\n"
	".popsection\n");
extern const uint8_t golden_begin[], golden_end[];

static void vendor(char ret[13])
{
	unsigned eax, part[3];

	__cpuid(0, eax, part[0], part[2], part[1]);
	memcpy(ret, part, 12);
	ret[12] = 0;
}

static void open_files(const char *dir, int flags, int *ret)
{
	char path[512];

	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		ret[i] = open(path, flags | O_CLOEXEC, 0644);
		if (ret[i] < 0)
			fail_msg("%s: %s", path, strerror(errno));
	}
}

static void starts(const char *dir)
{
	const char *args[] = { "--restore", "--memory", "4", NULL };
	const uint64_t arg[4] = { CONTROL_RESTORE_EAGER, 1, 0, 0 };
	struct control_reply reply;
	struct monitor m;
	int fds[FILES];

	open_files(dir, O_RDONLY, fds);
	monitor_start(&m, "/tmp", args);
	if (monitor_request(&m, CONTROL_RESTORE, arg, fds, FILES, &reply) != 0)
		fail_msg("%s: %s", dir, reply.text);
	monitor_hear(&m, 'B');
	monitor_end(&m);
	for (int i = 0; i < FILES; i++)
		close(fds[i]);
}

static void every_released_snapshot_starts(void **s)
{
	char mine[13], dir[300];
	struct dirent *e;
	int n = 0;
	DIR *d;

	(void)s;
	monitor_require();
	vendor(mine);
	d = opendir(DIRECTORY);
	assert_non_null(d);
	while ((e = readdir(d))) {
		if (e->d_name[0] == '.' || !strstr(e->d_name, mine))
			continue;
		snprintf(dir, sizeof(dir), DIRECTORY "/%s", e->d_name);
		starts(dir);
		n++;
	}
	closedir(d);
	if (n == 0) {
		printf("no snapshot was stored by a processor of %s\n", mine);
		skip();
	}
}

static int write_today(const char *dir)
{
	const uint64_t arg[4] = { CONTROL_SNAPSHOT_STOP, 3, 0, 0 };
	const char *args[] = { "--kernel", "/tmp/golden.payload", "--memory", "4", NULL };
	struct control_reply reply;
	struct monitor m;
	int fds[FILES];

	open_files(dir, O_RDWR | O_CREAT | O_EXCL, fds);
	monitor_write_payload("/tmp/golden.payload", golden_begin, (size_t)(golden_end - golden_begin));
	monitor_start(&m, "/tmp", args);
	monitor_hear(&m, 'A');
	if (monitor_request(&m, CONTROL_SNAPSHOT, arg, fds, FILES, &reply) != 0)
		fail_msg("%s", reply.text);
	monitor_wait(&m);
	monitor_end(&m);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_released_snapshot_starts) };

	if (argc == 3 && strcmp(argv[1], "--write") == 0)
		return write_today(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
