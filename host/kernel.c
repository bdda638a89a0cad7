/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernel a VM boots: see kernel.h. */
#include "host/kernel.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/file.h"
#include "lib/fd.h"

#define BOOT "/boot"
#define DRAWS "\nCONFIG_DRM_VIRTIO_GPU=y\n"

enum { CONFIG_MAX = 4 << 20 };

int kernel_newest(const char *dir, const char *pattern, const char *except, char *out, size_t len)
{
	char best[NAME_MAX + 1] = "", path[PATH_MAX];
	DIR *list = opendir(dir);

	if (!list)
		return -ENOENT;
	for (struct dirent *e; (e = readdir(list));) {
		if (fnmatch(pattern, e->d_name, 0) != 0 || (except && fnmatch(except, e->d_name, 0) == 0))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if ((!best[0] || strverscmp(e->d_name, best) > 0) && access(path, R_OK) == 0)
			snprintf(best, sizeof(best), "%s", e->d_name);
	}
	closedir(list);
	if (!best[0] || (size_t)snprintf(out, len, "%s/%s", dir, best) >= len)
		return -ENOENT;
	return 0;
}

int kernel_resolve(const char *option, const char *given, const char *wanted, char *out, size_t len, struct err *err)
{
	char real[PATH_MAX];
	struct stat st;
	const char *wrong = NULL;
	int r = 0;

	if (!realpath(given, real) || stat(real, &st) < 0)
		r = -errno;
	else if (!S_ISREG(st.st_mode))
		wrong = S_ISDIR(st.st_mode) ? "is a directory" : "is not a regular file";
	else if (access(real, R_OK) < 0)
		r = -errno;
	else if (st.st_size == 0)
		wrong = "is empty";
	else if ((size_t)snprintf(out, len, "%s", real) >= len)
		r = -ENAMETOOLONG;
	if (!wrong && r == 0)
		return 0;
	return err_set(err, wrong ? -EINVAL : r, "%s '%s': %s: give %s", option, given, wrong ? wrong : strerror(-r), wanted);
}

/* What the small kernel was built with lies beside it. */
static bool small_draws(const char *dir)
{
	char path[PATH_MAX + 32];
	_cleanup_free_ uint8_t *config = NULL;
	size_t n;

	snprintf(path, sizeof(path), "%s/current/config", dir);
	return file_read(path, CONFIG_MAX, &config, &n, NULL) == 0 && memmem(config, n, DRAWS, strlen(DRAWS)) != NULL;
}

int kernel_choose(const char *given, bool display, char *out, size_t len, struct err *err)
{
	char cache[PATH_MAX];

	if (given)
		return kernel_resolve("--kernel", given, "a bzImage or an ELF vmlinux", out, len, err);
	if (file_cache_dir("kernel", cache, sizeof(cache), NULL) == 0 &&
	    (size_t)snprintf(out, len, "%s/current/vmlinux", cache) < len && access(out, R_OK) == 0 && (!display || small_draws(cache)))
		return 0;
	if (!display && kernel_newest(BOOT, "vmlinuz-*-cloud-amd64", NULL, out, len) == 0)
		return 0;
	if (kernel_newest(BOOT, "vmlinuz-*-amd64", display ? "*-cloud-*" : NULL, out, len) == 0)
		return 0;
	if (display)
		return err_set(err, -ENOENT,
			       "no kernel for a guest with a display (Debian's cloud kernel cannot draw): 'apt-get install linux-image-amd64', 'make guest-kernel', or --kernel FILE");
	return err_set(err, -ENOENT,
		       "no kernel for the guest: 'apt-get install linux-image-cloud-amd64', 'make guest-kernel', or --kernel FILE");
}
