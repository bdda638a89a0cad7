/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend: layers that are not simply a file: compressed ones (ZFile), wrapped ones (a tar around the layer)
 * and remote ones, whose bytes may not have arrived yet. Any of it can come together.
 *
 * Compressed: the unit is a block of the ZFile, and LAYERS_SLOTS of them are kept decompressed, the newest use first, so that
 * small reads in a row decompress each block once. A read of a block that is in a slot is copied at once, in the thread that
 * calls; one that is being decompressed is waited for with the others that want it; else a slot is found (without one the
 * part is `hungry`) and a thread reads the stored bytes, checks and decompresses them into the slot. Only whole and
 * checked blocks are ever copied from.
 *
 * Wrapped or remote, and not compressed: the I/O engine reads the cache file, one element of the iovec at a time.
 *
 * Remote: a read looks at the generation of each chunk it needs, reads, and looks again: when one has changed, the bytes may have
 * been those of a chunk that was just evicted, and it begins anew. Missing chunks are asked for, and the part is `parked`
 * without anything else waiting for it (while there are parts, LAYERS_SUBS), until block_layers_arrived.
 *
 * Damage: the read fails with -EIO and block.fault says where.
 *
 * Threads: all state here is under the caller's lock, like everything of the disk; a worker has the slot it works on to
 * itself, and one context and buffer by its number. Trust: layers and generations are hostile.
 */
/* syscalls(main, worker): pread64 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "devices/backend/block_layers.h"
#include "lib/fd.h"
#include "lib/util.h"

static uint64_t chunk_of(const struct layers_source *s, uint64_t off)
{
	return off >> s->remote.shift;
}

/* ---- generations ---- */

/* Is all of [off, off + len) there? gen: of its chunks, LAYERS_GENERATIONS at most. */
static bool present(const struct layers_source *s, uint64_t off, uint64_t len, uint32_t *gen)
{
	uint64_t first = chunk_of(s, off), last = chunk_of(s, off + len - 1);
	bool all = true;

	for (uint64_t c = first; s->remote.generation && c <= last; c++) {
		gen[c - first] = __atomic_load_n(&s->remote.generation[c], __ATOMIC_ACQUIRE);
		all &= gen[c - first] != 0;
	}
	return all;
}

/* After the bytes were read. */
static bool unchanged(const struct layers_source *s, uint64_t off, uint64_t len, const uint32_t *gen)
{
	uint64_t first = chunk_of(s, off), last = chunk_of(s, off + len - 1);

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	for (uint64_t c = first; s->remote.generation && c <= last; c++)
		if (__atomic_load_n(&s->remote.generation[c], __ATOMIC_ACQUIRE) != gen[c - first])
			return false;
	return true;
}

static void want(struct block_layers *l, struct layers_source *s, uint64_t off, uint64_t len)
{
	for (uint64_t c = chunk_of(s, off); c <= chunk_of(s, off + len - 1); c++) {
		uint8_t *asked = &s->asked[c / 8], bit = (uint8_t)(1u << c % 8);

		if ((*asked & bit) || __atomic_load_n(&s->remote.generation[c], __ATOMIC_ACQUIRE))
			continue;
		*asked |= bit;
		l->slow.ops->want(l->slow.ops_ctx, s->number, c);
	}
}

static void say(struct block_layers *l, const struct layers_source *s, const char *what, uint64_t n, int error)
{
	char name[24] = "base";

	if (l->b.fault[0])
		return;
	if (s->number != BLOCK_LAYER_BASE)
		snprintf(name, sizeof(name), "layer %u", s->number + 1);
	snprintf(l->b.fault, sizeof(l->b.fault), "%s: %s %" PRIu64 " cannot be read: %s", name, what, n,
		 error == -EBADMSG ? "it is damaged" : strerror(-error));
}

/* ---- compressed ---- */

static void copy_out(const struct layers_sub *s, const uint8_t *p)
{
	for (int i = 0; i < s->req.niov; i++) {
		memcpy(s->req.iov[i].iov_base, p, s->req.iov[i].iov_len);
		p += s->req.iov[i].iov_len;
	}
}

