/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files and the directories that Coffer keeps things in. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/err.h"

/* Read a regular file of at most `max` bytes; a zero byte is put after the last one. *ret_data is to be freed. */
int file_read(const char *path, size_t max, uint8_t **ret_data, size_t *ret_size, struct err *err);

/* Put `size` bytes at `path` so that it has either the old contents or all of the new, also after a power cut
 * when `durable`. */
int file_write_atomic(const char *path, const void *data, size_t size, mode_t mode, bool durable, struct err *err);

/* mkdir -p; what exists already keeps its mode. */
int file_make_dirs(const char *path, mode_t mode, struct err *err);

/* $XDG_CACHE_HOME/coffer/SUB or ~/.cache/coffer/SUB, made when absent. */
int file_cache_dir(const char *sub, char *ret, size_t len, struct err *err);

/* $XDG_DATA_HOME/coffer/SUB, else /var/lib/coffer/SUB for root, else ~/.local/share/coffer/SUB; not made. */
int file_data_dir(const char *sub, char *ret, size_t len, struct err *err);

/* Remove `name` in the directory `at` and everything below it, never through a symbolic link and never across a mount point.
 * What does not exist is no error. 0 or the first -errno, after having tried everything. */
int file_remove_tree(int at, const char *name);
