/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `coffer-fetch serve` is told, one JSON object on stdin from the `coffer` that starts it (docs/remote.md has its members).
 * It is trusted as much as that process; what it has of an image (URLs, digests, sizes) has been checked there, and is checked
 * again where it matters.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "host/fetch/serve.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { MS_MAX = 3600 * 1000 };

static uint64_t get_number(const json_t *o, const char *key, uint64_t otherwise, uint64_t max)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return otherwise;
	return MIN((uint64_t)json_integer_value(v), max);
}

static int get_fd(const json_t *v)
{
	json_int_t fd = json_is_integer(v) ? json_integer_value(v) : -1;

	if (fd < 0 || fd > INT32_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return -1;
	return (int)fd;
}

static char *copy(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? strdup(s) : NULL;
}

int serve_auth_from_json(const void *json, struct http_auth *ret, struct err *err)
{
	const char *origin = json_string_value(json_object_get(json, "origin"));
	int r;

	*ret = (struct http_auth){ .user = NULL };
	if (origin == NULL)
		return err_set(err, -EINVAL, "auth: no origin");
	r = http_origin(origin, ret->origin, err);
	if (r < 0)
		return r;
	ret->user = copy(json, "user");
	ret->password = copy(json, "password");
	ret->ca_file = copy(json, "ca_file");
	if ((ret->user == NULL) != (ret->password == NULL)) {
		http_auth_finish(ret);
		return err_set(err, -EINVAL, "auth: a user without a password");
	}
	return 0;
}

static int take_sockets(struct serve *s, const json_t *list, struct err *err)
{
	size_t n = json_array_size(list);

	if (n == 0 || n > SERVE_CLIENTS)
		return err_set(err, -EINVAL, "sockets: 1 to %d", SERVE_CLIENTS);
	s->client = calloc(n, sizeof(*s->client));
	if (s->client == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (; s->nclients < n; s->nclients++) {
		struct client *c = &s->client[s->nclients];

		c->fd = get_fd(json_array_get(list, s->nclients));
		if (c->fd < 0)
			return err_set(err, -EBADF, "sockets: a descriptor that is not open");
		c->want = calloc(REMOTE_WANTS, sizeof(*c->want));
		if (c->want == NULL) {
			s->nclients++;
			return err_set(err, -ENOMEM, "no memory");
		}
	}
	return 0;
}

static int take_auths(struct serve *s, const json_t *list, struct err *err)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		int r = s->nauths == SERVE_AUTHS ? err_set(err, -E2BIG, "auth: more than %d", SERVE_AUTHS) :
						   serve_auth_from_json(json_array_get(list, i), &s->auth[s->nauths], err);

		if (r < 0)
			return r;
		s->nauths++;
	}
	return 0;
}

static int take_blob(struct serve *s, const json_t *o, struct served *v, struct err *err)
{
	const char *sha256 = json_string_value(json_object_get(o, "sha256"));
	uint64_t auth = get_number(o, "auth", UINT64_MAX, UINT64_MAX);
	int data = get_fd(json_object_get(o, "data")), chunks = get_fd(json_object_get(o, "chunks")), r;
	char origin[HTTP_ORIGIN_MAX];

	if (data < 0 || chunks < 0)
		return err_set(err, -EBADF, "blobs: a descriptor that is not open");
	v->url = copy(o, "url");
	if (v->url == NULL || sha256 == NULL || strlen(sha256) != BLOB_CACHE_SHA256 || auth >= s->nauths)
		return err_set(err, -EINVAL, "blobs: url, sha256 or auth is missing");
	r = http_origin(v->url, origin, err);
	if (r < 0)
		return r;
	r = blob_adopt(data, chunks, get_number(o, "size", 0, REMOTE_SIZE_MAX), v->url, &v->b, err);
	if (r < 0)
		return r;
	memcpy(v->sha256, sha256, sizeof(v->sha256));
	v->auth = &s->auth[auth];
	return serve_blob_init(v) < 0 ? err_set(err, -ENOMEM, "no memory") : 0;
}

static int take_blobs(struct serve *s, const json_t *list, struct err *err)
{
	size_t n = json_array_size(list);

	if (n == 0 || n > REMOTE_BLOBS)
		return err_set(err, -EINVAL, "blobs: 1 to %d", REMOTE_BLOBS);
	s->blob = calloc(n, sizeof(*s->blob));
	if (s->blob == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (; s->nblobs < n; s->nblobs++) {
		struct served *v = &s->blob[s->nblobs];
		int r;

		*v = (struct served){ .s = s, .number = s->nblobs, .b = BLOB_NONE };
		r = take_blob(s, json_array_get(list, s->nblobs), v, err);
		if (r < 0) {
			s->nblobs++;
			return r;
		}
	}
	return 0;
}

static int take_buffers(struct serve *s, struct err *err)
{
	for (int i = 0; i < SERVE_TRANSFERS; i++) {
		s->transfer[i].buf = malloc(1u << REMOTE_SHIFT_MAX);
		if (s->transfer[i].buf == NULL)
			return err_set(err, -ENOMEM, "no memory");
	}
	return 0;
}

static int take(struct serve *s, const json_t *o, struct err *err)
{
	const char *mode = json_string_value(json_object_get(o, "fetch"));
	int r;

	s->mode = mode != NULL && strcmp(mode, "all") == 0 ? SERVE_ALL : mode != NULL && strcmp(mode, "lazy") == 0 ? SERVE_LAZY :
														     SERVE_BACKGROUND_TOO;
	s->cache_size = get_number(o, "cache_size", BLOB_CACHE_DEFAULT, UINT64_MAX);
	s->check_every = MIN(MIB(32), s->cache_size / 8);
	s->filled = s->check_every; /* look at once */
	s->timeout_ms = get_number(o, "timeout_ms", 60000, MS_MAX);
	s->stall_ms = MAX(get_number(o, "stall_ms", 15000, MS_MAX), (uint64_t)1);
	s->backoff_min_ms = MAX(get_number(o, "backoff_min_ms", 200, MS_MAX), (uint64_t)1);
	s->backoff_max_ms = MAX(get_number(o, "backoff_max_ms", 5000, MS_MAX), s->backoff_min_ms);
	s->idle_ms = get_number(o, "idle_ms", 1000, MS_MAX);
	s->note_ms = MAX(get_number(o, "note_ms", 1000, MS_MAX), (uint64_t)1);
	s->ca_file = copy(o, "ca_file");
	s->cache.fd = get_fd(json_object_get(o, "cache"));
	if (s->cache.fd < 0)
		return err_set(err, -EBADF, "cache: a descriptor that is not open");
	r = take_sockets(s, json_object_get(o, "sockets"), err);
	if (r == 0)
		r = take_auths(s, json_object_get(o, "auth"), err);
	if (r == 0)
		r = take_blobs(s, json_object_get(o, "blobs"), err);
	return r < 0 ? r : take_buffers(s, err);
}

int serve_configure(struct serve *s, const char *text, size_t len, struct err *err)
{
	json_error_t e;
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	int r = o == NULL ? err_set(err, -EINVAL, "the configuration is not JSON: %.100s", e.text) : take(s, o, err);

	json_decref(o);
	if (r < 0)
		return r;
	s->jitter = (unsigned)http_now_ms();
	return http_init(&s->http, s->ca_file, s->stall_ms, err);
}
