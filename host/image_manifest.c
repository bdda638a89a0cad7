/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of an image: its text, read and written (docs/images.md has the members).
 *
 * Trust: hostile, as if it came from elsewhere: its size, every string and every list have limits, names of files stay in
 * the image's directory, and the id has to be that of the layers. Members that are not known are ignored.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nettle/base16.h>

#include "host/image_store.h"
#include "host/sha256.h"
#include "lib/util.h"

enum { MANIFEST_VERSION = 2, STRING_MAX = 32 << 10, SECTOR = 512, TIME_TEXT = 32, HASH_LEN = 16 };

#define TIME_FORMAT "%Y-%m-%dT%H:%M:%SZ"
#define HEX "0123456789abcdef"

/* ---- reading ---- */

static int get_string(const json_t *o, const char *key, size_t max, bool required, const char **ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);

	*ret = NULL;
	if ((v == NULL || json_is_null(v)) && !required)
		return 0;
	if (!json_is_string(v) || json_string_length(v) > max)
		return err_set(err, -EINVAL, "manifest: \"%s\" is not a string of at most %zu bytes", key, max);
	*ret = json_string_value(v);
	return 0;
}

static int copy_string(const json_t *o, const char *key, size_t max, char **ret, struct err *err)
{
	const char *s;
	int r = get_string(o, key, max, false, &s, err);

	if (r < 0 || s == NULL)
		return r;
	*ret = strdup(s);
	return *ret == NULL ? err_set(err, -ENOMEM, "manifest: no memory") : 0;
}

static int copy_strings(const json_t *o, const char *key, char ***ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);
	size_t n = json_array_size(v);

	if (v == NULL || json_is_null(v))
		return 0;
	if (!json_is_array(v) || n > IMAGE_ENV_MAX)
		return err_set(err, -EINVAL, "manifest: \"%s\" is not an array of at most %d strings", key, IMAGE_ENV_MAX);
	*ret = calloc(n + 1, sizeof(**ret));
	if (*ret == NULL)
		return err_set(err, -ENOMEM, "manifest: no memory");
	for (size_t i = 0; i < n; i++) {
		const json_t *e = json_array_get(v, i);

		if (!json_is_string(e) || json_string_length(e) > STRING_MAX)
			return err_set(err, -EINVAL, "manifest: \"%s\" is not an array of strings", key);
		(*ret)[i] = strdup(json_string_value(e));
		if ((*ret)[i] == NULL)
			return err_set(err, -ENOMEM, "manifest: no memory");
	}
	return 0;
}

static int get_hex(const json_t *o, const char *key, size_t digits, bool required, char *ret, struct err *err)
{
	const char *s;
	int r = get_string(o, key, digits, required, &s, err);

	if (r < 0 || s == NULL)
		return r;
	if (strlen(s) != digits || s[strspn(s, HEX)] != '\0')
		return err_set(err, -EINVAL, "manifest: \"%s\" is not %zu hexadecimal digits", key, digits);
	memcpy(ret, s, digits + 1);
	return 0;
}

static int get_time(const json_t *o, int64_t *ret, struct err *err)
{
	const char *created, *end;
	struct tm tm = { 0 };
	int r = get_string(o, "created", TIME_TEXT, true, &created, err);

	if (r < 0)
		return r;
	end = strptime(created, TIME_FORMAT, &tm);
	if (end == NULL || *end != '\0')
		return err_set(err, -EINVAL, "manifest: \"created\" is '%.32s', not a time", created);
	*ret = timegm(&tm);
	return 0;
}

static int get_size(const json_t *o, const char *key, uint64_t unit, uint64_t *ret, struct err *err)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) <= 0 || (uint64_t)json_integer_value(v) % unit != 0)
		return err_set(err, -EINVAL, unit > 1 ? "manifest: \"%s\" is not a number of bytes in whole sectors" :
							"manifest: \"%s\" is not a number of bytes",
			       key);
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

/* A name in the image's directory, and not the manifest's. */
static bool is_file_name(const char *s)
{
	return *s != '\0' && *s != '.' && s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0' &&
	       strcmp(s, IMAGE_MANIFEST) != 0;
}

static bool is_url(const char *s)
{
	if (strncmp(s, "http://", 7) != 0 && strncmp(s, "https://", 8) != 0)
		return false;
	for (; *s != '\0'; s++)
		if (*s <= ' ' || *s >= 0x7f)
			return false;
	return true;
}

