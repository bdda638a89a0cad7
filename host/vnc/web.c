/* SPDX-License-Identifier: Apache-2.0 */
/* Pages and the upgrade to WebSocket (RFC 9112, RFC 6455 4.2): see web.h. */
#include "host/vnc/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <nettle/base64.h>
#include <nettle/sha1.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "lib/loop.h"
#include "lib/util.h"

#define FIRST_PAGE "vnc.html"

enum { NEXT_REQUEST_MS = 10000, REQUESTS_MAX = 1000, HOST_MAX = 256 };

struct request {
	char text[WEB_REQUEST_MAX + 1]; /* 0-terminated lines */
	size_t used, end;               /* bytes read; where the headers end */
	bool head;
	const char *path, *host, *origin, *upgrade, *key, *protocol;
};

static const struct {
	const char *end, *type;
} types[] = {
	{ ".html", "text/html; charset=utf-8" },
	{ ".js", "text/javascript" },
	{ ".css", "text/css" },
	{ ".json", "application/json" },
	{ ".svg", "image/svg+xml" },
	{ ".png", "image/png" },
	{ ".ico", "image/x-icon" },
	{ ".woff", "font/woff" },
	{ ".ttf", "font/ttf" },
	{ ".mp3", "audio/mpeg" },
	{ ".oga", "audio/ogg" },
};

void web_accept_key(const char *key, char out[32])
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */
	uint8_t digest[SHA1_DIGEST_SIZE];
	struct sha1_ctx sha;

	sha1_init(&sha);
	sha1_update(&sha, strlen(key), (const uint8_t *)key);
	sha1_update(&sha, sizeof(guid) - 1, (const uint8_t *)guid);
	sha1_digest(&sha, sizeof(digest), digest);
	base64_encode_raw(out, sizeof(digest), digest);
	out[BASE64_ENCODE_RAW_LENGTH(SHA1_DIGEST_SIZE)] = 0;
}

/* "127.0.0.1:5901", "[::1]:5901", "localhost": a literal address or this machine's own name? */
static bool is_literal(const char *host)
{
	char name[HOST_MAX];
	uint8_t address[16];
	char *end;

	if (snprintf(name, sizeof(name), "%s", host) >= (int)sizeof(name))
		return false;
	if (name[0] == '[') {
		end = strchr(name, ']');
		if (!end)
			return false;
		if (end[1] != 0 && end[1] != ':')
			return false;
		*end = 0;
		return inet_pton(AF_INET6, name + 1, address) == 1;
	}
	end = strchr(name, ':');
	if (end)
		*end = 0;
	return !strcasecmp(name, "localhost") || inet_pton(AF_INET, name, address) == 1;
}

bool web_allowed(const char *origin, const char *host, bool open)
{
	const char *authority;

	if (!host || (open && !is_literal(host)))
		return false;
	if (!origin)
		return true; /* no browser */
	authority = strstr(origin, "://");
	return authority && !strcasecmp(authority + 3, host);
}

static int respond(struct transport *t, const char *status, const char *type, const char *more, const void *body, size_t n, bool head,
		   uint64_t until)
{
	char text[1024];
	int len = snprintf(text, sizeof(text),
			   "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
			   "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\r\n",
			   status, type, n, more);
	int r = transport_write_all(t, text, (size_t)len, until);

	return r < 0 || head ? r : transport_write_all(t, body, n, until);
}

static int refuse(struct transport *t, const char *status, const char *text, uint64_t until)
{
	int r = respond(t, status, "text/plain", "Connection: close\r\n", text, strlen(text), false, until);

	return r < 0 ? r : -ECONNABORTED;
}

/* Where the headers end, 0: not yet. */
static size_t find_end(const char *text, size_t n)
{
	const char *end = n >= 4 ? memmem(text, n, "\r\n\r\n", 4) : NULL;

	return end ? (size_t)(end - text) + 4 : 0;
}

