/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging for programs (callers log; library code returns). One line per message to one descriptor,
 * written by a single write(2) so that lines from several threads do not mix.
 *
 * A `struct log` is owned by the program and passed where it is needed. What a guest can provoke is
 * logged through a `struct log_limit`, one per device: at most LOG_BURST lines per LOG_INTERVAL_MS,
 * then one line that says how many were dropped.
 */
#pragma once
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum { LOG_BURST = 10, LOG_INTERVAL_MS = 5000, LOG_LINE_MAX = 1024 };

struct log {
	int fd;               /* borrowed; -1 drops everything */
	enum log_level level; /* messages above it are dropped */
	const char *prefix;   /* e.g. "coffer-vmm"; static storage */
};

struct log_limit {
	_Atomic uint64_t window_start_ms;
	_Atomic uint32_t count;
	_Atomic uint32_t dropped;
};

void log_line(const struct log *l, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void log_limited(const struct log *l, struct log_limit *limit, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* "error", "warn", "info", "debug" -> level; -EINVAL otherwise. */
int log_level_parse(const char *s, enum log_level *ret_level);
