/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON reader over arbitrary text, and the writer over what it read.
 *
 * What the reader accepts is written again; that must be accepted too and give the same tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/json.h"
#include "tests/fuzz/fuzz.h"

enum { KEY_MAX = 256 };

/* The pending key, copied because the text around it is decoded in place. */
struct pending {
	char text[KEY_MAX];
	const char *key; /* NULL, or text */
};

static bool copy_value(struct json_writer *w, const struct json_token *t, const char *key)
{
	switch (t->type) {
	case JSON_TOKEN_OBJECT: json_write_object(w, key); break;
	case JSON_TOKEN_ARRAY: json_write_array(w, key); break;
	case JSON_TOKEN_OBJECT_END: json_write_object_end(w); break;
	case JSON_TOKEN_ARRAY_END: json_write_array_end(w); break;
	case JSON_TOKEN_STRING:
		FUZZ_REQUIRE(strlen(t->s) == t->len);
		json_write_string_n(w, key, t->s, t->len);
		break;
	case JSON_TOKEN_NUMBER: json_write_int(w, key, t->is_int ? t->i : 0); break;
	case JSON_TOKEN_TRUE:
	case JSON_TOKEN_FALSE: json_write_bool(w, key, t->type == JSON_TOKEN_TRUE); break;
	case JSON_TOKEN_NULL: json_write_uint(w, key, 0); break;
	case JSON_TOKEN_KEY:
	case JSON_TOKEN_ERROR:
	case JSON_TOKEN_END: return false;
	}
	return true;
}

/* Read the text; write what is in it. The number of tokens, or -1 when it is not valid. */
static int transcribe(char *text, size_t n, struct json_writer *w)
{
	struct pending p = { .key = NULL };
	struct json_token t;
	struct json j;
	int count = 0;

	json_init(&j, text, n);
	while (json_next(&j, &t) != JSON_TOKEN_END) {
		FUZZ_REQUIRE(j.depth <= JSON_DEPTH_MAX && j.pos <= n);
		if (t.type == JSON_TOKEN_ERROR) {
			FUZZ_REQUIRE(j.error && j.error_pos <= n);
			FUZZ_REQUIRE(json_next(&j, &t) == JSON_TOKEN_ERROR);
			return -1;
		}
		count++;
		if (t.type == JSON_TOKEN_KEY) {
			size_t len = t.len < KEY_MAX - 1 ? t.len : KEY_MAX - 1;

			memcpy(p.text, t.s, len);
			p.text[len] = '\0';
			p.key = p.text;
			continue;
		}
		FUZZ_REQUIRE(copy_value(w, &t, p.key));
		p.key = NULL;
	}
	FUZZ_REQUIRE(j.depth == 0);
	return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t room = 8 * size + 64;
	char *text = malloc(size ? size : 1), *once = malloc(room), *twice = malloc(8 * room);
	struct json_writer w, v;
	int count, n;

	if (!text || !once || !twice)
		abort();
	memcpy(text, data, size);
	json_writer_init(&w, once, room);
	count = transcribe(text, size, &w);
	n = json_writer_finish(&w);
	if (count >= 0) {
		FUZZ_REQUIRE(n >= 0);
		json_writer_init(&v, twice, 8 * room);
		FUZZ_REQUIRE(transcribe(once, (size_t)n, &v) == count);
	}
	free(text);
	free(once);
	free(twice);
	return 0;
}
