/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-balloon: memory the guest does not need goes back to the host (virtio 1.2, 5.5).
 *
 * Guest contract: queue 0 inflates, queue 1 deflates: lists of 4 KiB page numbers, of which BALLOON_PFNS_MAX per request
 * are looked at. Then, as far as their features were taken, one queue for statistics and one for free page reporting:
 * without gaps, as Linux numbers them. Pages in the balloon, and reported ones, read as zeros when the guest uses
 * them again; the guest need not deflate first. Page poisoning is not offered, so a guest that poisons does not report.
 *
 * How it works: neighbouring pages are discarded by one call. A request for statistics gives the guest's buffer back;
 * the answer is the buffer coming again. After BALLOON_BURST requests the device yields to the rest of the main loop and
 * kicks itself.
 *
 * Threads: queues and host requests in main, the config space on vCPU threads, all under the device lock.
 * Trust: page numbers outside memory are ignored; `actual` and the statistics are claims of the guest.
 * Snapshot: target, actual and the held statistics buffer. Which pages are in the balloon is the guest's knowledge; their
 * contents are zeros like any other.
 */
#include "devices/virtio_balloon.h"

#include <errno.h>
#include <string.h>

#include "devices/virtio.h"
#include "lib/util.h"

enum { BALLOON_PFNS_MAX = 16384, BALLOON_BURST = 64, BALLOON_PFN_SHIFT = 12, BALLOON_CHUNK = 256 };
enum { QUEUE_INFLATE, QUEUE_DEFLATE, QUEUE_STATS, NQUEUES = 4 };

#define F_STATS_VQ (1ull << 1)
#define F_DEFLATE_ON_OOM (1ull << 2)
#define F_REPORTING (1ull << 5)

struct balloon_config {
	le32 num_pages;
	le32 actual;
};

struct balloon_stat {
	le16 tag;
	le64 val;
} __attribute__((packed));
_Static_assert(sizeof(struct balloon_stat) == 10, "virtio 1.2, 5.5.6.3");

#define VIRTIO_BALLOON_STATE(F, A, S, V)                      \
	F(1, 1, u32, num_pages) /* wanted by the host */      \
	F(2, 1, u32, actual)    /* according to the guest */  \
	F(3, 1, u8, stats_held) /* a buffer waits for us */   \
	F(4, 1, u16, stats_head)
STATE_STRUCT(virtio_balloon, VIRTIO_BALLOON_STATE);
#define STATE_SELF struct virtio_balloon_state
STATE_SCHEMA(virtio_balloon, 1, VIRTIO_BALLOON_STATE);
#undef STATE_SELF

struct virtio_balloon {
	struct virtio_device vd;
	struct virtio_balloon_state state;
	uint32_t target; /* pages; outlives the driver's reset */
	bool reporting, keep_on_oom;
	struct balloon_stats stats;
	struct vq_chain chain;
};

struct balloon_options {
	uint64_t target;
	bool no_reporting, keep_on_oom;
};

static const struct opt balloon_options[] = {
	OPT_U64(struct balloon_options, target, "target", 0, "MIB", 0, MEM_MAX >> 20, "ask for this many MiB from the start"),
	OPT_BOOL(struct balloon_options, no_reporting, "no-reporting", 0, "do not let the guest report free pages"),
	OPT_BOOL(struct balloon_options, keep_on_oom, "keep-on-oom", 0, "the guest may not deflate when it runs out of memory"),
	OPT_END,
};

static struct virtio_balloon *from_device(struct device *d)
{
	return container_of(d, struct virtio_balloon, vd.dev);
}

static uint32_t ram_pages(const struct virtio_balloon *b)
{
	return (uint32_t)MIN(b->vd.dev.vm->mem.size >> BALLOON_PFN_SHIFT, (uint64_t)UINT32_MAX);
}

/* Pages [first, first + n), inside memory. */
struct run {
	uint64_t first, n;
};

static void discard(struct virtio_balloon *b, struct run *r)
{
	/* Failure (locked or special host memory) costs the host memory, nothing else. */
	if (r->n)
		mem_discard(&b->vd.dev.vm->mem, GPA(r->first << BALLOON_PFN_SHIFT), r->n << BALLOON_PFN_SHIFT);
	r->n = 0;
}

