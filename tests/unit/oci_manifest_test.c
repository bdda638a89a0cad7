/* SPDX-License-Identifier: Apache-2.0 */
/* host/oci_manifest: what is taken from the documents of container images, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "host/image.h"
#include "host/oci_manifest.h"

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define A "sha256:" HEX_A
#define B "sha256:" HEX_B
#define ENTRY(digest, more) "{\"mediaType\":\"" OCI_TYPE_MANIFEST "\",\"digest\":\"" digest "\",\"size\":5" more "}"
#define PLATFORM(os, arch) ",\"platform\":{\"os\":\"" os "\",\"architecture\":\"" arch "\"}"
#define TAG(name) ",\"annotations\":{\"" OCI_REF_NAME "\":\"" name "\"}"
#define CONFIG_DESCRIPTOR "\"config\":{\"mediaType\":\"" OCI_TYPE_CONFIG "\",\"digest\":\"" A "\",\"size\":2}"
#define LAYER(type, digest, more) "{\"mediaType\":\"" type "\",\"digest\":\"" digest "\",\"size\":7" more "}"

static const struct oci_platform amd64 = { .os = "linux", .arch = "amd64" };

/* The digest that is chosen, or the error's code. */
static int choose(const char *text, const char *ref, char ret[OCI_DIGEST_LEN + 1], struct err *err)
{
	const struct oci_descriptor *d;
	struct oci_index o;
	int r;

	*err = ERR_INIT;
	assert_int_equal(oci_index_parse(text, strlen(text), &o, err), 0);
	r = oci_index_choose(&o, &amd64, ref, &d, err);
	if (r == 0)
		memcpy(ret, d->digest, sizeof(d->digest));
	oci_index_finish(&o);
	return r;
}

static void an_index_gives_the_manifest_of_the_platform(void **state)
{
	char digest[OCI_DIGEST_LEN + 1];
	struct err err;

	(void)state;
	assert_int_equal(choose("{\"manifests\":[" ENTRY(A, PLATFORM("linux", "arm64")) "," ENTRY(B, PLATFORM("linux", "amd64")) "]}", NULL,
				digest, &err),
			 0);
	assert_string_equal(digest, B);
	assert_string_equal(oci_digest_hex(digest), HEX_B);
}

static void a_platform_that_is_not_there_is_said_with_what_is(void **state)
{
	char digest[OCI_DIGEST_LEN + 1];
	struct err err;

	(void)state;
	assert_int_equal(choose("{\"manifests\":[" ENTRY(A, PLATFORM("linux", "arm64")) "]}", NULL, digest, &err), -ENOENT);
	assert_non_null(strstr(err.text, "linux/amd64"));
	assert_non_null(strstr(err.text, "linux/arm64"));
}

static void an_entry_without_a_platform_is_taken_when_nothing_else_fits(void **state)
{
	char digest[OCI_DIGEST_LEN + 1];
	struct err err;

	(void)state;
	assert_int_equal(choose("{\"manifests\":[" ENTRY(A, PLATFORM("linux", "s390x")) "," ENTRY(B, "") "]}", NULL, digest, &err), 0);
	assert_string_equal(digest, B);
}

static void a_choice_needs_a_tag(void **state)
{
	static const char text[] = "{\"manifests\":[" ENTRY(A, TAG("one")) "," ENTRY(B, TAG("two")) "]}";
	char digest[OCI_DIGEST_LEN + 1];
	struct err err;

	(void)state;
	assert_int_equal(choose(text, NULL, digest, &err), -EINVAL);
	assert_non_null(strstr(err.text, "one, two"));
	assert_int_equal(choose(text, "two", digest, &err), 0);
	assert_string_equal(digest, B);
	assert_int_equal(choose(text, "three", digest, &err), -ENOENT);
}

