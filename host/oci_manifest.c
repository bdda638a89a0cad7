/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of container images: see oci_manifest.h. */
#include "host/oci_manifest.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/image.h"
#include "host/json_get.h"
#include "lib/text.h"
#include "lib/util.h"

enum { PATH_TEXT_MAX = 4095, STRING_MAX = 32 << 10 };

#define OVERLAYBD_TYPE "application/vnd.oci.image.layer.v1.overlaybd"

/* ---- values ---- */

bool oci_is_digest(const char *text)
{
	return strncmp(text, "sha256:", 7) == 0 && strspn(text + 7, "0123456789abcdef") == 64 && text[OCI_DIGEST_LEN] == '\0';
}

/* What is empty is not said. */
static int copy_string(const json_t *o, const char *key, size_t max, char **ret, struct err *err)
{
	int r = json_get_copy(o, key, max, false, ret, err);

	if (r == 0 && *ret != NULL && **ret == '\0') {
		free(*ret);
		*ret = NULL;
	}
	return r;
}

static int get_short(const json_t *o, const char *key, size_t size, char *ret, struct err *err)
{
	const char *s = NULL;
	int r = json_get_string(o, key, size - 1, false, &s, err);

	if (r == 0 && s != NULL)
		memcpy(ret, s, strlen(s) + 1);
	return r;
}

static int get_platform(const json_t *o, struct oci_platform *p, struct err *err)
{
	int r;

	if (o == NULL || json_is_null(o))
		return 0;
	if (!json_is_object(o))
		return err_set(err, -EINVAL, "\"platform\" is not an object");
	r = get_short(o, "os", sizeof(p->os), p->os, err);
	if (r == 0)
		r = get_short(o, "architecture", sizeof(p->arch), p->arch, err);
	return r < 0 ? r : get_short(o, "variant", sizeof(p->variant), p->variant, err);
}

static enum oci_kind kind_of_type(const char *type)
{
	static const struct {
		const char *type;
		enum oci_kind kind;
	} types[] = {
		{ OCI_TYPE_INDEX, OCI_KIND_INDEX },
		{ OCI_TYPE_DOCKER_LIST, OCI_KIND_INDEX },
		{ OCI_TYPE_MANIFEST, OCI_KIND_MANIFEST },
		{ OCI_TYPE_DOCKER_MANIFEST, OCI_KIND_MANIFEST },
		{ OCI_TYPE_LAYER, OCI_KIND_TAR },
		{ OCI_TYPE_LAYER "+gzip", OCI_KIND_TAR },
		{ OCI_TYPE_LAYER "+zstd", OCI_KIND_TAR },
		{ "application/vnd.oci.image.layer.nondistributable.v1.tar", OCI_KIND_TAR },
		{ "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", OCI_KIND_TAR },
		{ "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", OCI_KIND_TAR },
		{ "application/vnd.docker.image.rootfs.foreign.diff.tar", OCI_KIND_TAR },
		{ "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", OCI_KIND_TAR },
		{ "application/vnd.docker.image.rootfs.diff.tar", OCI_KIND_TAR },
		{ "application/vnd.docker.image.rootfs.diff.tar.gzip", OCI_KIND_TAR },
		{ "application/vnd.docker.image.rootfs.diff.tar.zstd", OCI_KIND_TAR },
		{ OVERLAYBD_TYPE, OCI_KIND_OVERLAYBD },
	};

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (strcmp(type, types[i].type) == 0)
			return types[i].kind;
	return OCI_KIND_OTHER;
}

/* Attestations, signatures, lists of packages: they say what they are, or whose they are. */
static bool is_artifact(const json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "artifactType"));

	return json_is_string(json_object_get(json_object_get(o, "annotations"), "vnd.docker.reference.type")) ||
	       (type != NULL && strcmp(type, OCI_TYPE_CONFIG) != 0 && strcmp(type, "application/vnd.docker.container.image.v1+json") != 0);
}

