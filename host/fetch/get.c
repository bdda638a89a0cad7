/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `coffer-fetch get`: documents of a registry, for `coffer image pull`: manifests, configurations, indexes.
 *
 * On a SOCK_SEQPACKET, one JSON object a packet. First { "ca_file", "stall_ms", "timeout_ms", "backoff_min_ms", "auth": [ { "origin",
 * "user", "password" } ] }, all but auth optional. Then requests { "url", "accept", "auth": INDEX, "max": BYTES }, each with a
 * descriptor, to which the body is written, and a reply { "result": 0 or -errno, "status", "type", "digest", "bytes", "error" } to each.
 * Failures that may pass are tried again until timeout_ms are over; { "waiting": TEXT } goes before the reply then, once, and also when a
 * server takes long. But as long as nothing has answered at all, a host that is not there, or speaks no TLS, is a wrong address: that fails at
 * once.
 *
 * Trust: the caller is ours. What comes from the network has limits: http.c, and `max` for the body.
 */
#include "host/fetch/get.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "host/fetch/http.h"
#include "host/fetch/jail.h"
#include "host/fetch/serve.h"
#include "lib/fd.h"
#include "lib/util.h"

struct get {
	struct http http;
	int sock;
	char *ca_file;
	uint64_t timeout_ms, backoff_ms;
	struct http_auth auth[SERVE_AUTHS];
	size_t nauths;
	uint8_t *body;
	size_t len, max;
	bool done;
	int result;
	bool answered; /* some request has */
	bool told;     /* that this one waits */
};

enum { TELL_FAILING_MS = 1000, TELL_SILENT_MS = 4000 };

static int on_body(struct http_job *j, const void *data, size_t n)
{
	struct get *g = j->ctx;

	if (n > g->max - g->len)
		return err_set(&j->err, -EFBIG, "%.200s: has more than the %zu bytes that are taken", j->url, g->max);
	memcpy(g->body + g->len, data, n);
	g->len += n;
	return 0;
}

static void on_done(struct http_job *j, int result)
{
	struct get *g = j->ctx;

	free(j->location);
	j->location = NULL;
	g->result = result;
	g->done = true;
}

/* Wait for libcurl, or for the caller to go. */
static bool wait_for(struct get *g, int ms)
{
	struct curl_waitfd w = { .fd = g->sock, .events = CURL_WAIT_POLLIN };
	char c;

	if (curl_multi_poll(g->http.multi, &w, 1, ms, NULL) != CURLM_OK)
		return false;
	/* One request at a time: anything to read now is the end. */
	return recv(g->sock, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR);
}

/* json_pack refuses what is not UTF-8. */
static void make_ascii(char *s)
{
	for (; *s != '\0'; s++)
		if ((unsigned char)*s >= 0x7f || (unsigned char)*s < ' ')
			*s = '?';
}

