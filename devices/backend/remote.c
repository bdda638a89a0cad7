/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk's connection to coffer-fetch: see remote.h.
 *
 * What the disk wants is queued, and sent by the main loop a moment later, so that what belongs together becomes one message
 * (remote_wake_fd makes the loop do it). REMOTE_WANTS messages may be unanswered; the rest stays in the queue. Each has a bit for
 * every chunk that is not answered, which is cleared once.
 *
 * When the connection ends, all that waits fails, and what is wanted later fails with the next turn of the loop: `want` itself must not
 * answer.
 */
/* syscalls(main, vcpu): recvfrom sendto poll write read */
#include "devices/backend/remote.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "devices/backend/block_layers.h"
#include "devices/backend/remote_format.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { QUEUE = 4096 };
_Static_assert((int)LAYERS_SUBS * (int)LAYERS_GENERATIONS < QUEUE, "all that parts of requests can wait for");

struct remote_blob {
	void *table;
	size_t table_size;
	unsigned layer;
};

struct remote_wanted {
	uint32_t blob, first, n, open;
	uint8_t answered[REMOTE_WANT_CHUNKS];
};

struct remote {
	int sock, wake_fd;
	struct block *b;
	struct remote_blob blob[REMOTE_BLOBS];
	uint32_t nblobs;
	uint8_t by_layer[BLOCK_LAYER_BASE + 1]; /* number of the blob, when it has one */
	struct remote_wanted wanted[REMOTE_WANTS];
	struct {
		uint32_t blob, chunk;
	} queue[QUEUE];
	uint32_t head, tail;
	bool ended, said_end;
	uint64_t failing_since_ns[REMOTE_BLOBS]; /* its server, as the last note had it; 0: it has answered since */
	bool has_note;
	struct {
		uint32_t blob, seconds;
		int result;
		bool damaged;
	} note;
};

/* ---- the disk's side ---- */

static void wake(struct remote *r)
{
	/* It can only fail when the counter is about to overflow: readable all the same. */
	if (write(r->wake_fd, &(uint64_t){ 1 }, sizeof(uint64_t)) < 0)
		return;
}

static void on_want(void *ctx, unsigned layer, uint64_t chunk)
{
	struct remote *r = ctx;

	if (r->tail - r->head == QUEUE)
		return; /* more than can be waited for */
	r->queue[r->tail % QUEUE].blob = r->by_layer[layer];
	r->queue[r->tail % QUEUE].chunk = (uint32_t)chunk;
	if (r->tail++ == r->head)
		wake(r);
}

static void answer(struct remote *r, uint32_t blob, uint32_t chunk, int result)
{
	block_layers_arrived(r->b, r->blob[blob].layer, chunk, result);
}

/* ---- the connection ---- */

static void end(struct remote *r)
{
	uint32_t upto = r->tail;

	r->ended = true;
	for (int i = 0; i < REMOTE_WANTS; i++) {
		struct remote_wanted *w = &r->wanted[i];

		for (uint32_t k = 0; w->open > 0 && k < w->n; k++)
			if (!w->answered[k]) {
				w->answered[k] = 1;
				w->open--;
				answer(r, w->blob, w->first + k, -EIO);
			}
	}
	/* What is wanted while these are answered has its turn with the next one. */
	while (r->head != upto) {
		uint32_t at = r->head++ % QUEUE;

		answer(r, r->queue[at].blob, r->queue[at].chunk, -EIO);
	}
	if (r->head != r->tail)
		wake(r);
}

static bool take_arrived(struct remote *r, const struct remote_arrived *m)
{
	uint32_t blob = le32_get(m->blob), first = le32_get(m->first), n = le32_get(m->n);
	int result = (int)le32_get(m->result);

	if (blob >= r->nblobs || n == 0 || n > REMOTE_WANT_CHUNKS || result > 0 || result < -4095 || le32_get(m->zero) != 0)
		return false;
	for (int i = 0; i < REMOTE_WANTS; i++) {
		struct remote_wanted *w = &r->wanted[i];

		if (w->open == 0 || w->blob != blob || first < w->first || first - w->first >= w->n ||
		    n > w->n - (first - w->first) || memchr(&w->answered[first - w->first], 1, n) != NULL)
			continue;
		memset(&w->answered[first - w->first], 1, n);
		w->open -= n;
		if (result == 0)
			r->failing_since_ns[blob] = 0;
		for (uint32_t k = 0; k < n; k++)
			answer(r, blob, first + k, result);
		return true;
	}
	return false;
}

