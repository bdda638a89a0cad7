/* SPDX-License-Identifier: Apache-2.0 */
/* Letting viewers in: see front.h. */
#include "host/vnc/front_internal.h"

#include <errno.h>
#include <nettle/des.h>
#include <nettle/memops.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/vnc/cert.h"
#include "host/vnc/jail.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum {
	SECURITY_NONE = 1, SECURITY_VNC = 2, SECURITY_VENCRYPT = 19,
	VENCRYPT_X509_NONE = 260, VENCRYPT_X509_VNC = 261,
	TLS_HANDSHAKE = 0x16,   /* first byte of who speaks TLS at once */
	WEB_FIRST_MS = 2000,    /* a browser speaks first; a viewer waits for the server */
	WRONG_DELAY_MS = 1500,
};

static bool has(const struct front *f, enum vnc_flag flag)
{
	return f->start->flags & flag;
}

static bool wants_password(const struct front *f)
{
	return f->start->flags & (VNC_PASSWORD | VNC_VIEW_PASSWORD);
}

static int send_bytes(struct front *f, const void *buf, size_t n)
{
	return transport_write_all(&f->t, buf, n, f->until);
}

static int read_bytes(struct front *f, void *buf, size_t n)
{
	return transport_read_all(&f->t, buf, n, f->until);
}

static int send_u32(struct front *f, uint32_t v)
{
	const uint8_t b[4] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v };

	return send_bytes(f, b, sizeof(b));
}

/* A reason for people; the connection is over. */
static int send_reason(struct front *f, const char *text)
{
	int r = send_u32(f, (uint32_t)strlen(text));

	if (r == 0)
		r = send_bytes(f, text, strlen(text));
	return r < 0 ? r : -EACCES;
}

void front_des_response(const char password[VNC_PASSWORD_MAX], const uint8_t challenge[16], uint8_t out[16])
{
	uint8_t key[VNC_PASSWORD_MAX] = { 0 };
	struct des_ctx des;

	/* The bits of each byte of the key are the other way round: as VNC has always had it. */
	for (int i = 0; i < VNC_PASSWORD_MAX; i++)
		for (int bit = 0; bit < 8; bit++)
			if ((uint8_t)password[i] >> bit & 1)
				key[i] |= (uint8_t)(0x80 >> bit);
	des_set_key(&des, key); /* also takes the weak ones, which an empty or odd password can be */
	des_encrypt(&des, 16, out, challenge);
}

static bool answers(const char password[VNC_PASSWORD_MAX], const uint8_t challenge[16], const uint8_t answer[16])
{
	uint8_t right[16];

	front_des_response(password, challenge, right);
	return memeql_sec(right, answer, sizeof(right));
}

