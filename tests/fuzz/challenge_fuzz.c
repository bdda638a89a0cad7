/* SPDX-License-Identifier: Apache-2.0 */
/* What a registry and its token server say: first byte: which of the two; the rest is the text. What is accepted must be fit
 * for a header line or a URL. */
#include <stdlib.h>
#include <string.h>

#include "host/fetch/challenge.h"
#include "tests/fuzz/fuzz.h"

static void require_printable(const char *s)
{
	for (; *s != '\0'; s++)
		FUZZ_REQUIRE((unsigned char)*s >= ' ' && *s != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct challenge c;
	const char *token;
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	if (text == NULL)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] % 2 == 0) {
		if (challenge_parse(text, &c, NULL) == 0) {
			FUZZ_REQUIRE(c.basic || (c.bearer && c.realm[0] != '\0'));
			require_printable(c.realm);
			require_printable(c.service);
			require_printable(c.scope);
		}
	} else if (challenge_parse_token(text, size - 1, &token, NULL) == 0) {
		FUZZ_REQUIRE(token[0] != '\0' && strchr(token, ' ') == NULL);
		require_printable(token);
	}
	free(text);
	return 0;
}
