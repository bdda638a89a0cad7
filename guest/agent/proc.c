/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that /proc lists: see proc.h. Without opendir(): this runs when there is no memory left, and opendir() takes some.
 */
#include "guest/agent/proc.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"

struct dirent64_raw {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* "PID (NAME) STATE PPID ...", and NAME may contain anything. */
static bool read_stat(int proc, const char *name, struct proc *ret)
{
	char path[32], text[256], *p;
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/stat", name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return false;
	text[n] = '\0';
	p = strrchr(text, ')');
	if (!p || strlen(p) <= 4)
		return false;
	*ret = (struct proc){ .pid = (pid_t)strtol(name, NULL, 10), .parent = (pid_t)strtol(p + 4, NULL, 10), .state = p[2] };
	return true;
}

void proc_each(void (*fn)(const struct proc *p, void *arg), void *arg)
{
	char buf[4096] __attribute__((aligned(8)));
	_cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct proc p;
	long n;

	while (proc >= 0 && (n = syscall(SYS_getdents64, proc, buf, sizeof(buf))) > 0)
		for (long pos = 0; pos < n;) {
			struct dirent64_raw *d = (struct dirent64_raw *)(buf + pos);

			if (d->name[0] >= '1' && d->name[0] <= '9' && read_stat(proc, d->name, &p))
				fn(&p, arg);
			pos += d->reclen;
		}
}
