/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what nothing needs: see image_prune.h.
 *
 *   BASE/builds/ID           when nobody holds its lock: a build or removal that was killed
 *   CACHE/overlay/ext4-v*    templates of empty disks that have no other name: VMs that use one have linked it
 *   CACHE/overlay/.new-*     of a process that was killed, when an hour old; in CACHE/debian NAME.tar.zst.XXXXXX
 *
 * and only when that is asked for:
 *
 *   CACHE/blobs/sha256-HEX   parts of remote layers, when no image or snapshot of the store has a layer with that digest and nobody
 *                            holds a lock
 *
 * Templates are made again by whoever wants one. A blob may be all that is left of a layer whose registry is gone, and images of other
 * stores may need it, which are not known here: the bound of the cache is what limits blobs, and prune takes them when it is told to.
 * Should one image or snapshot of the store be unreadable, what it refers to is not known, and blobs stay.
 */
#include "host/image_prune.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/blob_cache.h"
#include "host/file.h"
#include "host/snapshot_store.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { OLD_S = 3600, DEPTH_MAX = 32 };

#define HEX "0123456789abcdef"

struct prune {
	bool dry;
	image_prune_each *each;
	void *arg;
	struct image_entry *list;
	size_t n;
	char (*taken)[IMAGE_SHA256_LEN + 1]; /* digests that images and snapshots name */
	size_t ntaken;
	bool unknown;                        /* what some image or snapshot needs */
	int error;
	struct err *err;
};

static void note_error(struct prune *p, int r, const char *path)
{
	if (p->error == 0)
		p->error = err_errno(p->err, r, "remove '%s'", path);
}

/* ---- builds ---- */

static uint64_t freed_by(const struct stat *st)
{
	return S_ISDIR(st->st_mode) || st->st_nlink == 1 ? (uint64_t)st->st_blocks * 512 : 0;
}

static uint64_t tree_bytes(int at, const char *name, int depth)
{
	struct stat st;
	uint64_t sum;
	int fd;
	DIR *dir;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	sum = freed_by(&st);
	if (!S_ISDIR(st.st_mode) || depth == DEPTH_MAX)
		return sum;
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (dir == NULL) {
		fd_close(fd);
		return sum;
	}
	for (struct dirent *e; (e = readdir(dir)) != NULL;)
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			sum += tree_bytes(dirfd(dir), e->d_name, depth + 1);
	closedir(dir);
	return sum;
}

static void prune_build(struct prune *p, struct lockdir *builds, const char *name)
{
	char path[2 * PATH_MAX];
	uint64_t bytes;
	int r;

	if (lockdir_probe(builds, name, NULL, NULL) != 0)
		return;
	snprintf(path, sizeof(path), "%s/%s", builds->path, name);
	bytes = tree_bytes(builds->fd, name, 0);
	r = p->dry ? 0 : lockdir_remove(builds, name, -1, NULL);
	if (r < 0)
		note_error(p, r, path);
	else
		p->each(p->arg, path, bytes);
}

static int prune_builds(struct prune *p, const struct image_store *s, struct err *err)
{
	struct lockdir builds = LOCKDIR_NONE;
	DIR *dir = opendir(s->builds);
	int r;

	if (dir == NULL)
		return errno == ENOENT ? 0 : err_errno(err, -errno, "open '%s'", s->builds);
	r = lockdir_open(&builds, s->builds, err);
	for (struct dirent *e; r == 0 && (e = readdir(dir)) != NULL;)
		if (e->d_name[0] != '.')
			prune_build(p, &builds, e->d_name);
	closedir(dir);
	lockdir_close(&builds);
	return r;
}

/* ---- the cache ---- */

/* Does somebody hold a lock on it? What cannot be told is held. */
static bool is_held(int at, const char *name)
{
	_cleanup_close_ int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0;
}

static bool has_suffix(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && strcmp(s + n - m, suffix) == 0;
}

static bool is_old(const struct stat *st)
{
	return st->st_mtime + OLD_S < time(NULL);
}

static bool is_unused_template(const struct prune *p, int at, const char *name, const struct stat *st)
{
	(void)p, (void)at;
	if (strncmp(name, ".new-", 5) == 0)
		return S_ISREG(st->st_mode) && is_old(st);
	return S_ISREG(st->st_mode) && strncmp(name, "ext4-v", 6) == 0 && has_suffix(name, ".lsmt") && st->st_nlink == 1;
}

