/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON reader and writer: see json.h.
 *
 * The grammar is a state (`expect`) and one bit per nesting level that says object or array. A token moves the
 * state on; whatever the state does not allow is the error.
 */
#include "lib/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/text.h"

enum expect {
	EXPECT_VALUE,
	EXPECT_VALUE_OR_END, /* just after '[' */
	EXPECT_KEY,
	EXPECT_KEY_OR_END, /* just after '{' */
	EXPECT_COMMA_OR_END,
	EXPECT_NOTHING, /* the top value is complete */
	EXPECT_FAILED,
};

void json_init(struct json *j, char *buf, size_t len)
{
	*j = (struct json){ .buf = buf, .len = len, .expect = EXPECT_VALUE };
}

bool json_token_is(const struct json_token *t, const char *s)
{
	size_t n = strlen(s);

	return (t->type == JSON_TOKEN_KEY || t->type == JSON_TOKEN_STRING) && t->len == n && memcmp(t->s, s, n) == 0;
}

static enum json_token_type fail(struct json *j, struct json_token *t, const char *text)
{
	if (!j->error) {
		j->error = text;
		j->error_pos = j->pos;
	}
	j->expect = EXPECT_FAILED;
	*t = (struct json_token){ .type = JSON_TOKEN_ERROR };
	return JSON_TOKEN_ERROR;
}

static bool in_object(const struct json *j)
{
	return j->depth > 0 && (j->objects >> (j->depth - 1) & 1);
}

static int peek(const struct json *j)
{
	return j->pos < j->len ? (unsigned char)j->buf[j->pos] : -1;
}

static void skip_space(struct json *j)
{
	while (j->pos < j->len && (j->buf[j->pos] == ' ' || j->buf[j->pos] == '\t' || j->buf[j->pos] == '\n' || j->buf[j->pos] == '\r'))
		j->pos++;
}

/* A value is complete: what may follow depends on what it is in. */
static void value_done(struct json *j)
{
	j->expect = j->depth > 0 ? EXPECT_COMMA_OR_END : EXPECT_NOTHING;
}

static int hex4(const char *s)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		int c = (unsigned char)s[i];

		if (c >= '0' && c <= '9')
			c -= '0';
		else if (c >= 'a' && c <= 'f')
			c -= 'a' - 10;
		else if (c >= 'A' && c <= 'F')
			c -= 'A' - 10;
		else
			return -1;
		v = v << 4 | c;
	}
	return v;
}

