/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk's connection to coffer-fetch: the remote layers of its stack (block.h) are fetched over one socket
 * (remote_format.h). The "layers" backend says what it wants; here it becomes messages, and answers go back to it.
 *
 *   remote_create, remote_add for each remote layer, remote_set_block, block_layers_attach with remote_ops
 *   either descriptor readable: remote_run
 *
 * Threads: under the disk's lock, like all calls on its block. Trust: the other end is jailed, but speaks to the
 * network: every field is checked; what makes no sense ends the connection, which fails reads of absent chunks.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "devices/backend/block.h"
#include "lib/err.h"

struct remote;

extern const struct block_remote_ops remote_ops; /* ctx: the struct remote */

/* Takes the socket over when it succeeds. */
int remote_create(int sock, struct remote **ret, struct err *err);
void remote_destroy(struct remote *r); /* NULL too */

/* The next blob, as coffer-fetch counts them: a layer (as in the stack) of so many bytes. The table is mapped; the descriptor stays
 * the caller's. `name` is for messages. *ret is what the stack has for the layer, valid until remote_destroy. */
int remote_add(struct remote *r, unsigned layer, int table_fd, uint64_t size, const char *name, struct block_remote *ret,
	       struct err *err);
void remote_set_block(struct remote *r, struct block *b);

/* Before the block is closed: nothing is waited for any more. */
void remote_shutdown(struct remote *r);

int remote_socket(const struct remote *r);
int remote_wake_fd(const struct remote *r); /* readable when something is wanted */
/* Take what came, send what is wanted. False: the connection has ended, and what waited was answered; the socket is not to be
 * watched any more. */
bool remote_run(struct remote *r);
/* Only send what is wanted, before waiting for the socket. */
bool remote_send(struct remote *r);

/* Since when reads have been waiting for a server that fails (loop_now_ns); 0: none do. */
uint64_t remote_waiting_since(const struct remote *r);

/* Something to say for the log, once: false when there is nothing. */
bool remote_note(struct remote *r, char *ret, size_t len);
