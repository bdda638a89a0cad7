/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of images: see pull_ref.h. The grammar of repositories and tags is that of the OCI distribution specification;
 * what it does not allow is refused here, so that nothing in a name can change the URL that is made of it. */
#include "host/pull_ref.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "host/oci_manifest.h"
#include "lib/text.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

static bool is_tag(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && n <= PULL_TAG_MAX && *s != '.' && *s != '-' && strspn(s, LOWER UPPER DIGITS "._-") == n;
}

/* Parts of lower-case letters and digits, with separators inside only. */
static bool is_repository(const char *s)
{
	size_t n = strlen(s);

	if (n == 0 || n > PULL_REPOSITORY_MAX || strspn(s, LOWER DIGITS "._-/") != n)
		return false;
	for (const char *p = s;; p++) {
		size_t part = strcspn(p, "/");

		if (part == 0 || strchr("._-", p[0]) != NULL || strchr("._-", p[part - 1]) != NULL)
			return false;
		p += part;
		if (*p == '\0')
			return true;
	}
}

/* HOST, [IPV6], with :PORT or without. */
static bool is_host(const char *s, size_t n)
{
	size_t host = n > 0 && *s == '[' ? strspn(s + 1, DIGITS "abcdefABCDEF:.") + 2 : strspn(s, LOWER UPPER DIGITS ".-");
	size_t port;

	if (n == 0 || n >= PULL_ORIGIN_MAX - 10 || host > n || (*s == '[' && s[host - 1] != ']') || host == 0 || *s == '-' || *s == '.')
		return false;
	if (host == n)
		return true;
	port = strspn(s + host + 1, DIGITS);
	return s[host] == ':' && port > 0 && port < 6 && host + 1 + port == n;
}

bool pull_is_loopback(const char *url_or_host)
{
	const char *scheme = strstr(url_or_host, "://"), *host = scheme != NULL ? scheme + 3 : url_or_host;
	size_t n = strcspn(host, "/");

	if (strncmp(host, "[::1]", 5) == 0)
		return n == 5 || host[5] == ':';
	n = strcspn(host, "/:");
	if (n == 9 && strncasecmp(host, "localhost", 9) == 0)
		return true;
	return n >= 5 && strncmp(host, "127.", 4) == 0 && strspn(host, DIGITS ".") >= n;
}

int pull_origin(const char *url, char ret[PULL_ORIGIN_MAX])
{
	size_t scheme = strncmp(url, "https://", 8) == 0 ? 8 : strncmp(url, "http://", 7) == 0 ? 7 : 0;
	size_t host = strcspn(url + scheme, "/?#");

	if (scheme == 0 || !is_host(url + scheme, host))
		return -EINVAL;
	snprintf(ret, PULL_ORIGIN_MAX, "%.*s", (int)(scheme + host), url);
	return 0;
}

static int parse_directory(const char *text, struct pull_ref *ret, struct err *err)
{
	const char *name = strchr(text, '#');
	size_t n = name != NULL ? (size_t)(name - text) : strlen(text);
	bool slash = n > 0 && text[n - 1] == '/';

	ret->kind = PULL_DIRECTORY;
	if (pull_origin(text, ret->origin) < 0)
		return err_set(err, -EINVAL, "'%s': wanted is http(s)://HOST[:PORT]/DIRECTORY/[#NAME], without a user in it", TEXT_CUT(text));
	for (size_t i = 0; i < n; i++)
		if (text[i] <= ' ' || text[i] >= 0x7f || strchr("?\"\\<>^`{|}", text[i]) != NULL)
			return err_set(err, -EINVAL, "'%s': '%c' must not be in the address of a directory", TEXT_CUT(text), text[i]);
	if (n + 100 > sizeof(ret->base))
		return err_set(err, -ENAMETOOLONG, "'%.60s...' is too long", text);
	snprintf(ret->base, sizeof(ret->base), "%.*s%s", (int)n, text, slash ? "" : "/");
	snprintf(ret->host, sizeof(ret->host), "%s", strstr(ret->origin, "://") + 3);
	if (name != NULL && !is_tag(name + 1))
		return err_set(err, -EINVAL, "'%s': what follows '#' is no name of an image in an index", TEXT_CUT(text));
	snprintf(ret->tag, sizeof(ret->tag), "%s", name != NULL ? name + 1 : "");
	return 0;
}

