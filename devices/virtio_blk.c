/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-blk: a disk (virtio 1.2, 5.2).
 *
 * Guest contract: 1 to 8 request queues of 256; reads, writes, flush, discard, write zeroes (with unmap), serial number;
 * capacity changes are announced by the configuration interrupt. The write cache can be switched by the driver
 * (CONFIG_WCE); without FLUSH negotiated each write is on stable storage before it completes.
 *
 * How it works: requests are in virtio_blk_request.c, the bytes in a backend (backend/block.h), whose completions
 * arrive by an eventfd in the main loop.
 *
 * Threads: main under the device lock; a reset (a vCPU thread) waits for the requests in flight, since the kernel may be
 * writing their data into guest memory; what they did is not reported. The wait is as long as the host's storage takes.
 * Trust: see the request file; restored state is checked against the disk that is there now.
 * Snapshot: capacity, cache mode, serial. quiesce drains, so no request is ever saved. The disk's contents are the
 * snapshot's business.
 */
/* syscalls(main): read write */
#include "devices/virtio_blk.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "devices/backend/lsmt.h"
#include "devices/backend/remote.h"
#include "lib/util.h"

#define STATE_SELF struct virtio_blk_state
STATE_SCHEMA(virtio_blk, 1, VIRTIO_BLK_STATE);
#undef STATE_SELF

struct blk_options {
	char *path;
	bool ro;
	char *serial;
	uint64_t queues;
	char *cache;
	char *aio;
	char *backend;
	uint64_t size;
	char *layers, *base, *top, *remote;
};

static const struct opt blk_options[] = {
	OPT_STRING(struct blk_options, path, "path", 0, "FILE", "disk image or block device"),
	OPT_BOOL(struct blk_options, ro, "ro", 0, "read-only; the file can then be shared with other VMs"),
	OPT_STRING(struct blk_options, serial, "serial", 0, "ID", "serial number the guest sees, up to 20 characters"),
	OPT_U64(struct blk_options, queues, "queues", 0, "N", 1, BLK_QUEUES_MAX, "request queues (1)"),
	OPT_STRING(struct blk_options, cache, "cache", 0, "MODE",
		   "writeback (default), writethrough, none (O_DIRECT), or unsafe (flush does nothing)"),
	OPT_STRING(struct blk_options, aio, "aio", 0, "HOW", "io_uring or threads (default: io_uring where it works)"),
	OPT_STRING(struct blk_options, backend, "backend", 0, "NAME", "file (default), layers, memory, or null (reads zeros)"),
	OPT_SIZE(struct blk_options, size, "size", 0, "SIZE", BLOCK_SECTOR, 1ull << 62, 1,
		 "size of a memory or null disk, or of one whose layers come later"),
	OPT_STRING(struct blk_options, layers, "layers", 0, "FD:FD...",
		   "sealed layers, lowest first, by inherited descriptors; FD~FD: a remote one, the cache's data and table"),
	OPT_STRING(struct blk_options, base, "base", 0, "FD", "raw image below all layers"),
	OPT_STRING(struct blk_options, top, "top", 0, "FD:FD", "writable layer: data file and index file"),
	OPT_STRING(struct blk_options, remote, "remote", 0, "FD", "socket of the fetcher of remote layers"),
	OPT_END,
};

static struct virtio_blk *from_device(struct device *d)
{
	return container_of(d, struct virtio_blk, vd.dev);
}

bool virtio_blk_is_writeback(const struct virtio_blk *blk)
{
	const struct virtio_device *vd = &blk->vd;

	if (virtio_has(vd, VIRTIO_BLK_F_CONFIG_WCE) && blk->state.writeback != BLK_WRITEBACK_UNSET)
		return blk->state.writeback;
	return virtio_has(vd, VIRTIO_BLK_F_FLUSH) && !blk->host.block->writethrough;
}

