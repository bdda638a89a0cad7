/* SPDX-License-Identifier: Apache-2.0 */
/* The jail of a process that only computes: see confine.h. */
#include "lib/confine.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "lib/privileges.h"
#include "lib/syscall_filter.h"
#include "lib/util.h"

#ifdef __SANITIZE_ADDRESS__
static const int sanitizer[] = {
	SYS_sigaltstack, SYS_getpid, SYS_gettid, SYS_sched_yield, SYS_rt_sigprocmask, SYS_openat, SYS_readlink, SYS_newfstatat,
	SYS_prctl, SYS_clone, SYS_wait4, SYS_ptrace, SYS_getdents64, SYS_prlimit64, SYS_fstat,
};
#endif

int confine(rlim_t memory, const int *calls, size_t n, struct err *err)
{
	const struct rlimit data = { memory, memory };
	struct syscall_filter f;
	int r = privileges_drop(err);

	if (r < 0)
		return err_prefix(err, "jail: "), r;
	syscall_filter_begin(&f);
	syscall_filter_calls(&f, calls, n, SECCOMP_RET_ALLOW);
#ifdef __SANITIZE_ADDRESS__
	(void)data;
	syscall_filter_calls(&f, sanitizer, ARRAY_SIZE(sanitizer), SECCOMP_RET_ALLOW);
#else
	if (setrlimit(RLIMIT_DATA, &data) < 0)
		return err_errno(err, -errno, "jail: limit of memory");
#endif
	syscall_filter_without(&f, SYS_mmap, 2, PROT_EXEC);
	syscall_filter_without(&f, SYS_mprotect, 2, PROT_EXEC);
	r = syscall_filter_enter(&f, SECCOMP_RET_KILL_PROCESS, false, err);
	return r < 0 ? err_prefix(err, "jail: "), r : 0;
}
