/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of `coffer-fetch serve`, and its clients: see serve.h.
 *
 * A want is kept with the fate of each of its chunks, so an answer that does not fit into the socket now is made when there
 * is room, and nothing is queued. It has a deadline from the moment it came; what it waits for then is answered -ETIMEDOUT.
 *
 * Trust: clients are monitors, which may have been taken over by a guest. A message that makes no sense ends that client. A client
 * can have chunks fetched of blobs that it was given, and nothing else.
 */
#include "host/fetch/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { FOREIGN_MS = 20, WAIT_MAX_MS = 1000 };

/* ---- answers ---- */

static void client_end(struct serve *s, struct client *c)
{
	for (uint32_t i = 0; i < REMOTE_WANTS; i++) {
		struct want *w = &c->want[i];
		struct served *v = &s->blob[w->used ? w->blob : 0];

		for (uint32_t k = 0; w->used && k < w->n; k++)
			if (w->state[k] == WANT_WAITS && --v->wanted[w->first + k] == 0)
				v->nwanted--;
		w->used = false;
	}
	c->fd = fd_close(c->fd);
}

static void want_resolve(struct served *v, struct want *w, uint32_t k, int result)
{
	w->state[k] = WANT_KNOWN;
	w->result[k] = result;
	w->open--;
	w->known++;
	if (--v->wanted[w->first + k] == 0)
		v->nwanted--;
}

void serve_chunk_done(struct served *v, uint32_t chunk, int result)
{
	struct serve *s = v->s;

	if (v->wanted[chunk] == 0)
		return;
	for (uint32_t i = 0; i < s->nclients; i++)
		for (uint32_t j = 0; s->client[i].fd >= 0 && j < REMOTE_WANTS; j++) {
			struct want *w = &s->client[i].want[j];

			if (w->used && w->blob == v->number && chunk >= w->first && chunk - w->first < w->n &&
			    w->state[chunk - w->first] == WANT_WAITS)
				want_resolve(v, w, chunk - w->first, result);
		}
}

void serve_fail_all(struct served *v, int result)
{
	struct serve *s = v->s;

	for (uint32_t i = 0; i < s->nclients; i++)
		for (uint32_t j = 0; s->client[i].fd >= 0 && j < REMOTE_WANTS; j++) {
			struct want *w = &s->client[i].want[j];

			for (uint32_t k = 0; w->used && w->blob == v->number && k < w->n; k++)
				if (w->state[k] == WANT_WAITS)
					want_resolve(v, w, k, result);
		}
}

bool serve_next_wanted(struct served *v, uint32_t *ret_chunk)
{
	struct serve *s = v->s;
	uint64_t oldest = UINT64_MAX;

	for (uint32_t i = 0; i < s->nclients && v->nwanted > 0; i++)
		for (uint32_t j = 0; s->client[i].fd >= 0 && j < REMOTE_WANTS; j++) {
			struct want *w = &s->client[i].want[j];

			if (!w->used || w->blob != v->number || w->open == 0 || w->order >= oldest)
				continue;
			for (uint32_t k = 0; k < w->n; k++)
				if (w->state[k] == WANT_WAITS && v->state[w->first + k] == CHUNK_IDLE) {
					oldest = w->order;
					*ret_chunk = w->first + k;
					break;
				}
		}
	return oldest != UINT64_MAX;
}

