/* SPDX-License-Identifier: Apache-2.0 */
/* host/pull_ref and host/pull_creds: addresses of images, and credentials for them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "host/pull_creds.h"
#include "host/pull_ref.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void expect(const char *text, const char *base, const char *tag, const char *name)
{
	struct pull_ref ref;
	char got[65];

	assert_int_equal(pull_ref_parse(text, false, false, &ref, NULL), 0);
	assert_string_equal(ref.base, base);
	assert_string_equal(ref.tag, tag);
	assert_int_equal(pull_ref_name(&ref, got, sizeof(got)), 0);
	assert_string_equal(got, name);
}

static void addresses_of_registries(void **state)
{
	(void)state;
	expect("docker://r.example.org/a/b:1.2", "https://r.example.org/v2/a/b/", "1.2", "b");
	expect("docker://r.example.org:5000/b", "https://r.example.org:5000/v2/b/", "latest", "b");
	expect("r.example.org/b@sha256:" HEX, "https://r.example.org/v2/b/", "sha256:" HEX, "b");
	expect("docker://r.example.org/b:x@sha256:" HEX, "https://r.example.org/v2/b/", "sha256:" HEX, "b");
	expect("docker.io/debian:12", "https://registry-1.docker.io/v2/library/debian/", "12", "debian");
	expect("docker.io/a/b", "https://registry-1.docker.io/v2/a/b/", "latest", "b");
}

static void this_machine_is_spoken_to_by_http(void **state)
{
	struct pull_ref ref;

	(void)state;
	expect("127.0.0.1:5000/a:t", "http://127.0.0.1:5000/v2/a/", "t", "a");
	expect("localhost/a", "http://localhost/v2/a/", "latest", "a");
	expect("docker://[::1]:80/a", "http://[::1]:80/v2/a/", "latest", "a");
	assert_int_equal(pull_ref_parse("localhost/a", false, true, &ref, NULL), 0);
	assert_string_equal(ref.origin, "https://localhost");
	assert_int_equal(pull_ref_parse("r.example.org/a", true, false, &ref, NULL), 0);
	assert_string_equal(ref.origin, "http://r.example.org");
	assert_true(pull_is_loopback("http://127.1.2.3/x"));
	assert_false(pull_is_loopback("http://127.0.0.1.example.org/"));
	assert_false(pull_is_loopback("localhost.example.org"));
	assert_false(pull_is_loopback("http://example.org/localhost"));
}

static void addresses_of_directories(void **state)
{
	(void)state;
	expect("https://h/a/b", "https://h/a/b/", "", "b");
	expect("http://h:8080/a/#v1", "http://h:8080/a/", "v1", "a");
}

static int parse_creds(const char *text, const char *host, const char *repository, struct pull_creds *ret)
{
	char copy[512];

	snprintf(copy, sizeof(copy), "%s", text);
	return pull_creds_parse(copy, strlen(copy), host, repository, ret, NULL);
}

static void the_closest_entry_is_taken(void **state)
{
	static const char text[] = "{\"auths\": {\"h:5\": {\"auth\": \"YTpi\"}, \"h:5/x\": {\"username\": \"c\", \"password\": \"d\"}, "
				   "\"https://i/v1/\": {\"auth\": \"ZTpm\"}}}";
	struct pull_creds c;

	(void)state;
	assert_int_equal(parse_creds(text, "h:5", "y/z", &c), 1);
	assert_string_equal(c.user, "a");
	assert_string_equal(c.password, "b");
	pull_creds_finish(&c);
	assert_int_equal(parse_creds(text, "h:5", "x/z", &c), 1);
	assert_string_equal(c.user, "c");
	pull_creds_finish(&c);
	assert_int_equal(parse_creds(text, "i", "x", &c), 1);
	assert_string_equal(c.password, "f");
	pull_creds_finish(&c);
	assert_int_equal(parse_creds(text, "h", "x", &c), 0);
}

static void layers_of_the_hub_have_its_credentials(void **state)
{
	struct pull_creds c;

	(void)state;
	assert_int_equal(parse_creds("{\"auths\": {\"https://index.docker.io/v1/\": {\"auth\": \"YTpi\"}}}", "registry-1.docker.io", "me/x", &c), 1);
	assert_string_equal(c.user, "a");
	pull_creds_finish(&c);
	assert_int_equal(parse_creds("{\"auths\": {\"docker.io/me\": {\"auth\": \"YTpi\"}}}", "registry-1.docker.io", "me/x", &c), 1);
	pull_creds_finish(&c);
	assert_int_equal(parse_creds("{\"auths\": {\"docker.io/me\": {\"auth\": \"YTpi\"}}}", "registry-1.docker.io", "you/x", &c), 0);
}

static void one_line_is_a_user(void **state)
{
	struct pull_creds c;

	(void)state;
	assert_int_equal(parse_creds("me:a:b\nmore", "any", "x", &c), 1);
	assert_string_equal(c.user, "me");
	assert_string_equal(c.password, "a:b");
	pull_creds_finish(&c);
}

static void bad_files_are_refused(void **state)
{
	static const char *const bad[] = { "", "nocolon", ":x", "{", "{\"auths\": {\"h\": {\"auth\": \"!!\"}}}",
					   "{\"auths\": {\"h\": {\"auth\": \"YWI=\"}}}", "{\"auths\": {\"h\": {\"identitytoken\": \"x\"}}}" };
	struct pull_creds c;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_true(parse_creds(bad[i], "h", "x", &c) < 0);
}

static void credentials_go_where_they_are_safe(void **state)
{
	struct pull_access a = { .ca_file = NULL };

	(void)state;
	assert_true(pull_creds_may_go("https://h", &a));
	assert_true(pull_creds_may_go("http://127.0.0.1:1", &a));
	assert_false(pull_creds_may_go("http://h", &a));
	a.insecure = true;
	assert_true(pull_creds_may_go("http://h", &a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_of_registries),
		cmocka_unit_test(this_machine_is_spoken_to_by_http),
		cmocka_unit_test(addresses_of_directories),
		cmocka_unit_test(the_closest_entry_is_taken),
		cmocka_unit_test(layers_of_the_hub_have_its_credentials),
		cmocka_unit_test(one_line_is_a_user),
		cmocka_unit_test(bad_files_are_refused),
		cmocka_unit_test(credentials_go_where_they_are_safe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
