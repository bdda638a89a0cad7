/* SPDX-License-Identifier: Apache-2.0 */
/* Remote layers of an image: see remote_layers.h. */
#include "host/remote_layers.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/fetch_client.h"
#include "host/pull_creds.h"
#include "host/pull_ref.h"
#include "lib/fd.h"
#include "lib/opt.h"
#include "lib/util.h"

enum { CACHE_MIN = 1 << 20 };

int remote_layers_cache_size(uint64_t given, uint64_t *ret, struct err *err)
{
	const char *env = getenv("COFFER_CACHE_SIZE");

	*ret = given != 0 ? given : BLOB_CACHE_DEFAULT;
	if (given == 0 && env != NULL && *env != '\0' && (opt_parse_size(env, 1, ret) < 0 || *ret < CACHE_MIN))
		return err_set(err, -EINVAL, "COFFER_CACHE_SIZE: '%.40s' is no size of at least 1M", env);
	return 0;
}

int remote_layers_check_room(const struct remote_layers *r, uint64_t cache_size, struct err *err)
{
	uint64_t limit, sum = 0;
	int e = remote_layers_cache_size(cache_size, &limit, err);

	for (size_t i = 0; i < r->n; i++)
		sum += MIN(r->l[i].size, UINT64_MAX - sum);
	if (e == 0 && sum > limit)
		e = err_set(err, -ENOSPC,
			    "the layers have %llu KiB together, more than the %llu KiB that the cache may have: raise --cache-size",
			    (unsigned long long)(sum >> 10), (unsigned long long)(limit >> 10));
	return e;
}

int remote_layers_open(struct remote_layers *r, struct err *err)
{
	struct blob_cache cache;
	int e;

	/* Before anything can fail: the caller finishes all of them in any case. */
	for (size_t i = 0; i < r->n; i++) {
		struct remote_layers_one *l = &r->l[i];

		l->blob = BLOB_NONE;
		l->data_fd = l->table_fd = -1;
	}
	e = blob_cache_open(&cache, err);
	if (e < 0)
		return e;
	for (size_t i = 0; i < r->n && e == 0; i++) {
		struct remote_layers_one *l = &r->l[i];

		e = blob_cache_get(&cache, l->sha256, l->size, &l->blob, err);
		if (e == 0)
			e = blob_cache_readers(&cache, l->sha256, &l->data_fd, &l->table_fd, err);
		if (e == 0) {
			l->whole = blob_is_verified(&l->blob);
			l->number = l->whole ? 0 : (unsigned)r->served++;
		}
	}
	blob_cache_close(&cache);
	if (e < 0)
		remote_layers_finish(r);
	return e;
}

void remote_layers_finish(struct remote_layers *r)
{
	for (size_t i = 0; i < r->n; i++) {
		blob_close(&r->l[i].blob);
		r->l[i].data_fd = fd_close(r->l[i].data_fd);
		r->l[i].table_fd = fd_close(r->l[i].table_fd);
	}
	r->served = 0;
}

/* What is before "blobs/" in a URL is one repository, with a token of its own. */
static int repository_of(const char *url, char ret[PULL_URL_MAX])
{
	const char *end = strstr(url, "/blobs/");
	size_t n = end != NULL ? (size_t)(end - url) : strlen(url);

	if (n >= PULL_URL_MAX)
		return -ENAMETOOLONG;
	snprintf(ret, PULL_URL_MAX, "%.*s", (int)n, url);
	return 0;
}

struct auths {
	json_t *list;
	char key[64][PULL_URL_MAX]; /* of each */
	size_t n;
};

static int add_auth(struct auths *a, const char *url, struct err *err)
{
	char origin[PULL_ORIGIN_MAX];
	struct pull_access access;
	struct pull_creds creds;
	const char *path;
	int r;

	if (pull_origin(url, origin) < 0)
		return err_set(err, -EINVAL, "'%.200s' is no http:// or https:// address", url);
	r = pull_access_load(origin, &access, err);
	if (r < 0)
		return r;
	path = a->key[a->n] + strlen(origin);
	path += strncmp(path, "/v2/", 4) == 0 ? 4 : strspn(path, "/");
	r = pull_creds_find(access.creds_file, strstr(origin, "://") + 3, path, &creds, err);
	if (r == 0 && !pull_creds_may_go(origin, &access))
		pull_creds_finish(&creds);
	if (r == 0 &&
	    json_array_append_new(a->list, json_pack("{s:s, s:s*, s:s*, s:s*}", "origin", origin, "user", creds.user, "password",
						     creds.password, "ca_file", access.ca_file)) < 0)
		r = err_set(err, -EINVAL, "the credentials for %s are not UTF-8", origin);
	if (r == 0)
		pull_creds_finish(&creds);
	pull_access_finish(&access);
	return r;
}

