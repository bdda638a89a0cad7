/* SPDX-License-Identifier: Apache-2.0 */
/* Why a VM ended: see vm_end.h. */
#include "host/vm_end.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { TAIL_MAX = 8192 };

static const char monitor_prefix[] = "coffer-vmm: ";

/* The end of a file, 0-terminated, without bytes that are 0. */
static void read_tail(int dirfd, const char *name, char *out, size_t size)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	ssize_t n = 0;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		n = fd_pread_full(fd, out, size - 1, MAX(st.st_size - (off_t)(size - 1), (off_t)0));
	n = MAX(n, (ssize_t)0);
	for (ssize_t i = 0; i < n; i++)
		if (out[i] == 0)
			out[i] = ' ';
	out[n] = 0;
}

static const char *last_line(char *text)
{
	size_t n = strlen(text);

	while (n > 0 && strchr("\r\n \t", text[n - 1]))
		text[--n] = 0;
	char *line = strrchr(text, '\n');

	return line ? line + 1 : text;
}

void vm_end_last_words(int dirfd, const char *name, char *out, size_t size)
{
	char text[TAIL_MAX];
	struct err clean = ERR_INIT; /* makes it printable */

	read_tail(dirfd, name, text, sizeof(text));
	char *panic = strstr(text, "Kernel panic");

	if (panic)
		panic[strcspn(panic, "\r\n")] = 0;
	err_set(&clean, 0, "%s", panic ? panic : last_line(text));
	snprintf(out, size, "%s", clean.text);
}

/* The monitor could not start, or broke off: the last line of its log is the reason. */
static void explain_log(int dirfd, int wait_status, struct err *err)
{
	char text[300];
	const char *line = text;

	vm_end_last_words(dirfd, VMDIR_LOG, text, sizeof(text));
	if (!strncmp(line, monitor_prefix, strlen(monitor_prefix)))
		line += strlen(monitor_prefix);
	if (wait_status >= 0 && WIFSIGNALED(wait_status))
		err_set(err, -EIO, "the monitor was ended by signal %d%s%s", WTERMSIG(wait_status), *line ? ": " : "", line);
	else if (*line)
		err_set(err, -EIO, "monitor: %s", line);
	else if (wait_status >= 0)
		err_set(err, -EIO, "the monitor ended with status %d and said nothing", WEXITSTATUS(wait_status));
	else
		err_set(err, -EIO, "its monitor was killed");
}

enum vm_end_kind vm_end_explain(int dirfd, int status_fd, bool booting, int wait_status, struct err *err)
{
	struct vm_status status;
	char why[ERR_MAX], console[250] = "";
	int r = status_fd >= 0 ? vmdir_read_status_fd(status_fd, &status, NULL) : vmdir_read_status(dirfd, &status, NULL);

	if (r < 0 || !strcmp(status.stop, "error")) {
		explain_log(dirfd, wait_status, err);
		return VM_END_FAILED;
	}
	vm_status_describe(&status, why, sizeof(why));
	bool killed = !strcmp(status.stop, "killed");

	if (!strcmp(status.stop, "panic") || !strcmp(status.stop, "crash") || (booting && !killed))
		vm_end_last_words(dirfd, VMDIR_CONSOLE, console, sizeof(console));
	if (*console)
		err_set(err, -EIO, "%.220s; it said: %s", why, console);
	else
		err_set(err, -EIO, "%s", why);
	return killed ? VM_END_KILLED : VM_END_GUEST;
}
