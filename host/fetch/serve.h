/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `coffer-fetch serve`, the insides: serve.c (loop and clients), serve_blob.c (what is fetched next), serve_check.c (whole
 * blobs, the bound of the cache), serve_config.c (what it is told). docs/remote.md has the behaviour.
 *
 * One thread. All of it is allocated at the start but for what libcurl does.
 */
#pragma once
#include <nettle/sha2.h>
#include <stdbool.h>
#include <stdint.h>

#include "devices/backend/remote_format.h"
#include "host/blob_cache.h"
#include "host/fetch/http.h"
#include "lib/log.h"

enum {
	SERVE_CLIENTS = 1024,
	SERVE_AUTHS = 64,
	SERVE_TRANSFERS = 8,
	SERVE_BACKGROUND = 2,          /* of them that nobody waits for, at most */
	SERVE_STREAMS = 4,             /* sequential readers of one blob that are told apart */
	SERVE_REQUEST = 1 << 20,       /* bytes of one request */
	SERVE_PAUSE_MS = 200,          /* who is paused for longer gives its chunks up */
	SERVE_WHOLE_MAX = 16 << 20,    /* a blob on a server without ranges is fetched in one piece up to so many bytes */
};

enum serve_mode { SERVE_LAZY, SERVE_BACKGROUND_TOO, SERVE_ALL };

/* One message of a client, until all of it is answered. */
enum want_state { WANT_WAITS, WANT_KNOWN, WANT_TOLD };
struct want {
	bool used;
	uint32_t blob, first, n, open; /* open: chunks that wait; `known` are not told yet */
	uint32_t known;
	uint64_t deadline_ms, order;
	uint8_t state[REMOTE_WANT_CHUNKS];
	int result[REMOTE_WANT_CHUNKS];
};

struct client {
	int fd;                        /* -1: gone */
	struct want *want;             /* REMOTE_WANTS */
	bool whole_told[REMOTE_BLOBS];
	bool blocked;                  /* its socket is full */
};

enum chunk_state { CHUNK_IDLE, CHUNK_BUSY, CHUNK_FOREIGN }; /* FOREIGN: another process has its lock */

struct stream {
	uint32_t next, window, read;   /* chunks; read: in a row up to next */
	uint64_t used;
};

struct served {
	struct serve *s;
	uint32_t number;
	struct blob b;
	char *url, *redirect;          /* where it led to last; NULL */
	char sha256[BLOB_CACHE_SHA256 + 1];
	struct http_auth *auth;
	uint8_t *state;                /* enum chunk_state, per chunk */
	uint32_t *wanted;              /* by so many wants */
	uint32_t nwanted, nforeign;
	uint32_t lowest;               /* no chunk below it is absent, as far as we know */
	struct stream stream[SERVE_STREAMS];
	uint64_t tick;
	bool no_ranges;

	int failure;                   /* of the last request; 0: it went well */
	uint64_t failing_since, retry_ms, note_ms;
	uint32_t attempts;
	int dead;                      /* wants are answered with it until dead_until */
	uint64_t dead_until;

	bool whole_known;              /* whole_result is for the clients */
	int whole_result;
	bool checking;
	uint64_t check_at, check_retry_ms;
	struct sha256_ctx check;
};

struct transfer {
	struct http_job job;
	struct served *v;              /* NULL: free */
	uint32_t first, n, at;         /* chunks; at: the one that comes in */
	size_t have;                   /* bytes of it */
	uint64_t paused_ms;            /* since when; 0: it goes on */
	bool demand, whole, progress;
	char *url;                     /* a copy, as redirect may change meanwhile */
	uint8_t *buf;                  /* one chunk */
};

struct serve {
	struct http http;
	struct log log;
	struct blob_cache cache;
	uint64_t cache_size, filled, check_every; /* bytes filled since the bound was looked at */
	enum serve_mode mode;
	uint64_t timeout_ms, stall_ms, backoff_min_ms, backoff_max_ms, idle_ms, note_ms;
	char *ca_file;
	struct client *client;
	uint32_t nclients;
	struct http_auth auth[SERVE_AUTHS];
	uint32_t nauths;
	struct served *blob;
	uint32_t nblobs;
	struct transfer transfer[SERVE_TRANSFERS];
	uint64_t now_ms, demand_ms, order;
	uint32_t next_blob;            /* whose turn it is */
	unsigned jitter;               /* seed */
	bool full;                     /* nothing more can be evicted for what nobody waits for */
};

/* serve_config.c: from JSON; 0 or -errno. Descriptors are taken over. */
int serve_configure(struct serve *s, const char *text, size_t len, struct err *err);
int serve_auth_from_json(const void *json, struct http_auth *ret, struct err *err); /* a json_t */

int serve_run(struct serve *s);
void serve_finish(struct serve *s);

/* serve.c: the chunk's fate is known: tell those who wait. */
void serve_chunk_done(struct served *v, uint32_t chunk, int result);
void serve_fail_all(struct served *v, int result);
/* The oldest want that has a chunk of this blob which nobody fetches yet; *ret_chunk is that one. */
bool serve_next_wanted(struct served *v, uint32_t *ret_chunk);

/* serve_blob.c */
int serve_blob_init(struct served *v);
void serve_note_demand(struct served *v, uint32_t first, uint32_t n);
void serve_schedule(struct serve *s);
void serve_look_at_foreign(struct served *v);
bool serve_is_dead(const struct served *v);
void serve_failed(struct served *v, int code, const char *text);
void serve_transfers_stop(struct serve *s);

/* serve_check.c: one step; true when there is more to do at once. */
bool serve_check_step(struct serve *s);
void serve_bound(struct serve *s);
