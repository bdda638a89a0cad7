/* SPDX-License-Identifier: Apache-2.0 */
/* In a guest of tests/boot/clock-exact: this machine's counter and its wall clock at one moment, the closest reading of many:
 * "COUNTER CLOCK_NS APART", the last in ticks. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static uint64_t counter(void)
{
	uint32_t low = 0, high = 0;

#ifdef __x86_64__
	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
#endif
	return (uint64_t)high << 32 | low;
}

int main(void)
{
	uint64_t best = UINT64_MAX, at = 0;
	struct timespec t, then = { 0 };

	for (int i = 0; i < 200; i++) {
		uint64_t before = counter(), after;

		clock_gettime(CLOCK_REALTIME, &t);
		after = counter();
		if (after - before < best) {
			best = after - before;
			at = before + best / 2;
			then = t;
		}
	}
	printf("%" PRIu64 " %lld %" PRIu64 "\n", at, then.tv_sec * 1000000000ll + then.tv_nsec, best);
	return 0;
}
