/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to a running monitor, and its end: see launch.h. Waiting for the guest: launch_wait.c.
 *
 * Threads: one. Trust: options are the user's; what the monitor leaves is judged in vmconfig.c.
 */
#include "host/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/doctor.h"
#include "host/initramfs.h"
#include "host/kernel.h"
#include "host/launch_disks.h"
#include "host/launch_gpu.h"
#include "host/launch_remote.h"
#include "host/paths.h"
#include "host/signals.h"
#include "host/sock.h"
#include "host/vmargs.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

void launch_init(struct launch *l)
{
	*l = (struct launch){ .dir = VMDIR_NONE, .image_fd = -1, .ready_sock = -1, .pidfd = -1, .status_fd = -1, .signal_fd = -1, .gpu_sock = -1,
			      .start_ns = loop_now_ns() };
}

/* ---- files ---- */

static int find_image(struct launch *l, const char *image, struct err *err)
{
	if (!strcmp(image, LAUNCH_NO_IMAGE))
		return 0;
	int r = image_resolve(image, &l->image, err);

	if (r < 0)
		return r;
	if (l->image.format == IMAGE_FORMAT_UNKNOWN)
		return err_set(err, -EINVAL, "image '%s' has no file system that Coffer can mount: it must be ext4, erofs or squashfs, without partitions",
			       image);
	l->image_fd = image_open(&l->image, err);
	l->direct = launch_disks_direct(&l->image);
	return l->image_fd < 0 ? l->image_fd : 0;
}

static int find_files(struct launch *l, const struct launch_options *o, struct err *err)
{
	char agent[PATH_MAX];
	int r = find_image(l, o->image ? o->image : LAUNCH_DEFAULT_IMAGE, err);

	if (r == 0)
		r = kernel_choose(o->kernel, o->display.width > 0, l->kernel, sizeof(l->kernel), err);
	if (r < 0)
		return r;
	if (o->initrd)
		return kernel_resolve("--initrd", o->initrd, "an initramfs that starts coffer-agent", l->initrd, sizeof(l->initrd), err);
	r = paths_program("coffer-agent", "COFFER_AGENT", agent, sizeof(agent), err);
	if (r == 0)
		r = initramfs_build(agent, l->kernel, o->display.width > 0, l->initrd, sizeof(l->initrd), err);
	return r < 0 ? r : 0;
}

static int make_directory(struct launch *l, const struct launch_options *o, const char *command, struct err *err)
{
	char display[VM_DISPLAY_TEXT];
	struct timespec now;
	int r = vmdir_create(o->name, &l->dir, err);

	if (r < 0)
		return r;
	clock_gettime(CLOCK_REALTIME, &now);
	vm_display_find((char *const *)(uintptr_t)o->devices.v, o->devices.n, display);
	struct vm_config c = { .created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, .cpus = o->cpus,
			       .memory = o->memory, .image = o->image ? o->image : (char[]){ LAUNCH_DEFAULT_IMAGE },
			       .user = l->image.user, .cwd = l->image.cwd, .kernel = l->kernel,
			       .display = display, .command = (char *)(uintptr_t)command, .keep = o->keep };

	r = vmdir_write_config(&l->dir, &c, err);
	if (r == 0)
		r = launch_disks_make(l, o, err);
	return r < 0 ? r : launch_disks_record(l, o, err);
}

/* ---- the monitor ---- */

