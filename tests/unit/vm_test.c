/* SPDX-License-Identifier: Apache-2.0 */
/* The lifecycle of a VM without KVM: every transition, the order of participants, stop requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/util.h"
#include "vmm/vm.h"

enum { NSTATES = VM_STOPPED + 1 };

/* Rows: from; columns: to. */
static const bool table[NSTATES][NSTATES] = {
	/*                    created conf  run   paused stopped */
	[VM_CREATED]    = { false, true,  false, false, true },
	[VM_CONFIGURED] = { false, false, true,  true,  true }, /* paused: restored */
	[VM_RUNNING]    = { false, false, false, true,  true },
	[VM_PAUSED]     = { false, false, true,  false, true },
	[VM_STOPPED]    = { false, false, false, false, false },
};

/* The shortest way into a state. */
static void bring_to(struct vm *vm, enum vm_state s)
{
	assert_int_equal(vm_init(vm, NULL), 0);
	if (s == VM_CONFIGURED || s == VM_RUNNING || s == VM_PAUSED)
		assert_int_equal(vm_set_state(vm, VM_CONFIGURED, NULL), 0);
	if (s == VM_RUNNING || s == VM_PAUSED)
		assert_int_equal(vm_set_state(vm, VM_RUNNING, NULL), 0);
	if (s == VM_PAUSED)
		assert_int_equal(vm_set_state(vm, VM_PAUSED, NULL), 0);
	if (s == VM_STOPPED)
		assert_int_equal(vm_set_state(vm, VM_STOPPED, NULL), 0);
	assert_int_equal(vm->state, s);
}

static void every_transition_is_as_in_the_picture(void **state)
{
	(void)state;
	for (int from = 0; from < NSTATES; from++)
		for (int to = 0; to < NSTATES; to++) {
			struct err err = ERR_INIT;
			struct vm vm;

			bring_to(&vm, (enum vm_state)from);
			if (table[from][to]) {
				assert_int_equal(vm_set_state(&vm, (enum vm_state)to, &err), 0);
				assert_int_equal(vm.state, to);
			} else {
				assert_int_equal(vm_set_state(&vm, (enum vm_state)to, &err), -EINVAL);
				assert_int_equal(vm.state, from);
				assert_non_null(strstr(err.text, vm_state_name((enum vm_state)from)));
				assert_non_null(strstr(err.text, vm_state_name((enum vm_state)to)));
			}
			vm_finish(&vm);
		}
}