/* `what` begins messages. */
static int get_descriptor(const json_t *o, const char *what, struct oci_descriptor *d, struct err *err)
{
	const json_t *notes = json_object_get(o, "annotations");
	const char *digest = NULL, *name = json_string_value(json_object_get(notes, OCI_CONTAINERD_NAME));
	int r = 0;

	if (!json_is_object(o))
		return err_set(err, -EINVAL, "%s is not an object", what);
	r = get_short(o, "mediaType", sizeof(d->type), d->type, err);
	if (r == 0)
		r = json_get_string(o, "digest", STRING_MAX, false, &digest, err);
	if (r == 0 && (digest == NULL || !oci_is_digest(digest)))
		r = err_set(err, -EINVAL, "\"digest\" is '%s', not sha256 and 64 digits", TEXT_CUT(digest != NULL ? digest : ""));
	if (r == 0)
		r = json_get_u64(o, "size", 0, INT64_MAX, &d->size, err);
	if (r == 0 && notes != NULL && !json_is_null(notes) && !json_is_object(notes))
		r = err_set(err, -EINVAL, "\"annotations\" is not an object");
	if (r == 0)
		r = get_platform(json_object_get(o, "platform"), &d->platform, err);
	if (r == 0)
		r = get_short(notes, OCI_REF_NAME, sizeof(d->ref), d->ref, err);
	if (r < 0 || digest == NULL)
		return err_prefix(err, "%s: ", what), r;
	memcpy(d->digest, digest, sizeof(d->digest));
	if (name != NULL && strlen(name) < sizeof(d->name))
		memcpy(d->name, name, strlen(name) + 1);
	d->artifact = is_artifact(o);
	d->elsewhere = strstr(d->type, ".foreign.") != NULL || strstr(d->type, ".nondistributable.") != NULL;
	d->kind = kind_of_type(d->type);
	if (json_object_get(notes, OCI_OVERLAYBD_DIGEST) != NULL && d->kind != OCI_KIND_INDEX && d->kind != OCI_KIND_MANIFEST)
		d->kind = OCI_KIND_OVERLAYBD;
	return 0;
}

static int get_descriptors(const json_t *o, const char *key, const char *one, size_t max, struct oci_descriptor **ret,
			   size_t *ret_n, struct err *err)
{
	const json_t *list = NULL;
	int r = json_get_array(o, key, 0, max, &list, err);
	size_t n = json_array_size(list);
	char what[32];

	if (r < 0)
		return r;
	*ret = calloc(n + 1, sizeof(**ret));
	if (*ret == NULL)
		return err_set(err, -ENOMEM, "no memory");
	*ret_n = n;
	for (size_t i = 0; i < n; i++) {
		snprintf(what, sizeof(what), "%s %zu", one, i + 1);
		r = get_descriptor(json_array_get(list, i), what, &(*ret)[i], err);
		if (r < 0)
			return r;
	}
	return 0;
}

enum oci_kind oci_document_kind(const char *text, size_t len)
{
	json_t *o = json_get_document(text, len, OCI_DOCUMENT_MAX, JSON_OBJECT, NULL);
	const json_t *type = json_object_get(o, "mediaType");
	enum oci_kind kind = json_is_string(type) ? kind_of_type(json_string_value(type)) : OCI_KIND_OTHER;

	if (kind == OCI_KIND_OTHER && json_is_array(json_object_get(o, "manifests")))
		kind = OCI_KIND_INDEX;
	else if (kind == OCI_KIND_OTHER && json_is_array(json_object_get(o, "layers")))
		kind = OCI_KIND_MANIFEST;
	json_decref(o);
	return kind == OCI_KIND_INDEX || kind == OCI_KIND_MANIFEST ? kind : OCI_KIND_OTHER;
}

/* ---- index ---- */

int oci_index_parse(const char *text, size_t len, struct oci_index *ret, struct err *err)
{
	struct oci_index o = { 0 };
	json_t *j = json_get_document(text, len, OCI_DOCUMENT_MAX, JSON_OBJECT, err);
	int r = j == NULL ? -EINVAL : get_descriptors(j, "manifests", "manifest", OCI_INDEX_MAX, &o.entry, &o.n, err);

	json_decref(j);
	*ret = (struct oci_index){ 0 };
	if (r < 0) {
		oci_index_finish(&o);
		return err_prefix(err, "index: "), r;
	}
	*ret = o;
	return 0;
}

void oci_index_finish(struct oci_index *o)
{
	free(o->entry);
	*o = (struct oci_index){ 0 };
}

