/* SPDX-License-Identifier: Apache-2.0 */
/* Starting one of Coffer's own helper processes, which lives beside this one and is spoken to by a socket. */
#pragma once
#include <spawn.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/err.h"

struct helper {
	const char *program, *env; /* as for paths_program */
	const char *const *args;   /* behind its name; NULL-terminated; may be NULL */
	int in, err_fd;            /* its stdin; its stderr, -1: ours */
	const int *keep;           /* descriptors that it inherits under their numbers */
	size_t nkeep;
};

/* In a session of its own, out of the terminal's reach, with default signals: to be destroyed. */
void helper_attributes(posix_spawnattr_t *ret);

/* In a session of its own, out of the terminal's reach, with default signals. Its pid, to be waited for or not, or -errno. */
pid_t helper_spawn(const struct helper *h, struct err *err);
