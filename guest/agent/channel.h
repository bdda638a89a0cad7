/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection of one operation: reading the request line, answering, single frames, and the orderly end.
 *
 * Everything here blocks (the process serves nothing else); the loop of a running command (command.c) polls and uses
 * channel_receive_frame, which does not.
 *
 * `progress` lies in memory shared with the supervisor. If this process dies in the middle, the supervisor can tell from it whether an
 * answer line or a frame is due, or whether it must say nothing because half a frame is out.
 *
 * Trust: the host is hostile. At most AGENT_REQUEST_MAX bytes are taken for the request, within CHANNEL_REQUEST_MS.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest/agent/frame.h"
#include "guest/proto.h"
#include "lib/err.h"
#include "lib/json.h"

enum { CHANNEL_REQUEST_MS = 30000, CHANNEL_LINGER_MS = 10000 };

struct channel_progress {
	_Atomic bool answered; /* the answer line is out */
	_Atomic bool torn;     /* in the middle of a line or frame */
	_Atomic bool finished; /* the final frame, or an answer without frames, is out */
};

struct channel {
	int fd; /* owned; non-blocking */
	struct channel_progress *progress;
	bool reset; /* the connection broke, as all of them do when the VM is restored: nobody has closed it */
	size_t have, taken; /* bytes in `text`, and of these the ones already given out */
	char text[AGENT_REQUEST_MAX];
};

void channel_init(struct channel *c, int fd, struct channel_progress *progress);

/* The request line without its newline, in c->text. Its length, -ECONNRESET when the host went away, or -errno. */
ssize_t channel_read_request(struct channel *c, struct err *err);
/* That one is answered and its text needed no more; -EPROTO when the host did not wait for the answer. */
int channel_next_request(struct channel *c, struct err *err);

/* A system call on the connection failed with `code`: was it closed, or did it break? Sets `reset`. */
void channel_note_failure(struct channel *c, int code);

/* Bytes that came with the request wait in the buffer, so poll would not tell of them. */
bool channel_has_input(const struct channel *c);

/* Take what is there. 1: a frame is complete in f, 0: nothing more now, -ECONNRESET: end of file, -EPROTO: violation;
 * another -errno or `reset`: the connection broke. */
int channel_receive_frame(struct channel *c, struct frame_reader *f, struct err *err);
int channel_wait_frame(struct channel *c, struct frame_reader *f, struct err *err); /* 0 or as above */

/* Answers: channel_answer_begin starts {"ok":true, channel_answer_end closes the object and sends the line. `buf` has AGENT_REPLY_MAX
 * bytes. 0 or -errno. */
void channel_answer_begin(struct json_writer *w, char *buf);
int channel_answer_end(struct channel *c, struct json_writer *w);
int channel_answer_ok(struct channel *c);
int channel_answer_error(struct channel *c, int code, const char *text);

int channel_send_frame(struct channel *c, uint8_t type, const void *payload, size_t n); /* 0 or -errno; blocks */
int channel_send_exit(struct channel *c, uint32_t kind, uint32_t value);
int channel_send_error(struct channel *c, int code, const char *text); /* an answer line or an ERROR frame, as is due */

/* Shut down, discard what still comes until the host closes or CHANNEL_LINGER_MS are over, close. */
void channel_finish(struct channel *c);

const char *channel_error_code(int code); /* -errno -> "not-found", ... */
/* Write an error as an answer line; returns its length. Also for the supervisor, which has no channel. */
size_t channel_format_error(char buf[AGENT_REPLY_MAX], int code, const char *text);
/* Write an ERROR frame; returns its length. */
size_t channel_format_error_frame(char buf[AGENT_REPLY_MAX], int code, const char *text);
