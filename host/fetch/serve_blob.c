/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is fetched next: see serve.h.
 *
 * First what somebody waits for, oldest first, with its neighbours that are wanted too or that a sequential reader is about to
 * want, in one request; then what sequential readers are about to want; then, when nobody has wanted anything for a while, the
 * rest of each blob from its begin. While somebody waits, requests that nobody waits for are paused, and given up when that takes
 * long, as other processes may wait for their chunks.
 *
 * Each chunk of a request is locked against other processes from before the request until it is filled. A chunk that is
 * locked elsewhere is looked at again every few milliseconds: it arrives, or its holder goes and it is ours.
 *
 * A request that fails in a way that may pass makes the whole blob wait, longer each time. One that fails for good answers all
 * that wait, and what comes in the next few seconds, at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "host/fetch/serve.h"
#include "lib/util.h"

enum { DEAD_MS = 5000, WINDOW_FIRST = 4, WINDOW_PART = 8 };

int serve_blob_init(struct served *v)
{
	v->state = calloc(v->b.nchunks, sizeof(*v->state));
	v->wanted = calloc(v->b.nchunks, sizeof(*v->wanted));
	return v->state == NULL || v->wanted == NULL ? -ENOMEM : 0;
}

bool serve_is_dead(const struct served *v) { return v->dead != 0 && v->s->now_ms < v->dead_until; }

/* ---- sequential readers ---- */

static uint32_t request_chunks(const struct served *v) { return MAX(1u, (uint32_t)(SERVE_REQUEST >> v->b.shift)); }

void serve_note_demand(struct served *v, uint32_t first, uint32_t n)
{
	struct stream *oldest = &v->stream[0];

	for (int i = 0; i < SERVE_STREAMS; i++) {
		struct stream *t = &v->stream[i];

		if (t->used != 0 && first >= t->next && first - t->next <= t->window) {
			/* A part of what was read in a row: what is fetched in vain stays in proportion. */
			t->read += first + n - t->next;
			t->window = MIN(request_chunks(v), MAX((uint32_t)WINDOW_FIRST, t->read / WINDOW_PART));
			t->next = first + n;
			t->used = ++v->tick;
			return;
		}
		if (t->used < oldest->used)
			oldest = t;
	}
	*oldest = (struct stream){ .next = first + n, .read = n, .used = ++v->tick };
}

static bool is_ahead(const struct served *v, uint32_t chunk)
{
	for (int i = 0; i < SERVE_STREAMS; i++)
		if (chunk >= v->stream[i].next && chunk - v->stream[i].next < v->stream[i].window)
			return true;
	return false;
}

/* ---- requests ---- */

static bool can_take_whole(const struct served *v) { return v->s->mode == SERVE_ALL || v->b.size <= SERVE_WHOLE_MAX; }

/* Ours to fetch: absent, and locked now. */
static bool take_chunk(struct served *v, uint32_t chunk)
{
	int r;

	if (chunk >= v->b.nchunks || v->state[chunk] != CHUNK_IDLE || blob_generation(&v->b, chunk) != 0)
		return false;
	r = blob_lock(&v->b, chunk);
	if (r == 0 && blob_generation(&v->b, chunk) != 0) { /* filled in between */
		blob_unlock(&v->b, chunk, 1);
		serve_chunk_done(v, chunk, 0);
		return false;
	}
	if (r < 0) {
		if (v->wanted[chunk] > 0) {
			v->state[chunk] = CHUNK_FOREIGN;
			v->nforeign++;
		}
		return false;
	}
	v->state[chunk] = CHUNK_BUSY;
	return true;
}

static void release_chunks(struct served *v, uint32_t first, uint32_t n)
{
	for (uint32_t i = first; i < first + n; i++)
		if (v->state[i] == CHUNK_BUSY) {
			v->state[i] = CHUNK_IDLE;
			blob_unlock(&v->b, i, 1);
		}
}

/* What has come may have been dropped again, and be another request's by now. */
static void release_rest(const struct transfer *t) { release_chunks(t->v, t->at, t->first + t->n - t->at); }

