/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making LSMT layers: empty pairs, sealing, packing raw images.
 *
 * Sealing writes into the data file itself: index and trailer behind the data, sync, then the header that says
 * "sealed", sync. Cut anywhere before that last write is whole, the file is still the data file of its pair, and
 * the index file still says what is in it; what was appended is passed over. Both blocks of the header differ in
 * one byte, so a torn write of it leaves the one or the other.
 */
/* syscalls(worker): pwrite64 fdatasync ftruncate */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "devices/backend/lsmt_index.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { PACK_BUFFER = 1 << 20, PACK_UNIT = 4096, INDEX_START_ENTRIES = 1024 };

static int check_uuid(const char *uuid, const char *what, struct err *err)
{
	size_t n = strlen(uuid);

	for (size_t i = 0; i < n; i++)
		if (!isxdigit((unsigned char)uuid[i]) && uuid[i] != '-')
			n = 0;
	if (n != LSMT_UUID_LEN)
		return err_set(err, -EINVAL, "%s '%.64s' is not a UUID of %d characters", what, uuid, LSMT_UUID_LEN);
	return 0;
}

int lsmt_head_set_uuid(struct lsmt_head *h, const char *uuid, struct err *err)
{
	uint8_t b[16];

	if (uuid) {
		int r = check_uuid(uuid, "UUID", err);
		if (r == 0)
			memcpy(h->uuid, uuid, LSMT_UUID_LEN + 1);
		return r;
	}
	if (getrandom(b, sizeof(b), 0) != (ssize_t)sizeof(b))
		return err_errno(err, -errno, "getrandom");
	b[6] = (b[6] & 0x0f) | 0x40; /* RFC 9562: version 4 */
	b[8] = (b[8] & 0x3f) | 0x80;
	snprintf(h->uuid, sizeof(h->uuid), "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	return 0;
}

static int set_uuids(struct lsmt_head *h, const char *uuid, const char *parent, struct err *err)
{
	int r = 0;

	if (parent && parent[0]) {
		r = check_uuid(parent, "parent UUID", err);
		if (r < 0)
			return r;
		memcpy(h->parent_uuid, parent, LSMT_UUID_LEN + 1);
	}
	return lsmt_head_set_uuid(h, uuid, err);
}

static int check_virtual_size(uint64_t size, struct err *err)
{
	if (size == 0 || size % 512 || size > LSMT_VIRTUAL_MAX)
		return err_set(err, -EINVAL,
			       "a layer for a disk of %" PRIu64 " bytes: the size must be a positive multiple of 512",
			       size);
	return 0;
}

static int check_empty(int fd, const char *name, struct err *err)
{
	uint64_t size;
	int r = lsmt_check_fd(fd, true, name, &size, err);

	if (r == 0 && size)
		return err_set(err, -EEXIST, "%s: the file is not empty (%" PRIu64 " bytes)", name, size);
	return r;
}

int lsmt_create(int data_fd, int index_fd, uint64_t virtual_size, const char *uuid, const char *parent_uuid,
		struct err *err)
{
	struct lsmt_head h = { .flags = LSMT_FLAG_HEADER | LSMT_FLAG_DATA, .virtual_size = virtual_size };
	uint8_t block[LSMT_BLOCK];
	int r = check_virtual_size(virtual_size, err);

	if (r == 0)
		r = check_empty(data_fd, "new layer's data file", err);
	if (r == 0)
		r = check_empty(index_fd, "new layer's index file", err);
	if (r == 0)
		r = set_uuids(&h, uuid, parent_uuid, err);
	if (r < 0)
		return r;
	lsmt_head_encode(&h, block);
	r = fd_pwrite_full(data_fd, block, sizeof(block), 0);
	if (r == 0) {
		h.flags = LSMT_FLAG_HEADER;
		lsmt_head_encode(&h, block);
		r = fd_pwrite_full(index_fd, block, sizeof(block), 0);
	}
	if (r == 0 && (fdatasync(data_fd) < 0 || fdatasync(index_fd) < 0))
		r = -errno;
	return r < 0 ? err_errno(err, r, "write a new layer") : 0;
}

int lsmt_seal_file(int fd, const struct lsmt_head *head, uint64_t data_end, const uint8_t *entries, uint64_t n,
		   struct err *err)
{
	struct lsmt_head h = *head;
	uint64_t at = ALIGN_UP(data_end * 512, (uint64_t)LSMT_BLOCK), bytes = n * LSMT_ENTRY_BYTES;
	uint64_t padded = MAX(ALIGN_UP(bytes, (uint64_t)LSMT_BLOCK), (uint64_t)LSMT_BLOCK);
	uint8_t block[LSMT_BLOCK];
	int r;

	for (size_t i = 0; i < sizeof(block); i += LSMT_ENTRY_BYTES) {
		le64_store(block + i, LSMT_OFFSET_MAX);
		le64_store(block + i + 8, 0);
	}
	r = fd_pwrite_full(fd, entries, bytes, (off_t)at);
	if (r == 0)
		r = fd_pwrite_full(fd, block, padded - bytes, (off_t)(at + bytes));
	h.flags = LSMT_FLAG_DATA | LSMT_FLAG_SEALED;
	h.index_offset = at;
	h.index_entries = padded / LSMT_ENTRY_BYTES;
	lsmt_head_encode(&h, block);
	if (r == 0)
		r = fd_pwrite_full(fd, block, sizeof(block), (off_t)(at + padded));
	/* The trailer is the last of the file; a write that failed may have left something behind it. */
	if (r == 0 && (ftruncate(fd, (off_t)(at + padded + LSMT_BLOCK)) < 0 || fdatasync(fd) < 0))
		r = -errno;
	h.flags |= LSMT_FLAG_HEADER;
	h.index_offset = h.index_entries = 0;
	lsmt_head_encode(&h, block);
	if (r == 0)
		r = fd_pwrite_full(fd, block, sizeof(block), 0);
	if (r == 0 && fdatasync(fd) < 0)
		r = -errno;
	return r < 0 ? err_errno(err, r, "write the layer's index") : 0;
}

static int insert_each(void *arg, const struct lsmt_seg *s)
{
	return lsmt_index_insert(arg, s);
}

/* Sealed already, by an attempt that was cut behind its last write? */
static bool is_sealed(int fd, const char *name)
{
	struct lsmt_sealed l;

	return lsmt_sealed_open(fd, name, &l, NULL) == 0;
}

int lsmt_seal_pair(int data_fd, int index_fd, const char *name, struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES), *entries = NULL;
	struct lsmt_index index;
	struct lsmt_pair p;
	uint64_t size;
	int r;

	if (is_sealed(data_fd, name))
		return 0;
	if (!buf)
		return err_errno(err, -ENOMEM, "%s", name);
	r = lsmt_check_fd(index_fd, true, name, &size, err);
	if (r == 0)
		r = lsmt_index_init(&index, 2 * size / LSMT_ENTRY_BYTES, err); /* an entry splits one at most */
	if (r < 0)
		return r;
	r = lsmt_pair_open(data_fd, index_fd, name, buf, insert_each, &index, &p, err);
	if (r == 0) {
		entries = malloc(index.count * LSMT_ENTRY_BYTES + 1);
		if (!entries)
			r = err_errno(err, -ENOMEM, "%s: an index of %" PRIu64 " entries", name, index.count);
	}
	if (r == 0) {
		lsmt_index_extract(&index, 0, entries, index.count);
		r = lsmt_seal_file(data_fd, &p.head, p.data_end, entries, index.count, err);
		if (r < 0)
			err_prefix(err, "%s: ", name);
	}
	lsmt_index_finish(&index);
	return r;
}

