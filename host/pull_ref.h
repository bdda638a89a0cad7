/* SPDX-License-Identifier: Apache-2.0 */
/* Where an image is to be pulled from, as a user writes it (pull_ref.c). */
#pragma once
#include <stdbool.h>

#include "lib/err.h"

enum { PULL_ORIGIN_MAX = 300, PULL_REPOSITORY_MAX = 255, PULL_TAG_MAX = 128, PULL_URL_MAX = 2048 };

enum pull_kind { PULL_REGISTRY, PULL_DIRECTORY };

struct pull_ref {
	enum pull_kind kind;
	char origin[PULL_ORIGIN_MAX];             /* scheme://host[:port] */
	char host[PULL_ORIGIN_MAX];               /* host[:port], as in files of credentials */
	char repository[PULL_REPOSITORY_MAX + 1]; /* of a registry */
	char tag[PULL_TAG_MAX + 1];               /* or digest "sha256:..."; of a directory: name in its index, "": the only one */
	char base[PULL_URL_MAX];                  /* what URLs of manifests and blobs begin with; ends in '/' */
	bool by_digest;
};

/*   docker://HOST[:PORT]/REPOSITORY[:TAG|@DIGEST], or without docker:// when HOST has a dot, a port or is localhost
 *   http(s)://HOST/DIRECTORY/[#NAME]
 * A registry is spoken to by https, but by http when `insecure`, or when it is on a loopback address and not `tls`. */
int pull_ref_parse(const char *text, bool insecure, bool tls, struct pull_ref *ret, struct err *err);

/* Does a URL or HOST[:PORT] name this machine? Only by address or as localhost. */
bool pull_is_loopback(const char *url_or_host);
/* scheme://host[:port] of an http(s) URL; 0 or -EINVAL. */
int pull_origin(const char *url, char ret[PULL_ORIGIN_MAX]);
/* What the image is called when the user does not say: the last part of the path. 0 or -EINVAL. */
int pull_ref_name(const struct pull_ref *ref, char *ret, unsigned long size);
