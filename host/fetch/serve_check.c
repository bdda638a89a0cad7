/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole blobs and the bound of the cache: see serve.h.
 *
 * As soon as no chunk is absent, the blob's digest is computed, a piece at a time between other work. While that lasts no
 * process drops a chunk of it (blob_lock_check). The right digest makes the blob final; a wrong one drops all of it, and
 * reads of it fail from then on.
 *
 * The bound is looked at after so many bytes. First go blobs that no process holds, then the oldest chunks of our own.
 * What nobody waits for is not fetched when only the latter would make room for it.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "host/fetch/serve.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { PIECE = 1 << 20, LOOK_AGAIN_MS = 100, KEEP_CHUNKS = 1024 };

static void whole(struct served *v, int result)
{
	v->whole_known = true;
	v->whole_result = result;
}

static void check_end(struct served *v)
{
	char hex[SHA256_HEX_SIZE];

	v->checking = false;
	sha256_end_hex(&v->check, hex);
	if (strcmp(hex, v->sha256) == 0) {
		int r = blob_sync(&v->b);

		if (r == 0)
			blob_set_verified(&v->b);
		blob_unlock_check(&v->b);
		whole(v, r);
		return;
	}
	log_line(&v->s->log, LOG_ERROR, "%s: its SHA-256 is %s, not %s: nothing of it is used", v->url, hex, v->sha256);
	v->dead = -EBADMSG;
	v->dead_until = UINT64_MAX;
	blob_drop(&v->b, 0, v->b.nchunks);
	blob_unlock_check(&v->b);
	serve_fail_all(v, -EBADMSG);
	whole(v, -EBADMSG);
}

static bool is_complete(struct served *v)
{
	while (v->lowest < v->b.nchunks && blob_generation(&v->b, v->lowest) != 0)
		v->lowest++;
	if (v->lowest < v->b.nchunks)
		return false;
	for (v->lowest = 0; v->lowest < v->b.nchunks && blob_generation(&v->b, v->lowest) != 0;)
		v->lowest++;
	return v->lowest == v->b.nchunks;
}

/* True: there is more to do. */
static bool check_blob(struct served *v)
{
	static const uint64_t piece = PIECE;
	uint8_t buf[64 << 10];
	int r;

	if (v->whole_known || serve_is_dead(v))
		return false;
	if (!v->checking) {
		if (blob_is_verified(&v->b)) {
			whole(v, 0);
			return false;
		}
		if (v->s->now_ms < v->check_retry_ms || !is_complete(v))
			return false;
		r = blob_lock_check(&v->b);
		if (r == 0 && !is_complete(v)) {
			blob_unlock_check(&v->b);
			r = -EAGAIN;
		}
		if (r < 0) { /* another process does it */
			v->check_retry_ms = v->s->now_ms + LOOK_AGAIN_MS;
			return false;
		}
		v->checking = true;
		v->check_at = 0;
		sha256_init(&v->check);
	}
	for (uint64_t done = 0; done < piece && v->check_at < v->b.size;) {
		ssize_t n = fd_pread_full(v->b.data_fd, buf, (size_t)MIN((uint64_t)sizeof(buf), v->b.size - v->check_at),
					  (off_t)v->check_at);

		if (n <= 0) { /* the storage fails: as good as damaged */
			v->check_at = v->b.size;
			break;
		}
		sha256_update(&v->check, (size_t)n, buf);
		v->check_at += (uint64_t)n;
		done += (uint64_t)n;
	}
	if (v->check_at == v->b.size)
		check_end(v);
	return v->checking;
}

bool serve_check_step(struct serve *s)
{
	bool more = false;

	for (uint32_t i = 0; i < s->nblobs; i++)
		more |= check_blob(&s->blob[i]);
	return more;
}

/* All was wanted, and does not go in together. */
static void fail_for_room(struct serve *s)
{
	log_line(&s->log, LOG_ERROR, "the layers do not fit into the cache, which may have %" PRIu64 " MiB: raise --cache-size",
		 s->cache_size >> 20);
	for (uint32_t i = 0; i < s->nblobs; i++) {
		struct served *v = &s->blob[i];

		if (v->whole_known)
			continue;
		v->dead = -ENOSPC;
		v->dead_until = UINT64_MAX;
		serve_fail_all(v, -ENOSPC);
		whole(v, -ENOSPC);
	}
}

void serve_bound(struct serve *s)
{
	uint64_t used, over;

	if (s->filled < s->check_every)
		return;
	s->filled = 0;
	used = blob_cache_usage(&s->cache);
	s->full = false;
	if (used + s->check_every <= s->cache_size)
		return;
	over = used + s->check_every - s->cache_size;
	over -= MIN(over, blob_cache_evict(&s->cache, over));
	s->full = over > 0;
	if (s->full && s->mode == SERVE_ALL) {
		fail_for_room(s);
		return;
	}
	for (uint32_t i = 0; i < s->nblobs && over > 0; i++) {
		struct served *v = &s->blob[i];
		uint32_t now = blob_counter(&v->b);
		uint32_t keep = (uint32_t)MIN((uint64_t)KEEP_CHUNKS, (s->cache_size >> v->b.shift) / 4);

		if (v->checking || now <= keep)
			continue;
		over -= MIN(over, blob_evict_chunks(&v->b, over, now - keep));
		v->lowest = 0;
	}
}
