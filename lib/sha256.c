/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 by FIPS 180-4. Two block functions with one contract: `blocks` consecutive blocks of 64 bytes are folded
 * into h. The one with the SHA extensions is used where CPUID leaf 7 announces them (about 8 times faster).
 */
#include "lib/sha256.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t round_constants[64] __attribute__((aligned(16))) = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t v, unsigned n)
{
	return v >> n | v << (32 - n);
}

static uint32_t load_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_be32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

static void fold_portable(uint32_t h[8], const uint8_t *data, size_t blocks)
{
	for (; blocks > 0; blocks--, data += SHA256_BLOCK) {
		uint32_t w[64], v[8];

		for (unsigned i = 0; i < 16; i++)
			w[i] = load_be32(data + 4 * i);
		for (unsigned i = 16; i < 64; i++) {
			uint32_t a = w[i - 15], b = w[i - 2];

			w[i] = w[i - 16] + w[i - 7] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) +
			       (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
		}
		memcpy(v, h, sizeof(v));
		for (unsigned i = 0; i < 64; i++) {
			uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
			uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
			uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_constants[i] + w[i];
			uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

			memmove(v + 1, v, 7 * sizeof(v[0]));
			v[4] += t1;
			v[0] = t1 + t2;
		}
		for (unsigned i = 0; i < 8; i++)
			h[i] += v[i];
	}
}

#if defined(__x86_64__)
static bool have_sha_extensions(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3))
		return false;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}

/* The instructions keep the state as two registers, (a b e f) and (c d g h), and do two rounds at a time. */
__attribute__((target("sha,sse4.1,ssse3"))) static void fold_extensions(uint32_t h[8], const uint8_t *data, size_t blocks)
{
	const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
	__m128i dcba = _mm_loadu_si128((const __m128i *)h);
	__m128i hgfe = _mm_loadu_si128((const __m128i *)(h + 4));
	__m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
	__m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
	__m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
	__m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

	for (; blocks > 0; blocks--, data += SHA256_BLOCK) {
		__m128i abef_before = abef, cdgh_before = cdgh;
		__m128i w[4];

		for (unsigned i = 0; i < 4; i++)
			w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * i)), swap);
#pragma GCC unroll 16
		for (unsigned i = 0; i < 16; i++) {
			__m128i k = _mm_load_si128((const __m128i *)(round_constants + 4 * i));
			__m128i wk = _mm_add_epi32(w[i % 4], k);

			cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
			abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
			if (i < 12) { /* four words of the schedule take the place of the four just used */
				__m128i next = _mm_sha256msg1_epu32(w[i % 4], w[(i + 1) % 4]);

				next = _mm_add_epi32(next, _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
				w[i % 4] = _mm_sha256msg2_epu32(next, w[(i + 3) % 4]);
			}
		}
		abef = _mm_add_epi32(abef, abef_before);
		cdgh = _mm_add_epi32(cdgh, cdgh_before);
	}
	__m128i feba = _mm_shuffle_epi32(abef, 0x1b);
	__m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);

	_mm_storeu_si128((__m128i *)h, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((__m128i *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

typedef void fold_fn(uint32_t h[8], const uint8_t *data, size_t blocks);

static fold_fn *fold_best(void)
{
#if defined(__x86_64__)
	if (have_sha_extensions())
		return fold_extensions;
#endif
	return fold_portable;
}

void sha256_init(struct sha256 *s)
{
	*s = (struct sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
				     0x5be0cd19 } };
}

static void update(struct sha256 *s, const uint8_t *p, size_t n, fold_fn *fold)
{
	size_t have = s->length % SHA256_BLOCK;

	s->length += n;
	if (have > 0) {
		size_t take = SHA256_BLOCK - have < n ? SHA256_BLOCK - have : n;

		memcpy(s->block + have, p, take);
		p += take;
		n -= take;
		if (have + take < SHA256_BLOCK)
			return;
		fold(s->h, s->block, 1);
	}
	fold(s->h, p, n / SHA256_BLOCK);
	if (n % SHA256_BLOCK)
		memcpy(s->block, p + (n - n % SHA256_BLOCK), n % SHA256_BLOCK);
}

void sha256_update(struct sha256 *s, const void *data, size_t n)
{
	if (n > 0)
		update(s, data, n, s->length % SHA256_BLOCK + n < SHA256_BLOCK ? fold_portable : fold_best());
}

void sha256_update_portable(struct sha256 *s, const void *data, size_t n)
{
	if (n > 0)
		update(s, data, n, fold_portable);
}

void sha256_final(struct sha256 *s, uint8_t ret_digest[SHA256_SIZE])
{
	static const uint8_t padding[SHA256_BLOCK] = { 0x80 };
	uint64_t bits = s->length * 8;
	size_t have = s->length % SHA256_BLOCK;
	uint8_t tail[8];

	update(s, padding, (have < 56 ? 56 : 120) - have, fold_portable);
	store_be32(tail, (uint32_t)(bits >> 32));
	store_be32(tail + 4, (uint32_t)bits);
	update(s, tail, sizeof(tail), fold_portable);
	for (unsigned i = 0; i < 8; i++)
		store_be32(ret_digest + 4 * i, s->h[i]);
}

void sha256_hex(const uint8_t digest[SHA256_SIZE], char ret_hex[SHA256_HEX_SIZE])
{
	static const char digits[] = "0123456789abcdef";

	for (unsigned i = 0; i < SHA256_SIZE; i++) {
		ret_hex[2 * i] = digits[digest[i] >> 4];
		ret_hex[2 * i + 1] = digits[digest[i] & 15];
	}
	ret_hex[2 * SHA256_SIZE] = '\0';
}
