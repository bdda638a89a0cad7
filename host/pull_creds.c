/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials and how a registry is reached: see pull_creds.h. Files of credentials are the user's own; they are read with limits. */
#include "host/pull_creds.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/file.h"
#include "lib/fd.h"
#include "lib/util.h"

#define HUB_ADDRESS "registry-1.docker.io"

enum { FILE_MAX = 1 << 20, SECRET_MAX = 64 << 10 };

void pull_creds_finish(struct pull_creds *c)
{
	free(c->user);
	free(c->password);
	*c = (struct pull_creds){ NULL, NULL };
}

/* USER:PASSWORD */
static int split(char *text, struct pull_creds *ret)
{
	char *colon = strchr(text, ':');

	if (colon == NULL || colon == text)
		return -EINVAL;
	ret->user = strndup(text, (size_t)(colon - text));
	ret->password = strdup(colon + 1);
	if (ret->user != NULL && ret->password != NULL)
		return 0;
	pull_creds_finish(ret);
	return -ENOMEM;
}

static int decode(const char *auth, struct pull_creds *ret)
{
	size_t n = strlen(auth), len = BASE64_DECODE_LENGTH(n);
	_cleanup_free_ char *text = n <= SECRET_MAX ? calloc(1, len + 1) : NULL;
	struct base64_decode_ctx ctx;

	if (text == NULL)
		return -EINVAL;
	base64_decode_init(&ctx);
	if (!base64_decode_update(&ctx, &len, (uint8_t *)text, n, auth) || !base64_decode_final(&ctx) || strlen(text) != len)
		return -EINVAL;
	return split(text, ret);
}

/* The entry of HOST/REPOSITORY, or of what it begins with, the longest; else of the host, in any of the ways it is written. */
static const json_t *find_entry(const json_t *auths, const char *host, const char *repository)
{
	char key[PULL_ORIGIN_MAX + PULL_REPOSITORY_MAX + 32];
	const json_t *e;

	snprintf(key, sizeof(key), "%s/%s", host, repository);
	for (char *slash = key + strlen(key); slash != NULL; slash = strrchr(key, '/')) {
		*slash = '\0';
		e = json_object_get(auths, key);
		if (e != NULL)
			return e;
	}
	static const char *const forms[] = { "https://%s", "https://%s/", "https://%s/v1/", "https://%s/v2/", "http://%s" };

	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		const char *rest = strchr(forms[i], '%') + 2;

		snprintf(key, sizeof(key), "%.*s%s%s", (int)(rest - 2 - forms[i]), forms[i], host, rest);
		e = json_object_get(auths, key);
		if (e != NULL)
			return e;
	}
	if (strcmp(host, HUB_ADDRESS) == 0) /* of which an image's layers are */
		return find_entry(auths, "docker.io", repository);
	return strcmp(host, "docker.io") == 0 ? json_object_get(auths, "https://index.docker.io/v1/") : NULL;
}

int pull_creds_parse(char *text, unsigned long len, const char *host, const char *repository, struct pull_creds *ret,
		     struct err *err)
{
	const char *begin = text + strspn(text, " \t\r\n"), *user, *password, *auth;
	const json_t *e;
	json_t *o;
	int r;

	*ret = (struct pull_creds){ NULL, NULL };
	if (*begin != '{') {
		text[strcspn(text, "\r\n")] = '\0';
		r = split(text, ret);
		return r == 0 ? 1 : err_set(err, r, "neither JSON of the form { \"auths\": ... } nor one line USER:PASSWORD");
	}
	o = json_loadb(text, len, 0, NULL);
	e = find_entry(json_object_get(o, "auths"), host, repository);
	user = json_string_value(json_object_get(e, "username"));
	password = json_string_value(json_object_get(e, "password"));
	auth = json_string_value(json_object_get(e, "auth"));
	if (o == NULL)
		r = err_set(err, -EINVAL, "not JSON");
	else if (auth != NULL && *auth != '\0')
		r = decode(auth, ret) == 0 ? 1 : err_set(err, -EINVAL, "the entry of %s is not USER:PASSWORD in base64", host);
	else if (user != NULL && password != NULL) {
		ret->user = strdup(user);
		ret->password = strdup(password);
		r = 1;
	} else if (json_object_get(e, "identitytoken") != NULL)
		r = err_set(err, -EOPNOTSUPP, "the entry of %s has an identity token, which Coffer does not use: give a password", host);
	else
		r = 0;
	json_decref(o);
	return r;
}