static int get_place(const json_t *o, struct image_layer *l, struct err *err)
{
	int r = copy_string(o, "file", IMAGE_FILE_MAX, &l->file, err);

	if (r == 0)
		r = copy_string(o, "url", IMAGE_URL_MAX, &l->url, err);
	if (r < 0)
		return r;
	if ((l->file == NULL) == (l->url == NULL))
		return err_set(err, -EINVAL, "manifest: a layer has either a \"file\" or a \"url\"");
	if (l->file != NULL && !is_file_name(l->file))
		return err_set(err, -EINVAL, "manifest: \"file\" is '%.128s', no name for a layer", l->file);
	if (l->url != NULL && !is_url(l->url))
		return err_set(err, -EINVAL, "manifest: \"url\" is '%.200s', no http:// or https:// address", l->url);
	return 0;
}

static int parse_layer(const json_t *o, size_t k, struct image_layer *l, struct err *err)
{
	const char *kind;
	char hash[HASH_LEN + 1] = "";
	int r = get_string(o, "kind", 8, true, &kind, err);

	if (r < 0 || kind == NULL)
		return r;
	l->raw = strcmp(kind, "raw") == 0;
	if (!l->raw && strcmp(kind, "lsmt") != 0)
		return err_set(err, -EINVAL, "manifest: \"kind\" is '%.8s', which is not known", kind);
	if (l->raw && k > 0)
		return err_set(err, -EINVAL, "manifest: a raw layer is the lowest or none");
	r = get_place(o, l, err);
	if (r == 0)
		r = get_size(o, "bytes", 1, &l->bytes, err);
	if (r == 0)
		r = get_hex(o, "sha256", IMAGE_SHA256_LEN, true, l->sha256, err);
	if (r == 0)
		r = get_hex(o, "xxh128", IMAGE_XXH_LEN, l->file != NULL, l->xxh, err);
	if (r == 0)
		r = get_hex(o, "index_hash", HASH_LEN, l->file != NULL && !l->raw, hash, err);
	if (r == 0 && !l->raw && l->file != NULL)
		l->index_hash = strtoull(hash, NULL, 16);
	if (r == 0)
		r = get_time(o, &l->created, err);
	return r < 0 ? r : copy_string(o, "message", IMAGE_MESSAGE_MAX, &l->message, err);
}

static int parse_layers(const json_t *o, struct image *image, struct err *err)
{
	const json_t *list = json_object_get(o, "layers");
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n < 1 || n > IMAGE_LAYERS_MAX)
		return err_set(err, -EINVAL, "manifest: \"layers\" is not an array of 1 to %d layers", IMAGE_LAYERS_MAX);
	image->layer = calloc(n, sizeof(*image->layer));
	if (image->layer == NULL)
		return err_set(err, -ENOMEM, "manifest: no memory");
	image->nlayers = n;
	for (size_t k = 0; k < n; k++) {
		int r = parse_layer(json_array_get(list, k), k, &image->layer[k], err);

		if (r < 0)
			return err_prefix(err, "layer %zu: ", k + 1), r;
	}
	if (image->layer[0].raw && image->layer[0].bytes > image->size)
		return err_set(err, -EINVAL, "manifest: layer 1 has %" PRIu64 " bytes, the disk %" PRIu64,
			       image->layer[0].bytes, image->size);
	return 0;
}

static int parse_object(const json_t *o, struct image *image, struct err *err)
{
	json_int_t version = json_integer_value(json_object_get(o, "version"));
	const char *format, *source;
	char id[IMAGE_SHA256_LEN + 1];
	int r;

	if (version == 1)
		return err_set(err, -EINVAL, "manifest: version 1: the image is from an earlier release: build it again, with --replace");
	if (version != MANIFEST_VERSION)
		return err_set(err, -EINVAL, "manifest: \"version\" is not %d: the image is from another release, build it again",
			       MANIFEST_VERSION);
	r = get_string(o, "format", 16, true, &format, err);
	if (r == 0 && image_format_parse(format, &image->format) < 0)
		r = err_set(err, -EINVAL, "manifest: \"format\" is '%.16s', which is not known", format);
	if (r == 0)
		r = get_time(o, &image->created, err);
	if (r == 0)
		r = get_string(o, "source", IMAGE_SOURCE_MAX, false, &source, err);
	if (r == 0)
		snprintf(image->source, sizeof(image->source), "%s", source != NULL ? source : "");
	if (r == 0)
		r = get_size(o, "size", SECTOR, &image->size, err);
	if (r == 0)
		r = get_hex(o, "id", IMAGE_SHA256_LEN, true, image->id, err);
	if (r == 0)
		r = parse_layers(o, image, err);
	if (r == 0) {
		image_id_compute(image, id);
		if (strcmp(id, image->id) != 0)
			r = err_set(err, -EINVAL, "manifest: \"id\" is not that of these layers");
	}
	if (r == 0)
		r = copy_string(o, "user", STRING_MAX, &image->user, err);
	if (r == 0)
		r = copy_string(o, "cwd", STRING_MAX, &image->cwd, err);
	if (r == 0)
		r = copy_strings(o, "env", &image->env, err);
	if (r == 0)
		r = copy_strings(o, "cmd", &image->cmd, err);
	return r;
}

