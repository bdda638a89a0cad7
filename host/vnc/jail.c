/* SPDX-License-Identifier: Apache-2.0 */
/* The jail: see jail.h. libvncserver and GnuTLS decide what they call; everything they need to open was opened before. */
#include "host/vnc/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/privileges.h"
#include "lib/syscall_filter.h"
#include "lib/util.h"

#define ADDRESS_SPACE_MAX ((rlim_t)6 << 30) /* the display's memory, two pictures of 8192x8192, what encoders need */

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

static int enter_filter(struct err *err)
{
	/* No duplicate, lock, new seal or signal. */
	static const uint32_t fcntls[] = { F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GET_SEALS };
	struct syscall_filter f;

	syscall_filter_begin(&f);
	syscall_filter_calls(&f, allowed, ARRAY_SIZE(allowed), SECCOMP_RET_ALLOW);
	syscall_filter_calls(&f, deadly, ARRAY_SIZE(deadly), SECCOMP_RET_KILL_PROCESS);
	syscall_filter_without(&f, SYS_mmap, 2, PROT_EXEC);
	syscall_filter_without(&f, SYS_mprotect, 2, PROT_EXEC);
	syscall_filter_values(&f, SYS_fcntl, 1, fcntls, ARRAY_SIZE(fcntls), SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
	return syscall_filter_enter(&f, SECCOMP_RET_ERRNO | EPERM, false, err);
}

int vnc_jail_enter(struct err *err)
{
#ifdef __SANITIZE_ADDRESS__ /* its shadow alone is more */
	const struct rlimit space = { RLIM_INFINITY, RLIM_INFINITY };
#else
	const struct rlimit space = { ADDRESS_SPACE_MAX, ADDRESS_SPACE_MAX };
#endif
	int r = privileges_drop(err);

	if (r < 0)
		return err_prefix(err, "jail: "), r;
	if (setrlimit(RLIMIT_AS, &space) < 0)
		return err_errno(err, -errno, "jail: limit on memory");
	r = enter_filter(err);
	return r < 0 ? err_prefix(err, "jail: "), r : 0;
}
