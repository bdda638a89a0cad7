/* SPDX-License-Identifier: Apache-2.0 */
/* The wall clock: see clock.h. */
#include "guest/agent/clock.h"

#include <errno.h>
#include <stddef.h>
#include <sys/timex.h>
#include <time.h>

#include "lib/util.h"

enum { NS_PER_S = 1000000000 };

/* ---- the machine's own ---- */

/* The counter that the host calls the guest's. */
static bool machine_counter(void *arg, uint64_t *ret)
{
	(void)arg;
#ifdef __x86_64__
	uint32_t low, high;

	/* Neither before nor after what stands around it. */
	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	*ret = (uint64_t)high << 32 | low;
	return true;
#else
	(void)ret;
	return false;
#endif
}

static int64_t machine_now(void *arg)
{
	struct timespec t;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

static int machine_set(void *arg, int64_t ns)
{
	struct timespec t = { .tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S };

	(void)arg;
	return clock_settime(CLOCK_REALTIME, &t) < 0 ? -errno : 0;
}

static int machine_add(void *arg, int64_t ns)
{
	struct timex t = { .modes = ADJ_SETOFFSET | ADJ_NANO };

	(void)arg;
	t.time.tv_sec = ns / NS_PER_S;
	t.time.tv_usec = ns % NS_PER_S;
	if (t.time.tv_usec < 0) { /* the fraction always counts forward */
		t.time.tv_sec--;
		t.time.tv_usec += NS_PER_S;
	}
	return clock_adjtime(CLOCK_REALTIME, &t) < 0 ? -errno : 0;
}

const struct clock_ops clock_machine = { machine_counter, machine_now, machine_set, machine_add, NULL };

/* ---- arithmetic ---- */

int clock_word_time(const struct clock_word *w, uint64_t counter, int64_t *ret_ns)
{
	__int128 age, ns;

	if (w->khz == 0 || counter < w->counter)
		return -ERANGE;
	age = (__int128)(counter - w->counter) * 1000000 / w->khz;
	ns = w->clock_ns + age;
	if (age > CLOCK_AGE_MAX_NS || ns < 0 || ns > INT64_MAX)
		return -ERANGE;
	*ret_ns = (int64_t)ns;
	return 0;
}

/* By how much the clock is behind. 0 or -errno. */
static int measure(const struct clock_ops *ops, const struct clock_word *w, int64_t *ret_behind_ns)
{
	int64_t closest = INT64_MAX;

	for (int i = 0; i < CLOCK_TRIES && closest > CLOCK_CLOSE_NS; i++) {
		uint64_t before, after;
		int64_t from, to, now;

		if (!ops->counter(ops->arg, &before))
			return -EOPNOTSUPP;
		now = ops->now_ns(ops->arg);
		ops->counter(ops->arg, &after);
		if (clock_word_time(w, before, &from) < 0 || clock_word_time(w, after, &to) < 0)
			return -ERANGE;
		if (to < from || to - from >= closest)
			continue;
		closest = to - from;
		*ret_behind_ns = from + closest / 2 - now;
	}
	return closest <= CLOCK_APART_NS ? 0 : -EAGAIN;
}

static int set_locked(const struct clock_ops *ops, const struct clock_word *w)
{
	int64_t behind;

	if (w->khz && measure(ops, w, &behind) == 0 && ops->add(ops->arg, behind) == 0)
		return 1;
	return ops->set(ops->arg, w->clock_ns);
}

int clock_set(struct clock_lock *l, const struct clock_ops *ops, const struct clock_word *w)
{
	int r = pthread_mutex_lock(&l->mutex);

	if (r == EOWNERDEAD)
		r = pthread_mutex_consistent(&l->mutex);
	if (r)
		return -r;
	r = set_locked(ops, w);
	pthread_mutex_unlock(&l->mutex);
	return r;
}

int clock_lock_init(struct clock_lock *l)
{
	pthread_mutexattr_t a;
	int r = pthread_mutexattr_init(&a);

	if (r)
		return -r;
	r = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	if (r == 0)
		r = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	if (r == 0)
		r = pthread_mutex_init(&l->mutex, &a);
	pthread_mutexattr_destroy(&a);
	return -r;
}
