/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree is made of inodes and directory entries, like what it becomes. Entries are found by one hash table over
 * (directory, name); each directory also lists its own in order of arrival. A replaced inode stays in the list with nlink 0
 * until the tree goes: everything lives in chunks that are freed together.
 *
 * Trust: paths and attributes come from archives. Every count has a limit (fstree.h), the path is checked component by
 * component, and the hash is seeded so that chosen names do not fall into one bucket.
 */
#include "host/fstree.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "host/posix_acl.h"
#include "lib/text.h"
#include "lib/util.h"

enum { CHUNK_SIZE = 256 << 10, BUCKETS_FIRST = 1 << 12 };

struct fstree_chunk {
	struct fstree_chunk *next;
	size_t used, size;
	uint32_t seed; /* of the first chunk: the hash's */
	_Alignas(16) char data[];
};

static void *allocate(struct fstree *t, size_t n)
{
	struct fstree_chunk *c = t->chunks;

	n = ALIGN_UP(n, (size_t)16);
	if (c == NULL || c->size - c->used < n) {
		size_t size = MAX(n, (size_t)CHUNK_SIZE);

		c = malloc(sizeof(*c) + size);
		if (c == NULL)
			return NULL;
		*c = (struct fstree_chunk){ .next = t->chunks, .size = size, .seed = t->chunks != NULL ? t->chunks->seed : 0 };
		t->chunks = c;
	}
	c->used += n;
	return memset(c->data + c->used - n, 0, n);
}

static const char *copy_string(struct fstree *t, const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy = allocate(t, n);

	return copy == NULL ? NULL : memcpy(copy, s, n);
}

static uint32_t hash_of(const struct fstree *t, const struct fstree_inode *dir, const char *name, size_t len)
{
	uint64_t h = (uint64_t)(uintptr_t)dir * 0x9e3779b97f4a7c15 ^ t->chunks->seed;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)name[i]) * 0x100000001b3;
	return (uint32_t)(h ^ h >> 29);
}

static struct fstree_dirent *find(const struct fstree *t, const struct fstree_inode *dir, const char *name, size_t len)
{
	uint32_t hash = hash_of(t, dir, name, len);
	struct fstree_dirent *d = t->buckets[hash & (t->nbuckets - 1)];

	while (d != NULL && (d->hash != hash || d->dir != dir || d->name_len != len || memcmp(d->name, name, len) != 0))
		d = d->hash_next;
	return d;
}

static int grow_table(struct fstree *t)
{
	size_t n = t->nbuckets * 2;
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
	struct fstree_dirent **buckets = calloc(n, sizeof(*buckets));

	if (buckets == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < t->nbuckets; i++) {
		struct fstree_dirent *d = t->buckets[i], *next;

		for (; d != NULL; d = next) {
			next = d->hash_next;
			d->hash_next = buckets[d->hash & (n - 1)];
			buckets[d->hash & (n - 1)] = d;
		}
	}
	free(t->buckets);
	t->buckets = buckets;
	t->nbuckets = n;
	return 0;
}

static struct fstree_inode *new_inode(struct fstree *t, uint32_t mode)
{
	struct fstree_inode *i = allocate(t, sizeof(*i));

	if (i == NULL)
		return NULL;
	i->mode = mode;
	if (t->last != NULL)
		t->last->next = i;
	t->last = i;
	t->inodes++;
	return i;
}

static int new_dirent(struct fstree *t, struct fstree_inode *dir, const char *name, size_t len, struct fstree_inode *inode)
{
	struct fstree_dirent *d;

	if (t->ndirents >= t->nbuckets && grow_table(t) < 0)
		return -ENOMEM;
	d = allocate(t, sizeof(*d) + len + 1);
	if (d == NULL)
		return -ENOMEM;
	d->dir = dir;
	d->inode = inode;
	d->hash = hash_of(t, dir, name, len);
	d->name_len = (uint8_t)len;
	memcpy(d->name, name, len);
	d->layer = t->layer;
	d->prev = dir->dir.last;
	d->hash_next = t->buckets[d->hash & (t->nbuckets - 1)];
	t->buckets[d->hash & (t->nbuckets - 1)] = d;
	if (dir->dir.last != NULL)
		dir->dir.last->next = d;
	else
		dir->dir.first = d;
	dir->dir.last = d;
	t->ndirents++;
	inode->nlink++;
	if (S_ISDIR(inode->mode)) {
		inode->dir.parent = dir;
		dir->dir.subdirs++;
	}
	return 0;
}

