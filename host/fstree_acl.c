/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ACLs that an archive has with names. What ids these are is known when the tree is whole: they are users and groups of the root that the tree
 * is, so its own /etc/passwd and /etc/group say it, as for whoever unpacks the archive there. Until then the text is kept as
 * an attribute of the name that it has in archives.
 *
 * Trust: texts and files are the archive's. The files are read up to a limit; what is no line of theirs is passed over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/fstree_source.h"
#include "host/posix_acl.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { NAMES_MAX = 4 << 20, FILES = 2 };

struct names {
	char *text[FILES]; /* /etc/passwd, /etc/group; NULL: not there */
};

static int load(const struct fstree *t, const struct fstree_source *s, const char *path, char **ret, struct err *err)
{
	const struct fstree_inode *i = fstree_lookup_followed(t, path);
	bool owned;
	off_t offset;
	char *text;
	ssize_t n;
	int fd, r;

	if (i == NULL || !S_ISREG(i->mode) || i->size > NAMES_MAX)
		return 0;
	r = fstree_source_open(s, i, &fd, &offset, &owned, err);
	if (r < 0)
		return r;
	text = malloc((size_t)i->size + 1);
	n = text == NULL ? -ENOMEM : fd_pread_full(fd, text, (size_t)i->size, offset);
	if (owned)
		fd_close(fd);
	if (n < 0) {
		free(text);
		return err_errno(err, (int)n, "read '/%s' of the image", path);
	}
	text[n] = '\0';
	*ret = text;
	return 0;
}

/* "NAME:PASSWORD:ID:...", the first that fits. */
static bool find_id(void *arg, bool group, const char *name, size_t len, uint32_t *ret)
{
	const struct names *names = arg;

	for (const char *p = names->text[group]; p != NULL && *p != '\0'; p += strspn(p, "\n")) {
		const char *line = p, *id;
		uint64_t v = 0;
		size_t digits;

		p += strcspn(p, "\n");
		if (strncmp(line, name, len) != 0 || line[len] != ':')
			continue;
		id = memchr(line + len + 1, ':', (size_t)(p - line) - len - 1);
		digits = id == NULL ? 0 : strspn(id + 1, "0123456789");
		if (digits == 0 || digits > 10 || (id[1 + digits] != ':' && id + 1 + digits != p))
			continue;
		for (size_t i = 1; i <= digits; i++)
			v = v * 10 + (uint64_t)(id[i] - '0');
		if (v >= UINT32_MAX)
			continue;
		*ret = (uint32_t)v;
		return true;
	}
	return false;
}

/* `x` has been taken from the inode's list. */
static int set_acl(struct fstree *t, struct fstree_inode *inode, const struct fstree_xattr *x, struct names *names, struct err *err)
{
	uint8_t acl[POSIX_ACL_SIZE_MAX];
	int n = posix_acl_from_text(x->value, x->size, find_id, names, acl);

	if (n == -EINVAL)
		return err_set(err, n, "'%s': that is no ACL", TEXT_CUT((const char *)x->value));
	if (n < 0)
		fstree_leave_out(t, POSIX_ACL_WITHOUT_IDS);
	return n <= 0 ? 0 : fstree_set_xattr(t, inode, posix_acl_attribute(x->name), acl, (size_t)n, err);
}

int fstree_name_acls(struct fstree *t, const struct fstree_source *s, struct err *err)
{
	static const char *const files[FILES] = { "etc/passwd", "etc/group" };
	struct names names = { 0 };
	bool loaded = false;
	int r = 0;

	for (struct fstree_inode *i = t->root; i != NULL && r == 0; i = i->next) {
		for (struct fstree_xattr **p = &i->xattrs, *x; (x = *p) != NULL && r == 0;) {
			if (posix_acl_attribute(x->name) == NULL) {
				p = &x->next;
				continue;
			}
			*p = x->next;
			for (int k = 0; k < FILES && !loaded && r == 0; k++)
				r = load(t, s, files[k], &names.text[k], err);
			loaded = true;
			if (r == 0 && i->nlink > 0)
				r = set_acl(t, i, x, &names, err);
		}
	}
	for (int k = 0; k < FILES; k++)
		free(names.text[k]);
	return r;
}
