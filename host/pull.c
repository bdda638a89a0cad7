/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pulling an image: see pull.h. From the index or the tag to the manifest, from that to the configuration and the layers. What is fetched
 * by its digest must have it. Nothing is written but the image, which appears when all is there, and the cache.
 *
 * Trust: documents are hostile (oci_manifest.h), and so are layers (pull_disk.c).
 */
#include "host/pull.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/fetch_client.h"
#include "host/oci_manifest.h"
#include "host/pull_ref.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

#define ACCEPT OCI_TYPE_MANIFEST ", " OCI_TYPE_INDEX ", " OCI_TYPE_DOCKER_MANIFEST ", " OCI_TYPE_DOCKER_LIST
#define PLATFORM "linux/amd64"

struct pull {
	const struct pull_options *o;
	struct pull_ref ref;
	struct oci_platform platform;
	struct fetch_session session;
	struct progress *p;
	char *text; /* the document at hand */
	size_t len;
	struct pull_documents kept;
	struct err *note;
};

/* ---- documents ---- */

static int check_digest(const struct pull *u, const char *digest, struct err *err)
{
	char hex[SHA256_HEX_SIZE];
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, u->len, (const uint8_t *)u->text);
	sha256_end_hex(&ctx, hex);
	if (strcmp(hex, oci_digest_hex(digest)) == 0)
		return 0;
	return err_set(err, -EBADMSG, "what the server has under '%s' has the SHA-256 %.64s", TEXT_CUT(digest), hex);
}

/* Into u->text. digest and size: what it must have; NULL and 0: not known. */
static int fetch(struct pull *u, const char *url, const char *digest, uint64_t size, struct err *err)
{
	int r;

	free(u->text);
	u->text = NULL;
	if (size > OCI_DOCUMENT_MAX)
		return err_set(err, -EFBIG, "'%s' has %llu bytes; at most %d are taken", TEXT_CUT(digest), (unsigned long long)size,
			       OCI_DOCUMENT_MAX);
	r = fetch_document(&u->session, url, ACCEPT ", */*", 0, size > 0 ? (size_t)size : OCI_DOCUMENT_MAX, u->p, &u->text, &u->len, NULL,
			   NULL, err);
	if (r == 0 && size > 0 && u->len != size)
		r = err_set(err, -EBADMSG, "'%s' has %zu bytes, not %llu", TEXT_CUT(digest), u->len, (unsigned long long)size);
	return r < 0 || digest == NULL ? r : check_digest(u, digest, err);
}

/* A blob's URL, or a manifest's. */
static int make_url(const struct pull *u, bool manifest, const char *digest, char ret[PULL_URL_MAX], struct err *err)
{
	int n = u->ref.kind == PULL_DIRECTORY ? snprintf(ret, PULL_URL_MAX, "%sblobs/sha256/%s", u->ref.base, oci_digest_hex(digest)) :
						snprintf(ret, PULL_URL_MAX, "%s%s/%s", u->ref.base, manifest ? "manifests" : "blobs",
							 digest);

	return n < PULL_URL_MAX ? 0 : err_set(err, -ENAMETOOLONG, "'%.100s...' is too long", u->ref.base);
}

static int fetch_blob(struct pull *u, bool manifest, const struct oci_descriptor *d, struct err *err)
{
	char url[PULL_URL_MAX];
	int r = make_url(u, manifest, d->digest, url, err);

	return r < 0 ? r : fetch(u, url, d->digest, d->size, err);
}

static int fetch_first(struct pull *u, struct err *err)
{
	char url[PULL_URL_MAX];
	const struct pull_ref *ref = &u->ref;
	int n = ref->kind == PULL_DIRECTORY ? snprintf(url, sizeof(url), "%sindex.json", ref->base) :
					      snprintf(url, sizeof(url), "%smanifests/%s", ref->base, ref->tag);

	if (n >= (int)sizeof(url))
		return err_set(err, -ENAMETOOLONG, "'%.100s...' is too long", ref->base);
	return fetch(u, url, ref->by_digest ? ref->tag : NULL, 0, err);
}

/* One step down: the entry of the index at hand that is meant. */
static int choose(struct pull *u, bool first, struct err *err)
{
	bool named = first && u->ref.kind == PULL_DIRECTORY && u->ref.tag[0] != '\0';
	const struct oci_descriptor *entry;
	struct oci_index index;
	int r = oci_index_parse(u->text, u->len, &index, err);

	if (r < 0)
		return r;
	r = oci_index_choose(&index, &u->platform, named ? u->ref.tag : NULL, &entry, err);
	if (r == 0)
		r = fetch_blob(u, true, entry, err);
	oci_index_finish(&index);
	return r;
}