int oci_platform_parse(const char *text, struct oci_platform *ret, struct err *err)
{
	struct oci_platform p = { 0 };
	char *const part[] = { p.os, p.arch, p.variant };
	const char *s = text;

	for (size_t i = 0; i < ARRAY_SIZE(part) && s != NULL; i++) {
		size_t n = strcspn(s, "/");

		if (n == 0 || n >= sizeof(p.os) || (i == 2 && s[n] != '\0'))
			break;
		memcpy(part[i], s, n);
		s = s[n] == '\0' ? NULL : s + n + 1;
	}
	if (s != NULL || *p.arch == '\0')
		return err_set(err, -EINVAL, "'%s' is no platform: it is OS/ARCH or OS/ARCH/VARIANT, such as linux/amd64", TEXT_CUT(text));
	*ret = p;
	return 0;
}

bool oci_platform_fits(const struct oci_platform *wanted, const struct oci_platform *has)
{
	return strcmp(wanted->os, has->os) == 0 && strcmp(wanted->arch, has->arch) == 0 &&
	       (*wanted->variant == '\0' || strcmp(wanted->variant, has->variant) == 0);
}

/* A name without what everybody leaves out. */
static const char *short_name(const char *s)
{
	static const char hub[] = "docker.io/", library[] = "library/";

	if (strncmp(s, hub, sizeof(hub) - 1) != 0)
		return s;
	s += sizeof(hub) - 1;
	return strncmp(s, library, sizeof(library) - 1) == 0 ? s + sizeof(library) - 1 : s;
}

bool oci_tag_is(const char *has, const char *wanted)
{
	size_t n;

	if (strcmp(has, wanted) == 0)
		return true;
	has = short_name(has);
	wanted = short_name(wanted);
	n = strlen(wanted);
	return n > 0 && strncmp(has, wanted, n) == 0 && (has[n] == '\0' || strcmp(has + n, ":latest") == 0);
}

static bool may_be(const struct oci_descriptor *d, const char *ref)
{
	return !d->artifact && (d->kind == OCI_KIND_INDEX || d->kind == OCI_KIND_MANIFEST || *d->type == '\0') &&
	       (ref == NULL || strcmp(d->ref, ref) == 0 || oci_tag_is(d->name, ref));
}

/* For messages: platforms, or tags. */
static void list_entries(const struct oci_index *o, bool tags, char *out, size_t len)
{
	size_t n = 0;

	*out = '\0';
	for (size_t i = 0; i < o->n && n < len; i++) {
		const struct oci_descriptor *d = &o->entry[i];
		const struct oci_platform *p = &d->platform;

		if (d->artifact || (tags ? *d->ref == '\0' : *p->os == '\0'))
			continue;
		if (tags)
			n += (size_t)snprintf(out + n, len - n, "%s%s", n > 0 ? ", " : "", *d->name != '\0' ? d->name : d->ref);
		else
			n += (size_t)snprintf(out + n, len - n, "%s%s/%s%s%s", n > 0 ? ", " : "", p->os, p->arch,
					      *p->variant != '\0' ? "/" : "", p->variant);
	}
	if (*out == '\0')
		snprintf(out, len, o->n == 0 ? "none at all" : tags ? "%zu without a tag" : "%zu without a platform", o->n);
}

enum fit { FIT_EXACT, FIT_VARIANT, FIT_UNSAID, FIT_NOT };

static enum fit fit_of(const struct oci_platform *wanted, const struct oci_platform *has)
{
	if (*has->os == '\0' && *has->arch == '\0')
		return FIT_UNSAID;
	if (!oci_platform_fits(wanted, has))
		return FIT_NOT;
	return strcmp(wanted->variant, has->variant) == 0 ? FIT_EXACT : FIT_VARIANT;
}

