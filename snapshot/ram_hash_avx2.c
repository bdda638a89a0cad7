/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3 in the wider vectors that nearly every x86 host has: three times as fast as what all of them have, and a memory
 * image is hashed whole. The same value. ram_format.c asks the processor.
 */
#include "snapshot/ram_format.h"

#ifdef __x86_64__
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>

uint64_t ram_hash_avx2(const void *p, size_t n)
{
	return XXH3_64bits(p, n);
}
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
