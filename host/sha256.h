/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as text; the digest itself is libnettle's, which costs a short command nothing at its start. */
#pragma once
#include <nettle/sha2.h>
#include <stdint.h>

enum { SHA256_HEX_SIZE = 2 * SHA256_DIGEST_SIZE + 1 };

/* End the digest of *ctx and write it as lower-case hexadecimal with a terminating zero. */
void sha256_end_hex(struct sha256_ctx *ctx, char ret_hex[SHA256_HEX_SIZE]);