static bool take(struct remote *r, const void *m, size_t n)
{
	const struct remote_note *note = m;
	const struct remote_whole *whole = m;

	switch (n >= sizeof(le32) ? le32_load(m) : 0) {
	case REMOTE_ARRIVED:
		return n == sizeof(struct remote_arrived) && take_arrived(r, m);
	case REMOTE_NOTE:
		if (n != sizeof(*note) || le32_get(note->blob) >= r->nblobs)
			return false;
		r->has_note = true;
		r->note.blob = le32_get(note->blob);
		r->note.result = (int)le32_get(note->result);
		r->note.seconds = le32_get(note->seconds);
		r->note.damaged = false;
		r->failing_since_ns[r->note.blob] = MAX(loop_now_ns() - r->note.seconds * 1000000000ull, (uint64_t)1);
		return true;
	case REMOTE_WHOLE:
		if (n != sizeof(*whole) || le32_get(whole->blob) >= r->nblobs)
			return false;
		if ((int)le32_get(whole->result) == -EBADMSG) {
			r->has_note = r->note.damaged = true;
			r->note.blob = le32_get(whole->blob);
		}
		return true;
	default:
		return false;
	}
}

static void receive(struct remote *r)
{
	uint8_t m[REMOTE_MESSAGE_MAX];

	/* Not for ever, whatever the other end does. */
	for (int i = 0; i < 2 * REMOTE_WANTS && !r->ended; i++) {
		ssize_t n = recv(r->sock, m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0 || !take(r, m, (size_t)n))
			end(r);
	}
}

static struct remote_wanted *free_slot(struct remote *r)
{
	for (int i = 0; i < REMOTE_WANTS; i++)
		if (r->wanted[i].open == 0)
			return &r->wanted[i];
	return NULL;
}

