/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of a VM: see vm_disks.h. */
#include "host/vm_disks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/lsmt.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { SECTOR = 512, COPY_STEP = 1 << 30 };

/* ---- files ---- */

int vm_disk_file_facts(int fd, uint64_t *ret_size, int64_t *ret_mtime_ns)
{
	struct stat st;
	uint64_t size = 0;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode)) {
		*ret_size = (uint64_t)st.st_size;
		*ret_mtime_ns = MAX((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, (int64_t)0);
		return 0;
	}
	if (!S_ISBLK(st.st_mode))
		return -EINVAL;
	if (ioctl(fd, BLKGETSIZE64, &size) < 0)
		return -errno;
	*ret_size = size;
	*ret_mtime_ns = 0;
	return 0;
}

int vm_disk_link(int fd, const char *path, int dir_fd, const char *name, struct err *err)
{
	struct stat have, linked;

	/* By name: a link through /proc/self/fd takes a capability for files without a name. What has been put there
	 * meanwhile is noticed. */
	if (linkat(AT_FDCWD, path, dir_fd, name, 0) < 0)
		return errno == EXDEV || errno == EPERM || errno == EACCES || errno == EMLINK || errno == ENOENT ||
				errno == EROFS ||
				       errno == EOPNOTSUPP ? 0 : err_errno(err, -errno, "link '%s'", path);
	if (fstat(fd, &have) == 0 && fstatat(dir_fd, name, &linked, AT_SYMLINK_NOFOLLOW) == 0 &&
	    have.st_ino == linked.st_ino &&
	    have.st_dev == linked.st_dev)
		return 1;
	unlinkat(dir_fd, name, 0);
	return 0;
}

int vm_disk_copy(int fd, int dir_fd, const char *name, struct err *err)
{
	_cleanup_close_ int to = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	_cleanup_free_ char *buffer = NULL;
	loff_t from = 0, at = 0;
	ssize_t n;

	if (to < 0)
		return err_errno(err, -errno, "make '%s'", name);
	if (ioctl(to, FICLONE, fd) == 0)
		return TAKE_FD(to);
	while ((n = copy_file_range(fd, &from, to, &at, COPY_STEP, 0)) > 0)
		;
	if (n < 0 && at == 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS)) {
		buffer = malloc(MIB(1));
		n = buffer ? 1 : -1;
		while (n > 0) {
			n = fd_pread_full(fd, buffer, MIB(1), at);
			int r = n > 0 ? fd_pwrite_full(to, buffer, (size_t)n, at) : (int)n;

			at += MAX(n, (ssize_t)0);
			if (r < 0) {
				errno = -r;
				n = -1;
			}
		}
	}
	if (n < 0) {
		int r = err_errno(err, -errno, "copy '%s'", name);

		unlinkat(dir_fd, name, 0);
		return r;
	}
	return TAKE_FD(to);
}

/* ---- building ---- */

static struct vm_disk *add(struct vm_disks *v, enum snapshot_disk_kind kind, const char *path, const char *image,
			   struct err *err)
{
	if (v->n == SNAPSHOT_DISKS_MAX) {
		err_set(err, -E2BIG, "more than %d disks", SNAPSHOT_DISKS_MAX);
		return NULL;
	}
	struct vm_disk *d = calloc(1, sizeof(*d));

	if (!d) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	d->d.kind = kind;
	d->d.path = strdup(path);
	d->d.image = strdup(image);
	d->base_fd = d->top_data_fd = d->top_index_fd = d->remote_sock = -1;
	for (size_t i = 0; i < ARRAY_SIZE(d->table_fd); i++)
		d->table_fd[i] = -1;
	v->disk[v->n++] = d;
	return d;
}

static int learn_file(struct snapshot_disk *d, int fd, struct err *err)
{
	int r = vm_disk_file_facts(fd, &d->path_size, &d->path_mtime_ns);

	return r < 0 ? err_errno(err, r, "disk '%s'", d->path) : 0;
}

int vm_disks_add_file(struct vm_disks *v, const char *path, bool ro, const char *image, struct err *err)
{
	struct vm_disk *d = add(v, ro ? SNAPSHOT_DISK_FILE : SNAPSHOT_DISK_RAW, path, image ? image : "", err);
	_cleanup_close_ int fd = -1;

	if (!d)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_errno(err, -errno, "disk '%s'", path);
	int r = learn_file(&d->d, fd, err);

	d->d.size = ALIGN_DOWN(d->d.path_size, SECTOR);
	return r;
}

int vm_disks_add_layers(struct vm_disks *v, uint64_t size, const char *base, const char *image, struct vm_disk **ret,
			struct err *err)
{
	struct vm_disk *d = add(v, SNAPSHOT_DISK_LAYERS, base ? base : "", image ? image : "", err);

