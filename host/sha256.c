/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256: see sha256.h. */
#include "host/sha256.h"

#include <errno.h>
#include <openssl/evp.h>

void sha256_init(struct sha256 *s)
{
	s->ctx = EVP_MD_CTX_new();
	if (s->ctx && !EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL))
		sha256_finish(s);
}

void sha256_update(struct sha256 *s, const void *data, size_t n)
{
	if (s->ctx && !EVP_DigestUpdate(s->ctx, data, n))
		sha256_finish(s);
}

int sha256_final(struct sha256 *s, uint8_t ret_digest[SHA256_SIZE])
{
	int r = s->ctx && EVP_DigestFinal_ex(s->ctx, ret_digest, NULL) ? 0 : -ENOMEM;

	sha256_finish(s);
	return r;
}

void sha256_finish(struct sha256 *s)
{
	EVP_MD_CTX_free(s->ctx);
	s->ctx = NULL;
}

void sha256_hex(const uint8_t digest[SHA256_SIZE], char ret_hex[SHA256_HEX_SIZE])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SHA256_SIZE; i++) {
		ret_hex[2 * i] = digits[digest[i] >> 4];
		ret_hex[2 * i + 1] = digits[digest[i] & 15];
	}
	ret_hex[2 * SHA256_SIZE] = '\0';
}
