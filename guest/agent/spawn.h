/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a command: pipes or a terminal, credentials, a cgroup, a session of its own, execve.
 *
 * What goes wrong in the child before execve comes back over a close-on-exec pipe, so that the caller knows for certain
 * whether the program runs when spawn_command returns.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/agent/environment.h"
#include "guest/agent/user.h"
#include "lib/err.h"

struct spawn {
	const char *const *argv; /* NULL-terminated */
	const struct environment *env;
	const struct user *user;
	const char *cwd;
	bool tty, stdin_open;
	uint16_t rows, cols;
	int cgroup_fd; /* -1: none */
};

struct spawned { /* ours to close; non-blocking */
	pid_t pid;
	int in;  /* pipe to stdin, -1 if it is not open; with tty the master */
	int out; /* with tty the master again, another descriptor */
	int err; /* -1 with tty */
	int exec_errno; /* execve failed: there is no process, pid is 0 and the descriptors are -1 */
};

/* 0, or -errno with nothing left behind. execve's own failure is a success with exec_errno set. */
int spawn_command(const struct spawn *s, struct spawned *ret, struct err *err);

int spawn_resize(int master, uint16_t rows, uint16_t cols, uint16_t xpixel, uint16_t ypixel); /* 0 or -errno */
