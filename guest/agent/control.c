/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine itself: ping, configure, sync, freeze and thaw, power.
 *
 * With a Unix socket the machine is somebody else's: what would change it is refused (-EOPNOTSUPP).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent/clock.h"
#include "guest/agent/handler.h"
#include "guest/agent/supervisor.h"
#include "lib/fd.h"
#include "lib/util.h"

#ifndef RNDRESEEDCRNG
#define RNDRESEEDCRNG _IO('R', 0x07)
#endif

enum { FREEZE_MAX_MS = 60000, FREEZE_WAIT_MS = 5000, FREEZE_POLL_MS = 5 };

/* ---- ping ---- */

/* "MemAvailable:  123 kB" of /proc/meminfo, in bytes; `fallback` where there is none. */
static uint64_t available_memory(uint64_t fallback)
{
	char text[1024], *p, *end;
	_cleanup_close_ int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	unsigned long long kib;
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return fallback;
	text[n] = '\0';
	p = strstr(text, "MemAvailable:");
	if (!p)
		return fallback;
	p += strlen("MemAvailable:");
	errno = 0;
	kib = strtoull(p, &end, 10);
	return end == p || errno ? fallback : kib * 1024;
}

static void count(const struct handler *h, unsigned *ret_connections, unsigned *ret_commands)
{
	*ret_connections = *ret_commands = 0;
	for (size_t i = 0; i < AGENT_CONNECTIONS_MAX; i++) {
		struct agent_slot *s = &h->agent->shared->slot[i];

		if (!atomic_load(&s->used))
			continue;
		++*ret_connections;
		*ret_commands += atomic_load(&s->command.id) && atomic_load(&s->command.pid);
	}
}

int control_ping(struct handler *h)
{
	char buf[AGENT_REPLY_MAX];
	struct sysinfo si = { 0 };
	struct utsname un = { 0 };
	unsigned connections, commands;
	struct json_writer w;
	struct timespec now;
	int rc;

	sysinfo(&si);
	uname(&un);
	clock_gettime(CLOCK_REALTIME, &now);
	count(h, &connections, &commands);
	channel_answer_begin(&w, buf);
	json_write_int(&w, "version", AGENT_PROTO_VERSION);
	json_write_string(&w, "agent", COFFER_VERSION);
	json_write_int(&w, "pid", getppid());
	json_write_uint(&w, "uptime_ms", agent_now_ms());
	json_write_int(&w, "clock_ns", now.tv_sec * 1000000000ll + now.tv_nsec);
	json_write_string(&w, "kernel", un.release);
	json_write_string(&w, "hostname", un.nodename);
	json_write_uint(&w, "connections", connections);
	json_write_uint(&w, "commands", commands);
	json_write_uint(&w, "processes", si.procs);
	json_write_object(&w, "memory");
	json_write_uint(&w, "total", (uint64_t)si.totalram * si.mem_unit);
	json_write_uint(&w, "available", available_memory((uint64_t)si.freeram * si.mem_unit));
	json_write_object_end(&w);
	json_write_string(&w, "root", h->agent->root);
	json_write_string(&w, "overlay", h->agent->overlay);
	rc = channel_answer_end(&h->channel, &w);
	return rc < 0 ? err_errno(&h->err, rc, "ping") : 0;
}

/* ---- configure ---- */

static int reseed(const struct request *r, struct err *err)
{
	/* struct rand_pool_info with room for its bytes: entropy in bits, size, bytes */
	int32_t pool[2 + REQUEST_ENTROPY_MAX / sizeof(int32_t)];
	_cleanup_close_ int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "entropy: open /dev/urandom");
	pool[0] = (int32_t)r->nentropy * 8;
	pool[1] = (int32_t)r->nentropy;
	memcpy(pool + 2, r->entropy, r->nentropy);
	if (ioctl(fd, RNDADDENTROPY, pool) < 0)
		return err_errno(err, -errno, "entropy: add to the pool");
	if (ioctl(fd, RNDRESEEDCRNG) < 0)
		return err_errno(err, -errno, "entropy: reseed");
	return 0;
}

/* An image of a few programs has no /etc. */
static int make_etc(const char *etc, struct err *err)
{
	if (mkdir(etc, 0755) < 0)
		return errno == EEXIST ? 0 : err_errno(err, -errno, "machine_id: make %s", etc);
	if (chmod(etc, 0755) < 0) /* whatever the umask is */
		return err_errno(err, -errno, "machine_id: chmod %s", etc);
	return 0;
}

