/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums and masks of memory files: see ram_format.h. */
#include "snapshot/ram_format.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/util.h"

uint64_t ram_hash(const void *p, size_t n)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		return ram_hash_avx2(p, n);
#endif
	return XXH3_64bits(p, n);
}

uint64_t ram_hash_pages(const uint8_t *chunk, uint16_t mask)
{
	XXH3_state_t state;
	unsigned first, n = ram_mask_run(mask, 0, &first);

	if (n == ram_mask_count(mask))
		return ram_hash(chunk + first * MEM_PAGE_SIZE, (size_t)n * MEM_PAGE_SIZE);
	XXH3_64bits_reset(&state);
	for (; n > 0; n = ram_mask_run(mask, first + n, &first))
		XXH3_64bits_update(&state, chunk + first * MEM_PAGE_SIZE, (size_t)n * MEM_PAGE_SIZE);
	return XXH3_64bits_digest(&state);
}

uint64_t ram_chunks(uint64_t size)
{
	return (size + RAM_CHUNK_SIZE - 1) / RAM_CHUNK_SIZE;
}

uint16_t ram_chunk_mask(uint64_t size, uint64_t chunk)
{
	uint64_t pages = (size - chunk * RAM_CHUNK_SIZE) / MEM_PAGE_SIZE;

	return (uint16_t)(pages >= RAM_CHUNK_PAGES ? 0xffff : (1u << pages) - 1);
}

unsigned ram_mask_run(uint16_t mask, unsigned from, unsigned *ret_first)
{
	unsigned rest = from < RAM_CHUNK_PAGES ? (unsigned)mask >> from : 0;

	*ret_first = 0;
	if (!rest)
		return 0;
	unsigned skip = (unsigned)__builtin_ctz(rest);

	*ret_first = from + skip;
	return (unsigned)__builtin_ctz(~(rest >> skip));
}
