/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets named relative to a directory descriptor, so that neither a long path (sun_path ends at 107 bytes) nor
 * a directory renamed in between matters: the address is /proc/self/fd/N/NAME.
 */
#pragma once
#include "lib/err.h"

/* Bind NAME in dirfd (type SOCK_STREAM or SOCK_SEQPACKET) with mode 0600 and listen. Descriptor (close-on-exec,
 * blocking) or -errno with a text. */
int sock_listen_at(int dirfd, const char *name, int type, struct err *err);

/* Connect; descriptor (close-on-exec, blocking) or -errno: -ENOENT and -ECONNREFUSED mean that nobody serves it. */
int sock_connect_at(int dirfd, const char *name, int type, struct err *err);

/* Connect to a path of any length. */
int sock_connect_path(const char *path, int type, struct err *err);

struct pollfd;

/* poll(2) until `deadline_ms` (CLOCK_MONOTONIC; 0: no deadline), going on after EINTR: as poll, or -errno. */
int sock_poll(struct pollfd *p, unsigned n, unsigned long long deadline_ms);