int launch_open_log(const struct launch *l, struct err *err)
{
	int fd = openat(l->dir.fd, VMDIR_LOG, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? err_errno(err, -errno, "make '%s/%s'", l->dir.path, VMDIR_LOG) : fd;
}

static void __attribute__((noreturn)) become_monitor(const struct vmargs *args, int log, pid_t parent, bool keep)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	/* Out of the terminal's reach: Ctrl-C is for the command in the guest. */
	setsid();
	signals_reset();
	dup2(null, 0);
	dup2(null, 1);
	dup2(log, 2);
	for (size_t i = 0; i < args->nfds; i++)
		fd_set_cloexec(args->fd[i], 0);
	if (!keep) { /* until the monitor does so itself (--die-with-parent) */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	execv(args->argv[0], (char *const *)(uintptr_t)args->argv);
	dprintf(2, "coffer-vmm: %s: %s\n", args->argv[0], strerror(errno));
	_exit(1);
}

int launch_spawn(struct launch *l, const struct vmargs *args, bool keep, const struct guardian *g, struct err *err)
{
	_cleanup_close_ int log = launch_open_log(l, err);
	pid_t parent = getpid();

	if (log < 0)
		return log;
	l->pid = fork();
	if (l->pid < 0) {
		int r = -errno;

		l->pid = 0;
		return err_errno(err, r, "fork");
	}
	if (l->pid == 0)
		become_monitor(args, log, parent, keep);
	l->spawned_ns = loop_now_ns();
	l->pidfd = (int)syscall(SYS_pidfd_open, l->pid, 0);
	if (l->pidfd < 0)
		return err_errno(err, -errno, "pidfd_open");
	guardian_watch_monitor(g, l->pid, l->pidfd);
	return 0;
}

static int start_monitor(struct launch *l, const struct launch_options *o, const struct guardian *g, struct err *err)
{
	struct vmargs *args = NULL;

	l->ready_sock = sock_listen_at(l->dir.fd, LAUNCH_READY_SOCKET, SOCK_STREAM, err);
	if (l->ready_sock < 0)
		return l->ready_sock;
	int r = vmargs_make(l, o, &args, err);

	if (r == 0)
		r = launch_spawn(l, args, o->keep, g, err);
	vmargs_free(args);
	vm_disks_finish(&l->disks); /* the locks of the writable ones are the monitor's alone now */
	launch_remote_finish(l);
	launch_gpu_finish(l);
	return r;
}

int launch_prepare(struct launch *l, const struct launch_options *o, struct progress *progress, struct err *err)
{
	progress_stage(progress, "preparing");
	int r = find_files(l, o, err);

	return r < 0 ? r : launch_disks_prepare(l, o, err);
}

int launch_start(struct launch *l, const struct launch_options *o, const char *command, const struct guardian *g,
		 struct progress *progress, struct err *err)
{
	int r = launch_remote_check(o, err);

	if (r == 0)
		r = doctor_require_kvm(err);
	if (r < 0)
		return r;
	vmdir_sweep(NULL, NULL, NULL); /* what cannot be removed is for `coffer ps` to tell */
	progress_stage(progress, "preparing");
	r = find_files(l, o, err);
	if (r == 0)
		r = make_directory(l, o, command, err);
	if (r == 0)
		r = start_monitor(l, o, g, err);
	return r;
}

/* ---- the end ---- */

static void reap(struct launch *l)
{
	if (l->reaped || l->pid <= 0)
		return;
	if (l->foreign) {
		struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

		sock_poll(&p, 1, 0);
		l->wait_status = -1;
		l->reaped = true;
		return;
	}
	while (waitpid(l->pid, &l->wait_status, 0) < 0)
		if (errno != EINTR)
			return;
	l->reaped = true;
}

static void end_monitor(struct launch *l)
{
	if (l->pid <= 0 || l->reaped)
		return;
	/* By request first, so that it says in its status why it ended; a monitor that has not come so far is killed. */
	if (control_end_monitor(l->dir.fd, NULL) < 0 || l->ready_ns == 0)
		l->foreign ? (int)syscall(SYS_pidfd_send_signal, l->pidfd, SIGKILL, NULL, 0) : kill(l->pid, SIGKILL);
	reap(l);
}

int launch_end(struct launch *l, bool keep, struct err *err)
{
	int r = 0;

	l->ready_sock = fd_close(l->ready_sock);
	if (!keep) {
		end_monitor(l);
		if (l->dir.fd >= 0)
			r = vmdir_remove(&l->dir, err);
	}
	vmdir_close(&l->dir);
	l->pidfd = fd_close(l->pidfd);
	l->status_fd = fd_close(l->status_fd);
	l->image_fd = fd_close(l->image_fd);
	vm_disks_finish(&l->disks);
	launch_remote_finish(l);
	launch_gpu_finish(l);
	image_finish(&l->image);
	return r;
}
