/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a coffer-import that was taken over can send: records of layers, applied to one tree.
 *
 * Input: a byte, bit 0: whiteouts mean something; then for each layer two bytes, how many, and as many bytes of records
 * (host/import/record.h). Whatever they say, the tree stays one: names are names, each directory is in the one it says, nothing has more than it may.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/fstree_source.h"
#include "host/import/record.h"
#include "host/import_tree.h"
#include "host/posix_acl.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { ENTRIES = 4096, LAYERS = 4 };

static void check_dir(const struct fstree_inode *dir)
{
	for (const struct fstree_dirent *e = dir->dir.first; e != NULL; e = e->next) {
		FUZZ_REQUIRE(*e->name != '\0' && strchr(e->name, '/') == NULL);
		FUZZ_REQUIRE(strcmp(e->name, ".") != 0 && strcmp(e->name, "..") != 0);
		FUZZ_REQUIRE(e->inode->nlink > 0);
		if (S_ISDIR(e->inode->mode))
			FUZZ_REQUIRE(e->inode->dir.parent == dir);
	}
}

/* named: no text of an ACL is left. */
static void check_tree(const struct fstree *t, bool named)
{
	for (const struct fstree_inode *i = t->root; i != NULL; i = i->next) {
		if (i->nlink == 0)
			continue;
		if (S_ISDIR(i->mode))
			check_dir(i);
		if (S_ISREG(i->mode))
			FUZZ_REQUIRE(i->size <= IMPORT_FILE_MAX && i->file.offset <= IMPORT_SPOOL_MAX && i->file.offset % IMPORT_ALIGN == 0);
		for (const struct fstree_xattr *x = i->xattrs; x != NULL; x = x->next)
			FUZZ_REQUIRE((fstree_xattr_is_kept(x->name) || (!named && posix_acl_attribute(x->name) != NULL)) && x->size <= IMPORT_XATTR_VALUE_MAX);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	bool whiteouts = fuzz_u8(&in) & 1;
	_cleanup_close_ int spool = memfd_create("spool", MFD_CLOEXEC);
	struct import_tree t;
	struct fstree tree;
	int r = 0;

	FUZZ_REQUIRE(spool >= 0 && fstree_init(&tree, NULL) == 0);
	t = IMPORT_TREE(&tree, spool, 1 << 30);
	t.entries_left = ENTRIES;
	for (int layer = 0; layer < LAYERS && r == 0 && in.left > 0; layer++) {
		_cleanup_close_ int fd = memfd_create("records", MFD_CLOEXEC);
		struct err err = ERR_INIT;
		size_t n = fuzz_u16(&in);
		char hex[65] = "";

		n = MIN(n, in.left);
		FUZZ_REQUIRE(fd >= 0 && fd_pwrite_full(fd, in.p, n, 0) == 0);
		in.p += n;
		in.left -= n;
		r = import_tree_follow(&t, fd, whiteouts, hex, &err);
		FUZZ_REQUIRE(r <= 0 && (r == 0 || err.text[0] != '\0' || r == -EPIPE));
		FUZZ_REQUIRE(r < 0 || strlen(hex) == 64);
		FUZZ_REQUIRE(t.bytes_left <= 1 << 30 && t.entries_left <= ENTRIES && t.spool <= 2 * IMPORT_SPOOL_MAX);
		check_tree(&tree, false);
	}
	if (fstree_name_acls(&tree, &(struct fstree_source){ .fd = spool }, NULL) == 0)
		check_tree(&tree, true);
	fstree_finish(&tree);
	return 0;
}
