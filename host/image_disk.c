/* SPDX-License-Identifier: Apache-2.0 */
/* An image's layers as one disk that is read: see image_disk.h. */
#include "host/image_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { SECTOR = 512 };

void image_disk_close(struct image_disk *d)
{
	for (size_t k = 0; k < d->nlayers; k++) {
		layer_file_close(d->layer[k].file);
		fd_close(d->layer[k].fd);
	}
	free(d->layer);
	fd_close(d->base_fd);
	lsmt_index_finish(&d->index);
	*d = IMAGE_DISK_NONE;
}

static void layer_text(const struct image *image, size_t k, char out[IMAGE_NAME_MAX + 64])
{
	snprintf(out, IMAGE_NAME_MAX + 64, "image '%s': layer %zu", image->name, k + 1);
}

/* Descriptors and headers first: they say how large the index can become. An entry splits one at most. */
static int open_layers(struct image_disk *d, const struct image *image, struct lsmt_sealed *sealed, struct err *err)
{
	uint64_t entries = 0;

	for (size_t k = 0; k < image->nlayers; k++) {
		char name[IMAGE_NAME_MAX + 64];
		int fd = image_layer_open(image, k, NULL, err);
		int r;

		if (fd < 0)
			return fd;
		if (image->layer[k].raw) {
			d->base_fd = fd;
			d->base_size = image->layer[k].bytes;
			continue;
		}
		layer_text(image, k, name);
		struct image_disk_layer *layer = &d->layer[d->nlayers];
		struct lsmt_sealed *s = &sealed[d->nlayers++];

		layer->fd = fd;
		r = layer_file_open(fd, name, &layer->file, err);
		if (r == 0)
			r = lsmt_sealed_open_bytes(&layer->file->bytes, name, s, err);
		if (r < 0)
			return r;
		if (s->head.virtual_size > d->size)
			return err_set(err, -EINVAL, "%s is for a disk of %llu bytes, the image has only %llu", name,
				       (unsigned long long)s->head.virtual_size, (unsigned long long)d->size);
		entries += s->head.index_entries;
	}
	return lsmt_index_init(&d->index, 2 * entries + 1, err);
}

static int load(struct image_disk *d, const struct image *image, struct err *err)
{
	_cleanup_free_ struct lsmt_sealed *sealed = calloc(image->nlayers + 1, sizeof(*sealed));
	_cleanup_free_ uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
	int r;

	d->layer = calloc(image->nlayers + 1, sizeof(*d->layer));
	if (sealed == NULL || buf == NULL || d->layer == NULL)
		return err_set(err, -ENOMEM, "image '%s': no memory", image->name);
	r = open_layers(d, image, sealed, err);
	for (size_t k = 0; k < d->nlayers && r == 0; k++) {
		struct lsmt_tagged l = { &d->index, (uint8_t)k };
		char name[IMAGE_NAME_MAX + 64];
		int64_t n;

		layer_text(image, image->nlayers - d->nlayers + k, name);
		n = lsmt_sealed_walk_bytes(&d->layer[k].file->bytes, name, &sealed[k], buf, lsmt_index_insert_tagged, &l, err);
		r = n < 0 ? (int)n : 0;
	}
	return r;
}

