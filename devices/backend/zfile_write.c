/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing ZFiles: see zfile.h.
 *
 * Content is collected in jobs of whole blocks. Jobs are numbered, and wait in a ring: the caller's thread fills one and
 * queues it, worker threads compress queued ones in order, and the caller's thread gives finished ones to the sink, in
 * order again, when it needs their place or finds them ready. A block's result depends on the block alone (each is compressed
 * from a fresh state), so the number of threads does not show. With one thread the caller compresses.
 *
 * The header goes out first and cannot know the index's place, which is what the trailer is for. Header, trailer and
 * index have checksums, and each block.
 *
 * Threads and locks: `lock` covers the ring's counters and each job's `done`; a job's buffers belong to who has it: the
 * caller until it is queued and once it is done, a worker between. Trust: content is data; nothing of it is
 * interpreted. For the host side: nothing here is called in a jailed process.
 */
#include <errno.h>
#include <inttypes.h>
#include <lz4.h>
#include <lz4hc.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "devices/backend/zfile_format.h"
#include "lib/fd.h"
#include "lib/util.h"

enum {
	JOB_BYTES = 256 << 10,
	JOB_BLOCKS = JOB_BYTES / ZFILE_BLOCK_MIN,
	INDEX_START = 4096, /* entries */
	ZSTD_LEVEL_DEFAULT = 3,
	ZSTD_LEVEL_MAX = 19,
};

struct job {
	uint8_t *in, *out;
	size_t have, out_len;
	uint32_t stored[JOB_BLOCKS];
	unsigned blocks;
	int error;
	bool done;
};

/* What compresses: one for each thread. */
struct engine {
	struct zfile_writer *w;
	pthread_t thread;
	ZSTD_CCtx *zstd;
	void *lz4;
};

struct zfile_writer {
	struct zfile_options o;
	zfile_sink *sink;
	void *ctx;
	uint64_t size, written;            /* of content; given to the sink */
	uint32_t *index;
	uint64_t blocks, room;
	int error;                         /* the first; nothing works behind it */

	struct engine engine[ZFILE_THREADS_MAX];
	unsigned engines, running;         /* made; threads to join */
	struct job *job;
	unsigned jobs;

	pthread_mutex_t lock;
	pthread_cond_t work, ready;
	uint64_t filling, queued, taken, given; /* numbers of jobs: given <= taken <= queued <= filling */
	bool quit;
};

static int check_options(const struct zfile_options *o, struct zfile_options *ret, struct err *err)
{
	bool lz4 = o->algo == ZFILE_LZ4;
	int most = lz4 ? LZ4HC_CLEVEL_MAX : ZSTD_LEVEL_MAX;

	*ret = *o;
	if (!lz4 && o->algo != ZFILE_ZSTD)
		return err_set(err, -EINVAL, "compression %d is not known", (int)o->algo);
	if (o->level < 0 || o->level > most)
		return err_set(err, -EINVAL, "level %d: %s has levels 1 to %d", o->level, lz4 ? "LZ4" : "zstd", most);
	if (o->block_size &&
	    (!IS_POWER_OF_2(o->block_size) || o->block_size < ZFILE_BLOCK_MIN || o->block_size > ZFILE_BLOCK_MAX))
		return err_set(err, -EINVAL, "blocks of %u bytes: a power of two from %d to %d can be", o->block_size,
			       ZFILE_BLOCK_MIN, ZFILE_BLOCK_MAX);
	if (o->threads > ZFILE_THREADS_MAX)
		return err_set(err, -EINVAL, "%u threads: %d at most", o->threads, ZFILE_THREADS_MAX);
	if (!o->level)
		ret->level = lz4 ? 1 : ZSTD_LEVEL_DEFAULT;
	if (!o->block_size)
		ret->block_size = ZFILE_BLOCK_DEFAULT;
	if (!o->threads) {
		long n = sysconf(_SC_NPROCESSORS_ONLN);

		ret->threads = n < 1 ? 1 : (unsigned)MIN(n, (long)ZFILE_THREADS_MAX);
	}
	return 0;
}

/* The bytes of one block in `out`, which has room for what zfile_stored_limit says; 0: it did not work. */
static uint32_t compress_block(const struct engine *e, const uint8_t *in, size_t n, uint8_t *out, size_t room)
{
	const struct zfile_options *o = &e->w->o;
	size_t got;

	room -= ZFILE_CRC_BYTES;
	if (o->algo == ZFILE_ZSTD) {
		got = ZSTD_compress2(e->zstd, out, room, in, n);
		if (ZSTD_isError(got))
			return 0;
	} else {
		int r = o->level < 3 ? LZ4_compress_fast_extState(e->lz4, (const char *)in, (char *)out, (int)n, (int)room, 1)
				     : LZ4_compress_HC_extStateHC(e->lz4, (const char *)in, (char *)out, (int)n, (int)room,
								  o->level);
		if (r <= 0)
			return 0;
		got = (size_t)r;
	}
	le32_store(out + got, zfile_crc(ZFILE_CRC_SEED_BLOCK, out, got));
	return (uint32_t)got + ZFILE_CRC_BYTES;
}

