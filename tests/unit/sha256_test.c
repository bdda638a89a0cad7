/* SPDX-License-Identifier: Apache-2.0 */
/* host/sha256: the published examples as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "host/sha256.h"

static void is(const char *text, const char *want)
{
	struct sha256_ctx ctx;
	char hex[SHA256_HEX_SIZE];

	sha256_init(&ctx);
	sha256_update(&ctx, strlen(text), (const uint8_t *)text);
	sha256_end_hex(&ctx, hex);
	assert_string_equal(hex, want);
}

static void nothing(void **s)
{
	(void)s;
	is("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void three_letters(void **s)
{
	(void)s;
	is("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void more_than_a_block(void **s)
{
	(void)s;
	is("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing),
		cmocka_unit_test(three_letters),
		cmocka_unit_test(more_than_a_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