static int fetch_manifest(struct pull *u, struct oci_manifest *ret, struct err *err)
{
	int r = fetch_first(u, err);

	for (int depth = 0; r == 0; depth++) {
		enum oci_kind kind = oci_document_kind(u->text, u->len);

		if (kind == OCI_KIND_MANIFEST)
			return oci_manifest_parse(u->text, u->len, ret, err);
		if (kind != OCI_KIND_INDEX)
			return err_set(err, -EINVAL, "what the server has there is neither a manifest nor an index of images");
		if (depth == OCI_INDEX_DEPTH_MAX)
			return err_set(err, -ELOOP, "more than %d indexes lead to one another", OCI_INDEX_DEPTH_MAX);
		r = choose(u, depth == 0, err);
	}
	return r;
}

static int take_config(struct pull *u, const struct oci_manifest *m, struct image *image, struct err *err)
{
	struct oci_config config = { 0 };
	int r = fetch_blob(u, false, &m->config, err);

	if (r == 0)
		r = oci_config_parse(u->text, u->len, &config, err);
	if (r < 0)
		return r;
	if (config.platform.os[0] != '\0' && !oci_platform_fits(&u->platform, &config.platform))
		r = err_set(err, -EINVAL, "the image is for %s/%s, not for %s/%s", config.platform.os, config.platform.arch, u->platform.os,
			    u->platform.arch);
	if (r == 0)
		r = oci_config_apply(&config, image, err);
	oci_config_finish(&config);
	return r;
}

/* ---- layers ---- */

/* 1: all of them, 0: none. */
static int are_overlaybd(const struct oci_manifest *m, struct err *err)
{
	size_t n = 0;

	for (size_t i = 0; i < m->nlayers; i++) {
		if (m->layer[i].kind != OCI_KIND_OVERLAYBD && m->layer[i].kind != OCI_KIND_TAR)
			return err_set(err, -EINVAL, "layer %zu: its media type '%s' is not known", i + 1, TEXT_CUT(m->layer[i].type));
		n += m->layer[i].kind == OCI_KIND_OVERLAYBD;
	}
	if (n > 0 && n < m->nlayers)
		return err_set(err, -EINVAL, "%zu of its %zu layers are overlaybd's and the others tars: Coffer takes either", n, m->nlayers);
	if (n > IMAGE_LAYERS_MAX)
		return err_set(err, -E2BIG, "it has %zu layers; an image can have %d", n, IMAGE_LAYERS_MAX);
	return n > 0;
}

static int list_layers(const struct pull *u, const struct oci_manifest *m, struct image *image, struct err *err)
{
	image->layer = calloc(m->nlayers + 1, sizeof(*image->layer));
	if (image->layer == NULL)
		return err_set(err, -ENOMEM, "no memory");
	image->nlayers = m->nlayers;
	for (size_t i = 0; i < m->nlayers; i++) {
		struct image_layer *l = &image->layer[i];
		char url[PULL_URL_MAX];
		int r = make_url(u, false, m->layer[i].digest, url, err);

		if (r < 0)
			return r;
		l->url = strdup(url);
		if (l->url == NULL)
			return err_set(err, -ENOMEM, "no memory");
		l->bytes = m->layer[i].size;
		l->created = image->created;
		memcpy(l->sha256, oci_digest_hex(m->layer[i].digest), sizeof(l->sha256));
	}
	return 0;
}

static int publish(const struct image_store *s, const struct image *from, bool replace, struct progress *p, struct err *err)
{
	struct image_draft d = IMAGE_DRAFT_NONE;
	struct image image = *from;
	int r = image_draft_begin(s, &d, err);

	if (r < 0)
		return r;
	image.layer = NULL;
	image.nlayers = 0;
	for (size_t i = 0; i < from->nlayers && r == 0; i++)
		r = image_draft_add_layer(&d, -1, NULL, &from->layer[i], err);
	if (r == 0)
		r = image_draft_publish(&d, &image, replace, p, err);
	for (size_t i = 0; i < image.nlayers; i++)
		image_layer_finish(&image.layer[i]);
	free(image.layer);
	image_draft_end(&d);
	return r;
}

/* ---- all of it ---- */

static int open_session(struct pull *u, struct err *err)
{
	struct pull_creds creds;
	int r = pull_creds_find(u->o->access.creds_file, u->ref.host, u->ref.repository, &creds, err);

	if (r < 0)
		return r;
	if (creds.user != NULL && !pull_creds_may_go(u->ref.origin, &u->o->access)) {
		bool asked = u->o->access.creds_file != NULL;

		pull_creds_finish(&creds);
		if (asked)
			return err_set(err, -EINVAL, "credentials are not sent to %s unencrypted: use https, or add --insecure",
				       u->ref.host);
	}
	r = fetch_session_open(&(struct fetch_auth){ u->ref.origin, creds.user, creds.password }, 1, u->o->access.ca_file, &u->session,
			       err);
	pull_creds_finish(&creds);
	return r;
}