static void inflate(struct virtio_balloon *b)
{
	struct virtio_queue *q = &b->vd.vq[QUEUE_INFLATE];
	uint64_t left = MIN(b->chain.read_len / sizeof(le32), (uint64_t)BALLOON_PFNS_MAX);
	uint64_t at = 0;
	struct run run = { 0 };

	while (left) {
		le32 pfn[BALLOON_CHUNK];
		size_t n = MIN(left, (uint64_t)BALLOON_CHUNK);

		n = vq_chain_read(q, &b->chain, at, pfn, n * sizeof(le32)) / sizeof(le32);
		if (n == 0)
			break;
		for (size_t i = 0; i < n; i++) {
			uint64_t p = le32_get(pfn[i]);

			if (!mem_contains(q->mem, GPA(p << BALLOON_PFN_SHIFT), 1u << BALLOON_PFN_SHIFT))
				continue;
			/* A run never crosses the hole: its neighbours there are not inside memory. */
			if (run.n && p == run.first + run.n) {
				run.n++;
			} else if (run.n && p + 1 == run.first) {
				run.first--;
				run.n++;
			} else {
				discard(b, &run);
				run = (struct run){ .first = p, .n = 1 };
			}
		}
		at += n * sizeof(le32);
		left -= n;
	}
	discard(b, &run);
}

static void take_report(struct virtio_balloon *b)
{
	const struct vq_buf *buf = b->chain.buf + b->chain.nread;

	for (uint16_t i = 0; i < b->chain.nwrite; i++) {
		uint64_t first = ALIGN_UP(buf[i].gpa.v, 1ull << BALLOON_PFN_SHIFT) >> BALLOON_PFN_SHIFT;
		uint64_t end = (buf[i].gpa.v + buf[i].len) >> BALLOON_PFN_SHIFT;
		struct run run = { .first = first, .n = end > first ? end - first : 0 };

		discard(b, &run);
	}
}

static void take_stats(struct virtio_balloon *b)
{
	struct virtio_queue *q = &b->vd.vq[QUEUE_STATS];
	struct balloon_stat s[BALLOON_STATS];
	size_t n = vq_chain_read(q, &b->chain, 0, s, sizeof(s)) / sizeof(s[0]);

	b->stats = (struct balloon_stats){ 0 };
	for (size_t i = 0; i < n; i++) {
		uint16_t tag = le16_get(s[i].tag);

		if (tag < BALLOON_STATS) {
			b->stats.valid |= 1u << tag;
			b->stats.value[tag] = le64_get(s[i].val);
		}
	}
	/* A driver has one buffer; another one would push the first out. */
	if (b->state.stats_held)
		vq_push(q, b->state.stats_head, 0);
	b->state.stats_held = 1;
	b->state.stats_head = b->chain.head;
}

/* Which of the queues after the first two is it? */
static bool is_stats(struct virtio_device *vd, uint32_t q)
{
	return q == QUEUE_STATS && virtio_has(vd, F_STATS_VQ);
}

static bool is_reporting(struct virtio_device *vd, uint32_t q)
{
	return virtio_has(vd, F_REPORTING) && q == (virtio_has(vd, F_STATS_VQ) ? QUEUE_STATS + 1 : QUEUE_STATS);
}

static void balloon_queue_ready(struct virtio_device *vd, uint32_t qi)
{
	struct virtio_balloon *b = from_device(&vd->dev);
	struct virtio_queue *q = &vd->vq[qi];
	bool stats = is_stats(vd, qi), reporting = is_reporting(vd, qi);
	int served = 0, r;

	if (qi > QUEUE_DEFLATE && !stats && !reporting)
		return;
	do {
		vq_disable_notify(q);
		while ((r = vq_pop(q, &b->chain)) > 0) {
			if (qi == QUEUE_INFLATE)
				inflate(b);
			else if (reporting)
				take_report(b);
			if (stats)
				take_stats(b);
			else
				vq_push(q, b->chain.head, 0);
			if (++served == BALLOON_BURST) {
				virtio_kick(vd, qi);
				virtio_signal_queue(vd, qi);
				return;
			}
		}
	} while (r == 0 && vq_enable_notify(q));
	virtio_signal_queue(vd, qi);
	if (r < 0)
		virtio_fail(vd, "malformed request");
}

static uint64_t balloon_features(struct virtio_device *vd)
{
	const struct virtio_balloon *b = from_device(&vd->dev);

	return F_STATS_VQ | (b->keep_on_oom ? 0 : F_DEFLATE_ON_OOM) | (b->reporting ? F_REPORTING : 0);
}

static uint32_t balloon_nqueues(struct virtio_device *vd)
{
	return from_device(&vd->dev)->reporting ? NQUEUES : NQUEUES - 1;
}

static void balloon_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	const struct virtio_balloon_state *st = &from_device(&vd->dev)->state;
	const struct balloon_config c = { .num_pages = le32_make(st->num_pages), .actual = le32_make(st->actual) };

	memcpy(data, (const char *)&c + offset, len);
}