int fstree_init(struct fstree *t, struct err *err)
{
	*t = (struct fstree){ .nbuckets = BUCKETS_FIRST };
	/* NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers */
	t->buckets = calloc(t->nbuckets, sizeof(*t->buckets));
	t->root = t->buckets == NULL ? NULL : new_inode(t, S_IFDIR | 0755);
	if (t->root == NULL) {
		fstree_finish(t);
		return err_set(err, -ENOMEM, "no memory for a list of files");
	}
	t->root->nlink = 1;
	t->root->dir.parent = t->root;
	/* Without entropy the names are merely not protected against collisions. */
	if (getrandom(&t->chunks->seed, sizeof(t->chunks->seed), GRND_NONBLOCK) < 0)
		t->chunks->seed = (uint32_t)(uintptr_t)t;
	return 0;
}

void fstree_finish(struct fstree *t)
{
	struct fstree_chunk *c = t->chunks, *next;

	for (; c != NULL; c = next) {
		next = c->next;
		free(c);
	}
	free(t->buckets);
	*t = (struct fstree){ 0 };
}

/* The next component of *path, skipping slashes and "."; returns its length, 0 at the end, -EINVAL. */
static int next_component(const char **path, const char **ret_name, struct err *err, const char *whole)
{
	for (;;) {
		size_t n;

		*path += strspn(*path, "/");
		n = strcspn(*path, "/");
		*ret_name = *path;
		*path += n;
		if (n == 1 && **ret_name == '.')
			continue;
		if (n == 2 && memcmp(*ret_name, "..", 2) == 0)
			return err_set(err, -EINVAL, "'%s' leads out of the archive (\"..\")", TEXT_CUT(whole));
		if (n > FSTREE_NAME_MAX)
			return err_set(err, -EINVAL, "'%.200s...' has a name of %zu bytes; %d are possible", whole, n,
				       FSTREE_NAME_MAX);
		return (int)n;
	}
}

/* Walk to the directory of the last component. *ret_len is 0 when the path is the root itself. With `make`, missing
 * directories are made, otherwise they are -ENOENT. */
static int walk(struct fstree *t, const char *path, bool make, struct fstree_inode **ret_dir, const char **ret_name,
		size_t *ret_len, struct err *err)
{
	struct fstree_inode *dir = t->root;
	const char *p = path, *name, *next;
	int len, next_len;

	if (strnlen(path, FSTREE_PATH_MAX) >= FSTREE_PATH_MAX)
		return err_set(err, -EINVAL, "'%.200s...': the path is longer than %d bytes", path, FSTREE_PATH_MAX - 1);
	len = next_component(&p, &name, err, path);
	if (len < 0)
		return len;
	while ((next_len = len == 0 ? 0 : next_component(&p, &next, err, path)) > 0) {
		struct fstree_dirent *d = find(t, dir, name, (size_t)len);
		struct fstree_inode *inode = d == NULL ? NULL : d->inode;

		if (inode == NULL && !make)
			return -ENOENT;
		if (inode == NULL) {
			if (t->inodes >= FSTREE_INODES_MAX)
				return err_set(err, -EFBIG, "more than %d files", FSTREE_INODES_MAX);
			inode = new_inode(t, S_IFDIR | 0755);
			if (inode == NULL || new_dirent(t, dir, name, (size_t)len, inode) < 0)
				return err_set(err, -ENOMEM, "'%s': no memory", TEXT_CUT(path));
		}
		if (!S_ISDIR(inode->mode))
			return err_set(err, -EINVAL, "'%s' leads through '%.*s', which is %s", TEXT_CUT(path), len, name,
				       S_ISLNK(inode->mode) ? "a symbolic link" : "no directory");
		dir = inode;
		name = next;
		len = next_len;
	}
	if (next_len < 0)
		return next_len;
	*ret_dir = dir;
	*ret_name = name;
	*ret_len = (size_t)len;
	return 0;
}

