/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz targets: tests/fuzz/NAME_fuzz.c defines this one function, which must accept any input, return 0 and abort when
 * something that must hold does not. scripts/fuzz.sh links it with libFuzzer, the tests with replay.c over the
 * files of tests/fuzz/corpus/NAME/.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort with a message unless `cond` holds. */
#define FUZZ_REQUIRE(cond) ((cond) ? (void)0 : fuzz_violated(#cond, __FILE__, __LINE__))
void fuzz_violated(const char *what, const char *file, int line) __attribute__((noreturn));

/* The bytes of an input, one after another; zeros when there are no more. */
struct fuzz_input {
	const uint8_t *p;
	size_t left;
};
uint8_t fuzz_u8(struct fuzz_input *in);
uint16_t fuzz_u16(struct fuzz_input *in);
uint32_t fuzz_u32(struct fuzz_input *in);
uint64_t fuzz_u64(struct fuzz_input *in);
