/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a guest's console goes and comes from: a pair of log files, or standard output and input, or nowhere.
 *
 * Bounded both ways. Output waits in a ring that the main loop empties; when it is full the oldest bytes go, and
 * their number is written in their place: a reader that never reads stalls nobody. Input is read only while there is
 * room for it: a writer that floods finds its pipe full.
 *
 * The log is FILE up to `limit` bytes; then its contents move to FILE.1 (whose own are dropped) and it starts anew. Both
 * are opened by console_open, nothing is opened later.
 *
 * Threads: console_write and console_read from any thread; the rest from main. The mutex comes after
 * the device's lock.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "lib/loop.h"

enum {
	CONSOLE_RING = 64 << 10,
	CONSOLE_INPUT = 4 << 10,
	CONSOLE_CHUNK = 4 << 10,
};
#define CONSOLE_LIMIT_MIN (64ull << 10)
#define CONSOLE_LIMIT_MAX (1ull << 30)
#define CONSOLE_LIMIT_DEFAULT (1ull << 20)

struct console;
typedef void console_input_fn(struct console *c); /* main thread, without locks: there is input to read */

enum console_sink { CONSOLE_NONE, CONSOLE_LOG, CONSOLE_STDIO };

struct console {
	enum console_sink sink;
	struct loop *loop;
	console_input_fn *on_input; /* NULL: input is not read */
	pthread_mutex_t lock;       /* guards everything down to the blank line */
	uint8_t ring[CONSOLE_RING];
	uint32_t ring_at, ring_len;
	uint64_t lost;              /* bytes since the last that went out */
	uint8_t input[CONSOLE_INPUT];
	uint32_t input_at, input_len;
	bool kicked;                /* kick_fd is written, main has not come yet */
	bool input_full;            /* main waits for room */

	/* main only */
	int kick_fd;
	struct loop_fd kick, in, out;
	int log_fd, old_fd;
	uint64_t log_len, log_limit;
	int in_fd, out_fd;
	bool out_owned;             /* out_fd is a description of our own */
	bool out_socket, out_careful;
	uint8_t chunk[CONSOLE_CHUNK]; /* on its way out */
	uint32_t chunk_at, chunk_len;
};

/* log: FILE or NULL; limit 0: the default. -EINVAL when both log and stdio are asked for. */
int console_open(struct console *c, struct loop *loop, const char *log, uint64_t limit, bool use_stdio,
		 console_input_fn *on_input, struct err *err);
/* Write out what is left (waiting for a slow reader a moment only) and close. Accepts a zeroed one. */
void console_close(struct console *c);

void console_write(struct console *c, const void *buf, size_t n);
size_t console_read(struct console *c, void *buf, size_t n); /* bytes there were */
