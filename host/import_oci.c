/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Container images: see import_oci.h. From index.json the way leads through at most OCI_INDEX_DEPTH_MAX indexes to a
 * manifest, its config and its layers. Every document and blob has to have the size and the digest that the one before
 * says. A digest is compared before anything is read into the blob.
 */
#include "host/import_oci.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/text.h"

enum { PATH_SIZE = 96 };

bool import_oci_is(const struct import_source *s)
{
	return import_source_has(s, "index.json") || import_source_has(s, "oci-layout") ||
	       import_source_has(s, "manifest.json");
}

static void blob_path(enum import_oci_form form, const struct oci_descriptor *d, char ret[PATH_SIZE])
{
	bool manifest = d->kind == OCI_KIND_MANIFEST || d->kind == OCI_KIND_INDEX;

	snprintf(ret, PATH_SIZE, "%s%s%s", form == IMPORT_OCI_LAYOUT ? "blobs/sha256/" : "", oci_digest_hex(d->digest),
		 form == IMPORT_OCI_DIR && manifest ? ".manifest.json" : "");
}

static int check_digest(const char *what, const char *wanted, const char *hex, struct err *err)
{
	if (strcmp(oci_digest_hex(wanted), hex) == 0)
		return 0;
	return err_set(err, -EBADMSG, "%s has the digest sha256:%s, not %s: it is damaged", what, hex, wanted);
}

static int check_size(const char *what, uint64_t wanted, uint64_t size, struct err *err)
{
	if (size == wanted)
		return 0;
	return err_set(err, -EBADMSG, "%s has %llu bytes, not %llu: it is damaged or cut off", what,
		       (unsigned long long)size, (unsigned long long)wanted);
}

static int read_document(const struct import_source *s, enum import_oci_form form, const struct oci_descriptor *d, char **ret, size_t *ret_len,
			 struct err *err)
{
	struct sha256_ctx sha;
	char path[PATH_SIZE], hex[SHA256_HEX_SIZE];
	int r;

	blob_path(form, d, path);
	r = import_source_read(s, path, OCI_DOCUMENT_MAX, ret, ret_len, err);
	if (r < 0)
		return r;
	sha256_init(&sha);
	sha256_update(&sha, *ret_len, (const uint8_t *)*ret);
	sha256_end_hex(&sha, hex);
	r = check_size(path, d->size, *ret_len, err);
	if (r == 0)
		r = check_digest(path, d->digest, hex, err);
	if (r < 0) {
		free(*ret);
		*ret = NULL;
	}
	return r;
}

/* From the first document, which is freed, to the manifest. The first of a layout is an index. */
static int find_manifest(const struct import_source *s, enum import_oci_form form, char *text, size_t len,
			 const struct oci_platform *wanted, const char *tag, struct oci_manifest *ret, struct err *err)
{
	int r = 0;

	for (int depth = 0; r == 0; depth++) {
		const struct oci_descriptor *d;
		struct oci_descriptor next;
		struct oci_index index;

		if ((depth > 0 || form == IMPORT_OCI_DIR) && oci_document_kind(text, len) != OCI_KIND_INDEX) {
			r = oci_manifest_parse(text, len, ret, err);
			free(text);
			return r;
		}
		if (depth == OCI_INDEX_DEPTH_MAX) {
			free(text);
			return err_set(err, -ELOOP, "index: more than %d lie in one another", OCI_INDEX_DEPTH_MAX);
		}
		r = oci_index_parse(text, len, &index, err);
		free(text);
		if (r < 0)
			return r;
		/* Tags are in the outermost. */
		r = oci_index_choose(&index, wanted, depth == 0 ? tag : NULL, &d, err);
		if (r == 0)
			next = *d;
		oci_index_finish(&index);
		if (r == 0)
			r = read_document(s, form, &next, &text, &len, err);
	}
	return r;
}

/* `first` is freed. */
static int open_layout(const struct import_source *s, char *first, size_t first_len, const struct oci_platform *wanted, const char *tag,
		       struct import_oci *o, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	size_t len, blocks = 0;
	int r = find_manifest(s, o->form, first, first_len, wanted, tag, &o->manifest, err);

	if (r == 0)
		r = read_document(s, o->form, &o->manifest.config, &text, &len, err);
	if (r == 0)
		r = oci_config_parse(text, len, &o->config, err);
	if (r < 0)
		return r;
	o->nlayers = o->manifest.nlayers;
	for (size_t k = 0; k < o->nlayers; k++)
		blocks += o->manifest.layer[k].kind == OCI_KIND_OVERLAYBD;
	if (blocks > 0 && blocks < o->nlayers)
		return err_set(err, -EINVAL,
			       "manifest: %zu of %zu layers are overlaybd's, the others tars: that is no one disk",
			       blocks, o->nlayers);
	o->overlaybd = blocks > 0;
	return 0;
}

/* Of several, the one that is tagged so. */
static int choose_saved(struct import_oci *o, const char *tag, struct err *err)
{
	if (o->saved.n > 1 && tag == NULL)
		return err_set(err, -EINVAL,
			       "manifest.json: there are %zu images: choose one with --tag, such as '%.80s'",
			       o->saved.n, o->saved.image[0].tags != NULL ? o->saved.image[0].tags[0] : "");
	for (size_t i = 0; i < o->saved.n; i++) {
		if (tag == NULL || oci_docker_image_is(&o->saved.image[i], tag)) {
			o->which = i;
			return 0;
		}
	}
	return err_set(err, -ENOENT, "manifest.json: no image is tagged '%.80s'; the first is '%.80s'", tag,
		       o->saved.image[0].tags != NULL ? o->saved.image[0].tags[0] : "");
}