	if (!d)
		return -ENOMEM;
	d->d.size = size;
	if (base) {
		d->base_fd = open(base, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (d->base_fd < 0)
			return err_errno(err, -errno, "disk '%s'", base);
		int r = learn_file(&d->d, d->base_fd, err);

		if (r < 0)
			return r;
		if (!size)
			d->d.size = ALIGN_DOWN(d->d.path_size, SECTOR);
	}
	*ret = d;
	return 0;
}

/* As long as the VM lives the layer is under this name in its directory, whatever becomes of the path: its next
 * snapshot needs it. */
static int keep_layer(int *fd, const char *path, int dir_fd, const char *name, struct err *err)
{
	int r = vm_disk_link(*fd, path, dir_fd, name, err);

	if (r != 0)
		return r < 0 ? r : 0;
	int copy = vm_disk_copy(*fd, dir_fd, name, err);

	if (copy < 0)
		return copy;
	fd_close(*fd);
	*fd = copy;
	return 0;
}

static void layer_name(size_t number, size_t k, char out[40])
{
	snprintf(out, 40, "disk%zu-base%zu.lsmt", number, k);
}

/* One more entry; fd may be -1. */
static int append(struct vm_disk *v, size_t number, int *fd, const char *where, const struct snapshot_layer *known,
		  struct err *err)
{
	struct snapshot_disk *d = &v->d;

	if (d->nlayers == SNAPSHOT_LAYERS_MAX)
		return err_set(err, -E2BIG, "disk %zu has more than %d layers", number, SNAPSHOT_LAYERS_MAX);
	struct snapshot_layer *more = realloc(d->layer, (d->nlayers + 1) * sizeof(*more));

	if (!more)
		return err_set(err, -ENOMEM, "out of memory");
	d->layer = more;
	int r = snapshot_layer_copy(known, where, &d->layer[d->nlayers]);

	v->layer_fd[d->nlayers++] = TAKE_FD(*fd);
	return r < 0 ? err_set(err, r, "out of memory") : 0;
}

int vm_disk_add_layer(struct vm_disk *v, size_t number, int disk_dir_fd, int fd, const char *path,
		      const struct snapshot_layer *known, struct err *err)
{
	_cleanup_close_ int own = fd;
	char name[40];

	layer_name(number, v->d.nlayers, name);
	int r = keep_layer(&own, path, disk_dir_fd, name, err);

	return r < 0 ? r : append(v, number, &own, name, known, err);
}

int vm_disk_add_held_layer(struct vm_disk *v, size_t number, int disk_dir_fd, int fd, const char *path,
			   const struct snapshot_layer *known, struct err *err)
{
	_cleanup_close_ int own = fd;
	char name[40];

	layer_name(number, v->d.nlayers, name);
	int r = vm_disk_link(own, path, disk_dir_fd, name, err);

	return r < 0 ? r : append(v, number, &own, r > 0 ? name : path, known, err);
}

int vm_disk_add_remote_layer(struct vm_disk *v, size_t number, int data_fd, int table_fd, const struct snapshot_layer *known,
			     struct err *err)
{
	_cleanup_close_ int data = data_fd, table = table_fd;
	int r = append(v, number, &data, "", known, err);

	if (r == 0)
		v->table_fd[v->d.nlayers - 1] = TAKE_FD(table);
	return r;
}

int vm_disk_describe_layer(struct vm_disk *v, size_t number, const struct snapshot_layer *known, struct err *err)
{
	char name[40];
	int none = -1;

	layer_name(number, v->d.nlayers, name);
	return append(v, number, &none, snapshot_layer_is_remote(known) ? "" : name, known, err);
}

void vm_disk_pair_names(size_t number, unsigned generation, char data[40], char index[40])
{
	snprintf(data, 40, "disk%zu-%u.data", number, generation);
	snprintf(index, 40, "disk%zu-%u.index", number, generation);
}

int vm_disk_create_pair(int disk_dir_fd, size_t number, unsigned generation, uint64_t size, int ret_fd[2],
			struct err *err)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	char name[2][40];

	vm_disk_pair_names(number, generation, name[0], name[1]);
	unlinkat(disk_dir_fd, name[1], 0); /* the index of a data file that is gone */
	_cleanup_close_ int data = openat(disk_dir_fd, name[0], flags, 0600);

	if (data < 0)
		return err_errno(err, -errno, "make '%s'", name[0]);
	_cleanup_close_ int index = openat(disk_dir_fd, name[1], flags, 0600);
	int r = 0;

	if (index < 0)
		r = err_errno(err, -errno, "make '%s'", name[1]);
	else if (flock(data, LOCK_EX | LOCK_NB) < 0)
		r = err_errno(err, -errno, "lock '%s'", name[0]);
	else
		r = lsmt_create(data, index, size, NULL, NULL, err);
	if (r < 0) {
		unlinkat(disk_dir_fd, name[0], 0);
		unlinkat(disk_dir_fd, name[1], 0);
		return r;
	}
	ret_fd[0] = TAKE_FD(data);
	ret_fd[1] = TAKE_FD(index);
	return 0;
}