/* A packet that is not the reply. */
static void tell(struct get *g, const char *text, const char *more)
{
	char all[ERR_MAX];
	json_t *o;
	char *line;

	g->told = true;
	snprintf(all, sizeof(all), "%.*s%s", (int)sizeof(all) - 64, text, more);
	make_ascii(all);
	o = json_pack("{s:s}", "waiting", all);
	line = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	if (line != NULL && send(g->sock, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		g->told = false;
	json_decref(o);
	free(line);
}

/* One try; -EPIPE: the caller has gone. */
static int try_once(struct get *g, struct http_job *j, uint64_t start)
{
	g->done = false;
	g->len = 0;
	http_start(&g->http, j);
	while (!g->done) {
		http_run(&g->http, http_now_ms());
		if (!g->done && !g->told && http_now_ms() - start >= TELL_SILENT_MS)
			tell(g, j->url, ": the server takes long to answer");
		if (!g->done && !wait_for(g, (int)MIN(g->http.stall_ms, (uint64_t)1000))) {
			http_cancel(j);
			return -EPIPE;
		}
	}
	g->answered = g->answered || j->status != 0;
	return g->result;
}

static int fetch(struct get *g, struct http_job *j)
{
	uint64_t start = http_now_ms(), wait = g->backoff_ms;

	g->told = false;
	for (;;) {
		int r = try_once(g, j, start);
		uint64_t now = http_now_ms();

		if (r == -EPIPE || !http_is_transient(r) || (j->unreachable && !g->answered) || now - start + wait >= g->timeout_ms)
			return r;
		for (uint64_t until = now + wait; now < until; now = http_now_ms()) {
			if (!g->told && now - start >= TELL_FAILING_MS)
				tell(g, j->err.text, " (it is tried again)");
			if (!wait_for(g, (int)(until - now)))
				return -EPIPE;
		}
		wait = MIN(wait * 2, (uint64_t)5000);
	}
}

static int reply(struct get *g, const struct http_job *j, int result, const char *error)
{
	json_t *o = json_pack("{s:i, s:I, s:s, s:s, s:I, s:s}", "result", result, "status", (json_int_t)j->status, "type", j->type,
			      "digest", j->digest, "bytes", (json_int_t)g->len, "error", error);
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	int r = text == NULL ? -ENOMEM : send(g->sock, text, strlen(text), MSG_NOSIGNAL) < 0 ? -errno : 0;

	json_decref(o);
	free(text);
	return r;
}

static int answer(struct get *g, const json_t *o, int body_fd)
{
	const char *url = json_string_value(json_object_get(o, "url")), *accept = json_string_value(json_object_get(o, "accept"));
	json_int_t auth = json_integer_value(json_object_get(o, "auth")), max = json_integer_value(json_object_get(o, "max"));
	struct http_job j = { .url = url, .accept = accept, .body = on_body, .done = on_done, .ctx = g };
	int r;

	if (url == NULL || auth < 0 || (size_t)auth >= g->nauths || max <= 0 || max > GET_BODY_MAX || body_fd < 0)
		return -EINVAL;
	j.auth = &g->auth[auth];
	g->max = (size_t)max;
	r = fetch(g, &j);
	if (r == -EPIPE)
		return r;
	if (r == 0)
		r = fd_write_full(body_fd, g->body, g->len);
	make_ascii(j.err.text);
	make_ascii(j.type);
	make_ascii(j.digest);
	return reply(g, &j, r, j.err.text);
}

static int configure(struct get *g, const json_t *o, struct err *err)
{
	const json_t *list = json_object_get(o, "auth");
	const char *ca_file = json_string_value(json_object_get(o, "ca_file"));
	json_int_t stall = json_integer_value(json_object_get(o, "stall_ms"));
	json_int_t timeout = json_integer_value(json_object_get(o, "timeout_ms"));
	json_int_t backoff = json_integer_value(json_object_get(o, "backoff_min_ms"));
	int r = 0;

	g->timeout_ms = timeout > 0 ? (uint64_t)timeout : 60000;
	g->backoff_ms = backoff > 0 ? (uint64_t)backoff : 200;
	if (ca_file != NULL)
		g->ca_file = strdup(ca_file);
	for (size_t i = 0; r == 0 && i < json_array_size(list) && i < SERVE_AUTHS; i++) {
		r = serve_auth_from_json(json_array_get(list, i), &g->auth[i], err);
		g->nauths += r == 0;
	}
	g->body = malloc(GET_BODY_MAX);
	if (r == 0 && g->body == NULL)
		r = err_set(err, -ENOMEM, "no memory");
	if (r == 0)
		r = http_init(&g->http, g->ca_file, stall > 0 ? (uint64_t)stall : 15000, err);
	return r < 0 ? r : jail_enter(-1, &(const char *){ g->ca_file }, 1, err);
}

/* One message; *ret_json NULL at the end. */
static int receive(int sock, json_t **ret_json, int *ret_fd)
{
	_cleanup_free_ char *buf = malloc(GET_MESSAGE_MAX);
	size_t nfds = 0;
	ssize_t n = buf == NULL ? -ENOMEM : fd_recv(sock, buf, GET_MESSAGE_MAX, ret_fd, 1, &nfds);

	*ret_json = NULL;
	if (nfds == 0)
		*ret_fd = -1;
	if (n <= 0)
		return (int)n;
	*ret_json = json_loadb(buf, (size_t)n, 0, NULL);
	return *ret_json != NULL ? 0 : -EINVAL;
}

int get_run(int sock, const struct log *log)
{
	struct get g = { .sock = sock };
	struct err err = ERR_INIT;
	bool first = true;
	json_t *o;
	int r;

	for (;; first = false) {
		_cleanup_close_ int fd = -1;

		r = receive(sock, &o, &fd);
		if (r < 0 || o == NULL)
			break;
		r = first ? configure(&g, o, &err) : answer(&g, o, fd);
		json_decref(o);
		if (r < 0)
			break;
	}
	if (r < 0 && r != -EPIPE)
		log_line(log, LOG_ERROR, "get: %s", err.code != 0 ? err.text : strerror(-r));
	http_finish(&g.http);
	for (size_t i = 0; i < g.nauths; i++)
		http_auth_finish(&g.auth[i]);
	free(g.body);
	free(g.ca_file);
	return r == -EPIPE ? 0 : r;
}
