/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the clipboard: see cut_text.h. */
#include "host/vnc/cut_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { SERVER_CUT_TEXT = 3, HEADER = 8, FLAGS = 4, LENGTH = 4, FORMAT_TEXT = 1, FORMATS = 0xffff, UNSOLICITED_DEFAULT = 20 << 20 };
#define ACTIONS ((uint32_t)(CUT_CAPS | CUT_REQUEST | CUT_PEEK | CUT_NOTIFY | CUT_PROVIDE))

static uint32_t get_u32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_u32(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 24);
	p[1] = (uint8_t)(v >> 16);
	p[2] = (uint8_t)(v >> 8);
	p[3] = (uint8_t)v;
}

/* Whether a CR has to be put before this byte. */
static bool lacks_cr(const struct cut_text *c, size_t i)
{
	return c->text[i] == '\n' && (i == 0 || c->text[i - 1] != '\r');
}

/* As it goes over the wire. */
static size_t wire_size(const struct cut_text *c)
{
	size_t n = c->n + 1;

	for (size_t i = 0; i < c->n; i++)
		n += lacks_cr(c, i);
	return n;
}

static enum cut_action announce(struct cut_text *c)
{
	if (c->n == 0)
		return CUT_NOTHING;
	if (!c->extended)
		return CUT_OLD;
	c->announced = true;
	if (c->actions & CUT_PROVIDE && wire_size(c) <= c->unsolicited_max)
		return CUT_PROVIDE;
	return c->actions & CUT_NOTIFY ? CUT_NOTIFY : CUT_NOTHING;
}

/* ---- from the viewer ---- */

/* Of a viewer that uses extended messages and does not say which. */
static void take_defaults(struct cut_text *c)
{
	c->extended = true;
	c->actions = CUT_REQUEST | CUT_NOTIFY | CUT_PROVIDE;
	c->unsolicited_max = UNSOLICITED_DEFAULT;
}

/* A size for each format it takes, lowest first. */
static int take_caps(struct cut_text *c, uint32_t flags, const uint8_t *sizes, size_t n, enum cut_action *ret_answer)
{
	if (n != 4 * (size_t)__builtin_popcount(flags & FORMATS))
		return -EPROTO;
	c->extended = flags & FORMAT_TEXT;
	c->actions = flags & ACTIONS;
	c->unsolicited_max = c->extended ? get_u32(sizes) : 0;
	if (c->extended && !c->announced)
		*ret_answer = announce(c); /* what was copied before went the old way, with question marks */
	return 0;
}

/* Lines end with LF; zero bytes are nobody's text. In place. */
static size_t unix_lines(char *text, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; i < n && text[i]; i++)
		if (text[i] != '\r' || i + 1 == n || text[i + 1] != '\n')
			text[k++] = text[i];
	return k;
}

/* Into exactly n bytes. */
static bool inflate_exactly(z_stream *z, void *out, size_t n)
{
	z->next_out = out;
	z->avail_out = (uInt)n;
	if (n > 0 && inflate(z, Z_SYNC_FLUSH) < 0) /* with Z_BUF_ERROR nothing has come */
		return false;
	return z->avail_out == 0;
}

/* The text is the first of the formats. Its bytes, 0 where it is too long, or -EPROTO. */
static ssize_t take_text(const uint8_t *payload, size_t n, char out[CUT_TEXT_MAX])
{
	const uint32_t most = 2 * CUT_TEXT_MAX; /* with a CR in each line; what remains is looked at below */
	_cleanup_free_ char *text = NULL;
	uint8_t length[LENGTH];
	z_stream z = { .next_in = (z_const Bytef *)(uintptr_t)payload, .avail_in = (uInt)n };
	ssize_t r = -EPROTO;
	uint32_t size;

	if (inflateInit(&z) != Z_OK)
		return 0; /* no memory */
	if (inflate_exactly(&z, length, LENGTH)) {
		size = get_u32(length);
		text = size <= most ? malloc(MAX(size, 1u)) : NULL;
		if (!text)
			r = 0;
		else if (inflate_exactly(&z, text, size))
			r = (ssize_t)unix_lines(text, size);
	}
	inflateEnd(&z);
	if (r > CUT_TEXT_MAX)
		r = 0;
	if (r > 0)
		memcpy(out, text, (size_t)r);
	return r;
}

