/* SPDX-License-Identifier: Apache-2.0 */
/* Small macros that have no better home. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))

#define MIN(a, b) ({ __typeof__(a) min_a_ = (a); __typeof__(b) min_b_ = (b); min_a_ < min_b_ ? min_a_ : min_b_; })
#define MAX(a, b) ({ __typeof__(a) max_a_ = (a); __typeof__(b) max_b_ = (b); max_a_ > max_b_ ? max_a_ : max_b_; })

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

/* `to` must be a power of two. */
#define ALIGN_UP(v, to) (((v) + (to) - 1) & ~((__typeof__(v))(to) - 1))
#define ALIGN_DOWN(v, to) ((v) & ~((__typeof__(v))(to) - 1))
#define IS_POWER_OF_2(v) ((v) != 0 && ((v) & ((v) - 1)) == 0)
