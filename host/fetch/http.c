/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests over libcurl: see http.h.
 *
 * Redirects are followed here, not by libcurl, so that it is plain what is sent where: Authorization goes to the origin (scheme,
 * host and port) of the job's auth alone, and https never leads to http. A 401 of that origin is answered once with
 * what it asks for: Basic, or a token that is fetched from the server it names. Requests that meet a 401 while a token is on
 * its way wait for that one.
 *
 * Trust: all of a reply is hostile: headers are cut, bodies of failures are thrown away, URLs must be http or https and have
 * no user in them. TLS is always checked.
 */
#include "host/fetch/http.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "lib/fd.h"
#include "lib/text.h"

enum { DISCARD_MAX = 64 << 10, TOKEN_REPLY_MAX = 128 << 10, ERROR_TEXT = 200 };

uint64_t http_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool http_is_transient(int code)
{
	return code == -EAGAIN || code == -ECONNRESET || code == -ETIMEDOUT || code == -EHOSTUNREACH || code == -ECONNREFUSED ||
	       code == -EIO;
}

int http_init(struct http *h, const char *ca_file, uint64_t stall_ms, struct err *err)
{
	*h = (struct http){ .ca_file = ca_file, .stall_ms = stall_ms };
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || (h->multi = curl_multi_init()) == NULL)
		return err_set(err, -ENOMEM, "libcurl does not start");
	return 0;
}

/* ---- lists ---- */

static void job_link(struct http *h, struct http_job *j)
{
	j->prev = NULL;
	j->next = h->jobs;
	if (h->jobs != NULL)
		h->jobs->prev = j;
	h->jobs = j;
}

static void job_unlink(struct http *h, struct http_job *j)
{
	if (j->prev != NULL)
		j->prev->next = j->next;
	else
		h->jobs = j->next;
	if (j->next != NULL)
		j->next->prev = j->prev;
}

/* Out of libcurl's hands. */
static void job_stop(struct http_job *j)
{
	if (j->easy == NULL)
		return;
	curl_multi_remove_handle(j->http->multi, j->easy);
	curl_easy_cleanup(j->easy);
	curl_slist_free_all(j->headers);
	j->easy = NULL;
	j->headers = NULL;
}

static void stop_waiting(struct http_job *j)
{
	for (struct http_job **p = &j->auth->waiting; *p != NULL; p = &(*p)->next_waiting)
		if (*p == j) {
			*p = j->next_waiting;
			return;
		}
}

void http_cancel(struct http_job *j)
{
	if (!j->active)
		return;
	j->active = false;
	job_stop(j);
	stop_waiting(j);
	job_unlink(j->http, j);
	free(j->location);
	j->location = NULL;
}

static void job_over(struct http_job *j, int result)
{
	j->active = false;
	job_stop(j);
	job_unlink(j->http, j);
	j->done(j, result);
}

/* ---- URLs ---- */

