/* SPDX-License-Identifier: Apache-2.0 */
/* Wrong passwords: who guesses is refused for longer and longer, and others are not. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/vnc_guard.h"

#define SECOND 1000000000ULL
#define NOW (1000 * SECOND)

static struct in6_addr from(const char *text)
{
	struct sockaddr_storage sa = { .ss_family = AF_INET };

	if (inet_pton(AF_INET, text, &((struct sockaddr_in *)(void *)&sa)->sin_addr) != 1) {
		sa.ss_family = AF_INET6;
		assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)(void *)&sa)->sin6_addr), 1);
	}
	return vnc_guard_from(&sa);
}

static int setup(void **state)
{
	*state = calloc(1, sizeof(struct vnc_guard));
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void wrong(struct vnc_guard *g, const char *address, unsigned times, uint64_t now)
{
	const struct in6_addr a = from(address);

	while (times-- > 0)
		vnc_guard_wrong(g, &a, now);
}

static bool refused(const struct vnc_guard *g, const char *address, uint64_t now)
{
	const struct in6_addr a = from(address);

	return vnc_guard_refuses(g, &a, now);
}

static void a_few_wrong_ones_are_free(void **state)
{
	struct vnc_guard *g = *state;

	assert_false(refused(g, "127.0.0.1", NOW));
	wrong(g, "127.0.0.1", VNC_GUARD_FREE - 1, NOW);
	assert_false(refused(g, "127.0.0.1", NOW));
	wrong(g, "127.0.0.1", 1, NOW);
	assert_true(refused(g, "127.0.0.1", NOW));
	assert_false(refused(g, "127.0.0.1", NOW + VNC_GUARD_FIRST_S * SECOND));
}

static void each_further_one_doubles_the_pause_up_to_the_longest(void **state)
{
	struct vnc_guard *g = *state;

	wrong(g, "192.0.2.1", VNC_GUARD_FREE + 1, NOW);
	assert_true(refused(g, "192.0.2.1", NOW + 2 * VNC_GUARD_FIRST_S * SECOND - 1));
	assert_false(refused(g, "192.0.2.1", NOW + 2 * VNC_GUARD_FIRST_S * SECOND));
	wrong(g, "192.0.2.1", 100000, NOW);
	assert_true(refused(g, "192.0.2.1", NOW + VNC_GUARD_LONGEST_S * SECOND - 1));
	assert_false(refused(g, "192.0.2.1", NOW + VNC_GUARD_LONGEST_S * SECOND));
}

static void others_are_not_refused(void **state)
{
	struct vnc_guard *g = *state;

	wrong(g, "192.0.2.1", 20, NOW);
	assert_false(refused(g, "192.0.2.2", NOW));
	assert_false(refused(g, "::1", NOW));
}

static void an_ipv6_network_is_one_address(void **state)
{
	struct vnc_guard *g = *state;

	wrong(g, "2001:db8:1:2::1", 10, NOW);
	assert_true(refused(g, "2001:db8:1:2:ffff::7", NOW));
	assert_false(refused(g, "2001:db8:1:3::1", NOW));
}

static void an_ipv4_address_is_the_same_within_ipv6(void **state)
{
	struct vnc_guard *g = *state;

	wrong(g, "::ffff:192.0.2.1", 10, NOW);
	assert_true(refused(g, "192.0.2.1", NOW));
	assert_false(refused(g, "192.0.2.2", NOW));
}

static void the_right_one_makes_it_forgotten(void **state)
{
	struct vnc_guard *g = *state;
	const struct in6_addr a = from("192.0.2.1");

	wrong(g, "192.0.2.1", VNC_GUARD_FREE - 1, NOW);
	vnc_guard_right(g, &a);
	wrong(g, "192.0.2.1", VNC_GUARD_FREE - 1, NOW);
	assert_false(refused(g, "192.0.2.1", NOW));
}

static void a_long_time_makes_it_forgotten(void **state)
{
	struct vnc_guard *g = *state;
	const uint64_t later = NOW + (VNC_GUARD_LONGEST_S + VNC_GUARD_FORGET_S + 1) * SECOND;

	wrong(g, "192.0.2.1", 20, NOW);
	wrong(g, "192.0.2.1", 1, later);
	assert_false(refused(g, "192.0.2.1", later));
}

static void many_addresses_do_not_free_who_is_refused_longer(void **state)
{
	struct vnc_guard *g = *state;
	char text[INET_ADDRSTRLEN] = "";

	wrong(g, "192.0.2.1", 20, NOW);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "10.0.%u.%u", i / 250, i % 250);
		wrong(g, text, VNC_GUARD_FREE, NOW + i);
		assert_true(refused(g, text, NOW + i));
	}
	assert_true(refused(g, "192.0.2.1", NOW + 1000));
}

int main(void)
{
#define GUARD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		GUARD_TEST(a_few_wrong_ones_are_free),
		GUARD_TEST(each_further_one_doubles_the_pause_up_to_the_longest),
		GUARD_TEST(others_are_not_refused),
		GUARD_TEST(an_ipv6_network_is_one_address),
		GUARD_TEST(an_ipv4_address_is_the_same_within_ipv6),
		GUARD_TEST(the_right_one_makes_it_forgotten),
		GUARD_TEST(a_long_time_makes_it_forgotten),
		GUARD_TEST(many_addresses_do_not_free_who_is_refused_longer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
