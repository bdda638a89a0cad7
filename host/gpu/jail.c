/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail: see jail.h.
 *
 * Code is compiled while shaders are (llvmpipe), so memory may be made executable here, which no other of our processes may. A call
 * outside the list fails with EPERM where drivers are known to try and go on, and ends the process otherwise.
 */
#include "host/gpu/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/privileges.h"
#include "lib/syscall_filter.h"
#include "lib/util.h"

#define NEW_ROOT "/tmp"
#define RENDERER_OWN (2ull << 30) /* bytes: its threads' stacks, its compiler, shaders, contexts */

/* Show `path` at the same place below the new root. What is not there is left out; a link stays a link. */
static int show(const char *path, bool device)
{
	char to[128], target[128];
	struct stat st;
	ssize_t n;

	if (lstat(path, &st) < 0)
		return 0;
	snprintf(to, sizeof(to), NEW_ROOT "%s", path);
	if (S_ISLNK(st.st_mode)) {
		n = readlink(path, target, sizeof(target) - 1);
		if (n < 0)
			return -errno;
		target[n] = '\0';
		return symlink(target, to) < 0 ? -errno : 0;
	}
	if (S_ISDIR(st.st_mode) ? mkdir(to, 0755) < 0 : mknod(to, S_IFREG | 0600, 0) < 0)
		return -errno;
	if (mount(path, to, NULL, MS_BIND | MS_REC, NULL) < 0)
		return -errno;
	return mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | (device ? 0u : MS_NODEV), NULL) < 0 ? -errno : 0;
}

static int enter_root(const char *render_node, struct err *err)
{
	/* Where the linker and Mesa look for drivers and their settings. */
	static const char *const shown[] = { "/usr", "/lib", "/lib64", "/lib32", "/etc", "/sys" };
	int r = 0;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_errno(err, -errno, "private mounts");
	if (mount("none", NEW_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=64k") < 0)
		return err_errno(err, -errno, "new root");
	if (mkdir(NEW_ROOT "/etc", 0755) < 0 || mkdir(NEW_ROOT "/dev", 0755) < 0 || mkdir(NEW_ROOT "/dev/dri", 0755) < 0)
		return err_errno(err, -errno, "new root");
	for (size_t i = 0; i < ARRAY_SIZE(shown) && r == 0; i++) {
		bool etc = strcmp(shown[i], "/etc") == 0;

		/* Of /etc the linker's cache alone; of /sys what tells one device from another, with a device only. */
		if (etc || strcmp(shown[i], "/sys") != 0 || render_node)
			r = show(etc ? "/etc/ld.so.cache" : shown[i], false);
	}
	if (r == 0 && render_node)
		r = show(render_node, true);
	if (r < 0)
		return err_errno(err, r, "new root");
	if (chdir(NEW_ROOT) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_errno(err, -errno, "pivot_root");
	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
		return err_errno(err, -errno, "new root read-only");
	return 0;
}

/* The first process of a new space of processes is a child. The parent lives for its status alone. */
static int enter_child(struct err *err)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return err_errno(err, -errno, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		return 0;
	}
	close_range(0, ~0u, 0);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			_exit(125);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int gpu_jail_enter(const char *render_node, struct err *err)
{
	const int spaces = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID;
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r;

	if (unshare(CLONE_NEWUSER | spaces) == 0) {
		r = privileges_map_ids(uid, gid);
		if (r < 0)
			return err_errno(err, r, "jail: user namespace maps");
	} else if (unshare(spaces) < 0) {
		err_errno(err, -errno, "no namespaces: user namespaces are not allowed on this host");
		r = privileges_drop(NULL);
		return r < 0 ? r : 0;
	}
	r = enter_child(err);
	if (r == 0)
		r = enter_root(render_node, err);
	if (r == 0)
		r = privileges_drop(err);
	if (r < 0)
		err_prefix(err, "jail: ");
	return r < 0 ? r : 1;
}

static const int allowed[] = {
	SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_sendto, SYS_poll, SYS_ppoll, SYS_close,
	SYS_lseek, SYS_fstat, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_futex,
	SYS_set_robust_list, SYS_rseq, SYS_exit, SYS_exit_group, SYS_rt_sigprocmask,
	SYS_rt_sigreturn, SYS_rt_sigaction, SYS_sigaltstack, SYS_sched_yield, SYS_sched_getaffinity,
	SYS_sched_setaffinity, SYS_nanosleep, SYS_clock_nanosleep, SYS_clock_gettime, SYS_gettimeofday, SYS_getpid,
	SYS_gettid, SYS_getrandom, SYS_restart_syscall, SYS_ioctl, SYS_fcntl, SYS_dup, SYS_eventfd2,
	SYS_memfd_create, SYS_ftruncate, SYS_sysinfo, SYS_uname, SYS_getrusage, SYS_membarrier, SYS_set_tid_address,
	SYS_arch_prctl, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_epoll_wait, SYS_epoll_ctl,
#ifdef __SANITIZE_ADDRESS__
	SYS_clone, SYS_getdents64, SYS_ptrace, SYS_wait4, SYS_pread64, SYS_prctl, SYS_tgkill, SYS_personality,
#endif
};

/* Its flags are in memory, out of a filter's sight. A C library that hears that there is no such call makes threads by clone. */
static const int unknown[] = { SYS_clone3 };

/* Asked for by drivers that go on without. */
static const int refused[] = {
	SYS_open, SYS_openat, SYS_access, SYS_faccessat, SYS_faccessat2, SYS_stat, SYS_lstat, SYS_newfstatat,
	SYS_statx, SYS_readlink, SYS_readlinkat, SYS_mkdir, SYS_prlimit64, SYS_sched_setscheduler, SYS_setpriority,
	SYS_kcmp, SYS_socket, SYS_statfs, SYS_flock, SYS_unlink,
#ifndef __SANITIZE_ADDRESS__
	SYS_getdents64, SYS_tgkill,
#endif
};

/* What a guest's streams make in the renderer besides resources is counted by nobody else. */
static int limit_memory(uint64_t resources, struct err *err)
{
#ifdef __SANITIZE_ADDRESS__
	(void)resources; /* its shadow alone is more */
	(void)err;
#else
	const struct rlimit data = { resources + RENDERER_OWN, resources + RENDERER_OWN };

	if (setrlimit(RLIMIT_DATA, &data) < 0)
		return err_errno(err, -errno, "limit on memory");
#endif
	return 0;
}

int gpu_jail_filter(uint64_t resources, struct err *err)
{
	static const uint32_t names[] = { PR_SET_NAME };
	struct syscall_filter f;
	int r;

	r = limit_memory(resources, err);
	if (r < 0)
		return err_prefix(err, "jail: "), r;
	syscall_filter_begin(&f);
	syscall_filter_calls(&f, allowed, ARRAY_SIZE(allowed), SECCOMP_RET_ALLOW);
	syscall_filter_calls(&f, refused, ARRAY_SIZE(refused), SECCOMP_RET_ERRNO | EPERM);
	syscall_filter_calls(&f, unknown, ARRAY_SIZE(unknown), SECCOMP_RET_ERRNO | ENOSYS);
	syscall_filter_with(&f, SYS_clone, 0, CLONE_THREAD);
	syscall_filter_values(&f, SYS_prctl, 0, names, ARRAY_SIZE(names), SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
	r = syscall_filter_enter(&f, SECCOMP_RET_KILL_PROCESS, true, err);
	return r < 0 ? err_prefix(err, "jail: "), r : 0;
}
