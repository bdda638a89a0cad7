/* SPDX-License-Identifier: Apache-2.0 */
/* The clock that a guest's agent sets: arithmetic and steps, on a machine whose counter and clock are two numbers here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/agent/clock.h"

enum { KHZ = 2000000 }; /* two ticks to a nanosecond */
#define THEN 1764488685000000000ll

struct machine {
	bool has_counter;
	uint64_t counter;
	int64_t clock_ns;
	int64_t late_ns;     /* each reading of the clock comes so late; negative: but for one */
	int readings, additions, settings;
	int add_fails;
	struct clock_lock lock;
	int unlocked;        /* times that it was read or moved without the lock */
};

static void check_lock(struct machine *m)
{
	int r = pthread_mutex_trylock(&m->lock.mutex);

	m->unlocked += r != EBUSY;
	if (r == 0)
		pthread_mutex_unlock(&m->lock.mutex);
}

/* Time passes for both. */
static void pass(struct machine *m, int64_t ns)
{
	m->counter += (uint64_t)ns * KHZ / 1000000;
	m->clock_ns += ns;
}

static bool counter(void *arg, uint64_t *ret)
{
	struct machine *m = arg;

	*ret = m->counter;
	return m->has_counter;
}

static int64_t now_ns(void *arg)
{
	struct machine *m = arg;
	int64_t now;

	check_lock(m);
	m->readings++;
	pass(m, m->late_ns >= 0 ? m->late_ns : m->readings == 3 ? 100 : -m->late_ns);
	now = m->clock_ns;
	pass(m, 100);
	return now;
}

static int set(void *arg, int64_t ns)
{
	struct machine *m = arg;

	check_lock(m);
	m->settings++;
	m->clock_ns = ns;
	return 0;
}

static int add(void *arg, int64_t ns)
{
	struct machine *m = arg;

	check_lock(m);
	if (m->add_fails)
		return -m->add_fails;
	m->additions++;
	pass(m, 50000000); /* interrupted before it is done */
	m->clock_ns += ns;
	return 0;
}

static struct machine machine_at(uint64_t value, int64_t clock_ns)
{
	return (struct machine){ .has_counter = true, .counter = value, .clock_ns = clock_ns };
}

static int set_clock(struct machine *m, const struct clock_word *w)
{
	const struct clock_ops ops = { counter, now_ns, set, add, m };
	int r;

	assert_int_equal(clock_lock_init(&m->lock), 0);
	r = clock_set(&m->lock, &ops, w);
	assert_int_equal(m->unlocked, 0);
	assert_int_equal(pthread_mutex_destroy(&m->lock.mutex), 0); /* nobody has it any more */
	return r;
}

/* How wrong the machine's clock is by that word. */
static int64_t error_of(const struct machine *m, const struct clock_word *w)
{
	int64_t right;

	assert_int_equal(clock_word_time(w, m->counter, &right), 0);
	return right > m->clock_ns ? right - m->clock_ns : m->clock_ns - right;
}

static void the_counter_says_how_long_the_word_was_under_way(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ };
	int64_t ns = 0;

	(void)s;
	assert_int_equal(clock_word_time(&w, 1000, &ns), 0);
	assert_true(ns == THEN);
	assert_int_equal(clock_word_time(&w, 1000 + 3ull * KHZ * 1000, &ns), 0);
	assert_true(ns == THEN + 3000000000ll);
}

static void a_frequency_that_is_no_round_number_loses_nothing(void **s)
{
	const struct clock_word w = { THEN, 0, 2599998 };
	int64_t ns = 0;

	(void)s;
	assert_int_equal(clock_word_time(&w, 2599998ull * 29999, &ns), 0);
	assert_true(ns == THEN + 29999000000ll);
}

static void a_word_from_the_future_or_from_long_ago_is_not_believed(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ }, slow = { THEN, 0, 1 }, never = { INT64_MAX, 0, KHZ };
	int64_t ns = 7;

	(void)s;
	assert_int_equal(clock_word_time(&w, 999, &ns), -ERANGE);
	assert_int_equal(clock_word_time(&w, 1000 + 31ull * KHZ * 1000, &ns), -ERANGE);
	assert_int_equal(clock_word_time(&w, UINT64_MAX, &ns), -ERANGE);
	assert_int_equal(clock_word_time(&slow, UINT64_MAX, &ns), -ERANGE);
	assert_int_equal(clock_word_time(&never, KHZ, &ns), -ERANGE);
	assert_true(ns == 7);
}

