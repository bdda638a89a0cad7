/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread engine: for hosts without io_uring, and aio=threads.
 *
 * A few worker threads take requests from a queue, make the blocking system calls of all their steps, and put
 * them on a list of finished ones; event_fd tells the main loop. A request with `work` of its own has that called instead. `done` runs in the caller's thread only.
 *
 * Threads and locks: `lock` covers both lists and the counters; it is the innermost lock, held for a few
 * instructions. A worker sees a request, its iovecs and a descriptor, no device state. Snapshot: nothing.
 */
/* syscalls(main): read
 * syscalls(vcpu): futex
 * syscalls(worker): preadv pwritev preadv2 pwritev2 fdatasync fallocate write futex */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "devices/backend/block_io.h"
#include "lib/util.h"
#include "vmm/vm.h"

struct list {
	struct block_request *head, *tail;
};

struct block_threads {
	struct block_io io;
	struct vm *vm; /* may be NULL */
	pthread_mutex_t lock;
	pthread_cond_t work; /* todo is not empty, or quit */
	pthread_cond_t idle; /* done is not empty */
	struct list todo, done;
	bool quit;
	pthread_t thread[BLOCK_IO_THREADS];
	int nthreads, max;
	unsigned begun; /* threads that have a number */
};

static struct block_threads *threads_of(struct block_io *io)
{
	return container_of(io, struct block_threads, io);
}

static void append(struct list *l, struct block_request *r)
{
	r->next = NULL;
	if (l->head)
		l->tail->next = r;
	else
		l->head = r;
	l->tail = r;
}

static struct block_request *take(struct list *l)
{
	struct block_request *r = l->head;

	if (r)
		l->head = r->next;
	return r;
}

static int64_t run_step(int fd, const struct block_step *s)
{
	int64_t n = -1;

	switch (s->kind) {
	case BLOCK_STEP_READ:
		n = preadv(fd, s->iov, s->niov, (off_t)s->off);
		break;
	case BLOCK_STEP_WRITE:
		n = s->mode ? pwritev2(fd, s->iov, s->niov, (off_t)s->off, s->mode)
			    : pwritev(fd, s->iov, s->niov, (off_t)s->off);
		break;
	case BLOCK_STEP_SYNC:
		n = fdatasync(fd);
		break;
	case BLOCK_STEP_ALLOCATE:
		n = fallocate(fd, s->mode, (off_t)s->off, (off_t)s->len);
		break;
	}
	return n < 0 ? -errno : n;
}

static void run_request(const struct block_threads *t, struct block_request *r)
{
	struct block_step s;

	do
		block_io_step(r, &s);
	while (!block_io_took(r, run_step(t->io.file[r->file], &s)));
}

