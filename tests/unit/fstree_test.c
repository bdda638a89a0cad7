/* SPDX-License-Identifier: Apache-2.0 */
/* host/fstree: what archives may say about paths, and what it makes of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "host/fstree.h"
#include "lib/util.h"

static int set_up(void **state)
{
	static struct fstree tree;
	struct err err = ERR_INIT;

	assert_int_equal(fstree_init(&tree, &err), 0);
	*state = &tree;
	return 0;
}

static int tear_down(void **state)
{
	fstree_finish(*state);
	return 0;
}

static int add(struct fstree *t, const char *path, uint32_t mode, struct err *err)
{
	struct fstree_inode like = { .mode = mode };

	*err = ERR_INIT;
	if (S_ISLNK(mode))
		like.target = "target";
	return fstree_add(t, path, &like, NULL, err);
}

static void missing_parents_are_made(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "a/b/c", S_IFREG | 0600, &err), 0);
	assert_true(S_ISDIR(fstree_lookup(t, "a")->mode));
	assert_int_equal(fstree_lookup(t, "a/b")->mode, S_IFDIR | 0755);
	assert_int_equal(fstree_lookup(t, "a/b/c")->mode, S_IFREG | 0600);
	assert_ptr_equal(fstree_lookup(t, "a/b")->dir.parent, fstree_lookup(t, "a"));
	assert_int_equal(fstree_lookup(t, "a")->dir.subdirs, 1);
}

static void slashes_and_dots_do_not_matter(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "/./x//./y/", S_IFDIR | 0700, &err), 0);
	assert_non_null(fstree_lookup(t, "x/y"));
	assert_ptr_equal(fstree_lookup(t, "x/y"), fstree_lookup(t, "./x/./y"));
}

static void dot_is_the_root(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "./", S_IFDIR | 0711, &err), 0);
	assert_int_equal(t->root->mode, S_IFDIR | 0711);
	assert_int_equal(add(t, ".", S_IFREG | 0644, &err), -EINVAL);
}

static void ways_out_are_refused(void **state)
{
	static const char *const paths[] = { "..", "../x", "a/../../x", "a/..", "/../x", "./../x" };
	struct fstree *t = *state;
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_int_equal(add(t, paths[i], S_IFREG, &err), -EINVAL);
		assert_non_null(strstr(err.text, paths[i]));
	}
}

static void names_with_dots_are_names(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "...", S_IFREG, &err), 0);
	assert_int_equal(add(t, "..a/.b", S_IFREG, &err), 0);
	assert_non_null(fstree_lookup(t, "..a/.b"));
}

static void symbolic_link_is_no_way(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "l", S_IFLNK | 0777, &err), 0);
	assert_int_equal(add(t, "l/x", S_IFREG, &err), -EINVAL);
	assert_non_null(strstr(err.text, "symbolic link"));
	assert_int_equal(add(t, "f", S_IFREG, &err), 0);
	assert_int_equal(add(t, "f/x", S_IFREG, &err), -EINVAL);
}

static void long_names_have_a_limit(void **state)
{
	struct fstree *t = *state;
	char name[FSTREE_NAME_MAX + 2], path[FSTREE_PATH_MAX + 1];
	struct err err;

	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(add(t, name, S_IFREG, &err), -EINVAL);
	name[FSTREE_NAME_MAX] = '\0';
	assert_int_equal(add(t, name, S_IFREG, &err), 0);
	for (size_t i = 0; i < sizeof(path) - 1; i++)
		path[i] = i % 2 ? '/' : 'd';
	path[sizeof(path) - 1] = '\0';
	assert_int_equal(add(t, path, S_IFREG, &err), -EINVAL);
	path[sizeof(path) - 2] = '\0';
	assert_int_equal(add(t, path, S_IFREG, &err), 0);
	assert_non_null(fstree_lookup(t, path));
}

static void second_file_replaces_the_first(void **state)
{
	struct fstree *t = *state;
	struct fstree_inode *first;
	struct err err;

	assert_int_equal(add(t, "f", S_IFREG | 0600, &err), 0);
	first = fstree_lookup(t, "f");
	assert_int_equal(add(t, "f", S_IFREG | 0644, &err), 0);
	assert_int_equal(fstree_lookup(t, "f")->mode, S_IFREG | 0644);
	assert_int_equal(fstree_lookup(t, "f")->nlink, 1);
	assert_int_equal(first->nlink, 0);
}

static void second_directory_keeps_the_contents(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "d/f", S_IFREG, &err), 0);
	assert_int_equal(add(t, "d", S_IFDIR | 0700, &err), 0);
	assert_int_equal(fstree_lookup(t, "d")->mode, S_IFDIR | 0700);
	assert_non_null(fstree_lookup(t, "d/f"));
}

static void directory_with_contents_is_not_replaced(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "d/f", S_IFREG, &err), 0);
	assert_int_equal(add(t, "d", S_IFREG, &err), -EINVAL);
	assert_int_equal(add(t, "e", S_IFDIR | 0755, &err), 0);
	assert_int_equal(t->root->dir.subdirs, 2);
	assert_int_equal(add(t, "e", S_IFREG, &err), 0);
	assert_int_equal(t->root->dir.subdirs, 1);
	assert_int_equal(add(t, "e", S_IFDIR | 0755, &err), 0);
	assert_int_equal(t->root->dir.subdirs, 2);
	assert_int_equal(add(t, "e/f", S_IFREG, &err), 0);
}

static void hard_link_shares_the_inode(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "f", S_IFREG, &err), 0);
	assert_int_equal(fstree_add_link(t, "d/g", "./f", &err), 0);
	assert_ptr_equal(fstree_lookup(t, "d/g"), fstree_lookup(t, "f"));
	assert_int_equal(fstree_lookup(t, "f")->nlink, 2);
	assert_int_equal(fstree_add_link(t, "f", "f", &err), 0);
	assert_int_equal(fstree_lookup(t, "f")->nlink, 2);
	assert_int_equal(add(t, "f", S_IFREG, &err), 0);
	assert_int_equal(fstree_lookup(t, "d/g")->nlink, 1);
}

static void hard_links_to_what_cannot_be_are_refused(void **state)
{
	static const char *const targets[] = { "absent", "d", "..", "../f", ".", "/", "absent/x", "f/x", "" };
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "d", S_IFDIR | 0755, &err), 0);
	assert_int_equal(add(t, "f", S_IFREG, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
		err = ERR_INIT;
		assert_int_equal(fstree_add_link(t, "l", targets[i], &err), -EINVAL);
		assert_true(err.text[0] != '\0');
	}
	assert_null(fstree_lookup(t, "l"));
	assert_int_equal(fstree_add_link(t, "d", "f", &err), -EINVAL);
}

static void attributes_have_a_limit(void **state)
{
	struct fstree *t = *state;
	struct fstree_inode like = { .mode = S_IFREG }, *i;
	uint8_t value[FSTREE_XATTRS_MAX] = { 0 };
	struct err err = ERR_INIT;

	assert_int_equal(fstree_add(t, "f", &like, &i, &err), 0);
	assert_int_equal(fstree_set_xattr(t, i, "user.a", value, 1000, &err), 0);
	assert_int_equal(fstree_set_xattr(t, i, "user.b", value, 1000, &err), 0);
	assert_int_equal(fstree_set_xattr(t, i, "user.c", value, 100, &err), -E2BIG);
	assert_int_equal(fstree_set_xattr(t, i, "user.b", value, 10, &err), 0);
	assert_int_equal(fstree_set_xattr(t, i, "user.c", value, 100, &err), 0);
	assert_int_equal(fstree_set_xattr(t, i, "", value, 1, &err), -E2BIG);
}

static void many_names_are_all_found(void **state)
{
	struct fstree *t = *state;
	char path[64];
	struct err err;

	for (unsigned i = 0; i < 20000; i++) {
		snprintf(path, sizeof(path), "d%u/f%u", i % 7, i);
		assert_int_equal(add(t, path, S_IFREG | (i & 0777), &err), 0);
	}
	for (unsigned i = 0; i < 20000; i++) {
		snprintf(path, sizeof(path), "d%u/f%u", i % 7, i);
		assert_int_equal(fstree_lookup(t, path)->mode, S_IFREG | (i & 0777));
	}
	assert_null(fstree_lookup(t, "d0/f1"));
}

static void link_target_has_a_limit(void **state)
{
	struct fstree *t = *state;
	char target[FSTREE_PATH_MAX + 1];
	struct fstree_inode like = { .mode = S_IFLNK, .target = target };
	struct err err = ERR_INIT;

	memset(target, 't', sizeof(target) - 1);
	target[sizeof(target) - 1] = '\0';
	assert_int_equal(fstree_add(t, "l", &like, NULL, &err), -EINVAL);
	target[0] = '\0';
	assert_int_equal(fstree_add(t, "l", &like, NULL, &err), -EINVAL);
}

static void link_to(struct fstree *t, const char *path, const char *target)
{
	struct fstree_inode like = { .mode = S_IFLNK | 0777, .target = target };

	assert_int_equal(fstree_add(t, path, &like, NULL, NULL), 0);
}

static void assert_resolves(const struct fstree *t, const char *path, const char *wanted)
{
	char got[FSTREE_PATH_MAX];

	assert_int_equal(fstree_resolve(t, path, got, NULL), 0);
	assert_string_equal(got, wanted);
}

static void links_on_the_way_are_followed_inside_the_tree(void **state)
{
	struct fstree *t = *state;
	char got[FSTREE_PATH_MAX];
	struct err err;

	assert_int_equal(add(t, "usr/lib", S_IFDIR | 0755, &err), 0);
	link_to(t, "lib", "usr/lib");
	link_to(t, "usr/abs", "/usr/../../usr/lib/");
	link_to(t, "twice", "usr/abs");
	link_to(t, "loop", "loop");
	assert_resolves(t, "lib/x", "usr/lib/x");
	assert_resolves(t, "/twice/x/y", "usr/lib/x/y");
	assert_resolves(t, "lib", "lib"); /* itself is what is named */
	assert_resolves(t, "lib/../../../x", "x");
	assert_resolves(t, "./none//x/", "none/x");
	assert_resolves(t, "/", "");
	err = ERR_INIT;
	assert_int_equal(fstree_resolve(t, "loop/x", got, &err), -ELOOP);
}

