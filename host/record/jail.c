/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-record: no new privileges, no capabilities, no core file, bounded memory, and a filter that leaves the system
 * calls which read messages, map the display's memory, write the film and allocate. Nothing can be opened or connected to.
 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "host/record/record.h"
#include "lib/privileges.h"
#include "lib/syscall_filter.h"
#include "lib/util.h"

#define MEMORY_MAX ((rlim_t)4 << 30)

static const int allowed[] = {
	SYS_read, SYS_write, SYS_lseek, SYS_close, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_exit, SYS_exit_group,
	SYS_rt_sigreturn, SYS_restart_syscall, SYS_clock_gettime, SYS_getrandom, SYS_recvmsg, SYS_sendto, SYS_poll, SYS_ppoll,
	SYS_sched_getaffinity, SYS_clock_nanosleep, SYS_fstat,
#ifdef __SANITIZE_ADDRESS__
	SYS_sigaltstack, SYS_getpid, SYS_gettid, SYS_sched_yield, SYS_rt_sigprocmask, SYS_openat, SYS_readlink, SYS_newfstatat,
	SYS_prctl, SYS_clone, SYS_wait4, SYS_ptrace, SYS_getdents64, SYS_prlimit64,
#endif
};

static int enter_filter(struct err *err)
{
	struct syscall_filter f;

	syscall_filter_begin(&f);
	syscall_filter_calls(&f, allowed, ARRAY_SIZE(allowed), SECCOMP_RET_ALLOW);
	/* Memory, but none to execute. */
	syscall_filter_without(&f, SYS_mmap, 2, PROT_EXEC);
	syscall_filter_without(&f, SYS_mprotect, 2, PROT_EXEC);
	return syscall_filter_enter(&f, SECCOMP_RET_KILL_PROCESS, false, err);
}

int record_jail_enter(struct err *err)
{
	const struct rlimit memory = { MEMORY_MAX, MEMORY_MAX };
	int r = privileges_drop(err);

	if (r < 0)
		return err_prefix(err, "jail: "), r;
#ifdef __SANITIZE_ADDRESS__
	(void)memory; /* shadow memory is larger */
#else
	if (setrlimit(RLIMIT_DATA, &memory) < 0)
		return err_errno(err, -errno, "jail: limit of memory");
#endif
	r = enter_filter(err);
	return r < 0 ? err_prefix(err, "jail: "), r : 0;
}