/* The reply is what was asked for? */
static int check_reply(struct transfer *t)
{
	struct http_job *j = &t->job;
	struct served *v = t->v;
	uint64_t size = v->b.size, first = (uint64_t)t->first << v->b.shift, end = MIN(size, (uint64_t)(t->first + t->n) << v->b.shift);

	if (j->status == 206) {
		if (t->whole || !j->has_range || j->reply_first != first || j->reply_last != end - 1)
			return err_set(&j->err, -EPROTO, "%.200s: the server sent another range than was asked for", v->url);
		if (j->reply_total != 0 && j->reply_total != size)
			return err_set(&j->err, -EPROTO, "%.200s: the server has %" PRIu64 " bytes, the image says %" PRIu64, v->url,
				       j->reply_total, size);
		return 0;
	}
	if (j->length >= 0 && (uint64_t)j->length != size)
		return err_set(&j->err, -EPROTO, "%.200s: the server has %" PRId64 " bytes, the image says %" PRIu64, v->url, j->length,
			       size);
	if (first == 0 && end == size)
		return 0;
	if (!can_take_whole(v))
		return err_set(&j->err, -EOPNOTSUPP, "%.200s: the server has no ranges (it answers with all of it); use --fetch all",
			       v->url);
	v->no_ranges = true;
	return err_set(&j->err, -EOPNOTSUPP, "%.200s: the server has no ranges", v->url);
}

static int chunk_complete(struct transfer *t)
{
	struct served *v = t->v;
	uint32_t chunk = t->at++;
	int r;

	t->have = 0;
	t->progress = true;
	if (v->state[chunk] != CHUNK_BUSY)
		return 0; /* a part of the whole that is there already, or comes from elsewhere */
	r = blob_fill(&v->b, chunk, t->buf);
	v->state[chunk] = CHUNK_IDLE;
	blob_unlock(&v->b, chunk, 1);
	if (r < 0)
		return err_errno(&t->job.err, r, "write the cache of blobs");
	v->s->filled += blob_chunk_size(&v->b, chunk);
	serve_chunk_done(v, chunk, 0);
	return 0;
}

static int on_body(struct http_job *j, const void *data, size_t n)
{
	struct transfer *t = j->ctx;
	struct served *v = t->v;
	const uint8_t *p = data;

	if (t->at == t->first && t->have == 0) {
		int r = check_reply(t);

		if (r < 0)
			return r;
	}
	while (n > 0) {
		size_t take;
		int r = 0;

		if (t->at == t->first + t->n)
			return err_set(&j->err, -EPROTO, "%.200s: the server sent more than was asked for", v->url);
		take = MIN(n, (size_t)blob_chunk_size(&v->b, t->at) - t->have);
		memcpy(t->buf + t->have, p, take);
		t->have += take;
		p += take;
		n -= take;
		if (t->have == blob_chunk_size(&v->b, t->at))
			r = chunk_complete(t);
		if (r < 0)
			return r;
	}
	return 0;
}

void serve_failed(struct served *v, int code, const char *text)
{
	struct serve *s = v->s;
	bool gives_up;

	if (v->failure == 0) {
		v->failing_since = s->now_ms;
		v->note_ms = s->now_ms + s->note_ms;
	}
	gives_up = s->mode == SERVE_ALL && s->now_ms - v->failing_since >= s->timeout_ms;
	if (v->failure == 0 || (v->failure != code && !http_is_transient(code)) || gives_up)
		log_line(&s->log, LOG_WARN, "%s", text);
	v->failure = code;
	if (http_is_transient(code) && !gives_up) {
		uint64_t wait = MIN(s->backoff_max_ms, s->backoff_min_ms << MIN(v->attempts, 16u));

		v->attempts++;
		v->retry_ms = s->now_ms + wait / 2 + (uint64_t)rand_r(&s->jitter) % (wait / 2 + 1);
		return;
	}
	v->dead = code;
	v->dead_until = s->now_ms + DEAD_MS;
	v->retry_ms = v->dead_until;
	serve_fail_all(v, code);
	if (s->mode == SERVE_ALL) {
		v->whole_known = true;
		v->whole_result = code;
	}
}