/* Take over what the new member says; contents of a directory stay. */
static int set_attributes(struct fstree *t, struct fstree_inode *i, const struct fstree_inode *like)
{
	i->mode = like->mode;
	i->uid = like->uid;
	i->gid = like->gid;
	i->mtime_s = like->mtime_s;
	i->mtime_ns = like->mtime_ns;
	i->xattrs = NULL;
	switch (like->mode & S_IFMT) {
	case S_IFREG:
		i->size = like->size;
		i->file.offset = like->file.offset;
		i->file.holes = like->file.holes;
		if (like->file.path == NULL)
			break;
		i->file.path = copy_string(t, like->file.path);
		return i->file.path == NULL ? -ENOMEM : 0;
	case S_IFLNK:
		i->size = strlen(like->target);
		i->target = copy_string(t, like->target);
		return i->target == NULL ? -ENOMEM : 0;
	case S_IFCHR:
	case S_IFBLK:
		i->device.major = like->device.major;
		i->device.minor = like->device.minor;
		break;
	default:
		break;
	}
	return 0;
}

int fstree_add(struct fstree *t, const char *path, const struct fstree_inode *like, struct fstree_inode **ret,
	       struct err *err)
{
	struct fstree_inode *dir, *inode;
	struct fstree_dirent *d;
	const char *name;
	size_t len;
	int r;

	if (S_ISLNK(like->mode) && (*like->target == '\0' || strlen(like->target) >= FSTREE_PATH_MAX))
		return err_set(err, -EINVAL, "'%s' is a symbolic link to a path of %zu bytes", TEXT_CUT(path), strlen(like->target));
	r = walk(t, path, true, &dir, &name, &len, err);
	if (r < 0)
		return r;
	d = len == 0 ? NULL : find(t, dir, name, len);
	inode = len == 0 ? t->root : d == NULL ? NULL : d->inode;
	if (inode != NULL && S_ISDIR(inode->mode) != S_ISDIR(like->mode)) {
		if (len == 0)
			return err_set(err, -EINVAL, "the root, '/', would be something that is no directory");
		if (S_ISDIR(inode->mode) && inode->dir.first != NULL)
			return err_set(err, -EINVAL, "'%s' would replace a directory that has contents", TEXT_CUT(path));
	}
	if (inode == NULL || !S_ISDIR(inode->mode) || !S_ISDIR(like->mode)) {
		struct fstree_inode *old = inode;

		if (t->inodes >= FSTREE_INODES_MAX)
			return err_set(err, -EFBIG, "more than %d files", FSTREE_INODES_MAX);
		inode = new_inode(t, like->mode);
		if (inode == NULL)
			return err_set(err, -ENOMEM, "'%s': no memory", TEXT_CUT(path));
		if (old == NULL || d == NULL) {
			if (new_dirent(t, dir, name, len, inode) < 0)
				return err_set(err, -ENOMEM, "'%s': no memory", TEXT_CUT(path));
		} else { /* the entry stays in its place and names another inode */
			old->nlink--;
			inode->nlink = 1;
			d->inode = inode;
			dir->dir.subdirs += (uint32_t)S_ISDIR(inode->mode) - (uint32_t)S_ISDIR(old->mode);
			if (S_ISDIR(inode->mode))
				inode->dir.parent = dir;
		}
	}
	if (d != NULL)
		d->layer = t->layer;
	if (set_attributes(t, inode, like) < 0)
		return err_set(err, -ENOMEM, "'%s': no memory", TEXT_CUT(path));
	if (ret != NULL)
		*ret = inode;
	return 0;
}

