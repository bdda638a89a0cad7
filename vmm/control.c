/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket, monitor's side: see control.h.
 *
 * How it works: everything is a fixed-size message, so nothing is buffered here: a request is read whole or refused, a
 * reply goes out at once. A client that does not read its replies (its socket is full) is disconnected, so nobody
 * can make the monitor wait or grow. A client that waits for the stop is not read from until then.
 *
 * Threads: main. Trust: a request may hold any bytes; its descriptors are closed unless the operation takes one.
 */
/* syscalls(main): accept4 getsockopt recvmsg sendmsg sendto close epoll_ctl pread64 getpid */
#include "vmm/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

static void answered(struct control *c, bool yes)
{
	c->asked = false;
	c->snapshots->answered(c->snapshots->opaque, yes);
}

static void client_drop(struct control_client *cl)
{
	loop_remove(&cl->control->vm->loop, &cl->watch);
	fd_close(cl->watch.fd);
	cl->watch.fd = -1;
	cl->waiting = false;
	if (cl->control->pending == cl) {
		cl->control->pending = NULL;
		if (cl->control->asked)
			answered(cl->control, false);
	}
}

/* The second number of statm, in pages. */
static uint64_t resident_bytes(const struct control *c)
{
	char buf[128], *second, *end;
	unsigned long long pages;
	ssize_t n = c->statm_fd < 0 ? -1 : pread(c->statm_fd, buf, sizeof(buf) - 1, 0);

	if (n <= 0)
		return 0;
	buf[n] = 0;
	second = strchr(buf, ' ');
	if (!second)
		return 0;
	errno = 0;
	pages = strtoull(second, &end, 10);
	return end == second || errno ? 0 : pages * MEM_PAGE_SIZE;
}

static void fill_values(struct control *c, struct control_reply *r)
{
	struct vm *vm = c->vm;
	int stop = atomic_load_explicit(&vm->stop_reason, memory_order_acquire);
	uint64_t remote_since = atomic_load_explicit(&vm->remote_since_ns, memory_order_relaxed);

	r->value[CONTROL_V_STATE] = le64_make(vm->state);
	r->value[CONTROL_V_STOP] = le64_make((uint64_t)stop);
	r->value[CONTROL_V_PID] = le64_make((uint64_t)getpid());
	r->value[CONTROL_V_VCPUS] = le64_make(vm->nvcpus);
	r->value[CONTROL_V_MEMORY] = le64_make(vm->mem.size);
	r->value[CONTROL_V_RESIDENT] = le64_make(resident_bytes(c));
	if (c->hooks && c->hooks->balloon_get)
		r->value[CONTROL_V_BALLOON] = le64_make(c->hooks->balloon_get(c->hooks->opaque));
	r->value[CONTROL_V_UPTIME_MS] = le64_make((loop_now_ns() - c->started_ns) / 1000000);
	r->value[CONTROL_V_EXITS] = le64_make(vcpu_exits(vm));
	r->value[CONTROL_V_UNCLAIMED] = le64_make(vcpu_unclaimed(vm));
	if (remote_since != 0)
		r->value[CONTROL_V_REMOTE_WAIT_MS] = le64_make(MAX((loop_now_ns() - remote_since) / 1000000, (uint64_t)1));
	if (stop != VM_STOP_NONE)
		snprintf(r->text, sizeof(r->text), "%s", vm->stop_text);
}

static int fill_clock(const struct control *c, struct control_reply *r, struct err *err)
{
	struct counter_moment now;
	int code = counter_now(&c->vm->counter, c->vm->vm_fd, &now);

	if (code < 0)
		return err_set(err, code, "this guest's counter cannot be told");
	r->value[CONTROL_CV_REALTIME_NS] = le64_make(now.realtime_ns);
	r->value[CONTROL_CV_COUNTER] = le64_make(now.value);
	r->value[CONTROL_CV_KHZ] = le64_make(now.khz);
	return 0;
}

