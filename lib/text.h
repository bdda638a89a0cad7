/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts from elsewhere (command lines, images, snapshots, guests) on their way to a person.
 *
 * A terminal gets only what it can show: a control character (C0, DEL, C1), what changes the direction or the line of text
 * (U+2028 to U+202E, U+2066 to U+2069), and a byte that belongs to no UTF-8 character become \xHH, byte by byte. A backslash
 * stays as it is, so escaping what is escaped changes nothing. What is cut ends with "...".
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
	TEXT_ESCAPE = 4,    /* bytes that one becomes, at most */
	TEXT_CUT_SIZE = 164,/* text_cut: with the NUL */
	TEXT_SIZE_MAX = 32, /* text_size: with the NUL */
};

/* Bytes of the UTF-8 character at s (RFC 3629: shortest form, no surrogates) of n > 0 bytes; 0: it is none. */
size_t text_utf8_length(const char *s, size_t n);
/* The character at s of n bytes: its bytes, 0 at the end, -EILSEQ. */
int text_utf8_next(const char *s, size_t n, uint32_t *ret);
bool text_is_utf8(const char *s);
/* How many bytes at the end may be the beginning of a character that is not complete: 0 to 3. */
size_t text_incomplete(const char *s, size_t n);

/* n bytes, which may have any in them, escaped; control characters in `keep` stay. Ended by a NUL, and cut when `size`
 * (at least 4) is not enough. Returns the length. */
size_t text_escape(const char *s, size_t n, const char *keep, char *out, size_t size);
char *text_escape_dup(const char *s); /* to be freed; NULL: no memory, or s is NULL */
void text_print(FILE *out, const char *s);

/* In a table: at least `min` characters wide, at most `max` (0: any). */
void text_print_column(FILE *out, const char *s, size_t min, size_t max);
size_t text_columns(const char *s); /* how wide that is without limits; a character counts as one */

/* Escaped and cut, for a name in a message: "'%s' is no ...", TEXT_CUT(name). It lives as long as the block. */
#define TEXT_CUT(s) text_cut(s, (char[TEXT_CUT_SIZE]){ 0 })
const char *text_cut(const char *s, char *out);

/* "0 B", "12 KiB", "1.2 GiB": two digits or more, and never 0 for something. */
#define TEXT_SIZE(bytes) text_size(bytes, (char[TEXT_SIZE_MAX]){ 0 })
const char *text_size(uint64_t bytes, char *out);
