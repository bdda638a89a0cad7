/* SPDX-License-Identifier: Apache-2.0 */
/* host/debian_sources: which mirrors of a suite the host's apt has, in both of its formats. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "host/file.h"
#include "host/image_debian.h"

struct fixture {
	char dir[64];
	char found[DEBIAN_SOURCES_MAX];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[128];

	assert_non_null(f);
	strcpy(f->dir, "/tmp/coffer-apt-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(path, sizeof(path), "%s/sources.list.d", f->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	file_remove_tree(AT_FDCWD, f->dir);
	free(f);
	return 0;
}

static void put(struct fixture *f, const char *name, const char *text)
{
	struct err err = ERR_INIT;
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", f->dir, name);
	assert_int_equal(file_write_atomic(path, text, strlen(text), 0644, false, &err), 0);
}

static const char *find(struct fixture *f)
{
	size_t n = debian_sources_find(f->dir, "bookworm", f->found);

	assert_int_equal(n, strlen(f->found));
	return f->found;
}

static void lines_are_read(void **state)
{
	struct fixture *f = *state;

	put(f, "sources.list",
	    "# deb http://no.example/debian bookworm main\n"
	    "deb http://a.example/debian bookworm main contrib\n"
	    "deb-src http://a.example/debian bookworm main\n"
	    "  deb\t[arch=amd64 signed-by=/k.gpg] http://a.example/debian  bookworm-updates  main\n"
	    "deb [trusted=yes] http://a.example/debian-security bookworm-security main\n");
	assert_string_equal(find(f), "deb http://a.example/debian bookworm main\n"
				     "deb [signed-by=/k.gpg] http://a.example/debian bookworm-updates main\n"
				     "deb [trusted=yes] http://a.example/debian-security bookworm-security main\n");
}

static void stanzas_are_read(void **state)
{
	struct fixture *f = *state;

	put(f, "sources.list.d/debian.sources",
	    "Types: deb deb-src\n"
	    "# URIs: http://no.example/\n"
	    "URIs: http://a.example/debian\n"
	    "  http://b.example/debian\n"
	    "Suites: bookworm bookworm-updates bookworm-backports\n"
	    "Components: main\n"
	    "Signed-By: /usr/share/keyrings/k.gpg\n"
	    "\n"
	    "types: deb\n"
	    "uris: http://c.example/debian-security\n"
	    "suites: bookworm-security\n"
	    "components: main non-free\n");
	assert_string_equal(find(f), "deb [signed-by=/usr/share/keyrings/k.gpg] http://a.example/debian bookworm main\n"
				     "deb [signed-by=/usr/share/keyrings/k.gpg] http://a.example/debian bookworm-updates main\n"
				     "deb [signed-by=/usr/share/keyrings/k.gpg] http://b.example/debian bookworm main\n"
				     "deb [signed-by=/usr/share/keyrings/k.gpg] http://b.example/debian bookworm-updates main\n"
				     "deb http://c.example/debian-security bookworm-security main\n");
}

static void key_in_the_stanza_is_left_out(void **state)
{
	struct fixture *f = *state;

	put(f, "sources.list.d/x.sources",
	    "Types: deb\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n"
	    "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQINBF\n");
	assert_string_equal(find(f), "deb http://a.example/debian bookworm main\n");
}

static void other_repositories_are_left_out(void **state)
{
	struct fixture *f = *state;

	put(f, "sources.list.d/a.list",
	    "deb https://download.example/linux/debian bookworm stable\n"
	    "deb https://packages.example/apt cloud-sdk-bookworm main\n"
	    "deb http://a.example/debian bookworm-backports main\n"
	    "deb http://a.example/debian trixie main\n");
	put(f, "sources.list.d/b.sources",
	    "Enabled: no\nTypes: deb\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n\n"
	    "Types: deb-src\nURIs: http://a.example/debian\nSuites: bookworm\nComponents: main\n\n"
	    "Types: deb\nURIs: http://a.example/flat/\nSuites: ./\n");
	put(f, "sources.list.d/c.list.save", "deb http://a.example/debian bookworm main\n");
	assert_string_equal(find(f), "");
}

static void doubles_are_one(void **state)
{
	struct fixture *f = *state;

	put(f, "sources.list", "deb http://a.example/debian bookworm main\ndeb http://a.example/debian bookworm main contrib\n");
	put(f, "sources.list.d/a.list", "deb http://a.example/debian bookworm main");
	assert_string_equal(find(f), "deb http://a.example/debian bookworm main\n");
}

static void nonsense_is_skipped(void **state)
{
	struct fixture *f = *state;
	char *junk = malloc(100001);

	memset(junk, 'x', 100000);
	junk[100000] = '\0';
	memcpy(junk, "deb ", 4);
	put(f, "sources.list", junk);
	free(junk);
	put(f, "sources.list.d/a.list", "deb [unclosed http://a.example/debian bookworm main\ndeb\ndeb \ndeb x\n\n\n[");
	put(f, "sources.list.d/b.sources", ":\n: :\nTypes\n  continuation of nothing\nTypes:\nURIs:\nSuites:\nComponents:");
	assert_string_equal(find(f), "");
}

static void there_need_be_no_directory(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(debian_sources_find("/nonexistent", "bookworm", f->found), 0);
	assert_string_equal(f->found, "");
}

static void result_has_a_limit(void **state)
{
	struct fixture *f = *state;
	char *many = malloc(200000);
	size_t n = 0;

	for (unsigned i = 0; i < 2000; i++)
		n += (size_t)sprintf(many + n, "deb http://mirror-%u.example/debian bookworm main\n", i);
	put(f, "sources.list", many);
	free(many);
	assert_true(strlen(find(f)) < DEBIAN_SOURCES_MAX);
	assert_int_equal(f->found[strlen(f->found) - 1], '\n');
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(lines_are_read),
		TEST(stanzas_are_read),
		TEST(key_in_the_stanza_is_left_out),
		TEST(other_repositories_are_left_out),
		TEST(doubles_are_one),
		TEST(nonsense_is_skipped),
		TEST(there_need_be_no_directory),
		TEST(result_has_a_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