static void on_done(struct http_job *j, int result)
{
	struct transfer *t = j->ctx;
	struct served *v = t->v;
	char *location = j->location;
	bool redirected = t->url != NULL && strcmp(t->url, v->url) != 0;

	j->location = NULL;
	release_rest(t);
	if (result == 0 && t->at != t->first + t->n)
		result = err_set(&j->err, -ECONNRESET, "%.200s: the server sent less than was asked for", v->url);
	t->v = NULL;
	if (t->progress)
		v->attempts = 0;
	if (result == 0) {
		v->failure = v->dead = 0;
		if (location != NULL) {
			free(v->redirect);
			v->redirect = location;
			location = NULL;
		}
	} else if (redirected && !http_is_transient(result)) {
		/* An address that was lent for a time: ask the registry again. Other requests may have done so by now. */
		if (v->redirect != NULL && strcmp(v->redirect, t->url) == 0) {
			free(v->redirect);
			v->redirect = NULL;
		}
	} else if (!(result == -EOPNOTSUPP && v->no_ranges && !t->whole)) {
		serve_failed(v, result, j->err.text);
	}
	free(location);
	free(t->url);
	t->url = NULL;
}

static struct transfer *free_transfer(struct serve *s, bool demand)
{
	struct transfer *t = NULL;
	int background = 0;

	for (int i = 0; i < SERVE_TRANSFERS; i++) {
		if (s->transfer[i].v == NULL)
			t = &s->transfer[i];
		else
			background += !s->transfer[i].demand;
	}
	/* Background never takes the last places. */
	return demand || background < SERVE_BACKGROUND ? t : NULL;
}

static bool fetches_whole(const struct served *v)
{
	for (int i = 0; i < SERVE_TRANSFERS; i++)
		if (v->s->transfer[i].v == v && v->s->transfer[i].whole)
			return true;
	return false;
}

/* The chunks of [first, first + n) are taken. */
static void start(struct transfer *t, struct served *v, uint32_t first, uint32_t n, bool demand, bool whole)
{
	uint64_t from = (uint64_t)first << v->b.shift, end = MIN(v->b.size, (uint64_t)(first + n) << v->b.shift);

	t->v = v;
	t->first = t->at = first;
	t->n = n;
	t->have = 0;
	t->paused_ms = 0;
	t->demand = demand;
	t->whole = whole;
	t->progress = false;
	t->url = strdup(v->redirect != NULL ? v->redirect : v->url);
	t->job = (struct http_job){ .url = t->url != NULL ? t->url : v->url, .auth = v->auth, .range_first = from,
				    .range_len = whole ? 0 : end - from, .body = on_body, .done = on_done, .ctx = t };
	http_start(&v->s->http, &t->job);
}

static void start_whole(struct transfer *t, struct served *v, bool demand)
{
	if (fetches_whole(v))
		return;
	for (uint32_t i = 0; i < v->b.nchunks; i++)
		take_chunk(v, i);
	start(t, v, 0, v->b.nchunks, demand, true);
}

static bool is_useful(const struct served *v, uint32_t chunk)
{
	return chunk < v->b.nchunks && (v->wanted[chunk] > 0 || is_ahead(v, chunk));
}

static void start_around(struct transfer *t, struct served *v, uint32_t chunk, bool demand)
{
	uint32_t first = chunk, n = 1, max = request_chunks(v);

	if (v->no_ranges) {
		start_whole(t, v, demand);
		return;
	}
	if (!take_chunk(v, chunk))
		return;
	while (n < max && is_useful(v, first + n) && take_chunk(v, first + n))
		n++;
	while (n < max && first > 0 && v->wanted[first - 1] > 0 && take_chunk(v, first - 1)) {
		first--;
		n++;
	}
	start(t, v, first, n, demand, false);
}

static bool may_try(const struct served *v) { return (v->failure == 0 || v->s->now_ms >= v->retry_ms) && !serve_is_dead(v); }

/* One at a time while it fails, so that a server that comes back is not met by all at once. */
static bool is_probing(const struct served *v)
{
	for (int i = 0; v->failure != 0 && i < SERVE_TRANSFERS; i++)
		if (v->s->transfer[i].v == v)
			return true;
	return false;
}

static bool start_demand(struct serve *s)
{
	for (uint32_t i = 0; i < s->nblobs; i++) {
		struct served *v = &s->blob[(s->next_blob + i) % s->nblobs];
		struct transfer *t = free_transfer(s, true);
		uint32_t chunk;

		if (t == NULL)
			return false;
		if (v->nwanted == 0 || !may_try(v) || is_probing(v) || (v->no_ranges && fetches_whole(v)) ||
		    !serve_next_wanted(v, &chunk))
			continue;
		s->next_blob = (s->next_blob + i + 1) % s->nblobs;
		if (blob_generation(&v->b, chunk) != 0)
			serve_chunk_done(v, chunk, 0);
		else
			start_around(t, v, chunk, true);
		return true;
	}
	return false;
}

