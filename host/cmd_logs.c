/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer logs: what a VM's serial console said: console.log.1 (when it was rotated) and console.log.
 *
 * Trust: the console is the guest's. To a file or pipe its bytes go as they are; a terminal gets them escaped
 * (text.h), so that they do nothing to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/vmdir.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { POLL_MS = 100, CHUNK = 16 * 1024 };

#define CONSOLE_OLD VMDIR_CONSOLE ".1"

struct logs_options {
	bool follow, monitor, help;
	uint64_t lines;
};

static const struct opt options[] = {
	OPT_BOOL(struct logs_options, follow, "follow", 'f', "go on until the VM ends"),
	OPT_U64(struct logs_options, lines, "lines", 'n', "N", 1, 1000000, "the last N lines only"),
	OPT_BOOL(struct logs_options, monitor, "monitor", 0, "the monitor's own messages instead"),
	CMD_OPT_HELP(struct logs_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "logs [-f] [-n N] [--monitor] ID",
	.summary = "show a VM's serial console",
	.text = "The console keeps a bounded amount of text; the oldest goes first. It is there as long as the VM\n"
		"is.",
	.options = options,
	.examples = "coffer logs work\ncoffer logs -f -n 20 work",
};

/* The rest of fd from its offset on. 0, or the exit status when stdout does not take it. */
static int copy_rest(int fd, bool terminal)
{
	char buf[CHUNK], shown[TEXT_ESCAPE * CHUNK + 4];
	ssize_t n;

	while ((n = fd_read_full(fd, buf, sizeof(buf))) > 0) {
		/* What is not whole waits for the rest of it. */
		size_t wait = terminal ? text_incomplete(buf, (size_t)n) : 0;

		if (wait && lseek(fd, -(off_t)wait, SEEK_CUR) >= 0 && (n -= (ssize_t)wait) == 0)
			return 0;
		size_t len = terminal ? text_escape(buf, (size_t)n, "\n\t\r", shown, sizeof(shown)) : (size_t)n;
		int r = fd_write_full(STDOUT_FILENO, terminal ? shown : buf, len);

		if (r < 0)
			return r == -EPIPE ? CMD_EXIT_FAILED : cmd_failf("write to stdout: %s", strerror(-r));
	}
	return n < 0 ? cmd_failf("logs: read: %s", strerror((int)-n)) : 0;
}

static int open_log(const struct vmdir *d, const char *name)
{
	int fd = openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Where the last `lines` lines of fd begin; *ret_found how many there are from there. */
static off_t find_lines(int fd, uint64_t lines, uint64_t *ret_found)
{
	char buf[4096];
	struct stat st;
	uint64_t found = 0;

	*ret_found = 0;
	if (fstat(fd, &st) < 0)
		return 0;
	off_t end = st.st_size;

	while (end > 0) {
		size_t n = (size_t)MIN((off_t)sizeof(buf), end);

		if (fd_pread_full(fd, buf, n, end - (off_t)n) != (ssize_t)n)
			break;
		for (size_t i = n; i > 0; i--) {
			off_t at = end - (off_t)n + (off_t)i;

			/* The newline at the very end ends the last line, it does not begin one. */
			if (buf[i - 1] == '\n' && at != st.st_size && ++found == lines) {
				*ret_found = found;
				return at;
			}
		}
		end -= (off_t)n;
	}
	*ret_found = found + (st.st_size > 0);
	return 0;
}

static int show(const struct vmdir *d, const struct logs_options *o, bool terminal, int *ret_fd)
{
	const char *name = o->monitor ? VMDIR_LOG : VMDIR_CONSOLE;
	_cleanup_close_ int fd = open_log(d, name);
	_cleanup_close_ int old = o->monitor ? -1 : open_log(d, CONSOLE_OLD);
	uint64_t found = 0;
	int status = 0;

	if (fd >= 0 && o->lines)
		lseek(fd, find_lines(fd, o->lines, &found), SEEK_SET);
	if (old >= 0 && o->lines && found < o->lines)
		lseek(old, find_lines(old, o->lines - found, &found), SEEK_SET);
	else if (old >= 0 && o->lines)
		old = fd_close(old);
	if (old >= 0)
		status = copy_rest(old, terminal);
	if (fd >= 0 && status == 0)
		status = copy_rest(fd, terminal);
	*ret_fd = TAKE_FD(fd);
	return status;
}

static bool was_replaced(const struct vmdir *d, const char *name, int fd)
{
	struct stat now, shown;

	if (fstatat(d->fd, name, &now, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	return fd < 0 || (fstat(fd, &shown) == 0 && (now.st_ino != shown.st_ino || now.st_dev != shown.st_dev));
}

static int follow(struct vmdir *d, const struct logs_options *o, bool terminal, int fd)
{
	const char *name = o->monitor ? VMDIR_LOG : VMDIR_CONSOLE;
	int status = 0;

	for (bool live = true; live && status == 0;) {
		struct pollfd out = { .fd = STDOUT_FILENO, .events = 0 };

		poll(&out, 1, POLL_MS);
		if (out.revents & POLLERR)
			break;
		live = lockdir_probe(&d->run, d->id, NULL, NULL) == 1;
		if (fd >= 0)
			status = copy_rest(fd, terminal);
		if (status == 0 && was_replaced(d, name, fd)) {
			fd_close(fd);
			fd = open_log(d, name);
			if (fd >= 0)
				status = copy_rest(fd, terminal);
		}
	}
	fd_close(fd);
	return status;
}

int cmd_logs(int argc, char **argv)
{
	struct logs_options o = { 0 };
	struct vmdir d;
	struct err err = ERR_INIT;
	int fd = -1, status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("logs: name one VM; 'coffer ps' lists them");
	bool terminal = isatty(STDOUT_FILENO);
	int live = vmdir_open_any(argv[first], &d, &err);

	if (live < 0)
		return cmd_fail(&err);
	status = show(&d, &o, terminal, &fd);
	if (status == 0 && live && o.follow)
		status = follow(&d, &o, terminal, TAKE_FD(fd));
	fd_close(fd);
	vmdir_close(&d);
	/* What an ended VM left was shown this once. */
	vmdir_sweep(NULL, NULL, NULL);
	return status;
}