static void serve(struct layers_slot *t, int error)
{
	struct layers_sub *s = t->waiters, *next;

	t->waiters = NULL;
	for (; s; s = next) {
		struct block_request *parent = s->parent;
		int result = error ? -EIO : 0;

		next = s->next_wait;
		if (!error && s->slow_off + s->req.len <= t->size)
			copy_out(s, t->content + s->slow_off);
		else
			result = -EIO;
		layers_sub_put(s);
		layers_part_done(parent, result);
	}
}

/* In a thread of its own. */
static int slot_work(struct block_request *job, unsigned thread)
{
	struct layers_slot *t = container_of(job, struct layers_slot, job);
	struct layers_slow *w = &t->l->slow;
	const struct layers_source *s = t->source;
	ssize_t n = fd_pread_full(s->fd, w->stored[thread], t->range.len, (off_t)t->range.off);

	if (!unchanged(s, t->range.off, t->range.len, t->gen))
		return -EAGAIN;
	if (n != (ssize_t)t->range.len)
		return n < 0 ? (int)n : -EIO;
	n = zfile_decode(s->z, w->ctx[thread], t->block, w->stored[thread], t->range.len, t->content);
	if (n < 0)
		return (int)n;
	t->size = (uint32_t)n;
	return 0;
}

static void compressed_start(struct layers_sub *sub);

/* Parts that wait for a slot look again. */
static void feed(struct block_layers *l)
{
	struct layers_sub *s = l->slow.hungry, *next;

	l->slow.hungry = NULL;
	for (; s; s = next) {
		next = s->next_wait;
		compressed_start(s);
	}
}

static void on_job(struct block_request *job, int result)
{
	struct layers_slot *t = container_of(job, struct layers_slot, job);
	struct block_layers *l = t->l;
	struct layers_sub *s = t->waiters, *next;

	t->state = result < 0 ? LAYERS_SLOT_FREE : LAYERS_SLOT_VALID;
	l->again = true;
	if (result == -EAGAIN) {
		t->waiters = NULL;
		for (; s; s = next) {
			next = s->next_wait;
			compressed_start(s);
		}
	} else {
		if (result < 0)
			say(l, t->source, "compressed block", t->block, result);
		serve(t, result);
	}
	feed(l);
}

/* The slot of a block, or one that could become it. NULL: none is free. */
static struct layers_slot *slot_find(struct block_layers *l, const struct layers_source *s, uint64_t block)
{
	struct layers_slot *oldest = NULL;

	for (int i = 0; i < LAYERS_SLOTS; i++) {
		struct layers_slot *t = &l->slow.slot[i];

		if (t->state != LAYERS_SLOT_FREE && t->source == s && t->block == block)
			return t;
		if (t->state == LAYERS_SLOT_FREE)
			t->used = 0;
		if ((t->state == LAYERS_SLOT_FREE || t->state == LAYERS_SLOT_VALID) && (!oldest || t->used < oldest->used))
			oldest = t;
	}
	return oldest;
}

static void park(struct layers_sub **list, struct layers_sub *sub)
{
	sub->next_wait = *list;
	*list = sub;
}

static void compressed_start(struct layers_sub *sub)
{
	struct block_layers *l = sub->l;
	struct layers_source *s = sub->source;
	struct layers_slot *t = slot_find(l, s, sub->block);
	bool ours = t && t->state != LAYERS_SLOT_FREE && t->source == s && t->block == sub->block;

	if (!ours && !present(s, sub->range.off, sub->range.len, sub->gen)) {
		park(&l->slow.parked, sub);
		want(l, s, sub->range.off, sub->range.len);
		return;
	}
	if (!t) {
		park(&l->slow.hungry, sub);
		return;
	}
	park(&t->waiters, sub);
	t->used = ++l->slow.clock;
	if (ours && t->state == LAYERS_SLOT_VALID) {
		serve(t, 0);
	} else if (!ours) {
		t->source = s;
		t->block = sub->block;
		t->range = sub->range;
		memcpy(t->gen, sub->gen, sizeof(t->gen));
		t->state = LAYERS_SLOT_BUSY;
		t->job = (struct block_request){ .op = BLOCK_READ, .work = slot_work, .done = on_job };
		l->slow.io->ops->submit(l->slow.io, &t->job);
	}
}

