/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer pool: keeps shells of a snapshot ready for the commands that restore it (pool.h).
 *
 * Each shell is a monitor with the machine made and its disks attached. One is handed over per connection and replaced.
 * All that were not handed over end with this process: by itself, or by its guardian when it is killed. The
 * parent-death signal would not do: it would follow a monitor to its next owner.
 *
 * Threads: one.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/control_client.h"
#include "host/doctor.h"
#include "host/guardian.h"
#include "host/paths.h"
#include "host/pool.h"
#include "host/signals.h"
#include "host/sock.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { POOL_MAX = 1000, TICK_MS = 1000 };

struct pool_options {
	uint64_t size;
	bool help;
};

static const struct opt options[] = {
	OPT_U64(struct pool_options, size, "size", 0, "N", 1, POOL_MAX, "how many shells to keep ready (4)"),
	CMD_OPT_HELP(struct pool_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "pool [--size N] NAME|DIR",
	.summary = "keep machines ready for a snapshot, so that restoring it is faster",
	.text = "Runs until it is ended (Ctrl-C, SIGTERM), and prints a line when the pool is filled. While it\n"
		"runs, 'coffer restore', 'coffer fork' and 'coffer run --from' of that snapshot take their\n"
		"monitors from it; each is used once and replaced. VMs that were started stay.",
	.options = options,
	.examples = "coffer pool --size 8 ready &\ncoffer run --from ready -- date",
};

enum slot_state { SLOT_EMPTY, SLOT_STARTING, SLOT_READY };

struct slot {
	enum slot_state state;
	struct launch l;
};

struct pool {
	struct restore_source src;
	struct restore_options o;
	struct pool_request request; /* what a client of this snapshot sends */
	struct guardian guardian;
	struct lockdir run;
	char name[64];
	int dir_fd, lock_fd, listener, signal_fd;
	struct slot *slot;
	size_t n;
	bool announced;
};

static size_t count(const struct pool *p, enum slot_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n; i++)
		n += p->slot[i].state == state;
	return n;
}

static void empty(struct pool *p, struct slot *s)
{
	pid_t pid = s->l.pid;

	launch_end(&s->l, false, NULL);
	if (pid > 0)
		guardian_forget_monitor(&p->guardian, pid);
	s->state = SLOT_EMPTY;
}

static int fill(struct pool *p, struct err *err)
{
	for (size_t i = 0; i < p->n; i++) {
		struct slot *s = &p->slot[i];

		if (s->state != SLOT_EMPTY)
			continue;
		launch_init(&s->l);
		s->state = SLOT_STARTING;
		int r = restore_shell_start(&s->l, &p->src, &p->o, &p->guardian, err);

		if (r < 0) {
			empty(p, s);
			return r;
		}
	}
	return 0;
}

static int become_ready(struct pool *p, struct slot *s, struct err *err)
{
	int r = restore_shell_wait(&s->l, &p->src, -1, err);

	if (r < 0) {
		empty(p, s);
		return r;
	}
	/* Its locks and files are the monitor's now, and ours to hand over. */
	vm_disks_forget_fds(&s->l.disks);
	s->state = SLOT_READY;
	if (!p->announced && count(p, SLOT_READY) == p->n) {
		p->announced = true;
		printf("%zu ready for '", p->n);
		text_print(stdout, p->src.snap.name);
		printf("'\n");
		fflush(stdout);
	}
	return 0;
}

/* ---- handing over ---- */

static bool is_ours(int sock)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static void hand_over(struct pool *p, struct slot *s, int sock)
{
	struct launch *l = &s->l;
	struct pool_reply reply = { .version = POOL_VERSION, .pid = (uint32_t)l->pid,
				    .has_disks = l->dir.disk_dir_fd >= 0,
				    .has_image = l->image_fd >= 0 };
	int fd[POOL_FDS] = { l->dir.fd, l->dir.lock_fd, l->pidfd };
	size_t n = 3;

	snprintf(reply.id, sizeof(reply.id), "%s", l->dir.id);
	if (reply.has_disks) {
		fd[n++] = l->dir.disk_dir_fd;
		fd[n++] = l->dir.disk_lock_fd;
	}
	if (reply.has_image)
		fd[n++] = l->image_fd;
	if (fd_send(sock, &reply, sizeof(reply), fd, n) < 0)
		return; /* the client has gone, the shell stays */
	guardian_forget_monitor(&p->guardian, l->pid);
	launch_end(l, true, NULL);
	s->state = SLOT_EMPTY;
}

static void serve(struct pool *p)
{
	_cleanup_close_ int sock = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);

	if (sock < 0 || !is_ours(sock) || !pool_request_receive(sock, &p->request))
		return;
	for (size_t i = 0; i < p->n; i++)
		if (p->slot[i].state == SLOT_READY) {
			hand_over(p, &p->slot[i], sock);
			return;
		}
}

/* ---- the loop ---- */

