/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a directory, by getdents64(2). Unlike readdir(3) it takes no memory of its own: for code that runs when
 * there is none left, and for walks that hold many directories open at once.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { DENTS_BUF = 4096 };

/* One as the kernel writes it, getdents64(2). */
struct dents_entry {
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type; /* DT_DIR ... */
	char name[];
};

struct dents { /* begins as zeros, with the directory's descriptor at its beginning */
	size_t pos, len; /* in buf */
	char buf[DENTS_BUF] __attribute__((aligned(8)));
};

/* The next one, "." and ".." too. 1, *ret is good until the next call; 0: there are no more; or -errno. */
int dents_next(struct dents *d, int fd, const struct dents_entry **ret);