static void what_lower_layers_have_is_removed(void **state)
{
	struct fstree *t = *state;
	struct err err;

	assert_int_equal(add(t, "d/old/deep", S_IFREG | 0600, &err), 0);
	assert_int_equal(add(t, "d/kept/old", S_IFREG | 0600, &err), 0);
	assert_int_equal(fstree_add_link(t, "link", "d/old/deep", &err), 0);
	t->layer++;
	assert_int_equal(add(t, "d/kept/new", S_IFREG | 0600, &err), 0);
	assert_int_equal(fstree_remove_lower(t, "d", true, &err), 0);
	assert_null(fstree_lookup(t, "d/old"));
	assert_null(fstree_lookup(t, "d/kept/old"));
	assert_non_null(fstree_lookup(t, "d/kept/new"));
	assert_int_equal(fstree_lookup(t, "link")->nlink, 1);
	assert_int_equal(fstree_lookup(t, "d")->dir.subdirs, 1);
	assert_int_equal(fstree_remove_lower(t, "d", false, &err), 0);
	assert_non_null(fstree_lookup(t, "d/kept/new")); /* this layer's, and the way to it */
	assert_int_equal(fstree_remove_lower(t, "link", false, &err), 0);
	assert_null(fstree_lookup(t, "link"));
	assert_int_equal(fstree_remove_lower(t, "none/at/all", false, &err), 0);
	assert_int_equal(fstree_remove(t, "d", &err), 0);
	assert_null(fstree_lookup(t, "d"));
	assert_null(t->root->dir.first);
	assert_int_equal(add(t, "d/again", S_IFREG | 0600, &err), 0);
	assert_ptr_equal(t->root->dir.first, t->root->dir.last);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(missing_parents_are_made),
		TEST(slashes_and_dots_do_not_matter),
		TEST(dot_is_the_root),
		TEST(ways_out_are_refused),
		TEST(names_with_dots_are_names),
		TEST(symbolic_link_is_no_way),
		TEST(long_names_have_a_limit),
		TEST(second_file_replaces_the_first),
		TEST(second_directory_keeps_the_contents),
		TEST(directory_with_contents_is_not_replaced),
		TEST(hard_link_shares_the_inode),
		TEST(hard_links_to_what_cannot_be_are_refused),
		TEST(attributes_have_a_limit),
		TEST(many_names_are_all_found),
		TEST(link_target_has_a_limit),
		TEST(links_on_the_way_are_followed_inside_the_tree),
		TEST(what_lower_layers_have_is_removed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
