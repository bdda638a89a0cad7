/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of a connection: see transport.h. TLS is GnuTLS': 1.2 and newer. */
#include "host/vnc/transport.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/loop.h"
#include "lib/util.h"

static ssize_t tls_result(ssize_t r)
{
	if (r >= 0)
		return r;
	if (r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED)
		return -EAGAIN;
	/* Many close without goodbye: an end is an end. */
	return r == GNUTLS_E_PREMATURE_TERMINATION ? 0 : -EPROTO;
}

static ssize_t lower_read(struct transport *t, void *buf, size_t n)
{
	ssize_t r;

	if (t->tls)
		return tls_result(gnutls_record_recv(t->tls, buf, n));
	r = recv(t->fd, buf, n, MSG_DONTWAIT);
	return r < 0 ? errno == EINTR ? -EAGAIN : -errno : r;
}

ssize_t transport_read(struct transport *t, void *buf, size_t n)
{
	ssize_t r;

	if (!t->framed)
		return lower_read(t, buf, n);
	if (t->ws.closed)
		return 0;
	do {
		r = lower_read(t, buf, n);
		if (r <= 0)
			return r;
		r = websocket_decode(&t->ws, buf, (size_t)r);
		/* Only part of a header, and what TLS has of the rest does not make the socket readable. */
	} while (r == 0 && !t->ws.closed && transport_has_more(t));
	if (r == 0)
		return t->ws.closed ? 0 : -EAGAIN;
	return r;
}

bool transport_has_more(const struct transport *t)
{
	return t->tls && gnutls_record_check_pending(t->tls) > 0;
}

static void put(struct transport *t, unsigned opcode, const void *buf, size_t n)
{
	uint8_t header[WEBSOCKET_HEADER_MAX];
	size_t len = t->framed ? websocket_header(header, opcode, n) : 0;

	memcpy(t->out + t->out_end, header, len);
	memcpy(t->out + t->out_end + len, buf, n);
	t->out_end += len + n;
}

int transport_flush(struct transport *t)
{
	if (t->framed && t->ws.pong_due && t->out_at == t->out_end) {
		t->out_at = t->out_end = 0;
		put(t, 10, t->ws.pong, t->ws.pong_len);
		t->ws.pong_due = false;
	}
	while (t->out_at < t->out_end) {
		ssize_t r;

		if (t->tls) {
			r = tls_result(gnutls_record_send(t->tls, t->out + t->out_at, t->out_end - t->out_at));
		} else {
			r = send(t->fd, t->out + t->out_at, t->out_end - t->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (r < 0)
				r = errno == EINTR ? -EAGAIN : -errno;
		}
		if (r <= 0)
			return r == 0 ? -EPIPE : (int)r;
		t->out_at += (size_t)r;
	}
	t->out_at = t->out_end = 0;
	return 0;
}

ssize_t transport_write(struct transport *t, const void *buf, size_t n)
{
	int r = transport_flush(t);

	if (r == -EAGAIN)
		return 0;
	if (r < 0)
		return r;
	n = MIN(n, (size_t)TRANSPORT_CHUNK);
	put(t, 2, buf, n);
	r = transport_flush(t);
	return r < 0 && r != -EAGAIN ? r : (ssize_t)n;
}

int transport_wait(struct transport *t, short events, uint64_t until)
{
	struct pollfd p[2] = { { .fd = t->fd, .events = events }, { .fd = t->watch, .events = 0 } };
	uint64_t now = loop_now_ns();
	int r;

	if (now >= until)
		return -ETIMEDOUT; /* also for who always has something to say, and be it frames without a byte */
	r = poll(p, 2, (int)MIN((until - now) / 1000000 + 1, (uint64_t)3600000));
	if (r < 0)
		return errno == EINTR ? 0 : -errno;
	if (p[1].revents)
		return -ECANCELED;
	return r == 0 && loop_now_ns() >= until ? -ETIMEDOUT : 0;
}

int transport_read_all(struct transport *t, void *buf, size_t n, uint64_t until)
{
	uint8_t *p = buf;

	while (n > 0) {
		ssize_t r = transport_read(t, p, n);

		if (r == 0)
			return -ECONNRESET;
		if (r == -EAGAIN) {
			int w = transport_wait(t, POLLIN, until);

			if (w < 0)
				return w;
			continue;
		}
		if (r < 0)
			return (int)r;
		p += r;
		n -= (size_t)r;
	}
	return 0;
}

int transport_write_all(struct transport *t, const void *buf, size_t n, uint64_t until)
{
	const uint8_t *p = buf;
	int r;

	while (n > 0 || t->out_at < t->out_end) {
		ssize_t w = transport_write(t, p, n);

		if (w < 0)
			return (int)w;
		p += w;
		n -= (size_t)w;
		if (w == 0 || n == 0) {
			r = transport_flush(t);
			if (r == 0 && n == 0)
				break;
			if (r == -EAGAIN)
				r = transport_wait(t, POLLOUT, until);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

int transport_start_tls(struct transport *t, gnutls_certificate_credentials_t credentials, uint64_t until)
{
	int r;

	if (gnutls_init(&t->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
		return -ENOMEM;
	if (gnutls_priority_set_direct(t->tls, "NORMAL:-VERS-TLS1.1:-VERS-TLS1.0", NULL) < 0 ||
	    gnutls_credentials_set(t->tls, GNUTLS_CRD_CERTIFICATE, credentials) < 0)
		return -EINVAL;
	gnutls_transport_set_int(t->tls, t->fd);
	gnutls_handshake_set_timeout(t->tls, GNUTLS_INDEFINITE_TIMEOUT); /* ours is `until` */
	while ((r = gnutls_handshake(t->tls)) < 0) {
		if (gnutls_error_is_fatal(r))
			return -EPROTO;
		r = transport_wait(t, gnutls_record_get_direction(t->tls) ? POLLOUT : POLLIN, until);
		if (r < 0)
			return r;
	}
	return 0;
}

void transport_finish(struct transport *t)
{
	if (t->framed && t->out_at == t->out_end) {
		const uint8_t normal[2] = { 1000 >> 8, 1000 & 255 };

		t->out_at = t->out_end = 0;
		put(t, 8, normal, sizeof(normal));
		transport_flush(t);
	}
	if (t->tls) {
		gnutls_bye(t->tls, GNUTLS_SHUT_WR);
		gnutls_deinit(t->tls);
		t->tls = NULL;
	}
}