int http_origin(const char *url, char ret[HTTP_ORIGIN_MAX], struct err *err)
{
	char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL, *password = NULL;
	CURLU *u = curl_url();
	bool ok = u != NULL && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
		  curl_url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
		  (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
		  curl_url_get(u, CURLUPART_USER, &user, 0) != CURLUE_OK &&
		  curl_url_get(u, CURLUPART_PASSWORD, &password, 0) != CURLUE_OK;

	for (char *s = host; ok && *s != '\0'; s++)
		*s = *s >= 'A' && *s <= 'Z' ? (char)(*s + 'a' - 'A') : *s;
	ok = ok && snprintf(ret, HTTP_ORIGIN_MAX, "%s://%s:%s", scheme, host, port) < HTTP_ORIGIN_MAX;
	curl_free(scheme);
	curl_free(host);
	curl_free(port);
	curl_free(user);
	curl_free(password);
	curl_url_cleanup(u);
	return ok ? 0 : err_set(err, -EINVAL, "'%.200s' is no http:// or https:// address without a user in it", url);
}

static bool is_https(const char *url) { return strncasecmp(url, "https:", 6) == 0; }

/* ---- one request ---- */

static uint64_t parse_number(const char **s)
{
	uint64_t v = 0;

	for (; **s >= '0' && **s <= '9'; (*s)++)
		v = v > (UINT64_MAX >> 8) ? v : v * 10 + (uint64_t)(**s - '0');
	return v;
}

/* "bytes 0-99/1234" */
static void parse_content_range(struct http_job *j, const char *s)
{
	if (strncasecmp(s, "bytes ", 6) != 0)
		return;
	s += 6;
	j->reply_first = parse_number(&s);
	if (*s++ != '-')
		return;
	j->reply_last = parse_number(&s);
	if (*s++ != '/')
		return;
	j->reply_total = *s == '*' ? 0 : parse_number(&s);
	j->has_range = j->reply_last >= j->reply_first;
}

static void copy_text(char *to, size_t size, const char *from)
{
	text_escape(from, strlen(from), "", to, size);
}

static void take_header(struct http_job *j, const char *name, const char *value)
{
	size_t have = strlen(j->challenge);

	if (strcasecmp(name, "content-range") == 0)
		parse_content_range(j, value);
	else if (strcasecmp(name, "content-length") == 0 && *value >= '0' && *value <= '9')
		j->length = (int64_t)(parse_number(&value) & INT64_MAX);
	else if (strcasecmp(name, "content-type") == 0)
		copy_text(j->type, sizeof(j->type), value);
	else if (strcasecmp(name, "docker-content-digest") == 0)
		copy_text(j->digest, sizeof(j->digest), value);
	else if (strcasecmp(name, "www-authenticate") == 0 && have + strlen(value) + 2 < sizeof(j->challenge)) {
		snprintf(j->challenge + have, sizeof(j->challenge) - have, "%s%s", have > 0 ? ", " : "", value);
		j->challenged = true;
	}
}

static size_t on_header(char *data, size_t size, size_t n, void *ctx)
{
	struct http_job *j = ctx;
	char line[CHALLENGE_HEADER_MAX + 64], *colon;
	size_t len = size * n;

	j->last_ms = http_now_ms();
	if (len >= sizeof(line))
		return len; /* what we look at is shorter */
	memcpy(line, data, len);
	while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == '\n' || line[len - 1] == ' '))
		len--;
	line[len] = '\0';
	if (strncmp(line, "HTTP/", 5) == 0) { /* of the reply after a 100, too */
		j->has_range = j->challenged = false;
		j->length = -1;
		j->type[0] = j->digest[0] = j->challenge[0] = '\0';
	} else if ((colon = strchr(line, ':')) != NULL) {
		*colon = '\0';
		take_header(j, line, colon + 1 + strspn(colon + 1, " \t"));
	}
	return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct http_job *j = ctx;
	size_t len = size * n;

	j->last_ms = http_now_ms();
	if (!j->in_body) {
		curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &j->status);
		j->in_body = true;
	}
	if (j->status < 200 || j->status > 299) {
		j->discarded += (uint32_t)len;
		return j->discarded > DISCARD_MAX ? 0 : len;
	}
	j->stopped = j->body(j, data, len);
	return j->stopped == 0 ? len : 0;
}

