/* SPDX-License-Identifier: Apache-2.0 */
/* Giving up privileges: see privileges.h. */
#include "lib/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"

int privileges_drop_capabilities(struct err *err)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2];

	memset(none, 0, sizeof(none));
	for (int cap = 0; cap <= 63; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno == EINVAL)
			break; /* past the last one this kernel knows; others fail for who has none anyway */
	return syscall(SYS_capset, &head, none) < 0 ? err_errno(err, -errno, "drop capabilities") : 0;
}

int privileges_drop(struct err *err)
{
	const struct rlimit no_core = { 0, 0 };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(err, -errno, "no_new_privs");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_errno(err, -errno, "not dumpable");
	if (setrlimit(RLIMIT_CORE, &no_core) < 0)
		return err_errno(err, -errno, "limit on core files");
	return privileges_drop_capabilities(err);
}

static int write_text(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_write_full(fd, text, strlen(text));
}

int privileges_map_ids(uid_t uid, gid_t gid)
{
	char map[64];
	int r;

	r = write_text("/proc/self/setgroups", "deny");
	if (r < 0 && r != -ENOENT)
		return r;
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	r = write_text("/proc/self/gid_map", map);
	if (r < 0)
		return r;
	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	return write_text("/proc/self/uid_map", map);
}