static int64_t read_compressed(struct block_layers *l, struct block_request *r, struct layers_source *s, uint64_t off,
			       uint64_t len)
{
	uint32_t bs = zfile_info(s->z)->block_size;
	struct layers_sub *sub = layers_sub_get(l);
	uint64_t n;

	if (!sub)
		return 0;
	n = layers_take_iov(sub, r, MIN(len, bs - off % bs));
	if (n == 0 || zfile_locate(s->z, off, 1, &sub->range) < 0 || sub->range.len > ZFILE_STORED_MAX) {
		layers_sub_put(sub);
		return -EIO;
	}
	sub->parent = r;
	sub->source = s;
	sub->req.len = n;
	sub->block = off / bs;
	sub->slow_off = off % bs;
	r->parts++;
	compressed_start(sub);
	return (int64_t)n;
}

/* ---- not compressed ---- */

static void on_raw(struct block_request *req, int result);

static void raw_start(struct layers_sub *sub)
{
	struct block_layers *l = sub->l;
	struct layers_source *s = sub->source;

	if (!present(s, sub->range.off, sub->range.len, sub->gen)) {
		park(&l->slow.parked, sub);
		want(l, s, sub->range.off, sub->range.len);
		return;
	}
	sub->iov = sub->whole;
	sub->req = (struct block_request){ .op = BLOCK_READ, .offset = sub->range.off, .len = sub->range.len,
					   .file = s->place, .iov = &sub->iov, .niov = 1, .done = on_raw };
	l->io->ops->submit(l->io, &sub->req);
}

static void sub_end(struct layers_sub *sub, int result)
{
	struct block_request *parent = sub->parent;

	if (result < 0)
		say(sub->l, sub->source, "byte", sub->range.off, result);
	layers_sub_put(sub);
	layers_part_done(parent, result < 0 ? -EIO : 0);
}

static void on_raw(struct block_request *req, int result)
{
	struct layers_sub *sub = container_of(req, struct layers_sub, req);

	if (!unchanged(sub->source, sub->range.off, sub->range.len, sub->gen)) {
		raw_start(sub);
		sub->l->again = true;
	} else {
		sub_end(sub, result);
	}
}

static int64_t read_raw(struct block_layers *l, struct block_request *r, struct layers_source *s, uint64_t off, uint64_t len)
{
	struct layers_sub *sub;
	uint64_t n;

	while (r->niov && r->iov->iov_len == 0) {
		r->iov++;
		r->niov--;
	}
	if (r->niov == 0)
		return -EIO;
	sub = layers_sub_get(l);
	if (!sub)
		return 0;
	n = layers_take_iov(sub, r,
			    MIN(MIN(len, (uint64_t)r->iov->iov_len), (uint64_t)(LAYERS_GENERATIONS - 1) << s->remote.shift));
	sub->whole = sub->req.iov[0];
	sub->parent = r;
	sub->source = s;
	sub->range = (struct zfile_range){ s->start + off, n };
	r->parts++;
	raw_start(sub);
	return (int64_t)n;
}

int64_t layers_source_read(struct block_layers *l, struct block_request *r, struct layers_source *s, uint64_t off,
			   uint64_t len)
{
	return s->z ? read_compressed(l, r, s, off, len) : read_raw(l, r, s, off, len);
}

/* ---- arriving ---- */

static bool needs(const struct layers_sub *sub, uint64_t chunk)
{
	return chunk >= chunk_of(sub->source, sub->range.off) && chunk <= chunk_of(sub->source, sub->range.off + sub->range.len - 1);
}

