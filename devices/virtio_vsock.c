/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock: stream sockets between the guest and Unix sockets of the host (virtio 1.2, 5.10).
 *
 * Guest contract: the guest's CID in the configuration; stream connections in both directions with credit flow
 * control, half-close and reset; a transport reset event after a restore.
 *
 * How it works: see virtio_vsock.h for the parts and backend/vsock_unix.h for the host's side. All descriptors live in an
 * epoll set of the device's own, edge triggered, whose descriptor the main loop watches: a round handles a
 * bounded batch, and a reset on a vCPU thread may close descriptors without touching the loop. An event carries its
 * connection's slot and generation, so one of a closed descriptor is ignored. One timer serves all deadlines.
 *
 * A peer on the host that is slow or stuck costs its own connection only: nothing waits for it, what it has not taken
 * is bounded by the credit given to the guest, and the credit by a pool. A connection without traffic costs a slot of
 * about 130 bytes and its socket.
 *
 * Threads: main under the device lock; activate and deactivate on a vCPU thread, under it too.
 * Trust: packets are hostile; clients of the socket belong to the VM's owner, but may be broken.
 *
 * Snapshot: the CID, the next host port, an event not delivered yet. Connections are not saved: their other ends are
 * processes of this host. A monitor that pauses, saves and goes on keeps them. In a restored one `restored` owes the guest
 * a transport reset; until the guest has taken it (it gives its event buffer back) no packet goes either way, or
 * a guest that handles events late would kill connections made after the restore. The gate opens after VSOCK_GATE_NS
 * in any case.
 */
/* syscalls(main, vcpu): epoll_ctl timerfd_settime clock_gettime
 * syscalls(main): epoll_wait read unlink */
#include "devices/virtio_vsock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

#define STATE_SELF struct virtio_vsock_state
STATE_SCHEMA(virtio_vsock, 1, VIRTIO_VSOCK_STATE);
#undef STATE_SELF

enum { EVENT_BATCH = 64, ACCEPT_BATCH = 64, ID_LISTENER = 0xfffe, ID_TIMER = 0xfffd };
_Static_assert((int)VSOCK_MAX_CONNS <= (int)ID_TIMER, "ids of slots and others are apart");

struct vsock_options {
	char *path;
	uint64_t cid;
};

static const struct opt vsock_options[] = {
	OPT_STRING(struct vsock_options, path, "path", 0, "NAME",
		   "socket in the VM's directory (vsock.sock); without it every connection is refused"),
	OPT_U64(struct vsock_options, cid, "cid", 0, "N", 3, UINT32_MAX - 1, "the guest's context id (3)"),
	OPT_END,
};

static struct virtio_vsock *from_device(struct device *d)
{
	return container_of(d, struct virtio_vsock, vd.dev);
}

void vsock_log(struct virtio_vsock *vs, const char *what, uint32_t guest_port, uint32_t host_port)
{
	struct device *d = &vs->vd.dev;

	log_limited(&d->vm->log, &d->log_limit, LOG_WARN, "%s: guest port %u, host port %u: %s", d->name, guest_port,
		    host_port, what);
}

/* --- timers ------------------------------------------------------------ */

