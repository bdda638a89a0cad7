/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON without allocation: a pull reader over a buffer in memory, and a writer into one.
 *
 * The reader gives one token per call and checks the grammar of RFC 8259 on the way: after the first error every call
 * returns JSON_TOKEN_ERROR, and nothing is ever taken for valid that is not. Strings are decoded in place (the text only
 * shrinks) and ended by a NUL, so tokens stay usable as long as the buffer; json_next therefore needs it writable.
 *
 *   json_init(&j, buf, len);
 *   if (json_next(&j, &t) != JSON_TOKEN_OBJECT) ...
 *   while (json_next(&j, &t) == JSON_TOKEN_KEY) {
 *           if (json_token_is(&t, "path")) { if (json_next(&j, &t) != JSON_TOKEN_STRING) ... }
 *           else json_skip(&j);
 *   }
 *   ok = t.type == JSON_TOKEN_OBJECT_END && json_next(&j, &t) == JSON_TOKEN_END;
 *
 * Trust: every byte of the text is hostile. Depth is bounded by JSON_DEPTH_MAX, time is linear.
 * Limits, all stricter than the RFC: a string must not contain \u0000; bytes above 0x7f are passed through unchecked, and
 * escapes of unpaired surrogates are refused; numbers that are not integers in 64 bits are tokens with is_int false.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH_MAX = 8 };

enum json_token_type {
	JSON_TOKEN_ERROR,
	JSON_TOKEN_END, /* the whole text was one value */
	JSON_TOKEN_OBJECT,
	JSON_TOKEN_OBJECT_END,
	JSON_TOKEN_ARRAY,
	JSON_TOKEN_ARRAY_END,
	JSON_TOKEN_KEY, /* a member's name; its value is the next token */
	JSON_TOKEN_STRING,
	JSON_TOKEN_NUMBER,
	JSON_TOKEN_TRUE,
	JSON_TOKEN_FALSE,
	JSON_TOKEN_NULL,
};

struct json_token {
	enum json_token_type type;
	const char *s; /* KEY, STRING: decoded, NUL-terminated; NUMBER: its text, not terminated */
	size_t len;
	bool is_int;
	int64_t i;
};

struct json {
	char *buf;
	size_t len, pos;
	unsigned depth;
	uint32_t objects;  /* bit d: nesting level d is an object */
	int expect;        /* what the grammar allows next (json.c) */
	const char *error; /* set with the first JSON_TOKEN_ERROR: static text */
	size_t error_pos;
};

void json_init(struct json *j, char *buf, size_t len);
enum json_token_type json_next(struct json *j, struct json_token *t); /* also returned in t->type */
bool json_token_is(const struct json_token *t, const char *s);  /* exactly this text, embedded length compared */

/* After a KEY: skip its value with everything in it. Returns false after an error. */
bool json_skip(struct json *j);

/* ---- writer: compact JSON on one line, always valid UTF-8 ---- */

struct json_writer {
	char *buf;
	size_t size, len;
	bool comma;    /* the next member or element needs one */
	bool overflow; /* something did not fit: the buffer holds a prefix */
};

void json_writer_init(struct json_writer *w, char *buf, size_t size);

/* `key` is NULL in arrays and at the top. Bytes of strings that are not UTF-8 become U+FFFD. */
void json_write_object(struct json_writer *w, const char *key);
void json_write_object_end(struct json_writer *w);
void json_write_array(struct json_writer *w, const char *key);
void json_write_array_end(struct json_writer *w);
void json_write_string(struct json_writer *w, const char *key, const char *s);
void json_write_string_n(struct json_writer *w, const char *key, const char *s, size_t n);
void json_write_int(struct json_writer *w, const char *key, int64_t v);
void json_write_uint(struct json_writer *w, const char *key, uint64_t v);
void json_write_bool(struct json_writer *w, const char *key, bool v);

/* The length, or -ENOSPC when it did not fit. Not NUL-terminated. */
int json_writer_finish(const struct json_writer *w);
