/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: each runs the work once, with its own number; waiting, the descriptor, isolation, ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "vmm/vm.h"
#include "vmm/workers.h"

struct tally {
	_Atomic unsigned calls[WORKERS_MAX];
	_Atomic bool hold;
	pthread_mutex_t lock;
	pthread_cond_t go;
};

static void count(void *arg, unsigned i)
{
	struct tally *t = arg;

	t->calls[i]++;
}

static void wait_for_go(void *arg, unsigned i)
{
	struct tally *t = arg;

	pthread_mutex_lock(&t->lock);
	while (t->hold)
		pthread_cond_wait(&t->go, &t->lock);
	pthread_mutex_unlock(&t->lock);
	t->calls[i]++;
}

static void start(struct workers *w, unsigned n)
{
	struct err err = ERR_INIT;

	if (workers_start(w, NULL, n, "test", &err) < 0)
		fail_msg("%s", err.text);
}

static bool is_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

static void each_thread_runs_the_work_once(void **state)
{
	struct tally t = { 0 };
	struct workers w;

	(void)state;
	start(&w, WORKERS_MAX);
	for (unsigned round = 1; round <= 100; round++) {
		workers_run(&w, count, &t);
		for (unsigned i = 0; i < WORKERS_MAX; i++)
			assert_int_equal(t.calls[i], round);
	}
	workers_finish(&w);
}

static void the_descriptor_tells_when_all_have_returned(void **state)
{
	struct tally t = { .hold = true, .lock = PTHREAD_MUTEX_INITIALIZER, .go = PTHREAD_COND_INITIALIZER };
	struct workers w;
	struct pollfd p;

	(void)state;
	start(&w, 3);
	assert_false(is_readable(w.done_fd));
	workers_begin(&w, wait_for_go, &t);
	assert_false(is_readable(w.done_fd));
	pthread_mutex_lock(&t.lock);
	t.hold = false;
	pthread_cond_broadcast(&t.go);
	pthread_mutex_unlock(&t.lock);
	p = (struct pollfd){ .fd = w.done_fd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, -1), 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(t.calls[i], 1);
	workers_wait(&w);
	assert_false(is_readable(w.done_fd));
	workers_finish(&w);
}

static void waiting_without_work_returns(void **state)
{
	struct workers w;

	(void)state;
	start(&w, 2);
	workers_wait(&w);
	workers_wait(&w);
	workers_finish(&w);
}

static void finishing_waits_for_work_under_way(void **state)
{
	struct tally t = { 0 };
	struct workers w;

	(void)state;
	start(&w, 2);
	workers_begin(&w, count, &t);
	workers_finish(&w);
	assert_int_equal(t.calls[0] + t.calls[1], 2);
	assert_int_equal(w.done_fd, -1);
	workers_finish(&w);
}

static void a_zeroed_one_may_be_finished(void **state)
{
	struct workers w = { 0 };

	(void)state;
	workers_finish(&w);
}

static void numbers_of_threads_out_of_range_are_refused(void **state)
{
	struct err err = ERR_INIT;
	struct workers w;

	(void)state;
	assert_int_equal(workers_start(&w, NULL, 0, "test", &err), -EINVAL);
	assert_int_equal(workers_start(&w, NULL, WORKERS_MAX + 1, "test", &err), -EINVAL);
	assert_non_null(strstr(err.text, "1 to 16"));
	workers_finish(&w);
}

static int isolates(struct vm *vm, struct err *err)
{
	(void)vm;
	(void)err;
	return 0;
}

static int fails(struct vm *vm, struct err *err)
{
	(void)vm;
	return err_set(err, -EPERM, "not here");
}

static void threads_that_cannot_be_isolated_are_told(void **state)
{
	struct err err = ERR_INIT;
	struct vm vm;
	struct workers w;

	(void)state;
	assert_int_equal(vm_init(&vm, &err), 0);
	vm.worker_isolate = isolates;
	assert_int_equal(workers_start(&w, &vm, 2, "test", &err), 0);
	assert_int_equal(workers_ready(&w, &err), 0);
	workers_finish(&w);
	vm.worker_isolate = fails;
	assert_int_equal(workers_start(&w, &vm, 2, "test", &err), 0);
	assert_int_equal(workers_ready(&w, &err), -EPERM);
	workers_finish(&w);
	vm_finish(&vm);
}

static void as_many_as_processors_and_never_too_many(void **state)
{
	(void)state;
	assert_in_range(workers_default(), 1, WORKERS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_thread_runs_the_work_once),
		cmocka_unit_test(the_descriptor_tells_when_all_have_returned),
		cmocka_unit_test(waiting_without_work_returns),
		cmocka_unit_test(finishing_waits_for_work_under_way),
		cmocka_unit_test(a_zeroed_one_may_be_finished),
		cmocka_unit_test(numbers_of_threads_out_of_range_are_refused),
		cmocka_unit_test(threads_that_cannot_be_isolated_are_told),
		cmocka_unit_test(as_many_as_processors_and_never_too_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
