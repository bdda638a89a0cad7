/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: form, level, and the limit on what a guest can provoke. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/log.h"

static size_t slurp(int fd, char *buf, size_t len)
{
	ssize_t n = read(fd, buf, len - 1);

	if (n < 0)
		n = 0;
	buf[n] = 0;
	return (size_t)n;
}

static void lines_carry_prefix_and_level(void **s)
{
	(void)s;
	char buf[4096];
	int p[2];

	assert_int_equal(pipe(p), 0);
	struct log l = { .fd = p[1], .level = LOG_INFO, .prefix = "x" };

	log_line(&l, LOG_ERROR, "broken: %d", 7);
	log_line(&l, LOG_WARN, "a\nb");
	log_line(&l, LOG_DEBUG, "not shown");
	slurp(p[0], buf, sizeof(buf));
	assert_string_equal(buf, "x: broken: 7\nx: warn: a\\x0ab\n");
	close(p[0]);
	close(p[1]);
}

static void over_long_line_is_cut_and_ends(void **s)
{
	(void)s;
	char big[3 * LOG_LINE_MAX], buf[4 * LOG_LINE_MAX];
	int p[2];

	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	assert_int_equal(pipe(p), 0);
	struct log l = { .fd = p[1], .level = LOG_INFO, .prefix = "x" };

	log_line(&l, LOG_ERROR, "%s", big);
	size_t n = slurp(p[0], buf, sizeof(buf));
	assert_true(n <= LOG_LINE_MAX);
	assert_int_equal(buf[n - 1], '\n');
	close(p[0]);
	close(p[1]);
}

static void a_flood_is_limited(void **s)
{
	(void)s;
	char buf[65536];
	struct log_limit limit = { 0 };
	int p[2], lines = 0;

	assert_int_equal(pipe(p), 0);
	struct log l = { .fd = p[1], .level = LOG_INFO, .prefix = "x" };

	for (int i = 0; i < 500; i++)
		log_limited(&l, &limit, LOG_WARN, "bad descriptor");
	slurp(p[0], buf, sizeof(buf));
	for (char *c = buf; *c; c++)
		lines += *c == '\n';
	/* Twice the burst when the clock crosses an interval in between. */
	assert_in_range(lines, LOG_BURST, 2 * LOG_BURST + 1);
	close(p[0]);
	close(p[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_carry_prefix_and_level),
		cmocka_unit_test(over_long_line_is_cut_and_ends),
		cmocka_unit_test(a_flood_is_limited),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
