/* SPDX-License-Identifier: Apache-2.0 */
/* Texts for people: see text.h. */
#include "lib/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"

static const char dots[] = "...";

static uint32_t decode(const unsigned char *s, size_t len)
{
	static const unsigned char mask[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	uint32_t c = s[0] & mask[len];

	for (size_t i = 1; i < len; i++)
		c = c << 6 | (s[i] & 0x3f);
	return c;
}

/* By its first byte; 0: none begins so. */
static size_t length_by_lead(unsigned char c)
{
	return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

int text_utf8_next(const char *text, size_t n, uint32_t *ret)
{
	static const uint32_t min[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const unsigned char *s = (const unsigned char *)text;
	size_t len = n ? length_by_lead(s[0]) : 0;
	uint32_t c;

	if (n == 0)
		return 0;
	if (len == 0 || len > n)
		return -EILSEQ;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return -EILSEQ;
	c = decode(s, len);
	if (c < min[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return -EILSEQ;
	*ret = c;
	return (int)len;
}

size_t text_utf8_length(const char *text, size_t n)
{
	uint32_t c;
	int len = text_utf8_next(text, n, &c);

	return len < 0 ? 0 : (size_t)len;
}

bool text_is_utf8(const char *s)
{
	for (size_t n = strlen(s), len; n > 0; s += len, n -= len) {
		len = text_utf8_length(s, n);
		if (len == 0)
			return false;
	}
	return true;
}

size_t text_incomplete(const char *s, size_t n)
{
	for (size_t k = 1; k <= 3 && k <= n; k++) {
		unsigned char c = (unsigned char)s[n - k];

		if ((c & 0xc0) != 0x80)
			return length_by_lead(c) > k ? k : 0;
	}
	return 0;
}

static bool is_shown(uint32_t c)
{
	return c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x2028 && c <= 0x202e) && !(c >= 0x2066 && c <= 0x2069);
}

/* What stands for the character (or the byte that is none) at s: *ret_used bytes of s become the returned number in out. */
static size_t escape_one(const char *s, size_t n, const char *keep, char out[4 * TEXT_ESCAPE + 1], size_t *ret_used)
{
	size_t len = text_utf8_length(s, n);

	*ret_used = len > 0 ? len : 1;
	if (len > 0 && (is_shown(decode((const unsigned char *)s, len)) || (*s != '\0' && strchr(keep, *s) != NULL))) {
		memcpy(out, s, len);
		return len;
	}
	for (size_t i = 0; i < *ret_used; i++)
		snprintf(out + i * TEXT_ESCAPE, TEXT_ESCAPE + 1, "\\x%02x", (unsigned char)s[i]);
	return *ret_used * TEXT_ESCAPE;
}

size_t text_escape(const char *s, size_t n, const char *keep, char *out, size_t size)
{
	size_t at = 0, fits = 0; /* behind `fits` there is room for the dots */

	for (size_t i = 0, used; i < n; i += used) {
		char one[4 * TEXT_ESCAPE + 1];
		size_t len = escape_one(s + i, n - i, keep, one, &used);

		if (at + len >= size) {
			memcpy(out + fits, dots, sizeof(dots));
			return fits + sizeof(dots) - 1;
		}
		memcpy(out + at, one, len);
		at += len;
		if (at + sizeof(dots) <= size)
			fits = at;
	}
	out[at] = '\0';
	return at;
}

char *text_escape_dup(const char *s)
{
	size_t n = s != NULL ? strlen(s) : 0;
	char *out = s != NULL ? malloc(TEXT_ESCAPE * n + sizeof(dots)) : NULL;

	if (out != NULL)
		text_escape(s, n, "", out, TEXT_ESCAPE * n + sizeof(dots));
	return out;
}

void text_print(FILE *out, const char *s)
{
	text_print_column(out, s, 0, 0);
}

size_t text_columns(const char *s)
{
	size_t columns = 0;

	for (size_t n = strlen(s), used; n > 0; s += used, n -= used) {
		char one[4 * TEXT_ESCAPE + 1];
		size_t len = escape_one(s, n, "", one, &used);

		columns += len > used ? len : 1;
	}
	return columns;
}

void text_print_column(FILE *out, const char *s, size_t min, size_t max)
{
	size_t wide = text_columns(s), at = 0;
	bool cut = max > 0 && wide > max;

	for (size_t n = strlen(s), used; n > 0; s += used, n -= used) {
		char one[4 * TEXT_ESCAPE + 1];
		size_t len = escape_one(s, n, "", one, &used), columns = len > used ? len : 1;

		if (cut && at + columns + strlen(dots) > max)
			break;
		fwrite(one, 1, len, out);
		at += columns;
	}
	if (cut)
		at += (size_t)fprintf(out, "%s", dots);
	if (at < min)
		fprintf(out, "%*s", (int)(min - at), "");
}

const char *text_cut(const char *s, char *out)
{
	text_escape(s, strlen(s), "", out, TEXT_CUT_SIZE);
	return out;
}

const char *text_size(uint64_t bytes, char *out)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t whole = bytes, rest = 0; /* of 1024 */
	size_t unit = 0;

	/* 1023.5 and more would be rounded to 1024. */
	while (whole + (rest >= 512) >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
		rest = whole % 1024;
		whole /= 1024;
		unit++;
	}
	uint64_t tenths = whole * 10 + (rest * 10 + 512) / 1024;

	if (unit > 0 && tenths < 100 && tenths % 10 != 0)
		snprintf(out, TEXT_SIZE_MAX, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10, units[unit]);
	else
		snprintf(out, TEXT_SIZE_MAX, "%" PRIu64 " %s", whole + (rest >= 512), units[unit]);
	return out;
}
