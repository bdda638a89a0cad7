/* SPDX-License-Identifier: Apache-2.0 */
/* Between copy.c, copy_out.c and copy_temp.c. */
#pragma once
#include "host/agent_client.h"
#include "lib/err.h"

/* The code and the text of an ERROR frame, which says where it comes from. */
int copy_frame_error(const struct agent_received *f, struct err *err);

enum { COPY_REPLY_MS = 60000, COPY_TEMP_NAME = 18 };

/* Send {"op":OP,"path":PATH,"name":NAME FLAGS}; name may be NULL. */
int copy_request(struct agent_conn *c, const char *op, const char *path, const char *name, const char *flags,
		 struct agent_line *ret, struct err *err);

/* "a/b/c" is "a/b" and "c"; `dir` has PATH_MAX bytes. */
void copy_split(const char *path, char *dir, const char **ret_base);

/* Remove from the open directory `parent` what copies that were killed have left there. */
void copy_temp_sweep(int parent);

/* Make a directory in `parent`, whose path is `dir`, that no sweep removes while the descriptor returned is open.
 * Or -errno. The caller removes it in the end. */
int copy_temp_make(int parent, const char *dir, char name[COPY_TEMP_NAME], struct err *err);

/* The last component of a source, "." for what has none (".", "..", "/"): PATH_MAX bytes. */
void copy_source_name(const char *source, char *name);