/* s NULL: whatever waits fails. */
static void wake(struct block_layers *l, const struct layers_source *s, uint64_t chunk, int result)
{
	struct layers_sub *sub = l->slow.parked, *next;

	l->slow.parked = NULL;
	for (; sub; sub = next) {
		next = sub->next_wait;
		if (s && (sub->source != s || !needs(sub, chunk)))
			park(&l->slow.parked, sub);
		else if (result < 0)
			sub_end(sub, result);
		else if (sub->source->z)
			compressed_start(sub);
		else
			raw_start(sub);
	}
}

void block_layers_arrived(struct block *b, unsigned layer, uint64_t chunk, int result)
{
	struct block_layers *l = layers_of(b);
	struct layers_source *s;

	if (layer > BLOCK_LAYER_BASE)
		return;
	s = l->source[layer == BLOCK_LAYER_BASE ? LAYERS_FILE_BASE : LAYERS_FILE_TAG0 + layer];
	if (!s || !s->remote.generation || chunk >= s->remote.chunks)
		return;
	s->asked[chunk / 8] &= (uint8_t)~(1u << chunk % 8);
	if (result < 0)
		s->failed = result;
	if (!l->attached)
		return;
	wake(l, s, chunk, result);
	layers_run(l);
}

void layers_source_wait(struct block_layers *l)
{
	if (!l->slow.parked || l->slow.ops->wait(l->slow.ops_ctx) == 0)
		return;
	/* Nothing that was asked for will come: the next read asks anew. */
	for (unsigned i = 0; i < LAYERS_SOURCES; i++)
		if (l->source[i] && l->source[i]->asked)
			memset(l->source[i]->asked, 0, l->source[i]->remote.chunks / 8 + 1);
	wake(l, NULL, 0, -EIO);
}

/* ---- attaching ---- */

/* Of the blob, in order, waiting for what is missing. */
static ssize_t read_at(void *ctx, void *buf, size_t n, uint64_t off)
{
	struct layers_source *s = ctx;
	size_t done = 0;

	while (done < n) {
		uint64_t at = off + done;
		size_t part = MIN(n - done, (size_t)(LAYERS_GENERATIONS - 1) << s->remote.shift);
		uint32_t gen[LAYERS_GENERATIONS];
		ssize_t got;

		if (at >= s->size)
			break;
		part = MIN(part, s->size - at);
		while (!present(s, at, part, gen)) {
			struct layers_slow *w = &s->l->slow;
			int r;

			s->failed = 0;
			want(s->l, s, at, part);
			r = w->ops->wait(w->ops_ctx);
			if (r < 0 || s->failed)
				return r < 0 ? r : s->failed;
		}
		got = fd_pread_full(s->fd, (uint8_t *)buf + done, part, (off_t)at);
		if (!unchanged(s, at, part, gen))
			continue;
		if (got < 0)
			return got;
		done += (size_t)got;
		if ((size_t)got < part)
			break;
	}
	return (ssize_t)done;
}

/* Of what is in it. */
static ssize_t read_content(void *ctx, void *buf, size_t n, uint64_t off)
{
	struct layers_source *s = ctx;

	return s->z ? zfile_pread(s->z, s->l->slow.ctx[0], buf, n, off) : read_at(s, buf, n, s->start + off);
}

