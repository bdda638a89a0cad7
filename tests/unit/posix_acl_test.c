/* SPDX-License-Identifier: Apache-2.0 */
/* host/posix_acl: texts of archives, and what the kernel would not take. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "host/posix_acl.h"
#include "lib/util.h"

static int parse(const char *text, uint8_t ret[POSIX_ACL_SIZE_MAX])
{
	return posix_acl_from_text(text, strlen(text), NULL, NULL, ret);
}

static void a_text_becomes_an_attribute(void **state)
{
	/* Version 2; then tag, permissions and id of each, in the order of the tags. */
	static const uint8_t want[] = {
		2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 7, 0, 0, 0, 2, 0, 5, 0, 210, 4, 0, 0,
		4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
	};
	static const char *const texts[] = {
		"user::rw-,user:1234:r-x,user:lp:r--:7,group::r--,mask::rwx,other::---",
		"other::---\nmask:rwx\ngroup::r--\nuser:lp:r--:7\nuser:1234:r-x\t#effective:r-x\n\nuser::rw-\n",
		"default:user::rw-,default:user:7:r,default:user:x:rx:1234,default:group::r,default:mask::rwx,default:other::-",
		" u::rw- , u:7:r , u:1234:xr , g::r , m::rwx , o::- ",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		uint8_t acl[POSIX_ACL_SIZE_MAX];

		assert_int_equal(parse(texts[i], acl), sizeof(want));
		assert_memory_equal(acl, want, sizeof(want));
	}
}

static void the_mask_stands_for_the_group_in_a_mode(void **state)
{
	uint8_t acl[POSIX_ACL_SIZE_MAX];
	uint32_t mode = 0;
	int n;

	(void)state;
	n = parse("user::rwx,user:7:r--,group::r-x,mask::-w-,other::--x", acl);
	assert_true(n > 0);
	assert_true(posix_acl_is_valid(acl, (size_t)n, &mode));
	assert_int_equal(mode, 0721);
	n = parse("user::rwx,group::r-x,other::--x", acl);
	assert_true(posix_acl_is_valid(acl, (size_t)n, &mode));
	assert_int_equal(mode, 0751);
}

static void names_without_ids_are_told_apart(void **state)
{
	uint8_t acl[POSIX_ACL_SIZE_MAX];

	(void)state;
	assert_int_equal(parse("user::rw-,user:lp:r--,group::r--,mask::r--,other::r--", acl), -ENOENT);
	assert_int_equal(parse("", acl), 0);
	assert_int_equal(parse("\n , #x", acl), 0);
}

static bool find(void *arg, bool group, const char *name, size_t n, uint32_t *ret)
{
	(void)arg;
	if (n != 2 || memcmp(name, "lp", 2) != 0)
		return false;
	*ret = group ? 70 : 7;
	return true;
}

static void names_are_asked_for(void **state)
{
	uint8_t acl[POSIX_ACL_SIZE_MAX], want[POSIX_ACL_SIZE_MAX];
	const char *text = "user::rw-,user:lp:r--,group::r--,group:lp:r--,mask::r--,other::r--";
	const char *unknown = "user::rw-,user:lp:r--,group::r--,group:cd:r--,mask::r--,other::r--";
	int n = posix_acl_from_text(text, strlen(text), find, NULL, acl);

	(void)state;
	assert_int_equal(n, parse("user::rw-,user:7:r--,group::r--,group:70:r--,mask::r--,other::r--", want));
	assert_memory_equal(acl, want, (size_t)n);
	assert_int_equal(posix_acl_from_text(unknown, strlen(unknown), find, NULL, acl), -ENOENT);
	assert_string_equal(posix_acl_attribute("SCHILY.acl.default"), "system.posix_acl_default");
	assert_null(posix_acl_attribute("SCHILY.acl.ace"));
}

static void texts_that_are_none_are_refused(void **state)
{
	static const char *const bad[] = {
		"x", "::", "user", "user:", "user::", "user::rwz", "user:::", "nobody::rwx", "mask:7:rwx", "user::rwx", "user::rwx,group::r",
		"user::rwx,user::rwx,group::r,other::r", "user::rwx,user:7:r,group::r,other::r", "user::rwx,user:4294967295:r:4294967295,group::r,mask::r,other::r,",
		"default:", "default", "user::rwx\1,group::r,other::r",
	};
	uint8_t acl[POSIX_ACL_SIZE_MAX];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (parse(bad[i], acl) >= 0)
			fail_msg("'%s' is taken", bad[i]);
}

static void more_entries_than_fit_are_refused(void **state)
{
	static char text[POSIX_ACL_ENTRIES_MAX * 16 + 64];
	uint8_t acl[POSIX_ACL_SIZE_MAX];
	size_t n = 0;

	(void)state;
	for (int i = 0; i < POSIX_ACL_ENTRIES_MAX - 3; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "u:%d:r,", i);
	snprintf(text + n, sizeof(text) - n, "u::r,g::r,o::r,m::r");
	assert_int_equal(parse(text, acl), -EINVAL);
	snprintf(text + n, sizeof(text) - n, "u::r,g::r,m::r");
	assert_int_equal(parse(text, acl), -EINVAL); /* fits, but has no others */
	snprintf(text + n - 8, sizeof(text) - n + 8, ",u::r,g::r,o::r,m::r");
	assert_int_equal(parse(text, acl), POSIX_ACL_SIZE_MAX);
}

static void every_cut_and_changed_tag_of_an_attribute_is_refused(void **state)
{
	uint8_t acl[POSIX_ACL_SIZE_MAX];
	int n = parse("user::rw-,user:7:r--,group::r--,group:8:rwx,mask::rwx,other::---", acl);

	(void)state;
	assert_int_equal(n, POSIX_ACL_HEAD + 6 * POSIX_ACL_ENTRY);
	for (int len = 0; len < n; len++)
		assert_false(posix_acl_is_valid(acl, (size_t)len, NULL));
	for (int at = POSIX_ACL_HEAD; at < n; at += POSIX_ACL_ENTRY)
		for (unsigned tag = 0; tag < 256; tag++) {
			uint8_t old = acl[at];

			acl[at] = (uint8_t)tag;
			assert_int_equal(posix_acl_is_valid(acl, (size_t)n, NULL), tag == old);
			acl[at] = old;
		}
	acl[0] = 1;
	assert_false(posix_acl_is_valid(acl, (size_t)n, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_becomes_an_attribute),
		cmocka_unit_test(the_mask_stands_for_the_group_in_a_mode),
		cmocka_unit_test(names_without_ids_are_told_apart),
		cmocka_unit_test(names_are_asked_for),
		cmocka_unit_test(texts_that_are_none_are_refused),
		cmocka_unit_test(more_entries_than_fit_are_refused),
		cmocka_unit_test(every_cut_and_changed_tag_of_an_attribute_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
