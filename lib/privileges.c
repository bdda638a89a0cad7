/* SPDX-License-Identifier: Apache-2.0 */
/* Giving up privileges: see privileges.h. */
#include "lib/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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
