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
#include "host/json_get.h"
#include "host/sha256.h"
#include "lib/text.h"
#include "lib/util.h"

enum { MANIFEST_VERSION = 2, STRING_MAX = 32 << 10, SECTOR = 512, TIME_TEXT = 32, HASH_LEN = 16 };

#define TIME_FORMAT "%Y-%m-%dT%H:%M:%SZ"

/* ---- reading ---- */

static int get_time(const json_t *o, int64_t *ret, struct err *err)
{
	const char *created = NULL, *end;
	struct tm tm = { 0 };
	int r = json_get_string(o, "created", TIME_TEXT, true, &created, err);

	if (r < 0 || created == NULL)
		return r;
	end = strptime(created, TIME_FORMAT, &tm);
	if (end == NULL || *end != '\0')
		return err_set(err, -EINVAL, "\"created\" is '%.32s', not a time", created);
	*ret = timegm(&tm);
	return 0;
}

static int get_size(const json_t *o, uint64_t *ret, struct err *err)
{
	int r = json_get_u64(o, "size", SECTOR, INT64_MAX, ret, err);

	return r == 0 && *ret % SECTOR != 0 ? err_set(err, -EINVAL, "\"size\" is not a number of bytes in whole sectors") : r;
}

/* A name in the image's directory, and not the manifest's. */
static bool is_file_name(const char *s)
{
	return *s != '\0' && *s != '.' && s[strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789._-")] == '\0' &&
	       strcmp(s, IMAGE_MANIFEST) != 0;
}

bool image_url_is_valid(const char *s)
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
	int r = json_get_copy(o, "file", IMAGE_FILE_MAX, false, &l->file, err);

	if (r == 0)
		r = json_get_copy(o, "url", IMAGE_URL_MAX, false, &l->url, err);
	if (r < 0)
		return r;
	if ((l->file == NULL) == (l->url == NULL))
		return err_set(err, -EINVAL, "a layer has either a \"file\" or a \"url\"");
	if (l->file != NULL && !is_file_name(l->file))
		return err_set(err, -EINVAL, "\"file\" is '%s', no name for a layer", TEXT_CUT(l->file));
	if (l->url != NULL && !image_url_is_valid(l->url))
		return err_set(err, -EINVAL, "\"url\" is '%s', no http:// or https:// address", TEXT_CUT(l->url));
	return 0;
}

static int parse_layer(const json_t *o, size_t k, struct image_layer *l, struct err *err)
{
	const char *kind = NULL;
	char hash[HASH_LEN + 1] = "";
	int r = json_get_string(o, "kind", 8, true, &kind, err);

	if (r < 0 || kind == NULL)
		return r;
	l->raw = strcmp(kind, "raw") == 0;
	if (!l->raw && strcmp(kind, "lsmt") != 0)
		return err_set(err, -EINVAL, "\"kind\" is '%.8s', which is not known", kind);
	if (l->raw && k > 0)
		return err_set(err, -EINVAL, "a raw layer is the lowest or none");
	r = get_place(o, l, err);
	if (r == 0)
		r = json_get_u64(o, "bytes", 1, INT64_MAX, &l->bytes, err);
	if (r == 0)
		r = json_get_hex(o, "sha256", IMAGE_SHA256_LEN, true, l->sha256, err);
	if (r == 0)
		r = json_get_hex(o, "xxh128", IMAGE_XXH_LEN, l->file != NULL, l->xxh, err);
	if (r == 0)
		r = json_get_hex(o, "index_hash", HASH_LEN, l->file != NULL && !l->raw, hash, err);
	if (r == 0 && !l->raw && l->file != NULL)
		l->index_hash = strtoull(hash, NULL, 16);
	if (r == 0)
		r = get_time(o, &l->created, err);
	return r < 0 ? r : json_get_copy(o, "message", IMAGE_MESSAGE_MAX, false, &l->message, err);
}

static int parse_layers(const json_t *o, struct image *image, struct err *err)
{
	const json_t *list = NULL;
	int r = json_get_array(o, "layers", 1, IMAGE_LAYERS_MAX, &list, err);
	size_t n = json_array_size(list);

	if (r < 0)
		return r;
	image->layer = calloc(n, sizeof(*image->layer));
	if (image->layer == NULL)
		return err_set(err, -ENOMEM, "no memory");
	image->nlayers = n;
	for (size_t k = 0; k < n; k++) {
		r = parse_layer(json_array_get(list, k), k, &image->layer[k], err);
		if (r < 0)
			return err_prefix(err, "layer %zu: ", k + 1), r;
	}
	if (image->layer[0].raw && image->layer[0].bytes > image->size)
		return err_set(err, -EINVAL, "layer 1 has %" PRIu64 " bytes, the disk %" PRIu64,
			       image->layer[0].bytes, image->size);
	return 0;
}

static int parse_object(const json_t *o, struct image *image, struct err *err)
{
	json_int_t version = json_integer_value(json_object_get(o, "version"));
	const char *format = NULL, *source = NULL;
	char id[IMAGE_SHA256_LEN + 1];
	int r;

	if (version == 1)
		return err_set(err, -EINVAL, "version 1: the image is from an earlier release: build it again, with --replace");
	if (version != MANIFEST_VERSION)
		return err_set(err, -EINVAL, "\"version\" is not %d: the image is from another release, build it again",
			       MANIFEST_VERSION);
	r = json_get_string(o, "format", 16, true, &format, err);
	if (r == 0 && format != NULL && image_format_parse(format, &image->format) < 0)
		r = err_set(err, -EINVAL, "\"format\" is '%.16s', which is not known", format);
	if (r == 0)
		r = get_time(o, &image->created, err);
	if (r == 0)
		r = json_get_string(o, "source", IMAGE_SOURCE_MAX, false, &source, err);
	if (r == 0)
		snprintf(image->source, sizeof(image->source), "%s", source != NULL ? source : "");
	if (r == 0)
		r = get_size(o, &image->size, err);
	if (r == 0)
		r = json_get_hex(o, "id", IMAGE_SHA256_LEN, true, image->id, err);
	if (r == 0)
		r = parse_layers(o, image, err);
	if (r == 0) {
		image_id_compute(image, id);
		if (strcmp(id, image->id) != 0)
			r = err_set(err, -EINVAL, "\"id\" is not that of these layers");
	}
	if (r == 0)
		r = json_get_copy(o, "user", STRING_MAX, false, &image->user, err);
	if (r == 0)
		r = json_get_copy(o, "cwd", STRING_MAX, false, &image->cwd, err);
	if (r == 0)
		r = json_get_strings(o, "env", IMAGE_ENV_MAX, STRING_MAX, &image->env, err);
	if (r == 0)
		r = json_get_strings(o, "cmd", IMAGE_ENV_MAX, STRING_MAX, &image->cmd, err);
	return r;
}

int image_manifest_parse(const char *text, size_t len, struct image *ret, struct err *err)
{
	struct image image = { 0 };
	json_t *o = json_get_document(text, len, IMAGE_MANIFEST_MAX, JSON_OBJECT, err);
	int r = o == NULL ? -EINVAL : parse_object(o, &image, err);

	json_decref(o);
	if (r < 0) {
		image_finish(&image);
		return err_prefix(err, "manifest: "), r;
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
