/* SPDX-License-Identifier: Apache-2.0 */
/* A disk taken apart into layers: see stack.h. */
#include "tests/harness/stack.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "host/pack_layer.h"
#include "lib/fd.h"

enum { BLOCK = 4096 };

/* What layer k has of a block: 0 nothing, 1 what is right, 2 what a later one replaces. */
static int what_of(uint64_t block, unsigned k, unsigned n)
{
	uint64_t h = (block + 1) * 0x9e3779b97f4a7c15u >> 20;
	unsigned last = (unsigned)(h % n);

	if (block == 0 || k == last)
		return 1;
	return k < last && (h / n + k) % 8 == 0 ? 2 : 0;
}

static int fill(const uint8_t *disk, uint64_t size, unsigned k, unsigned n, int raw)
{
	static const uint8_t zeros[BLOCK];
	uint8_t old[BLOCK];
	int r = ftruncate(raw, (off_t)size) < 0 ? -errno : 0;

	memset(old, (int)(0x80 | k), sizeof(old));
	for (uint64_t at = 0; at < size && r == 0; at += BLOCK) {
		int what = what_of(at / BLOCK, k, n);

		if (what && memcmp(disk + at, zeros, BLOCK) != 0)
			r = fd_pwrite_full(raw, what == 1 ? disk + at : old, BLOCK, (off_t)at);
	}
	return r;
}

int stack_make_layer(const uint8_t *disk, uint64_t size, unsigned k, unsigned n, int out, struct image_layer *ret,
		     struct err *err)
{
	const struct zfile_options z = { .algo = k % 3 == 0 ? ZFILE_ZSTD : ZFILE_LZ4, .threads = 1 };
	const char *name = "layer";
	_cleanup_close_ int raw = memfd_create("raw", MFD_CLOEXEC), plain = memfd_create("plain", MFD_CLOEXEC);
	int r = raw < 0 || plain < 0 ? -errno : fill(disk, size, k, n, raw);

	if (r < 0)
		return err_errno(err, r, "layer %u", k);
	r = lsmt_pack_raw(raw, size, plain, NULL, err);
	return r < 0 ? r : pack_layer_file(&plain, &name, 1, k % 3 == 2 ? NULL : &z, out, NULL, NULL, ret, err);
}
