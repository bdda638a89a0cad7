/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest command whose connection can be made again, after its VM was stopped by a snapshot and restored from it
 * (docs/agent-protocol.md, "resume").
 *
 * Both sides count: output in bytes of whole frames, stdin in bytes. This side tells the agent what it has (ACK), and
 * keeps the stdin that the guest command may not have taken yet (CREDIT tells), at most AGENT_STDIN_WINDOW bytes. To
 * resume is to get a connection, attach with what was received, and send again what was not taken.
 *
 * Trust: the agent. Counts that contradict ours are a violation, or mean that the VM is at an earlier moment than we
 * are.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "host/agent_client.h"
#include "lib/err.h"

/* Where connections come from. 0; -ECANCELED when a signal asked for an end (*ret_signal); -ENOTCONN: the VM is not
 * coming back (err is left as it is when there is nothing to add); another -errno with a text. */
struct resume_source {
	int (*connect)(void *arg, int signal_fd, struct agent_conn **ret, int *ret_signal, struct err *err);
	/* A connection to the VM as it runs: 0 or -errno with a text. */
	int (*connect_again)(void *arg, int signal_fd, struct agent_conn **ret, struct err *err);
	void *arg;
};

struct resume {
	const struct resume_source *source;
	int64_t id, key;
	uint64_t received, acked; /* bytes of frames of output */
	uint64_t taken, sent;     /* bytes of stdin: the ones from `taken` to `sent` are kept */
	uint64_t again;           /* from here to `sent`: to be sent again */
	uint8_t kept[AGENT_STDIN_WINDOW]; /* byte i of stdin is kept[i % AGENT_STDIN_WINDOW] */
};

/* A key for a command that is to be started. */
int64_t resume_make_key(void);
/* On the heap; NULL without memory. */
struct resume *resume_new(const struct resume_source *source, int64_t id, int64_t key);

/* n bytes of stdin go out. */
void resume_keep(struct resume *r, const uint8_t *data, size_t n);
/* CREDIT of n: -EPROTO when that is more than was sent. */
int resume_credit(struct resume *r, uint32_t n, struct err *err);
/* A frame came. */
void resume_count(struct resume *r, const struct agent_received *f);

/* stdin waits to be sent again: nothing new may be sent before. */
static inline bool resume_sends_again(const struct resume *r)
{
	return r->again < r->sent;
}

/* Put what is due into the connection's free buffer: stdin again, or an ACK. false: nothing. */
bool resume_put(struct resume *r, struct agent_conn *c);

/* Replace the connection, which is dead, by one on which the command goes on. *ret_window: bytes of new stdin that may
 * be sent; *ret_ended: the end of stdin has arrived. -ENOTCONN and -ECANCELED: as resume_source; -ESTALE: it cannot go
 * on from here. */
int resume_again(struct resume *r, struct agent_conn *c, uint64_t *ret_window, bool *ret_ended, int *ret_signal,
		 struct err *err);