/* The reply goes out now or never. */
static void client_send(struct control_client *cl, struct control_reply *r, uint32_t seq, int status)
{
	r->seq = le32_make(seq);
	r->status = le32_make((uint32_t)status);
	if (send(cl->watch.fd, r, sizeof(*r), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(*r))
		client_drop(cl);
}

static void client_fail(struct control_client *cl, uint32_t seq, int status, const char *text)
{
	struct control_reply r = { 0 };

	snprintf(r.text, sizeof(r.text), "%s", text);
	client_send(cl, &r, seq, status);
}

static int change_state(struct control *c, enum vm_state to, struct err *err)
{
	if (c->snapshots && c->snapshots->busy(c->snapshots->opaque))
		return err_set(err, -EBUSY, "a snapshot or restore of this VM is under way: try again when it is done");
	return c->vm->state == to ? 0 : vm_set_state(c->vm, to, err);
}

/* SNAPSHOT, DISK_ATTACH, RESTORE: 0, 1 when the reply comes later, or -errno. */
static int perform_snapshot(struct control *c, const struct control_request *q, int *fds, size_t nfds, struct err *err)
{
	const struct control_snapshot_hooks *h = c->snapshots;
	uint64_t arg[ARRAY_SIZE(q->arg)];

	if (!h)
		return err_set(err, -ENOTSUP, "this machine has no device for that");
	if (h->busy(h->opaque))
		return err_set(err, -EBUSY, "a snapshot or restore of this VM is under way: try again when it is done");
	for (size_t i = 0; i < ARRAY_SIZE(arg); i++)
		arg[i] = le64_get(q->arg[i]);
	switch (le16_get(q->op)) {
	case CONTROL_SNAPSHOT:
		return h->snapshot(h->opaque, arg, fds, nfds, err);
	case CONTROL_DISK_ATTACH:
		return h->disk_attach(h->opaque, arg, fds, nfds, err);
	default:
		return h->restore(h->opaque, arg, fds, nfds, err);
	}
}

/* 0, 1 when the reply comes later, or -errno with a text. */
static int perform(struct control *c, const struct control_request *q, int *fds, size_t nfds, struct err *err)
{
	static const struct control_hooks none;
	const struct control_hooks *h = c->hooks ? c->hooks : &none;

	switch (le16_get(q->op)) {
	case CONTROL_STATUS:
		return 0;
	case CONTROL_PAUSE:
		return change_state(c, VM_PAUSED, err);
	case CONTROL_RESUME:
		return change_state(c, VM_RUNNING, err);
	case CONTROL_KILL:
		if (le64_get(q->arg[0]) == 1)
			vm_request_stop(c->vm, VM_STOP_SAVED, "ended by the snapshot that was taken");
		else
			vm_request_stop(c->vm, VM_STOP_KILLED, "killed on request");
		return 0;
	case CONTROL_POWER_BUTTON:
		if (h->power_button)
			return h->power_button(h->opaque, err);
		break;
	case CONTROL_BALLOON:
		if (h->balloon_set)
			return h->balloon_set(h->opaque, le64_get(q->arg[0]), err);
		break;
	case CONTROL_DISK_RESIZE:
		if (h->disk_resize)
			return h->disk_resize(h->opaque, le64_get(q->arg[0]), le64_get(q->arg[1]), err);
		break;
	case CONTROL_SNAPSHOT:
	case CONTROL_DISK_ATTACH:
	case CONTROL_RESTORE:
		return perform_snapshot(c, q, fds, nfds, err);
	case CONTROL_SNAPSHOT_CUT:
		return err_set(err, -EINVAL, "nobody was asked when to stop the guest");
	default:
		return err_set(err, -EINVAL, "unknown control operation %u", le16_get(q->op));
	}
	return err_set(err, -ENOTSUP, "this machine has no device for that");
}

/* Nothing is read from it until it is answered. */
static void let_wait(struct control_client *cl, uint32_t seq)
{
	cl->waiting = true;
	cl->seq = seq;
	loop_modify(&cl->control->vm->loop, &cl->watch, 0);
}

static void handle(struct control_client *cl, const struct control_request *q, int *fds, size_t nfds)
{
	struct control *c = cl->control;
	struct control_reply r = { 0 };
	struct err err = ERR_INIT;
	uint32_t seq = le32_get(q->seq);
	int status;

	if (le16_get(q->version) != CONTROL_VERSION) {
		err_set(&err, -EINVAL, "control version %u, this monitor speaks %d", le16_get(q->version),
			CONTROL_VERSION);
		client_fail(cl, seq, -EINVAL, err.text);
		return;
	}
	if (le16_get(q->op) == CONTROL_WAIT && c->vm->state != VM_STOPPED) {
		let_wait(cl, seq);
		return;
	}
	if (le16_get(q->op) == CONTROL_CLOCK)
		status = fill_clock(c, &r, &err);
	else
		status = le16_get(q->op) == CONTROL_WAIT ? 0 : perform(c, q, fds, nfds, &err);
	if (status > 0) {
		c->pending = cl;
		let_wait(cl, seq);
		return;
	}
	if (status < 0) {
		client_fail(cl, seq, status, err.text);
		return;
	}
	if (le16_get(q->op) != CONTROL_CLOCK)
		fill_values(c, &r);
	client_send(cl, &r, seq, 0);
}

/* From one that was asked: the CUT, or it is of no more use. */
static void handle_answer(struct control_client *cl, const struct control_request *q, ssize_t n)
{
	if (n != (ssize_t)sizeof(*q) || le16_get(q->version) != CONTROL_VERSION || le16_get(q->op) != CONTROL_SNAPSHOT_CUT) {
		client_drop(cl);
		return;
	}
	loop_modify(&cl->control->vm->loop, &cl->watch, 0);
	answered(cl->control, true);
}

static void on_client(struct loop_fd *w, uint32_t events)
{
	struct control_client *cl = container_of(w, struct control_client, watch);
	struct control_request q;
	int fds[FD_PASS_MAX];
	size_t nfds = 0;
	ssize_t n;

	bool asked = cl->control->asked && cl->control->pending == cl;

	if (cl->waiting && !asked) { /* only told when the peer went away */
		client_drop(cl);
		return;
	}
	(void)events;
	n = fd_recv(w->fd, &q, sizeof(q), fds, ARRAY_SIZE(fds), &nfds);
	if (n == -EAGAIN)
		return;
	if (asked)
		handle_answer(cl, &q, n);
	else if (n == (ssize_t)sizeof(q))
		handle(cl, &q, fds, nfds);
	else if (n > 0 || n == -EMSGSIZE)
		client_fail(cl, 0, -EINVAL, "a control request has 40 bytes and at most 253 descriptors");
	else
		client_drop(cl);
	for (size_t i = 0; i < nfds; i++)
		fd_close(fds[i]);
}

static bool allowed(const struct control *c, int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && (cred.uid == c->uid || cred.uid == 0);
}

static void on_listener(struct loop_fd *w, uint32_t events)
{
	struct control *c = container_of(w, struct control, listener);
	_cleanup_close_ int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0 || !allowed(c, fd))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(c->client); i++) {
		struct control_client *cl = &c->client[i];

		if (cl->watch.fd >= 0)
			continue;
		cl->waiting = false;
		if (loop_add(&c->vm->loop, &cl->watch, fd, EPOLLIN, on_client) == 0)
			(void)TAKE_FD(fd);
		return;
	}
}

