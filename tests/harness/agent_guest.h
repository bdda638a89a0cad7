/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent on a Unix socket in a child process, and a client for it that checks what it is told to and nothing more.
 *
 * The agent is libagent's code in a fork of the test, so sanitizers see it. The client blocks; a test that would hang
 * is ended by the time limit of the one who runs the tests.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/proto.h"

struct agent_guest {
	pid_t pid;
	char dir[64];           /* private, removed by agent_guest_stop */
	char socket[80];
	char ready[AGENT_REPLY_MAX]; /* the ready line */
};

void agent_guest_start(struct agent_guest *g, const char *cgroup); /* returns when it is ready; cgroup may be NULL */
int agent_guest_stop(struct agent_guest *g);                       /* SIGTERM; its exit status */

/* Runs the tests with one guest for all of them, without a cgroup; the status of main(): 0 when all passed and the agent ended well. */
struct CMUnitTest;
int agent_guest_run_tests(struct agent_guest *g, const struct CMUnitTest *tests, size_t n);

struct agent_peer {
	int fd;
	char line[AGENT_REPLY_MAX + 1]; /* the answer */
	uint8_t type;
	uint32_t length;
	unsigned char payload[AGENT_FRAME_MAX];
};

void agent_peer_connect(struct agent_peer *p, const struct agent_guest *g);
/* Raw bytes: all, or as many as the agent took before it ended the connection; why it did is there to be read. */
void agent_peer_send(struct agent_peer *p, const void *data, size_t n);
void agent_peer_request(struct agent_peer *p, const struct agent_guest *g, const char *request); /* connect, send, take the answer */
bool agent_peer_line(struct agent_peer *p);  /* false: the connection ended before a line */
bool agent_peer_frame(struct agent_peer *p); /* false: end of file between frames */
void agent_peer_put(struct agent_peer *p, uint8_t type, const void *payload, size_t n);
void agent_peer_close(struct agent_peer *p);

/* The number after "key": in the answer; the test fails if it is not there. */
int64_t agent_peer_number(const struct agent_peer *p, const char *key);

/* Frames until the final one. What does not fit the buffers is counted and dropped. */
struct agent_result {
	char out[64 * 1024], err[16 * 1024]; /* NUL-terminated */
	size_t nout, nerr;
	bool out_ended, err_ended;
	uint8_t final; /* AGENT_EXIT, AGENT_ERROR, or 0: the connection just ended */
	uint32_t kind, value;
	char error[AGENT_ERROR_TEXT_MAX + 1];
	int error_errno;
};

/* With ack, EXIT is answered by EXIT: the record of a detached command is then dropped. */
void agent_peer_collect_and_ack(struct agent_peer *p, struct agent_result *r);
void agent_peer_collect(struct agent_peer *p, struct agent_result *r);
/* Request and collect in one; the answer must be "ok". */
void agent_guest_run(const struct agent_guest *g, const char *request, struct agent_result *r);
