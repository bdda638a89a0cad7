/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of commands: see cgroup.h. */
#include "guest/agent/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/dents.h"
#include "lib/fd.h"
#include "lib/opt.h"

enum { NAME_MAX_LEN = 32, KILL_ROUNDS = 100 };

static int write_file(int dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* NUL-terminated; bytes or -errno. */
static ssize_t read_file(int dir, const char *name, char *buf, size_t size)
{
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = fd_read_full(fd, buf, size - 1);
	if (n >= 0)
		buf[n] = '\0';
	return n;
}

static uint64_t read_number(const char *path)
{
	char text[32] = "";
	uint64_t v;
	ssize_t n = read_file(AT_FDCWD, path, text, sizeof(text));

	if (n > 0 && text[n - 1] == '\n')
		text[n - 1] = '\0';
	return opt_parse_u64(text, &v) < 0 ? 0 : v;
}

/* All commands together leave a reserve to the agent, one command leaves a quarter to the others. */
static void limit_processes(int fd, bool one)
{
	uint64_t pids = read_number("/proc/sys/kernel/pid_max"), threads = read_number("/proc/sys/kernel/threads-max");
	uint64_t max = pids && pids < threads ? pids : threads;
	char text[32];

	if (max <= 2 * CGROUP_PROCESS_RESERVE)
		return;
	max -= CGROUP_PROCESS_RESERVE;
	snprintf(text, sizeof(text), "%" PRIu64, one ? max - max / 4 : max);
	write_file(fd, "pids.max", text);
}

int cgroup_open_base(const char *path, struct err *err)
{
	static const char *const controllers[] = { "+pids", "+memory", "+cpu", "+io" };
	_cleanup_close_ int fd = -1, parent = -1;
	char up[512];
	struct statfs fs;

	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return err_errno(err, -errno, "control group '%s'", path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return err_errno(err, -errno, "control group '%s'", path);
	if (fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(err, -ENOTTY, "control group '%s': not in a cgroup v2 file system", path);
	snprintf(up, sizeof(up), "%s/..", path);
	parent = open(up, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++) { /* those that there are */
		write_file(parent, "cgroup.subtree_control", controllers[i]);
		write_file(fd, "cgroup.subtree_control", controllers[i]);
	}
	limit_processes(fd, false);
	return TAKE_FD(fd);
}

static void make_name(char name[NAME_MAX_LEN], uint64_t id)
{
	snprintf(name, NAME_MAX_LEN, "command-%" PRIu64, id);
}

static int open_id(int base_fd, uint64_t id)
{
	char name[NAME_MAX_LEN];
	int fd;

	make_name(name, id);
	fd = openat(base_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cgroup_create(int base_fd, uint64_t id)
{
	char name[NAME_MAX_LEN];
	int fd;

	make_name(name, id);
	if (mkdirat(base_fd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	fd = open_id(base_fd, id);
	if (fd >= 0)
		limit_processes(fd, true);
	return fd;
}

int cgroup_procs_fd(int fd)
{
	int procs = openat(fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

	return procs < 0 ? -errno : procs;
}

/* Before Linux 5.14 there is no cgroup.kill: kill what cgroup.procs lists until it is empty. */
static int kill_listed(int fd)
{
	for (int round = 0; round < KILL_ROUNDS; round++) {
		char list[4096], *p = list, *end;
		ssize_t n = read_file(fd, "cgroup.procs", list, sizeof(list));

		if (n <= 0)
			return (int)n;
		for (;;) {
			long pid = strtol(p, &end, 10);

			if (end == p || *end != '\n') /* a number that was cut off comes in the next round */
				break;
			if (pid > 0)
				kill((pid_t)pid, SIGKILL);
			p = end + 1;
		}
	}
	return -EBUSY;
}

int cgroup_kill(int fd)
{
	int rc = write_file(fd, "cgroup.kill", "1");

	return rc == -ENOENT ? kill_listed(fd) : rc;
}

uint64_t cgroup_oom_kills(int fd)
{
	char text[512], *line, *next;
	uint64_t v;

	if (read_file(fd, "memory.events", text, sizeof(text)) <= 0)
		return 0;
	for (line = text; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (strncmp(line, "oom_kill ", 9) == 0 && opt_parse_u64(line + 9, &v) == 0)
			return v;
	}
	return 0;
}

int cgroup_remove(int base_fd, uint64_t id)
{
	char name[NAME_MAX_LEN];

	make_name(name, id);
	return unlinkat(base_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int cgroup_kill_id(int base_fd, uint64_t id)
{
	_cleanup_close_ int fd = open_id(base_fd, id);

	return fd < 0 ? fd : cgroup_kill(fd);
}

int cgroup_remove_empty(int base_fd, bool (*is_live)(const void *arg, uint64_t id), const void *arg)
{
	_cleanup_close_ int fd = openat(base_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dents dents = { .len = 0 };
	const struct dents_entry *d;
	int left = 0;
	uint64_t id;

	while (fd >= 0 && dents_next(&dents, fd, &d) > 0)
		if (d->type == DT_DIR && strncmp(d->name, "command-", 8) == 0 && opt_parse_u64(d->name + 8, &id) == 0 &&
		    !is_live(arg, id))
			left += unlinkat(base_fd, d->name, AT_REMOVEDIR) < 0; /* something lives in it */
	return left;
}