static void names_are_the_documented_ones(void **state)
{
	static const char *const states[] = { "created", "configured", "running", "paused", "stopped" };
	static const char *const stops[] = { "none", "poweroff", "reboot", "panic", "killed", "crash", "error", "saved" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		assert_string_equal(vm_state_name((enum vm_state)i), states[i]);
	for (size_t i = 0; i < ARRAY_SIZE(stops); i++)
		assert_string_equal(vm_stop_name((enum vm_stop)i), stops[i]);
	assert_string_equal(vm_state_name((enum vm_state)99), "unknown");
	assert_string_equal(vm_stop_name((enum vm_stop)99), "unknown");
}

static void configured_freezes_the_bus(void **state)
{
	static const struct bus_ops ops = { NULL, NULL };
	struct vm vm;

	(void)state;
	bring_to(&vm, VM_CREATED);
	assert_int_equal(bus_add(&vm.bus, BUS_PIO, 0x10, 1, &ops, NULL, "early", NULL), 0);
	assert_int_equal(vm_set_state(&vm, VM_CONFIGURED, NULL), 0);
	assert_int_equal(bus_add(&vm.bus, BUS_PIO, 0x20, 1, &ops, NULL, "late", NULL), -EBUSY);
	vm_finish(&vm);
}

static char trace[64];

struct part {
	char name;
	int result;
};

static int part_pause(void *opaque)
{
	struct part *p = opaque;

	snprintf(trace + strlen(trace), sizeof(trace) - strlen(trace), "-%c", p->name);
	return p->result;
}

static void part_resume(void *opaque)
{
	struct part *p = opaque;

	snprintf(trace + strlen(trace), sizeof(trace) - strlen(trace), "+%c", p->name);
}

static void add_parts(struct vm *vm, struct part *parts, size_t n)
{
	trace[0] = 0;
	for (size_t i = 0; i < n; i++) {
		struct vm_participant p = { part_pause, part_resume, &parts[i] };

		assert_int_equal(vm_add_participant(vm, &p, NULL), 0);
	}
}

static void participants_pause_in_order_and_resume_in_reverse(void **state)
{
	struct part parts[] = { { 'a', 0 }, { 'b', 0 }, { 'c', 0 } };
	struct vm vm;

	(void)state;
	bring_to(&vm, VM_CREATED);
	add_parts(&vm, parts, ARRAY_SIZE(parts));
	assert_int_equal(vm_set_state(&vm, VM_CONFIGURED, NULL), 0);
	assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	assert_string_equal(trace, "");
	assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
	assert_string_equal(trace, "-a-b-c");
	assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	assert_string_equal(trace, "-a-b-c+c+b+a");
	vm_finish(&vm);
}

static void a_refused_pause_is_undone(void **state)
{
	struct part parts[] = { { 'a', 0 }, { 'b', 0 }, { 'c', -EIO }, { 'd', 0 } };
	struct err err = ERR_INIT;
	struct vm vm;

	(void)state;
	bring_to(&vm, VM_RUNNING);
	add_parts(&vm, parts, ARRAY_SIZE(parts));
	assert_int_equal(vm_set_state(&vm, VM_PAUSED, &err), -EIO);
	assert_int_equal(vm.state, VM_RUNNING);
	assert_string_equal(trace, "-a-b-c+b+a");
	assert_non_null(strstr(err.text, "3 of 4"));
	vm_finish(&vm);
}

static void too_many_participants_are_refused(void **state)
{
	static struct part part = { 'x', 0 };
	struct vm_participant p = { part_pause, part_resume, &part };
	struct vm vm;

	(void)state;
	bring_to(&vm, VM_CREATED);
	for (int i = 0; i < VM_MAX_PARTICIPANTS; i++)
		assert_int_equal(vm_add_participant(&vm, &p, NULL), 0);
	assert_int_equal(vm_add_participant(&vm, &p, NULL), -ENOSPC);
	vm_finish(&vm);
}

static void the_first_stop_reason_wins_and_ends_the_loop(void **state)
{
	struct vm vm;

	(void)state;
	bring_to(&vm, VM_RUNNING);
	vm_request_stop(&vm, VM_STOP_PANIC, "panic %d", 1);
	vm_request_stop(&vm, VM_STOP_POWEROFF, "off");
	assert_int_equal(vm.stop_reason, VM_STOP_PANIC);
	assert_string_equal(vm.stop_text, "panic 1");
	assert_int_equal(loop_run(&vm.loop), 0); /* returns: it was asked to */
	vm_finish(&vm);
}

struct racer {
	struct vm *vm;
	enum vm_stop reason;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	vm_request_stop(r->vm, r->reason, "%s", vm_stop_name(r->reason));
	return NULL;
}

static void racing_stop_requests_leave_one_whole_reason(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		struct racer racers[] = { { NULL, VM_STOP_REBOOT }, { NULL, VM_STOP_CRASH }, { NULL, VM_STOP_PANIC } };
		pthread_t t[ARRAY_SIZE(racers)];
		struct vm vm;

		bring_to(&vm, VM_RUNNING);
		for (size_t i = 0; i < ARRAY_SIZE(racers); i++) {
			racers[i].vm = &vm;
			assert_int_equal(pthread_create(&t[i], NULL, race, &racers[i]), 0);
		}
		for (size_t i = 0; i < ARRAY_SIZE(racers); i++)
			pthread_join(t[i], NULL);
		assert_string_equal(vm.stop_text, vm_stop_name((enum vm_stop)vm.stop_reason));
		assert_int_not_equal(vm.stop_reason, VM_STOP_NONE);
		vm_finish(&vm);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_transition_is_as_in_the_picture),
		cmocka_unit_test(names_are_the_documented_ones),
		cmocka_unit_test(configured_freezes_the_bus),
		cmocka_unit_test(participants_pause_in_order_and_resume_in_reverse),
		cmocka_unit_test(a_refused_pause_is_undone),
		cmocka_unit_test(too_many_participants_are_refused),
		cmocka_unit_test(the_first_stop_reason_wins_and_ends_the_loop),
		cmocka_unit_test(racing_stop_requests_leave_one_whole_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
