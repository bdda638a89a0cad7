/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 as text: see sha256.h. */
#include "host/sha256.h"

#include <nettle/base16.h>

void sha256_end_hex(struct sha256_ctx *ctx, char ret_hex[SHA256_HEX_SIZE])
{
	uint8_t digest[SHA256_DIGEST_SIZE];

	sha256_digest(ctx, sizeof(digest), digest);
	base16_encode_update(ret_hex, sizeof(digest), digest);
	ret_hex[SHA256_HEX_SIZE - 1] = '\0';
}