int fstree_add_link(struct fstree *t, const char *path, const char *target, struct err *err)
{
	struct fstree_inode *inode, *dir;
	struct fstree_dirent *d;
	const char *name;
	size_t len;
	int r;

	r = walk(t, target, false, &dir, &name, &len, err);
	d = r < 0 || len == 0 ? NULL : find(t, dir, name, len);
	if (r == -ENOENT || (r == 0 && len != 0 && d == NULL))
		return err_set(err, -EINVAL, "'%s' is a hard link to '%s', which has not come before it", TEXT_CUT(path), TEXT_CUT(target));
	if (r < 0)
		return err_prefix(err, "hard link '%s': ", TEXT_CUT(path)), r;
	if (d == NULL || S_ISDIR(d->inode->mode))
		return err_set(err, -EINVAL, "'%s' is a hard link to the directory '%s'", TEXT_CUT(path), TEXT_CUT(target));
	inode = d->inode;
	if (inode->nlink >= FSTREE_LINKS_MAX)
		return err_set(err, -EMLINK, "'%s': more than %d hard links to one file", TEXT_CUT(path), FSTREE_LINKS_MAX);

	r = walk(t, path, true, &dir, &name, &len, err);
	if (r < 0)
		return r;
	d = len == 0 ? NULL : find(t, dir, name, len);
	if (len == 0)
		return err_set(err, -EINVAL, "the root, '/', would be a hard link");
	if (d != NULL && S_ISDIR(d->inode->mode))
		return err_set(err, -EINVAL, "'%s' would replace a directory by a hard link", TEXT_CUT(path));
	if (d != NULL) {
		d->inode->nlink--;
		inode->nlink++;
		d->inode = inode;
		d->layer = t->layer;
	} else if (new_dirent(t, dir, name, len, inode) < 0) {
		return err_set(err, -ENOMEM, "'%s': no memory", TEXT_CUT(path));
	}
	return 0;
}

/* ---- removing ---- */

static void unlink_dirent(struct fstree *t, struct fstree_dirent *d)
{
	struct fstree_dirent **p = &t->buckets[d->hash & (t->nbuckets - 1)];
	struct fstree_inode *dir = d->dir;

	while (*p != d)
		p = &(*p)->hash_next;
	*p = d->hash_next;
	if (d->prev != NULL)
		d->prev->next = d->next;
	else
		dir->dir.first = d->next;
	if (d->next != NULL)
		d->next->prev = d->prev;
	else
		dir->dir.last = d->prev;
	t->ndirents--;
	d->inode->nlink--;
	if (S_ISDIR(d->inode->mode))
		dir->dir.subdirs--;
}

/* Depth is bounded by the length of a path. Returns whether it is gone. */
static bool remove_dirent(struct fstree *t, struct fstree_dirent *d, bool lower)
{
	struct fstree_inode *inode = d->inode;

	/* NOLINTNEXTLINE(misc-no-recursion) */
	for (struct fstree_dirent *c = S_ISDIR(inode->mode) ? inode->dir.first : NULL, *next; c != NULL; c = next) {
		next = c->next;
		remove_dirent(t, c, lower);
	}
	if (lower && (d->layer == t->layer || (S_ISDIR(inode->mode) && inode->dir.first != NULL)))
		return false;
	unlink_dirent(t, d);
	return true;
}

static int remove_path(struct fstree *t, const char *path, bool lower, bool contents_only, struct err *err)
{
	struct fstree_inode *dir = NULL, *inode;
	struct fstree_dirent *d;
	const char *name;
	size_t len;
	int r = walk(t, path, false, &dir, &name, &len, err);

	if (r < 0)
		return r == -ENOENT ? 0 : r;
	d = len == 0 ? NULL : find(t, dir, name, len);
	if (len > 0 && d == NULL)
		return 0;
	if (!contents_only && d != NULL) {
		remove_dirent(t, d, lower);
		return 0;
	}
	inode = d == NULL ? t->root : d->inode;
	for (struct fstree_dirent *c = S_ISDIR(inode->mode) ? inode->dir.first : NULL, *next; c != NULL; c = next) {
		next = c->next;
		remove_dirent(t, c, lower);
	}
	return 0;
}

