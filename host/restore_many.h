/* SPDX-License-Identifier: Apache-2.0 */
/* All steps of a restore (restore.h), for one VM or for many at a time; shells come from a pool where one runs. */
#pragma once
#include "host/restore.h"

/* launch_init has been done. On failure the caller ends it. */
int restore_one(struct launch *l, const struct restore_source *src, const struct restore_options *o,
		const struct guardian *g, int signal_fd, struct err *err);

/* n VMs named PREFIX1, PREFIX2, ... (NULL: random names), all or none: on failure everything is ended. `guard` gets
 * every monitor. */
int restore_many(struct launch *l, size_t n, const struct restore_source *src, const struct restore_options *o,
		 const char *prefix,
		 const struct guardian *g, int signal_fd, struct err *err);