int vm_disk_add_top(struct vm_disk *v, size_t number, int disk_dir_fd, struct err *err)
{
	int fd[2] = { -1, -1 };
	int r = vm_disk_create_pair(disk_dir_fd, number, 0, v->d.size, fd, err);

	if (r < 0)
		return r;
	v->top_data_fd = fd[0];
	v->top_index_fd = fd[1];
	return 0;
}

void vm_disks_forget_fds(struct vm_disks *v)
{
	for (size_t i = 0; i < v->n; i++) {
		struct vm_disk *d = v->disk[i];

		d->base_fd = fd_close(d->base_fd);
		d->top_data_fd = fd_close(d->top_data_fd);
		d->top_index_fd = fd_close(d->top_index_fd);
		d->remote_sock = fd_close(d->remote_sock);
		for (size_t k = 0; k < d->d.nlayers; k++) {
			d->layer_fd[k] = fd_close(d->layer_fd[k]);
			d->table_fd[k] = fd_close(d->table_fd[k]);
		}
	}
}

void vm_disks_finish(struct vm_disks *v)
{
	vm_disks_forget_fds(v);
	for (size_t i = 0; i < v->n; i++) {
		struct vm_disk *d = v->disk[i];

		for (size_t k = 0; k < d->d.nlayers; k++)
			snapshot_layer_finish(&d->d.layer[k]);
		free(d->d.layer);
		free(d->d.path);
		free(d->d.image);
		free(d);
	}
	*v = (struct vm_disks){ 0 };
}

/* ---- for the monitor ---- */

/* A comma in a value is written twice. */
static void put_path(FILE *f, const char *s)
{
	fputs("blk,path=", f);
	for (; *s; s++) {
		if (*s == ',')
			fputc(',', f);
		fputc(*s, f);
	}
}

bool vm_disk_is_attached_later(const struct vm_disk *v, bool restore)
{
	return restore && v->remote_sock < 0;
}

char *vm_disk_device(const struct vm_disk *v, bool restore)
{
	const struct snapshot_disk *d = &v->d;
	bool later = vm_disk_is_attached_later(v, restore);
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	if (d->kind != SNAPSHOT_DISK_LAYERS) {
		put_path(f, d->path);
		fputs(d->kind == SNAPSHOT_DISK_FILE ? ",ro" : "", f);
	} else {
		/* What is above a base is private and ends with the VM: nothing need be flushed before a snapshot seals
		 * it. */
		fprintf(f, "blk,backend=layers,size=%llu,cache=unsafe", (unsigned long long)d->size);
		for (size_t i = 0; i < d->nlayers && !later; i++) {
			fprintf(f, "%s%d", i ? ":" : ",layers=", v->layer_fd[i]);
			if (v->table_fd[i] >= 0)
				fprintf(f, "~%d", v->table_fd[i]);
		}
		if (v->remote_sock >= 0)
			fprintf(f, ",remote=%d", v->remote_sock);
		if (v->base_fd >= 0 && !later)
			fprintf(f, ",base=%d", v->base_fd);
		if (v->top_data_fd >= 0 && !later)
			fprintf(f, ",top=%d:%d", v->top_data_fd, v->top_index_fd);
	}
	if (fclose(f) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- generations ---- */

/* What cannot be told (no descriptors left) is held: the others are removed. */
static bool is_held(int dir_fd, const char *name)
{
	_cleanup_close_ int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	return fd < 0 ? errno != ENOENT : flock(fd, LOCK_SH | LOCK_NB) < 0;
}

static int by_number(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return x < y ? -1 : x > y;
}

/* What comes after the number is for the caller, who compares the whole name. */
static bool generation_of(const char *name, size_t number, unsigned *ret)
{
	char prefix[40], *end;
	size_t len = (size_t)snprintf(prefix, sizeof(prefix), "disk%zu-", number);

	if (strncmp(name, prefix, len) != 0)
		return false;
	errno = 0;
	unsigned long long n = strtoull(name + len, &end, 10);

	if (errno || end == name + len || n > UINT_MAX)
		return false;
	*ret = (unsigned)n;
	return true;
}

int vm_disk_generations(int disk_dir_fd, size_t number, unsigned ret[VM_DISK_GENERATIONS_MAX], struct err *err)
{
	int fd = openat(disk_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list) {
		int r = err_errno(err, -errno, "read the VM's disk directory");

		fd_close(fd);
		return r;
	}
	for (struct dirent *e; (e = readdir(list));) {
		char data[40], index[40];
		unsigned generation;

		if (!generation_of(e->d_name, number, &generation))
			continue;
		vm_disk_pair_names(number, generation, data, index);
		if (strcmp(e->d_name, data) != 0)
			continue;
		if (!is_held(disk_dir_fd, data)) {
			unlinkat(disk_dir_fd, data, 0);
			unlinkat(disk_dir_fd, index, 0);
		} else if (n < VM_DISK_GENERATIONS_MAX) {
			ret[n++] = generation;
		}
	}
	closedir(list);
	if (n > 0)
		qsort(ret, (size_t)n, sizeof(*ret), by_number);
	return n;
}
