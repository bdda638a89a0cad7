/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header, trailer and checksums of ZFiles: see zfile_format.h.
 *
 * Early writers did not clear the block they built a header in, so unused fields, and the flags above the ones they
 * knew, hold what was on their stack. A flag beyond the known ones gives such a writer away: of its flags only the
 * three that it set are believed. A digest, which came later, it cannot have written.
 */
#include "devices/backend/zfile_format.h"

#include <errno.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

static const uint8_t magic[24] = "ZFile\0\1\0tuji.yyf@Alibaba";

/* Places in a header or trailer. */
enum {
	AT_SIZE = 24, AT_DIGEST = 28, AT_FLAGS = 32, AT_INDEX_OFFSET = 40, AT_BLOCKS = 48, AT_CONTENT = 56,
	AT_INDEX_CRC = 64, AT_BLOCK_SIZE = 72, AT_ALGO = 76, AT_LEVEL = 77, AT_USE_DICT = 78, AT_DICT_SIZE = 84,
	AT_VERIFY = 88, HEAD_BYTES = 96,
};

/* One bit at a time would do; four are not slow enough to matter where there is no instruction for it. */
uint32_t zfile_crc_portable(uint32_t crc, const void *buf, size_t n)
{
	const uint8_t *p = buf;
	static const uint32_t table[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	};

	while (n--) {
		crc ^= *p++;
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return crc;
}

#ifdef __x86_64__
/*
 * The instruction gives a result every three cycles, but can be started every cycle: three lanes of LANE bytes are taken at a
 * time, the latter two from 0. To put them together, the register of a lane is moved over the lanes behind it, that is
 * multiplied by x^(8 * bytes). A carry-less multiplication of two reflected words is one place off, and reducing its
 * result by the instruction itself multiplies by x^32: so the factor is x^(8 * bytes - 33) mod P.
 */
enum { LANE = 256 };
#define OVER_ONE 0xb9e02b86
#define OVER_TWO 0xdd7e3b0c

__attribute__((target("sse4.2,pclmul"))) static uint64_t crc_move(uint64_t crc, uint32_t factor)
{
	__m128i v = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi32_si128((int)factor), 0);

	return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(v));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc_x86(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t a = crc;

	for (; n >= 3 * LANE; n -= 3 * LANE, p += 3 * LANE) {
		uint64_t b = 0, c = 0;

		for (size_t i = 0; i < LANE; i += 8) {
			a = _mm_crc32_u64(a, le64_load(p + i));
			b = _mm_crc32_u64(b, le64_load(p + LANE + i));
			c = _mm_crc32_u64(c, le64_load(p + 2 * LANE + i));
		}
		a = crc_move(a, OVER_TWO) ^ crc_move(b, OVER_ONE) ^ c;
	}
	for (; n >= 8; n -= 8, p += 8)
		a = _mm_crc32_u64(a, le64_load(p));
	crc = (uint32_t)a;
	while (n--)
		crc = _mm_crc32_u8(crc, *p++);
	return crc;
}
#endif

uint32_t zfile_crc(uint32_t seed, const void *buf, size_t n)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
		return crc_x86(seed, buf, n);
#endif
	return zfile_crc_portable(seed, buf, n);
}

/* Over all of the block, the digest itself as zeros. */
static uint32_t digest(const uint8_t p[ZFILE_SPACE])
{
	static const uint8_t zeros[4];
	uint32_t crc = zfile_crc(0, p, AT_DIGEST);

	crc = zfile_crc(crc, zeros, sizeof(zeros));
	return zfile_crc(crc, p + AT_FLAGS, ZFILE_SPACE - AT_FLAGS);
}

void zfile_head_encode(const struct zfile_head *h, uint8_t ret[ZFILE_SPACE])
{
	memset(ret, 0, ZFILE_SPACE);
	memcpy(ret, magic, sizeof(magic));
	le32_store(ret + AT_SIZE, HEAD_BYTES);
	le64_store(ret + AT_FLAGS, h->flags);
	le64_store(ret + AT_INDEX_OFFSET, h->index_offset);
	le64_store(ret + AT_BLOCKS, h->blocks);
	le64_store(ret + AT_CONTENT, h->size);
	le32_store(ret + AT_INDEX_CRC, h->index_crc);
	le32_store(ret + AT_BLOCK_SIZE, h->block_size);
	ret[AT_ALGO] = h->algo;
	ret[AT_LEVEL] = h->level;
	ret[AT_USE_DICT] = h->use_dict;
	le32_store(ret + AT_DICT_SIZE, h->dict_size);
	ret[AT_VERIFY] = h->verify;
	if (h->flags & ZFILE_FLAG_DIGEST)
		le32_store(ret + AT_DIGEST, digest(ret));
}

bool zfile_is_head(const uint8_t p[ZFILE_SPACE])
{
	return memcmp(p, magic, sizeof(magic)) == 0;
}

int zfile_head_decode(const uint8_t p[ZFILE_SPACE], const char *name, const char *what, struct zfile_head *ret,
		      struct err *err)
{
	uint32_t size = le32_load(p + AT_SIZE);
	uint64_t flags = le64_load(p + AT_FLAGS);

	if (!zfile_is_head(p))
		return err_set(err, -EINVAL, "%s: its %s does not begin like a ZFile's", name, what);
	if (size != HEAD_BYTES)
		return err_set(err, -EINVAL, "%s: its %s is said to have %u bytes instead of %d", name, what, size,
			       HEAD_BYTES);
	if (flags & ~(uint64_t)ZFILE_FLAGS)
		flags &= ZFILE_FLAG_HEADER | ZFILE_FLAG_DATA | ZFILE_FLAG_SEALED;
	if (flags & ZFILE_FLAG_DIGEST && le32_load(p + AT_DIGEST) != digest(p))
		return err_set(err, -EBADMSG, "%s: its %s is damaged: the checksum is wrong", name, what);
	*ret = (struct zfile_head){
		.flags = flags,
		.index_offset = le64_load(p + AT_INDEX_OFFSET),
		.blocks = le64_load(p + AT_BLOCKS),
		.size = le64_load(p + AT_CONTENT),
		.index_crc = le32_load(p + AT_INDEX_CRC),
		.block_size = le32_load(p + AT_BLOCK_SIZE),
		.dict_size = le32_load(p + AT_DICT_SIZE),
		.algo = p[AT_ALGO],
		.level = p[AT_LEVEL],
		.use_dict = p[AT_USE_DICT],
		.verify = p[AT_VERIFY],
	};
	return 0;
}