/* False: no room now. The client may be gone afterwards. */
static bool client_send(struct serve *s, struct client *c, const void *message, size_t n)
{
	ssize_t r = send(c->fd, message, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (r >= 0)
		return true;
	if (errno == EAGAIN || errno == EINTR) {
		c->blocked = true;
		return false;
	}
	client_end(s, c);
	return false;
}

static void want_tell(struct serve *s, struct client *c, struct want *w)
{
	for (uint32_t k = 0, end; w->used && w->known > 0 && k < w->n; k = end) {
		end = k + 1;
		if (w->state[k] != WANT_KNOWN)
			continue;
		while (end < w->n && w->state[end] == WANT_KNOWN && w->result[end] == w->result[k])
			end++;
		if (!client_send(s, c,
				 &(struct remote_arrived){ .type = le32_make(REMOTE_ARRIVED), .blob = le32_make(w->blob),
							   .first = le32_make(w->first + k), .n = le32_make(end - k),
							   .result = le32_make((uint32_t)w->result[k]) },
				 sizeof(struct remote_arrived)))
			return;
		memset(&w->state[k], WANT_TOLD, end - k);
		w->known -= end - k;
	}
	if (w->open == 0 && w->known == 0)
		w->used = false;
}

static void tell(struct serve *s, struct client *c)
{
	for (uint32_t j = 0; c->fd >= 0 && !c->blocked && j < REMOTE_WANTS; j++)
		if (c->want[j].used)
			want_tell(s, c, &c->want[j]);
	for (uint32_t i = 0; c->fd >= 0 && !c->blocked && i < s->nblobs; i++) {
		struct served *v = &s->blob[i];

		if (v->whole_known && !c->whole_told[i])
			c->whole_told[i] = client_send(s, c,
						       &(struct remote_whole){ .type = le32_make(REMOTE_WHOLE), .blob = le32_make(i),
									       .result = le32_make((uint32_t)v->whole_result) },
						       sizeof(struct remote_whole));
	}
}

/* ---- questions ---- */

static bool take_want(struct serve *s, struct client *c, const struct remote_want *m)
{
	uint32_t blob = le32_get(m->blob), first = le32_get(m->first), n = le32_get(m->n);
	struct served *v;
	struct want *w = NULL;

	if (le32_get(m->type) != REMOTE_WANT || blob >= s->nblobs || n == 0 || n > REMOTE_WANT_CHUNKS)
		return false;
	v = &s->blob[blob];
	if (first >= v->b.nchunks || n > v->b.nchunks - first)
		return false;
	for (uint32_t j = 0; j < REMOTE_WANTS && w == NULL; j++)
		w = c->want[j].used ? NULL : &c->want[j];
	if (w == NULL)
		return false;
	*w = (struct want){ .used = true, .blob = blob, .first = first, .n = n, .open = n,
			    .deadline_ms = s->now_ms + s->timeout_ms, .order = s->order++ };
	for (uint32_t k = 0; k < n; k++) {
		if (v->wanted[first + k]++ == 0)
			v->nwanted++;
		if (blob_generation(&v->b, first + k) != 0)
			want_resolve(v, w, k, 0);
		else if (serve_is_dead(v))
			want_resolve(v, w, k, v->dead);
	}
	s->demand_ms = s->now_ms;
	serve_note_demand(v, first, n);
	return true;
}

static void client_read(struct serve *s, struct client *c)
{
	union {
		struct remote_want want;
		uint8_t bytes[REMOTE_MESSAGE_MAX];
	} m;

	/* As many as there can be; more is an error that take_want finds. */
	for (int i = 0; i <= REMOTE_WANTS; i++) {
		ssize_t n = recv(c->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n == sizeof(m.want) && take_want(s, c, &m.want))
			continue;
		if (n > 0)
			log_line(&s->log, LOG_WARN, "a reader sent a message that makes no sense (%zd bytes): it is served no more", n);
		client_end(s, c);
		return;
	}
}

/* ---- time ---- */

static void expire(struct serve *s)
{
	for (uint32_t i = 0; i < s->nclients; i++)
		for (uint32_t j = 0; s->client[i].fd >= 0 && j < REMOTE_WANTS; j++) {
			struct want *w = &s->client[i].want[j];

			for (uint32_t k = 0; w->used && w->open > 0 && s->now_ms >= w->deadline_ms && k < w->n; k++)
				if (w->state[k] == WANT_WAITS)
					want_resolve(&s->blob[w->blob], w, k, -ETIMEDOUT);
		}
}

/* What failed is of no interest to anybody any more: who comes next has a new beginning. */
static void forget_failure(const struct serve *s, struct served *v)
{
	if (v->failure != 0 && v->nwanted == 0 && s->now_ms >= v->retry_ms && (s->mode == SERVE_LAZY || v->whole_known))
		v->failure = 0;
}

static bool waits_for(const struct client *c, uint32_t blob)
{
	for (uint32_t j = 0; c->fd >= 0 && j < REMOTE_WANTS; j++)
		if (c->want[j].used && c->want[j].blob == blob && c->want[j].open > 0)
			return true;
	return false;
}

/* Reads wait for a server that fails: say so, ever more rarely. A note that finds no room is not worth keeping. */
static void note(struct serve *s, struct served *v)
{
	uint64_t since = s->now_ms - v->failing_since;

	if (v->failure == 0 || v->nwanted == 0 || s->now_ms < v->note_ms)
		return;
	v->note_ms = s->now_ms + MAX(since, s->note_ms);
	for (uint32_t i = 0; i < s->nclients; i++)
		if (waits_for(&s->client[i], v->number))
			client_send(s, &s->client[i],
				    &(struct remote_note){ .type = le32_make(REMOTE_NOTE), .blob = le32_make(v->number),
							   .result = le32_make((uint32_t)v->failure),
							   .seconds = le32_make((uint32_t)(since / 1000)) },
				    sizeof(struct remote_note));
}

static uint64_t sooner(uint64_t a, uint64_t at, uint64_t now) { return MIN(a, at > now ? at - now : 0); }

static int wait_ms(const struct serve *s)
{
	uint64_t ms = WAIT_MAX_MS;

	for (uint32_t i = 0; i < s->nblobs; i++) {
		const struct served *v = &s->blob[i];

		if (v->nforeign > 0)
			ms = MIN(ms, (uint64_t)FOREIGN_MS);
		/* Nothing may be there to be tried again: then there is nothing to wake up for. */
		if (v->failure != 0 && v->retry_ms > s->now_ms)
			ms = sooner(ms, v->retry_ms, s->now_ms);
		if (v->failure != 0 && v->nwanted > 0)
			ms = sooner(ms, v->note_ms, s->now_ms);
	}
	for (int i = 0; i < SERVE_TRANSFERS; i++)
		if (s->transfer[i].v != NULL && s->transfer[i].paused_ms != 0)
			ms = sooner(ms, s->transfer[i].paused_ms + SERVE_PAUSE_MS, s->now_ms);
	if (s->mode == SERVE_BACKGROUND_TOO && s->now_ms < s->demand_ms + s->idle_ms)
		ms = sooner(ms, s->demand_ms + s->idle_ms, s->now_ms);
	for (uint32_t i = 0; i < s->nclients; i++)
		for (uint32_t j = 0; s->client[i].fd >= 0 && j < REMOTE_WANTS; j++)
			if (s->client[i].want[j].used && s->client[i].want[j].open > 0)
				ms = sooner(ms, s->client[i].want[j].deadline_ms, s->now_ms);
	return (int)MIN(ms, s->stall_ms);
}

/* ---- the loop ---- */

static uint32_t fill_poll(struct serve *s, struct curl_waitfd *fds)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->nclients; i++)
		if (s->client[i].fd >= 0)
			fds[n++] = (struct curl_waitfd){ .fd = s->client[i].fd,
							 .events = CURL_WAIT_POLLIN |
								   (s->client[i].blocked ? CURL_WAIT_POLLOUT : 0) };
	return n;
}

