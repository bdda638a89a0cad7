/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's own disks: see user_disk.h.
 *
 * The monitor judges again what it opens; a file may change in between. No lock is tried here: one held for a moment
 * would make a VM that starts at that moment believe that its disk is in use.
 */
#include "host/user_disk.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/virtio_blk.h"
#include "lib/util.h"

enum { SECTOR = 512, IMAGE_DISKS = 2 /* itself and what is written above it */ };

#define FORM "PATH[,ro|,cow]"

struct parsed {
	char *path;
	bool ro, cow;
};

static const struct opt table[] = {
	OPT_STRING(struct parsed, path, "path", 0, "PATH", "disk file"),
	OPT_BOOL(struct parsed, ro, "ro", 0, "read-only"),
	OPT_BOOL(struct parsed, cow, "cow", 0, "what the VM writes is its own"),
	OPT_END,
};

static const char *kind_name(mode_t mode)
{
	return S_ISDIR(mode)  ? "a directory" :
	       S_ISFIFO(mode) ? "a FIFO" :
	       S_ISSOCK(mode) ? "a socket" :
	       S_ISCHR(mode)  ? "a character device" :
				"no regular file";
}

static int check_file(const char *text, const struct user_disk *d, struct err *err)
{
	struct stat st;

	if (stat(d->path, &st) < 0)
		return err_errno(err, -errno, "--disk '%s'", text);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return err_set(err, -EINVAL, "--disk '%s': is %s: a disk is a file or a block device", text,
			       kind_name(st.st_mode));
	if (access(d->path, R_OK) < 0)
		return err_errno(err, -errno, "--disk '%s': open for reading", text);
	if (!d->ro && !d->cow && access(d->path, W_OK) < 0)
		return err_errno(err, -errno, "--disk '%s': open for writing ('%s,ro' opens it read-only)", text, text);
	if (S_ISREG(st.st_mode) && (st.st_size == 0 || st.st_size % SECTOR != 0))
		return err_set(err, -EINVAL,
			       "--disk '%s': has %" PRIu64 " bytes, a disk has a positive multiple of %d: 'truncate -s %%%d' rounds it up, "
			       "'truncate -s 1G' makes an empty one",
			       text, (uint64_t)st.st_size, SECTOR, SECTOR);
	return 0;
}

int user_disk_parse(const char *text, struct user_disk *ret, struct err *err)
{
	struct user_disk d = { 0 };
	struct parsed p = { 0 };
	struct err why = ERR_INIT;
	int r = opt_parse_list(table, &p, text, &why);

	if (r < 0)
		r = err_set(err, r, "--disk '%s': %s: the form is " FORM ", a comma in the path is written twice", text,
			    why.text);
	else if (!p.path || !*p.path)
		r = err_set(err, -EINVAL, "--disk '%s': no path: the form is " FORM, text);
	else if (!realpath(p.path, d.path))
		r = err_errno(err, -errno, "--disk '%s'", text);
	else if (p.ro && p.cow)
		r = err_set(err, -EINVAL, "--disk '%s': either ro or cow", text);
	d.ro = p.ro;
	d.cow = p.cow;
	opt_free(table, &p);
	if (r == 0)
		r = check_file(text, &d, err);
	if (r < 0)
		return r;
	*ret = d;
	return 0;
}

int user_disk_check(const struct opt_strv *disks, bool with_image, struct err *err)
{
	const size_t max = BLK_INSTANCES_MAX - (with_image ? IMAGE_DISKS : 0);
	struct user_disk d;
	int r = 0;

	if (disks->n > max)
		return err_set(err, -E2BIG, "at most %zu --disk %s, %zu given", max,
			       with_image ? "with a root image" : "without a root image", disks->n);

	for (size_t i = 0; i < disks->n && r == 0; i++)
		r = user_disk_parse(disks->v[i], &d, err);
	return r;
}

void user_disk_name_error(const struct opt_strv *disks, size_t first, struct err *err)
{
	static const char prefix[] = "monitor: blk";
	char old[ERR_MAX], *number = old + strlen(prefix), *end;

	memcpy(old, err->text, sizeof(old));
	if (strncmp(old, prefix, strlen(prefix)) != 0 || !isdigit((unsigned char)*number))
		return;
	errno = 0;
	unsigned long long n = strtoull(number, &end, 10);

	if (errno || strncmp(end, ": ", 2) != 0 || n < first || n - first >= disks->n)
		return;
	err_set(err, err->code, "--disk '%s': %s", disks->v[n - first], end + 2);
}
