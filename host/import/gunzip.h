/* SPDX-License-Identifier: Apache-2.0 */
/* gzip by zlib itself, since libarchive does not compare the checksums in it. Members one after another are one stream. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <zlib.h>

#include "lib/err.h"

struct gunzip {
	z_stream z;
	bool open, between; /* between: a member has ended and no other begun */
	/* Give more of the input: its length, 0 at the end, or -errno with a text. */
	ssize_t (*more)(void *ctx, const void **ret, struct err *err);
	void *ctx;
};

int gunzip_open(struct gunzip *g, ssize_t (*more)(void *ctx, const void **ret, struct err *err), void *ctx, struct err *err);
/* Up to n bytes: how many, 0 at the end, or -errno with a text. */
ssize_t gunzip_read(struct gunzip *g, void *buf, size_t n, struct err *err);
void gunzip_close(struct gunzip *g); /* zeroed ones too */