static void balloon_config_write(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len)
{
	struct virtio_balloon_state *st = &from_device(&vd->dev)->state;
	struct balloon_config c = { .actual = le32_make(st->actual) };

	memcpy((char *)&c + offset, data, len);
	st->actual = le32_get(c.actual);
}

static void balloon_queue_stop(struct virtio_device *vd, uint32_t q)
{
	if (is_stats(vd, q))
		from_device(&vd->dev)->state.stats_held = 0;
}

static int balloon_open(struct device *d, const void *options, struct err *err)
{
	const struct balloon_options *o = options;
	struct virtio_balloon *b = from_device(d);

	b->reporting = !o->no_reporting;
	b->keep_on_oom = o->keep_on_oom;
	return balloon_set_target(d, o->target, err);
}

static void balloon_reset(struct device *d)
{
	struct virtio_balloon *b = from_device(d);

	b->state = (struct virtio_balloon_state){ .num_pages = b->target };
	b->stats = (struct balloon_stats){ 0 };
}

static int balloon_check(struct device *d, struct err *err)
{
	struct virtio_balloon *b = from_device(d);
	const struct virtio_balloon_state *st = &b->state;
	const struct virtio_queue_state *q = &b->vd.common.queues[QUEUE_STATS];

	if (st->num_pages > ram_pages(b))
		return err_set(err, -EINVAL, "a target of %u pages, the VM has %u", st->num_pages, ram_pages(b));
	if (st->stats_held > 1 || (st->stats_held && (!q->ready || st->stats_head >= q->size)))
		return err_set(err, -EINVAL, "statistics buffer %u of %u is impossible", st->stats_head, q->size);
	b->target = st->num_pages;
	return 0;
}

int balloon_set_target(struct device *d, uint64_t mib, struct err *err)
{
	struct virtio_balloon *b = from_device(d);
	uint64_t ram = d->vm->mem.size >> 20;

	if (mib > ram)
		return err_set(err, -EINVAL, "a balloon of %llu MiB: the VM has %llu MiB", (unsigned long long)mib,
			       (unsigned long long)ram);
	device_lock(d);
	b->target = (uint32_t)MIN(mib << (20 - BALLOON_PFN_SHIFT), (uint64_t)ram_pages(b));
	if (b->state.num_pages != b->target) {
		b->state.num_pages = b->target;
		virtio_signal_config(&b->vd);
	}
	device_unlock(d);
	return 0;
}

static uint64_t mib_of(struct device *d, const uint32_t *pages)
{
	uint64_t n;

	device_lock(d);
	n = MIN(*pages, ram_pages(from_device(d)));
	device_unlock(d);
	return n >> (20 - BALLOON_PFN_SHIFT);
}

uint64_t balloon_target(struct device *d)
{
	return mib_of(d, &from_device(d)->state.num_pages);
}

uint64_t balloon_actual(struct device *d)
{
	return mib_of(d, &from_device(d)->state.actual);
}

void balloon_stats(struct device *d, struct balloon_stats *ret)
{
	struct virtio_balloon *b = from_device(d);

	device_lock(d);
	*ret = b->stats;
	if (b->state.stats_held && virtio_queue_live(&b->vd, QUEUE_STATS)) {
		b->state.stats_held = 0;
		vq_push(&b->vd.vq[QUEUE_STATS], b->state.stats_head, 0);
		virtio_signal_queue(&b->vd, QUEUE_STATS);
	}
	device_unlock(d);
}

static const struct virtio_ops balloon_virtio = {
	.device_id = 5,
	.nqueues_max = NQUEUES,
	.queue_size = 128,
	.features = balloon_features,
	.nqueues = balloon_nqueues,
	.config_size = sizeof(struct balloon_config),
	.config_read = balloon_config_read,
	.config_write = balloon_config_write,
	.queue_ready = balloon_queue_ready,
	.queue_stop = balloon_queue_stop,
};

const struct device_ops virtio_balloon_device = {
	.name = "balloon",
	.help = "memory balloon and free page reporting (virtio-balloon)",
	.bus = DEVICE_VIRTIO,
	.instances = 1,
	.instance_size = sizeof(struct virtio_balloon),
	.options = balloon_options,
	.opt_size = sizeof(struct balloon_options),
	.schema = &virtio_balloon_schema,
	.state_offset = offsetof(struct virtio_balloon, state),
	.virtio = &balloon_virtio,
	.open = balloon_open,
	.reset = balloon_reset,
	.check = balloon_check,
};