static int set_headers(struct http_job *j, const char *url)
{
	char origin[HTTP_ORIGIN_MAX];
	_cleanup_free_ char *line = NULL;
	struct curl_slist *list = NULL;
	int r = http_origin(url, origin, &j->err);

	if (r < 0)
		return r;
	if (asprintf(&line, "Accept: %s", j->accept != NULL ? j->accept : "*/*") < 0)
		return line = NULL, -ENOMEM;
	j->headers = curl_slist_append(NULL, line);
	j->sent_auth = false;
	if (j->auth->origin[0] == '\0' || strcmp(origin, j->auth->origin) != 0)
		return 0;
	j->sent_auth = true;
	j->serial = j->auth->serial;
	if (j->auth->token != NULL) {
		free(line);
		if (asprintf(&line, "Authorization: Bearer %s", j->auth->token) < 0)
			return line = NULL, -ENOMEM;
		list = curl_slist_append(j->headers, line);
		if (list != NULL)
			j->headers = list;
	} else if (j->auth->basic && j->auth->user != NULL) {
		curl_easy_setopt(j->easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
		curl_easy_setopt(j->easy, CURLOPT_USERNAME, j->auth->user);
		curl_easy_setopt(j->easy, CURLOPT_PASSWORD, j->auth->password);
	}
	return 0;
}

/* Send it, to where it has been led so far. */
static int job_send(struct http_job *j)
{
	const char *url = j->location != NULL ? j->location : j->url;
	char range[64];
	int r;

	job_stop(j);
	j->paused = false;
	j->status = 0;
	j->in_body = j->has_range = j->challenged = false;
	j->length = -1;
	j->discarded = 0;
	j->stopped = 0;
	j->last_ms = http_now_ms();
	j->easy = curl_easy_init();
	if (j->easy == NULL)
		return -ENOMEM;
	r = set_headers(j, url);
	if (r < 0)
		return r;
	curl_easy_setopt(j->easy, CURLOPT_URL, url);
	curl_easy_setopt(j->easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(j->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(j->easy, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(j->easy, CURLOPT_HTTPHEADER, j->headers);
	curl_easy_setopt(j->easy, CURLOPT_USERAGENT, "coffer/" COFFER_VERSION);
	curl_easy_setopt(j->easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(j->easy, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(j->easy, CURLOPT_HEADERDATA, j);
	curl_easy_setopt(j->easy, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(j->easy, CURLOPT_WRITEDATA, j);
	curl_easy_setopt(j->easy, CURLOPT_PRIVATE, j);
	curl_easy_setopt(j->easy, CURLOPT_BUFFERSIZE, 128L << 10);
	curl_easy_setopt(j->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)j->http->stall_ms);
	curl_easy_setopt(j->easy, CURLOPT_SSL_VERIFYPEER, 1L);
	curl_easy_setopt(j->easy, CURLOPT_SSL_VERIFYHOST, 2L);
	if (j->auth->ca_file != NULL || j->http->ca_file != NULL)
		curl_easy_setopt(j->easy, CURLOPT_CAINFO, j->auth->ca_file != NULL ? j->auth->ca_file : j->http->ca_file);
	j->error_text[0] = '\0';
	curl_easy_setopt(j->easy, CURLOPT_ERRORBUFFER, j->error_text);
	if (j->range_len > 0) {
		snprintf(range, sizeof(range), "%" PRIu64 "-%" PRIu64, j->range_first, j->range_first + j->range_len - 1);
		curl_easy_setopt(j->easy, CURLOPT_RANGE, range);
	}
	return curl_multi_add_handle(j->http->multi, j->easy) == CURLM_OK ? 0 : -ENOMEM;
}

/* It cannot be sent: told with the next http_run, as if a connection had failed. */
static void job_send_or_fail(struct http_job *j)
{
	int r = job_send(j);

	if (r < 0) {
		if (j->err.code == 0)
			err_errno(&j->err, r, "%.200s", j->url);
		job_over(j, r);
	}
}

void http_start(struct http *h, struct http_job *j)
{
	j->http = h;
	j->active = true;
	j->redirects = j->renewals = 0;
	j->location = NULL;
	j->unreachable = false;
	j->err = ERR_INIT;
	j->easy = NULL;
	j->headers = NULL;
	j->stopped = 0;
	job_link(h, j);
	if (job_send(j) < 0) {
		job_stop(j); /* http_run finds it without a handle */
		j->stopped = j->err.code < 0 ? j->err.code : -ENOMEM;
	}
}

/* ---- what comes of it ---- */

static int curl_code(CURLcode c)
{
	switch ((int)c) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return -EHOSTUNREACH;
	case CURLE_COULDNT_CONNECT:
		return -ECONNREFUSED;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_ISSUER_ERROR:
		return -EKEYREJECTED;
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return -EINVAL;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_PARTIAL_FILE:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_GOT_NOTHING:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

static int status_code(long status)
{
	switch (status) {
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 410:
		return -ENOENT;
	case 408:
	case 425:
	case 429:
		return -EAGAIN;
	case 416:
		return -ERANGE;
	default:
		return status >= 500 ? -EAGAIN : -EPROTO;
	}
}

static int fail_status(struct http_job *j)
{
	int code = status_code(j->status);

	return err_set(&j->err, code, "%.200s: the server says %ld%s", j->url, j->status,
		       code == -EACCES && !j->challenged ? " (not allowed)" : code == -ENOENT ? " (it is not there)" :
		       j->status == 401 ? j->auth->user == NULL ? " (it wants credentials)" : " (it does not take the credentials)" : "");
}

static void on_redirect(struct http_job *j)
{
	const char *from = j->location != NULL ? j->location : j->url;
	char *to = NULL, origin[HTTP_ORIGIN_MAX];

	curl_easy_getinfo(j->easy, CURLINFO_REDIRECT_URL, &to);
	if (to == NULL || strlen(to) >= HTTP_URL_MAX || http_origin(to, origin, &j->err) < 0)
		job_over(j, err_set(&j->err, -EPROTO, "%.200s: redirected to '%.100s', where Coffer does not go", j->url,
				    to != NULL ? to : ""));
	else if (is_https(from) && !is_https(to))
		job_over(j, err_set(&j->err, -EPROTO, "%.200s: redirected from https to %.100s", j->url, to));
	else if (++j->redirects > HTTP_REDIRECTS)
		job_over(j, err_set(&j->err, -ELOOP, "%.200s: more than %d redirects", j->url, HTTP_REDIRECTS));
	else {
		char *copy = strdup(to);

		free(j->location);
		j->location = copy;
		job_send_or_fail(j);
	}
}

/* ---- tokens ---- */

struct token_job {
	struct http_job job;
	struct http_auth none, *auth;
	char url[HTTP_URL_MAX], host[HTTP_ORIGIN_MAX];
	size_t len;
	char reply[TOKEN_REPLY_MAX];
};

static int token_body(struct http_job *j, const void *data, size_t n)
{
	struct token_job *t = j->ctx;

	if (n > sizeof(t->reply) - t->len)
		return -EFBIG;
	memcpy(t->reply + t->len, data, n);
	t->len += n;
	return 0;
}

static void token_done(struct http_job *j, int result)
{
	struct token_job *t = j->ctx;
	struct http_auth *auth = t->auth;
	struct http_job *waiting = auth->waiting, *next;
	struct err err = j->err;
	const char *token = NULL;

	if (result == 0)
		result = challenge_parse_token(t->reply, t->len, &token, &err);
	else if (result == -EFBIG)
		err_set(&err, result, "its reply has more than %d bytes", TOKEN_REPLY_MAX);
	if (result == 0) {
		free(auth->token);
		auth->token = strdup(token);
		auth->serial++;
	}
	auth->fetching = NULL;
	auth->waiting = NULL;
	for (; waiting != NULL; waiting = next) {
		next = waiting->next_waiting;
		if (result == 0)
			job_send_or_fail(waiting);
		else {
			err_set(&waiting->err, result, "the token server at %.100s: %.300s", t->host, err.text);
			job_over(waiting, result);
		}
	}
	http_auth_finish(&t->none);
	free(t->job.location);
	free(t);
}

/* The token server's URL, with what the challenge wants for. */
static int token_url(const struct challenge *c, char ret[HTTP_URL_MAX])
{
	char *service = curl_easy_escape(NULL, c->service, 0), *scope = curl_easy_escape(NULL, c->scope, 0);
	int n = -1;

	if (service != NULL && scope != NULL)
		n = snprintf(ret, HTTP_URL_MAX, "%s%s%s%s%s%s", c->realm, strchr(c->realm, '?') != NULL ? "&" : "?",
			     *service != '\0' ? "service=" : "", service, *scope == '\0' ? "" : *service != '\0' ? "&scope=" : "scope=",
			     scope);
	curl_free(service);
	curl_free(scope);
	return n > 0 && n < HTTP_URL_MAX ? 0 : -EBADMSG;
}

static int token_start(struct http_job *j, const struct challenge *c)
{
	_cleanup_free_ struct token_job *t = calloc(1, sizeof(*t));
	struct http_auth *auth = j->auth;

	if (t == NULL)
		return err_set(&j->err, -ENOMEM, "no memory");
	if (token_url(c, t->url) < 0 || http_origin(t->url, t->host, NULL) < 0)
		return err_set(&j->err, -EPROTO, "%.150s: its token server '%.150s' is no http:// or https:// address", j->url, c->realm);
	if (is_https(auth->origin) && !is_https(t->url))
		return err_set(&j->err, -EPROTO, "%.150s: its token server '%.150s' is not https", j->url, c->realm);
	memcpy(t->none.origin, t->host, sizeof(t->host));
	if (auth->ca_file != NULL && (t->none.ca_file = strdup(auth->ca_file)) == NULL)
		return err_set(&j->err, -ENOMEM, "no memory");
	if (auth->user != NULL) {
		t->none.basic = true;
		t->none.user = strdup(auth->user);
		t->none.password = strdup(auth->password);
		if (t->none.user == NULL || t->none.password == NULL) {
			http_auth_finish(&t->none);
			return err_set(&j->err, -ENOMEM, "no memory");
		}
	}
	t->auth = auth;
	t->job = (struct http_job){ .url = t->url, .auth = &t->none, .body = token_body, .done = token_done, .ctx = t };
	auth->fetching = &t->job;
	http_start(j->http, &t->job);
	t->job.renewals = 1; /* it is not to be sent on to another one */
	TAKE_PTR(t);
	return 0;
}

/* A 401: again with what it asks for, once. */
static void on_unauthorized(struct http_job *j)
{
	struct challenge c;
	bool stale = j->sent_auth && j->serial != j->auth->serial;
	int r;

	if (!j->sent_auth || !j->challenged || (j->renewals > 0 && !stale) || j->renewals > 2) {
		job_over(j, fail_status(j));
		return;
	}
	r = challenge_parse(j->challenge, &c, &j->err);
	if (r < 0) {
		err_prefix(&j->err, "%.150s: ", j->url);
		job_over(j, r);
		return;
	}
	j->renewals++;
	if (!c.bearer) {
		if (j->auth->user == NULL || (j->auth->basic && j->auth->token == NULL)) {
			job_over(j, fail_status(j));
			return;
		}
		j->auth->basic = true;
		free(j->auth->token);
		j->auth->token = NULL;
		job_send_or_fail(j);
		return;
	}
	if (stale) {
		job_send_or_fail(j);
		return;
	}
	r = j->auth->fetching == NULL ? token_start(j, &c) : 0;
	if (r < 0) {
		job_over(j, r);
		return;
	}
	job_stop(j);
	j->next_waiting = j->auth->waiting;
	j->auth->waiting = j;
}

static void on_finished(struct http_job *j, CURLcode c)
{
	curl_easy_getinfo(j->easy, CURLINFO_RESPONSE_CODE, &j->status);
	if (j->stopped != 0) {
		int r = j->stopped;

		if (j->err.code == 0)
			err_errno(&j->err, r, "%.200s", j->url);
		job_over(j, r);
	} else if (c != CURLE_OK && !(c == CURLE_WRITE_ERROR && j->discarded > DISCARD_MAX)) {
		const char *text = j->error_text[0] != '\0' ? j->error_text : curl_easy_strerror(c);

		j->unreachable = c == CURLE_COULDNT_RESOLVE_HOST || c == CURLE_COULDNT_RESOLVE_PROXY || c == CURLE_COULDNT_CONNECT ||
				 c == CURLE_SSL_CONNECT_ERROR;
		job_over(j, err_set(&j->err, curl_code(c), "%.200s: %.*s", j->url, ERROR_TEXT, text));
	} else if (j->status >= 300 && j->status < 400 && j->status != 304) {
		on_redirect(j);
	} else if (j->status == 401) {
		on_unauthorized(j);
	} else if (j->status < 200 || j->status > 299) {
		job_over(j, fail_status(j));
	} else {
		job_over(j, 0);
	}
}

/* Those that get nothing, and those that never began. */
static struct http_job *find_stuck(struct http *h, uint64_t now_ms)
{
	for (struct http_job *j = h->jobs; j != NULL; j = j->next)
		if ((j->easy == NULL && j->stopped != 0) || (j->easy != NULL && !j->paused && now_ms > j->last_ms + h->stall_ms))
			return j;
	return NULL;
}

void http_run(struct http *h, uint64_t now_ms)
{
	struct http_job *j;
	int running, left;
	CURLMsg *m;

	curl_multi_perform(h->multi, &running);
	while ((m = curl_multi_info_read(h->multi, &left)) != NULL) {
		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &j);
		on_finished(j, m->data.result);
	}
	while ((j = find_stuck(h, now_ms)) != NULL) {
		if (j->stopped == 0)
			j->stopped = err_set(&j->err, -ETIMEDOUT, "%.200s: the server has sent nothing for %" PRIu64 " s", j->url,
					     h->stall_ms / 1000);
		else if (j->err.code == 0)
			err_errno(&j->err, j->stopped, "%.200s", j->url);
		job_over(j, j->stopped);
	}
}

void http_pause(struct http_job *j, bool pause)
{
	if (!j->active || j->easy == NULL || j->paused == pause)
		return;
	j->paused = pause;
	j->last_ms = http_now_ms();
	curl_easy_pause(j->easy, pause ? CURLPAUSE_RECV : CURLPAUSE_CONT);
}

void http_auth_finish(struct http_auth *a)
{
	free(a->user);
	free(a->password);
	free(a->ca_file);
	free(a->token);
	*a = (struct http_auth){ .user = NULL };
}

void http_finish(struct http *h)
{
	while (h->jobs != NULL) {
		struct http_job *j = h->jobs;

		http_cancel(j);
		if (j->done == token_done) {
			struct token_job *t = j->ctx;

			t->auth->fetching = NULL;
			http_auth_finish(&t->none);
			free(t);
		}
	}
	if (h->multi != NULL)
		curl_multi_cleanup(h->multi);
	curl_global_cleanup();
}
