/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "null" backend: every read gives zeros, everything written is forgotten. For benchmarks, and for tests, which
 * can make it hold requests back and fail them.
 */
#pragma once
#include "devices/backend/block.h"

struct block_null {
	struct block b;
	int zero_fd; /* an empty file of the disk's size: the kernel puts the zeros into guest memory */
	struct block_request *head, *tail;
	/* For tests. */
	bool hold;       /* kick finishes nothing; complete and drain do */
	int fail;        /* negative errno for every request from now on, 0: none */
	uint32_t served[5]; /* by enum block_op */
	uint32_t durable;   /* writes that had to be durable */
	uint64_t last_offset, last_len;
	uint32_t last_flags;
};
