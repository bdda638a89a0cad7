/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Documents of container images. Input: the text, which every parser is given. What one takes keeps to the bounds: digests that can be
 * parts of paths, paths that stay in the archive; what one refuses has a text and leaves nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "host/image.h"
#include "host/oci_manifest.h"
#include "tests/fuzz/fuzz.h"

static void check_descriptor(const struct oci_descriptor *d)
{
	FUZZ_REQUIRE(oci_is_digest(d->digest) && d->size <= INT64_MAX);
	FUZZ_REQUIRE(memchr(d->type, 0, sizeof(d->type)) && memchr(d->ref, 0, sizeof(d->ref)));
}

static void try_index(const char *text, size_t len)
{
	struct oci_platform p;
	const struct oci_descriptor *found;
	struct err err = ERR_INIT;
	struct oci_index o;

	FUZZ_REQUIRE(oci_platform_parse("linux/amd64", &p, NULL) == 0);
	if (oci_index_parse(text, len, &o, &err) < 0) {
		FUZZ_REQUIRE(err.text[0] && o.entry == NULL);
		return;
	}
	FUZZ_REQUIRE(o.n <= OCI_INDEX_MAX);
	for (size_t i = 0; i < o.n; i++)
		check_descriptor(&o.entry[i]);
	if (oci_index_choose(&o, &p, NULL, &found, &err) == 0)
		FUZZ_REQUIRE(found >= o.entry && found < o.entry + o.n);
	else
		FUZZ_REQUIRE(err.text[0]);
	oci_index_finish(&o);
}

static void try_manifest(const char *text, size_t len)
{
	struct err err = ERR_INIT;
	struct oci_manifest o;

	if (oci_manifest_parse(text, len, &o, &err) < 0) {
		FUZZ_REQUIRE(err.text[0] && o.layer == NULL);
		return;
	}
	FUZZ_REQUIRE(o.nlayers > 0 && o.nlayers <= OCI_LAYERS_MAX);
	check_descriptor(&o.config);
	for (size_t i = 0; i < o.nlayers; i++)
		check_descriptor(&o.layer[i]);
	oci_manifest_finish(&o);
}

static void try_config(const char *text, size_t len)
{
	struct err err = ERR_INIT;
	struct image image = { 0 };
	struct oci_config o;

	if (oci_config_parse(text, len, &o, &err) < 0) {
		FUZZ_REQUIRE(err.text[0] && o.diff_id == NULL && o.env == NULL);
		return;
	}
	for (size_t i = 0; i < o.ndiff_ids; i++)
		FUZZ_REQUIRE(oci_is_digest(o.diff_id[i]));
	if (oci_config_apply(&o, &image, &err) < 0)
		FUZZ_REQUIRE(err.text[0]);
	image_finish(&image);
	oci_config_finish(&o);
}

static void try_saved(const char *text, size_t len)
{
	struct err err = ERR_INIT;
	struct oci_docker_save o;

	if (oci_docker_save_parse(text, len, &o, &err) < 0) {
		FUZZ_REQUIRE(err.text[0] && o.image == NULL);
		return;
	}
	for (size_t i = 0; i < o.n; i++) {
		FUZZ_REQUIRE(o.image[i].nlayers > 0 && o.image[i].nlayers <= OCI_LAYERS_MAX);
		for (size_t k = 0; k < o.image[i].nlayers; k++)
			FUZZ_REQUIRE(o.image[i].layer[k][0] != '/' && strstr(o.image[i].layer[k], "/../") == NULL);
	}
	oci_docker_save_finish(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;

	oci_document_kind(text, size);
	try_index(text, size);
	try_manifest(text, size);
	try_config(text, size);
	try_saved(text, size);
	return 0;
}
