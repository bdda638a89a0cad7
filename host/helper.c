/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a helper: see helper.h. */
#include "host/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "host/paths.h"

enum { ARGS_MAX = 16 };

void helper_attributes(posix_spawnattr_t *ret)
{
	sigset_t none, defaults;

	sigemptyset(&none);
	sigfillset(&defaults);
	posix_spawnattr_init(ret);
	posix_spawnattr_setflags(ret, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	posix_spawnattr_setsigmask(ret, &none);
	posix_spawnattr_setsigdefault(ret, &defaults);
}

pid_t helper_spawn(const struct helper *h, struct err *err)
{
	char *argv[ARGS_MAX + 2] = { (char *)(uintptr_t)h->program };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	char path[PATH_MAX];
	pid_t pid;
	int r = paths_program(h->program, h->env, path, sizeof(path), err);

	if (r < 0)
		return r;
	for (size_t i = 0; h->args && h->args[i]; i++) {
		if (i == ARGS_MAX)
			return err_set(err, -E2BIG, "%s: more than %d arguments", h->program, ARGS_MAX);
		argv[i + 1] = (char *)(uintptr_t)h->args[i];
	}
	posix_spawn_file_actions_init(&actions);
	helper_attributes(&attributes);
	posix_spawn_file_actions_adddup2(&actions, h->in, 0);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (h->err_fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, h->err_fd, 2);
	for (size_t i = 0; i < h->nkeep; i++) /* to itself: it only loses close-on-exec */
		posix_spawn_file_actions_adddup2(&actions, h->keep[i], h->keep[i]);
	r = posix_spawn(&pid, path, &actions, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	return r != 0 ? err_errno(err, -r, "run %s", path) : pid;
}