static uint64_t blk_features(struct virtio_device *vd)
{
	const struct virtio_blk *blk = virtio_blk_from(vd);
	uint64_t f = VIRTIO_BLK_F_SEG_MAX | VIRTIO_BLK_F_BLK_SIZE | VIRTIO_BLK_F_TOPOLOGY | VIRTIO_BLK_F_FLUSH;

	if (blk->host.nqueues > 1)
		f |= VIRTIO_BLK_F_MQ;
	if (blk->host.block->ro)
		return f | VIRTIO_BLK_F_RO;
	return f | VIRTIO_BLK_F_CONFIG_WCE | VIRTIO_BLK_F_DISCARD | VIRTIO_BLK_F_WRITE_ZEROES;
}

static uint32_t blk_nqueues(struct virtio_device *vd)
{
	return virtio_blk_from(vd)->host.nqueues;
}

static void blk_config_read(struct virtio_device *vd, uint32_t offset, void *data, uint32_t len)
{
	const struct virtio_blk *blk = virtio_blk_from(vd);
	struct virtio_blk_config c = {
		.capacity = le64_make(blk->state.capacity),
		.seg_max = le32_make(BLK_SEG_MAX),
		.blk_size = le32_make(BLOCK_SECTOR),
		.physical_block_exp = 3, /* 4 KiB */
		.min_io_size = le16_make(BLK_PHYSICAL_BLOCK / BLOCK_SECTOR),
		.writeback = virtio_blk_is_writeback(blk),
		.num_queues = le16_make(blk->host.nqueues),
	};

	if (!blk->state.read_only) {
		c.max_discard_sectors = le32_make(BLK_DISCARD_SECTORS_MAX);
		c.max_discard_seg = le32_make(BLK_RANGES_MAX);
		c.discard_sector_alignment = le32_make(BLK_PHYSICAL_BLOCK / BLOCK_SECTOR);
		c.max_write_zeroes_sectors = le32_make(BLK_ZEROES_SECTORS_MAX);
		c.max_write_zeroes_seg = le32_make(BLK_RANGES_MAX);
		c.write_zeroes_may_unmap = 1;
	}
	memcpy(data, (const char *)&c + offset, len);
}

/* Only `writeback` can be written, and only by a driver that negotiated it. */
static void blk_config_write(struct virtio_device *vd, uint32_t offset, const void *data, uint32_t len)
{
	struct virtio_blk *blk = virtio_blk_from(vd);
	uint32_t at = offsetof(struct virtio_blk_config, writeback);

	if (!virtio_has(vd, VIRTIO_BLK_F_CONFIG_WCE) || offset > at || at - offset >= len)
		return;
	blk->state.writeback = ((const uint8_t *)data)[at - offset] & 1;
}

static void blk_queue_ready(struct virtio_device *vd, uint32_t q)
{
	virtio_blk_serve(virtio_blk_from(vd), q);
}

static void drop_all(struct virtio_blk *blk)
{
	blk->host.dropping = true;
	block_drain(blk->host.block);
	blk->host.dropping = false;
	blk->host.starved = blk->host.unsignalled = 0;
}

static void blk_deactivate(struct virtio_device *vd)
{
	drop_all(virtio_blk_from(vd));
}

static void blk_queue_stop(struct virtio_device *vd, uint32_t q)
{
	struct virtio_blk *blk = virtio_blk_from(vd);

	block_drain(blk->host.block);
	blk->host.starved &= ~(1u << q);
	virtio_blk_settle(blk);
}

/* After anything that completes requests. */
static void settle(struct virtio_blk *blk)
{
	virtio_blk_settle(blk);
	if (blk->host.block->fault[0]) {
		log_limited(&blk->vd.dev.vm->log, &blk->host.faults, LOG_WARN, "%s: %s", blk->vd.dev.name, blk->host.block->fault);
		blk->host.block->fault[0] = 0;
	}
}

static void on_event(struct loop_fd *w, uint32_t events)
{
	struct virtio_blk *blk = container_of(w, struct virtio_blk, host.watch);

	(void)events;
	device_lock(&blk->vd.dev);
	block_complete(blk->host.block);
	settle(blk);
	device_unlock(&blk->vd.dev);
}

