/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "layers" backend: attaching a stack, and sealing its top.
 *
 * The layers are opened lowest first, then their entries go into the index together (lsmt_load.c), then the top's. A jailed process does this too:
 * descriptors only, nothing is opened.
 *
 * Sealing has two parts. With the guest paused: copy the top's entries, put the new pair in its place; the old data file
 * stays what it was to the index, a layer by the same number. Later, on any thread: write these entries and the
 * trailer into the old data file (lsmt_write.c). The guest may flush in between: then the old index file gets what it
 * lacks first (block_layers_log.c), so the old pair is whole even when sealing never ends. What was free in the old data
 * file is punched before the rest: no log that survives names it. A sealed layer is never punched.
 *
 * Trust: layers are hostile; lsmt_read.c checks them. Threads: block_sealing_finish touches only what it was given.
 */
/* syscalls(worker): fallocate */
/* syscalls(main): fcntl(1=F_GETFL) fcntl(1=F_DUPFD_CLOEXEC) fstat newfstatat lseek close */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/block_layers.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { ROOM_ALL = 1 << 16 }; /* entries of all layers that are read at a time, or a little more */

static int set_place(struct block_layers *l, unsigned place, int fd, const char *name, struct err *err)
{
	int r = l->io->ops->set_file(l->io, place, fd);

	return r < 0 ? err_errno(err, r, "%s: give descriptor %d to the I/O engine", name, fd) : 0;
}

/* The first part of a stack that says so fixes the size, if opening did not. */
static int set_size(struct block_layers *l, const char *name, uint64_t size, struct err *err)
{
	if (l->b.size && l->b.size != size)
		return err_set(err, -EINVAL, "%s: a disk of %" PRIu64 " bytes, this one has %" PRIu64, name, size,
			       l->b.size);
	l->b.size = size;
	return l->index.dir ? 0 : lsmt_index_init(&l->index, size / BLOCK_SECTOR, err);
}

/* A layer may be of a smaller disk than the one it lies in: behind its end it has nothing. Without a size yet, it gives it. */
static int fit_layer(struct block_layers *l, const char *name, uint64_t size, struct err *err)
{
	return size < l->b.size ? set_size(l, name, l->b.size, err) : set_size(l, name, size, err);
}

static int check_base(int fd, uint64_t *ret_size, struct err *err)
{
	int flags = fcntl(fd, F_GETFL);
	struct stat st;
	off_t end;

	if (flags < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "base: descriptor %d", fd);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return err_set(err, -EINVAL, "base: descriptor %d is neither a regular file nor a block device", fd);
	if ((flags & O_ACCMODE) == O_WRONLY || (flags & (O_PATH | O_DIRECT)))
		return err_set(err, -EINVAL, "base: descriptor %d is not open for reading through the page cache", fd);
	end = lseek(fd, 0, SEEK_END);
	if (end < 0)
		return err_errno(err, -errno, "base: size");
	*ret_size = ALIGN_DOWN((uint64_t)end, (uint64_t)BLOCK_SECTOR);
	return 0;
}

/* A layer while its index is read. */
struct incoming {
	struct lsmt_sealed sealed;
	struct lsmt_bytes bytes;
	char name[48];
};

static int open_layer(struct block_layers *l, const struct block_stack *s, int i, struct incoming *in, struct err *err)
{
	uint64_t size;
	int r;

	snprintf(in->name, sizeof(in->name), "layer %d of %d", i + 1, s->nlayers);
	r = lsmt_check_fd(s->layer_fd[i], false, in->name, &size, err);
	if (r == 0)
		r = layers_source_open(l, s, (unsigned)i, s->layer_fd[i], size, in->name, &in->bytes, err);
	if (r == 0)
		r = lsmt_sealed_open_bytes(&in->bytes, in->name, &in->sealed, err);
	if (r == 0)
		r = fit_layer(l, in->name, in->sealed.head.virtual_size, err);
	return r;
}

static int attach_layers(struct block_layers *l, const struct block_stack *s, struct err *err)
{
	unsigned n = (unsigned)s->nlayers;
	uint32_t room = MAX(MIN(ROOM_ALL / MAX(n, 1u), (uint32_t)LSMT_READ_ENTRIES), (uint32_t)LSMT_LOAD_ROOM_MIN);
	_cleanup_free_ struct incoming *in = calloc(n + 1, sizeof(*in));
	_cleanup_free_ struct lsmt_walk *w = calloc(n + 1, sizeof(*w));
	_cleanup_free_ uint8_t *buf = malloc((size_t)n * room * LSMT_ENTRY_BYTES + 1);
	int r = 0;

	if (!in || !w || !buf)
		return err_errno(err, -ENOMEM, "layers");
	for (unsigned i = 0; r == 0 && i < n; i++) {
		w[i] = (struct lsmt_walk){ .bytes = &in[i].bytes, .name = in[i].name, .layer = &in[i].sealed,
					   .buf = buf + (size_t)i * room * LSMT_ENTRY_BYTES, .room = room };
		r = open_layer(l, s, (int)i, &in[i], err);
	}
	if (r == 0)
		r = lsmt_index_load(&l->index, w, n, err);
	for (unsigned i = 0; r == 0 && i < n; i++) {
		layers_source_settle(l, LAYERS_FILE_TAG0 + i);
		r = set_place(l, LAYERS_FILE_TAG0 + i, s->layer_fd[i], in[i].name, err);
	}
	return r;
}

