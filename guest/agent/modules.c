/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel modules of the initramfs: /modules.list has one absolute path a line, optionally with parameters after a blank,
 * in the order to load them.
 *
 * A module whose code is built in already, or for which there is no such hardware, is no error: one list serves
 * many machines. Anything else gets a word on the console.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "lib/fd.h"

#ifndef MODULE_INIT_COMPRESSED_FILE
#define MODULE_INIT_COMPRESSED_FILE 4
#endif

enum { LIST_MAX = 64 * 1024 };

static bool is_compressed(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot && (strcmp(dot, ".xz") == 0 || strcmp(dot, ".zst") == 0 || strcmp(dot, ".gz") == 0);
}

static void load(const struct agent *a, char *line)
{
	char *parameters = strchr(line, ' ');
	_cleanup_close_ int fd = -1;

	if (parameters)
		*parameters++ = '\0';
	fd = open(line, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		agent_say(a, "module %s: %s", line, strerror(errno));
		return;
	}
	if (syscall(SYS_finit_module, fd, parameters ? parameters : "", is_compressed(line) ? MODULE_INIT_COMPRESSED_FILE : 0) < 0 &&
	    errno != EEXIST && errno != ENODEV && errno != EOPNOTSUPP && errno != EBUSY && errno != EIO)
		agent_say(a, "module %s: %s", line, strerror(errno));
}

void boot_load_modules(const struct agent *a)
{
	static const char path[] = "/modules.list";
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	char list[LIST_MAX], *line, *next;
	ssize_t n;

	if (fd < 0)
		return; /* a kernel without modules */
	n = fd_read_full(fd, list, sizeof(list) - 1);
	if (n < 0 || n == sizeof(list) - 1) {
		agent_say(a, "%s: %s", path, n < 0 ? strerror((int)-n) : "too long");
		return;
	}
	list[n] = '\0';
	for (line = list; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (*line && *line != '#')
			load(a, line);
	}
}
