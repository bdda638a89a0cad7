/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever connects to `coffer vnc`: RFB's handshake, HTTP and the upgrade, over a real socket, with all that it sends there at once.
 *
 * Nobody is let in where a password or TLS is asked for (the challenge is random, so no input has the answer). What is answered is
 * RFB's version or HTTP; a page is never more than what is there, and there is no WebSocket but after a whole request for one.
 * The first byte of the input is the flags of `coffer vnc`, the second says whether it is a WebSocket already.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/vnc/front_internal.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { INPUT_MAX = WEB_REQUEST_MAX + 4096, OUTPUT_MAX = 65536, WAIT_S = 60 };

/* The second file is one that lies about where it is. */
static struct web_pages *make_pages(uint64_t *ret_size)
{
	const uint32_t text = sizeof(struct web_pages) + 2 * sizeof(struct web_file);
	struct web_pages *p;

	*ret_size = text + 32;
	p = calloc(1, *ret_size);
	if (!p)
		abort();
	p->magic = WEB_MAGIC;
	p->n = 2;
	p->file[0] = (struct web_file){ "vnc.html", text, 8 };
	p->file[1] = (struct web_file){ "lost.js", text + 28, 8 };
	memcpy((uint8_t *)p + text, "the page and more", 17);
	return p;
}

static size_t drain(int fd, uint8_t *out, size_t room)
{
	size_t n = 0;
	ssize_t r;

	while (n < room && (r = recv(fd, out + n, room - n, MSG_DONTWAIT)) > 0)
		n += (size_t)r;
	return n;
}

static bool has(const uint8_t *p, size_t n, const char *what)
{
	return memmem(p, n, what, strlen(what));
}

static void check_answer(const struct fuzz_input *in, const struct front *f, bool web, const uint8_t *out, size_t n)
{
	if (n > 0)
		FUZZ_REQUIRE(n >= 4 && (memcmp(out, "RFB 003.008\n", MIN(n, (size_t)12)) == 0 || (web && memcmp(out, "HTTP/1.1 ", MIN(n, (size_t)9)) == 0)));
	FUZZ_REQUIRE(!has(out, n, "and more"));
	if (f->t.framed) {
		FUZZ_REQUIRE(web && (n == OUTPUT_MAX || has(out, n, "101 Switching Protocols")) && has(in->p, in->left, "\r\n\r\n"));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	struct vnc_start start = { .flags = fuzz_u8(&in) & (VNC_VIEW_ONLY | VNC_PASSWORD | VNC_VIEW_PASSWORD | VNC_TLS | VNC_WEB),
				   .password = "secret", .view_password = "watch" };
	bool framed = fuzz_u8(&in) & 1, view_only = false, asked = start.flags & (VNC_PASSWORD | VNC_VIEW_PASSWORD | VNC_TLS);
	struct web_pages *pages;
	uint64_t pages_size;
	uint8_t *out = malloc(OUTPUT_MAX);
	int connection[2], watch[2], r;
	struct front_fds fds;
	struct front *f = calloc(1, sizeof(*f));
	uint64_t begun = loop_now_ns();

	if (!f || !out || socketpair(AF_UNIX, SOCK_STREAM, 0, connection) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, watch) < 0)
		abort();
	if (framed)
		start.flags &= ~(uint32_t)VNC_WEB;
	pages = make_pages(&pages_size);
	in.left = MIN(in.left, (size_t)INPUT_MAX);
	if (send(connection[1], in.p, in.left, MSG_NOSIGNAL) != (ssize_t)in.left)
		abort();
	shutdown(connection[1], SHUT_WR);
	close(watch[1]); /* who would have to wait gives up instead */
	fds = (struct front_fds){ .connection = connection[0], .stream = watch[0], .certificate = -1, .key = -1, .pages = -1 };
	f->start = &start;
	f->fds = &fds;
	f->t.fd = connection[0];
	f->t.watch = watch[0];
	f->t.framed = framed;
	f->pages = pages;
	f->pages_size = pages_size;
	f->until = begun + (uint64_t)WAIT_S * 1000000000;
	r = front_let_in(f, &view_only);
	FUZZ_REQUIRE(r <= 0 && (r < 0 || !asked) && !view_only);
	FUZZ_REQUIRE(loop_now_ns() - begun < (uint64_t)WAIT_S * 1000000000);
	f->t.framed = f->t.framed && !framed;
	check_answer(&in, f, start.flags & VNC_WEB, out, framed ? 0 : drain(connection[1], out, OUTPUT_MAX));
	transport_finish(&f->t);
	for (int i = 0; i < 2; i++)
		close(connection[i]);
	close(watch[0]);
	free(pages);
	free(out);
	free(f);
	return 0;
}