static int read_request(struct transport *t, struct request *q, uint64_t until)
{
	while ((q->end = find_end(q->text, q->used)) == 0) {
		ssize_t n;

		if (q->used == WEB_REQUEST_MAX)
			return refuse(t, "431 Request Header Fields Too Large", "The request is too long.\n", until);
		n = transport_read(t, q->text + q->used, WEB_REQUEST_MAX - q->used);
		if (n == -EAGAIN)
			n = transport_wait(t, POLLIN, until);
		else if (n == 0)
			return -ECONNRESET;
		else if (n > 0)
			q->used += (size_t)n, n = 0;
		if (n < 0)
			return (int)n;
	}
	return 0;
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t");
	for (n = strlen(s); n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t'); n--)
		s[n - 1] = 0;
	return s;
}

/* Cuts the text into lines. False: it is no request that is understood here. */
static bool parse(struct request *q)
{
	const struct {
		const char *name;
		const char **to;
	} wanted[] = { { "Host", &q->host },
		       { "Origin", &q->origin },
		       { "Upgrade", &q->upgrade },
		       { "Sec-WebSocket-Key", &q->key },
		       { "Sec-WebSocket-Protocol", &q->protocol } };
	char *line = q->text, *next, *end;

	if (memchr(q->text, 0, q->end))
		return false;
	q->host = q->origin = q->upgrade = q->key = q->protocol = NULL;
	q->text[q->end - 2] = 0; /* the empty line's */
	next = strstr(line, "\r\n");
	*next = 0;
	q->head = !strncmp(line, "HEAD /", 6);
	if (!q->head && strncmp(line, "GET /", 5) != 0)
		return false;
	q->path = line + (q->head ? 6 : 5);
	end = strstr(q->path, " HTTP/1.");
	if (!end)
		return false;
	*end = 0;
	((char *)(uintptr_t)q->path)[strcspn(q->path, "?#")] = 0;
	for (line = next + 2; *line; line = next + 2) {
		next = strstr(line, "\r\n");
		if (!next)
			break;
		*next = 0;
		end = strchr(line, ':');
		if (!end)
			return false;
		*end = 0;
		for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
			if (!strcasecmp(line, wanted[i].name)) {
				if (*wanted[i].to)
					return false; /* twice: which one would be meant? */
				*wanted[i].to = trim(end + 1);
			}
	}
	return true;
}

static const struct web_file *find(const struct web_pages *p, const char *path)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (!strcmp(p->file[i].path, path))
			return &p->file[i];
	return NULL;
}

static const char *type_of(const char *path)
{
	size_t n = strlen(path);

	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (n > strlen(types[i].end) && !strcmp(path + n - strlen(types[i].end), types[i].end))
			return types[i].type;
	return "application/octet-stream";
}

static int upgrade(struct transport *t, const struct request *q, bool open, uint64_t until)
{
	char text[512], accept[32];
	/* The one protocol there ever was for this; who asks for none gets none. */
	bool binary = q->protocol && strstr(q->protocol, "binary");
	int n, r;

	if (!q->key || strlen(q->key) > 64)
		return refuse(t, "400 Bad Request", "This is no WebSocket handshake.\n", until);
	if (!web_allowed(q->origin, q->host, open))
		return refuse(t, "403 Forbidden", "Another site's page may not connect here.\n", until);
	web_accept_key(q->key, accept);
	n = snprintf(text, sizeof(text),
		     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n", accept,
		     binary ? "Sec-WebSocket-Protocol: binary\r\n" : "");
	r = transport_write_all(t, text, (size_t)n, until);
	if (r < 0)
		return r;
	if (q->used != q->end)
		return -EPROTO; /* it may not send before it has the answer */
	t->framed = true;
	return 0;
}

static int serve_page(struct transport *t, const struct request *q, const struct web_pages *pages, uint64_t size, uint64_t until)
{
	static const char lost[] = "There is no such page.\n", moved[] = "See /" FIRST_PAGE ".\n";
	const struct web_file *f;

	if (!*q->path)
		return respond(t, "302 Found", "text/plain", "Location: /" FIRST_PAGE "?autoconnect=true&resize=remote\r\n", moved, sizeof(moved) - 1,
			       q->head, until);
	f = find(pages, q->path);
	if (!f || f->offset > size || f->size > size - f->offset)
		return respond(t, "404 Not Found", "text/plain", "", lost, sizeof(lost) - 1, q->head, until);
	return respond(t, "200 OK", type_of(f->path), "", (const uint8_t *)pages + f->offset, f->size, q->head, until);
}

int web_serve(struct transport *t, const struct web_pages *pages, uint64_t size, bool secure, bool open, uint64_t until)
{
	struct request q = { .used = 0 };
	int r;

	for (int i = 0; i < REQUESTS_MAX; i++) {
		r = read_request(t, &q, until);
		if (r < 0)
			return r;
		if (!parse(&q))
			return refuse(t, "400 Bad Request", "Only GET is served here.\n", until);
		if (secure && !t->tls)
			return refuse(t, "403 Forbidden", "This server wants TLS: use https.\n", until);
		if (q.upgrade && !strcasecmp(q.upgrade, "websocket"))
			return upgrade(t, &q, open, until);
		r = serve_page(t, &q, pages, size, until);
		if (r < 0)
			return r;
		memmove(q.text, q.text + q.end, q.used - q.end);
		q.used -= q.end;
		until = loop_now_ns() + (uint64_t)NEXT_REQUEST_MS * 1000000;
	}
	return -ECONNABORTED;
}
