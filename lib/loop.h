/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small event loop over epoll: descriptors, timers and deferred work, for one thread.
 *
 * The caller owns each `struct loop_fd` and `struct loop_timer` (usually embedded in its device) and
 * keeps it alive while it is added. Removing a watch from inside any callback is safe, also its own:
 * events that were already collected for it are dropped. Nothing is allocated after loop_init.
 *
 * Threads: all calls from the loop's thread, except loop_stop and loop_wake, which any thread and any
 * signal handler may call.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "lib/err.h"

struct loop;
struct loop_fd;
struct loop_timer;

typedef void loop_fd_fn(struct loop_fd *w, uint32_t events); /* EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR */
typedef void loop_timer_fn(struct loop_timer *t);

struct loop_fd {
	int fd;         /* borrowed */
	loop_fd_fn *fn;
	uint32_t events; /* current mask; 0 with added set: watched for errors only */
	bool added;
};

struct loop_timer {
	loop_timer_fn *fn;
	uint64_t at_ns;           /* CLOCK_MONOTONIC deadline */
	struct loop_timer *next;  /* sorted list */
	bool armed;
};

enum { LOOP_EVENTS = 64 };

struct loop {
	int epoll_fd;
	int wake_fd;
	_Atomic bool stopping;
	struct loop_fd wake;
	struct loop_timer *timers;
	struct epoll_event batch[LOOP_EVENTS];
	int batch_n;
};

int loop_init(struct loop *l, struct err *err); /* 0 or -errno */
void loop_finish(struct loop *l);               /* accepts a zeroed or finished loop */

int loop_add(struct loop *l, struct loop_fd *w, int fd, uint32_t events, loop_fd_fn *fn); /* 0 or -errno */
int loop_modify(struct loop *l, struct loop_fd *w, uint32_t events); /* no system call if unchanged */
void loop_remove(struct loop *l, struct loop_fd *w);                 /* accepts one not added */

/* Arm (or re-arm) at an absolute CLOCK_MONOTONIC time. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_ns, loop_timer_fn *fn);
void loop_timer_cancel(struct loop *l, struct loop_timer *t);
uint64_t loop_now_ns(void);

/* Run until loop_stop. Returns 0 or -errno from epoll_wait. */
int loop_run(struct loop *l);
/* Handle what is ready; wait at most timeout_ms (-1: for ever). Returns events handled or -errno. */
int loop_step(struct loop *l, int timeout_ms);
void loop_stop(struct loop *l);
void loop_wake(struct loop *l);