static void arm(struct virtio_vsock *vs, uint64_t at_ns)
{
	struct itimerspec t = { .it_value = { (time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u) } };

	if (vs->host.next_timer && vs->host.next_timer <= at_ns)
		return;
	vs->host.next_timer = at_ns;
	timerfd_settime(vs->host.timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

void vsock_set_deadline(struct virtio_vsock *vs, struct vsock_conn *c, uint64_t after_ns)
{
	c->deadline = after_ns ? loop_now_ns() + after_ns : 0;
	if (after_ns)
		arm(vs, c->deadline);
}

static void expire(struct virtio_vsock *vs, struct vsock_conn *c)
{
	c->deadline = 0;
	switch ((enum vsock_conn_state)c->state) {
	case VSOCK_HANDSHAKE:
	case VSOCK_LINGER:
		vsock_conn_free(vs, c);
		break;
	case VSOCK_REQUESTED:
		if (c->send & VSOCK_SEND_REQUEST)
			vsock_conn_free(vs, c);
		else
			vsock_conn_reset(vs, c);
		break;
	case VSOCK_CLOSING:
		vsock_conn_reset(vs, c);
		break;
	case VSOCK_DIALING:
		vsock_redial(vs, c);
		break;
	case VSOCK_OPEN:
		if (c->asked && c->readable) {
			c->asked = false;
			c->tries++;
			vsock_conn_ready(vs, c);
		}
		break;
	case VSOCK_FREE:
	case VSOCK_RESET:
		break;
	}
}

/* --- the gate after a restore ------------------------------------------ */

/* Buffers the guest has in the event queue. */
static uint32_t count_event_buffers(struct virtio_vsock *vs)
{
	struct virtio_queue *q = &vs->vd.vq[VSOCK_Q_EVENT];
	uint32_t n = 0;

	while (n < VSOCK_QUEUE_SIZE && vq_pop(q, &vs->host.chain[0]) > 0)
		n++;
	for (uint32_t i = 0; i < n; i++)
		vq_unpop(q);
	return n;
}

static void send_event(struct virtio_vsock *vs)
{
	struct virtio_queue *q = &vs->vd.vq[VSOCK_Q_EVENT];
	struct vq_chain *chain = &vs->host.chain[0];
	const le32 id = le32_make(VIRTIO_VSOCK_EVENT_TRANSPORT_RESET);
	int r;

	while (vs->state.event_owed && (r = vq_pop(q, chain)) != 0) {
		size_t n;

		if (r < 0) {
			virtio_fail(&vs->vd, "malformed event buffer");
			return;
		}
		n = vq_chain_write(q, chain, 0, &id, sizeof(id));
		vq_push(q, chain->head, (uint32_t)n);
		vs->host.unsignalled |= 1u << VSOCK_Q_EVENT;
		if (n == sizeof(id))
			vs->state.event_owed = 0;
	}
	if (vs->state.event_owed)
		vq_enable_notify(q);
	else
		vs->host.gate_buffers = count_event_buffers(vs);
}

static void close_gate(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;

	h->gated = true;
	h->gate_until = loop_now_ns() + VSOCK_GATE_NS;
	h->gate_poll_ns = VSOCK_GATE_POLL_NS;
	arm(vs, loop_now_ns() + h->gate_poll_ns);
	vsock_update_listener(vs);
}

static void open_gate(struct virtio_vsock *vs)
{
	vs->host.gated = false;
	vsock_update_listener(vs);
	virtio_kick(&vs->vd, VSOCK_Q_TX);
}

static void look_at_gate(struct virtio_vsock *vs, uint64_t now)
{
	struct vsock_host *h = &vs->host;

	if (!h->gated)
		return;
	if (now >= h->gate_until || (!vs->state.event_owed && count_event_buffers(vs) > h->gate_buffers)) {
		open_gate(vs);
		return;
	}
	h->gate_poll_ns = MIN(2 * h->gate_poll_ns, VSOCK_GATE_POLL_MAX_NS);
	arm(vs, now + h->gate_poll_ns);
}

static void on_timer(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;
	uint64_t now = loop_now_ns(), next = 0, count;
	ssize_t ignored = read(h->timer_fd, &count, sizeof(count));

	(void)ignored;
	h->next_timer = 0;
	for (uint32_t i = 0; i < h->fresh; i++) {
		struct vsock_conn *c = &h->conn[i];

		if (c->deadline && c->deadline <= now)
			expire(vs, c);
		else if (c->deadline && (next == 0 || c->deadline < next))
			next = c->deadline;
	}
	if (next)
		arm(vs, next);
	look_at_gate(vs, now);
}

/* --- descriptors ------------------------------------------------------- */

static int watch_id(struct virtio_vsock *vs, int op, int fd, uint32_t events, uint64_t id)
{
	struct epoll_event ev = { .events = events, .data.u64 = id };

	return epoll_ctl(vs->host.epoll_fd, op, fd, &ev) < 0 ? -errno : 0;
}

static uint64_t conn_id(const struct virtio_vsock *vs, const struct vsock_conn *c)
{
	return (uint64_t)(c - vs->host.conn) | (uint64_t)c->generation << 16;
}

int vsock_watch(struct virtio_vsock *vs, struct vsock_conn *c)
{
	return watch_id(vs, EPOLL_CTL_ADD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLET, conn_id(vs, c));
}

void vsock_set_blocked(struct virtio_vsock *vs, struct vsock_conn *c, bool blocked)
{
	uint32_t out = blocked ? EPOLLOUT : 0;

	if (c->blocked == blocked)
		return;
	c->blocked = blocked;
	watch_id(vs, EPOLL_CTL_MOD, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLET | out, conn_id(vs, c));
}

void vsock_update_listener(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;
	bool want = vs->vd.active && !h->gated && !h->out_of_fds;

	if (h->listen_fd < 0 || want == h->listening)
		return;
	h->listening = want;
	watch_id(vs, EPOLL_CTL_MOD, h->listen_fd, want ? EPOLLIN : 0, ID_LISTENER);
}

static void on_listener(struct virtio_vsock *vs)
{
	for (int i = 0; i < ACCEPT_BATCH && vs->host.listening; i++) {
		int fd = vsock_unix_accept(vs->host.listen_fd);
		struct vsock_conn *c;

		if (fd == -EMFILE || fd == -ENFILE) {
			/* The clients wait in the backlog; without this the loop would spin. */
			vs->host.out_of_fds = true;
			vsock_update_listener(vs);
			vsock_log(vs, strerror(-fd), 0, 0);
			return;
		}
		if (fd < 0)
			return;
		c = vsock_conn_new(vs, VSOCK_HANDSHAKE, fd);
		if (!c)
			vsock_log(vs, "too many connections: a client was turned away", 0, 0);
		else if (vsock_watch(vs, c) < 0)
			vsock_conn_free(vs, c);
		else
			vsock_set_deadline(vs, c, VSOCK_HANDSHAKE_NS);
	}
}

static void on_open_event(struct virtio_vsock *vs, struct vsock_conn *c, uint32_t events)
{
	bool at_end = c->host_shut & VIRTIO_VSOCK_SHUTDOWN_SEND || c->guest_shut & VIRTIO_VSOCK_SHUTDOWN_RCV;

	if (events & EPOLLOUT && c->blocked)
		vsock_forward(vs, c);
	if (events & (EPOLLHUP | EPOLLERR))
		c->hung_up = true;
	if (c->hung_up && at_end) {
		vsock_conn_host_gone(vs, c);
		return;
	}
	if (!at_end && events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		c->readable = true;
		vsock_conn_ready(vs, c);
	}
}

static void on_conn(struct virtio_vsock *vs, struct vsock_conn *c, uint32_t events)
{
	switch ((enum vsock_conn_state)c->state) {
	case VSOCK_HANDSHAKE:
		vsock_on_line(vs, c);
		break;
	case VSOCK_REQUESTED:
		if (!(events & (EPOLLHUP | EPOLLERR)))
			break;
		if (c->send & VSOCK_SEND_REQUEST)
			vsock_conn_free(vs, c);
		else
			vsock_conn_reset(vs, c);
		break;
	case VSOCK_OPEN:
		on_open_event(vs, c, events);
		break;
	case VSOCK_LINGER:
		if (events & (EPOLLHUP | EPOLLERR))
			vsock_conn_free(vs, c);
		else if (events & EPOLLOUT)
			vsock_forward(vs, c);
		break;
	case VSOCK_FREE:
	case VSOCK_DIALING:
	case VSOCK_CLOSING:
	case VSOCK_RESET:
		break;
	}
}

/* Send what there is to send, then tell the guest. */
static void pump(struct virtio_vsock *vs)
{
	struct vsock_host *h = &vs->host;

	if (!h->gated)
		vsock_run_rx(vs);
	if (h->tx_stalled && h->nreplies < VSOCK_REPLIES)
		virtio_kick(&vs->vd, VSOCK_Q_TX);
	while (h->unsignalled) {
		uint32_t q = (uint32_t)__builtin_ctz(h->unsignalled);

		h->unsignalled &= ~(1u << q);
		virtio_signal_queue(&vs->vd, q);
	}
}

static void on_epoll(struct loop_fd *w, uint32_t events)
{
	struct virtio_vsock *vs = container_of(w, struct virtio_vsock, host.watch);
	struct epoll_event ev[EVENT_BATCH];
	int n;

	(void)events;
	device_lock(&vs->vd.dev);
	n = epoll_wait(vs->host.epoll_fd, ev, EVENT_BATCH, 0);
	for (int i = 0; i < n; i++) {
		uint32_t slot = (uint16_t)ev[i].data.u64;
		struct vsock_conn *c;

		if (slot == ID_LISTENER) {
			on_listener(vs);
		} else if (slot == ID_TIMER) {
			on_timer(vs);
		} else {
			c = &vs->host.conn[slot];
			if (c->fd >= 0 && conn_id(vs, c) == ev[i].data.u64)
				on_conn(vs, c, ev[i].events);
		}
	}
	pump(vs);
	device_unlock(&vs->vd.dev);
}

/* --- device ------------------------------------------------------------ */

static void vsock_queue_ready(struct virtio_device *vd, uint32_t q)
{
	struct virtio_vsock *vs = virtio_vsock_from(vd);

	if (q == VSOCK_Q_EVENT && vs->state.event_owed)
		send_event(vs);
	else if (q == VSOCK_Q_TX && !vs->host.gated)
		vsock_run_tx(vs);
	pump(vs);
}

static void vsock_activate(struct virtio_device *vd)
{
	vsock_update_listener(virtio_vsock_from(vd));
}

static void vsock_deactivate(struct virtio_device *vd)
{
	struct virtio_vsock *vs = virtio_vsock_from(vd);

	vsock_free_all(vs);
	vs->host.gated = false;
	vs->host.unsignalled = 0;
	vsock_update_listener(vs);
}

static uint64_t vsock_features(struct virtio_device *vd)
{
	(void)vd;
	return VIRTIO_VSOCK_F_STREAM;
}

static void vsock_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	le64 cid = le64_make(virtio_vsock_from(vd)->state.guest_cid);

	memcpy(data, (const char *)&cid + offset, len);
}

static void vsock_reset(struct device *d)
{
	struct virtio_vsock *vs = from_device(d);

	vs->state.guest_cid = vs->host.cid;
	vs->state.event_owed = 0;
	/* Goes on counting through resets: no port comes back soon. */
	if (vs->state.next_port == 0)
		vs->state.next_port = VSOCK_PORT_FIRST;
}

static int vsock_quiesce(struct device *d)
{
	struct virtio_vsock *vs = from_device(d);

	vs->host.paused_at = loop_now_ns();
	loop_modify(&d->vm->loop, &vs->host.watch, 0);
	return 0;
}

/* Time that passed in the pause does not count. */
static void vsock_resume(struct device *d)
{
	struct virtio_vsock *vs = from_device(d);
	struct vsock_host *h = &vs->host;
	uint64_t pause = h->paused_at ? loop_now_ns() - h->paused_at : 0;

	for (uint32_t i = 0; i < h->fresh; i++)
		if (h->conn[i].deadline)
			h->conn[i].deadline += pause;
	h->paused_at = 0;
	loop_modify(&d->vm->loop, &h->watch, EPOLLIN);
	if (vs->state.event_owed && vs->vd.active)
		close_gate(vs);
}

static int vsock_check(struct device *d, struct err *err)
{
	const struct virtio_vsock_state *s = &from_device(d)->state;

	if (s->guest_cid <= VSOCK_HOST_CID || s->guest_cid >= UINT32_MAX)
		return err_set(err, -EINVAL, "guest CID %llu is reserved", (unsigned long long)s->guest_cid);
	if (s->next_port < VSOCK_PORT_FIRST || s->next_port >= 2u * VSOCK_PORT_FIRST)
		return err_set(err, -EINVAL, "host port %u is impossible", s->next_port);
	if (s->event_owed > 1)
		return err_set(err, -EINVAL, "event_owed %u is neither 0 nor 1", s->event_owed);
	return 0;
}

static void vsock_restored(struct device *d)
{
	struct virtio_vsock *vs = from_device(d);

	/* The guest reads its CID again when it handles the event: a clone may have another one. */
	vs->state.guest_cid = vs->host.cid;
	vs->state.event_owed = vs->vd.active;
}

int virtio_vsock_set_cid(struct device *d, uint64_t cid, struct err *err)
{
	if (cid <= VSOCK_HOST_CID || cid >= UINT32_MAX)
		return err_set(err, -EINVAL, "guest CID %llu: use 3 to %u", (unsigned long long)cid, UINT32_MAX - 1);
	device_lock(d);
	from_device(d)->host.cid = cid;
	device_unlock(d);
	return 0;
}

static int vsock_open(struct device *d, const void *options, struct err *err)
{
	const struct vsock_options *o = options;
	struct virtio_vsock *vs = from_device(d);
	struct vsock_host *h = &vs->host;
	uint32_t fds;
	int r;

	h->cid = o->cid ? o->cid : 3;
	h->listen_fd = h->epoll_fd = h->timer_fd = -1;
	r = vsock_table_init(vs, err);
	if (r < 0)
		return r;
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	h->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (h->epoll_fd < 0 || h->timer_fd < 0)
		return err_errno(err, -errno, "epoll and timer");
	r = watch_id(vs, EPOLL_CTL_ADD, h->timer_fd, EPOLLIN, ID_TIMER);
	if (r >= 0)
		r = loop_add(&d->vm->loop, &h->watch, h->epoll_fd, EPOLLIN, on_epoll);
	if (r < 0)
		return err_errno(err, r, "epoll");
	if (!o->path)
		return 0;
	h->listen_fd = vsock_unix_listen(o->path, err);
	if (h->listen_fd < 0)
		return h->listen_fd;
	snprintf(h->name, sizeof(h->name), "%s", o->path);
	r = watch_id(vs, EPOLL_CTL_ADD, h->listen_fd, 0, ID_LISTENER);
	if (r < 0)
		return err_errno(err, r, "epoll");
	fds = vsock_unix_raise_limit(VSOCK_MAX_CONNS + VSOCK_SPARE_FDS);
	h->max_conns = fds > 2 * VSOCK_SPARE_FDS ? MIN(fds - VSOCK_SPARE_FDS, (uint32_t)VSOCK_MAX_CONNS)
						 : VSOCK_SPARE_FDS;
	return 0;
}

static void vsock_close(struct device *d)
{
	struct virtio_vsock *vs = from_device(d);
	struct vsock_host *h = &vs->host;

	if (!h->cid)
		return; /* never opened: zero is no descriptor of ours */
	vsock_table_finish(vs);
	loop_remove(&d->vm->loop, &h->watch);
	if (h->name[0])
		unlink(h->name);
	h->name[0] = 0;
	h->listen_fd = fd_close(h->listen_fd);
	h->timer_fd = fd_close(h->timer_fd);
	h->epoll_fd = fd_close(h->epoll_fd);
}

static const struct virtio_ops vsock_virtio = {
	.device_id = 19,
	.nqueues_max = VSOCK_NQUEUES,
	.queue_size = VSOCK_QUEUE_SIZE,
	.features = vsock_features,
	.config_size = sizeof(le64),
	.config_read = vsock_config_read,
	.activate = vsock_activate,
	.queue_ready = vsock_queue_ready,
	.deactivate = vsock_deactivate,
};

const struct device_ops virtio_vsock_device = {
	.name = "vsock",
	.help = "sockets between host and guest (virtio-vsock)",
	.bus = DEVICE_VIRTIO,
	.instances = 1,
	.instance_size = sizeof(struct virtio_vsock),
	.options = vsock_options,
	.opt_size = sizeof(struct vsock_options),
	.test_options = "cid=42",
	.schema = &virtio_vsock_schema,
	.state_offset = offsetof(struct virtio_vsock, state),
	.virtio = &vsock_virtio,
	.open = vsock_open,
	.reset = vsock_reset,
	.quiesce = vsock_quiesce,
	.resume = vsock_resume,
	.check = vsock_check,
	.restored = vsock_restored,
	.close = vsock_close,
};
