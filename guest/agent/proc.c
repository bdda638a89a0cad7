/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that /proc lists: see proc.h. */
#include "guest/agent/proc.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/dents.h"
#include "lib/fd.h"

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
	_cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dents dents = { .len = 0 };
	const struct dents_entry *d;
	struct proc p;

	while (proc >= 0 && dents_next(&dents, proc, &d) > 0)
		if (d->name[0] >= '1' && d->name[0] <= '9' && read_stat(proc, d->name, &p))
			fn(&p, arg);
}
