/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finding, making and removing directories of snapshots: see snapshot_store.h.
 *
 * Making: place() finds where it is to be, make_temp() a directory there that nobody else removes (made, locked, and
 * looked at again, since a sweep of another command may come in between), publish syncs files, directory, and the directory
 * above, with the rename in between. So a name that can be seen has everything behind it, also after the power went.
 *
 * Replacing (flatten): the two directories exchange their names in one step, and the old one is removed; who has files
 * of it open keeps them.
 *
 * A parent is looked for where its child says (beside it, or by an absolute path), and, if that is gone or another one, by
 * its id in the store; so both can be moved together, and a flattened copy can take a parent's place.
 */
#include "host/snapshot_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "host/vmdir.h"
#include "lib/fd.h"
#include "lib/text.h"

#define TEMP_PREFIX ".coffer-snapshot-"
enum { DRAFT_TRIES = 16 };

int snapshot_name_check(const char *name, struct err *err)
{
	size_t n = strlen(name);

	if (n == 0 || n > SNAPSHOT_NAME_MAX || strchr("_.-", name[0]) ||
	    name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_.-")] != 0)
		return err_set(err, -EINVAL,
			       "'%s' is not a snapshot's name: 1 to %d of a-z 0-9 _ . -, the first a letter or digit; or a path, with a / in it",
			       TEXT_CUT(name), SNAPSHOT_NAME_MAX);
	return 0;
}

int snapshot_store_path(char *out, size_t len, struct err *err)
{
	return file_data_dir("snapshots", out, len, err);
}

/* ---- finding ---- */

static int resolve(const char *name, char *out, size_t len, struct err *err)
{
	char store[PATH_MAX];
	int r;

	if (strchr(name, '/')) {
		if ((size_t)snprintf(out, len, "%s", name) >= len)
			return err_set(err, -ENAMETOOLONG, "snapshot '%.80s...': the path is too long", name);
		return 0;
	}
	r = snapshot_name_check(name, err);
	if (r == 0)
		r = snapshot_store_path(store, sizeof(store), err);
	if (r == 0 && (size_t)snprintf(out, len, "%s/%s", store, name) >= len)
		r = err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", store);
	return r;
}

static int read_manifest(struct snapshot *s, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	char name[NAME_MAX + 32];
	long n = vmdir_read_file(s->fd, SNAPSHOT_MANIFEST, SNAPSHOT_MANIFEST_MAX, &text, err);

	if (n == -ENOENT)
		return err_set(err, -ENOENT, "'%s' is no snapshot: there is no " SNAPSHOT_MANIFEST " in it", s->path);
	if (n < 0) {
		err_prefix(err, "snapshot '%s': ", s->name);
		return (int)n;
	}
	snprintf(name, sizeof(name), "snapshot '%s': " SNAPSHOT_MANIFEST, s->name);
	return snapshot_manifest_parse(name, SNAPSHOT_WHAT_SNAPSHOT, text, (size_t)n, &s->m, err);
}

static void set_name(struct snapshot *s)
{
	const char *slash = strrchr(s->path, '/');

	snprintf(s->name, sizeof(s->name), "%.*s", NAME_MAX, slash ? slash + 1 : s->path);
}

static int open_directory(const char *name_or_path, struct snapshot *s, struct err *err)
{
	char path[PATH_MAX];
	int r = resolve(name_or_path, path, sizeof(path), err);

	if (r < 0)
		return r;
	if (!realpath(path, s->path) || (s->fd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
		r = -errno;
		if (r == -ENOENT && !strchr(name_or_path, '/'))
			return err_set(err, r,
				       "there is no snapshot '%s': see 'coffer snapshot ls', or give a path with a / in it", name_or_path);
		return err_errno(err, r, "snapshot '%s'", name_or_path);
	}
	set_name(s);
	return 0;
}

int snapshot_open(const char *name_or_path, struct snapshot *ret, struct err *err)
{
	struct snapshot s = SNAPSHOT_NONE;
	int r = open_directory(name_or_path, &s, err);

	if (r == 0)
		r = read_manifest(&s, err);
	if (r < 0) {
		fd_close(s.fd);
		return r;
	}
	*ret = s;
	return 0;
}

int snapshot_open_damaged(const char *name_or_path, struct snapshot *ret, struct err *err)
{
	struct snapshot s = SNAPSHOT_NONE;
	int r = open_directory(name_or_path, &s, err);

	if (r == 0 && faccessat(s.fd, SNAPSHOT_MANIFEST, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		r = err_errno(err, -errno, "'%s/" SNAPSHOT_MANIFEST "'", s.path);
	if (r < 0) {
		fd_close(s.fd);
		return r;
	}
	*ret = s;
	return 0;
}

void snapshot_close(struct snapshot *s)
{
	fd_close(s->fd);
	snapshot_manifest_finish(&s->m);
	*s = SNAPSHOT_NONE;
}

int snapshot_open_file(const struct snapshot *s, const char *name, uint64_t size, struct err *err)
{
	_cleanup_close_ int fd = openat(s->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return err_set(err, -ENOENT, "snapshot '%s': its file '%s' is missing in %s", s->name, name, s->path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "snapshot '%s': '%s'", s->name, name);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "snapshot '%s': '%s' is not a regular file", s->name, name);
	if ((uint64_t)st.st_size != size)
		return err_set(err, -EINVAL,
			       "snapshot '%s': '%s' has %lld bytes, not the %llu of the manifest: it is damaged or was not copied whole",
			       s->name, name, (long long)st.st_size, (unsigned long long)size);
	return TAKE_FD(fd);
}

/* ---- the store ---- */

static int not_hidden(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

int snapshot_store_visit(snapshot_visit_fn *fn, void *arg, struct err *err)
{
	struct dirent **list;
	char store[PATH_MAX];
	int r = snapshot_store_path(store, sizeof(store), err);

	if (r < 0)
		return r;
	int n = scandir(store, &list, not_hidden, alphasort);

	if (n < 0)
		return errno == ENOENT ? 0 : err_errno(err, -errno, "read '%s'", store);
	for (int i = 0; i < n; i++) {
		struct snapshot s = SNAPSHOT_NONE;
		struct err problem = ERR_INIT;

		if (r == 0 && snapshot_name_check(list[i]->d_name, NULL) == 0) {
			int code = snapshot_open(list[i]->d_name, &s, &problem);

			if (code < 0) {
				snprintf(s.name, sizeof(s.name), "%s", list[i]->d_name);
				snprintf(s.path, sizeof(s.path), "%.3800s/%s", store, list[i]->d_name);
			}
			r = code == -ENOENT ? 0 : fn(&s, code < 0 ? &problem : NULL, arg);
			snapshot_close(&s);
		}
		free(list[i]);
	}
	free(list);
	return r;
}

struct by_id {
	const char *id;
	char path[PATH_MAX];
};

static int find_id(struct snapshot *s, const struct err *problem, void *arg)
{
	struct by_id *want = arg;

	if (problem || strcmp(s->m.id, want->id) != 0)
		return 0;
	snprintf(want->path, sizeof(want->path), "%s", s->path);
	return 1;
}

int snapshot_open_parent(const struct snapshot *s, struct snapshot *ret, struct err *err)
{
	const char *where = s->m.parent_path;
	struct by_id want = { .id = s->m.parent_id };
	struct err why = ERR_INIT;
	char path[2 * PATH_MAX];
	int r = -ENOENT;

	if (*where == '/')
		snprintf(path, sizeof(path), "%s", where);
	else
		snprintf(path, sizeof(path), "%.*s/%s", (int)(strrchr(s->path, '/') - s->path), s->path, where);
	if (*where && strlen(path) < PATH_MAX)
		r = snapshot_open(path, ret, &why);
	if (r == 0 && !strcmp(ret->m.id, s->m.parent_id))
		return 0;
	if (r == 0) {
		r = err_set(&why, -ENOENT, "'%s' is another snapshot now", path);
		snapshot_close(ret);
	}
	if (snapshot_store_visit(find_id, &want, NULL) == 1)
		return snapshot_open(want.path, ret, err);
	if (r != -ENOENT && r != -ENOTDIR) {
		*err = why;
		err_prefix(err, "snapshot '%s' needs its parent: ", s->name);
		return r;
	}
	return err_set(err, -ENOENT,
		       "snapshot '%s' is a diff, and its parent (id %s%s%s) is neither where it was nor in the store: bring it back beside it",
		       s->name, s->m.parent_id, *where ? ", then at " : "", where);
}

/* ---- making ---- */

static bool sweep_one(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && file_remove_tree(dir_fd, name) == 0;
}

/* Remove what crashes have left in that directory. Whoever makes or removes something holds its flock. */
static void sweep(int dir_fd)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list) {
		fd_close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(list));)
		if (!strncmp(e->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)))
			sweep_one(dir_fd, e->d_name);
	closedir(list);
}

static void random_name(char out[64])
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		random = (uint64_t)getpid();
	snprintf(out, 64, TEMP_PREFIX "%016llx", (unsigned long long)random);
}

