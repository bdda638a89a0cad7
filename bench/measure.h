/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks share: clocks, medians, new files. */
#pragma once
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/loop.h"

static inline int measure_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts v. */
static inline double measure_median(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(v[0]), measure_by_value);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static inline double measure_ms_since(uint64_t start_ns)
{
	return (double)(loop_now_ns() - start_ns) / 1e6;
}

/* A new file in `work` in the place of one of that name. */
static inline int measure_new_file(const char *work, const char *name)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", work, name);
	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}
