/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event loop: see loop.h.
 *
 * Timers are a sorted list: a monitor has a handful of them, so insertion order does not matter.
 * loop_remove clears the pointers of events that were collected in the current batch.
 */
/* syscalls(main): epoll_wait epoll_pwait epoll_pwait2 epoll_ctl read write clock_gettime */
#include "lib/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

static void on_wake(struct loop_fd *w, uint32_t events)
{
	uint64_t v;
	ssize_t ignored = read(w->fd, &v, sizeof(v));

	(void)ignored;
	(void)events;
}

int loop_init(struct loop *l, struct err *err)
{
	int r;

	memset(l, 0, sizeof(*l));
	l->wake_fd = -1;
	l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (l->epoll_fd < 0)
		return err_errno(err, -errno, "epoll_create1");
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->wake_fd < 0) {
		r = err_errno(err, -errno, "eventfd");
		goto fail;
	}
	r = loop_add(l, &l->wake, l->wake_fd, EPOLLIN, on_wake);
	if (r < 0) {
		err_errno(err, r, "epoll_ctl");
		goto fail;
	}
	return 0;
fail:
	loop_finish(l);
	return r;
}

void loop_finish(struct loop *l)
{
	if (l->epoll_fd > 0)
		fd_close(l->epoll_fd);
	if (l->wake_fd > 0)
		fd_close(l->wake_fd);
	memset(l, 0, sizeof(*l));
}

int loop_add(struct loop *l, struct loop_fd *w, int fd, uint32_t events, loop_fd_fn *fn)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*w = (struct loop_fd){ .fd = fd, .fn = fn, .events = events, .added = true };
	return 0;
}

int loop_modify(struct loop *l, struct loop_fd *w, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	if (!w->added)
		return -ENOENT;
	if (w->events == events)
		return 0;
	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_MOD, w->fd, &ev) < 0)
		return -errno;
	w->events = events;
	return 0;
}

void loop_remove(struct loop *l, struct loop_fd *w)
{
	if (!w->added)
		return;
	epoll_ctl(l->epoll_fd, EPOLL_CTL_DEL, w->fd, NULL);
	w->added = false;
	for (int i = 0; i < l->batch_n; i++)
		if (l->batch[i].data.ptr == w)
			l->batch[i].data.ptr = NULL;
}

uint64_t loop_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void loop_timer_cancel(struct loop *l, struct loop_timer *t)
{
	if (!t->armed)
		return;
	for (struct loop_timer **p = &l->timers; *p; p = &(*p)->next)
		if (*p == t) {
			*p = t->next;
			break;
		}
	t->armed = false;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_ns, loop_timer_fn *fn)
{
	struct loop_timer **p;

	loop_timer_cancel(l, t);
	t->at_ns = at_ns;
	t->fn = fn;
	t->armed = true;
	p = &l->timers;
	while (*p && (*p)->at_ns <= at_ns)
		p = &(*p)->next;
	t->next = *p;
	*p = t;
}

static int run_timers(struct loop *l)
{
	uint64_t now = loop_now_ns();
	int n = 0;

	while (l->timers && l->timers->at_ns <= now) {
		struct loop_timer *t = l->timers;

		l->timers = t->next;
		t->armed = false;
		t->fn(t);
		n++;
	}
	return n;
}

/* The time to wait in ms: up to the first timer, rounded up so that it has passed on return. */
static int wait_ms(const struct loop *l, int timeout_ms)
{
	if (!l->timers)
		return timeout_ms;
	uint64_t now = loop_now_ns();
	uint64_t left = l->timers->at_ns > now ? (l->timers->at_ns - now + 999999) / 1000000 : 0;
	int ms = left > 3600000 ? 3600000 : (int)left;

	return timeout_ms < 0 ? ms : MIN(ms, timeout_ms);
}

int loop_step(struct loop *l, int timeout_ms)
{
	int n = epoll_wait(l->epoll_fd, l->batch, LOOP_EVENTS, wait_ms(l, timeout_ms));
	int handled = 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	l->batch_n = n;
	for (int i = 0; i < n; i++) {
		struct loop_fd *w = l->batch[i].data.ptr;

		if (w) {
			w->fn(w, l->batch[i].events);
			handled++;
		}
	}
	l->batch_n = 0;
	return handled + run_timers(l);
}

int loop_run(struct loop *l)
{
	while (!l->stopping) {
		int r = loop_step(l, -1);

		if (r < 0)
			return r;
	}
	return 0;
}

void loop_wake(struct loop *l)
{
	uint64_t one = 1;
	int saved = errno;
	ssize_t ignored = write(l->wake_fd, &one, sizeof(one));

	(void)ignored;
	errno = saved;
}

void loop_stop(struct loop *l)
{
	l->stopping = true;
	loop_wake(l);
}