static int make_slots(struct block_layers *l, struct err *err)
{
	struct layers_slow *w = &l->slow;
	bool ok = true;

	if (w->slot)
		return 0;
	for (int i = 0; i < LAYERS_THREADS; i++) {
		w->ctx[i] = zfile_ctx_create();
		w->stored[i] = malloc(ZFILE_STORED_MAX);
		ok &= w->ctx[i] && w->stored[i];
	}
	w->content = mmap(NULL, (size_t)LAYERS_SLOTS * ZFILE_BLOCK_MAX, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (w->content == MAP_FAILED)
		w->content = NULL;
	w->slot = calloc(LAYERS_SLOTS, sizeof(*w->slot));
	if (!ok || !w->content || !w->slot)
		return err_errno(err, -ENOMEM, "room for compressed layers");
	for (int i = 0; i < LAYERS_SLOTS; i++) {
		w->slot[i].l = l;
		w->slot[i].content = w->content + (size_t)i * ZFILE_BLOCK_MAX;
	}
	return 0;
}

static int check_remote(const struct layers_source *s, const struct block_stack *stack, const char *name, struct err *err)
{
	if (!stack->remote_ops)
		return err_set(err, -EINVAL, "%s: remote, and nobody fetches", name);
	if (s->remote.shift < BLOCK_REMOTE_SHIFT_MIN || s->remote.shift > BLOCK_REMOTE_SHIFT_MAX)
		return err_set(err, -EINVAL, "%s: chunks of 2^%u bytes; 2^%d to 2^%d are possible", name, s->remote.shift,
			       BLOCK_REMOTE_SHIFT_MIN, BLOCK_REMOTE_SHIFT_MAX);
	if (s->remote.chunks < (s->size >> s->remote.shift) + ((s->size & ((1ull << s->remote.shift) - 1)) != 0))
		return err_set(err, -EINVAL, "%s: %" PRIu64 " generations are too few for its %" PRIu64 " bytes", name,
			       s->remote.chunks, s->size);
	return 0;
}

int layers_source_open(struct block_layers *l, const struct block_stack *stack, unsigned number, int fd, uint64_t size,
		       const char *name, struct lsmt_bytes *ret, struct err *err)
{
	uint16_t place = number == BLOCK_LAYER_BASE ? LAYERS_FILE_BASE : (uint16_t)(LAYERS_FILE_TAG0 + number);
	struct layers_source *s = calloc(1, sizeof(*s));
	struct zfile_source blob = { .read_at = read_at, .ctx = s, .size = size };
	int r = 0;

	if (!s)
		return err_errno(err, -ENOMEM, "%s", name);
	*s = (struct layers_source){ .l = l, .place = place, .number = (uint16_t)number, .fd = fd, .size = size };
	layers_source_close(l, place);
	l->source[place] = s;
	if (stack->remote)
		s->remote = stack->remote[number == BLOCK_LAYER_BASE ? stack->nlayers : (int)number];
	if (!s->remote.generation)
		s->remote.shift = BLOCK_REMOTE_SHIFT_MAX; /* reads are cut by it */
	if (s->remote.generation) {
		l->slow.ops = stack->remote_ops;
		l->slow.ops_ctx = stack->remote_ctx;
		s->asked = calloc(s->remote.chunks / 8 + 1, 1);
		r = s->asked ? check_remote(s, stack, name, err) : err_errno(err, -ENOMEM, "%s", name);
	}
	if (r == 0 && number != BLOCK_LAYER_BASE) {
		r = zfile_unwrap(&blob, name, err);
		s->start = blob.start;
		if (r == 0) {
			r = zfile_probe(&blob);
			if (r < 0)
				return err_errno(err, r, "%s: read its beginning", name);
		}
		if (r > 0)
			r = make_slots(l, err);
		if (r == 0 && zfile_probe(&blob) > 0)
			r = zfile_open(&blob, name, &s->z, err);
	}
	if (r < 0)
		return r;
	*ret = (struct lsmt_bytes){ .read_at = read_content, .ctx = s, .size = s->z ? zfile_info(s->z)->size : blob.size };
	return 0;
}

void layers_source_settle(struct block_layers *l, unsigned place)
{
	const struct layers_source *s = l->source[place];

	if (s && !s->z && !s->start && !s->remote.generation)
		layers_source_close(l, place);
}

void layers_source_close(struct block_layers *l, unsigned place)
{
	struct layers_source *s = l->source[place];

	if (!s)
		return;
	zfile_close(s->z);
	free(s->asked);
	free(s);
	l->source[place] = NULL;
}

void layers_slow_finish(struct block_layers *l)
{
	struct layers_slow *w = &l->slow;

	for (unsigned i = 0; i < LAYERS_SOURCES; i++)
		layers_source_close(l, i);
	for (int i = 0; i < LAYERS_THREADS; i++) {
		zfile_ctx_destroy(w->ctx[i]);
		free(w->stored[i]);
	}
	if (w->content)
		munmap(w->content, (size_t)LAYERS_SLOTS * ZFILE_BLOCK_MAX);
	free(w->slot);
}
