/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail: see jail.h. libcurl and the resolver decide what they call, so the list of what is allowed is wider than the
 * monitor's, and the same for all threads. Sockets are those of the Internet, and netlink, which getaddrinfo asks for addresses:
 * never Unix ones, by which a root process could reach other daemons.
 */
#include "host/fetch/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/privileges.h"
#include "lib/syscall_filter.h"
#include "lib/util.h"

/* ---- Landlock ---- */

#define READ_ACCESS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define CACHE_ACCESS (READ_ACCESS | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR)
#define ALL_ACCESS ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

static int add_rule(int ruleset, int fd, uint64_t access)
{
	struct landlock_path_beneath_attr attr = { .allowed_access = access, .parent_fd = fd };

	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0 ? -errno : 0;
}

static int add_path(int ruleset, const char *path, uint64_t access)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);

	return fd < 0 ? 0 : add_rule(ruleset, fd, access); /* what is not there needs no rule */
}

static int enter_landlock(int cache_fd, const char *const *ca_files, size_t n)
{
	/* /run: where resolv.conf leads to; /usr/lib: modules of the name service switch. */
	static const char *const dirs[] = { "/etc", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
					    "/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/usr/lib", "/lib",
					    "/usr/lib64", "/lib64" };
	struct landlock_ruleset_attr attr = { .handled_access_fs = ALL_ACCESS };
	_cleanup_close_ int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	int r = 0;

	if (ruleset < 0)
		return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
	for (size_t i = 0; i < ARRAY_SIZE(dirs) && r == 0; i++)
		r = add_path(ruleset, dirs[i], READ_ACCESS);
	if (r == 0)
		r = add_path(ruleset, "/dev/urandom", LANDLOCK_ACCESS_FS_READ_FILE);
	for (size_t i = 0; i < n && r == 0; i++)
		if (ca_files[i] != NULL)
			r = add_path(ruleset, ca_files[i], LANDLOCK_ACCESS_FS_READ_FILE);
	if (r == 0 && cache_fd >= 0)
		r = add_rule(ruleset, cache_fd, CACHE_ACCESS);
	if (r == 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		r = -errno;
	return r;
}

/* ---- system calls ---- */

static const int deadly[] = {
	SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_mount, SYS_umount2, SYS_pivot_root,
	SYS_chroot, SYS_setns, SYS_unshare, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_bpf,
	SYS_perf_event_open, SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_reboot, SYS_swapon, SYS_swapoff,
	SYS_open_by_handle_at, SYS_move_mount, SYS_open_tree, SYS_fsopen, SYS_fsmount, SYS_io_uring_setup, SYS_kill, SYS_tkill,
	SYS_mknodat, SYS_setuid, SYS_setresuid, SYS_setreuid, SYS_capset, SYS_process_madvise, SYS_pidfd_getfd,
};

static const int allowed[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_openat, SYS_newfstatat, SYS_fstat, SYS_statx,
	SYS_close, SYS_lseek, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_rt_sigaction,
	SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_ioctl, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl,
	SYS_epoll_pwait, SYS_eventfd2, SYS_pipe2, SYS_socketpair, SYS_connect, SYS_bind, SYS_sendto, SYS_sendmsg, SYS_sendmmsg,
	SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_shutdown, SYS_getsockname, SYS_getpeername, SYS_setsockopt, SYS_getsockopt,
	SYS_clone, SYS_clone3, SYS_futex, SYS_set_robust_list, SYS_rseq, SYS_exit, SYS_exit_group, SYS_nanosleep,
	SYS_clock_nanosleep, SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_getpid, SYS_gettid, SYS_getuid,
	SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getrandom, SYS_fcntl, SYS_flock, SYS_fallocate, SYS_ftruncate, SYS_fdatasync,
	SYS_fsync, SYS_unlinkat, SYS_getdents64, SYS_uname, SYS_sysinfo, SYS_sched_yield, SYS_sched_getaffinity,
	SYS_faccessat, SYS_faccessat2, SYS_readlinkat, SYS_dup, SYS_dup3, SYS_restart_syscall, SYS_getcwd, SYS_membarrier,
	SYS_close_range, SYS_set_tid_address,
#ifdef __x86_64__
	SYS_open, SYS_stat, SYS_lstat, SYS_poll, SYS_select, SYS_epoll_wait, SYS_epoll_create, SYS_pipe, SYS_access, SYS_readlink,
	SYS_dup2, SYS_time, SYS_arch_prctl, SYS_getrlimit,
#endif
};

static int enter_filter(struct err *err)
{
	const uint32_t own[] = { (uint32_t)getpid(), 0 }; /* 0 is the process itself for prlimit64 */
	static const uint32_t names[] = { PR_SET_NAME }, families[] = { AF_INET, AF_INET6, AF_NETLINK };
	struct syscall_filter f;

	syscall_filter_begin(&f);
	syscall_filter_calls(&f, allowed, ARRAY_SIZE(allowed), SECCOMP_RET_ALLOW);
	syscall_filter_calls(&f, deadly, ARRAY_SIZE(deadly), SECCOMP_RET_KILL_PROCESS);
	/* Threads of its own, and its own limits: other processes of the user are none of its business. */
	syscall_filter_values(&f, SYS_tgkill, 0, own, 1, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
	syscall_filter_values(&f, SYS_prlimit64, 0, own, 2, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
	syscall_filter_values(&f, SYS_prctl, 0, names, ARRAY_SIZE(names), SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
	syscall_filter_values(&f, SYS_socket, 0, families, ARRAY_SIZE(families), SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EACCES);
	return syscall_filter_enter(&f, SECCOMP_RET_ERRNO | EPERM, false, err);
}

int jail_enter(int cache_fd, const char *const *ca_files, size_t n, struct err *err)
{
	int r = privileges_drop(err);

	if (r < 0)
		return err_prefix(err, "jail: "), r;
	r = enter_landlock(cache_fd, ca_files, n);
	if (r < 0)
		return err_errno(err, r, "jail: Landlock");
	r = enter_filter(err);
	return r < 0 ? err_prefix(err, "jail: "), r : 0;
}