/* Before the viewer's delay: others from there are refused meanwhile. */
static void tell_wrong(struct front *f)
{
	const struct front_hello hello = { .wrong = 1 };

	send(f->fds->stream, &hello, sizeof(hello), MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The challenge. 0, -EACCES after the refusal was sent, or another -errno. */
static int check_password(struct front *f, int minor, bool *ret_view_only)
{
	const struct timespec delay = { f->wrong_delay_ms / 1000, f->wrong_delay_ms % 1000 * 1000000L };
	uint8_t challenge[16], answer[16] = { 0 };
	bool full, view;
	int r;

	if (getrandom(challenge, sizeof(challenge), 0) != sizeof(challenge))
		return -EIO;
	r = send_bytes(f, challenge, sizeof(challenge));
	if (r == 0)
		r = read_bytes(f, answer, sizeof(answer));
	if (r < 0)
		return r;
	full = answers(f->start->password, challenge, answer) && has(f, VNC_PASSWORD);
	view = answers(f->start->view_password, challenge, answer) && has(f, VNC_VIEW_PASSWORD);
	if (full || view) {
		*ret_view_only = !full;
		return send_u32(f, 0);
	}
	tell_wrong(f);
	nanosleep(&delay, NULL);
	r = send_u32(f, 1);
	if (r < 0 || minor < 8)
		return r < 0 ? r : -EACCES;
	return send_reason(f, "Wrong password");
}

/* VeNCrypt 0.2: TLS with our certificate, then what `type` says. */
static int start_vencrypt(struct front *f, uint32_t type)
{
	const uint8_t version[2] = { 0, 2 }, one = 1, zero = 0;
	uint8_t theirs[4] = { 0 };
	int r = send_bytes(f, version, sizeof(version));

	if (r == 0)
		r = read_bytes(f, theirs, 2);
	if (r < 0)
		return r;
	if (theirs[0] != 0 || theirs[1] != 2) {
		send_bytes(f, &one, 1);
		return -EPROTO;
	}
	r = send_bytes(f, &zero, 1);
	if (r == 0)
		r = send_bytes(f, &one, 1); /* one type */
	if (r == 0)
		r = send_u32(f, type);
	if (r == 0)
		r = read_bytes(f, theirs, 4);
	if (r < 0)
		return r;
	if (theirs[0] || theirs[1] || (uint32_t)(theirs[2] << 8 | theirs[3]) != type) {
		send_bytes(f, &zero, 1);
		return -EPROTO;
	}
	r = send_bytes(f, &one, 1);
	return r < 0 ? r : transport_start_tls(&f->t, f->credentials, f->until);
}

/* No type is offered, but a reason. */
static int refuse(struct front *f, int minor)
{
	const uint8_t none = 0;
	int r = minor < 7 ? send_u32(f, 0) : send_bytes(f, &none, 1);

	return r < 0 ? r : send_reason(f, "Too many wrong passwords: try again later");
}

/* 3.3 has no choice: the server says what is to be done. */
static int secure_old(struct front *f, uint8_t type, bool *ret_view_only)
{
	int r;

	if (type == SECURITY_VENCRYPT) {
		r = send_u32(f, 0);
		return r < 0 ? r : send_reason(f, "This server wants TLS, which RFB 3.3 does not have");
	}
	r = send_u32(f, type);
	return r < 0 || type == SECURITY_NONE ? r : check_password(f, 3, ret_view_only);
}

/* "RFB 003.xxx" and a newline: xxx, or -EPROTO. */
static int parse_minor(const char version[12])
{
	int minor = 0;

	if (memcmp(version, "RFB 003.", 8) != 0 || version[11] != '\n')
		return -EPROTO;
	for (int i = 8; i < 11; i++) {
		if (version[i] < '0' || version[i] > '9')
			return -EPROTO;
		minor = minor * 10 + (version[i] - '0');
	}
	return minor;
}

static int secure(struct front *f, bool *ret_view_only)
{
	uint8_t type = has(f, VNC_TLS) && !f->t.tls ? SECURITY_VENCRYPT : wants_password(f) ? SECURITY_VNC : SECURITY_NONE;
	const uint8_t offer[2] = { 1, type };
	char version[12] = "RFB 003.008\n";
	uint8_t chosen = 0;
	int minor;
	int r = send_bytes(f, version, sizeof(version));

	if (r == 0)
		r = read_bytes(f, version, sizeof(version));
	if (r < 0)
		return r;
	minor = parse_minor(version);
	if (minor < 0)
		return minor;
	if (has(f, VNC_REFUSED))
		return refuse(f, minor);
	if (minor < 7)
		return secure_old(f, type, ret_view_only);
	minor = MIN(minor, 8);
	r = send_bytes(f, offer, sizeof(offer));
	if (r == 0)
		r = read_bytes(f, &chosen, 1);
	if (r < 0)
		return r;
	if (chosen != type)
		return -EPROTO;
	if (type == SECURITY_VENCRYPT) {
		r = start_vencrypt(f, wants_password(f) ? VENCRYPT_X509_VNC : VENCRYPT_X509_NONE);
		if (r < 0)
			return r;
	}
	if (wants_password(f))
		return check_password(f, minor, ret_view_only);
	return minor >= 8 ? send_u32(f, 0) : 0;
}

/* What is spoken: a browser or a TLS client speaks first. */
static int meet(struct front *f)
{
	uint64_t first = loop_now_ns() + (uint64_t)WEB_FIRST_MS * 1000000;
	uint8_t byte = 0;
	int r;

	if (!has(f, VNC_WEB))
		return 0;
	r = transport_wait(&f->t, POLLIN, first);
	if (r == -ETIMEDOUT)
		return 0;
	if (r < 0 || recv(f->t.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
		return r < 0 ? r : -ECONNRESET;
	if (byte == TLS_HANDSHAKE && has(f, VNC_TLS)) {
		r = transport_start_tls(&f->t, f->credentials, f->until);
		if (r < 0)
			return r;
	} else if (byte == 'R') {
		return 0;
	}
	return web_serve(&f->t, f->pages, f->pages_size, has(f, VNC_TLS), !wants_password(f), f->until);
}

int front_let_in(struct front *f, bool *ret_view_only)
{
	int r = meet(f);

	return r < 0 ? r : secure(f, ret_view_only);
}

/* Carries bytes until either side ends. */
static void relay(struct transport *t, int stream)
{
	static const int both = POLLIN;
	_cleanup_free_ uint8_t *in = malloc(TRANSPORT_CHUNK), *out = malloc(TRANSPORT_CHUNK);
	size_t in_at = 0, in_end = 0, out_at = 0, out_end = 0;

	if (!in || !out)
		return;
	for (;;) {
		struct pollfd p[2] = { { .fd = t->fd }, { .fd = stream } };
		bool again = false;
		ssize_t n;

		/* viewer -> stream */
		if (in_at == in_end) {
			n = transport_read(t, in, TRANSPORT_CHUNK);
			if (n == 0 || (n < 0 && n != -EAGAIN))
				return;
			in_at = 0;
			in_end = n > 0 ? (size_t)n : 0;
			again = transport_has_more(t);
		}
		if (in_at < in_end) {
			n = send(stream, in + in_at, in_end - in_at, MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n < 0 && errno != EAGAIN)
				return;
			in_at += n > 0 ? (size_t)n : 0;
		}
		/* stream -> viewer */
		if (out_at == out_end) {
			n = recv(stream, out, TRANSPORT_CHUNK, MSG_DONTWAIT);
			if (n == 0 || (n < 0 && errno != EAGAIN))
				return;
			out_at = 0;
			out_end = n > 0 ? (size_t)n : 0;
		}
		if (out_at < out_end) {
			n = transport_write(t, out + out_at, out_end - out_at);
			if (n < 0)
				return;
			out_at += (size_t)n;
			again = again || (out_at == out_end && n > 0);
		}
		n = transport_flush(t);
		if (n < 0 && n != -EAGAIN)
			return;
		if (again)
			continue;
		p[0].events = (short)((in_at == in_end ? both : 0) | (n == -EAGAIN ? POLLOUT : 0));
		p[1].events = (short)((in_at < in_end ? POLLOUT : 0) | (out_at == out_end ? both : 0));
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return;
		/* Hung up, and nothing more to read: or there is no room for it, and nobody to wait for. */
		if ((p[0].revents | p[1].revents) & (POLLERR | POLLNVAL) || (p[0].revents & (POLLHUP | POLLIN)) == POLLHUP ||
		    (p[1].revents & (POLLHUP | POLLIN)) == POLLHUP)
			return;
	}
}

static int map_pages(struct front *f, struct err *err)
{
	struct stat st;
	void *p;

	if (fstat(f->fds->pages, &st) < 0 || st.st_size < (off_t)sizeof(struct web_pages))
		return err_set(err, -EINVAL, "the file of pages is damaged");
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f->fds->pages, 0);
	if (p == MAP_FAILED)
		return err_errno(err, -errno, "the file of pages");
	f->pages = p;
	f->pages_size = (uint64_t)st.st_size;
	if (f->pages->magic != WEB_MAGIC || f->pages->n > WEB_FILES_MAX ||
	    sizeof(*f->pages) + f->pages->n * sizeof(f->pages->file[0]) > f->pages_size)
		return err_set(err, -EINVAL, "the file of pages is damaged");
	return 0;
}

int front_run(const struct vnc_start *start, const struct front_fds *fds, struct err *err)
{
	struct front *f = calloc(1, sizeof(*f));
	struct front_hello hello = { 0 };
	bool view_only = false;
	int r = 0;

	if (!f)
		return err_errno(err, -ENOMEM, "connection");
	f->start = start;
	f->fds = fds;
	f->t.fd = fds->connection;
	f->t.watch = fds->stream;
	f->wrong_delay_ms = WRONG_DELAY_MS;
	f->until = loop_now_ns() + (uint64_t)FRONT_HANDSHAKE_MS * 1000000;
	if (has(f, VNC_TLS))
		r = cert_load(fds->certificate, fds->key, &f->credentials, NULL, err);
	if (r == 0 && has(f, VNC_WEB))
		r = map_pages(f, err);
	if (r == 0)
		r = vnc_jail_enter(err);
	if (r < 0) {
		free(f);
		return r;
	}
	r = front_let_in(f, &view_only);
	if (r == 0) {
		hello.view_only = view_only || has(f, VNC_VIEW_ONLY);
		hello.direct = !f->t.tls && !f->t.framed;
		if (send(fds->stream, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello) && !hello.direct)
			relay(&f->t, fds->stream);
	}
	if (!hello.direct)
		transport_finish(&f->t);
	if (f->credentials)
		gnutls_certificate_free_credentials(f->credentials);
	free(f);
	return 0;
}
