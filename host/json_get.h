/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of JSON objects, with their types and bounds; and texts as JSON.
 *
 * Trust: what is read is hostile. Strings with a zero in them are refused, since everybody else takes them for shorter.
 *
 * Errors: -EINVAL (or -ENOMEM) and one line that begins with the member's name in quotes; callers say before it whose member
 * it is. *ret is untouched then, and also when a member that is not required is missing or null.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

/* A document of at most `max` bytes whose value is of `type` (JSON_OBJECT, JSON_ARRAY). NULL with the error set. */
json_t *json_get_document(const char *text, size_t len, size_t max, json_type type, struct err *err);

/* Borrowed from the object. */
int json_get_string(const json_t *o, const char *key, size_t max, bool required, const char **ret, struct err *err);
/* To be freed. */
int json_get_copy(const json_t *o, const char *key, size_t max, bool required, char **ret, struct err *err);
/* Exactly so many lower-case digits; ret has room for them and a NUL. */
int json_get_hex(const json_t *o, const char *key, size_t digits, bool required, char *ret, struct err *err);
/* Required. */
int json_get_u64(const json_t *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct err *err);
/* Required: an array of min to max elements. */
int json_get_array(const json_t *o, const char *key, size_t min, size_t max, const json_t **ret, struct err *err);

/* Not required, and empty is as missing: an array of at most `n` strings of at most `max` bytes each, ended by NULL. To be
 * given to json_strings_free. */
int json_get_strings(const json_t *o, const char *key, size_t n, size_t max, char ***ret, struct err *err);
void json_strings_free(char **v); /* NULL too */

/* As it is when it is UTF-8, else escaped (lib/text.h). NULL: no memory, or s is NULL. */
json_t *json_text(const char *s);