static void *worker_main(void *arg)
{
	struct block_threads *t = arg;
	unsigned me;
	struct err err = ERR_INIT;

	prctl(PR_SET_NAME, "blk-io");
	if (t->vm && t->vm->worker_isolate && t->vm->worker_isolate(t->vm, &err) < 0) {
		vm_request_stop(t->vm, VM_STOP_ERROR, "disk thread: %s", err.text);
		return NULL;
	}
	pthread_mutex_lock(&t->lock);
	me = t->begun++;
	while (!t->quit) {
		struct block_request *r = take(&t->todo);
		bool first;

		if (!r) {
			pthread_cond_wait(&t->work, &t->lock);
			continue;
		}
		pthread_mutex_unlock(&t->lock);
		if (r->work)
			r->result = r->work(r, me);
		else
			run_request(t, r);
		pthread_mutex_lock(&t->lock);
		first = !t->done.head;
		append(&t->done, r);
		if (first) {
			pthread_cond_signal(&t->idle);
			eventfd_write(t->io.event_fd, 1);
		}
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int threads_start(struct block_io *io, struct vm *vm, struct err *err)
{
	struct block_threads *t = threads_of(io);
	sigset_t all, old;
	int r = 0;

	t->vm = vm;
	sigfillset(&all);
	sigdelset(&all, SIGSYS); /* the filter's report */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (t->nthreads < t->max && r == 0) {
		r = pthread_create(&t->thread[t->nthreads], NULL, worker_main, t);
		if (r == 0)
			t->nthreads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return t->nthreads ? 0 : err_errno(err, -r, "disk threads");
}

static void threads_submit(struct block_io *io, struct block_request *r)
{
	struct block_threads *t = threads_of(io);

	block_io_begin(r);
	io->inflight++;
	pthread_mutex_lock(&t->lock);
	append(&t->todo, r);
	pthread_cond_signal(&t->work);
	pthread_mutex_unlock(&t->lock);
}

static void finish_all(struct block_threads *t)
{
	struct block_request *r, *next;

	pthread_mutex_lock(&t->lock);
	r = t->done.head;
	t->done.head = NULL;
	pthread_mutex_unlock(&t->lock);
	for (; r; r = next) {
		next = r->next;
		t->io.inflight--;
		r->done(r, r->result);
	}
}

/* Without a thread (there was no start, and none can be made) nothing would ever finish: fail instead. */
static void threads_kick(struct block_io *io)
{
	struct block_threads *t = threads_of(io);
	struct block_request *r;

	if (t->nthreads || io->inflight == 0 || threads_start(io, t->vm, NULL) == 0)
		return;
	pthread_mutex_lock(&t->lock);
	while ((r = take(&t->todo))) {
		r->result = -EIO;
		append(&t->done, r);
	}
	pthread_mutex_unlock(&t->lock);
	eventfd_write(io->event_fd, 1);
}

static void threads_reap(struct block_io *io)
{
	finish_all(threads_of(io));
	threads_kick(io);
}

static void threads_complete(struct block_io *io)
{
	eventfd_t v;

	eventfd_read(io->event_fd, &v);
	threads_reap(io);
}

static void threads_drain(struct block_io *io)
{
	struct block_threads *t = threads_of(io);

	while (io->inflight) {
		threads_kick(io);
		pthread_mutex_lock(&t->lock);
		while (!t->done.head)
			pthread_cond_wait(&t->idle, &t->lock);
		pthread_mutex_unlock(&t->lock);
		finish_all(t);
	}
}

/* A worker that sees a request of this place took it under the lock, after it was submitted, after this. */
static int threads_set_file(struct block_io *io, unsigned index, int fd)
{
	if (index >= BLOCK_IO_FILES)
		return -EINVAL;
	io->file[index] = fd;
	return 0;
}

static void threads_close(struct block_io *io)
{
	struct block_threads *t = threads_of(io);

	pthread_mutex_lock(&t->lock);
	t->quit = true;
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
	for (int i = 0; i < t->nthreads; i++)
		pthread_join(t->thread[i], NULL);
	pthread_cond_destroy(&t->work);
	pthread_cond_destroy(&t->idle);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

static const struct block_io_ops threads_ops = {
	.submit = threads_submit,
	.kick = threads_kick,
	.complete = threads_complete,
	.reap = threads_reap,
	.drain = threads_drain,
	.start = threads_start,
	.set_file = threads_set_file,
	.close = threads_close,
};

int block_threads_open(const int *files, int nfiles, int event_fd, int nthreads, struct block_io **ret, struct err *err)
{
	struct block_threads *t = calloc(1, sizeof(*t));

	if (!t)
		return err_errno(err, -ENOMEM, "disk threads");
	t->io.ops = &threads_ops;
	t->io.event_fd = event_fd;
	t->max = MIN(nthreads, (int)BLOCK_IO_THREADS);
	for (int i = 0; i < BLOCK_IO_FILES; i++)
		t->io.file[i] = i < nfiles ? files[i] : -1;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->work, NULL);
	pthread_cond_init(&t->idle, NULL);
	*ret = &t->io;
	return 0;
}
