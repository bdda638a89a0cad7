/* SPDX-License-Identifier: Apache-2.0 */
/* gzip: see gunzip.h. After the last member zeros may follow, as tapes and tar padding have them; anything else is damage. */
#include "host/import/gunzip.h"

#include <errno.h>
#include <string.h>

#include "lib/util.h"

enum { WINDOW_GZIP = 16 + MAX_WBITS };

int gunzip_open(struct gunzip *g, ssize_t (*more)(void *ctx, const void **ret, struct err *err), void *ctx, struct err *err)
{
	*g = (struct gunzip){ .more = more, .ctx = ctx };
	if (inflateInit2(&g->z, WINDOW_GZIP) != Z_OK)
		return err_set(err, -ENOMEM, "no memory for decompressing");
	g->open = true;
	return 0;
}

void gunzip_close(struct gunzip *g)
{
	if (g->open)
		inflateEnd(&g->z);
	g->open = false;
}

/* 1: there is input; 0: its end; -errno. */
static int fill(struct gunzip *g, struct err *err)
{
	const void *p;
	ssize_t n;

	if (g->z.avail_in > 0)
		return 1;
	n = g->more(g->ctx, &p, err);
	if (n <= 0)
		return (int)n;
	g->z.next_in = (void *)p;
	g->z.avail_in = (uInt)n;
	return 1;
}

/* After a member: 1: another begins; 0: nothing but zeros comes; -errno. */
static int next_member(struct gunzip *g, struct err *err)
{
	int r;

	while ((r = fill(g, err)) > 0 && *g->z.next_in == 0) {
		g->z.next_in++;
		g->z.avail_in--;
	}
	if (r <= 0)
		return r;
	if (*g->z.next_in != 0x1f)
		return err_set(err, -EINVAL, "the compression: something that is no gzip follows it");
	g->between = false;
	return inflateReset(&g->z) == Z_OK ? 1 : err_set(err, -ENOMEM, "no memory for decompressing");
}

ssize_t gunzip_read(struct gunzip *g, void *buf, size_t n, struct err *err)
{
	g->z.next_out = buf;
	g->z.avail_out = (uInt)MIN(n, (size_t)1 << 30);
	n = g->z.avail_out;
	while (g->z.avail_out > 0) {
		int r = g->between ? next_member(g, err) : fill(g, err), z;

		if (r == 0 && !g->between)
			return err_set(err, -EINVAL, "the compression: the gzip is cut off");
		if (r < 0)
			return r;
		if (r == 0)
			break;
		z = inflate(&g->z, Z_NO_FLUSH);
		if (z == Z_MEM_ERROR)
			return err_set(err, -ENOMEM, "no memory for decompressing");
		if (z != Z_OK && z != Z_STREAM_END && z != Z_BUF_ERROR)
			return err_set(err, -EINVAL, "the compression: the gzip is damaged (%s)", g->z.msg != NULL ? g->z.msg : "unknown");
		g->between = z == Z_STREAM_END;
	}
	return (ssize_t)(n - g->z.avail_out);
}