static void step(struct serve *s)
{
	s->now_ms = http_now_ms();
	for (uint32_t i = 0; i < s->nclients; i++) {
		s->client[i].blocked = false;
		if (s->client[i].fd >= 0)
			client_read(s, &s->client[i]);
	}
	http_run(&s->http, s->now_ms);
	expire(s);
	for (uint32_t i = 0; i < s->nblobs; i++) {
		serve_look_at_foreign(&s->blob[i]);
		forget_failure(s, &s->blob[i]);
		note(s, &s->blob[i]);
	}
	serve_schedule(s);
}

int serve_run(struct serve *s)
{
	_cleanup_free_ struct curl_waitfd *fds = calloc(s->nclients + 1, sizeof(*fds));
	uint32_t n;

	if (fds == NULL)
		return -ENOMEM;
	for (;;) {
		bool more;

		step(s);
		more = serve_check_step(s);
		for (uint32_t i = 0; i < s->nclients; i++)
			tell(s, &s->client[i]);
		n = fill_poll(s, fds);
		if (n == 0)
			break;
		if (curl_multi_poll(s->http.multi, fds, n, more ? 0 : wait_ms(s), NULL) != CURLM_OK)
			return -EIO;
	}
	serve_transfers_stop(s);
	for (uint32_t i = 0; i < s->nblobs; i++)
		blob_sync(&s->blob[i].b);
	return 0;
}

void serve_finish(struct serve *s)
{
	serve_transfers_stop(s);
	http_finish(&s->http);
	for (uint32_t i = 0; i < s->nclients; i++) {
		fd_close(s->client[i].fd);
		free(s->client[i].want);
	}
	for (uint32_t i = 0; i < s->nblobs; i++) {
		struct served *v = &s->blob[i];

		blob_close(&v->b);
		free(v->url);
		free(v->redirect);
		free(v->state);
		free(v->wanted);
	}
	for (int i = 0; i < SERVE_TRANSFERS; i++)
		free(s->transfer[i].buf);
	for (uint32_t i = 0; i < s->nauths; i++)
		http_auth_finish(&s->auth[i]);
	free(s->client);
	free(s->blob);
	free(s->ca_file);
	blob_cache_close(&s->cache);
}