int image_disk_open(const struct image *image, struct image_disk *ret, struct err *err)
{
	struct image_disk d = IMAGE_DISK_NONE;
	int r = 0;

	d.size = image->size;
	if (image->nlayers == 0) {
		d.base_size = image->size;
		d.base_fd = open(image->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (d.base_fd < 0)
			r = err_errno(err, -errno, "image: open '%s'", image->path);
		else
			r = lsmt_index_init(&d.index, 1, err);
	} else {
		r = load(&d, image, err);
	}
	if (r < 0) {
		image_disk_close(&d);
		return r;
	}
	*ret = d;
	return 0;
}

/* A hole of the layers is the base's, and zeros behind its end. */
static int read_base(const struct image_disk *d, uint8_t *p, size_t n, uint64_t off)
{
	size_t have = d->base_fd < 0 || off >= d->base_size ? 0 : (size_t)MIN((uint64_t)n, d->base_size - off);
	ssize_t got = have > 0 ? fd_pread_full(d->base_fd, p, have, (off_t)off) : 0;

	if (got < 0 || (size_t)got != have)
		return got < 0 ? (int)got : -EIO;
	memset(p + have, 0, n - have);
	return 0;
}

int image_disk_read(const struct image_disk *d, void *buf, size_t n, uint64_t off)
{
	uint8_t *p = buf;

	if (off > d->size || n > d->size - off)
		return -EINVAL;
	while (n > 0) {
		uint64_t sector = off / SECTOR, skip = off % SECTOR, last = (off + n - 1) / SECTOR;
		struct lsmt_seg s;
		bool found = lsmt_index_lookup(&d->index, sector, last - sector + 1, &s);
		size_t part = (size_t)MIN((uint64_t)n, (uint64_t)s.length * SECTOR - skip);
		int r = 0;

		if (!found) {
			r = read_base(d, p, part, off);
		} else if (s.zeroed) {
			memset(p, 0, part);
		} else {
			ssize_t got = layer_file_read(d->layer[s.tag].file, p, part, s.moffset * SECTOR + skip);

			r = got < 0 ? (int)got : (size_t)got != part ? -EIO : 0;
		}
		if (r < 0)
			return r;
		p += part;
		off += part;
		n -= part;
	}
	return 0;
}

/* Data of the base in [off, end). */
static bool base_data(const struct image_disk *d, uint64_t off, uint64_t end, uint64_t *ret_start, uint64_t *ret_end)
{
	off_t from, to;

	end = MIN(end, d->base_size);
	if (d->base_fd < 0 || off >= end)
		return false;
	from = lseek(d->base_fd, (off_t)off, SEEK_DATA);
	if (from < 0 && errno == ENXIO)
		return false;
	to = from < 0 ? -1 : lseek(d->base_fd, from, SEEK_HOLE);
	*ret_start = from < 0 ? off : ALIGN_DOWN((uint64_t)from, (uint64_t)SECTOR);
	*ret_end = to < 0 ? end : MIN(ALIGN_UP((uint64_t)to, (uint64_t)SECTOR), end);
	*ret_start = MAX(*ret_start, off);
	return *ret_start < *ret_end;
}

bool image_disk_next_data(const struct image_disk *d, uint64_t off, uint64_t *ret_start, uint64_t *ret_end)
{
	while (off < d->size) {
		struct lsmt_seg s;
		bool found = lsmt_index_lookup(&d->index, off / SECTOR, (d->size - off) / SECTOR, &s);
		uint64_t end = off + (uint64_t)s.length * SECTOR;

		if (found && !s.zeroed) {
			*ret_start = off;
			*ret_end = end;
			return true;
		}
		if (!found && base_data(d, off, end, ret_start, ret_end))
			return true;
		off = end;
	}
	return false;
}

/* What supplies the sectors at `sector`: 0 nothing, 1 the base, 2 and more a sealed layer. */
static unsigned look(const struct image_disk *d, uint64_t sector, uint64_t max, uint64_t *ret_at, uint64_t *ret_n)
{
	uint64_t base_end = d->base_fd < 0 ? 0 : d->base_size / SECTOR;
	struct lsmt_seg s;
	bool found = lsmt_index_lookup(&d->index, sector, max, &s);

	*ret_n = s.length;
	*ret_at = found ? s.moffset : sector;
	if (found)
		return s.zeroed ? 0 : s.tag + 2u;
	if (sector >= base_end)
		return 0;
	*ret_n = MIN(*ret_n, base_end - sector);
	return 1;
}

bool image_disk_same(const struct image_disk *a, const struct image_disk *b, uint64_t off_a, uint64_t off_b, uint64_t n,
		     size_t common)
{
	uint64_t from = off_a / SECTOR, to = off_b / SECTOR, left = (n + SECTOR - 1) / SECTOR;
	bool base = a->base_fd >= 0 && b->base_fd >= 0;

	if (off_a % SECTOR != 0 || off_b % SECTOR != 0 || off_a > a->size || off_b > b->size ||
	    left > (a->size - off_a) / SECTOR || left > (b->size - off_b) / SECTOR)
		return false;
	while (left > 0) {
		uint64_t at_a, at_b, n_a, n_b;
		unsigned x = look(a, from, left, &at_a, &n_a), y = look(b, to, n_a, &at_b, &n_b);

		/* The base is the lowest of the common ones. */
		if (x != y || (x == 1 && common == 0) || (x > 1 && x - 1 + base > common) || (x > 0 && at_a != at_b))
			return false;
		n_b = MIN(n_a, n_b);
		from += n_b;
		to += n_b;
		left -= n_b;
	}
	return true;
}
