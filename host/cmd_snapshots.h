/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `coffer snapshot` share. */
#pragma once
#include <stdint.h>

#include "lib/err.h"

/* When argv[1] is one of the subcommands (ls, show, verify, flatten, rm): does it, sets *ret_status and returns 1. */
int cmd_snapshots(int argc, char **argv, int *ret_status);

/* --compress: a level of zstd, 0 for none. */
int snapshot_level_parse(const char *text, uint64_t *ret, struct err *err);