static void remote_event(struct virtio_blk *blk)
{
	struct virtio_blk_host *h = &blk->host;
	char note[128];

	device_lock(&blk->vd.dev);
	if (!remote_run(h->remote))
		loop_remove(&blk->vd.dev.vm->loop, &h->remote_watch);
	settle(blk);
	atomic_store_explicit(&blk->vd.dev.vm->remote_since_ns, remote_waiting_since(h->remote), memory_order_relaxed);
	while (remote_note(h->remote, note, sizeof(note)))
		log_limited(&blk->vd.dev.vm->log, &h->notes, LOG_WARN, "%s: %s", blk->vd.dev.name, note);
	device_unlock(&blk->vd.dev);
}

static void on_remote(struct loop_fd *w, uint32_t events)
{
	(void)events;
	remote_event(container_of(w, struct virtio_blk, host.remote_watch));
}

static void on_wanted(struct loop_fd *w, uint32_t events)
{
	(void)events;
	remote_event(container_of(w, struct virtio_blk, host.wanted_watch));
}

static int blk_quiesce(struct device *d)
{
	struct virtio_blk *blk = from_device(d);

	block_drain(blk->host.block);
	/* Those that waited for a slot stay in the ring: resume looks at every queue. */
	blk->host.starved = 0;
	virtio_blk_settle(blk);
	return 0;
}

static void blk_reset(struct device *d)
{
	struct virtio_blk *blk = from_device(d);

	blk->state = (struct virtio_blk_state){
		.capacity = blk->host.block->size / BLOCK_SECTOR,
		.writeback = BLK_WRITEBACK_UNSET,
		.read_only = blk->host.block->ro,
		.num_queues = blk->host.nqueues,
	};
	memcpy(blk->state.serial, blk->host.serial, BLK_SERIAL_LEN);
}

static int blk_check(struct device *d, struct err *err)
{
	const struct virtio_blk *blk = from_device(d);
	const struct virtio_blk_state *s = &blk->state;
	const struct block *b = blk->host.block;

	if (s->capacity != b->size / BLOCK_SECTOR)
		return err_set(err, -EINVAL, "the guest knows a disk of %" PRIu64 " sectors, this one has %" PRIu64, s->capacity,
			       b->size / BLOCK_SECTOR);
	if (s->read_only != b->ro)
		return err_set(err, -EINVAL, "the guest knows a %s disk, this one is %s", s->read_only ? "read-only" : "writable",
			       b->ro ? "read-only" : "writable");
	if (s->num_queues != blk->host.nqueues)
		return err_set(err, -EINVAL, "the guest knows %u queues, this disk has %u", s->num_queues, blk->host.nqueues);
	if (s->writeback > BLK_WRITEBACK_UNSET)
		return err_set(err, -EINVAL, "cache mode %u is impossible", s->writeback);
	return 0;
}

/* "3:4:5~6": returns how many, at most max. tables: what follows a '~', or -1; NULL: none can be. */
static int parse_fds(const char *text, const char *name, int *ret, int *tables, int max, struct err *err)
{
	const char *p = text;
	int n = 0;

	for (;;) {
		char *end;
		unsigned long v = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : ULONG_MAX;

		if (v > INT_MAX || (*end && *end != ':' && (*end != '~' || !tables)))
			return err_set(err, -EINVAL, "%s '%s': numbers of descriptors with colons between are needed", name, text);
		if (n == max)
			return err_set(err, -EINVAL, "%s '%s': %d descriptors at most", name, text, max);
		if (tables)
			tables[n] = -1;
		ret[n] = (int)v;
		if (*end == '~') {
			p = end + 1;
			v = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : ULONG_MAX;
			if (v > INT_MAX || (*end && *end != ':'))
				return err_set(err, -EINVAL, "%s '%s': the number of a table's descriptor is needed after '~'", name, text);
			tables[n] = (int)v;
		}
		n++;
		if (!*end)
			return n;
		p = end + 1;
	}
}

/* What layers=, base= and top= say. 1 when they say anything. fds, tables: room for LSMT_LAYERS_MAX. */
static int parse_stack(const struct blk_options *o, int *fds, int *tables, struct block_stack *ret, struct err *err)
{
	int top[2] = { -1, -1 }, r = 0;

	*ret = (struct block_stack){ .base_fd = -1, .layer_fd = fds };
	if (o->layers)
		r = ret->nlayers = parse_fds(o->layers, "layers", fds, tables, LSMT_LAYERS_MAX, err);
	if (r >= 0 && o->base)
		r = parse_fds(o->base, "base", &ret->base_fd, NULL, 1, err);
	if (r >= 0 && o->top)
		r = parse_fds(o->top, "top", top, NULL, 2, err);
	if (r < 0)
		return r;
	if (o->top && r != 2)
		return err_set(err, -EINVAL, "top '%s': data file and index file are needed, FD:FD", o->top);
	ret->top_data_fd = top[0];
	ret->top_index_fd = top[1];
	return o->layers || o->base || o->top;
}

