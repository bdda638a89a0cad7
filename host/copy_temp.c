/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory that a single file is unpacked in, beside its target: TEMP_PREFIX and six characters.
 *
 * Its maker holds the flock on it, so one without is what a copy that was killed has left, and the next copy to that place
 * removes it. Between mkdtemp and flock a new one looks like that too: whoever then finds that his was taken away
 * makes another.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/copy_internal.h"
#include "host/file.h"
#include "lib/fd.h"

#define TEMP_PREFIX ".coffer-cp-"

enum { MAKE_TRIES = 16 };

static int open_temp(int parent, const char *name)
{
	return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static void remove_if_stale(int parent, const char *name)
{
	struct stat st;
	_cleanup_close_ int fd = open_temp(parent, name);

	/* Only what looks as we make it; where there are no locks nothing is known to be stale. */
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 07777) == 0700 &&
	    flock(fd, LOCK_EX | LOCK_NB) == 0)
		file_remove_tree(parent, name);
}

void copy_temp_sweep(int parent)
{
	int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d) {
		fd_close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d));)
		if (!strncmp(e->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) && strlen(e->d_name) == COPY_TEMP_NAME - 1)
			remove_if_stale(parent, e->d_name);
	closedir(d);
}

/* Whether the directory just made is ours: false when a sweep was faster. */
static bool take_lock(int fd)
{
	struct stat st;

	while (flock(fd, LOCK_EX) < 0)
		if (errno != EINTR)
			break; /* a file system without locks: nobody sweeps there */
	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

int copy_temp_make(int parent, const char *dir, char name[COPY_TEMP_NAME], struct err *err)
{
	char path[PATH_MAX + COPY_TEMP_NAME];

	for (int i = 0; i < MAKE_TRIES; i++) {
		snprintf(path, sizeof(path), "%s/" TEMP_PREFIX "XXXXXX", dir);
		if (!mkdtemp(path))
			return err_errno(err, -errno, "make a directory in '%s'", dir);
		memcpy(name, path + strlen(path) - (COPY_TEMP_NAME - 1), COPY_TEMP_NAME);
		int fd = open_temp(parent, name);

		if (fd < 0 && errno != ENOENT)
			return err_errno(err, -errno, "'%s'", path);
		if (fd >= 0 && take_lock(fd))
			return fd;
		fd_close(fd);
	}
	return err_set(err, -EBUSY, "'%s': others remove what is made there", dir);
}