static int read_creds(const char *path, const char *host, const char *repository, struct pull_creds *ret, struct err *err)
{
	_cleanup_free_ uint8_t *text = NULL;
	size_t len;
	int r = file_read(path, FILE_MAX, &text, &len, err);

	if (r < 0)
		return r;
	r = pull_creds_parse((char *)text, len, host, repository, ret, err);
	if (r < 0)
		err_prefix(err, "credentials in '%s': ", path);
	return r;
}

int pull_creds_find(const char *file, const char *host, const char *repository, struct pull_creds *ret, struct err *err)
{
	static const struct {
		const char *env, *sub;
	} places[] = { { "XDG_RUNTIME_DIR", "containers/auth.json" }, { "XDG_CONFIG_HOME", "containers/auth.json" },
		       { "HOME", ".config/containers/auth.json" }, { "DOCKER_CONFIG", "config.json" }, { "HOME", ".docker/config.json" } };
	char path[PATH_MAX];
	int r;

	*ret = (struct pull_creds){ NULL, NULL };
	if (file != NULL) {
		r = read_creds(file, host, repository, ret, err);
		if (r == 0)
			return err_set(err, -ENOENT, "'%s' has no credentials for %s", file, host);
		return r < 0 ? r : 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		const char *dir = getenv(places[i].env);

		if (dir == NULL || *dir != '/' || snprintf(path, sizeof(path), "%s/%s", dir, places[i].sub) >= (int)sizeof(path) ||
		    access(path, F_OK) < 0)
			continue;
		r = read_creds(path, host, repository, ret, err);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	return 0;
}

bool pull_creds_may_go(const char *origin, const struct pull_access *a)
{
	return strncmp(origin, "https://", 8) == 0 || pull_is_loopback(origin) || a->insecure;
}

/* ---- how it is reached ---- */

/* BASE/registries/HOST_PORT.json; nothing of an origin can leave the directory. */
static int access_path(const char *origin, bool make, char ret[PATH_MAX], struct err *err)
{
	char dir[PATH_MAX - PULL_ORIGIN_MAX - 8], name[PULL_ORIGIN_MAX];
	const char *host = strstr(origin, "://");
	int r = file_data_dir("registries", dir, sizeof(dir), err);

	if (r == 0 && make)
		r = file_make_dirs(dir, 0700, err);
	if (r < 0)
		return r;
	snprintf(name, sizeof(name), "%s", host != NULL ? host + 3 : origin);
	for (char *p = name; *p != '\0'; p++)
		if (*p == '/' || *p == ':' || *p == '[' || *p == ']')
			*p = '_';
	snprintf(ret, PATH_MAX, "%s/%s.json", dir, name);
	return 0;
}

int pull_access_save(const char *origin, const struct pull_access *a, struct err *err)
{
	char path[PATH_MAX];
	json_t *o;
	char *text;
	int r = access_path(origin, true, path, err);

	if (r < 0)
		return r;
	if (a->ca_file == NULL && a->creds_file == NULL && !a->insecure) {
		unlink(path);
		return 0;
	}
	o = json_pack("{s:s*, s:s*, s:b}", "ca_file", a->ca_file, "creds_file", a->creds_file, "insecure", a->insecure);
	text = o != NULL ? json_dumps(o, JSON_INDENT(2)) : NULL;
	json_decref(o);
	if (text == NULL)
		return err_set(err, -EINVAL, "--ca-file or --creds-file is not UTF-8");
	r = file_write_atomic(path, text, strlen(text), 0600, false, err);
	free(text);
	return r;
}

int pull_access_load(const char *origin, struct pull_access *ret, struct err *err)
{
	_cleanup_free_ uint8_t *text = NULL;
	const char *ca, *creds;
	char path[PATH_MAX];
	size_t len;
	json_t *o;
	int r = access_path(origin, false, path, err);

	*ret = (struct pull_access){ .ca_file = NULL };
	if (r < 0)
		return r;
	if (access(path, F_OK) < 0)
		return 0;
	r = file_read(path, FILE_MAX, &text, &len, err);
	if (r < 0)
		return r;
	o = json_loadb((const char *)text, len, 0, NULL);
	ca = json_string_value(json_object_get(o, "ca_file"));
	creds = json_string_value(json_object_get(o, "creds_file"));
	ret->ca_file = ca != NULL ? strdup(ca) : NULL;
	ret->creds_file = creds != NULL ? strdup(creds) : NULL;
	ret->insecure = json_is_true(json_object_get(o, "insecure"));
	json_decref(o);
	return 0;
}

void pull_access_finish(struct pull_access *a)
{
	free(a->ca_file);
	free(a->creds_file);
	*a = (struct pull_access){ .ca_file = NULL };
}