static void set_top(struct block_layers *l, const struct lsmt_pair *p, uint8_t tag, uint8_t log, int index_fd)
{
	struct layers_log *g = &l->log[log];

	l->top = tag;
	l->top_head = p->head;
	l->cursor = p->data_end;
	layers_space_reset(&l->space, p->data_end / LAYERS_BLOCK);
	l->current = log;
	g->head = g->tail = 0;
	g->file_end = p->index_end;
	g->data_place = (uint16_t)(LAYERS_FILE_TAG0 + tag);
	g->data_dirty = g->index_dirty = false;
	g->index_fd = index_fd;
	g->second = p->second;
	layers_compact_reset(l, p->one_log);
}

static int attach_top(struct block_layers *l, const struct block_stack *s, uint8_t *buf, struct lsmt_pair *ret,
		      struct err *err)
{
	struct lsmt_tagged load = { &l->index, (uint8_t)s->nlayers };
	int r;

	/* The size first: entries may need the index made. */
	if (!l->index.dir) {
		struct lsmt_head h;
		uint64_t size;

		r = lsmt_check_fd(s->top_data_fd, true, "top", &size, err);
		if (r == 0)
			r = lsmt_head_read(s->top_data_fd, 0, "top", "data file's header", &h, err);
		if (r == 0)
			r = set_size(l, "top", h.virtual_size, err);
		if (r < 0)
			return r;
	}
	r = lsmt_pair_open(s->top_data_fd, s->top_index_fd, "top", buf, lsmt_index_insert_tagged, &load, ret, err);
	if (r == 0)
		r = set_size(l, "top", ret->head.virtual_size, err);
	if (r == 0)
		r = set_place(l, LAYERS_FILE_TAG0 + (unsigned)s->nlayers, s->top_data_fd, "top", err);
	if (r == 0)
		r = set_place(l, LAYERS_FILE_INDEX0, s->top_index_fd, "top", err);
	return r;
}

static int attach_all(struct block_layers *l, const struct block_stack *s, uint64_t *base_size, struct lsmt_pair *top,
		      struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
	int r = 0;

	if (!buf)
		return err_errno(err, -ENOMEM, "layers");
	if (s->base_fd >= 0) {
		r = check_base(s->base_fd, base_size, err);
		if (r == 0)
			r = set_place(l, LAYERS_FILE_BASE, s->base_fd, "base", err);
		if (r == 0 && s->remote && s->remote[s->nlayers].generation) {
			struct lsmt_bytes bytes;

			r = layers_source_open(l, s, BLOCK_LAYER_BASE, s->base_fd, *base_size, "base", &bytes, err);
		}
	}
	if (r == 0)
		r = attach_layers(l, s, err);
	if (r == 0 && s->top_data_fd >= 0)
		r = attach_top(l, s, buf, top, err);
	else if (r == 0 && s->nlayers == 0)
		r = *base_size ? set_size(l, "base", *base_size, err)
			       : err_set(err, -EINVAL, "base: the file has no sector in it");
	return r;
}

static int check_stack(const struct block_layers *l, const struct block_stack *s, struct err *err)
{
	if (l->attached)
		return err_set(err, -EBUSY, "the disk has its layers already");
	if (s->nlayers < 0 || s->nlayers > LSMT_LAYERS_MAX)
		return err_set(err, -EINVAL, "%d layers: %d at most", s->nlayers, LSMT_LAYERS_MAX);
	if ((s->top_data_fd < 0) != (s->top_index_fd < 0))
		return err_set(err, -EINVAL, "top: half a pair");
	if (s->nlayers == 0 && s->base_fd < 0 && s->top_data_fd < 0)
		return err_set(err, -EINVAL, "no layers: a disk needs a base, a layer or a top");
	if (l->b.ro && s->top_data_fd >= 0)
		return err_set(err, -EINVAL, "a read-only disk has no top");
	if (!l->b.ro && s->top_data_fd < 0)
		return err_set(err, -EINVAL, "a writable disk needs a top (or ro)");
	/* Each is closed once. */
	for (int i = 0; i < s->nlayers + 3; i++) {
		const int above[] = { s->top_data_fd, s->top_index_fd, s->base_fd };
		int fd = i < s->nlayers ? s->layer_fd[i] : above[i - s->nlayers];

		for (int k = i + 1; fd >= 0 && k < s->nlayers + 3; k++)
			if (fd == (k < s->nlayers ? s->layer_fd[k] : above[k - s->nlayers]))
				return err_set(err, -EINVAL, "descriptor %d stands twice in the stack", fd);
	}
	return 0;
}

