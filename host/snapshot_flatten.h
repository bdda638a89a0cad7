/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot and its parents made one, and the layers of each disk too. */
#pragma once
#include "host/progress.h"
#include "host/restore.h"
#include "lib/err.h"

/* Into `to` (NULL: in the place of the snapshot itself), memory at that level of zstd (0: not compressed). Same
 * contents, same id. */
int snapshot_flatten(const struct restore_source *src, const char *to, uint64_t level, struct progress *progress,
		     struct err *err);