/* Monitors are our children, also those that were handed over. */
static void reap(struct pool *p)
{
	int status;

	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
		for (size_t i = 0; i < p->n; i++) {
			struct slot *s = &p->slot[i];

			if (s->state == SLOT_EMPTY || s->l.pid != pid)
				continue;
			s->l.reaped = true;
			s->l.wait_status = status;
			if (s->state == SLOT_READY)
				empty(p, s);
		}
}

/* 1: a signal asks for the end. */
static int step(struct pool *p, struct pollfd *f, struct err *err)
{
	bool ready = count(p, SLOT_READY) > 0;

	f[0] = (struct pollfd){ .fd = p->signal_fd, .events = POLLIN };
	f[1] = (struct pollfd){ .fd = ready ? p->listener : -1, .events = POLLIN };
	for (size_t i = 0; i < p->n; i++) {
		const struct slot *s = &p->slot[i];

		int fd = s->state == SLOT_STARTING ? s->l.ready_sock : s->state == SLOT_READY ? s->l.pidfd : -1;

		f[2 + i] = (struct pollfd){ .fd = fd, .events = POLLIN };
	}
	int r = poll(f, 2 + p->n, TICK_MS);

	if (r < 0 && errno != EINTR)
		return err_errno(err, -errno, "poll");
	for (int signal; f[0].revents && (signal = signals_next(p->signal_fd)) > 0;)
		if (signals_is_end(signal))
			return 1;
	r = 0;
	for (size_t i = 0; i < p->n && r == 0; i++)
		if (f[2 + i].revents && p->slot[i].state == SLOT_STARTING)
			r = become_ready(p, &p->slot[i], err);
	reap(p);
	if (r == 0 && f[1].revents)
		serve(p);
	return r;
}

static int run(struct pool *p, struct err *err)
{
	_cleanup_free_ struct pollfd *f = calloc(2 + p->n, sizeof(*f));
	int r = 0;

	if (!f)
		return err_set(err, -ENOMEM, "out of memory");
	while (r == 0) {
		r = fill(p, err);
		if (r == 0)
			r = step(p, f, err);
	}
	return r < 0 ? r : 0;
}

static int open_pool(struct pool *p, const char *name, struct err *err)
{
	char path[PATH_MAX];
	int r = restore_source_open(name, &p->src, err);

	if (r == 0)
		r = restore_source_check(&p->src, err);
	if (r == 0)
		r = doctor_require_kvm(err);
	if (r == 0 && pool_request_make(&p->src.snap, &p->request) < 0)
		r = err_set(err, -ENOMEM, "out of memory");
	if (r == 0)
		r = paths_runtime(path, sizeof(path), err);
	if (r == 0)
		r = lockdir_open(&p->run, path, err);
	if (r < 0)
		return r;
	vmdir_sweep(NULL, NULL, NULL);
	pool_name(&p->src.snap, p->name);
	r = lockdir_create(&p->run, p->name, &p->dir_fd, &p->lock_fd, err);
	if (r == -EEXIST)
		err_set(err, r, "a pool of '%s' runs already", p->src.snap.name);
	if (r == 0)
		r = p->listener = sock_listen_at(p->dir_fd, POOL_SOCKET, SOCK_SEQPACKET, err);
	return r < 0 ? r : 0;
}

static void close_pool(struct pool *p)
{
	p->listener = fd_close(p->listener);
	for (size_t i = 0; i < p->n; i++)
		if (p->slot[i].state != SLOT_EMPTY)
			empty(p, &p->slot[i]);
	if (p->lock_fd >= 0)
		lockdir_remove(&p->run, p->name, p->lock_fd, NULL);
	fd_close(p->dir_fd);
	fd_close(p->lock_fd);
	lockdir_close(&p->run);
	restore_source_close(&p->src);
	free(p->slot);
}

int cmd_pool(int argc, char **argv)
{
	struct pool_options o = { .size = 4 };
	struct pool p = { .src = RESTORE_SOURCE_NONE, .o = { .keep = true }, .guardian = GUARDIAN_NONE,
			  .run = LOCKDIR_NONE, .dir_fd = -1,
			  .lock_fd = -1, .listener = -1, .signal_fd = -1 };
	struct err err = ERR_INIT;
	sigset_t old;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("pool: %s: 'coffer snapshot ls' lists the snapshots",
				 first == argc ? "of which snapshot?" : "one snapshot at a time");
	p.n = o.size;
	p.slot = calloc(p.n, sizeof(*p.slot));
	if (!p.slot)
		return cmd_failf("pool: out of memory");
	int r = guardian_start(&p.guardian, -1, &err);

	if (r < 0) {
		free(p.slot);
		return cmd_fail(&err);
	}
	r = p.signal_fd = signals_open(&old, &err);
	if (r >= 0)
		r = open_pool(&p, argv[first], &err);
	if (r >= 0)
		r = run(&p, &err);
	close_pool(&p);
	guardian_finish(&p.guardian);
	signals_close(p.signal_fd, &old);
	return r < 0 ? cmd_fail(&err) : 0;
}