static int open_saved(const struct import_source *s, const char *text, size_t len, const char *tag, struct import_oci *o, struct err *err)
{
	_cleanup_free_ char *config = NULL;
	int r = oci_docker_save_parse(text, len, &o->saved, err);

	if (r == 0)
		r = choose_saved(o, tag, err);
	if (r == 0)
		r = import_source_read(s, o->saved.image[o->which].config, OCI_DOCUMENT_MAX, &config, &len, err);
	if (r == 0)
		r = oci_config_parse(config, len, &o->config, err);
	if (r == 0)
		o->nlayers = o->saved.image[o->which].nlayers;
	return r;
}

static int check_config(const struct import_oci *o, const struct oci_platform *wanted, struct err *err)
{
	const struct oci_platform *has = &o->config.platform;
	struct oci_platform plain = *wanted;

	plain.variant[0] = '\0';
	if (*has->arch != '\0' && !oci_platform_fits(&plain, has))
		return err_set(err, -ENOENT, "config: the image is for %s/%s, not for %s/%s: see --platform", has->os,
			       has->arch, wanted->os, wanted->arch);
	if (o->config.ndiff_ids != o->nlayers)
		return err_set(err, -EINVAL, "config: it has %zu diff_ids for %zu layers", o->config.ndiff_ids,
			       o->nlayers);
	return 0;
}

static int open_any(const struct import_source *s, const struct oci_platform *wanted, const char *tag, struct import_oci *o, struct err *err)
{
	/* `docker save` writes all three, or the last alone. */
	bool layout = import_source_has(s, "index.json") || (import_source_has(s, "oci-layout") && !import_source_has(s, "manifest.json"));
	char *text;
	size_t len;
	int r = import_source_read(s, layout ? "index.json" : "manifest.json", OCI_DOCUMENT_MAX, &text, &len, err);

	if (r < 0)
		return r;
	o->form = layout ? IMPORT_OCI_LAYOUT : oci_document_kind(text, len) == OCI_KIND_OTHER ? IMPORT_OCI_SAVED : IMPORT_OCI_DIR;
	if (o->form == IMPORT_OCI_DIR && tag != NULL)
		r = err_set(err, -EINVAL, "--tag has no meaning for what 'skopeo copy ... dir:' has written: it has no tags");
	else if (o->form != IMPORT_OCI_SAVED)
		return open_layout(s, text, len, wanted, tag, o, err);
	else
		r = open_saved(s, text, len, tag, o, err);
	free(text);
	return r;
}

int import_oci_open(const struct import_source *s, const struct oci_platform *wanted, const char *tag,
		    struct import_oci *ret, struct err *err)
{
	struct import_oci o = { 0 };
	int r = open_any(s, wanted, tag, &o, err);

	if (r == 0)
		r = check_config(&o, wanted, err);
	if (r < 0) {
		import_oci_close(&o);
		return r;
	}
	*ret = o;
	return 0;
}

void import_oci_close(struct import_oci *o)
{
	oci_config_finish(&o->config);
	oci_manifest_finish(&o->manifest);
	oci_docker_save_finish(&o->saved);
	*o = (struct import_oci){ 0 };
}

int import_oci_layer(const struct import_oci *o, const struct import_source *s, size_t k, struct import_blob *ret,
		     struct progress *p, struct err *err)
{
	const struct oci_descriptor *d = o->form == IMPORT_OCI_SAVED ? NULL : &o->manifest.layer[k];
	char path[PATH_SIZE], hex[SHA256_HEX_SIZE];
	int r;

	/* What docker saves is plain: the diff_id will do. */
	if (d == NULL)
		return import_source_open(s, o->saved.image[o->which].layer[k], ret, err);
	blob_path(o->form, d, path);
	r = import_source_open(s, path, ret, err);
	if (r == -ENOENT && d->elsewhere)
		return err_set(err, r, "'%s' is not there: it is of a type ('%s') that is fetched from elsewhere", path, TEXT_CUT(d->type));
	if (r < 0)
		return r;
	progress_stage(p, "comparing digests");
	r = check_size(path, d->size, ret->size, err);
	if (r == 0)
		r = import_blob_digest(ret, hex, p, err);
	if (r == 0)
		r = check_digest(path, d->digest, hex, err);
	if (r < 0)
		import_blob_close(ret);
	return r;
}

int import_oci_unpack(const struct import_oci *o, const struct import_source *s, struct import_tree *t,
		      struct progress *p, struct err *err)
{
	for (size_t k = 0; k < o->nlayers; k++) {
		struct import_blob blob;
		char hex[SHA256_HEX_SIZE];
		int r = import_oci_layer(o, s, k, &blob, p, err);

		if (r == 0) {
			progress_stage(p, "reading layers");
			r = import_tree_add(t, &blob, true, hex, p, err);
			import_blob_close(&blob);
		}
		if (r == 0)
			r = check_digest("its content", o->config.diff_id[k], hex, err);
		if (r < 0)
			return err_prefix(err, "layer %zu: ", k + 1), r;
	}
	return 0;
}
