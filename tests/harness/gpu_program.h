/* SPDX-License-Identifier: Apache-2.0 */
/* The real coffer-gpu, started by a test. */
#pragma once
#include <sys/types.h>

/* $B/coffer-gpu with the other end of *ret_sock, which the caller owns, as its stdin. Its process, to be waited for; a failure is the
 * test's. */
pid_t gpu_program_start(int *ret_sock);
