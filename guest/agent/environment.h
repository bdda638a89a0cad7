/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of a command: base, then the defaults that `configure` set, then the request's; later entries win.
 * Nothing is copied but what is made here; the result points into its parts.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "guest/agent/agent.h"
#include "guest/agent/user.h"

#define ENVIRONMENT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { ENVIRONMENT_BASE_MAX = 6 };

struct environment {
	char home[USER_PATH_MAX + 8], user[USER_NAME_MAX + 8], logname[USER_NAME_MAX + 8], shell[USER_PATH_MAX + 8];
	const char *v[ENVIRONMENT_BASE_MAX + AGENT_DEFAULT_ENV_MAX + AGENT_ENV_MAX + 1]; /* NULL-terminated */
	size_t n;
};

void environment_make(struct environment *e, const struct user *u, bool tty, const struct agent_env *defaults,
		      const char *const *extra, size_t nextra);
const char *environment_get(const struct environment *e, const char *name); /* NULL when not set */
