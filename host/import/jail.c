/* SPDX-License-Identifier: Apache-2.0 */
/* The jail: see jail.h. The list is short enough to be written by hand. */
#include "host/import/jail.h"

#include <sys/syscall.h>

#include "lib/confine.h"
#include "lib/util.h"

/* A window of zstd or xz may take 128 MiB and more; an archive's tables are small. */
#define MEMORY_MAX ((rlim_t)1 << 30)

static const int allowed[] = {
	SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_lseek, SYS_close, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk,
	SYS_futex, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_restart_syscall, SYS_clock_gettime, SYS_getrandom,
};

int import_jail_enter(struct err *err)
{
	return confine(MEMORY_MAX, allowed, ARRAY_SIZE(allowed), err);
}