static int watch_remote(struct virtio_blk *blk, struct err *err)
{
	struct virtio_blk_host *h = &blk->host;
	struct loop *loop = &blk->vd.dev.vm->loop;
	int r = loop_add(loop, &h->remote_watch, remote_socket(h->remote), EPOLLIN, on_remote);

	if (r == 0)
		r = loop_add(loop, &h->wanted_watch, remote_wake_fd(h->remote), EPOLLIN, on_wanted);
	return r < 0 ? err_errno(err, r, "epoll") : 0;
}

/* A disk with remote layers: attaching waits for what of them is not there yet. */
static int open_remote(struct virtio_blk *blk, const struct blk_options *o, struct block_config *c, struct block_stack *s,
		       const int *tables, struct err *err)
{
	struct block_remote remote[LSMT_LAYERS_MAX + 1] = { 0 };
	struct virtio_blk_host *h = &blk->host;
	int sock = -1, r;

	if (!o->remote)
		return err_set(err, -EINVAL, "layers '%s': a remote one needs remote=FD, the socket of its fetcher", o->layers);
	r = parse_fds(o->remote, "remote", &sock, NULL, 1, err);
	if (r > 0)
		r = remote_create(sock, &h->remote, err);
	for (int i = 0; i < s->nlayers && r >= 0; i++) {
		char name[24];
		struct stat st;

		snprintf(name, sizeof(name), "layer %d", i + 1);
		if (tables[i] < 0)
			continue;
		r = fstat(s->layer_fd[i], &st) < 0 ? err_errno(err, -errno, "%s", name) :
						     remote_add(h->remote, (unsigned)i, tables[i], (uint64_t)st.st_size, name, &remote[i], err);
	}
	if (r < 0)
		return r;
	s->remote = remote;
	s->remote_ops = &remote_ops;
	s->remote_ctx = h->remote;
	c->ro |= s->top_data_fd < 0;
	r = block_layers_open(c, &h->block, err);
	if (r >= 0) {
		remote_set_block(h->remote, h->block);
		r = block_layers_attach(h->block, s, err);
	}
	s->remote = NULL; /* ours; the block has taken what it needs */
	return r < 0 ? r : watch_remote(blk, err);
}

static bool has_remote(const struct block_stack *s, const int *tables)
{
	for (int i = 0; i < s->nlayers; i++)
		if (tables[i] >= 0)
			return true;
	return false;
}

static int blk_open(struct device *d, const void *options, struct err *err)
{
	const struct blk_options *o = options;
	struct virtio_blk *blk = from_device(d);
	struct virtio_blk_host *h = &blk->host;
	struct block_config c = {
		.backend = o->backend,
		.path = o->path,
		.size = o->size,
		.ro = o->ro,
		.cache = o->cache,
		.aio = o->aio,
	};
	int fds[LSMT_LAYERS_MAX], tables[LSMT_LAYERS_MAX], r;
	struct block_stack stack;

	h->nqueues = o->queues ? (uint16_t)o->queues : 1;
	h->nslots = (uint32_t)h->nqueues * BLK_QUEUE_SIZE;
	c.depth = h->nslots;
	if (o->serial) {
		size_t n = strlen(o->serial);

		if (n > BLK_SERIAL_LEN)
			return err_set(err, -EINVAL, "serial '%s' has %zu characters: use at most %d", o->serial, n, BLK_SERIAL_LEN);
		memcpy(h->serial, o->serial, n);
	}
	memset(fds, 0xff, sizeof(fds));       /* -1 */
	memset(tables, 0xff, sizeof(tables)); /* -1: local */
	r = parse_stack(o, fds, tables, &stack, err);
	if (r < 0)
		return r;
	if (r && has_remote(&stack, tables) && o->backend && strcmp(o->backend, "layers") == 0) {
		r = open_remote(blk, o, &c, &stack, tables, err);
	} else {
		if (r)
			c.stack = &stack;
		r = block_open(&c, &h->block, err);
	}
	if (r < 0)
		return r;
	if (h->block->note[0])
		log_line(&d->vm->log, LOG_WARN, "%s: %s", d->name, h->block->note);
	h->slots = calloc(h->nslots, sizeof(*h->slots));
	if (!h->slots)
		return err_errno(err, -ENOMEM, "%u requests", h->nslots);
	r = loop_add(&d->vm->loop, &h->watch, h->block->event_fd, EPOLLIN, on_event);
	return r < 0 ? err_errno(err, r, "epoll") : 0;
}

