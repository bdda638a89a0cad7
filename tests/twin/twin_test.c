/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every registered device goes through the twin test with many seeds: a new device is picked up by its line in the
 * registry. TWIN_ROUNDS sets how many, TWIN_SEED runs one again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/harness/testdev.h"
#include "tests/harness/twin.h"

enum { ROUNDS = 60, MAX_TESTS = 64 };

static uint64_t env(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s ? strtoull(s, NULL, 0) : otherwise;
}

static void a_saved_and_loaded_device_goes_on_like_the_original(void **ctx)
{
	const struct device_ops *ops = *ctx;
	uint64_t first = env("TWIN_SEED", 1), n = getenv("TWIN_SEED") ? 1 : env("TWIN_ROUNDS", ROUNDS);

	for (uint64_t seed = first; seed < first + n; seed++) {
		char text[512];

		if (!twin_run(ops, seed, text, sizeof(text)))
			fail_msg("%s: %s (again: TWIN_SEED=%llu)", ops->name, text, (unsigned long long)seed);
	}
}

/* The test's own test: the same device without its state must be caught. */
static void a_forgetful_device_is_caught(void **ctx)
{
	struct device_ops forgetful = *(const struct device_ops *)*ctx;

	forgetful.schema = NULL;
	for (uint64_t seed = 1; seed < ROUNDS; seed++) {
		char text[512];

		if (!twin_run(&forgetful, seed, text, sizeof(text)))
			return;
	}
	fail_msg("%s: no seed of %d showed the difference", forgetful.name, ROUNDS);
}

static char names[2 * MAX_TESTS][64];

static size_t add(struct CMUnitTest *tests, size_t n, const struct device_ops *ops)
{
	snprintf(names[n], sizeof(names[n]), "%s_goes_on_like_the_original", ops->name);
	tests[n] = (struct CMUnitTest){ .name = names[n],
					.test_func = a_saved_and_loaded_device_goes_on_like_the_original,
					.initial_state = (void *)ops };
	n++;
	/* Elsewhere all state may follow from the options and never change in these traces. */
	if (!trace_event(ops) && ops != &testdev_device && !(ops->bus == DEVICE_PIO && ops->schema))
		return n;
	snprintf(names[n], sizeof(names[n]), "a_forgetful_%s_is_caught", ops->name);
	tests[n] = (struct CMUnitTest){ .name = names[n],
					.test_func = a_forgetful_device_is_caught,
					.initial_state = (void *)ops };
	return n + 1;
}

int main(void)
{
	struct CMUnitTest tests[2 * MAX_TESTS];
	size_t n = add(tests, 0, &testdev_device);

	for (size_t i = 0; i < device_registry_count && i + 1 < MAX_TESTS; i++)
		n = add(tests, n, device_registry[i]);
	return _cmocka_run_group_tests("twin", tests, n, NULL, NULL);
}