int oci_index_choose(const struct oci_index *o, const struct oci_platform *wanted, const char *ref,
		     const struct oci_descriptor **ret, struct err *err)
{
	const struct oci_descriptor *found = NULL;
	char list[200];

	for (enum fit fit = FIT_EXACT; fit <= FIT_UNSAID && found == NULL; fit++) {
		for (size_t i = 0; i < o->n; i++) {
			const struct oci_descriptor *d = &o->entry[i];

			if (!may_be(d, ref) || fit_of(wanted, &d->platform) != fit)
				continue;
			if (found == NULL) {
				found = d;
			} else if (strcmp(found->digest, d->digest) != 0 &&
				   (fit == FIT_UNSAID || strcmp(found->ref, d->ref) != 0 || strcmp(found->name, d->name) != 0)) {
				list_entries(o, true, list, sizeof(list));
				return err_set(err, -EINVAL, "index: there are several images: choose one by its tag with --tag (%s)", list);
			}
		}
	}
	if (found != NULL) {
		*ret = found;
		return 0;
	}
	list_entries(o, ref != NULL, list, sizeof(list));
	if (ref != NULL)
		return err_set(err, -ENOENT, "index: no image is tagged '%s' and for %s/%s; there are: %s", TEXT_CUT(ref), wanted->os,
			       wanted->arch, list);
	return err_set(err, -ENOENT, "index: no image is for %s/%s%s%s; there are: %s", wanted->os, wanted->arch,
		       *wanted->variant != '\0' ? "/" : "", wanted->variant, list);
}

/* ---- manifest ---- */

int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *err)
{
	struct oci_manifest o = { 0 };
	json_t *j = json_get_document(text, len, OCI_DOCUMENT_MAX, JSON_OBJECT, err);
	int r = j == NULL ? -EINVAL : 0;

	if (r == 0 && json_integer_value(json_object_get(j, "schemaVersion")) == 1)
		r = err_set(err, -EINVAL, "it is of Docker's schema 1, of before 2016: copy the image with a newer tool (skopeo copy --format oci)");
	if (r == 0)
		r = get_descriptor(json_object_get(j, "config"), "config", &o.config, err);
	if (r == 0)
		r = get_descriptors(j, "layers", "layer", OCI_LAYERS_MAX, &o.layer, &o.nlayers, err);
	for (size_t i = 0; r == 0 && i < o.nlayers; i++)
		if (o.layer[i].kind != OCI_KIND_TAR && o.layer[i].kind != OCI_KIND_OVERLAYBD)
			r = err_set(err, -EINVAL, "layer %zu has the media type '%s', which is no layer of a file system", i + 1,
				    TEXT_CUT(o.layer[i].type));
	if (r == 0 && o.nlayers == 0)
		r = err_set(err, -EINVAL, "it has no layers");
	json_decref(j);
	*ret = (struct oci_manifest){ 0 };
	if (r < 0) {
		oci_manifest_finish(&o);
		return err_prefix(err, "manifest: "), r;
	}
	*ret = o;
	return 0;
}

void oci_manifest_finish(struct oci_manifest *o)
{
	free(o->layer);
	*o = (struct oci_manifest){ 0 };
}

/* ---- config ---- */

static int get_diff_ids(const json_t *o, struct oci_config *c, struct err *err)
{
	const json_t *list = NULL;
	int r = json_get_array(json_object_get(o, "rootfs"), "diff_ids", 0, OCI_LAYERS_MAX, &list, err);
	size_t n = json_array_size(list);

	if (r < 0)
		return err_prefix(err, "\"rootfs\": "), r;
	c->diff_id = calloc(n + 1, sizeof(*c->diff_id));
	if (c->diff_id == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (s == NULL || !oci_is_digest(s))
			return err_set(err, -EINVAL, "\"diff_ids\": entry %zu is '%s', not sha256 and 64 digits", i + 1,
				       TEXT_CUT(s != NULL ? s : ""));
		memcpy(c->diff_id[i], s, sizeof(c->diff_id[i]));
	}
	c->ndiff_ids = n;
	return 0;
}

static int get_config(const json_t *j, struct oci_config *c, struct err *err)
{
	const json_t *o = json_object_get(j, "config");
	int r = get_platform(j, &c->platform, err);

	if (r == 0 && o != NULL && !json_is_null(o) && !json_is_object(o))
		r = err_set(err, -EINVAL, "\"config\" is not an object");
	if (r == 0)
		r = json_get_strings(o, "Env", OCI_STRINGS_MAX, STRING_MAX, &c->env, err);
	if (r == 0)
		r = json_get_strings(o, "Entrypoint", OCI_STRINGS_MAX, STRING_MAX, &c->entrypoint, err);
	if (r == 0)
		r = json_get_strings(o, "Cmd", OCI_STRINGS_MAX, STRING_MAX, &c->cmd, err);
	if (r == 0)
		r = copy_string(o, "User", STRING_MAX, &c->user, err);
	if (r == 0)
		r = copy_string(o, "WorkingDir", STRING_MAX, &c->cwd, err);
	return r < 0 ? r : get_diff_ids(j, c, err);
}

