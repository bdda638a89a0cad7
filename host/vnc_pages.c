/* SPDX-License-Identifier: Apache-2.0 */
/* Collecting noVNC: see vnc_pages.h. */
#include "host/vnc_pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/vnc/web.h"
#include "lib/fd.h"

enum { DEPTH_MAX = 8 };

struct collect {
	int fd;
	uint64_t used; /* bytes of the file */
	struct web_pages *pages;
};

static int add_file(struct collect *c, int fd, const char *path)
{
	struct web_file *f = &c->pages->file[c->pages->n];
	char buf[65536];
	uint64_t size = 0;
	ssize_t n;
	int r;

	if (c->pages->n == WEB_FILES_MAX || strlen(path) >= sizeof(f->path))
		return 0;
	while ((n = fd_read_full(fd, buf, sizeof(buf))) > 0) {
		if (c->used + size + (uint64_t)n > VNC_PAGES_MAX)
			return -EFBIG;
		r = fd_pwrite_full(c->fd, buf, (size_t)n, (off_t)(c->used + size));
		if (r < 0)
			return r;
		size += (uint64_t)n;
	}
	if (n < 0)
		return (int)n;
	snprintf(f->path, sizeof(f->path), "%s", path);
	f->offset = (uint32_t)c->used;
	f->size = (uint32_t)size;
	c->used += size;
	c->pages->n++;
	return 0;
}

/* Links are followed, as Debian's package has some. fd is taken. */
static int add_dir(struct collect *c, int fd, const char *prefix, int depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *e;
	int r = 0;

	if (!dir) {
		r = -errno;
		fd_close(fd);
		return r;
	}
	while (r == 0 && (e = readdir(dir)) != NULL) {
		char path[512];
		struct stat st;

		if (e->d_name[0] == '.' || snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", e->d_name) >= (int)sizeof(path))
			continue;
		_cleanup_close_ int child = openat(dirfd(dir), e->d_name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

		if (child < 0 || fstat(child, &st) < 0)
			continue; /* a dangling link */
		if (S_ISREG(st.st_mode))
			r = add_file(c, child, path);
		else if (S_ISDIR(st.st_mode) && depth < DEPTH_MAX)
			r = add_dir(c, TAKE_FD(child), path, depth + 1);
	}
	closedir(dir);
	return r;
}

int vnc_pages_make(const char *path, struct err *err)
{
	const uint64_t table = sizeof(struct web_pages) + WEB_FILES_MAX * sizeof(struct web_file);
	_cleanup_free_ struct web_pages *pages = calloc(1, table);
	_cleanup_close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int fd = memfd_create("coffer-vnc-pages", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct collect c = { .fd = fd, .used = table, .pages = pages };
	int r;

	if (dir < 0)
		return err_errno(err, -errno, "%s: the pages for browsers are Debian's package novnc, which --web needs", path);
	if (!pages || fd < 0)
		return err_errno(err, pages ? -errno : -ENOMEM, "pages");
	pages->magic = WEB_MAGIC;
	r = add_dir(&c, TAKE_FD(dir), "", 0);
	if (r == 0)
		r = fd_pwrite_full(fd, pages, table, 0);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		r = -errno;
	return r < 0 ? err_errno(err, r, "%s", path) : TAKE_FD(fd);
}