static void a_tag_needs_not_say_what_goes_without_saying(void **state)
{
	static const char *const same[][2] = {
		{ "a:1", "a:1" }, { "docker.io/library/a:1", "a:1" }, { "docker.io/me/a:latest", "me/a" }, { "a:1", "docker.io/library/a:1" },
		{ "example.org/a:latest", "example.org/a" },
	};
	static const char *const different[][2] = {
		{ "a:1", "a" }, { "a:latest", "a:late" }, { "docker.io/me/a:1", "a:1" }, { "example.org/library/a:1", "a:1" }, { "", "x" },
		{ "docker.io/library/a:latest", "" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		assert_true(oci_tag_is(same[i][0], same[i][1]));
	for (size_t i = 0; i < sizeof(different) / sizeof(different[0]); i++)
		assert_false(oci_tag_is(different[i][0], different[i][1]));
}

static void layers_are_told_apart_by_type_and_annotation(void **state)
{
	static const char text[] = "{" CONFIG_DESCRIPTOR ",\"layers\":[" LAYER(OCI_TYPE_LAYER "+zstd", A, "") "," LAYER(
		OCI_TYPE_LAYER, B, ",\"annotations\":{\"" OCI_OVERLAYBD_DIGEST "\":\"" B "\"}") "]}";
	struct err err = ERR_INIT;
	struct oci_manifest o;

	(void)state;
	assert_int_equal(oci_manifest_parse(text, strlen(text), &o, &err), 0);
	assert_int_equal(o.nlayers, 2);
	assert_int_equal(o.layer[0].kind, OCI_KIND_TAR);
	assert_int_equal(o.layer[1].kind, OCI_KIND_OVERLAYBD);
	assert_int_equal(o.layer[1].size, 7);
	assert_string_equal(o.config.digest, A);
	oci_manifest_finish(&o);
}

static void bad_manifests_are_refused(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "", "line" },
		{ "[]", "not an object" },
		{ "{}", "config" },
		{ "{" CONFIG_DESCRIPTOR "}", "layers" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[]}", "no layers" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[1]}", "layer 1" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[" LAYER("text/plain", A, "") "]}", "text/plain" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[" LAYER(OCI_TYPE_LAYER, "sha256:../../../../etc/passwd", "") "]}", "digest" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[" LAYER(OCI_TYPE_LAYER, "sha512:" HEX_A HEX_A, "") "]}", "digest" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[{\"mediaType\":\"" OCI_TYPE_LAYER "\",\"digest\":\"" A "\",\"size\":-1}]}", "size" },
		{ "{" CONFIG_DESCRIPTOR ",\"layers\":[{\"mediaType\":\"" OCI_TYPE_LAYER "\",\"digest\":\"" A "\",\"size\":\"9\"}]}", "size" },
		{ "{" CONFIG_DESCRIPTOR "," CONFIG_DESCRIPTOR "}", "duplicate" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = ERR_INIT;
		struct oci_manifest o;

		assert_int_equal(oci_manifest_parse(bad[i].text, strlen(bad[i].text), &o, &err), -EINVAL);
		if (strstr(err.text, bad[i].says) == NULL)
			fail_msg("'%s' lacks '%s'", err.text, bad[i].says);
	}
}

