/* SPDX-License-Identifier: Apache-2.0 */
/* Between copy.c and copy_out.c. */
#pragma once
#include "host/agent_client.h"
#include "lib/err.h"

enum { COPY_REPLY_MS = 60000 };

/* Send {"op":OP,"path":PATH,"name":NAME FLAGS}; name may be NULL. */
int copy_request(struct agent_conn *c, const char *op, const char *path, const char *name, const char *flags,
		 struct agent_line *ret, struct err *err);

/* "a/b/c" is "a/b" and "c"; `dir` has PATH_MAX bytes. */
void copy_split(const char *path, char *dir, const char **ret_base);

/* The last component of a source, "." for what has none (".", "..", "/"): PATH_MAX bytes. */
void copy_source_name(const char *source, char *name);
