/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-record: no new privileges, no capabilities, no core file, bounded memory, and a filter that leaves the system
 * calls which read messages, map the display's memory, write the film and allocate. Nothing can be opened or connected to.
 */
#include <sys/syscall.h>

#include "host/record/record.h"
#include "lib/confine.h"
#include "lib/util.h"

#define MEMORY_MAX ((rlim_t)4 << 30)

static const int allowed[] = {
	SYS_read, SYS_write, SYS_lseek, SYS_close, SYS_munmap, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex, SYS_exit, SYS_exit_group,
	SYS_rt_sigreturn, SYS_restart_syscall, SYS_clock_gettime, SYS_getrandom, SYS_recvmsg, SYS_sendto, SYS_poll, SYS_ppoll,
	SYS_sched_getaffinity, SYS_clock_nanosleep, SYS_fstat,
};

int record_jail_enter(struct err *err)
{
	return confine(MEMORY_MAX, allowed, ARRAY_SIZE(allowed), err);
}