static void a_config_becomes_defaults_of_an_image(void **state)
{
	static const char text[] = "{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":{\"Env\":[\"A=1\"],\"Entrypoint\":[\"/e\"],"
				   "\"Cmd\":[\"c\"],\"User\":\"7:8\",\"WorkingDir\":\"/w\"},\"rootfs\":{\"diff_ids\":[\"" A "\"]}}";
	struct image image = { 0 };
	struct err err = ERR_INIT;
	struct oci_config o;

	(void)state;
	assert_int_equal(oci_config_parse(text, strlen(text), &o, &err), 0);
	assert_int_equal(o.ndiff_ids, 1);
	assert_string_equal(o.diff_id[0], A);
	assert_string_equal(o.platform.arch, "amd64");
	assert_int_equal(oci_config_apply(&o, &image, &err), 0);
	assert_string_equal(image.env[0], "A=1");
	assert_string_equal(image.cmd[0], "/e");
	assert_string_equal(image.cmd[1], "c");
	assert_null(image.cmd[2]);
	assert_string_equal(image.user, "7:8");
	assert_string_equal(image.cwd, "/w");
	image_finish(&image);
	oci_config_finish(&o);
}

static void defaults_that_no_vm_could_have_are_refused(void **state)
{
	static const struct {
		const char *config, *says;
	} bad[] = {
		{ "\"Env\":[\"A=1\",\"NOEQ\"]", "\"Env\": 'NOEQ'" },
		{ "\"Env\":[\"=x\"]", "\"Env\": '=x'" },
		{ "\"Cmd\":[\"\"]", "empty word" },
		{ "\"Entrypoint\":[\"\"],\"Cmd\":[\"x\"]", "empty word" },
		{ "\"User\":\"a:b:c\"", "\"User\": 'a:b:c'" },
		{ "\"User\":\"99999999999\"", "\"User\": '99999999999'" },
		{ "\"User\":\"4294967295\"", "\"User\"" },
		{ "\"User\":\"1:\"", "\"User\"" },
		{ "\"User\":\"a b\"", "\"User\"" },
		{ "\"WorkingDir\":\"rel/x\"", "\"WorkingDir\": 'rel/x'" },
		{ "\"WorkingDir\":\"/../..\"", "\"WorkingDir\"" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct image image = { 0 };
		struct err err = ERR_INIT;
		struct oci_config o;
		char text[256];

		snprintf(text, sizeof(text), "{\"config\":{%s},\"rootfs\":{\"diff_ids\":[]}}", bad[i].config);
		assert_int_equal(oci_config_parse(text, strlen(text), &o, &err), 0);
		assert_int_equal(oci_config_apply(&o, &image, &err), -EINVAL);
		if (strstr(err.text, bad[i].says) == NULL)
			fail_msg("'%s' lacks '%s'", err.text, bad[i].says);
		oci_config_finish(&o);
	}
}

static void what_is_odd_and_right_in_defaults_is_kept(void **state)
{
	static const char text[] = "{\"config\":{\"Env\":[\"A=\",\"B=1\\n2=3\"],\"Entrypoint\":[\"/e\",\"\"],\"User\":\"0:4294967294\","
				   "\"WorkingDir\":\"/a/..b\"},\"rootfs\":{\"diff_ids\":[]}}";
	struct image image = { 0 };
	struct err err = ERR_INIT;
	struct oci_config o;

	(void)state;
	assert_int_equal(oci_config_parse(text, strlen(text), &o, &err), 0);
	assert_int_equal(oci_config_apply(&o, &image, &err), 0);
	assert_string_equal(image.env[1], "B=1\n2=3");
	assert_string_equal(image.cmd[1], "");
	assert_string_equal(image.user, "0:4294967294");
	image_finish(&image);
	oci_config_finish(&o);
}

static void a_config_with_nulls_and_empty_strings_says_nothing(void **state)
{
	static const char text[] = "{\"config\":{\"Env\":null,\"Entrypoint\":[],\"Cmd\":null,\"User\":\"\",\"WorkingDir\":\"\"},"
				   "\"rootfs\":{\"diff_ids\":[]}}";
	struct image image = { 0 };
	struct err err = ERR_INIT;
	struct oci_config o;

	(void)state;
	assert_int_equal(oci_config_parse(text, strlen(text), &o, &err), 0);
	assert_int_equal(oci_config_apply(&o, &image, &err), 0);
	assert_null(image.env);
	assert_null(image.cmd);
	assert_null(image.user);
	assert_null(image.cwd);
	oci_config_finish(&o);
}

static void a_docker_save_names_files_of_the_archive(void **state)
{
	static const char good[] = "[{\"Config\":\"c.json\",\"RepoTags\":[\"app:1\"],\"Layers\":[\"x/layer.tar\"]}]";
	static const char *const bad[] = {
		"[]", "{}", "[{\"Config\":\"c.json\"}]", "[{\"Config\":\"/etc/passwd\",\"Layers\":[\"a\"]}]",
		"[{\"Config\":\"c\",\"Layers\":[\"a/../../b\"]}]", "[{\"Config\":\"c\",\"Layers\":[\"..\"]}]",
	};
	struct err err = ERR_INIT;
	struct oci_docker_save o;

	(void)state;
	assert_int_equal(oci_docker_save_parse(good, strlen(good), &o, &err), 0);
	assert_int_equal(o.n, 1);
	assert_string_equal(o.image[0].layer[0], "x/layer.tar");
	assert_string_equal(o.image[0].tags[0], "app:1");
	oci_docker_save_finish(&o);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(oci_docker_save_parse(bad[i], strlen(bad[i]), &o, &err), -EINVAL);
}

static void a_document_is_recognised(void **state)
{
	static const char index[] = "{\"manifests\":[]}", manifest[] = "{\"layers\":[]}", said[] = "{\"mediaType\":\"" OCI_TYPE_DOCKER_LIST "\"}";

	(void)state;
	assert_int_equal(oci_document_kind(index, strlen(index)), OCI_KIND_INDEX);
	assert_int_equal(oci_document_kind(manifest, strlen(manifest)), OCI_KIND_MANIFEST);
	assert_int_equal(oci_document_kind(said, strlen(said)), OCI_KIND_INDEX);
	assert_int_equal(oci_document_kind("{}", 2), OCI_KIND_OTHER);
	assert_int_equal(oci_document_kind("{", 1), OCI_KIND_OTHER);
}

static void platforms_are_two_or_three_words(void **state)
{
	static const char *const bad[] = { "", "linux", "linux/", "/amd64", "linux/arm/v7/x", "linux//v7" };
	struct oci_platform p;

	(void)state;
	assert_int_equal(oci_platform_parse("linux/arm/v7", &p, NULL), 0);
	assert_string_equal(p.variant, "v7");
	assert_true(oci_platform_fits(&(struct oci_platform){ .os = "linux", .arch = "arm" }, &p));
	assert_false(oci_platform_fits(&(struct oci_platform){ .os = "linux", .arch = "arm", .variant = "v6" }, &p));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(oci_platform_parse(bad[i], &p, NULL), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_index_gives_the_manifest_of_the_platform),
		cmocka_unit_test(a_platform_that_is_not_there_is_said_with_what_is),
		cmocka_unit_test(an_entry_without_a_platform_is_taken_when_nothing_else_fits),
		cmocka_unit_test(a_choice_needs_a_tag),
		cmocka_unit_test(a_tag_needs_not_say_what_goes_without_saying),
		cmocka_unit_test(layers_are_told_apart_by_type_and_annotation),
		cmocka_unit_test(bad_manifests_are_refused),
		cmocka_unit_test(a_config_becomes_defaults_of_an_image),
		cmocka_unit_test(a_config_with_nulls_and_empty_strings_says_nothing),
		cmocka_unit_test(defaults_that_no_vm_could_have_are_refused),
		cmocka_unit_test(what_is_odd_and_right_in_defaults_is_kept),
		cmocka_unit_test(a_docker_save_names_files_of_the_archive),
		cmocka_unit_test(a_document_is_recognised),
		cmocka_unit_test(platforms_are_two_or_three_words),
	};

	return cmocka_run_group_tests_name("oci_manifest", tests, NULL, NULL);
}
