/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of a process that only computes: it has its descriptors from the start, and needs no more than to read, write and allocate.
 * Programs that need more have jails of their own, of the same parts: privileges.h, syscall_filter.h.
 */
#pragma once
#include <stddef.h>
#include <sys/resource.h>

#include "lib/err.h"

/* No privileges, no more than `memory` bytes of data, and no system calls but these and what gets memory, none of it executable; any
 * other ends the process. Built with a sanitizer, what that needs is allowed, too, and memory is not bounded: shadow memory is larger. 0 or
 * -errno with a text. */
int confine(rlim_t memory, const int *calls, size_t n, struct err *err);