int oci_config_parse(const char *text, size_t len, struct oci_config *ret, struct err *err)
{
	struct oci_config o = { 0 };
	json_t *j = json_get_document(text, len, OCI_DOCUMENT_MAX, JSON_OBJECT, err);
	int r = j == NULL ? -EINVAL : get_config(j, &o, err);

	json_decref(j);
	*ret = (struct oci_config){ 0 };
	if (r < 0) {
		oci_config_finish(&o);
		return err_prefix(err, "config: "), r;
	}
	*ret = o;
	return 0;
}

void oci_config_finish(struct oci_config *o)
{
	json_strings_free(o->env);
	json_strings_free(o->entrypoint);
	json_strings_free(o->cmd);
	free(o->user);
	free(o->cwd);
	free(o->diff_id);
	*o = (struct oci_config){ 0 };
}

static size_t count(char *const *v)
{
	size_t n = 0;

	while (v != NULL && v[n] != NULL)
		n++;
	return n;
}

int oci_config_command(const struct oci_config *o, char ***ret)
{
	size_t n = 0, total = count(o->entrypoint) + count(o->cmd);
	char **v = total == 0 ? NULL : calloc(total + 1, sizeof(*v));

	*ret = NULL;
	if (v == NULL)
		return total == 0 ? 0 : -ENOMEM;
	for (char **s = o->entrypoint; s != NULL && *s != NULL; s++)
		v[n++] = strdup(*s);
	for (char **s = o->cmd; s != NULL && *s != NULL; s++)
		v[n++] = strdup(*s);
	for (size_t i = 0; i < total; i++)
		if (v[i] == NULL) {
			while (total > 0)
				free(v[--total]);
			free(v);
			return -ENOMEM;
		}
	*ret = v;
	return 0;
}

/* A name, or a number that is an id. */
static bool is_user(const char *s, size_t n)
{
	bool number = strspn(s, "0123456789") >= n;

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] <= ' ' || s[i] == 0x7f || s[i] == '/' || s[i] == ':')
			return false;
	return n > 0 && (!number || (n <= 10 && strtoull(s, NULL, 10) < UINT32_MAX));
}

static bool leads_up(const char *path)
{
	for (const char *p = path; p != NULL; p = strchr(p, '/')) {
		p += *p == '/';
		if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
			return true;
	}
	return false;
}

/* What could only fail later, in each VM, or be ignored there. */
static int check_defaults(const struct oci_config *o, struct err *err)
{
	const char *first = o->entrypoint != NULL && *o->entrypoint != NULL ? *o->entrypoint : o->cmd != NULL ? *o->cmd : NULL;

	for (char **s = o->env; s != NULL && *s != NULL; s++)
		if (**s == '=' || strchr(*s, '=') == NULL)
			return err_set(err, -EINVAL, "config: \"Env\": '%s' is not NAME=VALUE", TEXT_CUT(*s));
	if (first != NULL && *first == '\0')
		return err_set(err, -EINVAL, "config: the command (\"Entrypoint\" and \"Cmd\") begins with an empty word");
	if (o->user != NULL) {
		size_t n = strcspn(o->user, ":");
		const char *group = o->user[n] == ':' ? o->user + n + 1 : NULL;

		if (!is_user(o->user, n) || (group != NULL && !is_user(group, strlen(group))))
			return err_set(err, -EINVAL, "config: \"User\": '%s' is not USER or USER:GROUP, names or numbers below %u",
				       TEXT_CUT(o->user), UINT32_MAX);
	}
	if (o->cwd != NULL && (*o->cwd != '/' || leads_up(o->cwd) || strlen(o->cwd) > PATH_TEXT_MAX))
		return err_set(err, -EINVAL, "config: \"WorkingDir\": '%s' is no absolute path without \"..\"", TEXT_CUT(o->cwd));
	return 0;
}

