/* SPDX-License-Identifier: Apache-2.0 */
/* The io_uring engine's insides, for its test: see block_uring.c. Others use block_io.h. */
#pragma once
#include <liburing.h>

#include "devices/backend/block_io.h"

struct block_uring {
	struct block_io io;
	struct io_uring ring;
	struct block_request *head, *tail; /* not in the submission ring yet */
};