static bool is_half_archive(const struct prune *p, int at, const char *name, const struct stat *st)
{
	const char *end = strstr(name, ".tar.zst.");

	(void)p, (void)at;
	return end != NULL && strlen(end) == strlen(".tar.zst.XXXXXX") && S_ISREG(st->st_mode) && is_old(st);
}

static int take(struct prune *p, const char *sha256)
{
	void *more = realloc(p->taken, (p->ntaken + 1) * sizeof(*p->taken));

	if (more == NULL)
		return -ENOMEM;
	p->taken = more;
	snprintf(p->taken[p->ntaken++], sizeof(*p->taken), "%s", sha256);
	return 0;
}

static int take_snapshot(struct snapshot *s, const struct err *problem, void *arg)
{
	struct prune *p = arg;
	int r = 0;

	p->unknown |= problem != NULL;
	for (size_t i = 0; problem == NULL && i < s->m.ndisks; i++)
		for (size_t k = 0; k < s->m.disk[i].nlayers && r == 0; k++)
			if (*s->m.disk[i].layer[k].sha256)
				r = take(p, s->m.disk[i].layer[k].sha256);
	return r;
}

/* Of whatever the store has. */
static int find_needed(struct prune *p, struct err *err)
{
	int r = 0;

	for (size_t i = 0; i < p->n && r == 0; i++) {
		p->unknown |= p->list[i].problem.code != 0;
		for (size_t k = 0; p->list[i].problem.code == 0 && k < p->list[i].image.nlayers && r == 0; k++)
			r = take(p, p->list[i].image.layer[k].sha256);
	}
	if (r < 0)
		return err_errno(err, r, "prune");
	return snapshot_store_visit(take_snapshot, p, err);
}

static bool is_needed(const struct prune *p, const char *sha256)
{
	for (size_t i = 0; i < p->ntaken; i++)
		if (strcmp(p->taken[i], sha256) == 0)
			return true;
	return p->unknown;
}

static bool is_unused_blob(const struct prune *p, int at, const char *name, const struct stat *st)
{
	char lock[300];

	snprintf(lock, sizeof(lock), "%s/chunks", name);
	return S_ISDIR(st->st_mode) && strncmp(name, "sha256-", 7) == 0 && strspn(name + 7, HEX) == IMAGE_SHA256_LEN &&
	       !is_needed(p, name + 7) && !is_held(at, lock);
}

static int remove_blob(int at, const char *name)
{
	return blob_cache_remove(&(struct blob_cache){ .fd = at }, name);
}

static void prune_cache(struct prune *p, const char *sub,
			bool (*wanted)(const struct prune *, int, const char *, const struct stat *), int (*remove)(int, const char *))
{
	char path[PATH_MAX - 300], file[PATH_MAX];
	DIR *dir = file_cache_dir(sub, path, sizeof(path), NULL) < 0 ? NULL : opendir(path);

	if (dir == NULL)
		return;
	for (struct dirent *e; (e = readdir(dir)) != NULL;) {
		struct stat st;

		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !wanted(p, dirfd(dir), e->d_name, &st))
			continue;
		uint64_t bytes = tree_bytes(dirfd(dir), e->d_name, 0);
		int r = p->dry ? 0 : remove(dirfd(dir), e->d_name);

		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		if (r == -EBUSY) /* somebody has come to use it */
			continue;
		if (r < 0)
			note_error(p, r, file);
		else
			p->each(p->arg, file, bytes);
	}
	closedir(dir);
}

int image_prune(const struct image_store *s, bool dry, bool blobs, image_prune_each *each, void *arg, struct err *err)
{
	struct prune p = { .dry = dry, .each = each, .arg = arg, .err = err };
	int r = image_store_list(s, &p.list, &p.n, err);

	if (r == 0)
		r = prune_builds(&p, s, err);
	if (r == 0 && blobs)
		r = find_needed(&p, err);
	if (r == 0) {
		prune_cache(&p, "overlay", is_unused_template, file_remove_tree);
		prune_cache(&p, "debian", is_half_archive, file_remove_tree);
		if (blobs)
			prune_cache(&p, "blobs", is_unused_blob, remove_blob);
	}
	free(p.taken);
	image_store_list_free(p.list, p.n);
	return r < 0 ? r : p.error;
}
