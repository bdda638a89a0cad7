/* SPDX-License-Identifier: Apache-2.0 */
/* Small macros that have no better home. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

/* May be nested: each use has names of its own. */
#define UTIL_CAT_(a, b) a##b
#define UTIL_NAME_(a, n) UTIL_CAT_(a, n)
#define UTIL_PICK_(a, op, b, n)                            \
	({                                                 \
		__typeof__(a) UTIL_NAME_(pick_a_, n) = (a); \
		__typeof__(b) UTIL_NAME_(pick_b_, n) = (b); \
		UTIL_NAME_(pick_a_, n) op UTIL_NAME_(pick_b_, n) ? UTIL_NAME_(pick_a_, n) : UTIL_NAME_(pick_b_, n); \
	})
#define MIN(a, b) UTIL_PICK_(a, <, b, __COUNTER__)
#define MAX(a, b) UTIL_PICK_(a, >, b, __COUNTER__)

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* `to` must be a power of two. */
#define ALIGN_UP(v, to) (((v) + (to) - 1) & ~((__typeof__(v))(to) - 1))
#define ALIGN_DOWN(v, to) ((v) & ~((__typeof__(v))(to) - 1))
#define IS_POWER_OF_2(v) ((v) != 0 && ((v) & ((v) - 1)) == 0)
