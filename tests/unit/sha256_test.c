/* SPDX-License-Identifier: Apache-2.0 */
/* host/sha256: the published examples, and the same digest however the data is cut. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "host/sha256.h"

static void hex_of(const void *data, size_t n, char hex[SHA256_HEX_SIZE])
{
	uint8_t digest[SHA256_SIZE];
	struct sha256 s;

	sha256_init(&s);
	sha256_update(&s, data, n);
	assert_int_equal(sha256_final(&s, digest), 0);
	sha256_hex(digest, hex);
}

static void known_answers(void **state)
{
	static const struct {
		const char *text, *hex;
	} cases[] = {
		{ "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
		{ "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
		{ "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		  "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char hex[SHA256_HEX_SIZE];

		hex_of(cases[i].text, strlen(cases[i].text), hex);
		assert_string_equal(hex, cases[i].hex);
	}
}

static void a_million_letters(void **state)
{
	char *text = malloc(1000000), hex[SHA256_HEX_SIZE];

	(void)state;
	assert_non_null(text);
	memset(text, 'a', 1000000);
	hex_of(text, 1000000, hex);
	assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
	free(text);
}

static void every_split_gives_the_same_digest(void **state)
{
	uint8_t data[300];

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + 3);
	for (size_t n = 0; n <= sizeof(data); n++) {
		struct sha256 a, b;
		uint8_t da[SHA256_SIZE], db[SHA256_SIZE];
		size_t cut = n * 2 / 3;

		sha256_init(&a);
		sha256_update(&a, data, cut);
		sha256_update(&a, data + cut, n - cut);
		assert_int_equal(sha256_final(&a, da), 0);
		sha256_init(&b);
		for (size_t i = 0; i < n; i++)
			sha256_update(&b, data + i, 1);
		assert_int_equal(sha256_final(&b, db), 0);
		assert_memory_equal(da, db, SHA256_SIZE);
	}
}

static void one_that_is_given_up_is_released_and_has_no_digest(void **state)
{
	uint8_t digest[SHA256_SIZE];
	struct sha256 s;

	(void)state;
	sha256_init(&s);
	sha256_finish(&s);
	sha256_finish(&s);
	sha256_update(&s, "x", 1);
	assert_int_equal(sha256_final(&s, digest), -ENOMEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(known_answers),
		cmocka_unit_test(a_million_letters),
		cmocka_unit_test(every_split_gives_the_same_digest),
		cmocka_unit_test(one_that_is_given_up_is_released_and_has_no_digest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
