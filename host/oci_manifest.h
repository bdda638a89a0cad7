/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON documents of container images (OCI image specification 1.0/1.1, Docker schema 2): index, manifest, config,
 * and the manifest.json of `docker save`. Parsing only: nothing is opened or fetched here, so a layout on disk and a
 * registry share it.
 *
 * Trust: hostile. Documents, lists and strings have limits; a digest that comes out of here is "sha256:" and 64
 * lower-case hexadecimal digits, a size is not negative, so both can become part of a path or a bound. The caller
 * compares blobs with them. Members that are not known are ignored.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum {
	OCI_DOCUMENT_MAX = 4 << 20, /* bytes of an index, manifest or config */
	OCI_LAYERS_MAX = 512,
	OCI_INDEX_MAX = 1024,    /* entries of an index */
	OCI_INDEX_DEPTH_MAX = 4, /* an index in an index in ...: for whoever follows them */
	OCI_STRINGS_MAX = 256,   /* of Env, Entrypoint, Cmd each */
	OCI_DIGEST_LEN = 7 + 64,
	OCI_TYPE_MAX = 127,
	OCI_NAME_MAX = 255, /* bytes of a platform's parts, of a tag */
};

#define OCI_TYPE_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_TYPE_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define OCI_TYPE_CONFIG "application/vnd.oci.image.config.v1+json"
#define OCI_TYPE_LAYER "application/vnd.oci.image.layer.v1.tar"
#define OCI_TYPE_DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define OCI_TYPE_DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"

/* What overlaybd's tools say of a layer that is a blob of theirs (accelerated-container-image). */
#define OCI_OVERLAYBD_DIGEST "containerd.io/snapshot/overlaybd/blob-digest"
#define OCI_OVERLAYBD_SIZE "containerd.io/snapshot/overlaybd/blob-size"
#define OCI_OVERLAYBD_FS_TYPE "containerd.io/snapshot/overlaybd/blob-fs-type"
#define OCI_OVERLAYBD_VERSION "containerd.io/snapshot/overlaybd/version"
#define OCI_REF_NAME "org.opencontainers.image.ref.name"
#define OCI_CONTAINERD_NAME "io.containerd.image.name" /* what docker save writes: the whole name, when OCI_REF_NAME is its tag alone */

struct oci_platform {
	char os[32], arch[32], variant[32]; /* "" : not said */
};

/* "OS/ARCH" or "OS/ARCH/VARIANT", as --platform has it. */
int oci_platform_parse(const char *text, struct oci_platform *ret, struct err *err);
/* Does what an index says of a manifest fit? A variant that is not asked for fits. */
bool oci_platform_fits(const struct oci_platform *wanted, const struct oci_platform *has);

enum oci_kind {
	OCI_KIND_OTHER,
	OCI_KIND_INDEX,
	OCI_KIND_MANIFEST,
	OCI_KIND_TAR,       /* a layer: a tar, however compressed */
	OCI_KIND_OVERLAYBD, /* a layer: overlaybd's, by its annotations or media type */
};

struct oci_descriptor {
	char type[OCI_TYPE_MAX + 1]; /* media type */
	char digest[OCI_DIGEST_LEN + 1];
	uint64_t size;
	enum oci_kind kind;
	bool elsewhere;               /* a layer that layouts may lack: "foreign", "nondistributable" */
	bool artifact;                /* in an index: no image, but something that belongs to one */
	struct oci_platform platform; /* in an index */
	char ref[OCI_NAME_MAX + 1];   /* in an index: OCI_REF_NAME, or "" */
	char name[OCI_NAME_MAX + 1];  /* in an index: OCI_CONTAINERD_NAME, or "" */
};

/* The 64 digits of a digest. */
static inline const char *oci_digest_hex(const char *digest)
{
	return digest + 7;
}

/* Whether text is a SHA-256 digest as described above. */
bool oci_is_digest(const char *text);

struct oci_index {
	struct oci_descriptor *entry;
	size_t n;
};

struct oci_manifest {
	struct oci_descriptor config;
	struct oci_descriptor *layer; /* lowest first */
	size_t nlayers;
};

struct oci_config {
	struct oci_platform platform;
	char **env, **entrypoint, **cmd; /* NULL-terminated, or NULL */
	char *user, *cwd;                /* NULL: not said */
	char (*diff_id)[OCI_DIGEST_LEN + 1];
	size_t ndiff_ids;
};

/* One image of a `docker save`. Paths are the archive's: checked to be relative and without "..". */
struct oci_docker_image {
	char *config;
	char **layer;
	size_t nlayers;
	char **tags; /* NULL-terminated, or NULL */
};

struct oci_docker_save {
	struct oci_docker_image *image;
	size_t n;
};

/* Is `has` the tag that is meant by `wanted`? "docker.io/", "library/" and ":latest" may be left out. */
bool oci_tag_is(const char *has, const char *wanted);
bool oci_docker_image_is(const struct oci_docker_image *image, const char *tag);

/* INDEX, MANIFEST or OTHER, by the media type that the document says or by its members. */
enum oci_kind oci_document_kind(const char *text, size_t len);

/* 0 or -EINVAL (-ENOMEM) with a text that begins with what is parsed ("index: ..."). On failure *ret is zeroed. */
int oci_index_parse(const char *text, size_t len, struct oci_index *ret, struct err *err);
int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *err);
int oci_config_parse(const char *text, size_t len, struct oci_config *ret, struct err *err);
int oci_docker_save_parse(const char *text, size_t len, struct oci_docker_save *ret, struct err *err);
void oci_index_finish(struct oci_index *o); /* zeroed ones too; so the others */
void oci_manifest_finish(struct oci_manifest *o);
void oci_config_finish(struct oci_config *o);
void oci_docker_save_finish(struct oci_docker_save *o);

/* The one entry for the platform: -ENOENT with what there is when none fits; the first when several do and all have the
 * same digest; -EINVAL with their tags when there is a choice (`ref` not NULL: only those of this tag, or name, are looked at).
 * One of just this variant goes before others, and entries that say no platform fit when nothing else does. */
int oci_index_choose(const struct oci_index *o, const struct oci_platform *wanted, const char *ref,
		     const struct oci_descriptor **ret, struct err *err);

/* What Entrypoint and Cmd start together: an array to be freed with its strings, or NULL for nothing; -ENOMEM. */
int oci_config_command(const struct oci_config *o, char ***ret);

/* Defaults (env, cwd, user, cmd) for an image's manifest; -E2BIG when they are more than that takes. What is there is
 * lost. */
struct image;
int oci_config_apply(struct oci_config *o, struct image *image, struct err *err);