int fstree_remove_lower(struct fstree *t, const char *path, bool contents_only, struct err *err)
{
	return remove_path(t, path, true, contents_only, err);
}

int fstree_remove(struct fstree *t, const char *path, struct err *err)
{
	return remove_path(t, path, false, false, err);
}

/* ---- symbolic links ---- */

enum { LINKS_FOLLOWED_MAX = 40 };

int fstree_resolve(const struct fstree *t, const char *path, char ret[FSTREE_PATH_MAX], struct err *err)
{
	char todo[2 * FSTREE_PATH_MAX], done[FSTREE_PATH_MAX];
	const struct fstree_inode *dir = t->root; /* NULL: below it nothing is there */
	size_t used = 0, at = 0;
	int followed = 0;

	done[0] = '\0';
	if ((size_t)snprintf(todo, sizeof(todo), "%s", path) >= FSTREE_PATH_MAX)
		return err_set(err, -ENAMETOOLONG, "'%.200s...': the path is longer than %d bytes", path, FSTREE_PATH_MAX - 1);
	for (;;) {
		const struct fstree_dirent *d;
		size_t n;

		at += strspn(todo + at, "/");
		n = strcspn(todo + at, "/");
		if (n == 0)
			break;
		if (n == 1 && todo[at] == '.') {
			at += n;
			continue;
		}
		if (n == 2 && todo[at] == '.' && todo[at + 1] == '.') {
			char *slash = strrchr(done, '/');

			used = slash == NULL ? 0 : (size_t)(slash - done);
			done[used] = '\0';
			dir = fstree_lookup(t, done);
			if (dir != NULL && !S_ISDIR(dir->mode))
				dir = NULL;
			at += n;
			continue;
		}
		if (used + n + 2 > sizeof(done))
			return err_set(err, -ENAMETOOLONG, "'%s': the path is longer than %d bytes when its links are followed", TEXT_CUT(path),
				       FSTREE_PATH_MAX - 1);
		d = dir == NULL || n > FSTREE_NAME_MAX ? NULL : find(t, dir, todo + at, n);
		/* Links on the way are followed, the last component is what is named. */
		if (d != NULL && S_ISLNK(d->inode->mode) && todo[at + n + strspn(todo + at + n, "/")] != '\0') {
			char rest[FSTREE_PATH_MAX];

			if (++followed > LINKS_FOLLOWED_MAX)
				return err_set(err, -ELOOP, "'%s' leads through more than %d symbolic links", TEXT_CUT(path), LINKS_FOLLOWED_MAX);
			if ((size_t)snprintf(rest, sizeof(rest), "%s", todo + at + n) >= sizeof(rest) ||
			    strlen(d->inode->target) + strlen(rest) + 1 > sizeof(todo))
				return err_set(err, -ENAMETOOLONG, "'%s': the path is longer than %d bytes when its links are followed",
					       TEXT_CUT(path), FSTREE_PATH_MAX - 1);
			if (d->inode->target[0] == '/') {
				used = 0;
				done[0] = '\0';
				dir = t->root;
			}
			snprintf(todo, sizeof(todo), "%s%s", d->inode->target, rest);
			at = 0;
			continue;
		}
		if (used > 0)
			done[used++] = '/';
		memcpy(done + used, todo + at, n);
		used += n;
		done[used] = '\0';
		dir = d == NULL || !S_ISDIR(d->inode->mode) ? NULL : d->inode;
		at += n;
	}
	memcpy(ret, done, used + 1);
	return 0;
}

int fstree_set_xattr(struct fstree *t, struct fstree_inode *inode, const char *name, const void *value, size_t size,
		     struct err *err)
{
	struct fstree_xattr *x, *old = NULL;
	size_t total = strlen(name) + size;
	void *copy;

