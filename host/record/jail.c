/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-record: no new privileges, no capabilities, no core file, bounded memory, and a filter that leaves the system
 * calls which read messages, map the display's memory, write the film and allocate. Nothing can be opened or connected to.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "host/record/record.h"
#include "lib/privileges.h"
#include "lib/util.h"

#define MEMORY_MAX ((rlim_t)4 << 30)

enum { FILTER_MAX = 128 };

static const int allowed[] = {
	SYS_read, SYS_write, SYS_lseek, SYS_close, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_exit, SYS_exit_group,
	SYS_rt_sigreturn, SYS_restart_syscall, SYS_clock_gettime, SYS_getrandom, SYS_recvmsg, SYS_sendto, SYS_poll, SYS_ppoll,
	SYS_sched_getaffinity, SYS_clock_nanosleep, SYS_fstat,
#ifdef __SANITIZE_ADDRESS__
	SYS_sigaltstack, SYS_getpid, SYS_gettid, SYS_sched_yield, SYS_rt_sigprocmask, SYS_openat, SYS_readlink, SYS_newfstatat,
	SYS_prctl, SYS_clone, SYS_wait4, SYS_ptrace, SYS_getdents64, SYS_prlimit64,
#endif
};

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

struct program {
	struct sock_filter f[FILTER_MAX];
	unsigned short n;
};

static void put(struct program *p, struct sock_filter one)
{
	p->f[p->n++] = one;
}

static void allow(struct program *p, int nr)
{
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 1));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* Memory, but none to execute. */
static void allow_memory(struct program *p, int nr)
{
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)nr, 0, 4));
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
}

static int enter_filter(void)
{
	struct program p = { .n = 0 };
	struct sock_fprog program = { .filter = p.f };

	_Static_assert(2 * ARRAY_SIZE(allowed) + 24 < FILTER_MAX, "room for the filter");
	put(&p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
	put(&p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	put(&p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	put(&p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		allow(&p, allowed[i]);
	allow_memory(&p, SYS_mmap);
	allow_memory(&p, SYS_mprotect);
	put(&p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	program.len = p.n;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
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
	r = enter_filter();
	return r < 0 ? err_errno(err, r, "jail: system call filter") : 0;
}
