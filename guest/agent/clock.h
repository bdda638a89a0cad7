/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting the wall clock, exactly where that is possible.
 *
 * The host says what its clock was when this machine's counter stood at some value. What the counter has gone on since is how
 * long the message was under way, however long that was: a guest that has yet to fetch its memory, a busy host. Then the clock
 * is read between two readings of the counter, the closest of some, and what it is wrong by is added to it in one step:
 * being interrupted in between costs nothing.
 *
 * Trust: the numbers are the host's, and a counter may be another's than the host thinks (a snapshot that was moved, a monitor
 * that does not scale it): a message that seems to come from the future or to be older than CLOCK_AGE_MAX_NS is not used.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { CLOCK_TRIES = 64 };
#define CLOCK_AGE_MAX_NS 30000000000ll /* a frequency that is wrong by 100 ppm then makes 3 ms */
#define CLOCK_CLOSE_NS 20000           /* two readings of the counter with the clock's between them: good enough */
#define CLOCK_APART_NS 2000000         /* no use any more */

struct clock_word {
	int64_t clock_ns; /* since 1970 */
	uint64_t counter; /* then */
	uint32_t khz;     /* of the counter; 0: the host does not know it */
};

/* Held by who reads the clock to correct it. Two who both find it behind would both add: a request that took the host too long is
 * made again, and then two processes have it. Lies in memory that both share; the lock of a process that died is taken over. */
struct clock_lock {
	pthread_mutex_t mutex;
};

int clock_lock_init(struct clock_lock *l); /* 0 or -errno */

/* What is set; the machine's own but in tests. */
struct clock_ops {
	bool (*counter)(void *arg, uint64_t *ret);         /* false: there is none */
	int64_t (*now_ns)(void *arg);                      /* wall clock */
	int (*set)(void *arg, int64_t ns);                 /* 0 or -errno */
	int (*add)(void *arg, int64_t ns);                 /* to the clock, in one step; 0 or -errno */
	void *arg;
};

extern const struct clock_ops clock_machine;

/* The host's time when the counter stands at `counter`: 0, or -ERANGE when the word is not to be believed. */
int clock_word_time(const struct clock_word *w, uint64_t counter, int64_t *ret_ns);

/* 1: the clock is right, 0: it was set to clock_ns, late by the way of the message; -errno. */
int clock_set(struct clock_lock *l, const struct clock_ops *ops, const struct clock_word *w);
