/* SPDX-License-Identifier: Apache-2.0 */
/* A ring of bytes: see ring.h. */
#include "guest/agent/ring.h"

#include <string.h>

#include "lib/util.h"

int ring_iov(const struct ring *r, size_t offset, size_t n, struct iovec iov[2])
{
	size_t start = (r->head + offset) % r->size;
	size_t first = MIN(n, r->size - start);

	iov[0] = (struct iovec){ r->buf + start, first };
	iov[1] = (struct iovec){ r->buf, n - first };
	return first < n ? 2 : 1;
}

void ring_store(struct ring *r, size_t offset, const void *data, size_t n)
{
	struct iovec iov[2];

	ring_iov(r, offset, n, iov);
	memcpy(iov[0].iov_base, data, iov[0].iov_len);
	memcpy(iov[1].iov_base, (const char *)data + iov[0].iov_len, iov[1].iov_len);
}

void ring_write(struct ring *r, const void *data, size_t n)
{
	ring_store(r, r->len, data, n);
	r->len += n;
}

void ring_load(const struct ring *r, size_t offset, void *data, size_t n)
{
	struct iovec iov[2];

	ring_iov(r, offset, n, iov);
	memcpy(data, iov[0].iov_base, iov[0].iov_len);
	memcpy((char *)data + iov[0].iov_len, iov[1].iov_base, iov[1].iov_len);
}

void ring_consume(struct ring *r, size_t n)
{
	r->head = (r->head + n) % r->size;
	r->len -= n;
}
