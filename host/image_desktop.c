/* SPDX-License-Identifier: Apache-2.0 */
/* What makes a Debian a desktop: see image_desktop.h. */
#include "host/image_desktop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "host/paths.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { PROGRAM_MAX = 16 << 20 };

int image_desktop_check_with(const struct opt_strv *with, struct err *err)
{
	static const char *const known[] = { "firefox-esr" };

	for (size_t i = 0; i < with->n; i++) {
		bool found = false;

		for (size_t k = 0; k < ARRAY_SIZE(known); k++)
			found |= strcmp(with->v[i], known[k]) == 0;
		if (!found)
			return err_set(err, -EINVAL, "--with '%s': there is firefox-esr; Debian's other packages come by --include", TEXT_CUT(with->v[i]));
	}
	return 0;
}

static int add_program(struct fstree *t, int tar, const char *name, const char *env, const char *path, struct err *err)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct fstree_inode like = { .mode = S_IFREG | 0755 };
	char source[PATH_MAX];
	struct stat st;
	size_t n = 0;
	int r = paths_program(name, env, source, sizeof(source), err);

	if (r == 0)
		r = file_read(source, PROGRAM_MAX, &data, &n, err);
	if (r < 0)
		return r;
	if (fstat(tar, &st) < 0)
		return err_errno(err, -errno, "stat the archive");
	like.size = n;
	like.file.offset = (uint64_t)st.st_size;
	r = fd_pwrite_full(tar, data, n, st.st_size);
	if (r < 0)
		return err_errno(err, r, "write the work file");
	return fstree_add(t, path, &like, NULL, err);
}

static int set_defaults(struct image *image)
{
	image->user = strdup(IMAGE_DESKTOP_USER);
	image->cwd = strdup("/home/" IMAGE_DESKTOP_USER);
	image->env = calloc(3, sizeof(*image->env));
	if (!image->user || !image->cwd || !image->env)
		return -ENOMEM;
	image->env[0] = strdup("DISPLAY=:0");
	image->env[1] = strdup("LANG=C.UTF-8");
	return image->env[0] && image->env[1] ? 0 : -ENOMEM;
}

int image_desktop_add(struct fstree *t, int tar, struct image *image, struct err *err)
{
	int r = add_program(t, tar, "coffer-session", "COFFER_SESSION", "usr/lib/coffer/session", err);

	if (r == 0)
		r = add_program(t, tar, "coffer-clipboard", "COFFER_CLIPBOARD", "usr/lib/coffer/clipboard", err);
	if (r == 0)
		r = add_program(t, tar, "coffer-ready", "COFFER_READY", "usr/lib/coffer/ready", err);
	if (r == 0 && set_defaults(image) < 0)
		r = err_set(err, -ENOMEM, "no memory");
	return r;
}
