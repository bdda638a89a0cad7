/* SPDX-License-Identifier: Apache-2.0 */
/* Logging: see log.h. */
#include "lib/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/text.h"
#include "lib/util.h"

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static void write_line(const struct log *l, enum log_level level, const char *fmt, va_list ap)
{
	char line[LOG_LINE_MAX], text[LOG_LINE_MAX];
	int n = snprintf(line, sizeof(line), "%s: %s%s", l->prefix ? l->prefix : "coffer",
			 level == LOG_ERROR ? "" : level_names[level], level == LOG_ERROR ? "" : ": ");
	size_t at = (size_t)MIN(n, (int)sizeof(line) / 2);

	vsnprintf(text, sizeof(text), fmt, ap);
	size_t end = at + text_escape(text, strlen(text), "", line + at, sizeof(line) - at - 1);

	line[end++] = '\n';
	/* A log that cannot be written has nowhere to say so. */
	ssize_t ignored = write(l->fd, line, end);
	(void)ignored;
}

void log_line(const struct log *l, enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!l || l->fd < 0 || level > l->level)
		return;
	va_start(ap, fmt);
	write_line(l, level, fmt, ap);
	va_end(ap);
}

void log_limited(const struct log *l, struct log_limit *limit, enum log_level level, const char *fmt, ...)
{
	struct timespec ts;
	va_list ap;

	if (!l || l->fd < 0 || level > l->level)
		return;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	uint64_t now = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;

	if (now - atomic_load(&limit->window_start_ms) >= LOG_INTERVAL_MS) {
		uint32_t dropped = atomic_exchange(&limit->dropped, 0);

		atomic_store(&limit->window_start_ms, now);
		atomic_store(&limit->count, 0);
		if (dropped)
			log_line(l, level, "%u similar messages dropped", dropped);
	}
	if (atomic_fetch_add(&limit->count, 1) >= LOG_BURST) {
		atomic_fetch_add(&limit->dropped, 1);
		return;
	}
	va_start(ap, fmt);
	write_line(l, level, fmt, ap);
	va_end(ap);
}

int log_level_parse(const char *s, enum log_level *ret_level)
{
	for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
		if (!strcmp(s, level_names[i])) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	return -EINVAL;
}
