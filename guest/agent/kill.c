/* SPDX-License-Identifier: Apache-2.0 */
/* Killing without cgroups: see kill.h. */
#include "guest/agent/kill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"

struct dirent64_raw {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
	char name[];
};

/* The parent of a process: "PID (NAME) STATE PPID ...", and NAME may contain anything. 0 when unknown. */
static pid_t parent_of(int proc, const char *pid)
{
	char path[32], text[256], *p;
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/stat", pid);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strrchr(text, ')');
	return p && strlen(p) > 4 ? (pid_t)strtol(p + 4, NULL, 10) : 0;
}

int kill_children(int signal)
{
	char buf[4096] __attribute__((aligned(8)));
	_cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int count = 0;
	long n;

	while (proc >= 0 && (n = syscall(SYS_getdents64, proc, buf, sizeof(buf))) > 0)
		for (long pos = 0; pos < n;) {
			struct dirent64_raw *d = (struct dirent64_raw *)(buf + pos);
			pid_t pid = d->name[0] >= '1' && d->name[0] <= '9' ? (pid_t)strtol(d->name, NULL, 10) : 0;

			if (pid > 0 && parent_of(proc, d->name) == getpid()) {
				count++;
				if (signal)
					kill(pid, signal);
			}
			pos += d->reclen;
		}
	return count;
}

bool kill_descendants(pid_t watch, int *ret_status)
{
	bool seen = false;

	for (int round = 0; round < KILL_ROUNDS; round++) {
		int status, options = 0; /* wait for one: all have been sent SIGKILL. Then take those that are there. */
		pid_t pid;

		if (kill_children(SIGKILL) == 0)
			break;
		while ((pid = waitpid(-1, &status, options)) > 0) {
			if (pid == watch) {
				seen = true;
				*ret_status = status;
			}
			options = WNOHANG;
		}
	}
	return seen;
}
