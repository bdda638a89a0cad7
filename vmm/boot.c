/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that become guest memory: see boot.h and boot_file.h.
 *
 * Reads go from the page cache straight into guest memory (preadv on the host view): no buffer of our own.
 */
#include "vmm/boot_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/boot.h"

/* Below the kernel's own limit of 2 GiB - 4 KiB a call. */
enum { READ_MAX = 1 << 30 };

static const char *type_name(mode_t mode)
{
	if (S_ISDIR(mode))
		return "a directory";
	if (S_ISFIFO(mode))
		return "a FIFO";
	if (S_ISSOCK(mode))
		return "a socket";
	if (S_ISCHR(mode) || S_ISBLK(mode))
		return "a device";
	return "not a regular file";
}

int boot_file_size(int fd, const char *what, const char *name, uint64_t *ret, struct err *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s '%s'", what, name);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s '%s' is %s: give a regular file", what, name, type_name(st.st_mode));
	if (st.st_size == 0)
		return err_set(err, -EINVAL, "%s '%s' is empty", what, name);
	*ret = (uint64_t)st.st_size;
	return 0;
}

int boot_open_file(const char *path, const char *what, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	uint64_t size;
	int r;

	if (fd < 0 && errno == ENXIO) /* a socket, or a device without a driver */
		return err_set(err, -EINVAL, "%s '%s' is a socket or an absent device: give a regular file", what, path);
	if (fd < 0)
		return err_errno(err, -errno, "%s '%s'", what, path);
	r = boot_file_size(fd, what, path, &size, err);
	return r < 0 ? r : TAKE_FD(fd);
}

int boot_file_load(struct mem *m, int fd, uint64_t off, uint64_t gpa, uint64_t len)
{
	while (len > 0) {
		uint32_t chunk = (uint32_t)MIN(len, (uint64_t)READ_MAX);
		struct iovec iov;
		ssize_t n;
		int r = mem_iov(m, GPA(gpa), chunk, true, &iov);

		if (r < 0)
			return r;
		n = preadv(fd, &iov, 1, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -ENODATA;
		off += (uint64_t)n;
		gpa += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}
