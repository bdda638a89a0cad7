/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4), with the processor's instructions where it has them. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_HEX_SIZE = 65, SHA256_BLOCK = 64 };

struct sha256 {
	uint32_t h[8];
	uint64_t length; /* bytes so far */
	uint8_t block[SHA256_BLOCK];
};

void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
void sha256_final(struct sha256 *s, uint8_t ret_digest[SHA256_SIZE]);

/* Lower-case hexadecimal with a terminating zero. */
void sha256_hex(const uint8_t digest[SHA256_SIZE], char ret_hex[SHA256_HEX_SIZE]);

/* The same without the processor's instructions, for tests. */
void sha256_update_portable(struct sha256 *s, const void *data, size_t n);