int oci_config_apply(struct oci_config *o, struct image *image, struct err *err)
{
	char **cmd;

	if (check_defaults(o, err) < 0)
		return -EINVAL;
	if (count(o->env) > IMAGE_ENV_MAX || count(o->entrypoint) + count(o->cmd) > IMAGE_ENV_MAX)
		return err_set(err, -E2BIG, "config: Env has %zu and the command %zu entries; at most %d are taken", count(o->env),
			       count(o->entrypoint) + count(o->cmd), IMAGE_ENV_MAX);
	if (oci_config_command(o, &cmd) < 0)
		return err_set(err, -ENOMEM, "config: no memory");
	json_strings_free(image->env);
	json_strings_free(image->cmd);
	free(image->cwd);
	free(image->user);
	image->env = o->env;
	image->cmd = cmd;
	image->cwd = o->cwd;
	image->user = o->user;
	o->env = NULL;
	o->cwd = o->user = NULL;
	return 0;
}

/* ---- docker save ---- */

static bool is_path(const char *s)
{
	return *s != '\0' && *s != '/' && !leads_up(s);
}

static int get_saved(const json_t *o, struct oci_docker_image *image, struct err *err)
{
	int r = copy_string(o, "Config", PATH_TEXT_MAX, &image->config, err);

	if (r == 0)
		r = json_get_strings(o, "RepoTags", OCI_STRINGS_MAX, STRING_MAX, &image->tags, err);
	if (r == 0)
		r = json_get_strings(o, "Layers", OCI_LAYERS_MAX, STRING_MAX, &image->layer, err);
	if (r < 0)
		return r;
	image->nlayers = count(image->layer);
	if (image->config == NULL || image->layer == NULL || image->nlayers == 0)
		return err_set(err, -EINVAL, "it lacks \"Config\" or \"Layers\"");
	if (!is_path(image->config))
		return err_set(err, -EINVAL, "\"Config\" is '%s', no path in the archive", TEXT_CUT(image->config));
	for (size_t i = 0; i < image->nlayers; i++)
		if (!is_path(image->layer[i]))
			return err_set(err, -EINVAL, "layer %zu is '%s', no path in the archive", i + 1, TEXT_CUT(image->layer[i]));
	return 0;
}

bool oci_docker_image_is(const struct oci_docker_image *image, const char *tag)
{
	for (char **t = image->tags; t != NULL && *t != NULL; t++)
		if (oci_tag_is(*t, tag))
			return true;
	return false;
}

int oci_docker_save_parse(const char *text, size_t len, struct oci_docker_save *ret, struct err *err)
{
	struct oci_docker_save o = { 0 };
	json_t *j = json_get_document(text, len, OCI_DOCUMENT_MAX, JSON_ARRAY, err);
	size_t n = json_array_size(j);
	int r = j == NULL ? -EINVAL : 0;

	if (r == 0 && (n == 0 || n > OCI_INDEX_MAX))
		r = err_set(err, -EINVAL, "%zu images; it has 1 to %d", n, OCI_INDEX_MAX);
	if (r == 0) {
		o.image = calloc(n + 1, sizeof(*o.image));
		o.n = o.image == NULL ? 0 : n;
		r = o.image == NULL ? err_set(err, -ENOMEM, "no memory") : 0;
	}
	for (size_t i = 0; r == 0 && i < o.n; i++) {
		r = get_saved(json_array_get(j, i), &o.image[i], err);
		if (r < 0)
			err_prefix(err, "image %zu: ", i + 1);
	}
	json_decref(j);
	*ret = (struct oci_docker_save){ 0 };
	if (r < 0) {
		oci_docker_save_finish(&o);
		return err_prefix(err, "manifest.json: "), r;
	}
	*ret = o;
	return 0;
}

void oci_docker_save_finish(struct oci_docker_save *o)
{
	for (size_t i = 0; i < o->n; i++) {
		free(o->image[i].config);
		json_strings_free(o->image[i].tags);
		json_strings_free(o->image[i].layer);
	}
	free(o->image);
	*o = (struct oci_docker_save){ 0 };
}
