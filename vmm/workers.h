/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for work that may take long: copying guest memory, compressing it. They exist before system calls are
 * filtered (a filtered monitor makes no threads) and sleep until there is work.
 *
 *   workers_run(w, fn, arg)      fn(arg, i) on each of the n threads, and wait
 *   workers_begin ... workers_wait   the same without waiting; done_fd becomes readable when all have returned
 *
 * Threads: begin, wait and run by one thread at a time, which is none of the workers themselves. Each calls
 * vm->worker_isolate first. They touch guest memory through memory.h only and no device.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>

#include "lib/err.h"

struct vm;

enum { WORKERS_MAX = 16 };

typedef void workers_fn(void *arg, unsigned i);

struct workers {
	struct vm *vm;          /* may be NULL: no isolation (tests, host programs) */
	unsigned n;
	int done_fd;            /* eventfd, non-blocking; -1 without threads */
	pthread_t thread[WORKERS_MAX];
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	/* under lock */
	workers_fn *fn;
	void *arg;
	unsigned turn;          /* of the work given last */
	unsigned busy;          /* threads that have not returned from it */
	unsigned ready;         /* threads that have begun */
	bool quit, failed;
	char name[8];
};

/* n (1..WORKERS_MAX) threads named NAME0.. ; vm may be NULL. */
int workers_start(struct workers *w, struct vm *vm, unsigned n, const char *name, struct err *err);
/* Until all have begun and are isolated. Before the first work and before the guest runs. */
int workers_ready(struct workers *w, struct err *err);
void workers_begin(struct workers *w, workers_fn *fn, void *arg);
void workers_wait(struct workers *w); /* also empties done_fd */
void workers_run(struct workers *w, workers_fn *fn, void *arg);
void workers_finish(struct workers *w); /* waits for work under way; accepts a zeroed one */
/* As many threads as this host has processors, at most WORKERS_MAX. */
unsigned workers_default(void);