int block_layers_attach(struct block *b, const struct block_stack *s, struct err *err)
{
	struct block_layers *l = layers_of(b);
	uint64_t base_size = 0;
	struct lsmt_pair top = { 0 };
	int r = check_stack(l, s, err);

	if (r < 0)
		return r;
	r = attach_all(l, s, &base_size, &top, err);
	if (r < 0) {
		for (unsigned i = LAYERS_FILE_BASE; i < LAYERS_FILES; i++)
			l->io->ops->set_file(l->io, i, -1);
		for (unsigned i = 0; i < LAYERS_SOURCES; i++)
			layers_source_close(l, i);
		lsmt_index_clear(&l->index);
		if (!l->sized) {
			lsmt_index_finish(&l->index);
			b->size = 0;
		}
		return r;
	}
	for (int i = 0; i < s->nlayers; i++)
		l->layer_fd[i] = s->layer_fd[i];
	l->base_fd = s->base_fd;
	l->base_size = MIN(base_size, b->size);
	l->top = (uint8_t)s->nlayers;
	if (s->top_data_fd >= 0) {
		l->has_top = true;
		l->layer_fd[s->nlayers] = s->top_data_fd;
		set_top(l, &top, (uint8_t)s->nlayers, 0, s->top_index_fd);
		if (layers_space_probe(&l->space, s->top_data_fd, l->cursor * BLOCK_SECTOR))
			layers_space_scan(l);
		else
			snprintf(b->note, sizeof(b->note), "the host's file system cannot punch holes: what the guest discards "
							   "is used again, but not given back");
		if (top.torn)
			snprintf(b->note, sizeof(b->note),
				 "the top was not closed properly: entries behind the first %" PRIu64
				 " of its index were never complete and are left out",
				 top.entries);
	}
	l->attached = true;
	return 0;
}

struct block_sealing {
	int fd;
	struct lsmt_head head;
	uint64_t data_end, n;
	uint8_t *entries;
	struct layers_extent *free;
	uint64_t nfree;
};

int block_layers_seal(struct block *b, int new_data_fd, int new_index_fd, struct block_sealing **ret, struct err *err)
{
	struct block_layers *l = layers_of(b);
	unsigned old_place = LAYERS_FILE_INDEX0 + !l->current;
	struct block_sealing *s;
	struct lsmt_pair pair = { 0 };
	uint32_t count = l->index.of_tag[l->top];
	int r;

	if (!l->has_top)
		return err_set(err, -EINVAL, "the disk has no top that could be sealed");
	if (l->todo.head || l->io->inflight || l->slow.io->inflight || l->slow.parked)
		return err_set(err, -EBUSY, "requests are in flight");
	if (l->top == LSMT_LAYERS_MAX)
		return err_set(err, -E2BIG, "the disk has %d layers already: flatten it", LSMT_LAYERS_MAX);
	r = lsmt_pair_check_empty(new_data_fd, new_index_fd, "new top", b->size, &pair, err);
	if (r < 0)
		return r;
	if (l->carry || l->compact.doubt) {
		r = layers_log_finish(l);
		if (r < 0 || l->carry || l->compact.doubt)
			return err_errno(err, r < 0 ? r : -EIO, "write the index of the layer sealed before");
	}
	s = calloc(1, sizeof(*s));
	if (s) {
		s->entries = malloc((size_t)count * LSMT_ENTRY_BYTES + 1);
		s->free = malloc((layers_space_free(&l->space, NULL) + 1) * sizeof(*s->free));
		s->fd = -1;
	}
	if (!s || !s->entries || !s->free) {
		block_sealing_free(s);
		return err_errno(err, -ENOMEM, "an index of %u entries", count);
	}
	s->fd = fcntl(l->layer_fd[l->top], F_DUPFD_CLOEXEC, 3);
	r = s->fd < 0 ? err_errno(err, -errno, "duplicate the top's descriptor") : 0;
	if (r == 0)
		r = set_place(l, LAYERS_FILE_TAG0 + l->top + 1u, new_data_fd, "new top", err);
	if (r == 0)
		r = set_place(l, old_place, new_index_fd, "new top", err);
	if (r < 0) {
		l->io->ops->set_file(l->io, LAYERS_FILE_TAG0 + l->top + 1u, -1);
		block_sealing_free(s);
		return r;
	}
	s->head = l->top_head;
	s->data_end = l->cursor;
	s->n = lsmt_index_extract(&l->index, l->top, s->entries, count);
	if (l->space.can_punch && !l->broken)
		s->nfree = layers_space_free(&l->space, s->free);
	fd_close(l->log[!l->current].index_fd);
	l->layer_fd[l->top + 1] = new_data_fd;
	l->carry = true;
	set_top(l, &pair, (uint8_t)(l->top + 1), !l->current, new_index_fd);
	*ret = s;
	return 0;
}

int block_sealing_finish(struct block_sealing *s, struct err *err)
{
	layers_space_punch(s->fd, s->free, s->nfree);
	s->nfree = 0;
	return lsmt_seal_file(s->fd, &s->head, s->data_end, s->entries, s->n, err);
}

void block_sealing_free(struct block_sealing *s)
{
	if (!s)
		return;
	fd_close(s->fd);
	free(s->entries);
	free(s->free);
	free(s);
}
