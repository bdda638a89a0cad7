/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail of coffer-fetch: no new privileges, no capabilities, no core file; Landlock, where the kernel has it, leaves the
 * resolver's and TLS's files to read, and the cache of blobs; and a system call filter. The calls that a process which was taken over
 * would want (exec, ptrace, mount, ...) end it; what is merely not needed fails with EPERM.
 */
#pragma once
#include <stddef.h>

#include "lib/err.h"

/* cache_fd: the directory of blobs, or -1; ca_files: further files to read; each may be NULL. While the process has one thread. */
int jail_enter(int cache_fd, const char *const *ca_files, size_t n, struct err *err);
