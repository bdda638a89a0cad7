/* SPDX-License-Identifier: Apache-2.0 */
/* Container images in a directory or a tar: an OCI layout, what `docker save` writes, or what `skopeo copy ... dir:` does. */
#pragma once
#include "host/import_source.h"
#include "host/oci_manifest.h"

enum import_oci_form {
	IMPORT_OCI_LAYOUT, /* index.json, blobs/sha256/HEX */
	IMPORT_OCI_SAVED,  /* manifest.json, a list of images with the paths of their parts */
	IMPORT_OCI_DIR,    /* manifest.json, a manifest or an index; HEX, HEX.manifest.json */
};

struct import_oci {
	struct oci_config config;
	struct oci_manifest manifest; /* of a layout, of a dir */
	struct oci_docker_save saved; /* of a docker save: */
	size_t which;                 /* the image of it */
	enum import_oci_form form;
	bool overlaybd;               /* the layers are that, all of them */
	size_t nlayers;
};

/* Does the source look like one? */
bool import_oci_is(const struct import_source *s);

/* Find the image for a platform (and, if not NULL, of a tag), with all documents that lead to it checked against their
 * digests. */
int import_oci_open(const struct import_source *s, const struct oci_platform *wanted, const char *tag,
		    struct import_oci *ret, struct err *err);
void import_oci_close(struct import_oci *o);

/* Open layer k; its size and digest are checked against the manifest. To be closed. */
int import_oci_layer(const struct import_oci *o, const struct import_source *s, size_t k, struct import_blob *ret,
		     struct progress *p, struct err *err);

/* Apply all layers (not overlaybd's) to the tree, each compared with its diff_id. */
int import_oci_unpack(const struct import_oci *o, const struct import_source *s, struct import_tree *t,
		      struct progress *p, struct err *err);