int control_write_machine_id(const char *etc, const char *id, struct err *err)
{
	char line[AGENT_MACHINE_ID + 2], path[PATH_MAX];
	int rc = access(etc, F_OK) == 0 ? 0 : make_etc(etc, err);

	if (rc < 0)
		return rc;
	snprintf(path, sizeof(path), "%s/machine-id", etc);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0444);

	if (fd < 0)
		return err_errno(err, -errno, "machine_id: open %s", path);
	snprintf(line, sizeof(line), "%s\n", id);
	rc = fd_write_full(fd, line, strlen(line));
	return rc < 0 ? err_errno(err, rc, "machine_id: write %s", path) : 0;
}

/* A root that cannot be written keeps the id of its image; commands run there all the same. */
static int set_machine_id(struct handler *h)
{
	struct err why = ERR_INIT;
	int rc = control_write_machine_id("/etc", h->request.machine_id, &why);

	if (rc == -EROFS) {
		agent_say(h->agent, "%s", why.text);
		return 0;
	}
	return rc < 0 ? err_set(&h->err, rc, "%s", why.text) : 0;
}

static int hand_over_env(struct handler *h)
{
	struct supervisor_message m = { .type = SUPERVISOR_ENV };
	struct agent_env *env = &h->u.env;
	int rc;

	env->count = (uint32_t)h->request.nenv;
	env->bytes = 0;
	for (size_t i = 0; i < h->request.nenv; i++) { /* the sum was checked by request_parse */
		size_t n = strlen(h->request.env[i]) + 1;

		memcpy(env->text + env->bytes, h->request.env[i], n);
		env->bytes += (uint32_t)n;
	}
	rc = supervisor_call(h->supervisor, &m, env, offsetof(struct agent_env, text) + env->bytes, -1);
	return rc < 0 ? err_errno(&h->err, rc, "env") : 0;
}

static int answer_configure(struct handler *h, bool exact)
{
	char buf[AGENT_REPLY_MAX];
	struct json_writer w;
	int rc;

	channel_answer_begin(&w, buf);
	if (h->request.has_clock)
		json_write_bool(&w, "clock_exact", exact);
	rc = channel_answer_end(&h->channel, &w);
	return rc < 0 ? err_errno(&h->err, rc, "configure") : 0;
}

int control_configure(struct handler *h)
{
	const struct request *r = &h->request;
	const struct clock_word word = { r->clock_ns, (uint64_t)r->counter, (uint32_t)r->counter_khz };
	bool exact;
	int rc = 0;

	if (h->agent->mode == AGENT_UNIX && (r->has_clock || r->nentropy || r->hostname || r->machine_id))
		return err_set(&h->err, -EOPNOTSUPP, "configure: over a Unix socket only 'env' can be set; the machine is not ours");
	if (r->has_clock)
		rc = clock_set(&h->agent->shared->clock, &clock_machine, &word);
	if (rc < 0)
		return err_errno(&h->err, rc, "clock_ns: set the clock");
	exact = rc > 0;
	rc = 0;
	if (r->nentropy)
		rc = reseed(r, &h->err);
	if (rc == 0 && r->hostname && sethostname(r->hostname, strlen(r->hostname)) < 0)
		rc = err_errno(&h->err, -errno, "hostname: set it");
	if (rc == 0 && r->machine_id)
		rc = set_machine_id(h);
	if (rc == 0 && r->has_env)
		rc = hand_over_env(h);
	return rc < 0 ? rc : answer_configure(h, exact);
}

/* ---- disks ---- */

int control_sync(struct handler *h)
{
	sync();
	return channel_answer_ok(&h->channel);
}

static int need_disk(struct handler *h, const char *what)
{
	if (h->agent->writable_fd < 0)
		return err_set(&h->err, -EOPNOTSUPP, "%s: the root file system is not on a disk of its own", what);
	return 0;
}

int control_thaw(struct handler *h)
{
	int rc = need_disk(h, "thaw");

	if (rc < 0)
		return rc;
	if (ioctl(h->agent->writable_fd, FITHAW, 0) < 0 && errno != EINVAL) /* EINVAL: not frozen */
		return err_errno(&h->err, -errno, "thaw");
	return channel_answer_ok(&h->channel);
}

