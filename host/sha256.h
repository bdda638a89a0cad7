/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 by libcrypto. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_HEX_SIZE = 65 };

struct sha256 {
	struct evp_md_ctx_st *ctx; /* NULL when something failed: sha256_final tells */
};

void sha256_init(struct sha256 *s);
void sha256_update(struct sha256 *s, const void *data, size_t n);
/* Ends it: 0, or -ENOMEM when libcrypto failed at any step. */
int sha256_final(struct sha256 *s, uint8_t ret_digest[SHA256_SIZE]) __attribute__((warn_unused_result));
void sha256_finish(struct sha256 *s); /* release without a digest, or after one */

/* Lower-case hexadecimal with a terminating zero. */
void sha256_hex(const uint8_t digest[SHA256_SIZE], char ret_hex[SHA256_HEX_SIZE]);
