/* SPDX-License-Identifier: Apache-2.0 */
/* PID 1 in the initramfs: see boot.h. */
#include "guest/agent/boot.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "guest/agent/cgroup.h"
#include "guest/agent/handler.h"
#include "guest/agent/request.h"
#include "lib/fd.h"

#define CGROUP_MOUNT "/sys/fs/cgroup"

void boot_parse_cmdline(const char *cmdline, struct boot_words *ret)
{
	static const struct {
		const char *name;
		size_t offset;
	} words[] = {
		{ "coffer.root=", offsetof(struct boot_words, root) },
		{ "coffer.overlay=", offsetof(struct boot_words, overlay) },
		{ "coffer.hostname=", offsetof(struct boot_words, hostname) },
		{ "coffer.machine_id=", offsetof(struct boot_words, machine_id) },
		{ "coffer.init=", offsetof(struct boot_words, init) },
		{ "coffer.display=", offsetof(struct boot_words, display) },
	};

	memset(ret, 0, sizeof(*ret));
	for (const char *p = cmdline; *p;) {
		size_t n = strcspn(p, " \t\n");

		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
			size_t name = strlen(words[i].name);

			if (n > name && strncmp(p, words[i].name, name) == 0)
				snprintf((char *)ret + words[i].offset, BOOT_WORD_MAX, "%.*s", (int)(n - name), p + name);
		}
		if (n == 2 && (memcmp(p, "rw", 2) == 0 || memcmp(p, "ro", 2) == 0))
			ret->rw = p[1] == 'w';
		p += n;
		p += strspn(p, " \t\n");
	}
}

int boot_mount(const struct agent *a, const char *type, const char *path, unsigned long flags, const char *data)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST) {
		agent_say(a, "make directory %s: %s", path, strerror(errno));
		return -errno;
	}
	if (mount(type, path, type, flags, data) < 0 && errno != EBUSY) {
		agent_say(a, "mount %s on %s: %s", type, path, strerror(errno));
		return -errno;
	}
	return 0;
}

static void write_proc(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, text, strlen(text)) < 0)
		errno = 0; /* the kernel has no such knob; nothing depends on it */
	fd_close(fd);
}

/* Descriptors 0, 1, 2 on the console: the kernel may have found none before devtmpfs was there. */
static void open_console(struct agent *a)
{
	int fd = open("/dev/console", O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0)
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	if (fd > 2)
		close(fd);
	a->console = 2;
}

static void mount_early(struct agent *a)
{
	boot_mount(a, "devtmpfs", "/dev", MS_NOSUID, "mode=755");
	open_console(a);
	boot_mount(a, "proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	boot_mount(a, "sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	boot_mount(a, "tmpfs", "/run", MS_NOSUID | MS_NODEV, "mode=755");
}

/* In the final root, where proc, sys, dev and run have been moved to. */
static void mount_late(struct agent *a)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	boot_mount(a, "devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666");
	boot_mount(a, "tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
	boot_mount(a, "cgroup2", CGROUP_MOUNT, MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
			agent_say(a, "make %s: %s", links[i][1], strerror(errno));
	if (a->writable_fd < 0) /* on a disk /tmp is as private and has more room than memory */
		boot_mount(a, "tmpfs", "/tmp", MS_NOSUID | MS_NODEV, "mode=1777");
}

static void raise_loopback(const struct agent *a)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	if (fd < 0) /* a kernel without a network */
		return;
	if (ioctl(fd, SIOCGIFFLAGS, &r) < 0) {
		agent_say(a, "loopback interface: %s", strerror(errno));
		return;
	}
	r.ifr_flags |= IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &r) < 0)
		agent_say(a, "loopback interface: %s", strerror(errno));
}

static void set_names(const struct agent *a, const struct boot_words *w)
{
	struct err err = ERR_INIT;

	if (w->hostname[0] && sethostname(w->hostname, strlen(w->hostname)) < 0)
		agent_say(a, "host name '%s': %s", w->hostname, strerror(errno));
	if (!w->machine_id[0])
		return;
	if (strlen(w->machine_id) != AGENT_MACHINE_ID || strspn(w->machine_id, "0123456789abcdef") != AGENT_MACHINE_ID)
		agent_say(a, "coffer.machine_id: must be %d lower-case hexadecimal digits", AGENT_MACHINE_ID);
	else if (control_write_machine_id("/etc", w->machine_id, &err) < 0)
		agent_say(a, "%s", err.text);
}

static void protect_self(void)
{
	struct rlimit files = { 4096, 1048576 };

	write_proc("/proc/self/oom_score_adj", "-1000");
	write_proc("/proc/sys/kernel/panic", "-1"); /* end at once: the monitor knows why from pvpanic */
	write_proc("/proc/sys/kernel/ctrl-alt-del", "0"); /* SIGINT to PID 1 instead of a reboot on the spot */
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		errno = 0;
	reboot(RB_DISABLE_CAD);
}

void boot_leave_protection(void)
{
	write_proc("/proc/self/oom_score_adj", "0");
}

/* PID 1 becomes the image's own init; the agent goes on in a child. */
static void hand_over(struct agent *a, const char *init)
{
	char *argv[] = { (char *)init, NULL }, *env[] = { (char *)"PATH=" ENVIRONMENT_PATH, (char *)"TERM=linux", NULL };
	pid_t pid = fork();

	if (pid < 0) {
		agent_say(a, "coffer.init: %s", strerror(errno));
		return;
	}
	if (pid > 0) {
		boot_leave_protection();
		execve(init, argv, env);
		agent_say(a, "coffer.init: '%s': %s; power off", init, strerror(errno));
		sync();
		reboot(RB_POWER_OFF);
		for (;;)
			pause();
	}
	setsid();
	a->mode = AGENT_SERVICE;
}

void boot_machine(struct agent *a)
{
	struct boot_words w;
	struct err err = ERR_INIT;
	char cmdline[4096];
	int fd;
	ssize_t n;

	umask(022);
	mount_early(a);
	fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : fd_read_full(fd, cmdline, sizeof(cmdline) - 1);
	fd_close(fd);
	cmdline[n > 0 ? n : 0] = '\0';
	boot_parse_cmdline(cmdline, &w);
	protect_self();
	boot_load_modules(a);
	strcpy(a->root, "initramfs");
	strcpy(a->overlay, "none");
	if (w.root[0] && boot_enter_root(a, &w, &err) < 0) {
		agent_say(a, "%s; serving from the initramfs", err.text);
		strcpy(a->root, "none");
		snprintf(a->root_error, sizeof(a->root_error), "%.*s", (int)sizeof(a->root_error) - 1, err.text);
	}
	mount_late(a);
	raise_loopback(a);
	set_names(a, &w);
	err = ERR_INIT;
	a->cgroup_fd = cgroup_open_base(CGROUP_MOUNT "/coffer", &err);
	if (a->cgroup_fd < 0)
		agent_say(a, "%s", err.text);
	if (w.init[0])
		hand_over(a, w.init);
	else if (strcmp(a->root, "disk") == 0 && w.display[0])
		boot_start_session(a, SESSION_PROGRAM, w.display);
}
