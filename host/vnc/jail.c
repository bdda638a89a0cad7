/* SPDX-License-Identifier: Apache-2.0 */
/* The jail: see jail.h. libvncserver and GnuTLS decide what they call; everything they need to open was opened before. */
#include "host/vnc/jail.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/privileges.h"
#include "lib/util.h"

#define ADDRESS_SPACE_MAX ((rlim_t)6 << 30) /* the display's memory, two pictures of 8192x8192, what encoders need */

enum { FILTER_MAX = 256 };

static const int deadly[] = {
	SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot,
	SYS_setns, SYS_unshare, SYS_clone, SYS_clone3, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_io_uring_setup,
	SYS_kill, SYS_tkill, SYS_setuid, SYS_setresuid, SYS_setreuid, SYS_capset, SYS_pidfd_getfd, SYS_open_by_handle_at, SYS_socket,
	SYS_bind, SYS_listen, SYS_accept4, SYS_connect, SYS_fchmod, SYS_fchmodat, SYS_memfd_create,
};

static const int allowed[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_recvmsg, SYS_sendto, SYS_sendmsg, SYS_close, SYS_shutdown, SYS_fstat,
	SYS_munmap, SYS_madvise, SYS_mremap, SYS_brk, SYS_ppoll, SYS_pselect6, SYS_futex, SYS_rt_sigprocmask, SYS_rt_sigreturn,
	SYS_exit, SYS_exit_group, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_gettimeofday, SYS_getpid, SYS_gettid,
	SYS_getrandom, SYS_dup3, SYS_restart_syscall, SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_lseek,
	SYS_sched_yield, SYS_wait4, SYS_socketpair,
#ifdef __x86_64__
	SYS_poll, SYS_select, SYS_dup2, SYS_time,
#endif
};

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

static size_t put(struct sock_filter *f, size_t n, struct sock_filter one)
{
	f[n] = one;
	return n + 1;
}

/* If the loaded word is `value`: return `action`. */
static size_t put_case(struct sock_filter *f, size_t n, uint32_t value, uint32_t action)
{
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
	return put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* The call: not with PROT_EXEC for its third argument. */
static size_t put_no_exec(struct sock_filter *f, size_t n, uint32_t call)
{
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])));
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 4 /* PROT_EXEC */, 0, 1));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	return put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* fcntl: flags and their like, but no duplicate, lock, seal or signal. */
static size_t put_fcntl(struct sock_filter *f, size_t n)
{
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 5));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])));
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 4 /* F_SETFL */, 2, 0));
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0 /* F_DUPFD */, 1, 0));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	return put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
}

static int enter_filter(void)
{
	struct sock_filter f[FILTER_MAX];
	struct sock_fprog program = { .filter = f };
	size_t n = 0;

	_Static_assert(2 * (ARRAY_SIZE(deadly) + ARRAY_SIZE(allowed)) + 32 < FILTER_MAX, "room for the filter");
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
#ifdef __x86_64__
	/* The numbers of the x32 ABI are other names for the same calls. */
	n = put(f, n, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
#endif
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		n = put_case(f, n, (uint32_t)allowed[i], SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < ARRAY_SIZE(deadly); i++)
		n = put_case(f, n, (uint32_t)deadly[i], SECCOMP_RET_KILL_PROCESS);
	n = put_no_exec(f, n, SYS_mmap);
	n = put_no_exec(f, n, SYS_mprotect);
	n = put_fcntl(f, n);
	n = put(f, n, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
	program.len = (unsigned short)n;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

int vnc_jail_enter(struct err *err)
{
	const struct rlimit space = { ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX };
	int r = privileges_drop(err);

	if (r < 0)
		return err_prefix(err, "jail: "), r;
	if (setrlimit(RLIMIT_AS, &space) < 0)
		return err_errno(err, -errno, "jail: limit on memory");
	r = enter_filter();
	return r < 0 ? err_errno(err, r, "jail: system call filter") : 0;
}
