/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "NAME|UID[:GROUP|GID]" -> credentials, from /etc/passwd and /etc/group themselves: a static program must not load
 * the image's NSS modules.
 *
 * A number that is also a name is a name first. Without a group: the entry's own group and, from /etc/group, those that list
 * the user; a number without an entry gets group 0. With a group: that group alone.
 *
 * Trust: both files are the image's, hence hostile: lines longer than USER_LINE_MAX, malformed ones and
 * groups beyond USER_GROUPS_MAX are passed over.
 */
#pragma once
#include <stddef.h>
#include <sys/types.h>

#include "lib/err.h"

enum { USER_GROUPS_MAX = 256, USER_NAME_MAX = 64, USER_PATH_MAX = 512, USER_LINE_MAX = 16 * 1024 };

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX];
	size_t ngroups;
	char name[USER_NAME_MAX];   /* "" without an entry; then home is "/" */
	char home[USER_PATH_MAX];
	char shell[USER_PATH_MAX];  /* "" when unknown */
};

/* 0, or -ENOENT: there is no such user or group, or -errno. */
int user_lookup(const char *passwd_path, const char *group_path, const char *spec, struct user *ret, struct err *err);
