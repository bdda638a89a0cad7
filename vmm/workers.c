/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that sleep until there is work: see workers.h. */
/* syscalls(worker): futex write exit madvise */
/* syscalls(main, worker): futex read */
#include "vmm/workers.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/vm.h"

enum { WORKERS_STACK_SIZE = 256 << 10 };

static void signal_done(struct workers *w)
{
	uint64_t one = 1;

	while (write(w->done_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

/* The number of this thread: the order in which they begin. */
static unsigned begin(struct workers *w)
{
	struct err err = ERR_INIT;
	char name[16];
	unsigned i;

	pthread_mutex_lock(&w->lock);
	i = w->ready++;
	pthread_mutex_unlock(&w->lock);
	snprintf(name, sizeof(name), "%s%u", w->name, i);
	prctl(PR_SET_NAME, name);
	if (w->vm && w->vm->worker_isolate && w->vm->worker_isolate(w->vm, &err) < 0) {
		vm_request_stop(w->vm, VM_STOP_ERROR, "%s: %s", name, err.text);
		pthread_mutex_lock(&w->lock);
		w->failed = true;
		pthread_mutex_unlock(&w->lock);
	}
	return i;
}

static void *worker_main(void *arg)
{
	struct workers *w = arg;
	unsigned i = begin(w), seen = 0;

	pthread_mutex_lock(&w->lock);
	w->busy--;
	pthread_cond_signal(&w->idle);
	for (;;) {
		while (!w->quit && w->turn == seen)
			pthread_cond_wait(&w->work, &w->lock);
		if (w->turn == seen)
			break;
		seen = w->turn;
		pthread_mutex_unlock(&w->lock);
		w->fn(w->arg, i);
		pthread_mutex_lock(&w->lock);
		if (--w->busy == 0) {
			signal_done(w);
			pthread_cond_signal(&w->idle);
		}
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

unsigned workers_default(void)
{
	cpu_set_t set;
	int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	return (unsigned)MIN(MAX(n, 1), (int)WORKERS_MAX);
}

static int make_threads(struct workers *w, unsigned n)
{
	pthread_attr_t attr;
	int r = -pthread_attr_init(&attr);

	if (r < 0)
		return r;
	r = -pthread_attr_setstacksize(&attr, WORKERS_STACK_SIZE);
	for (unsigned i = 0; i < n && r == 0; i++) {
		pthread_mutex_lock(&w->lock);
		w->busy++;
		pthread_mutex_unlock(&w->lock);
		r = -pthread_create(&w->thread[i], &attr, worker_main, w);
		pthread_mutex_lock(&w->lock);
		if (r == 0)
			w->n++;
		else
			w->busy--;
		pthread_mutex_unlock(&w->lock);
	}
	pthread_attr_destroy(&attr);
	return r;
}

static void wait_idle(struct workers *w)
{
	pthread_mutex_lock(&w->lock);
	while (w->busy > 0)
		pthread_cond_wait(&w->idle, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

int workers_start(struct workers *w, struct vm *vm, unsigned n, const char *name, struct err *err)
{
	int r;

	memset(w, 0, sizeof(*w));
	w->done_fd = -1;
	if (n < 1 || n > WORKERS_MAX)
		return err_set(err, -EINVAL, "%u worker threads: use 1 to %d", n, WORKERS_MAX);
	w->vm = vm;
	snprintf(w->name, sizeof(w->name), "%s", name);
	w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->done_fd < 0)
		return err_errno(err, -errno, "eventfd");
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->idle, NULL);
	r = make_threads(w, n);
	if (r == 0)
		return 0;
	workers_finish(w);
	return err_errno(err, r, "start %u worker threads", n);
}

int workers_ready(struct workers *w, struct err *err)
{
	wait_idle(w);
	return w->failed ? err_set(err, -EPERM, "worker threads '%s' cannot be isolated", w->name) : 0;
}

void workers_begin(struct workers *w, workers_fn *fn, void *arg)
{
	pthread_mutex_lock(&w->lock);
	while (w->busy > 0) /* they are just beginning */
		pthread_cond_wait(&w->idle, &w->lock);
	w->fn = fn;
	w->arg = arg;
	w->busy = w->n;
	w->turn++;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
}

void workers_wait(struct workers *w)
{
	uint64_t n;

	wait_idle(w);
	if (read(w->done_fd, &n, sizeof(n)) < 0)
		return; /* nothing was under way */
}

void workers_run(struct workers *w, workers_fn *fn, void *arg)
{
	workers_begin(w, fn, arg);
	workers_wait(w);
}

void workers_finish(struct workers *w)
{
	if (w->done_fd < 0 || !w->name[0])
		return;
	pthread_mutex_lock(&w->lock);
	w->quit = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->n; i++)
		pthread_join(w->thread[i], NULL);
	pthread_cond_destroy(&w->idle);
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
	fd_close(w->done_fd);
	memset(w, 0, sizeof(*w));
	w->done_fd = -1;
}
