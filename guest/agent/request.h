/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The request line: one JSON object, checked as a whole before anything is done (docs/agent-protocol.md).
 *
 * One table says which fields there are, their type and range, and which operations take them; an unknown field, one that
 * the operation does not take and one that is given twice are errors. Strings point into the text, which is decoded in place.
 *
 * Trust: hostile. Every number is in the table's range afterwards, every list within its limit, every string of
 * the kind its operation needs (absolute path, host name, hexadecimal digits).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/proto.h"
#include "lib/err.h"

enum request_op {
	REQUEST_PING,
	REQUEST_CONFIGURE,
	REQUEST_EXEC,
	REQUEST_ATTACH,
	REQUEST_PS,
	REQUEST_KILL,
	REQUEST_STAT,
	REQUEST_PUT,
	REQUEST_GET,
	REQUEST_SYNC,
	REQUEST_FREEZE,
	REQUEST_THAW,
	REQUEST_SESSION,
	REQUEST_POWEROFF,
	REQUEST_REBOOT,
};

enum { REQUEST_ENTROPY_MIN = 16, REQUEST_ENTROPY_MAX = 512, REQUEST_HOSTNAME_MAX = 64, REQUEST_COUNTER_KHZ_MAX = 100000000 };

struct request {
	enum request_op op;

	/* NULL when absent */
	const char *path, *name, *cwd, *user, *owner, *hostname, *machine_id;
	const char *argv[AGENT_ARGV_MAX + 1];
	size_t argc;
	const char *env[AGENT_ENV_MAX + 1];
	size_t nenv;
	bool has_env;
	uint8_t entropy[REQUEST_ENTROPY_MAX];
	size_t nentropy;
	bool has_clock, has_counter;
	int64_t clock_ns, counter, counter_khz;

	/* with their defaults when absent */
	bool tty, stdin_open, detach, attach, mkdir, keep_owner, follow, anonymous;
	int64_t rows, cols, timeout_ms, grace_ms, id, signal, resume, received;
};

/* 0, or -errno (-EINVAL: malformed, -EOPNOTSUPP: unknown operation or field, -E2BIG: beyond a limit). The result
 * points into `text`. */
int request_parse(struct request *r, char *text, size_t len, struct err *err);

const char *request_op_name(enum request_op op);
