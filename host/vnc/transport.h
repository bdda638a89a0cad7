/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection's bytes, whatever is around them: plain, TLS, WebSocket, or WebSocket in TLS.
 *
 * Nothing here waits but the functions with a deadline, which also end when `watch` (the other process) closes.
 * What is written is kept until the socket takes it, at most TRANSPORT_CHUNK bytes.
 */
#pragma once
#include <gnutls/gnutls.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "host/vnc/websocket.h"
#include "lib/err.h"

enum { TRANSPORT_CHUNK = 16384 };

struct transport {
	int fd;    /* non-blocking, borrowed */
	int watch; /* borrowed */
	gnutls_session_t tls;
	bool framed; /* WebSocket */
	struct websocket ws;
	uint8_t out[WEBSOCKET_HEADER_MAX + TRANSPORT_CHUNK + WEBSOCKET_HEADER_MAX + WEBSOCKET_CONTROL_MAX];
	size_t out_at, out_end;
};

/* Bytes, 0 at the end of the stream, -EAGAIN or another -errno. */
ssize_t transport_read(struct transport *t, void *buf, size_t n);
/* There may be more to read although the socket has nothing. */
bool transport_has_more(const struct transport *t);
/* How much of n was taken: 0 while there is something to flush; or -errno. */
ssize_t transport_write(struct transport *t, const void *buf, size_t n);
/* 0 when all has gone, -EAGAIN or another -errno. */
int transport_flush(struct transport *t);

/* Until `until` (loop_now_ns): 0, -ETIMEDOUT, -ECONNRESET at the end of the stream, -ECANCELED when `watch` has closed, or another -errno. */
int transport_read_all(struct transport *t, void *buf, size_t n, uint64_t until);
int transport_write_all(struct transport *t, const void *buf, size_t n, uint64_t until);
int transport_wait(struct transport *t, short events, uint64_t until);
/* TLS from here on, as the server. */
int transport_start_tls(struct transport *t, gnutls_certificate_credentials_t credentials, uint64_t until);
/* Says goodbye as far as that goes without waiting. */
void transport_finish(struct transport *t);