struct pack {
	int raw, out;
	uint64_t size;
	uint64_t at; /* of the next data, bytes */
	struct lsmt_index index;
	uint8_t *buf;
};

static bool all_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Store n bytes of the buffer, those of the disk at `offset`. */
static int pack_run(struct pack *k, const uint8_t *p, uint64_t offset, size_t n)
{
	int r = fd_pwrite_full(k->out, p, n, (off_t)k->at);

	for (uint64_t done = 0; r == 0 && done < n;) {
		uint64_t part = MIN(n - done, (uint64_t)LSMT_LENGTH_MAX * 512);
		struct lsmt_seg s = {
		    .offset = (offset + done) / 512, .length = (uint32_t)(part / 512), .moffset = (k->at + done) / 512};

		r = lsmt_index_insert(&k->index, &s);
		done += part;
	}
	k->at += n;
	return r;
}

/* [offset, offset + n) is in the buffer: store what is not zero. */
static int pack_buffer(struct pack *k, uint64_t offset, size_t n)
{
	size_t at = 0, start;

	while (at < n) {
		while (at < n && all_zero(k->buf + at, MIN(n - at, (size_t)PACK_UNIT)))
			at += MIN(n - at, (size_t)PACK_UNIT);
		start = at;
		while (at < n && !all_zero(k->buf + at, MIN(n - at, (size_t)PACK_UNIT)))
			at += MIN(n - at, (size_t)PACK_UNIT);
		if (at > start) {
			int r = pack_run(k, k->buf + start, offset + start, at - start);

			if (r < 0)
				return r;
		}
	}
	return 0;
}