static void send_wants(struct remote *r)
{
	while (r->head != r->tail && !r->ended) {
		struct remote_wanted *w = free_slot(r);
		uint32_t at = r->head % QUEUE, n = 1;
		struct remote_want m;

		if (w == NULL)
			return;
		m = (struct remote_want){ .type = le32_make(REMOTE_WANT), .blob = le32_make(r->queue[at].blob),
					  .first = le32_make(r->queue[at].chunk) };
		while (n < REMOTE_WANT_CHUNKS && r->head + n != r->tail && r->queue[(r->head + n) % QUEUE].blob == r->queue[at].blob &&
		       r->queue[(r->head + n) % QUEUE].chunk == r->queue[at].chunk + n)
			n++;
		m.n = le32_make(n);
		if (send(r->sock, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
			if (errno == EAGAIN || errno == EINTR)
				return; /* there are unanswered ones: their answers bring us here again */
			end(r);
			return;
		}
		w->blob = r->queue[at].blob;
		w->first = r->queue[at].chunk;
		w->n = w->open = n;
		memset(w->answered, 0, n);
		r->head += n;
	}
}

bool remote_run(struct remote *r)
{
	uint64_t count;

	/* Nonblocking: nothing to read is no error. */
	if (read(r->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return !r->ended;
	if (!r->ended)
		receive(r);
	if (r->ended)
		end(r);
	else
		send_wants(r);
	return !r->ended;
}

bool remote_send(struct remote *r)
{
	if (!r->ended)
		send_wants(r);
	if (r->ended)
		end(r);
	return !r->ended;
}

static int on_wait(void *ctx)
{
	struct remote *r = ctx;
	struct pollfd p = { .fd = r->sock, .events = POLLIN };

	if (r->ended)
		return -EPIPE;
	send_wants(r);
	if (!r->ended && poll(&p, 1, -1) < 0 && errno != EINTR)
		return -errno;
	if (!r->ended)
		receive(r);
	if (r->ended)
		wake(r); /* the loop is to notice */
	return 0;
}

const struct block_remote_ops remote_ops = { .want = on_want, .wait = on_wait };

uint64_t remote_waiting_since(const struct remote *r)
{
	uint64_t since = 0;

	for (int i = 0; i < REMOTE_WANTS && !r->ended; i++) {
		uint64_t one = r->wanted[i].open > 0 ? r->failing_since_ns[r->wanted[i].blob] : 0;

		since = one != 0 && (since == 0 || one < since) ? one : since;
	}
	return since;
}

bool remote_note(struct remote *r, char *ret, size_t len)
{
	char layer[32];

	if (r->ended && !r->said_end) {
		r->said_end = true;
		snprintf(ret, len, "the fetcher of remote layers has ended: reads of what is not in the cache fail");
		return true;
	}
	if (!r->has_note)
		return false;
	r->has_note = false;
	if (r->blob[r->note.blob].layer == BLOCK_LAYER_BASE)
		snprintf(layer, sizeof(layer), "the base");
	else
		snprintf(layer, sizeof(layer), "layer %u", r->blob[r->note.blob].layer + 1);
	if (r->note.damaged)
		snprintf(ret, len, "%s does not have its digest: reads of it fail", layer);
	else
		snprintf(ret, len, "%s: reads wait for its server, for %u s now: %s", layer, r->note.seconds, strerror(r->note.result < 0 && r->note.result > -4096 ? -r->note.result : EIO));
	return true;
}

/* ---- set-up ---- */

int remote_create(int sock, struct remote **ret, struct err *err)
{
	struct remote *r = calloc(1, sizeof(*r));
	int type = 0;
	socklen_t len = sizeof(type);

	if (r == NULL)
		return err_errno(err, -ENOMEM, "remote layers");
	r->wake_fd = -1;
	if (getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_SEQPACKET) {
		free(r);
		return err_set(err, -EINVAL, "remote: descriptor %d is no SOCK_SEQPACKET socket", sock);
	}
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake_fd < 0) {
		int e = -errno;

		free(r);
		return err_errno(err, e, "remote layers: eventfd");
	}
	r->sock = sock;
	*ret = r;
	return 0;
}

void remote_destroy(struct remote *r)
{
	if (r == NULL)
		return;
	for (uint32_t i = 0; i < r->nblobs; i++)
		munmap(r->blob[i].table, r->blob[i].table_size);
	fd_close(r->sock);
	fd_close(r->wake_fd);
	free(r);
}

int remote_add(struct remote *r, unsigned layer, int table_fd, uint64_t size, const char *name, struct block_remote *ret,
	       struct err *err)
{
	struct remote_header h;
	struct stat st;
	void *table;

	if (r->nblobs == REMOTE_BLOBS || layer > BLOCK_LAYER_BASE)
		return err_set(err, -E2BIG, "%s: more than %d remote layers", name, REMOTE_BLOBS);
	if (fstat(table_fd, &st) < 0 || fd_pread_full(table_fd, &h, sizeof(h), 0) != sizeof(h) ||
	    !remote_header_check(&h, size, (uint64_t)st.st_size))
		return err_set(err, -EBADMSG, "%s: its table of chunks is not that of a blob of %llu bytes", name,
			       (unsigned long long)size);
	table = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, table_fd, 0);
	if (table == MAP_FAILED)
		return err_errno(err, -errno, "%s: map its table of chunks", name);
	r->blob[r->nblobs] = (struct remote_blob){ .table = table, .table_size = (size_t)st.st_size, .layer = layer };
	r->by_layer[layer] = (uint8_t)r->nblobs++;
	*ret = (struct block_remote){ .generation = (const uint32_t *)((const uint8_t *)table + REMOTE_HEADER),
				      .chunks = remote_chunks(size, le32_get(h.chunk_shift)), .shift = le32_get(h.chunk_shift) };
	return 0;
}

void remote_shutdown(struct remote *r)
{
	if (!r->ended)
		end(r);
}

void remote_set_block(struct remote *r, struct block *b) { r->b = b; }
int remote_socket(const struct remote *r) { return r->sock; }
int remote_wake_fd(const struct remote *r) { return r->wake_fd; }