static int split_registry(const char *text, const char *rest, struct pull_ref *ret, struct err *err)
{
	const char *at = strchr(rest, '@'), *slash = strrchr(rest, '/'), *colon = strchr(slash != NULL ? slash : rest, ':');
	const char *end = at != NULL ? at : colon;
	size_t n = end != NULL ? (size_t)(end - rest) : strlen(rest);

	if (at != NULL && colon != NULL && colon < at)
		n = (size_t)(colon - rest); /* NAME:TAG@DIGEST: the digest decides */
	if (n > PULL_REPOSITORY_MAX)
		return err_set(err, -ENAMETOOLONG, "'%s': its repository has more than %d characters", TEXT_CUT(text), PULL_REPOSITORY_MAX);
	snprintf(ret->repository, sizeof(ret->repository), "%.*s", (int)n, rest);
	snprintf(ret->tag, sizeof(ret->tag), "%.*s", PULL_TAG_MAX, end != NULL ? end + 1 : "latest");
	ret->by_digest = at != NULL;
	if (!is_repository(ret->repository))
		return err_set(err, -EINVAL, "'%s': '%s' is no name of a repository (lower-case letters, digits, . _ - and /)",
			       TEXT_CUT(text), TEXT_CUT(ret->repository));
	if (at != NULL ? !oci_is_digest(at + 1) : !is_tag(end != NULL ? end + 1 : "latest"))
		return err_set(err, -EINVAL, "'%s': '%s' is %s", TEXT_CUT(text), TEXT_CUT(end != NULL ? end + 1 : ""),
			       at != NULL ? "no digest of the form sha256:HEX" : "no tag");
	return 0;
}

int pull_ref_parse(const char *text, bool insecure, bool tls, struct pull_ref *ret, struct err *err)
{
	const char *rest = text, *slash;
	bool scheme = strncmp(text, "docker://", 9) == 0;
	char repository[PULL_REPOSITORY_MAX + 1];
	size_t n;
	int r;

	*ret = (struct pull_ref){ .kind = PULL_REGISTRY };
	if (strncmp(text, "http://", 7) == 0 || strncmp(text, "https://", 8) == 0)
		return parse_directory(text, ret, err);
	if (scheme)
		rest += 9;
	slash = strchr(rest, '/');
	n = slash != NULL ? (size_t)(slash - rest) : 0;
	if (n == 0 || !is_host(rest, n) ||
	    (!scheme && memchr(rest, '.', n) == NULL && memchr(rest, ':', n) == NULL && strncmp(rest, "localhost/", 10) != 0))
		return err_set(err, -EINVAL,
			       "'%s': wanted is docker://HOST[:PORT]/REPOSITORY[:TAG|@DIGEST] or http(s)://HOST/DIRECTORY/", TEXT_CUT(text));
	snprintf(ret->host, sizeof(ret->host), "%.*s", (int)n, rest);
	r = split_registry(text, slash + 1, ret, err);
	if (r < 0)
		return r;
	/* The one registry whose own name is not its address, and whose own images have a prefix that nobody writes. */
	if (strcmp(ret->host, "docker.io") == 0) {
		if (strchr(ret->repository, '/') == NULL) {
			snprintf(repository, sizeof(repository), "library/%.*s", PULL_REPOSITORY_MAX - 8, ret->repository);
			memcpy(ret->repository, repository, sizeof(repository));
		}
		snprintf(ret->origin, sizeof(ret->origin), "https://registry-1.docker.io");
	} else {
		snprintf(ret->origin, sizeof(ret->origin), "http%s://%.*s",
			 insecure || (pull_is_loopback(ret->host) && !tls) ? "" : "s", (int)n, rest);
	}
	snprintf(ret->base, sizeof(ret->base), "%s/v2/%s/", ret->origin, ret->repository);
	return 0;
}

int pull_ref_name(const struct pull_ref *ref, char *ret, unsigned long size)
{
	const char *path = ref->kind == PULL_REGISTRY ? ref->repository : strstr(ref->base, "://") + 3;
	size_t n = strlen(path), start;

	while (n > 0 && path[n - 1] == '/')
		n--;
	for (start = n; start > 0 && path[start - 1] != '/'; start--)
		;
	if ((ref->kind == PULL_DIRECTORY && start == 0) || n == start || n - start >= size)
		return -EINVAL;
	snprintf(ret, size, "%.*s", (int)(n - start), path + start);
	return 0;
}
