/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed layer as a remote blob, in the user's cache: part of it, or whole and verified. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "devices/backend/lsmt.h"
#include "host/blob_cache.h"
#include "host/sha256.h"
#include "host/snapshot_manifest.h"
#include "lib/fd.h"

#define REMOTE_BLOB_URL "http://127.0.0.1:9/v2/base/blobs/sha256:x"

/* An empty layer of `size` bytes. *ret is to be finished. */
static inline void remote_blob_make(uint64_t size, bool whole, struct snapshot_layer *ret)
{
	int fd = memfd_create("layer", MFD_CLOEXEC), log = memfd_create("log", MFD_CLOEXEC);
	struct lsmt_info info;
	struct blob_cache cache;
	struct sha256_ctx hash;
	struct blob blob;

	assert_int_equal(lsmt_create(fd, log, size, NULL, NULL, NULL), 0);
	assert_int_equal(lsmt_seal_pair(fd, log, "it", NULL), 0);
	assert_int_equal(lsmt_inspect(fd, "it", &info, NULL), 0);
	uint8_t *data = malloc(info.file_size);

	assert_int_equal(fd_pread_full(fd, data, info.file_size, 0), info.file_size);
	*ret = (struct snapshot_layer){ .file = strdup(""), .url = strdup(REMOTE_BLOB_URL), .size = info.file_size };
	sha256_init(&hash);
	sha256_update(&hash, info.file_size, data);
	sha256_end_hex(&hash, ret->sha256);
	assert_int_equal(blob_cache_open(&cache, NULL), 0);
	assert_int_equal(blob_cache_get(&cache, ret->sha256, ret->size, &blob, NULL), 0);
	for (uint32_t i = 0; i < (whole ? blob.nchunks : 0); i++)
		assert_int_equal(blob_fill(&blob, i, data + ((size_t)i << blob.shift)), 0);
	if (whole) {
		assert_int_equal(blob_sync(&blob), 0);
		blob_set_verified(&blob);
	}
	blob_close(&blob);
	blob_cache_close(&cache);
	free(data);
	close(fd);
	close(log);
}