	for (x = inode->xattrs; x != NULL; x = x->next) {
		if (strcmp(x->name, name) == 0)
			old = x;
		else
			total += strlen(x->name) + x->size;
	}
	if (strcmp(name, POSIX_ACL_ACCESS) == 0 || strcmp(name, POSIX_ACL_DEFAULT) == 0) {
		uint32_t mode;

		if (!posix_acl_is_valid(value, size, &mode))
			return err_set(err, -EINVAL, "attribute '%s': that is no ACL", name);
		/* The kernel takes both together. */
		if (strcmp(name, POSIX_ACL_ACCESS) == 0 && !S_ISLNK(inode->mode))
			inode->mode = (inode->mode & ~0777u) | mode;
		if (S_ISLNK(inode->mode) || (strcmp(name, POSIX_ACL_ACCESS) == 0 && size == POSIX_ACL_HEAD + 3 * POSIX_ACL_ENTRY))
			return 0; /* the mode says it all */
	}
	if (*name == '\0' || strlen(name) > FSTREE_NAME_MAX || total > FSTREE_XATTRS_MAX)
		return err_set(err, -E2BIG, "attribute '%s': more than %d bytes of attributes on one file", TEXT_CUT(name),
			       FSTREE_XATTRS_MAX);
	copy = allocate(t, size);
	x = old != NULL ? old : allocate(t, sizeof(*x));
	if (x == NULL || copy == NULL)
		return err_set(err, -ENOMEM, "attribute '%s': no memory", TEXT_CUT(name));
	if (old == NULL) {
		x->name = copy_string(t, name);
		if (x->name == NULL)
			return err_set(err, -ENOMEM, "attribute '%s': no memory", TEXT_CUT(name));
		x->next = inode->xattrs;
		inode->xattrs = x;
	}
	if (size > 0)
		memcpy(copy, value, size);
	x->value = copy;
	x->size = size;
	return 0;
}

bool fstree_xattr_is_kept(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0 || strcmp(name, POSIX_ACL_ACCESS) == 0 ||
	       strcmp(name, POSIX_ACL_DEFAULT) == 0;
}

void fstree_leave_out(struct fstree *t, const char *name)
{
	if (t->left_out++ == 0)
		snprintf(t->left_out_name, sizeof(t->left_out_name), "%s", name);
}

void fstree_note_left_out(const struct fstree *t, struct err *note)
{
	if (t->left_out > 0)
		err_set(note, -ENOTSUP, "left out: %llu extended attribute%s that images do not keep, such as '%s' (docs/images.md)",
			(unsigned long long)t->left_out, t->left_out > 1 ? "s" : "", TEXT_CUT(t->left_out_name));
}

struct fstree_inode *fstree_lookup(const struct fstree *t, const char *path)
{
	struct fstree_inode *dir = NULL;
	struct fstree_dirent *d;
	const char *name;
	size_t len = 0;

	/* Without `make` walk changes nothing. */
	if (walk((struct fstree *)t, path, false, &dir, &name, &len, NULL) < 0)
		return NULL;
	if (len == 0)
		return dir;
	d = find(t, dir, name, len);
	return d == NULL ? NULL : d->inode;
}

const struct fstree_inode *fstree_lookup_followed(const struct fstree *t, const char *path)
{
	char at[FSTREE_PATH_MAX], next[2 * FSTREE_PATH_MAX];

	snprintf(next, sizeof(next), "%s", path);
	for (int n = 0; n < LINKS_FOLLOWED_MAX; n++) {
		const struct fstree_inode *i;
		const char *slash;

		if (fstree_resolve(t, next, at, NULL) < 0)
			return NULL;
		i = fstree_lookup(t, at);
		if (i == NULL || !S_ISLNK(i->mode))
			return i;
		slash = strrchr(at, '/');
		snprintf(next, sizeof(next), "%.*s/%s", i->target[0] == '/' || slash == NULL ? 0 : (int)(slash - at), at, i->target);
	}
	return NULL;
}
