/* SPDX-License-Identifier: Apache-2.0 */
/* What a pool is asked with: the manifest, not only its id. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/pool.h"

static char same_text[] = "root=/dev/vda", other_text[] = "root=/dev/vdb";

static struct pool_request request_of(char *cmdline)
{
	struct snapshot s = SNAPSHOT_NONE;
	struct pool_request q;

	snprintf(s.m.id, sizeof(s.m.id), "0123456789abcdef0123456789abcdef");
	s.m.cmdline = cmdline;
	assert_int_equal(pool_request_make(&s, &q), 0);
	return q;
}

static bool asked(const void *q, size_t n)
{
	struct pool_request own = request_of(same_text);
	int s[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s), 0);
	if (n)
		assert_int_equal(send(s[0], q, n, 0), n);
	close(s[0]);
	bool r = pool_request_receive(s[1], &own);

	close(s[1]);
	return r;
}

static void the_same_manifest_is_served(void **state)
{
	struct pool_request q = request_of(same_text);

	(void)state;
	assert_true(asked(&q, sizeof(q)));
}

static void another_manifest_with_the_same_id_is_not(void **state)
{
	struct pool_request q = request_of(other_text);

	(void)state;
	assert_false(asked(&q, sizeof(q)));
}

static void a_short_request_or_none_is_refused(void **state)
{
	struct pool_request q = request_of(same_text);

	(void)state;
	assert_false(asked(&q, sizeof(q) - 1));
	assert_false(asked(&q, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_same_manifest_is_served),
		cmocka_unit_test(another_manifest_with_the_same_id_is_not),
		cmocka_unit_test(a_short_request_or_none_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
