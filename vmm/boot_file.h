/* SPDX-License-Identifier: Apache-2.0 */
/* Files that become guest memory: for the boot loaders of each architecture. */
#pragma once
#include <stdint.h>

#include "lib/err.h"
#include "vmm/memory.h"

/* The size of a regular, non-empty file; anything else is refused with a text that says what it is. */
int boot_file_size(int fd, const char *what, const char *name, uint64_t *ret, struct err *err);

/* Read [off, off + len) of the file to guest address gpa: 0, -ENODATA when the file ends early, or -errno. */
int boot_file_load(struct mem *m, int fd, uint64_t off, uint64_t gpa, uint64_t len);
