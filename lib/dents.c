/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a directory: see dents.h. */
#include "lib/dents.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

int dents_next(struct dents *d, int fd, const struct dents_entry **ret)
{
	if (d->pos == d->len) {
		long n = syscall(SYS_getdents64, fd, d->buf, sizeof(d->buf));

		if (n <= 0)
			return n < 0 ? -errno : 0;
		d->pos = 0;
		d->len = (size_t)n;
	}
	*ret = (const struct dents_entry *)(d->buf + d->pos);
	d->pos += (*ret)->reclen;
	return 1;
}