int image_manifest_parse(const char *text, size_t len, struct image *ret, struct err *err)
{
	struct image image = { 0 };
	json_error_t e;
	json_t *o;
	int r;

	if (len > IMAGE_MANIFEST_MAX)
		return err_set(err, -EFBIG, "manifest: %zu bytes; at most %d are taken", len, IMAGE_MANIFEST_MAX);
	o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (o == NULL)
		return err_set(err, -EINVAL, "manifest: line %d: %s", e.line, e.text);
	r = json_is_object(o) ? parse_object(o, &image, err) : err_set(err, -EINVAL, "manifest: not an object");
	json_decref(o);
	if (r < 0) {
		image_finish(&image);
		return r;
	}
	*ret = image;
	return 0;
}

/* ---- writing ---- */

static json_t *strings_to_json(char *const *v)
{
	json_t *a = v == NULL ? json_null() : json_array();

	for (; a != NULL && v != NULL && *v != NULL; v++)
		if (json_array_append_new(a, json_string(*v)) < 0) {
			json_decref(a);
			return NULL;
		}
	return a;
}

static json_t *string_to_json(const char *s)
{
	return s == NULL ? json_null() : json_string(s);
}

void image_time_format(int64_t t, char ret[IMAGE_TIME_SIZE])
{
	time_t when = (time_t)t;
	struct tm tm;

	if (gmtime_r(&when, &tm) == NULL || strftime(ret, IMAGE_TIME_SIZE, TIME_FORMAT, &tm) == 0)
		snprintf(ret, IMAGE_TIME_SIZE, "1970-01-01T00:00:00Z");
}

json_t *image_layer_to_json(const struct image_layer *l)
{
	char when[IMAGE_TIME_SIZE], hash[HASH_LEN + 1];

	image_time_format(l->created, when);
	snprintf(hash, sizeof(hash), "%016" PRIx64, l->index_hash);
	return json_pack("{s:s, s:o*, s:o*, s:I, s:s, s:o*, s:o*, s:s, s:o}", "kind", l->raw ? "raw" : "lsmt", "file",
			 l->file != NULL ? json_string(l->file) : NULL, "url", l->url != NULL ? json_string(l->url) : NULL,
			 "bytes", (json_int_t)l->bytes, "sha256", l->sha256, "xxh128",
			 *l->xxh != '\0' ? json_string(l->xxh) : NULL, "index_hash",
			 l->file != NULL && !l->raw ? json_string(hash) : NULL, "created", when, "message",
			 string_to_json(l->message));
}

json_t *image_to_json(const struct image *image)
{
	char when[IMAGE_TIME_SIZE];
	json_t *layers = json_array();

	for (size_t k = 0; layers != NULL && k < image->nlayers; k++)
		if (json_array_append_new(layers, image_layer_to_json(&image->layer[k])) < 0) {
			json_decref(layers);
			return NULL;
		}
	image_time_format(image->created, when);
	return json_pack("{s:i, s:s, s:s, s:s, s:I, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "version", MANIFEST_VERSION, "name",
			 image->name, "created", when, "source", image->source, "size", (json_int_t)image->size, "id",
			 image->id, "format", image_format_name(image->format), "user", string_to_json(image->user), "cwd",
			 string_to_json(image->cwd), "env", strings_to_json(image->env), "cmd", strings_to_json(image->cmd),
			 "layers", layers);
}

char *image_manifest_format(const struct image *image)
{
	json_t *o = image_to_json(image);
	char *text = o != NULL ? json_dumps(o, JSON_INDENT(2)) : NULL;

	json_decref(o);
	return text;
}

void image_id_compute(const struct image *image, char ret[IMAGE_SHA256_LEN + 1])
{
	struct sha256_ctx s;

	sha256_init(&s);
	for (size_t k = 0; k < image->nlayers; k++) {
		uint8_t digest[SHA256_DIGEST_SIZE] = { 0 };
		struct base16_decode_ctx hex;
		size_t n = sizeof(digest);

		base16_decode_init(&hex);
		base16_decode_update(&hex, &n, digest, IMAGE_SHA256_LEN, image->layer[k].sha256);
		sha256_update(&s, sizeof(digest), digest);
	}
	sha256_end_hex(&s, ret);
}
