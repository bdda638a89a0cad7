/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests over libcurl's multi interface: one reply each, with redirects and authentication done on the way.
 *
 * Threads: one, which calls http_run. Callbacks run inside it: nothing here may be called from `body`, all but
 * http_run and http_finish from `done`.
 */
#pragma once
#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>

#include "host/fetch/challenge.h"
#include "lib/err.h"

enum { HTTP_URL_MAX = 4096, HTTP_REDIRECTS = 5, HTTP_ORIGIN_MAX = 300 };

/* Who we are to one repository on one host. Its credentials go to that origin and to the token server which that names. */
struct http_auth {
	char origin[HTTP_ORIGIN_MAX]; /* scheme://host:port */
	char *user, *password;        /* owned; NULL: none */
	char *ca_file;                /* owned; NULL: that of struct http */
	char *token;                  /* owned; NULL: none */
	uint32_t serial;              /* of the token */
	bool basic;                   /* it asks for Basic */
	struct http_job *fetching;    /* the request for a token under way */
	struct http_job *waiting;     /* for it */
};

struct http {
	CURLM *multi;
	const char *ca_file; /* borrowed; NULL: the system's */
	uint64_t stall_ms;   /* a request that gets nothing for so long is given up */
	struct http_job *jobs;
};

struct http_job;
typedef int http_body_fn(struct http_job *j, const void *data, size_t n);
typedef void http_done_fn(struct http_job *j, int result);

struct http_job {
	/* The caller's; strings are borrowed until done. */
	const char *url;
	const char *accept;      /* NULL: anything */
	struct http_auth *auth;
	uint64_t range_first, range_len; /* len 0: all of it */
	http_body_fn *body;      /* of a reply that is a success; not 0 ends it, with that for its result */
	http_done_fn *done;      /* 0 after a success (2xx), else -errno, and err says why. The job may be freed in it */
	void *ctx;

	/* The reply's. */
	long status;
	bool has_range;          /* Content-Range, of the form bytes A-B/TOTAL */
	uint64_t reply_first, reply_last, reply_total;
	int64_t length;          /* Content-Length; -1: not said */
	char type[128], digest[80];
	bool unreachable;        /* there was nobody to speak with: no such host, no connection, no TLS */
	char *location;          /* the URL that redirects led to; NULL: the first. Taken over by whoever sets it to NULL */
	struct err err;

	/* http.c */
	struct http *http;
	struct http_job *prev, *next, *next_waiting;
	CURL *easy;
	struct curl_slist *headers;
	uint64_t last_ms;
	uint32_t serial, redirects, renewals, discarded;
	bool sent_auth, in_body, challenged, active, paused;
	int stopped;
	char challenge[CHALLENGE_HEADER_MAX + 1];
	char error_text[CURL_ERROR_SIZE];
};

int http_init(struct http *h, const char *ca_file, uint64_t stall_ms, struct err *err);
void http_finish(struct http *h); /* cancels what is under way, without telling */

/* The origin of a URL that Coffer fetches from: http or https, no user in it. 0 or -EINVAL. */
int http_origin(const char *url, char ret[HTTP_ORIGIN_MAX], struct err *err);
void http_auth_finish(struct http_auth *a);

/* Begin; done is called later, never in here. */
void http_start(struct http *h, struct http_job *j);
void http_cancel(struct http_job *j); /* done is not called; one not started, too */

/* Leave what the server sends unread for a while. */
void http_pause(struct http_job *j, bool pause);

/* Do what can be done. The caller waits with curl_multi_poll. */
void http_run(struct http *h, uint64_t now_ms);
uint64_t http_now_ms(void);

/* Is it worth another try? */
bool http_is_transient(int code);
