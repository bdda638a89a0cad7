/* SPDX-License-Identifier: Apache-2.0 */
/* A display without a VM: see pattern.h. */
#include "tests/harness/pattern.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	abort();
}

/* Beside this program: B/tests/unit/x, B/bench/x and others have it in B/tests/tools. */
static void find_tool(char *path, size_t len)
{
	static const char tool[] = "tests/tools/display_pattern";
	char self[256];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		die("/proc/self/exe");
	self[n] = 0;
	while ((slash = strrchr(self, '/')) != NULL) {
		*slash = 0;
		if ((size_t)snprintf(path, len, "%s/%s", self, tool) < len && access(path, X_OK) == 0)
			return;
	}
	die(tool);
}

void pattern_start(struct pattern_process *p, unsigned width, unsigned height)
{
	char path[512], socket[96], size[32], line[64];
	int in[2], out[2];

	strcpy(p->dir, "/tmp/pattern-XXXXXX");
	if (!mkdtemp(p->dir) || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		die("set-up");
	p->dir_fd = open(p->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	find_tool(path, sizeof(path));
	snprintf(socket, sizeof(socket), "%s/display.sock", p->dir);
	snprintf(size, sizeof(size), "%ux%u", width, height);
	p->pid = fork();
	if (p->pid < 0)
		die("fork");
	if (p->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(path, "display_pattern", socket, size, (char *)NULL);
		die(path);
	}
	close(in[0]);
	close(out[1]);
	p->to = fdopen(in[1], "w");
	p->from = fdopen(out[0], "r");
	if (strcmp(pattern_line(p, line, sizeof(line)), "ready") != 0)
		die(line);
}

void pattern_stop(struct pattern_process *p)
{
	char path[96];

	fclose(p->to);
	waitpid(p->pid, NULL, 0);
	fclose(p->from);
	close(p->dir_fd);
	snprintf(path, sizeof(path), "%s/display.sock", p->dir);
	unlink(path);
	rmdir(p->dir);
}

const char *pattern_line(struct pattern_process *p, char *buf, size_t len)
{
	if (!fgets(buf, (int)len, p->from))
		die("display_pattern has ended");
	buf[strcspn(buf, "\n")] = 0;
	return buf;
}

static void say(struct pattern_process *p, const char *fmt, va_list ap)
{
	vfprintf(p->to, fmt, ap);
	fputc('\n', p->to);
	fflush(p->to);
}

void pattern_say(struct pattern_process *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say(p, fmt, ap);
	va_end(ap);
}

void pattern_command(struct pattern_process *p, const char *fmt, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, fmt);
	say(p, fmt, ap);
	va_end(ap);
	do {
		pattern_line(p, line, sizeof(line));
		if (strncmp(line, "error", 5) == 0)
			die(line);
	} while (strncmp(line, "ok", 2) != 0);
}