static int check_name(const struct image_store *s, const struct pull *u, char ret[PULL_NAME_SIZE], struct err *err)
{
	if (u->o->name != NULL)
		snprintf(ret, PULL_NAME_SIZE, "%s", u->o->name);
	if (u->o->name == NULL ? pull_ref_name(&u->ref, ret, PULL_NAME_SIZE) < 0 || image_name_check(ret, NULL) < 0 :
				 strlen(u->o->name) >= PULL_NAME_SIZE)
		return err_set(err, -EINVAL, "say with --name what the image shall be called%s", u->o->name != NULL ? " (64 characters at most)" : "");
	return image_store_check_free(s, ret, u->o->replace, err);
}

static void sum(const char *text, size_t len, char ret[80])
{
	char hex[SHA256_HEX_SIZE];
	struct sha256_ctx ctx;

	sha256_init(&ctx);
	sha256_update(&ctx, len, (const uint8_t *)text);
	sha256_end_hex(&ctx, hex);
	snprintf(ret, 80, "sha256:%s", hex);
}

/* The document at hand is kept for an import. */
static void keep(struct pull *u, char **text, size_t *len, char digest[80])
{
	sum(u->text, u->len, digest);
	*text = TAKE_PTR(u->text);
	*len = u->len;
}

static int take_documents(struct pull *u, struct oci_manifest *m, struct image *image, struct err *err)
{
	struct pull_documents *t = &u->kept;
	int r = fetch_manifest(u, m, err);

	if (r < 0)
		return r;
	t->manifest_type = strstr(u->text, OCI_TYPE_DOCKER_MANIFEST) != NULL ? OCI_TYPE_DOCKER_MANIFEST : OCI_TYPE_MANIFEST;
	keep(u, &t->manifest, &t->manifest_len, t->manifest_digest);
	r = take_config(u, m, image, err);
	if (r == 0)
		keep(u, &t->config, &t->config_len, t->config_digest);
	return r;
}

/* The layers stay where they are. */
static int take_begin(const struct image_store *s, struct pull *u, struct image *image, struct err *err)
{
	int r;

	progress_stage(u->p, "reading the layers' indexes");
	r = pull_inspect_disk(image, u->o->cache_size, u->p, err);
	return r < 0 ? r : publish(s, image, u->o->replace, u->p, err);
}

static int take_all(const struct image_store *s, struct pull *u, struct image *image, struct err *err)
{
	struct remote_layers layers;
	int r = pull_fetch_layers(image, u->o->cache_size, &layers, u->p, err);

	if (r < 0)
		return r;
	r = pull_inspect_disk(image, u->o->cache_size, u->p, err);
	if (r == 0)
		r = pull_publish_local(s, image, &layers, u->o->replace, u->p, err);
	remote_layers_finish(&layers);
	free(layers.l);
	return r;
}

static int pull(const struct image_store *s, struct pull *u, struct image *image, struct err *err)
{
	struct oci_manifest m = { 0 };
	int r, lazy = 0;

	progress_stage(u->p, "fetching the manifest");
	r = open_session(u, err);
	if (r == 0)
		r = take_documents(u, &m, image, err);
	if (r == 0)
		r = lazy = are_overlaybd(&m, err);
	r = r < 0 ? r : 0;
	if (r == 0)
		r = list_layers(u, &m, image, err);
	oci_manifest_finish(&m);
	if (r < 0)
		return r;
	/* The readers of its layers find it then. */
	r = pull_access_save(u->ref.origin, &u->o->access, err);
	if (r == 0 && !lazy) {
		err_set(u->note, -EOPNOTSUPP, "its layers are tars, which cannot be read where they lie: all of it was fetched and imported");
		return pull_tars(s, image, &u->kept, u->o, u->p, u->note, err);
	}
	return r < 0 ? r : u->o->all ? take_all(s, u, image, err) : take_begin(s, u, image, err);
}

int pull_image(const struct image_store *s, const struct pull_options *o, char ret_name[PULL_NAME_SIZE], struct progress *p,
	       struct err *note, struct err *err)
{
	struct pull u = { .o = o, .session = FETCH_SESSION_NONE, .p = p, .note = note };
	struct image image = { .created = time(NULL) };
	int r = pull_ref_parse(o->url, o->access.insecure, o->access.ca_file != NULL, &u.ref, err);

	if (r == 0)
		r = oci_platform_parse(o->platform != NULL ? o->platform : PLATFORM, &u.platform, err);
	if (r == 0)
		r = check_name(s, &u, ret_name, err);
	if (r < 0)
		return r;
	memcpy(image.name, ret_name, sizeof(image.name));
	snprintf(image.source, sizeof(image.source), "%.*s", IMAGE_SOURCE_MAX, o->url);
	r = pull(s, &u, &image, err);
	fetch_session_close(&u.session);
	free(u.text);
	free(u.kept.manifest);
	free(u.kept.config);
	image_finish(&image);
	return r;
}
