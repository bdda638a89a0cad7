/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON objects: see json_get.h. */
#include "host/json_get.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/text.h"

json_t *json_get_document(const char *text, size_t len, size_t max, json_type type, struct err *err)
{
	json_error_t e;
	json_t *o;

	if (len > max) {
		err_set(err, -EFBIG, "%zu bytes; at most %zu are taken", len, max);
		return NULL;
	}
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (o == NULL)
		err_set(err, -EINVAL, "line %d: %s", e.line, e.text);
	else if (json_typeof(o) != type)
		err_set(err, -EINVAL, "not an %s", type == JSON_ARRAY ? "array" : "object");
	else
		return o;
	json_decref(o);
	return NULL;
}

/* 1 and the member, or 0 when it is not there and need not be. */
static int find(const json_t *o, const char *key, bool required, const json_t **ret, struct err *err)
{
	*ret = json_object_get(o, key);
	if (*ret != NULL && (required || !json_is_null(*ret)))
		return 1;
	return required ? err_set(err, -EINVAL, "\"%s\" is missing", key) : 0;
}

/* NULL: it is no string, too long, or has a zero in it. */
static const char *string_of(const json_t *v, size_t max)
{
	const char *s = json_string_value(v);

	return s != NULL && json_string_length(v) <= max && strlen(s) == json_string_length(v) ? s : NULL;
}

int json_get_string(const json_t *o, const char *key, size_t max, bool required, const char **ret, struct err *err)
{
	const json_t *v;
	const char *s;
	int r = find(o, key, required, &v, err);

	if (r <= 0)
		return r;
	s = string_of(v, max);
	if (s == NULL)
		return err_set(err, -EINVAL, "\"%s\" is not a string of at most %zu bytes", key, max);
	*ret = s;
	return 0;
}

static int copy(const char *s, char **ret, struct err *err)
{
	char *mine = strdup(s);

	if (mine == NULL)
		return err_set(err, -ENOMEM, "no memory");
	*ret = mine;
	return 0;
}

int json_get_copy(const json_t *o, const char *key, size_t max, bool required, char **ret, struct err *err)
{
	const char *s = NULL;
	int r = json_get_string(o, key, max, required, &s, err);

	return r < 0 || s == NULL ? r : copy(s, ret, err);
}

int json_get_hex(const json_t *o, const char *key, size_t digits, bool required, char *ret, struct err *err)
{
	const json_t *v;
	const char *s;
	int r = find(o, key, required, &v, err);

	if (r <= 0)
		return r;
	s = string_of(v, digits);
	if (s == NULL || strlen(s) != digits || s[strspn(s, "0123456789abcdef")] != '\0')
		return err_set(err, -EINVAL, "\"%s\" is not %zu hexadecimal digits", key, digits);
	memcpy(ret, s, digits + 1);
	return 0;
}

int json_get_u64(const json_t *o, const char *key, uint64_t min, uint64_t max, uint64_t *ret, struct err *err)
{
	const json_t *v;
	int r = find(o, key, true, &v, err);
	json_int_t n;

	if (r < 0)
		return r;
	n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || (uint64_t)n < min || (uint64_t)n > max)
		return err_set(err, -EINVAL, "\"%s\" is not a number from %" PRIu64 " to %" PRIu64, key, min, max);
	*ret = (uint64_t)n;
	return 0;
}

int json_get_array(const json_t *o, const char *key, size_t min, size_t max, const json_t **ret, struct err *err)
{
	const json_t *v;
	int r = find(o, key, true, &v, err);

	if (r < 0)
		return r;
	if (!json_is_array(v) || json_array_size(v) < min || json_array_size(v) > max)
		return err_set(err, -EINVAL, "\"%s\" is not an array of %zu to %zu elements", key, min, max);
	*ret = v;
	return 0;
}

int json_get_strings(const json_t *o, const char *key, size_t n, size_t max, char ***ret, struct err *err)
{
	const json_t *v;
	int r = find(o, key, false, &v, err);
	char **list;

	if (r <= 0)
		return r;
	if (!json_is_array(v) || json_array_size(v) > n)
		return err_set(err, -EINVAL, "\"%s\" is not an array of at most %zu strings", key, n);
	if (json_array_size(v) == 0)
		return 0;
	list = calloc(json_array_size(v) + 1, sizeof(*list));
	if (list == NULL)
		return err_set(err, -ENOMEM, "no memory");
	r = 0;
	for (size_t i = 0; r == 0 && i < json_array_size(v); i++) {
		const char *s = string_of(json_array_get(v, i), max);

		if (s == NULL)
			r = err_set(err, -EINVAL, "\"%s\": entry %zu is not a string of at most %zu bytes", key, i + 1, max);
		else
			r = copy(s, &list[i], err);
	}
	if (r < 0) {
		json_strings_free(list);
		return r;
	}
	*ret = list;
	return 0;
}

void json_strings_free(char **v)
{
	for (char **s = v; s != NULL && *s != NULL; s++)
		free(*s);
	free(v);
}

json_t *json_text(const char *s)
{
	_cleanup_free_ char *shown = s == NULL || text_is_utf8(s) ? NULL : text_escape_dup(s);

	return s == NULL ? NULL : json_string(shown != NULL ? shown : s);
}