/* What /etc/machine-id has, or "": one that the guest has put there in another form is its own. */
static void read_machine_id(char ret[AGENT_MACHINE_ID + 1])
{
	char text[AGENT_MACHINE_ID + 2];
	_cleanup_close_ int fd = open("/etc/machine-id", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, sizeof(text));

	ret[0] = '\0';
	if (n == AGENT_MACHINE_ID + 1 && text[AGENT_MACHINE_ID] == '\n' &&
	    strspn(text, "0123456789abcdef") == AGENT_MACHINE_ID) {
		memcpy(ret, text, AGENT_MACHINE_ID);
		ret[AGENT_MACHINE_ID] = '\0';
	}
}

static int freeze(struct handler *h)
{
	char *id = h->slot->machine_id;

	id[0] = '\0';
	if (h->request.anonymous)
		read_machine_id(id);
	/* An empty file means: an id is to be made at the next start. */
	if (id[0] && truncate("/etc/machine-id", 0) < 0)
		return err_errno(&h->err, -errno, "freeze: empty /etc/machine-id");
	sync();
	atomic_store(&h->slot->froze, true);
	if (ioctl(h->agent->writable_fd, FIFREEZE, 0) < 0) {
		int rc = -errno;

		atomic_store(&h->slot->froze, false); /* whoever has frozen it (-EBUSY) also thaws it */
		return err_errno(&h->err, rc, "freeze");
	}
	return 0;
}

void control_return_machine_id(struct agent *a, struct agent_slot *slot)
{
	struct err why = ERR_INIT;

	if (slot->machine_id[0] && control_write_machine_id("/etc", slot->machine_id, &why) < 0)
		agent_say(a, "%s", why.text);
	slot->machine_id[0] = '\0';
}

/* A second freeze beside another would find the machine-id away, and have it back before it is frozen. One whose host has gone is
 * being undone, so it is waited for. */
static bool become_freezer(const struct handler *h)
{
	const struct timespec pause = { .tv_nsec = FREEZE_POLL_MS * 1000000l };
	uint32_t self = 1 + (uint32_t)(h->slot - h->agent->shared->slot);

	for (uint64_t end = agent_now_ms() + FREEZE_WAIT_MS;; nanosleep(&pause, NULL)) {
		uint32_t none = 0;

		if (atomic_compare_exchange_strong(&h->agent->shared->freezer, &none, self))
			return true;
		if (agent_now_ms() >= end)
			return false;
	}
}

/* Frozen for as long as the connection lives, but not for ever: neither a host that dies nor one that stands still can
 * leave the guest's disk frozen. If this process is killed, the supervisor thaws, and puts the machine-id back. */
int control_freeze(struct handler *h)
{
	struct pollfd p = { .fd = h->channel.fd, .events = POLLIN };
	char byte;
	int rc = need_disk(h, "freeze");

	if (rc < 0)
		return rc;
	if (!become_freezer(h))
		return err_set(&h->err, -EBUSY, "freeze: another freeze lasts: try again when it is over");
	rc = freeze(h);
	if (rc < 0) {
		control_return_machine_id(h->agent, h->slot);
		atomic_store(&h->agent->shared->freezer, 0);
		return rc;
	}
	int64_t wanted = h->request.timeout_ms;
	uint64_t end = agent_now_ms() + (uint64_t)(wanted > 0 ? MIN(wanted, FREEZE_MAX_MS) : FREEZE_MAX_MS);

	rc = channel_answer_ok(&h->channel);
	for (uint64_t now; rc == 0 && (now = agent_now_ms()) < end;) {
		ssize_t n;

		if (poll(&p, 1, (int)(end - now)) <= 0)
			continue;
		n = read(h->channel.fd, &byte, 1);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
			break;
	}
	if (ioctl(h->agent->writable_fd, FITHAW, 0) < 0 && errno != EINVAL)
		return err_errno(&h->err, -errno, "thaw");
	atomic_store(&h->slot->froze, false);
	control_return_machine_id(h->agent, h->slot);
	atomic_store(&h->agent->shared->freezer, 0);
	return 0;
}

/* ---- power ---- */

int control_power(struct handler *h)
{
	struct supervisor_message m = {
		.type = SUPERVISOR_POWER,
		.value = h->request.op == REQUEST_REBOOT ? RB_AUTOBOOT : RB_POWER_OFF,
		.id = (uint64_t)h->request.grace_ms,
	};
	int rc = channel_answer_ok(&h->channel);

	if (rc < 0)
		return err_errno(&h->err, rc, "poweroff");
	return supervisor_call(h->supervisor, &m, NULL, 0, -1);
}
