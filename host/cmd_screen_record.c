/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer screen ID record: starts coffer-record, which does the work in a jail, and waits for it. A signal that asks for an end is
 * handed on, and the film is finished; so is one whose display goes away, which is said. That is a failure unless it was to last
 * until somebody ends it and somebody, or the guest, has ended the VM.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/cmd_screen.h"
#include "host/json_get.h"
#include "host/paths.h"
#include "host/record/record.h"
#include "host/signals.h"
#include "host/sock.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { POLL_MS = 100 };

static const char *format_of(const char *path)
{
	const char *dot = path ? strrchr(path, '.') : NULL;

	return dot && strcasecmp(dot, ".mkv") == 0 ? "mkv" : dot && strcasecmp(dot, ".gif") == 0 ? "gif" : NULL;
}

static int start(const char *program, char *const argv[], int display, int out)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	/* Out of the way first: either may be where the other has to go. */
	int copy[2] = { fcntl(display, F_DUPFD, RECORD_OUT_FD + 1), fcntl(out, F_DUPFD, RECORD_OUT_FD + 1) };

	/* Signals stay blocked until it looks at them itself, and those that we were told to ignore are none of its business either. */
	if (copy[0] < 0 || copy[1] < 0 || dup2(copy[0], RECORD_DISPLAY_FD) < 0 || dup2(copy[1], RECORD_OUT_FD) < 0)
		_exit(CMD_EXIT_FAILED);
	execv(program, argv);
	_exit(CMD_EXIT_FAILED);
}

static int display_gone(struct vm_handle *vm, const struct screen_options *o)
{
	struct err why = ERR_INIT;
	enum vm_end_kind kind = VM_END_FAILED;

	if (!vm_explain_end(vm, &kind, &why))
		err_set(&why, -ECONNRESET, "the display of VM '%s' has ended the connection, the VM runs on", vm->dir.id);
	cmd_failf("screen: %.400s; what was seen until then is in '%.200s'", why.text, o->output);
	return kind == VM_END_FAILED || o->seconds > 0 ? CMD_EXIT_FAILED : 0;
}

static int wait_for(pid_t pid, int signal_fd, struct vm_handle *vm, const struct screen_options *o)
{
	int status = 0, r;

	while ((r = waitpid(pid, &status, WNOHANG)) == 0) {
		struct pollfd p = { .fd = signal_fd, .events = POLLIN };
		int signal;

		poll(&p, 1, POLL_MS);
		while ((signal = signals_next(signal_fd)) > 0)
			if (signals_is_end(signal))
				kill(pid, SIGTERM);
	}
	if (r < 0)
		return cmd_failf("screen: wait for coffer-record: %s", strerror(errno));
	if (WIFSIGNALED(status))
		return cmd_failf("screen: coffer-record was ended by signal %d (%s): '%.200s' may lack its end", WTERMSIG(status),
				 strsignal(WTERMSIG(status)), o->output);
	if (WEXITSTATUS(status) == RECORD_GONE)
		return display_gone(vm, o);
	return WEXITSTATUS(status) == 0 ? 0 : CMD_EXIT_FAILED; /* it said why */
}

/* A film without a picture is none; what was there before we came stays, empty as it is now. */
static void remove_empty(const char *path, int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0)
		unlink(path);
}

static int print_result(struct screen_call *c, uint64_t ms, int status)
{
	if (status != 0 || !c->o->json)
		return status;
	json_object_set_new(c->result, "file", json_text(c->o->output));
	json_object_set_new(c->result, "ms", json_integer((json_int_t)ms));
	return cmd_print_json(json_incref(c->result), 0);
}

int cmd_screen_record(struct screen_call *c)
{
	const struct screen_options *o = c->o;
	struct vm_handle *vm = c->vm;
	const uint64_t begin = loop_now_ns();
	char program[PATH_MAX], number[3][24];
	const char *format = format_of(o->output);
	_cleanup_close_ int display = -1, out = -1;
	struct err err = ERR_INIT;
	sigset_t old;
	int r, signal_fd;
	bool fresh;
	pid_t pid;

	if (!format)
		return o->output ? cmd_failf("screen: record -o '%.200s': a name that ends with .mkv or .gif is needed", o->output) :
				   cmd_failf("screen: record needs -o FILE.mkv or -o FILE.gif");
	if (o->lossless && strcmp(format, "gif") == 0)
		return cmd_failf("screen: --lossless is for .mkv: a gif has at most 256 colours");
	r = paths_program("coffer-record", "COFFER_RECORD", program, sizeof(program), &err);
	if (r < 0)
		return cmd_fail(&err);
	display = sock_connect_at(vm->dir.fd, DISPLAY_SOCKET, SOCK_SEQPACKET, &err);
	if (display == -ENOENT || display == -ECONNREFUSED)
		return cmd_failf("screen: this VM has no display: run it with --display WIDTHxHEIGHT");
	if (display < 0)
		return cmd_fail(&err);
	fresh = access(o->output, F_OK) < 0;
	out = open(o->output, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (out < 0)
		return cmd_failf("screen: '%.200s': %s", o->output, strerror(errno));
	snprintf(number[0], sizeof(number[0]), "%llu", (unsigned long long)(o->seconds * 1000));
	snprintf(number[1], sizeof(number[1]), "%llu", (unsigned long long)(o->fps ? o->fps : strcmp(format, "gif") == 0 ? 15 : 30));
	snprintf(number[2], sizeof(number[2]), "%llu", (unsigned long long)o->screen);
	char *argv[] = { program, (char *)(uintptr_t)format, number[0], number[1], number[2], (char *)(o->lossless ? "1" : "0"), NULL };

	signal_fd = signals_open(&old, &err);
	if (signal_fd < 0)
		return cmd_fail(&err);
	pid = start(program, argv, display, out);
	r = pid < 0 ? cmd_failf("screen: run %s: %s", program, strerror(-pid)) : wait_for(pid, signal_fd, vm, o);
	signals_close(signal_fd, &old);
	if (r != 0 && fresh)
		remove_empty(o->output, out);
	return print_result(c, (loop_now_ns() - begin) / 1000000, r);
}
