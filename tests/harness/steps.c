/* SPDX-License-Identifier: Apache-2.0 */
/* Killed at every step, or without space: see steps.h. */
#include "tests/harness/steps.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <sys/user.h>

enum { SYSCALL_STOP = SIGTRAP | 0x80 };

static bool is_file(pid_t pid, unsigned long long fd)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)fd);
	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool wants_space(pid_t pid, const struct user_regs_struct *r)
{
	switch (r->orig_rax) {
	case SYS_openat:
		return r->rdx & O_CREAT;
	case SYS_open:
		return r->rsi & O_CREAT;
	case SYS_write:
	case SYS_pwrite64:
	case SYS_writev:
	case SYS_pwritev:
	case SYS_sendfile:
	case SYS_ftruncate:
	case SYS_fallocate:
	case SYS_fsync:
	case SYS_fdatasync:
		return is_file(pid, r->rdi);
	case SYS_copy_file_range:
		return true;
	case SYS_mkdirat:
	case SYS_linkat:
	case SYS_symlinkat:
	case SYS_renameat:
	case SYS_renameat2:
		return true;
	default:
		return false;
	}
}

static bool is_seen(pid_t pid, const struct user_regs_struct *r)
{
	switch (r->orig_rax) {
	case SYS_unlinkat:
	case SYS_flock:
	case SYS_close: /* a lock, or a connection */
	case SYS_fchmod:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_connect:
	case SYS_fsync:
	case SYS_exit_group:
		return true;
	default:
		return wants_space(pid, r);
	}
}

static void __attribute__((noreturn)) child(steps_fn *fn, void *arg, struct steps_result *shared)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	shared->status = fn(arg, &shared->err);
	_exit(0);
}

static int next_stop(pid_t pid, int signal)
{
	int status;

	if (ptrace(PTRACE_SYSCALL, pid, NULL, signal) < 0 || waitpid(pid, &status, 0) != pid)
		abort();
	return status;
}

/* Stops at entries and exits in turn; a signal's own stop is passed on. True: the child has ended. */
static bool to_stop(pid_t pid, struct user_regs_struct *r, int *ret_status)
{
	int status = next_stop(pid, 0);

	while (WIFSTOPPED(status) && WSTOPSIG(status) != SYSCALL_STOP)
		status = next_stop(pid, WSTOPSIG(status));
	*ret_status = status;
	if (!WIFSTOPPED(status))
		return true;
	if (ptrace(PTRACE_GETREGS, pid, NULL, r) < 0)
		abort();
	return false;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static bool follow(pid_t pid, enum steps_what what, unsigned n, int *ret_status)
{
	struct user_regs_struct r;
	bool reached = false;

	for (;;) {
		if (to_stop(pid, &r, ret_status))
			return reached;
		bool counts = what == STEPS_KILL ? is_seen(pid, &r) : wants_space(pid, &r);
		bool hit = counts && (reached || n-- == 0);

		reached |= hit;
		if (hit && what == STEPS_KILL) {
			end(pid);
			return true;
		}
		if (hit) { /* another number, so that it does nothing */
			r.orig_rax = (unsigned long long)-1;
			ptrace(PTRACE_SETREGS, pid, NULL, &r);
		}
		if (to_stop(pid, &r, ret_status))
			return reached;
		if (hit) {
			r.rax = (unsigned long long)-ENOSPC;
			ptrace(PTRACE_SETREGS, pid, NULL, &r);
		}
	}
}

const char *steps_impossible(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? NULL : "ptrace is not allowed here";
}

void steps_run(enum steps_what what, unsigned n, steps_fn *fn, void *arg, struct steps_result *ret)
{
	struct steps_result *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid;
	int status;

	if (shared == MAP_FAILED)
		abort();
	shared->err = (struct err)ERR_INIT;
	pid = fork();
	if (pid == 0)
		child(fn, arg, shared);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) ||
	    ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) < 0)
		abort();
	bool reached = follow(pid, what, n, &status);

	if (what == STEPS_FULL || !reached)
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			abort();
	*ret = *shared;
	ret->reached = reached;
	munmap(shared, sizeof(*shared));
}
#else
const char *steps_impossible(void)
{
	return "which system call it is, is known for x86-64 only";
}

void steps_run(enum steps_what what, unsigned n, steps_fn *fn, void *arg, struct steps_result *ret)
{
	(void)what, (void)n, (void)fn, (void)arg, (void)ret;
	abort();
}
#endif
