/* SPDX-License-Identifier: Apache-2.0 */
/* Images as files of other formats. */
#pragma once
#include <limits.h>
#include <stdbool.h>

#include "host/image.h"
#include "host/progress.h"
#include "lib/err.h"

/* Write the image to `path`, which must not exist ("-": to the descriptor `out`, which may be a pipe). */
struct image_export_format {
	const char *name;
	const char *about; /* for --help */
	bool to_pipe;
	int (*run)(const struct image *image, const char *path, int out, struct progress *p, struct err *err);
};

/* A format is one line in image_export.c. NULL-terminated by name. */
extern const struct image_export_format image_export_formats[];

/* The raw disk: a sparse file when `out` is one, all bytes to a pipe. */
int image_export_raw(const struct image *image, int out, struct progress *p, struct err *err);

/* An OCI image layout in the new directory `path`. */
int image_export_oci(const struct image *image, const char *path, int out, struct progress *p, struct err *err);

/* A name beside `path` to write at, for what cannot be written without one. Whoever uses it holds a lock (flock) on it. */
int image_export_temp(const char *path, char ret[PATH_MAX], struct err *err);
/* Remove such of exports to `path` that were killed. */
void image_export_clean(const char *path);
/* What was written at `temp` gets its name, never over something else. */
int image_export_put(const char *temp, const char *path, struct err *err);