static int auth_of(struct auths *a, const char *url, struct err *err)
{
	int r;

	if (a->n == ARRAY_SIZE(a->key))
		return err_set(err, -E2BIG, "the layers come from more than %zu places", ARRAY_SIZE(a->key));
	r = repository_of(url, a->key[a->n]);
	if (r < 0)
		return err_set(err, r, "'%.100s...' is too long", url);
	for (size_t i = 0; i < a->n; i++)
		if (strcmp(a->key[i], a->key[a->n]) == 0)
			return (int)i;
	r = add_auth(a, url, err);
	return r < 0 ? r : (int)a->n++;
}

static int add_blobs(const struct remote_layers *r, json_t *config, int *keep, size_t *nkeep, struct err *err)
{
	_cleanup_free_ struct auths *a = calloc(1, sizeof(*a));
	json_t *blobs = json_array();
	int e = a != NULL ? 0 : -ENOMEM;

	if (a != NULL)
		a->list = json_array();
	for (size_t i = 0; i < r->n && e >= 0; i++) {
		const struct remote_layers_one *l = &r->l[i];

		if (l->whole)
			continue;
		e = auth_of(a, l->url, err);
		if (e < 0)
			break;
		keep[(*nkeep)++] = l->blob.data_fd;
		keep[(*nkeep)++] = l->blob.chunks_fd;
		json_array_append_new(blobs, json_pack("{s:i, s:i, s:s, s:i, s:s, s:I}", "data", l->blob.data_fd, "chunks",
						       l->blob.chunks_fd, "url", l->url, "auth", e, "sha256", l->sha256, "size",
						       (json_int_t)l->size));
	}
	json_object_set_new(config, "blobs", blobs);
	if (a != NULL)
		json_object_set_new(config, "auth", a->list);
	return e < 0 ? e : 0;
}

/* In a file in memory: it may be longer than a pipe. */
static int write_config(const json_t *config, struct err *err)
{
	_cleanup_close_ int fd = memfd_create("fetch", MFD_CLOEXEC);
	char *text = json_dumps(config, JSON_COMPACT);
	int r = fd < 0 ? -errno : text == NULL ? -EINVAL : fd_write_full(fd, text, strlen(text));

	free(text);
	if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
		r = -errno;
	return r < 0 ? err_errno(err, r, "configure coffer-fetch") : TAKE_FD(fd);
}

pid_t remote_layers_serve(const struct remote_layers *r, const struct remote_layers_options *o, const int *socks, size_t nsocks,
			  struct err *err)
{
	_cleanup_free_ int *keep = calloc(2 * r->n + nsocks + 1, sizeof(*keep));
	_cleanup_close_ int in = -1;
	struct blob_cache cache = { .fd = -1 };
	json_t *config = json_object(), *list = json_array();
	uint64_t cache_size;
	size_t nkeep = 0;
	int e = remote_layers_cache_size(o->cache_size, &cache_size, err);

	if (e == 0)
		e = blob_cache_open(&cache, err);
	if (e == 0 && keep == NULL) {
		blob_cache_close(&cache);
		e = err_set(err, -ENOMEM, "no memory");
	}
	if (e < 0 || keep == NULL || r->served == 0) {
		json_decref(config);
		json_decref(list);
		if (e == 0)
			blob_cache_close(&cache);
		return e;
	}
	keep[nkeep++] = cache.fd;
	for (size_t i = 0; i < nsocks; i++) {
		keep[nkeep++] = socks[i];
		json_array_append_new(list, json_integer(socks[i]));
	}
	json_object_set_new(config, "sockets", list);
	json_object_set_new(config, "cache", json_integer(cache.fd));
	json_object_set_new(config, "cache_size", json_integer((json_int_t)cache_size));
	json_object_set_new(config, "fetch", json_string(o->mode != NULL ? o->mode : "background"));
	if (o->timeout_ms != 0)
		json_object_set_new(config, "timeout_ms", json_integer((json_int_t)o->timeout_ms));
	e = add_blobs(r, config, keep, &nkeep, err);
	if (e == 0)
		e = in = write_config(config, err);
	if (e >= 0)
		e = fetch_spawn("serve", in, o->log_fd, keep, nkeep, err);
	json_decref(config);
	blob_cache_close(&cache);
	return e;
}