static bool start_ahead(struct serve *s)
{
	for (uint32_t i = 0; i < s->nblobs; i++) {
		struct served *v = &s->blob[i];
		struct transfer *t = free_transfer(s, false);

		if (t == NULL)
			return false;
		if (v->failure != 0 || v->no_ranges || serve_is_dead(v))
			continue;
		for (int k = 0; k < SERVE_STREAMS; k++) {
			const struct stream *r = &v->stream[k];

			/* When half of the window is missing, not with each chunk that it moves. */
			for (uint32_t c = r->next; c < v->b.nchunks && (c - r->next) * 2 <= r->window && r->window > 0; c++)
				if (v->state[c] == CHUNK_IDLE && blob_generation(&v->b, c) == 0) {
					start_around(t, v, c, false);
					return t->v != NULL;
				}
		}
	}
	return false;
}

static bool start_background(struct serve *s)
{
	for (uint32_t i = 0; i < s->nblobs; i++) {
		struct served *v = &s->blob[i];
		struct transfer *t = free_transfer(s, false);
		uint32_t first, n = 0, max = request_chunks(v);

		if (t == NULL)
			return false;
		if (!may_try(v) || is_probing(v) || (v->no_ranges && fetches_whole(v)))
			continue;
		while (v->lowest < v->b.nchunks && blob_generation(&v->b, v->lowest) != 0)
			v->lowest++;
		first = v->lowest;
		while (first < v->b.nchunks && !take_chunk(v, first))
			first++;
		if (first == v->b.nchunks)
			continue;
		if (v->no_ranges) {
			release_chunks(v, first, 1);
			start_whole(t, v, false);
			return true;
		}
		for (n = 1; n < max && take_chunk(v, first + n); n++)
			;
		start(t, v, first, n, false, false);
		return true;
	}
	return false;
}

static bool is_wanted(const struct transfer *t)
{
	for (uint32_t i = t->at; i < t->first + t->n; i++)
		if (t->v->wanted[i] > 0)
			return true;
	return false;
}

static bool fetches_wanted(const struct serve *s)
{
	for (int i = 0; i < SERVE_TRANSFERS; i++)
		if (s->transfer[i].v != NULL && is_wanted(&s->transfer[i]))
			return true;
	return false;
}

static void transfer_stop(struct transfer *t)
{
	http_cancel(&t->job);
	release_rest(t);
	t->v = NULL;
	free(t->url);
	t->url = NULL;
}

static void pause_background(struct serve *s)
{
	bool demand = fetches_wanted(s);

	for (int i = 0; i < SERVE_TRANSFERS; i++) {
		struct transfer *t = &s->transfer[i];
		bool pause = t->v != NULL && demand && !is_wanted(t);

		if (t->v == NULL)
			continue;
		if (!pause)
			t->paused_ms = 0;
		else if (t->paused_ms == 0)
			t->paused_ms = s->now_ms;
		if (pause && s->now_ms - t->paused_ms >= SERVE_PAUSE_MS)
			transfer_stop(t);
		else
			http_pause(&t->job, pause);
	}
}

void serve_schedule(struct serve *s)
{
	bool demand = false;

	while (start_demand(s))
		demand = true;
	serve_bound(s);
	for (uint32_t i = 0; i < s->nblobs; i++)
		demand |= s->blob[i].nwanted > 0;
	while (!fetches_wanted(s) && start_ahead(s))
		;
	if (!demand && !s->full &&
	    (s->mode == SERVE_ALL || (s->mode == SERVE_BACKGROUND_TOO && s->now_ms >= s->demand_ms + s->idle_ms)))
		while (start_background(s))
			;
	pause_background(s);
}

void serve_look_at_foreign(struct served *v)
{
	if (v->nforeign == 0)
		return;
	v->nforeign = 0;
	for (uint32_t i = 0; i < v->b.nchunks; i++) {
		if (v->state[i] != CHUNK_FOREIGN)
			continue;
		v->state[i] = CHUNK_IDLE; /* serve_schedule tries its lock again */
		if (blob_generation(&v->b, i) != 0)
			serve_chunk_done(v, i, 0);
	}
}

void serve_transfers_stop(struct serve *s)
{
	for (int i = 0; i < SERVE_TRANSFERS; i++)
		if (s->transfer[i].v != NULL)
			transfer_stop(&s->transfer[i]);
}