static int make_temp(struct snapshot_draft *d, struct err *err)
{
	/* Between making and locking it a sweep of another process may take it away: then once more. */
	for (int i = 0; i < DRAFT_TRIES; i++) {
		struct stat made, named;

		random_name(d->temp);
		if (mkdirat(d->dir_fd, d->temp, 0700) < 0) {
			if (errno == EEXIST)
				continue;
			return err_errno(err, -errno, "make a directory in '%s'", d->dir);
		}
		d->fd = openat(d->dir_fd, d->temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (d->fd >= 0 && flock(d->fd, LOCK_EX | LOCK_NB) == 0 && fstat(d->fd, &made) == 0 &&
		    fstatat(d->dir_fd, d->temp, &named, AT_SYMLINK_NOFOLLOW) == 0 && made.st_ino == named.st_ino)
			return 0;
		d->fd = fd_close(d->fd);
	}
	return err_set(err, -EBUSY, "no directory can be made in '%s'", d->dir);
}

/* Where `to` is to be: its directory (the store's is made) and its name there. */
static int place(const char *to, struct snapshot_draft *d, struct err *err)
{
	char path[PATH_MAX], *slash;
	int r = to ? resolve(to, path, sizeof(path), err) : snapshot_store_path(path, sizeof(path), err);

	if (r < 0)
		return r;
	size_t end = strlen(path);

	if (!to && end + 3 < sizeof(path))
		memcpy(path + end, "/-", 3);
	for (size_t n = strlen(path); n > 1 && path[n - 1] == '/';)
		path[--n] = 0;
	slash = strrchr(path, '/');
	if (!slash || !slash[1] || !strcmp(slash + 1, ".") || !strcmp(slash + 1, "..") || slash[1] == '.')
		return err_set(err, -EINVAL, "'%s' is no name for a snapshot's directory", to);
	if (strlen(slash + 1) > NAME_MAX || (size_t)(slash - path) >= sizeof(d->dir))
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", path);
	memcpy(d->name, slash + 1, strlen(slash + 1) + 1);
	slash[slash == path] = 0; /* of the root its slash stays */
	memcpy(d->dir, path, strlen(path) + 1);
	if (!to || !strchr(to, '/'))
		r = file_make_dirs(d->dir, 0700, err);
	if (r < 0)
		return r;
	/* Absolute, for the paths that children keep. */
	if (!realpath(d->dir, path))
		return err_errno(err, -errno, "the directory for the snapshot, '%s'", d->dir);
	if (strlen(path) >= sizeof(d->dir))
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", path);
	memcpy(d->dir, path, strlen(path) + 1);
	d->dir_fd = open(d->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return d->dir_fd < 0 ? err_errno(err, -errno, "open '%s'", d->dir) : 0;
}

int snapshot_draft_begin(const char *to, bool replace, struct snapshot_draft *ret, struct err *err)
{
	struct snapshot_draft d = SNAPSHOT_DRAFT_NONE;
	int r = place(to, &d, err);

	if (r == 0 && !to)
		d.name[0] = 0;
	if (r == 0 && to && !replace && faccessat(d.dir_fd, d.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		r = err_set(err, -EEXIST,
			    "there is '%s/%s' already: choose another name, or remove it with 'coffer snapshot rm'",
					d.dir, d.name);
	if (r == 0) {
		sweep(d.dir_fd);
		r = make_temp(&d, err);
	}
	if (r < 0) {
		fd_close(d.dir_fd);
		return r;
	}
	*ret = d;
	return 0;
}

int snapshot_draft_create(const struct snapshot_draft *d, const char *name, struct err *err)
{
	int fd = openat(d->fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? err_errno(err, -errno, "make '%s' for the snapshot in '%s'", name, d->dir) : fd;
}

static int sync_file(const struct snapshot_draft *d, const char *name, struct err *err)
{
	_cleanup_close_ int fd = openat(d->fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0)
		return err_errno(err, -errno, "write '%s' of the snapshot to disk", name);
	return 0;
}

static int sync_files(const struct snapshot_draft *d, const struct snapshot_manifest *m, struct err *err)
{
	static const char *const names[] = { SNAPSHOT_STATE, SNAPSHOT_RAM, SNAPSHOT_RAM_INDEX, SNAPSHOT_MANIFEST };
	int r = 0;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names) && r == 0; i++)
		r = sync_file(d, names[i], err);
	for (size_t i = 0; i < m->ndisks; i++)
		for (size_t k = 0; k < m->disk[i].nlayers && r == 0; k++)
			r = snapshot_layer_is_remote(&m->disk[i].layer[k]) ? 0 : sync_file(d, m->disk[i].layer[k].file, err);
	if (r == 0 && fsync(d->fd) < 0)
		r = err_errno(err, -errno, "write the snapshot's directory to disk");
	return r;
}

static int put_in_place(struct snapshot_draft *d, bool replace, struct err *err)
{
	if (replace && renameat2(d->dir_fd, d->temp, d->dir_fd, d->name, RENAME_EXCHANGE) == 0) {
		file_remove_tree(d->dir_fd, d->temp); /* what was there before */
		return 0;
	}
	if (replace && errno != ENOENT)
		return err_errno(err, -errno, "put the snapshot in the place of '%s/%s'", d->dir, d->name);
	/* Not over anything, also where the file system does not know the flag: no directory replaces one with
	 * contents. */
	if (renameat2(d->dir_fd, d->temp, d->dir_fd, d->name, RENAME_NOREPLACE) == 0 ||
	    (errno == EINVAL && renameat(d->dir_fd, d->temp, d->dir_fd, d->name) == 0))
		return 0;
	if (errno == EEXIST || errno == ENOTEMPTY)
		return err_set(err, -EEXIST, "'%s/%s' was made by somebody else meanwhile: choose another name", d->dir,
			       d->name);
	return err_errno(err, -errno, "rename the snapshot to '%s/%s'", d->dir, d->name);
}

int snapshot_draft_publish(struct snapshot_draft *d, const struct snapshot_manifest *m, bool replace, struct err *err)
{
	_cleanup_free_ char *text = snapshot_manifest_format(m);
	int r;

	if (!text)
		return err_set(err, -EINVAL, "the manifest cannot be written: a path or name in it is not UTF-8");
	r = vmdir_write_file(d->fd, SNAPSHOT_MANIFEST, text, strlen(text), err);
	if (r == 0)
		r = sync_files(d, m, err);
	if (r == 0)
		r = put_in_place(d, replace, err);
	if (r < 0)
		return r;
	d->temp[0] = 0;
	return fsync(d->dir_fd) < 0 ? err_errno(err, -errno, "write '%s' to disk", d->dir) : 0;
}

void snapshot_draft_end(struct snapshot_draft *d)
{
	if (d->temp[0] && d->dir_fd >= 0)
		file_remove_tree(d->dir_fd, d->temp);
	fd_close(d->fd);
	fd_close(d->dir_fd);
	*d = SNAPSHOT_DRAFT_NONE;
}

const char *snapshot_draft_parent_path(const struct snapshot_draft *d, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;

	return slash && strlen(d->dir) == n && !memcmp(d->dir, path, n) ? slash + 1 : path;
}

int snapshot_remove(const struct snapshot *s, struct err *err)
{
	char dir[PATH_MAX], temp[64];
	size_t n = (size_t)(strrchr(s->path, '/') - s->path);

	snprintf(dir, sizeof(dir), "%.*s", n ? (int)n : 1, s->path);
	_cleanup_close_ int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir_fd < 0)
		return err_errno(err, -errno, "open '%s'", dir);
	random_name(temp);
	flock(s->fd, LOCK_EX | LOCK_NB); /* so that no sweep is at it with us */
	if (renameat(dir_fd, s->name, dir_fd, temp) < 0)
		return err_errno(err, -errno, "remove '%s'", s->path);
	fsync(dir_fd);
	int r = file_remove_tree(dir_fd, temp);

	return r < 0 ? err_errno(err, r, "remove '%s/%s'", dir, temp) : 0;
}