static size_t put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 0x3f));
		out[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 0x3f));
	out[2] = (char)(0x80 | (c >> 6 & 0x3f));
	out[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* pos is behind "\u". Stores the code point; returns an error text or NULL. */
static const char *unicode_escape(struct json *j, uint32_t *ret)
{
	int hi, lo;

	if (j->len - j->pos < 4 || (hi = hex4(j->buf + j->pos)) < 0)
		return "\\u needs four hexadecimal digits";
	j->pos += 4;
	if (hi == 0)
		return "\\u0000 in a string";
	if (hi >= 0xdc00 && hi <= 0xdfff)
		return "unpaired surrogate in a string";
	if (hi < 0xd800 || hi > 0xdbff) {
		*ret = (uint32_t)hi;
		return NULL;
	}
	if (j->len - j->pos < 6 || j->buf[j->pos] != '\\' || j->buf[j->pos + 1] != 'u' || (lo = hex4(j->buf + j->pos + 2)) < 0xdc00 ||
	    lo > 0xdfff)
		return "unpaired surrogate in a string";
	j->pos += 6;
	*ret = 0x10000 + ((uint32_t)(hi - 0xd800) << 10) + (uint32_t)(lo - 0xdc00);
	return NULL;
}

/* pos is on the opening quote. An escape is at least as long as what it stands for, so `out` never overtakes pos. */
static const char *read_string(struct json *j, struct json_token *t)
{
	size_t start = ++j->pos, out = start;

	for (;;) {
		int c = peek(j);
		const char *error;
		uint32_t code;

		if (c < 0)
			return "unterminated string";
		if (c < 0x20)
			return "control character in a string";
		j->pos++;
		if (c == '"')
			break;
		if (c != '\\') {
			j->buf[out++] = (char)c;
			continue;
		}
		c = peek(j);
		j->pos += c >= 0;
		switch (c) {
		case '"':
		case '\\':
		case '/': j->buf[out++] = (char)c; break;
		case 'b': j->buf[out++] = '\b'; break;
		case 'f': j->buf[out++] = '\f'; break;
		case 'n': j->buf[out++] = '\n'; break;
		case 'r': j->buf[out++] = '\r'; break;
		case 't': j->buf[out++] = '\t'; break;
		case 'u':
			error = unicode_escape(j, &code);
			if (error)
				return error;
			out += put_utf8(j->buf + out, code);
			break;
		default: return "unknown escape in a string";
		}
	}
	j->buf[out] = '\0';
	t->s = j->buf + start;
	t->len = out - start;
	return NULL;
}

static bool digit(int c)
{
	return c >= '0' && c <= '9';
}

static size_t skip_digits(struct json *j)
{
	size_t start = j->pos;

	while (digit(peek(j)))
		j->pos++;
	return j->pos - start;
}

static const char *read_number(struct json *j, struct json_token *t)
{
	size_t start = j->pos, first, n;
	bool negative = peek(j) == '-', fits = true, integer = true;
	uint64_t v = 0, limit = (uint64_t)INT64_MAX + negative;

	j->pos += negative;
	first = j->pos;
	n = skip_digits(j);
	if (n == 0 || (n > 1 && j->buf[first] == '0'))
		return "malformed number";
	for (size_t i = first; i < first + n && fits; i++) {
		unsigned d = (unsigned)(j->buf[i] - '0');

		if (v > (limit - d) / 10)
			fits = false;
		else
			v = v * 10 + d;
	}
	if (peek(j) == '.') {
		integer = false;
		j->pos++;
		if (skip_digits(j) == 0)
			return "malformed number";
	}
	if (peek(j) == 'e' || peek(j) == 'E') {
		integer = false;
		j->pos++;
		if (peek(j) == '+' || peek(j) == '-')
			j->pos++;
		if (skip_digits(j) == 0)
			return "malformed number";
	}
	t->s = j->buf + start;
	t->len = j->pos - start;
	t->is_int = integer && fits;
	if (t->is_int)
		t->i = negative ? (int64_t)(0 - v) : (int64_t)v;
	return NULL;
}

static const char *read_word(struct json *j, const char *word)
{
	size_t n = strlen(word);

	if (j->len - j->pos < n || memcmp(j->buf + j->pos, word, n) != 0)
		return "unexpected character";
	j->pos += n;
	return NULL;
}

static enum json_token_type open_container(struct json *j, struct json_token *t, bool object)
{
	if (j->depth >= JSON_DEPTH_MAX)
		return fail(j, t, "nested too deep");
	j->pos++;
	j->objects &= ~(1u << j->depth);
	j->objects |= (uint32_t)object << j->depth;
	j->depth++;
	j->expect = object ? EXPECT_KEY_OR_END : EXPECT_VALUE_OR_END;
	t->type = object ? JSON_TOKEN_OBJECT : JSON_TOKEN_ARRAY;
	return t->type;
}

static enum json_token_type close_container(struct json *j, struct json_token *t)
{
	t->type = in_object(j) ? JSON_TOKEN_OBJECT_END : JSON_TOKEN_ARRAY_END;
	j->pos++;
	j->depth--;
	value_done(j);
	return t->type;
}

static enum json_token_type read_key(struct json *j, struct json_token *t)
{
	const char *error = peek(j) == '"' ? read_string(j, t) : "a member's name is missing";

	if (error)
		return fail(j, t, error);
	skip_space(j);
	if (peek(j) != ':')
		return fail(j, t, "':' is missing");
	j->pos++;
	j->expect = EXPECT_VALUE;
	t->type = JSON_TOKEN_KEY;
	return JSON_TOKEN_KEY;
}

static enum json_token_type read_value(struct json *j, struct json_token *t)
{
	const char *error;
	int c = peek(j);

	switch (c) {
	case '{': return open_container(j, t, true);
	case '[': return open_container(j, t, false);
	case '"':
		t->type = JSON_TOKEN_STRING;
		error = read_string(j, t);
		break;
	case 't':
		t->type = JSON_TOKEN_TRUE;
		error = read_word(j, "true");
		break;
	case 'f':
		t->type = JSON_TOKEN_FALSE;
		error = read_word(j, "false");
		break;
	case 'n':
		t->type = JSON_TOKEN_NULL;
		error = read_word(j, "null");
		break;
	default:
		if (c != '-' && !digit(c))
			return fail(j, t, c < 0 ? "unexpected end" : "unexpected character");
		t->type = JSON_TOKEN_NUMBER;
		error = read_number(j, t);
	}
	if (error)
		return fail(j, t, error);
	value_done(j);
	return t->type;
}

enum json_token_type json_next(struct json *j, struct json_token *t)
{
	int c;

	*t = (struct json_token){ .type = JSON_TOKEN_ERROR };
	if (j->expect == EXPECT_FAILED)
		return JSON_TOKEN_ERROR;
	skip_space(j);
	c = peek(j);
	if (j->expect == EXPECT_COMMA_OR_END) {
		if (c == (in_object(j) ? '}' : ']'))
			return close_container(j, t);
		if (c != ',')
			return fail(j, t, c < 0 ? "unexpected end" : "',' is missing");
		j->pos++;
		skip_space(j);
		j->expect = in_object(j) ? EXPECT_KEY : EXPECT_VALUE;
		c = peek(j);
	}
	switch ((enum expect)j->expect) {
	case EXPECT_KEY_OR_END:
		return c == '}' ? close_container(j, t) : read_key(j, t);
	case EXPECT_KEY: return read_key(j, t);
	case EXPECT_VALUE_OR_END:
		return c == ']' ? close_container(j, t) : read_value(j, t);
	case EXPECT_VALUE: return read_value(j, t);
	case EXPECT_NOTHING:
		if (c >= 0)
			return fail(j, t, "something follows the value");
		t->type = JSON_TOKEN_END;
		return JSON_TOKEN_END;
	case EXPECT_COMMA_OR_END:
	case EXPECT_FAILED: break;
	}
	return JSON_TOKEN_ERROR;
}

bool json_skip(struct json *j)
{
	unsigned depth = j->depth;
	struct json_token t;

	do {
		if (json_next(j, &t) == JSON_TOKEN_ERROR)
			return false;
	} while (j->depth > depth);
	return true;
}

/* ---- writer ---- */

void json_writer_init(struct json_writer *w, char *buf, size_t size)
{
	*w = (struct json_writer){ .buf = buf, .size = size };
}

static void put(struct json_writer *w, const char *s, size_t n)
{
	if (w->overflow || n > w->size - w->len) {
		w->overflow = true;
		return;
	}
	memcpy(w->buf + w->len, s, n);
	w->len += n;
}

static void put_string(struct json_writer *w, const char *s, size_t n)
{
	put(w, "\"", 1);
	for (size_t i = 0; i < n && !w->overflow;) {
		unsigned char c = (unsigned char)s[i];
		size_t len = text_utf8_length(s + i, n - i);
		char escape[8];

		if (len == 0) {
			put(w, "\xef\xbf\xbd", 3);
			len = 1;
		} else if (c == '"' || c == '\\') {
			escape[0] = '\\';
			escape[1] = (char)c;
			put(w, escape, 2);
		} else if (c < 0x20 || c == 0x7f) {
			put(w, escape, (size_t)snprintf(escape, sizeof(escape), "\\u%04x", c));
		} else {
			put(w, s + i, len);
		}
		i += len;
	}
	put(w, "\"", 1);
}

static void begin(struct json_writer *w, const char *key)
{
	if (w->comma)
		put(w, ",", 1);
	w->comma = true;
	if (key) {
		put_string(w, key, strlen(key));
		put(w, ":", 1);
	}
}

void json_write_object(struct json_writer *w, const char *key)
{
	begin(w, key);
	put(w, "{", 1);
	w->comma = false;
}

void json_write_object_end(struct json_writer *w)
{
	put(w, "}", 1);
	w->comma = true;
}

void json_write_array(struct json_writer *w, const char *key)
{
	begin(w, key);
	put(w, "[", 1);
	w->comma = false;
}

void json_write_array_end(struct json_writer *w)
{
	put(w, "]", 1);
	w->comma = true;
}

void json_write_string_n(struct json_writer *w, const char *key, const char *s, size_t n)
{
	begin(w, key);
	put_string(w, s, n);
}

void json_write_string(struct json_writer *w, const char *key, const char *s)
{
	json_write_string_n(w, key, s, strlen(s));
}

void json_write_int(struct json_writer *w, const char *key, int64_t v)
{
	char text[24];

	begin(w, key);
	put(w, text, (size_t)snprintf(text, sizeof(text), "%lld", (long long)v));
}

void json_write_uint(struct json_writer *w, const char *key, uint64_t v)
{
	char text[24];

	begin(w, key);
	put(w, text, (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)v));
}

void json_write_bool(struct json_writer *w, const char *key, bool v)
{
	begin(w, key);
	put(w, v ? "true" : "false", v ? 4 : 5);
}

int json_writer_finish(const struct json_writer *w)
{
	return w->overflow ? -ENOSPC : (int)w->len;
}