static void a_late_word_makes_a_right_clock(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ };
	struct machine m = machine_at(1000 + 7ull * KHZ * 1000, 12345);

	(void)s;
	assert_int_equal(set_clock(&m, &w), 1);
	assert_true(error_of(&m, &w) < 1000);
	assert_int_equal(m.readings, 1);
	assert_int_equal(m.settings, 0);
}

static void a_clock_that_is_ahead_is_set_back(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ };
	struct machine m = machine_at(2000, THEN + 3600000000000ll);

	(void)s;
	assert_int_equal(set_clock(&m, &w), 1);
	assert_true(error_of(&m, &w) < 1000);
}

static void the_closest_of_some_readings_counts(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ };
	struct machine m = machine_at(2000, 0);

	(void)s;
	m.late_ns = -30000000;
	assert_int_equal(set_clock(&m, &w), 1);
	assert_true(error_of(&m, &w) < 1000);
	assert_int_equal(m.readings, 3);
}

static void a_machine_that_is_always_interrupted_sets_what_it_was_told(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ };
	struct machine m = machine_at(2000, 0);

	(void)s;
	m.late_ns = 3000000;
	assert_int_equal(set_clock(&m, &w), 0);
	assert_true(m.clock_ns == THEN);
	assert_int_equal(m.readings, CLOCK_TRIES);
}

static void without_a_usable_counter_what_was_told_is_set(void **s)
{
	const struct clock_word plain = { THEN, 0, 0 }, w = { THEN, 1000, KHZ };
	struct machine m = machine_at(2000, 0);

	(void)s;
	assert_int_equal(set_clock(&m, &plain), 0);
	assert_true(m.clock_ns == THEN);
	m = machine_at(500, 0); /* another counter than the host means */
	assert_int_equal(set_clock(&m, &w), 0);
	assert_true(m.clock_ns == THEN);
	m = machine_at(2000, 0);
	m.has_counter = false;
	assert_int_equal(set_clock(&m, &w), 0);
	assert_true(m.clock_ns == THEN);
	m = machine_at(2000, 0);
	m.add_fails = EINVAL;
	assert_int_equal(set_clock(&m, &w), 0);
	assert_true(m.clock_ns == THEN);
}

/* A process that is ended while it has the lock leaves it to the next. */
static void the_lock_of_a_dead_process_is_taken_over(void **s)
{
	const struct clock_word w = { THEN, 1000, KHZ };
	struct machine *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const struct clock_ops ops = { counter, now_ns, set, add, m };
	int status;
	pid_t pid;

	(void)s;
	assert_ptr_not_equal(m, MAP_FAILED);
	*m = machine_at(2000, 0);
	assert_int_equal(clock_lock_init(&m->lock), 0);
	pid = fork();
	if (pid == 0)
		_exit(pthread_mutex_lock(&m->lock.mutex));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(clock_set(&m->lock, &ops, &w), 1);
		assert_true(error_of(m, &w) < 1000);
	}
	assert_int_equal(m->unlocked, 0);
	munmap(m, sizeof(*m));
}

static void this_machine_has_a_counter_that_goes_on(void **s)
{
	uint64_t a = 0, b = 0;

	(void)s;
	if (!clock_machine.counter(NULL, &a))
		skip();
	assert_true(clock_machine.counter(NULL, &b));
	assert_true(b > a);
	assert_true(clock_machine.now_ns(NULL) > THEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_counter_says_how_long_the_word_was_under_way),
		cmocka_unit_test(a_frequency_that_is_no_round_number_loses_nothing),
		cmocka_unit_test(a_word_from_the_future_or_from_long_ago_is_not_believed),
		cmocka_unit_test(a_late_word_makes_a_right_clock),
		cmocka_unit_test(a_clock_that_is_ahead_is_set_back),
		cmocka_unit_test(the_closest_of_some_readings_counts),
		cmocka_unit_test(a_machine_that_is_always_interrupted_sets_what_it_was_told),
		cmocka_unit_test(without_a_usable_counter_what_was_told_is_set),
		cmocka_unit_test(the_lock_of_a_dead_process_is_taken_over),
		cmocka_unit_test(this_machine_has_a_counter_that_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
