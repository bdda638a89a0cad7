/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZFiles from a hostile side.
 *
 * Input: what (1 byte), then the file. Bit 0 of what: the file is as it stands. Else it is made here, or no input
 * would pass magic numbers and checksums: header's flags (1), trailer's flags (1), algorithm (1), block size as a power of
 * two (1), flag for checksums (1), flag for a dictionary (1), its size (1), content size (8), number of blocks
 * (8), what is added to the index's place (1); then blocks, each a length (2) and so many bytes. Bit 1: number of
 * blocks and content size are pulled to what fits the blocks. Bit 2: checksums of blocks are wrong. Bit 3: unwrapped as a tar
 * first.
 *
 * What opens must be sound: each block lies inside the source, and all ways to read a range agree: the same bytes, or
 * an error.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "devices/backend/zfile_format.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { MADE_BLOCKS = 64, READ_BLOCKS = 16 };
enum { RAW = 1, PULL = 2, WRONG = 4, UNWRAP = 8 };

struct file {
	uint8_t *p;
	size_t n;
};

static ssize_t read_file(void *ctx, void *buf, size_t n, uint64_t off)
{
	const struct file *f = ctx;

	if (off >= f->n)
		return 0;
	n = MIN(n, f->n - off);
	memcpy(buf, f->p + off, n);
	return (ssize_t)n;
}

static void add(struct file *f, const void *p, size_t n)
{
	f->p = realloc(f->p, f->n + n + 1);
	FUZZ_REQUIRE(f->p);
	memcpy(f->p + f->n, p, n);
	f->n += n;
}

static void add_head(struct file *f, struct zfile_head h, uint64_t flags)
{
	uint8_t p[ZFILE_SPACE];

	h.flags = flags;
	zfile_head_encode(&h, p);
	add(f, p, sizeof(p));
}

static void make_file(struct fuzz_input *in, uint8_t what, struct file *f)
{
	uint8_t index[MADE_BLOCKS * 4], space[ZFILE_SPACE] = { 0 }, head_flags = fuzz_u8(in), tail_flags = fuzz_u8(in);
	struct zfile_head h = { .algo = fuzz_u8(in) };
	uint64_t n = 0;

	h.block_size = 1u << (fuzz_u8(in) & 31);
	h.verify = fuzz_u8(in);
	h.use_dict = fuzz_u8(in);
	h.dict_size = fuzz_u8(in);
	h.size = fuzz_u64(in);
	h.blocks = fuzz_u64(in);
	h.index_offset = (uint64_t)(int64_t)(int8_t)fuzz_u8(in);
	add(f, space, sizeof(space));
	for (; n < MADE_BLOCKS && in->left > 2; n++) {
		size_t length = fuzz_u16(in);
		uint32_t crc = 0;

		length = MIN(length, in->left);
		add(f, in->p, length);
		if (h.verify) {
			crc = zfile_crc(ZFILE_CRC_SEED_BLOCK, in->p, length);
			le32_store(space, crc + !!(what & WRONG));
			add(f, space, ZFILE_CRC_BYTES);
		}
		in->p += length;
		in->left -= length;
		le32_store(index + 4 * n, (uint32_t)length + (h.verify ? ZFILE_CRC_BYTES : 0));
	}
	h.index_offset += f->n;
	h.index_crc = zfile_crc(0, index, 4 * n);
	if (what & PULL) {
		h.blocks = n;
		h.size = n * h.block_size - (n ? h.size % h.block_size : 0);
	}
	add(f, index, 4 * n);
	add_head(f, h, tail_flags);
	zfile_head_encode(&(struct zfile_head){ .flags = head_flags, .index_offset = h.index_offset, .blocks = h.blocks,
						 .size = h.size, .index_crc = h.index_crc, .block_size = h.block_size,
						 .algo = h.algo, .verify = h.verify }, f->p);
}

static void read_all(const struct zfile *z, const struct zfile_source *src, const struct file *f)
{
	const struct zfile_info *i = zfile_info(z);
	struct zfile_ctx *x = zfile_ctx_create();
	uint8_t *part = malloc(i->block_size);
	struct zfile_range r;

	FUZZ_REQUIRE(x && part);
	FUZZ_REQUIRE(i->blocks > 0 && i->size > 0 && (i->size + i->block_size - 1) / i->block_size == i->blocks);
	FUZZ_REQUIRE(zfile_locate(z, 0, i->size, &r) == 0);
	FUZZ_REQUIRE(r.off == src->start + ZFILE_SPACE && r.off + r.len <= f->n);
	for (uint64_t b = 0; b < i->blocks && b < READ_BLOCKS; b++) {
		uint64_t off = b * i->block_size;
		size_t n = MIN((uint64_t)i->block_size, i->size - off), from = n / 3;
		uint8_t *stored, *out = malloc(n), *whole = malloc(n); /* exactly: sanitizers watch the ends */
		ssize_t a, c, d;

		FUZZ_REQUIRE(zfile_locate(z, off, n, &r) == 0 && r.len <= i->stored_max && r.off + r.len <= f->n);
		stored = malloc(r.len);
		FUZZ_REQUIRE(stored && out && whole);
		memcpy(stored, f->p + r.off, r.len);
		a = zfile_decode(z, x, b, stored, r.len, out);
		FUZZ_REQUIRE(a == (ssize_t)n || a == -EBADMSG);
		c = zfile_pread(z, x, whole, n, off);
		FUZZ_REQUIRE(c == a);
		d = zfile_pread(z, x, part, n - from, off + from);
		FUZZ_REQUIRE((d == (ssize_t)(n - from)) == (a > 0));
		if (a > 0)
			FUZZ_REQUIRE(memcmp(out, whole, n) == 0 && memcmp(out + from, part, n - from) == 0);
		free(stored);
		free(out);
		free(whole);
	}
	free(part);
	zfile_ctx_destroy(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint8_t what = fuzz_u8(&in);
	struct file f = { NULL, 0 };
	struct zfile_source src = { .read_at = read_file, .ctx = &f };
	struct err err = ERR_INIT;
	struct zfile *z = NULL;
	int r = 0;

	if (what & RAW)
		add(&f, in.p, in.left);
	else
		make_file(&in, what, &f);
	src.size = f.n;
	if (what & UNWRAP)
		r = zfile_unwrap(&src, "layer", &err);
	FUZZ_REQUIRE(src.start <= f.n && src.size <= f.n - src.start);
	if (r == 0) {
		int probed = zfile_probe(&src);

		r = zfile_open(&src, "layer", &z, &err);
		FUZZ_REQUIRE(r < 0 || probed == 1);
	}
	FUZZ_REQUIRE(r == 0 || (err.code == r && err.text[0]));
	if (r == 0)
		read_all(z, &src, &f);
	zfile_close(z);
	free(f.p);
	return 0;
}
