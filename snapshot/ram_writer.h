/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of ram.h over any source of pages: guest memory, or another snapshot (flatten). */
#pragma once
#include "snapshot/ram.h"

/* Put the pages of `mask` at their places in the chunk-sized buffer; others may stay as they are. 0 or -errno;
 * `thread` is the worker's number. */
typedef int ram_fetch_fn(void *arg, unsigned thread, uint64_t chunk, uint16_t mask, uint8_t *buf);

/* c->mem is not used. Frees nothing of the caller's. */
int ram_writer_new_from(const struct ram_writer_config *c, uint64_t size, ram_fetch_fn *fetch, void *arg,
			struct ram_writer **ret, struct err *err);
