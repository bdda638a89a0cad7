/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's side of virtio-vsock: Unix stream sockets in the VM's directory.
 *
 * NAME    the monitor listens; a client connects, sends "CONNECT <port>\n" and, once the guest accepted, reads
 *         "OK <host port>\n"; from then on the socket is the connection
 * NAME_P  a program on the host listens; the guest's connections to port P of CID 2 arrive there
 *
 * NAME is relative to the working directory, which is the VM's: after isolation it is all there is of the file system.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"

enum { VSOCK_UNIX_NAME_MAX = 64, VSOCK_UNIX_LINE_MAX = 32, VSOCK_UNIX_BACKLOG = 4096 };

/* The listening socket, or -errno. A socket left over by a dead monitor is replaced. */
int vsock_unix_listen(const char *name, struct err *err);
/* A connected socket, or -errno: -EAGAIN when the listener's backlog is full for now. Never waits. */
int vsock_unix_connect(const char *name, uint32_t port);
/* The next client, or -errno. */
int vsock_unix_accept(int listen_fd);
/* Is "CONNECT <port>\n" what the n bytes are? 0 with the port, or -EINVAL. */
int vsock_unix_parse(const char *line, uint32_t n, uint32_t *ret_port);
/* Send "OK <port>\n" to a client: 0 or -errno. */
int vsock_unix_welcome(int fd, uint32_t host_port);
/* Let the process have `want` descriptors if the hard limit allows; returns how many it may have. */
uint32_t vsock_unix_raise_limit(uint32_t want);
