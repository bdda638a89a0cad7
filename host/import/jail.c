/* SPDX-License-Identifier: Apache-2.0 */
/* The jail: see jail.h. The list is short enough to be written by hand; sanitizers need more, and get it when built with them. */
#include "host/import/jail.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/privileges.h"
#include "lib/syscall_filter.h"
#include "lib/util.h"

/* A window of zstd or xz may take 128 MiB and more; an archive's tables are small. */
#define MEMORY_MAX ((rlim_t)1 << 30)

static const int allowed[] = {
	SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_lseek, SYS_close, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk,
	SYS_futex, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_restart_syscall, SYS_clock_gettime, SYS_getrandom,
#ifdef __SANITIZE_ADDRESS__
	SYS_sigaltstack, SYS_getpid, SYS_gettid, SYS_sched_yield, SYS_rt_sigprocmask, SYS_openat, SYS_readlink, SYS_newfstatat,
	SYS_prctl, SYS_clone, SYS_wait4, SYS_ptrace, SYS_getdents64, SYS_prlimit64, SYS_fstat,
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

int import_jail_enter(struct err *err)
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
