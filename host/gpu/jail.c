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
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/privileges.h"
#include "lib/util.h"

#define NEW_ROOT "/tmp"

static int write_text(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_write_full(fd, text, strlen(text));
}

static int map_ids(uid_t uid, gid_t gid)
{
	char map[64];
	int r = write_text("/proc/self/setgroups", "deny");

	if (r < 0 && r != -ENOENT)
		return r;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	r = write_text("/proc/self/gid_map", map);
	if (r < 0)
		return r;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	return write_text("/proc/self/uid_map", map);
}

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
		r = map_ids(uid, gid);
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
	SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(poll),
	SCMP_SYS(ppoll), SCMP_SYS(close), SCMP_SYS(lseek), SCMP_SYS(fstat), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mprotect),
	SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(brk), SCMP_SYS(futex), SCMP_SYS(clone), SCMP_SYS(clone3), SCMP_SYS(set_robust_list),
	SCMP_SYS(rseq), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigaction),
	SCMP_SYS(sigaltstack), SCMP_SYS(sched_yield), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_setaffinity), SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep), SCMP_SYS(clock_gettime), SCMP_SYS(gettimeofday), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(getrandom),
	SCMP_SYS(restart_syscall), SCMP_SYS(ioctl), SCMP_SYS(fcntl), SCMP_SYS(dup), SCMP_SYS(eventfd2), SCMP_SYS(memfd_create),
	SCMP_SYS(ftruncate), SCMP_SYS(sysinfo), SCMP_SYS(uname), SCMP_SYS(getrusage), SCMP_SYS(membarrier), SCMP_SYS(set_tid_address),
	SCMP_SYS(arch_prctl), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_ctl),
#ifdef __SANITIZE_ADDRESS__
	SCMP_SYS(getdents64), SCMP_SYS(ptrace), SCMP_SYS(wait4), SCMP_SYS(pread64), SCMP_SYS(prctl), SCMP_SYS(tgkill), SCMP_SYS(personality),
#endif
};

/* Asked for by drivers that go on without. */
static const int refused[] = {
	SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(stat), SCMP_SYS(lstat),
	SCMP_SYS(newfstatat), SCMP_SYS(statx), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(mkdir), SCMP_SYS(prlimit64), SCMP_SYS(sched_setscheduler), SCMP_SYS(setpriority), SCMP_SYS(kcmp), SCMP_SYS(socket),
	SCMP_SYS(statfs), SCMP_SYS(flock), SCMP_SYS(unlink),
#ifndef __SANITIZE_ADDRESS__
	SCMP_SYS(getdents64), SCMP_SYS(prctl), SCMP_SYS(tgkill),
#endif
};

int gpu_jail_filter(struct err *err)
{
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r = c ? seccomp_attr_set(c, SCMP_FLTATR_CTL_TSYNC, 1) : -ENOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(refused) && r == 0; i++)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
#ifndef __SANITIZE_ADDRESS__
	/* A thread's name may be set; nothing else of prctl. */
	if (r == 0)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1, SCMP_CMP(0, SCMP_CMP_EQ, PR_SET_NAME, 0));
#endif
	if (r == 0)
		r = seccomp_load(c);
	seccomp_release(c);
	return r < 0 ? err_errno(err, r, "jail: system call filter") : 0;
}
