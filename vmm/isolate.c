/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Isolation of the monitor: see isolate.h for the stages.
 *
 * Filters. Each source file says in comments which system calls it needs once the guest runs; the build
 * collects them into one BPF program per kind of thread (vmm/seccomp/compile.c). Nothing is
 * allowed that no code asked for. This file adds what the C library and the kernel's own signal return need.
 *
 * Jail. A monitor that was taken over may still make the calls it is allowed: it can connect Unix sockets. So the file
 * system it can name is the VM's directory alone (a bind mount made the root), and a network namespace
 * without interfaces takes away abstract sockets. As root no user namespace is needed, and the user stays root without
 * any capability.
 * A forbidden call is reported with the thread's name, so threads are given names before their filter.
 *
 * Threads: isolate_init and isolate_jail while the process has one thread. Trust: no input from the guest.
 */
/* syscalls(all): futex rt_sigreturn exit exit_group restart_syscall sched_yield clock_gettime gettid getpid
 * tgkill(0=SELF) rt_sigprocmask munmap madvise brk mmap(2!PROT_EXEC) mprotect(2!PROT_EXEC) mremap
 * set_robust_list rseq write writev sigaltstack getrandom prctl(0=PR_GET_NAME) */
#include "vmm/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/privileges.h"
#include "lib/util.h"
#include "seccomp_filter.h"
#include "vmm/seccomp/self.h"

enum { MAX_FILTER = 4096 };

int isolate_init(const int *keep, int nkeep, struct err *err)
{
	const struct rlimit no_core = { 0, 0 };
	unsigned from = 3;

	/* Close the gaps between the kept descriptors, lowest first. */
	for (;;) {
		unsigned next = ~0u;

		for (int i = 0; i < nkeep; i++)
			if (keep[i] >= 0 && (unsigned)keep[i] >= from && (unsigned)keep[i] < next)
				next = (unsigned)keep[i];
		if (next > from && close_range(from, next - 1, 0) < 0 && errno != ENOSYS)
			return err_errno(err, -errno, "close_range");
		if (next == ~0u)
			break;
		from = next + 1;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(err, -errno, "no_new_privs");
	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(err, -errno, "limit on core files");
	return 0;
}

int isolate_jail(struct err *err)
{
	const int spaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (unshare(spaces) < 0) {
		if (errno != EPERM)
			return err_errno(err, -errno, "namespaces");
		if (unshare(CLONE_NEWUSER | spaces) < 0) {
			err_errno(err, -errno, "no jail: user namespaces are not allowed on this host");
			return 0;
		}
		r = privileges_map_ids(uid, gid);
		if (r < 0)
			return err_errno(err, r, "user namespace maps");
	}
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_errno(err, -errno, "private mounts");
	if (mount(".", ".", NULL, MS_BIND, NULL) < 0)
		return err_errno(err, -errno, "bind mount of the VM directory");
	/* The working directory still names what lies below the new mount: walk into it again. */
	_cleanup_free_ char *cwd = get_current_dir_name();

	if (!cwd || chdir(cwd) < 0)
		return err_errno(err, -errno, "VM directory");
	if (mount(NULL, ".", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_errno(err, -errno, "remount of the VM directory");
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return err_errno(err, -errno, "pivot_root");
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_errno(err, -errno, "old root");
	r = privileges_drop_capabilities(err);
	return r < 0 ? r : 1;
}

/* Runs in the thread that made the call; makes only calls that every filter allows. */
static void on_sigsys(int sig, siginfo_t *info, void *context)
{
	const char *name = NULL;
	char line[160], thread[16] = "";
	int nr = info->si_syscall;

	(void)sig;
	(void)context;
	if (nr >= 0 && nr < (int)ARRAY_SIZE(seccomp_names))
		name = seccomp_names[nr];
	prctl(PR_GET_NAME, thread, 0, 0, 0);
	int n = snprintf(line, sizeof(line),
			 "coffer-vmm: seccomp: the forbidden system call %s (%d) in thread '%s' ended the monitor\n",
			 name ? name : "?", nr, thread);
	ssize_t ignored = write(2, line, (size_t)n);

	(void)ignored;
	_exit(ISOLATE_EXIT);
}

int isolate_handler(struct err *err)
{
	struct sigaction sa = { .sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGSYS);
	if (sigaction(SIGSYS, &sa, NULL) < 0 || pthread_sigmask(SIG_UNBLOCK, &set, NULL) != 0)
		return err_errno(err, -errno, "SIGSYS handler");
	return 0;
}

int isolate_thread(enum isolate_role role, struct err *err)
{
	static const struct {
		const struct sock_filter *insn;
		size_t n;
	} filters[] = {
		[ISOLATE_MAIN] = { seccomp_main, ARRAY_SIZE(seccomp_main) },
		[ISOLATE_VCPU] = { seccomp_vcpu, ARRAY_SIZE(seccomp_vcpu) },
		[ISOLATE_WORKER] = { seccomp_worker, ARRAY_SIZE(seccomp_worker) },
	};
	struct sock_filter insn[MAX_FILTER];
	struct sock_fprog prog = { .len = (unsigned short)filters[role].n, .filter = insn };

	if (filters[role].n > MAX_FILTER)
		return err_set(err, -E2BIG, "system call filter: more than %d instructions", MAX_FILTER);
	memcpy(insn, filters[role].insn, sizeof(*insn) * filters[role].n);
	for (size_t i = 0; i < filters[role].n; i++)
		if (insn[i].k == SECCOMP_SELF_MAGIC)
			insn[i].k = (uint32_t)getpid();
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
		return err_errno(err, -errno, "system call filter: this kernel needs CONFIG_SECCOMP_FILTER");
	return 0;
}
