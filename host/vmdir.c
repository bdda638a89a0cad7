/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of one VM, from making to removal: see vmdir.h. What is in their files: vmconfig.c. */
#include "host/vmdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/paths.h"
#include "lib/fd.h"
#include "lib/text.h"

enum { ID_TRIES = 16 };

/* No VM has such a name (vmdir_check_id), so no command takes one for a VM. */
#define SHELL_PREFIX "SHELL-"

int vmdir_check_id(const char *id, struct err *err)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	static const char others[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-";
	size_t n = strlen(id);

	if (n == 0 || n > VMDIR_ID_MAX || !memchr(first, id[0], sizeof(first) - 1) || strspn(id, others) != n)
		return err_set(err, -EINVAL,
			       "'%s' is not a VM's name: 1 to %d of a-z 0-9 _ . -, the first a letter or digit", TEXT_CUT(id),
			       VMDIR_ID_MAX);
	return 0;
}

static int open_run(struct lockdir *ret, struct err *err)
{
	char path[4096];
	int r = paths_runtime(path, sizeof(path), err);

	return r < 0 ? r : lockdir_open(ret, path, err);
}

static int open_disks(struct lockdir *ret, struct err *err)
{
	char state[4096], path[4096 + 8];
	int r = paths_state(state, sizeof(state), err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/vms", state);
	return lockdir_open(ret, path, err);
}

static int set_id(struct vmdir *d, const char *id, struct err *err)
{
	int n = snprintf(d->path, sizeof(d->path), "%s/%s", d->run.path, id);

	if (n < 0 || (size_t)n >= sizeof(d->path))
		return err_set(err, -ENAMETOOLONG, "'%.80s...': the path is too long", d->run.path);
	snprintf(d->id, sizeof(d->id), "%s", id);
	return 0;
}

static int random_id(const char *prefix, char out[32], struct err *err)
{
	unsigned random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return err_errno(err, -errno, "getrandom");
	snprintf(out, 32, "%s%08x", prefix, random);
	return 0;
}

static int create_random(struct vmdir *d, const char *prefix, struct err *err)
{
	int r = -EEXIST;

	for (int i = 0; i < ID_TRIES && r == -EEXIST; i++) {
		char id[32];

		r = random_id(prefix, id, err);
		if (r < 0)
			return r;
		r = lockdir_create(&d->run, id, &d->fd, &d->lock_fd, err);
		if (r == 0)
			return set_id(d, id, err);
	}
	return r;
}

int vmdir_create(const char *name, struct vmdir *ret, struct err *err)
{
	struct vmdir d = VMDIR_NONE;
	int r = name ? vmdir_check_id(name, err) : 0;

	if (r == 0)
		r = open_run(&d.run, err);
	if (r == 0 && !name)
		r = create_random(&d, "", err);
	else if (r == 0) {
		r = lockdir_create(&d.run, name, &d.fd, &d.lock_fd, err);
		if (r == -EEXIST)
			err_set(err, r, "a VM named '%s' is running: 'coffer kill %s' ends it", name, name);
		if (r == 0)
			r = set_id(&d, name, err);
	}
	if (r < 0) {
		vmdir_close(&d);
		return r;
	}
	*ret = d;
	return 0;
}

int vmdir_create_disks(struct vmdir *d, struct err *err)
{
	int r = open_disks(&d->disks, err);

	if (r == 0)
		r = lockdir_create(&d->disks, d->id, &d->disk_dir_fd, &d->disk_lock_fd, err);
	if (r == -EEXIST)
		err_set(err, r, "a VM named '%s' of another XDG_RUNTIME_DIR uses %s/%s: choose another name", d->id,
			d->disks.path, d->id);
	return r;
}

int vmdir_open_disks(struct vmdir *d, struct err *err)
{
	int r = open_disks(&d->disks, err);

	if (r < 0)
		return r;
	d->disk_dir_fd = openat(d->disks.fd, d->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return d->disk_dir_fd < 0 ? err_errno(err, -errno, "the VM's disk directory '%s/%s'", d->disks.path, d->id) : 0;
}

int vmdir_create_shell(struct vmdir *ret, struct err *err)
{
	struct vmdir d = VMDIR_NONE;
	int r = open_run(&d.run, err);

	if (r == 0)
		r = create_random(&d, SHELL_PREFIX, err);
	if (r < 0) {
		vmdir_close(&d);
		return r;
	}
	*ret = d;
	return 0;
}

int vmdir_adopt(struct vmdir *d, const char *id, struct err *err)
{
	int r = open_run(&d->run, err);

	if (r == 0 && d->disk_dir_fd >= 0)
		r = open_disks(&d->disks, err);
	return r < 0 ? r : set_id(d, id, err);
}

static int rename_both(struct vmdir *d, const char *id, struct err *err)
{
	int r = lockdir_rename(&d->run, d->id, id, err);

	if (r == -EEXIST)
		err_set(err, r, "a VM named '%s' is running: 'coffer kill %s' ends it", id, id);
	if (r < 0 || d->disk_dir_fd < 0)
		return r;
	r = lockdir_rename(&d->disks, d->id, id, err);
	if (r < 0)
		lockdir_rename(&d->run, id, d->id, NULL);
	return r;
}

int vmdir_rename(struct vmdir *d, const char *id, struct err *err)
{
	int r = id ? vmdir_check_id(id, err) : -EEXIST;
	char random[32];

	if (id && r == 0)
		r = rename_both(d, id, err);
	for (int i = 0; !id && i < ID_TRIES && r == -EEXIST; i++) {
		r = random_id("", random, err);
		if (r == 0)
			r = rename_both(d, random, err);
	}
	return r < 0 ? r : set_id(d, id ? id : random, err);
}

int vmdir_open_any(const char *id, struct vmdir *ret, struct err *err)
{
	struct vmdir d = VMDIR_NONE;
	int live = vmdir_check_id(id, err);

	if (live == 0)
		live = open_run(&d.run, err);
	if (live == 0)
		live = lockdir_probe(&d.run, id, &d.fd, err);
	if ((live == -ENOENT || live == -ENOTDIR) && d.run.fd >= 0) /* a stray file is no VM */
		err_set(err, live, "there is no VM '%s': 'coffer ps' lists the running ones", id);
	if (live >= 0) {
		int r = set_id(&d, id, err);

		if (r < 0)
			live = r;
	}
	if (live < 0) {
		vmdir_close(&d);
		return live;
	}
	*ret = d;
	return live;
}

int vmdir_open(const char *id, struct vmdir *ret, struct err *err)
{
	int live = vmdir_open_any(id, ret, err);

	if (live != 0)
		return live < 0 ? live : 0;
	struct vm_status status;
	char why[ERR_MAX] = "its monitor was killed";

	if (vmdir_read_status(ret->fd, &status, NULL) == 0)
		vm_status_describe(&status, why, sizeof(why));
	vmdir_close(ret);
	vmdir_sweep(NULL, NULL, NULL);
	return err_set(err, -ENOENT, "the VM '%s' has ended: %.400s", id, why);
}

void vmdir_close(struct vmdir *d)
{
	fd_close(d->fd);
	fd_close(d->lock_fd);
	fd_close(d->disk_dir_fd);
	fd_close(d->disk_lock_fd);
	lockdir_close(&d->run);
	lockdir_close(&d->disks);
	*d = VMDIR_NONE;
}

bool vmdir_same(const struct vmdir *a, const struct vmdir *b)
{
	struct stat sa, sb;

	return fstat(a->fd, &sa) == 0 && fstat(b->fd, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

int vmdir_remove(struct vmdir *d, struct err *err)
{
	int disks = 0;

	/* The disks first: what is left after a crash in between is found by the directory that remains. */
	if (d->disks.fd < 0)
		open_disks(&d->disks, NULL);
	if (d->disks.fd >= 0)
		disks = lockdir_remove(&d->disks, d->id, d->disk_lock_fd, err);
	int r = lockdir_remove(&d->run, d->id, d->lock_fd, err);

	return r < 0 ? r : disks;
}

struct visit {
	vmdir_visit_fn *fn;
	void *arg;
};

static void visit_live(const char *name, int dirfd, int live, void *arg)
{
	const struct visit *v = arg;

	if (live && v->fn && vmdir_check_id(name, NULL) == 0)
		v->fn(name, dirfd, v->arg);
}

int vmdir_sweep(vmdir_visit_fn *fn, void *arg, struct err *err)
{
	struct visit v = { fn, arg };
	struct lockdir run = LOCKDIR_NONE, disks = LOCKDIR_NONE;
	int r = open_run(&run, err);

	if (r < 0)
		return r;
	r = lockdir_sweep(&run, visit_live, &v, err);
	lockdir_close(&run);
	/* A user who never had a disk of this kind need not have a place for one. */
	if (open_disks(&disks, NULL) == 0) {
		int d = lockdir_sweep(&disks, NULL, NULL, r < 0 ? NULL : err);

		if (d < 0)
			r = d;
	}
	lockdir_close(&disks);
	return r;
}