static int blk_start(struct device *d, struct err *err)
{
	return block_start(from_device(d)->host.block, d->vm, err);
}

static void blk_close(struct device *d)
{
	struct virtio_blk_host *h = &from_device(d)->host;

	loop_remove(&d->vm->loop, &h->watch);
	loop_remove(&d->vm->loop, &h->remote_watch);
	loop_remove(&d->vm->loop, &h->wanted_watch);
	if (h->remote && h->block)
		remote_shutdown(h->remote);
	block_close(h->block);
	h->block = NULL;
	remote_destroy(h->remote);
	h->remote = NULL;
	free(h->slots);
	h->slots = NULL;
}

int virtio_blk_resize(struct device *d, uint64_t bytes, struct err *err)
{
	struct virtio_blk *blk = from_device(d);
	int r;

	if (d->ops != &virtio_blk_device)
		return err_set(err, -ENOTSUP, "%s is not a disk", d->name);
	device_lock(d);
	r = block_resize(blk->host.block, bytes, err);
	if (r < 0) {
		err_prefix(err, "%s: ", d->name);
	} else if (blk->state.capacity != blk->host.block->size / BLOCK_SECTOR) {
		blk->state.capacity = blk->host.block->size / BLOCK_SECTOR;
		virtio_signal_config(&blk->vd);
	}
	device_unlock(d);
	return r;
}

struct block *virtio_blk_block(struct device *d)
{
	return d->ops == &virtio_blk_device ? from_device(d)->host.block : NULL;
}

int virtio_blk_attach(struct device *d, const struct block_stack *s, struct err *err)
{
	struct block *b = virtio_blk_block(d);
	int r;

	if (!b || !block_is_layers(b))
		return err_set(err, -ENOTSUP, "%s is not a disk of layers", d->name);
	device_lock(d);
	block_drain(b);
	b->note[0] = 0;
	r = block_layers_attach(b, s, err);
	if (r < 0)
		err_prefix(err, "%s: ", d->name);
	else if (b->note[0])
		log_line(&d->vm->log, LOG_WARN, "%s: %s", d->name, b->note);
	device_unlock(d);
	return r;
}

static const struct virtio_ops blk_virtio = {
	.device_id = 2,
	.nqueues_max = BLK_QUEUES_MAX,
	.queue_size = BLK_QUEUE_SIZE,
	.features = blk_features,
	.nqueues = blk_nqueues,
	.config_size = BLK_CONFIG_SIZE,
	.config_read = blk_config_read,
	.config_write = blk_config_write,
	.queue_ready = blk_queue_ready,
	.deactivate = blk_deactivate,
	.queue_stop = blk_queue_stop,
};

const struct device_ops virtio_blk_device = {
	.name = "blk",
	.help = "disk (virtio-blk)",
	.bus = DEVICE_VIRTIO,
	.instances = BLK_INSTANCES_MAX,
	.instance_size = sizeof(struct virtio_blk),
	.options = blk_options,
	.opt_size = sizeof(struct blk_options),
	.test_options = "backend=null,size=1M,queues=2,serial=test",
	.schema = &virtio_blk_schema,
	.state_offset = offsetof(struct virtio_blk, state),
	.virtio = &blk_virtio,
	.open = blk_open,
	.start = blk_start,
	.reset = blk_reset,
	.quiesce = blk_quiesce,
	.check = blk_check,
	.close = blk_close,
};
