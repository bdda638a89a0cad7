/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop: delivery, removal from inside callbacks, timer order, stop from another thread. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/loop.h"
#include "lib/util.h"

struct watch {
	struct loop_fd w;
	struct loop *loop;
	struct watch *other; /* removed by the callback when set */
	int hits;
};

static void on_readable(struct loop_fd *w, uint32_t events)
{
	struct watch *self = container_of(w, struct watch, w);

	assert_true(events & EPOLLIN);
	self->hits++;
	if (self->other)
		loop_remove(self->loop, &self->other->w);
}

static void readable_descriptor_is_delivered(void **s)
{
	(void)s;
	struct loop l;
	struct watch a = { .loop = &l };
	int p[2];

	assert_int_equal(loop_init(&l, NULL), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(loop_add(&l, &a.w, p[0], EPOLLIN, on_readable), 0);
	assert_int_equal(loop_step(&l, 0), 0);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(loop_step(&l, -1), 1);
	assert_int_equal(a.hits, 1);
	loop_modify(&l, &a.w, 0);
	assert_int_equal(loop_step(&l, 0), 0);
	loop_remove(&l, &a.w);
	close(p[0]);
	close(p[1]);
	loop_finish(&l);
}

static void watch_removed_by_an_earlier_callback_is_not_called(void **s)
{
	(void)s;
	struct loop l;
	struct watch a = { .loop = &l }, b = { .loop = &l };
	int p[2], q[2];

	a.other = &b;
	b.other = &a;
	assert_int_equal(loop_init(&l, NULL), 0);
	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(q), 0);
	loop_add(&l, &a.w, p[0], EPOLLIN, on_readable);
	loop_add(&l, &b.w, q[0], EPOLLIN, on_readable);
	assert_int_equal(write(p[1], "x", 1), 1);
	assert_int_equal(write(q[1], "x", 1), 1);
	loop_step(&l, -1);
	assert_int_equal(a.hits + b.hits, 1);
	loop_remove(&l, &a.w);
	loop_remove(&l, &b.w);
	close(p[0]);
	close(p[1]);
	close(q[0]);
	close(q[1]);
	loop_finish(&l);
}

struct tick {
	struct loop_timer t;
	int *order;
	int id, *next;
};

static void on_tick(struct loop_timer *t)
{
	struct tick *k = container_of(t, struct tick, t);

	k->order[(*k->next)++] = k->id;
}

static void timers_fire_in_order_of_time(void **s)
{
	(void)s;
	struct loop l;
	int order[3] = { 0 }, next = 0;
	struct tick k[3];
	uint64_t now = loop_now_ns();

	assert_int_equal(loop_init(&l, NULL), 0);
	for (int i = 0; i < 3; i++)
		k[i] = (struct tick){ .order = order, .id = i + 1, .next = &next };
	loop_timer_set(&l, &k[0].t, now + 2000000, on_tick);
	loop_timer_set(&l, &k[1].t, now + 1000000, on_tick);
	loop_timer_set(&l, &k[2].t, now + 3000000, on_tick);
	loop_timer_set(&l, &k[0].t, now + 4000000, on_tick); /* moved to the end */
	while (next < 3)
		loop_step(&l, -1);
	assert_int_equal(order[0], 2);
	assert_int_equal(order[1], 3);
	assert_int_equal(order[2], 1);
	loop_finish(&l);
}

static void cancelled_timer_does_not_fire(void **s)
{
	(void)s;
	struct loop l;
	int order[1] = { 0 }, next = 0;
	struct tick k = { .order = order, .id = 1, .next = &next };

	assert_int_equal(loop_init(&l, NULL), 0);
	loop_timer_set(&l, &k.t, loop_now_ns(), on_tick);
	loop_timer_cancel(&l, &k.t);
	loop_step(&l, 0);
	assert_int_equal(next, 0);
	assert_null(l.timers);
	loop_finish(&l);
}

static void *stop_from_thread(void *arg)
{
	loop_stop(arg);
	return NULL;
}

static void another_thread_ends_the_loop(void **s)
{
	(void)s;
	struct loop l;
	pthread_t t;

	assert_int_equal(loop_init(&l, NULL), 0);
	assert_int_equal(pthread_create(&t, NULL, stop_from_thread, &l), 0);
	assert_int_equal(loop_run(&l), 0);
	pthread_join(t, NULL);
	loop_finish(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readable_descriptor_is_delivered),
		cmocka_unit_test(watch_removed_by_an_earlier_callback_is_not_called),
		cmocka_unit_test(timers_fire_in_order_of_time),
		cmocka_unit_test(cancelled_timer_does_not_fire),
		cmocka_unit_test(another_thread_ends_the_loop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