ssize_t cut_text_receive(struct cut_text *c, const uint8_t *payload, size_t n, char out[CUT_TEXT_MAX], enum cut_action *ret_answer)
{
	uint32_t flags;

	*ret_answer = CUT_NOTHING;
	if (n < FLAGS)
		return -EPROTO;
	flags = get_u32(payload);
	if (flags & CUT_CAPS)
		return take_caps(c, flags, payload + FLAGS, n - FLAGS, ret_answer);
	if (!c->extended)
		take_defaults(c);
	switch (flags & ACTIONS) {
	case CUT_REQUEST:
		if (flags & FORMAT_TEXT && c->n > 0)
			*ret_answer = CUT_PROVIDE;
		return 0;
	case CUT_PEEK:
		*ret_answer = CUT_NOTIFY;
		return 0;
	case CUT_NOTIFY:
		if (flags & FORMAT_TEXT && c->actions & CUT_REQUEST)
			*ret_answer = CUT_REQUEST;
		return 0;
	case CUT_PROVIDE:
		return flags & FORMAT_TEXT ? take_text(payload + FLAGS, n - FLAGS, out) : 0;
	default:
		return -EPROTO;
	}
}

size_t cut_text_receive_old(const uint8_t *payload, size_t n, char out[CUT_TEXT_MAX])
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		uint8_t c = payload[i];

		if (k + 2 > CUT_TEXT_MAX)
			return 0;
		if (c == 0 || c == '\r')
			continue;
		if (c >= 0x80)
			out[k++] = (char)(0xc0 | c >> 6);
		out[k++] = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
	}
	return k;
}

/* ---- to the viewer ---- */

enum cut_action cut_text_set(struct cut_text *c, const char *text, size_t n)
{
	c->n = n <= CUT_TEXT_MAX ? n : 0;
	c->announced = false;
	memcpy(c->text, text, c->n);
	return announce(c);
}

static ssize_t finish(uint8_t *out, size_t n, bool extended)
{
	memset(out, 0, HEADER);
	out[0] = SERVER_CUT_TEXT;
	put_u32(out + 4, extended ? 0 - (uint32_t)n : (uint32_t)n);
	return (ssize_t)(HEADER + n);
}

/* Latin-1 has less: what it has not becomes a question mark. */
static size_t latin(const struct cut_text *c, uint8_t *out)
{
	size_t k = 0;

	for (size_t i = 0; i < c->n; i++) {
		uint8_t b = (uint8_t)c->text[i], next = i + 1 < c->n ? (uint8_t)c->text[i + 1] : 0;

		if (b < 0x80)
			out[k++] = b;
		else if ((b == 0xc2 || b == 0xc3) && (next & 0xc0) == 0x80)
			out[k++] = (uint8_t)(b << 6 | (next & 0x3f));
		else if (b >= 0xc4)
			out[k++] = '?';
	}
	return k;
}

static ssize_t provide(const struct cut_text *c, uint8_t *out, size_t room)
{
	_cleanup_free_ uint8_t *plain = malloc(LENGTH + wire_size(c));
	uLongf size = room;
	size_t k = LENGTH;

	if (!plain)
		return -ENOMEM;
	for (size_t i = 0; i < c->n; i++) {
		if (lacks_cr(c, i))
			plain[k++] = '\r';
		plain[k++] = (uint8_t)c->text[i];
	}
	plain[k++] = 0;
	put_u32(plain, (uint32_t)(k - LENGTH));
	return compress2(out, &size, plain, k, Z_BEST_SPEED) == Z_OK ? (ssize_t)size : -ENOMEM;
}

ssize_t cut_text_make(const struct cut_text *c, enum cut_action action, uint8_t out[CUT_MESSAGE_MAX])
{
	uint8_t *payload = out + HEADER;
	uint32_t flags = (uint32_t)action | FORMAT_TEXT;
	size_t n = FLAGS;
	ssize_t r;

	switch (action) {
	case CUT_OLD:
		return finish(out, latin(c, payload), false);
	case CUT_CAPS:
		flags |= ACTIONS;
		put_u32(payload + n, CUT_TEXT_MAX);
		n += LENGTH;
		break;
	case CUT_PROVIDE:
		r = provide(c, payload + n, CUT_MESSAGE_MAX - HEADER - n);
		if (r < 0)
			return r;
		n += (size_t)r;
		break;
	case CUT_NOTIFY:
		if (c->n == 0)
			flags = CUT_NOTIFY; /* there is nothing */
		break;
	case CUT_REQUEST:
	case CUT_PEEK:
		break;
	case CUT_NOTHING:
	default:
		return 0;
	}
	put_u32(payload, flags);
	return finish(out, n, true);
}