static void compress_job(const struct engine *e, struct job *j)
{
	uint32_t bs = e->w->o.block_size;

	j->out_len = 0;
	j->blocks = 0;
	j->error = 0;
	for (size_t at = 0; at < j->have; at += bs) {
		uint32_t n = compress_block(e, j->in + at, MIN((size_t)bs, j->have - at), j->out + j->out_len,
					    zfile_stored_limit(bs));

		if (!n) {
			j->error = -EIO;
			return;
		}
		j->stored[j->blocks++] = n;
		j->out_len += n;
	}
}

static void *engine_main(void *arg)
{
	const struct engine *e = arg;
	struct zfile_writer *w = e->w;

	pthread_mutex_lock(&w->lock);
	while (!w->quit) {
		struct job *j;

		if (w->taken == w->queued) {
			pthread_cond_wait(&w->work, &w->lock);
			continue;
		}
		j = &w->job[w->taken++ % w->jobs];
		pthread_mutex_unlock(&w->lock);
		compress_job(e, j);
		pthread_mutex_lock(&w->lock);
		j->done = true;
		pthread_cond_signal(&w->ready);
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static int engine_init(struct engine *e, struct zfile_writer *w)
{
	e->w = w;
	if (w->o.algo == ZFILE_LZ4) {
		e->lz4 = malloc((size_t)(w->o.level < 3 ? LZ4_sizeofState() : LZ4_sizeofStateHC()));
		return e->lz4 ? 0 : -ENOMEM;
	}
	e->zstd = ZSTD_createCCtx();
	if (!e->zstd || ZSTD_isError(ZSTD_CCtx_setParameter(e->zstd, ZSTD_c_compressionLevel, w->o.level)))
		return -ENOMEM;
	return 0;
}

/* Threads take no signals: they are the caller's business. */
static int start_threads(struct zfile_writer *w)
{
	sigset_t all, old;
	int r = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (r == 0 && w->running < w->engines) {
		r = -pthread_create(&w->engine[w->running].thread, NULL, engine_main, &w->engine[w->running]);
		if (r == 0)
			w->running++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return r;
}

static int give(struct zfile_writer *w, const void *buf, size_t n, struct err *err)
{
	int r = w->sink(w->ctx, buf, n);

	if (r < 0)
		return err_errno(err, r, "write a compressed layer at %" PRIu64, w->written);
	w->written += n;
	return 0;
}

static int give_head(struct zfile_writer *w, const struct zfile_head *h, struct err *err)
{
	uint8_t p[ZFILE_SPACE];

	zfile_head_encode(h, p);
	return give(w, p, sizeof(p), err);
}

/* What header and trailer have in common. */
static struct zfile_head head_of(const struct zfile_writer *w)
{
	return (struct zfile_head){
		.flags = ZFILE_FLAG_DATA | ZFILE_FLAG_DIGEST,
		.block_size = w->o.block_size,
		.algo = (uint8_t)w->o.algo,
		.level = (uint8_t)w->o.level,
		.verify = 1,
	};
}

int zfile_writer_open(const struct zfile_options *o, zfile_sink *sink, void *ctx, struct zfile_writer **ret,
		      struct err *err)
{
	struct zfile_options full;
	struct zfile_writer *w;
	struct zfile_head h;
	size_t blocks;
	int r = check_options(o, &full, err);

	if (r < 0)
		return r;
	w = calloc(1, sizeof(*w));
	if (!w)
		return err_errno(err, -ENOMEM, "compress");
	w->o = full;
	w->sink = sink;
	w->ctx = ctx;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->ready, NULL);
	w->jobs = full.threads == 1 ? 1 : 2 * full.threads;
	w->job = calloc(w->jobs, sizeof(*w->job));
	w->room = INDEX_START;
	w->index = malloc(w->room * sizeof(*w->index));
	if (!w->job || !w->index)
		r = -ENOMEM;
	blocks = JOB_BYTES / full.block_size;
	for (unsigned i = 0; r == 0 && i < w->jobs; i++) {
		w->job[i].in = malloc(JOB_BYTES);
		w->job[i].out = malloc(blocks * zfile_stored_limit(full.block_size));
		if (!w->job[i].in || !w->job[i].out)
			r = -ENOMEM;
	}
	while (r == 0 && w->engines < full.threads)
		r = engine_init(&w->engine[w->engines++], w);
	if (r == 0 && full.threads > 1)
		r = start_threads(w);
	if (r < 0) {
		err_errno(err, r, "compress with %u threads", full.threads);
	} else {
		h = head_of(w);
		h.flags |= ZFILE_FLAG_HEADER;
		r = give_head(w, &h, err);
	}
	if (r < 0) {
		zfile_writer_free(w);
		return r;
	}
	*ret = w;
	return 0;
}

static int add_index(struct zfile_writer *w, const struct job *j, struct err *err)
{
	if (w->blocks + j->blocks > ZFILE_BLOCKS_MAX)
		return err_set(err, -EFBIG, "compress: more than %d blocks of %u bytes: take larger blocks", ZFILE_BLOCKS_MAX,
			       w->o.block_size);
	if (w->blocks + j->blocks > w->room) {
		uint32_t *more = realloc(w->index, 2 * w->room * sizeof(*more));

		if (!more)
			return err_errno(err, -ENOMEM, "compress: an index of %" PRIu64 " blocks", 2 * w->room);
		w->index = more;
		w->room *= 2;
	}
	for (unsigned i = 0; i < j->blocks; i++)
		le32_store(&w->index[w->blocks++], j->stored[i]);
	return 0;
}

/* Give the oldest queued job to the sink. */
static int give_job(struct zfile_writer *w, struct err *err)
{
	struct job *j = &w->job[w->given % w->jobs];
	int r;

	if (j->error)
		return err_errno(err, j->error, "compress content at %" PRIu64, w->blocks * w->o.block_size);
	r = add_index(w, j, err);
	if (r == 0)
		r = give(w, j->out, j->out_len, err);
	j->done = false;
	j->have = 0;
	w->given++;
	return r;
}

/* Give what is ready; wait until no more than `most` jobs are under way. */
static int drain(struct zfile_writer *w, unsigned most, struct err *err)
{
	int r = 0;

	while (r == 0 && w->given < w->filling) {
		bool done;

		pthread_mutex_lock(&w->lock);
		while (!w->job[w->given % w->jobs].done && w->filling - w->given > most)
			pthread_cond_wait(&w->ready, &w->lock);
		done = w->job[w->given % w->jobs].done;
		pthread_mutex_unlock(&w->lock);
		if (!done)
			break;
		r = give_job(w, err);
	}
	return r;
}

/* The job being filled is whole, or the last. */
static int queue(struct zfile_writer *w, struct err *err)
{
	struct job *j = &w->job[w->filling % w->jobs];

	w->size += j->have;
	w->filling++;
	if (w->o.threads == 1) {
		compress_job(&w->engine[0], j);
		return give_job(w, err);
	}
	pthread_mutex_lock(&w->lock);
	w->queued = w->filling;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	return drain(w, w->jobs - 1, err);
}

int zfile_writer_write(struct zfile_writer *w, const void *buf, size_t n, struct err *err)
{
	const uint8_t *p = buf;

	if (w->error)
		return err_errno(err, w->error, "compress: it failed before");
	while (n) {
		struct job *j = &w->job[w->filling % w->jobs];
		size_t part = MIN(n, JOB_BYTES - j->have);

		memcpy(j->in + j->have, p, part);
		j->have += part;
		p += part;
		n -= part;
		if (j->have == JOB_BYTES)
			w->error = queue(w, err);
		if (w->error)
			return w->error;
	}
	return 0;
}

static int finish(struct zfile_writer *w, struct err *err)
{
	struct zfile_head h = head_of(w);
	size_t bytes;
	int r = 0;

	if (w->job[w->filling % w->jobs].have)
		r = queue(w, err);
	if (r == 0)
		r = drain(w, 0, err);
	if (r < 0)
		return r;
	if (!w->size)
		return err_set(err, -EINVAL, "compress: there is no content");
	bytes = w->blocks * sizeof(*w->index);
	h.flags |= ZFILE_FLAG_SEALED;
	h.index_offset = w->written;
	h.blocks = w->blocks;
	h.size = w->size;
	h.index_crc = zfile_crc(0, w->index, bytes);
	r = give(w, w->index, bytes, err);
	return r < 0 ? r : give_head(w, &h, err);
}

int zfile_writer_finish(struct zfile_writer *w, uint64_t *ret_size, struct err *err)
{
	if (w->error)
		return err_errno(err, w->error, "compress: it failed before");
	w->error = finish(w, err);
	if (w->error)
		return w->error;
	w->error = -EINVAL;
	if (ret_size)
		*ret_size = w->written;
	return 0;
}

void zfile_writer_free(struct zfile_writer *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->quit = true;
	pthread_cond_broadcast(&w->work);
	pthread_mutex_unlock(&w->lock);
	for (unsigned i = 0; i < w->running; i++)
		pthread_join(w->engine[i].thread, NULL);
	for (unsigned i = 0; i < w->engines; i++) {
		ZSTD_freeCCtx(w->engine[i].zstd);
		free(w->engine[i].lz4);
	}
	for (unsigned i = 0; w->job && i < w->jobs; i++) {
		free(w->job[i].in);
		free(w->job[i].out);
	}
	pthread_cond_destroy(&w->ready);
	pthread_cond_destroy(&w->work);
	pthread_mutex_destroy(&w->lock);
	free(w->job);
	free(w->index);
	free(w);
}