int control_init(struct control *c, struct vm *vm, const char *path, const struct control_hooks *hooks, struct err *err)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	int r;

	_Static_assert(sizeof(struct control_request) == 40, "the text in on_client names the size");
	memset(c, 0, sizeof(*c));
	c->vm = vm;
	c->hooks = hooks;
	c->listener.fd = -1;
	c->started_ns = loop_now_ns();
	c->uid = geteuid();
	for (size_t i = 0; i < ARRAY_SIZE(c->client); i++) {
		c->client[i].control = c;
		c->client[i].watch.fd = -1;
	}
	if (strlen(path) >= sizeof(addr.sun_path))
		return err_set(err, -ENAMETOOLONG, "control socket '%s': longer than %zu bytes", path,
			       sizeof(addr.sun_path) - 1);
	memcpy(addr.sun_path, path, strlen(path));
	c->statm_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return err_errno(err, -errno, "control socket");
	if (unlink(path) < 0 && errno != ENOENT)
		return err_errno(err, -errno, "control socket '%s': remove the old one", path);
	if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, CONTROL_MAX_CLIENTS) < 0)
		return err_errno(err, -errno, "control socket '%s'", path);
	r = loop_add(&vm->loop, &c->listener, fd, EPOLLIN, on_listener);
	if (r < 0)
		return err_errno(err, r, "control socket: epoll");
	(void)TAKE_FD(fd);
	return 0;
}

int control_stage(struct control *c, enum control_stage stage)
{
	struct control_client *cl = c->pending;
	struct control_reply r = { 0 };

	if (!cl)
		return -ENOTCONN;
	client_send(cl, &r, cl->seq, (int)stage);
	if (c->pending != cl)
		return -ENOTCONN;
	if (stage == CONTROL_STAGE_READY) {
		c->asked = true;
		loop_modify(&c->vm->loop, &cl->watch, EPOLLIN);
	}
	return 0;
}

void control_complete(struct control *c, int status, const uint64_t *value, size_t nvalues, const char *text)
{
	struct control_client *cl = c->pending;
	struct control_reply r = { 0 };

	if (!cl)
		return;
	c->pending = NULL;
	c->asked = false;
	cl->waiting = false;
	loop_modify(&c->vm->loop, &cl->watch, EPOLLIN);
	for (size_t i = 0; i < nvalues && i < CONTROL_NVALUES; i++)
		r.value[i] = le64_make(value[i]);
	if (text)
		snprintf(r.text, sizeof(r.text), "%s", text);
	client_send(cl, &r, cl->seq, status);
}

void control_stopped(struct control *c)
{
	control_complete(c, -ECANCELED, NULL, 0, "the VM ended meanwhile");
	for (size_t i = 0; i < ARRAY_SIZE(c->client); i++) {
		struct control_client *cl = &c->client[i];
		struct control_reply r = { 0 };

		if (cl->watch.fd < 0 || !cl->waiting)
			continue;
		cl->waiting = false;
		fill_values(c, &r);
		client_send(cl, &r, cl->seq, 0);
	}
}

void control_finish(struct control *c)
{
	if (!c->vm)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(c->client); i++)
		if (c->client[i].watch.fd >= 0)
			client_drop(&c->client[i]);
	if (c->listener.added) {
		loop_remove(&c->vm->loop, &c->listener);
		fd_close(c->listener.fd);
	}
	fd_close(c->statm_fd);
	memset(c, 0, sizeof(*c));
}
