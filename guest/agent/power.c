/* SPDX-License-Identifier: Apache-2.0 */
/* Power-off: see power.h. */
#include "guest/agent/power.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/input.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "guest/agent/proc.h"
#include "lib/fd.h"

enum { INPUT_DEVICES_MAX = 32, KTHREADD = 2 };

static bool has_power_key(int fd)
{
	unsigned char keys[KEY_MAX / 8 + 1] = { 0 };

	return ioctl(fd, EVIOCGBIT(EV_KEY, sizeof(keys)), keys) >= 0 && (keys[KEY_POWER / 8] >> (KEY_POWER % 8) & 1);
}

int power_open_buttons(int ret_fds[POWER_BUTTONS_MAX])
{
	int n = 0;

	for (int i = 0; i < INPUT_DEVICES_MAX && n < POWER_BUTTONS_MAX; i++) {
		char path[32];
		int fd;

		snprintf(path, sizeof(path), "/dev/input/event%d", i);
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
		if (fd >= 0 && has_power_key(fd))
			ret_fds[n++] = fd;
		else
			fd_close(fd);
	}
	return n;
}

int power_button_pressed(int fd)
{
	struct input_event e;
	int pressed = 0;

	while (read(fd, &e, sizeof(e)) == sizeof(e))
		pressed |= e.type == EV_KEY && e.code == KEY_POWER && e.value == 1;
	return pressed;
}

struct tally {
	const pid_t *except;
	size_t n;
	int count;
};

/* Kernel threads and zombies do not count. */
static void one_process(const struct proc *p, void *arg)
{
	struct tally *t = arg;
	bool skip = p->pid == getpid() || p->pid == KTHREADD || p->parent == KTHREADD || p->state == 'Z' || p->state == 'X';

	for (size_t i = 0; i < t->n && !skip; i++)
		skip = t->except[i] == p->pid;
	t->count += !skip;
}

int power_count_processes(const pid_t *except, size_t n)
{
	struct tally t = { .except = except, .n = n };

	proc_each(one_process, &t);
	return t.count;
}

/* The root's writable file system has no path any more (root.c), but its descriptor has one. */
static void make_read_only(const struct agent *a)
{
	char path[32];

	if (mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0)
		errno = 0; /* in use: what follows still makes it consistent */
	if (a->writable_fd < 0)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", a->writable_fd);
	if (mount(NULL, path, NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0 && ioctl(a->writable_fd, FIFREEZE, 0) < 0)
		agent_say(a, "the disk could not be made read-only before power-off: %s", strerror(errno));
}

void power_finish(const struct agent *a, int how)
{
	sync();
	make_read_only(a);
	if (reboot(how) < 0)
		agent_say(a, "reboot: %s", strerror(errno));
}

void power_ask_init(const struct agent *a, int how)
{
	static const char *const dirs[] = { "/usr/sbin", "/sbin", "/usr/bin", "/bin" };
	const char *name = how == RB_POWER_OFF ? "poweroff" : "reboot";
	char path[64], *argv[] = { (char *)name, NULL }, *env[] = { (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	pid_t pid = fork();

	if (pid != 0)
		return;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
		execve(path, argv, env);
	}
	agent_say(a, "the guest has no '%s' program: powering off without its init", name);
	power_finish(a, how);
	_exit(1);
}
