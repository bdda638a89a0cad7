/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernel a VM boots: the one asked for, else the small one when it has been built (`make guest-kernel`), else
 * Debian's newest cloud kernel, else its newest full one. With a display only those that can draw: the small one if its
 * configuration says so, else the full one, since the cloud kernel has no DRM.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "lib/err.h"

/* given: --kernel's value or NULL, which is taken as it is. Writes an absolute path; 0, or -ENOENT with a text that says what to install. */
int kernel_choose(const char *given, bool display, char *out, size_t len, struct err *err);

/* A file that `option` ("--kernel", "--initrd") names: writes its absolute path, or says what is wrong with it and that it
 * should be `wanted`. What is in it the monitor judges. 0 or -errno. */
int kernel_resolve(const char *option, const char *given, const char *wanted, char *out, size_t len, struct err *err);

/* The newest of the files in `dir` whose names match `pattern` (fnmatch) and not `except` (may be NULL), by version.
 * 0 or -ENOENT. */
int kernel_newest(const char *dir, const char *pattern, const char *except, char *out, size_t len);