static int pack_all(struct pack *k, struct err *err)
{
	uint64_t pos = 0;

	while (pos < k->size) {
		off_t from = lseek(k->raw, (off_t)pos, SEEK_DATA), to;
		uint64_t end;

		if (from < 0 && errno == ENXIO)
			return 0;
		/* A file system without holes, or a device: all of it is data. */
		to = from < 0 ? -1 : lseek(k->raw, from, SEEK_HOLE);
		pos = from < 0 ? pos : ALIGN_DOWN((uint64_t)from, (uint64_t)PACK_UNIT);
		end = to < 0 ? k->size : MIN(ALIGN_UP((uint64_t)to, (uint64_t)PACK_UNIT), k->size);
		while (pos < end) {
			size_t n = MIN(end - pos, (uint64_t)PACK_BUFFER);
			ssize_t got = fd_pread_full(k->raw, k->buf, n, (off_t)pos);
			int r;

			if (got < 0)
				return err_errno(err, (int)got, "read the image at %" PRIu64, pos);
			if ((size_t)got < n)
				memset(k->buf + got, 0, n - (size_t)got);
			r = pack_buffer(k, pos, n);
			if (r < 0)
				return err_errno(err, r, "write the layer at %" PRIu64, k->at);
			pos += n;
		}
	}
	return 0;
}

int lsmt_pack_raw(int raw_fd, uint64_t size, int out_fd, const char *uuid, struct err *err)
{
	_cleanup_free_ uint8_t *buf = malloc(PACK_BUFFER), *entries = NULL;
	struct pack k = { .raw = raw_fd, .out = out_fd, .size = size, .at = LSMT_BLOCK, .buf = buf };
	struct lsmt_head h = { .virtual_size = size };
	int r = check_virtual_size(size, err);

	if (r == 0)
		r = check_empty(out_fd, "new layer", err);
	if (r == 0)
		r = set_uuids(&h, uuid, NULL, err);
	if (r < 0)
		return r;
	if (!buf)
		return err_errno(err, -ENOMEM, "new layer");
	r = lsmt_index_init(&k.index, size / PACK_UNIT + 1, err);
	if (r < 0)
		return r;
	r = pack_all(&k, err);
	if (r == 0) {
		entries = malloc(k.index.count * LSMT_ENTRY_BYTES + 1);
		if (!entries)
			r = err_errno(err, -ENOMEM, "an index of %" PRIu64 " entries", k.index.count);
	}
	if (r == 0) {
		lsmt_index_extract(&k.index, 0, entries, k.index.count);
		r = lsmt_seal_file(out_fd, &h, k.at / 512, entries, k.index.count, err);
	}
	lsmt_index_finish(&k.index);
	return r;
}
