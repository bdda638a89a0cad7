/* SPDX-License-Identifier: Apache-2.0 */
/* What every part of the agent uses: see agent.h. */
#include "guest/agent/agent.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

uint64_t agent_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void agent_say(const struct agent *a, const char *fmt, ...)
{
	char line[512];
	va_list ap;
	int n, m;

	if (a->console < 0)
		return;
	n = snprintf(line, sizeof(line), "coffer-agent: ");
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n += m < 0 ? 0 : m;
	if (n > (int)sizeof(line) - 2)
		n = (int)sizeof(line) - 2;
	line[n++] = '\n';
	if (write(a->console, line, (size_t)n) < 0)
		errno = 0; /* there is nowhere else to say it */
}
