/* SPDX-License-Identifier: Apache-2.0 */
/*
 * qcow2 disks (versions 2 and 3) as a source for an import; only read.
 *
 * The format: a header; a first table of places of second tables; these have an entry for each cluster of the disk, which says
 * where its bytes are, that it reads as zeros, or where it lies compressed (deflate or zstd). With "extended L2" an entry has
 * two words, and the second says for each of 32 subclusters whether it is there or reads as zeros.
 *
 * How it works: one second table and one decompressed cluster are kept, since a disk is read from begin to end. What the file
 * says of free space (reference counts) and its internal snapshots are not looked at, so neither matters whether the file
 * was closed in good order.
 *
 * Not taken: backing files and external data files (they name files of the host: a hostile image would read any of them),
 * encryption, and features this does not know.
 *
 * Trust: hostile. Tables and clusters have to lie inside the file and at multiples of a cluster; memory is bounded by
 * L1_MAX and two clusters.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "host/disk_source.h"
#include "lib/fd.h"
#include "lib/util.h"

enum {
	HEADER_V2 = 72,
	HEADER_V3 = 104,
	CLUSTER_BITS_MIN = 9,
	CLUSTER_BITS_MAX = 21,
	EXTENDED_CLUSTER_BITS_MIN = 14,
	L1_MAX = 32 << 20, /* bytes, as other readers have it */
	SUBCLUSTERS = 32,
	DEFLATE = 0,
	ZSTD = 1,
};

#define INCOMPATIBLE_DIRTY (1ull << 0) /* reference counts may be wrong */
#define INCOMPATIBLE_CORRUPT (1ull << 1)
#define INCOMPATIBLE_DATA_FILE (1ull << 2)
#define INCOMPATIBLE_COMPRESSION (1ull << 3)
#define INCOMPATIBLE_EXTENDED (1ull << 4)
#define OFFSET_MASK 0x00fffffffffffe00ull
#define ENTRY_COMPRESSED (1ull << 62)
#define ENTRY_ZERO 1ull

struct header {
	uint32_t version, cluster_bits, crypt_method, l1_size;
	uint64_t backing_offset, size, l1_offset, incompatible;
	uint8_t compression;
};

struct qcow2 {
	struct disk_source d;
	int fd;
	char *name;
	uint64_t file_size, disk_size; /* the latter as the header has it */
	unsigned cluster_bits, l2_bits, entry_words;
	uint8_t compression;
	uint32_t l1_size;
	uint64_t *l1;       /* host's byte order */
	uint64_t *l2;       /* the second table at l2_at, as in the file; 0: none */
	uint64_t l2_at;
	uint8_t *packed;    /* compressed bytes */
	uint8_t *cluster;   /* decompressed, that of the entry `cluster_entry`; 0: none */
	uint64_t cluster_entry;
	ZSTD_DCtx *zstd;
};

enum kind { KIND_ZERO, KIND_DATA, KIND_COMPRESSED };

/* Where a piece of the disk is: up to the end of its cluster, or of its subcluster. */
struct place {
	enum kind kind;
	uint64_t entry;
	uint64_t at;  /* KIND_DATA: in the file */
	uint64_t len;
};

static uint64_t cluster_size(const struct qcow2 *q)
{
	return 1ull << q->cluster_bits;
}

static uint32_t be32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static uint64_t be64(const void *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

bool qcow2_is(const void *head, size_t len)
{
	return len >= 8 && memcmp(head, "QFI\xfb", 4) == 0;
}

/* ---- opening ---- */

static int parse_header(const char *name, const uint8_t *b, size_t len, struct header *h, struct err *err)
{
	if (len < HEADER_V2)
		return err_set(err, -EINVAL, "qcow2 '%s': the file ends inside its header", name);
	*h = (struct header){ .version = be32(b + 4), .backing_offset = be64(b + 8), .cluster_bits = be32(b + 20), .size = be64(b + 24),
			      .crypt_method = be32(b + 32), .l1_size = be32(b + 36), .l1_offset = be64(b + 40) };
	if (h->version != 2 && h->version != 3)
		return err_set(err, -ENOTSUP, "qcow2 '%s': version %" PRIu32 ", known are 2 and 3", name, h->version);
	if (h->version == 2)
		return 0;
	if (len < HEADER_V3 || be32(b + 100) < HEADER_V3)
		return err_set(err, -EINVAL, "qcow2 '%s': the header is too short for version 3", name);
	h->incompatible = be64(b + 72);
	if (be32(b + 100) > HEADER_V3 && len > HEADER_V3)
		h->compression = b[104];
	return 0;
}

static int check_features(const char *name, const struct header *h, struct err *err)
{
	const uint64_t known = INCOMPATIBLE_DIRTY | INCOMPATIBLE_CORRUPT | INCOMPATIBLE_DATA_FILE | INCOMPATIBLE_COMPRESSION |
			       INCOMPATIBLE_EXTENDED;

	if (h->backing_offset)
		return err_set(err, -ENOTSUP, "qcow2 '%s' is only the difference to another file: make it whole with 'qemu-img convert -O qcow2'",
			       name);
	if (h->crypt_method)
		return err_set(err, -ENOTSUP, "qcow2 '%s' is encrypted: decrypt it with 'qemu-img convert'", name);
	if (h->incompatible & INCOMPATIBLE_DATA_FILE)
		return err_set(err, -ENOTSUP, "qcow2 '%s' has its data in another file: make it whole with 'qemu-img convert -O qcow2'", name);
	if (h->incompatible & INCOMPATIBLE_CORRUPT)
		return err_set(err, -EINVAL, "qcow2 '%s' is marked as damaged: see 'qemu-img check'", name);
	if (h->incompatible & ~known)
		return err_set(err, -ENOTSUP, "qcow2 '%s' has features that are not known: 0x%" PRIx64, name, h->incompatible & ~known);
	if (h->compression != DEFLATE && h->compression != ZSTD)
		return err_set(err, -ENOTSUP, "qcow2 '%s': compression %u is not known", name, h->compression);
	return 0;
}

static int check_sizes(const char *name, const struct header *h, uint64_t file_size, struct err *err)
{
	bool extended = h->incompatible & INCOMPATIBLE_EXTENDED;

	if (h->cluster_bits < (extended ? EXTENDED_CLUSTER_BITS_MIN : CLUSTER_BITS_MIN) || h->cluster_bits > CLUSTER_BITS_MAX)
		return err_set(err, -EINVAL, "qcow2 '%s': clusters of 2^%" PRIu32 " bytes", name, h->cluster_bits);
	if (h->size == 0 || h->size > DISK_SOURCE_SIZE_MAX)
		return err_set(err, -EFBIG, "qcow2 '%s': a disk of %" PRIu64 " bytes; 1 to %llu are taken", name, h->size,
			       DISK_SOURCE_SIZE_MAX);

	unsigned l2_bits = h->cluster_bits - (extended ? 4 : 3);
	uint64_t reach = 1ull << (h->cluster_bits + l2_bits), need = (h->size - 1) / reach + 1, bytes = (uint64_t)h->l1_size * 8;

	if (h->l1_size < need || bytes > L1_MAX)
		return err_set(err, -EINVAL, "qcow2 '%s': a first table of %" PRIu32 " entries for a disk of %" PRIu64 " bytes", name,
			       h->l1_size, h->size);
	if (h->l1_offset == 0 || h->l1_offset % (1ull << h->cluster_bits) || h->l1_offset > file_size || file_size - h->l1_offset < bytes)
		return err_set(err, -EINVAL, "qcow2 '%s': the first table is outside the file (offset %" PRIu64 ", %" PRIu64 " bytes)", name,
			       h->l1_offset, bytes);
	return 0;
}

static int read_exact(const struct qcow2 *q, void *buf, size_t len, uint64_t at, struct err *err)
{
	ssize_t n = fd_pread_full(q->fd, buf, len, (off_t)at);

	if (n < 0)
		return err_errno(err, (int)n, "read '%s' at %" PRIu64, q->name, at);
	return (size_t)n == len ? 0 : err_set(err, -EIO, "qcow2 '%s' ends at %" PRIu64 " in the middle of a cluster", q->name, at + (uint64_t)n);
}

static int load(struct qcow2 *q, const struct header *h, struct err *err)
{
	bool extended = h->incompatible & INCOMPATIBLE_EXTENDED;

	q->cluster_bits = h->cluster_bits;
	q->entry_words = extended ? 2 : 1;
	q->l2_bits = h->cluster_bits - (extended ? 4 : 3);
	q->compression = h->compression;
	q->l1_size = h->l1_size;
	q->disk_size = h->size;
	q->d.size = ALIGN_UP(h->size, (uint64_t)DISK_SOURCE_SECTOR);
	q->l1 = calloc(h->l1_size, sizeof(*q->l1));
	q->l2 = malloc(cluster_size(q));
	q->cluster = malloc(cluster_size(q));
	q->packed = malloc(2 * cluster_size(q) + DISK_SOURCE_SECTOR);
	if (q->compression == ZSTD)
		q->zstd = ZSTD_createDCtx();
	if (!q->l1 || !q->l2 || !q->cluster || !q->packed || (q->compression == ZSTD && !q->zstd))
		return err_set(err, -ENOMEM, "no memory to read '%s'", q->name);

	int r = read_exact(q, q->l1, (size_t)h->l1_size * 8, h->l1_offset, err);

	for (uint32_t i = 0; i < q->l1_size && r == 0; i++)
		q->l1[i] = be64(&q->l1[i]);
	return r;
}

/* ---- looking up ---- */

/* Clusters and tables lie at multiples of a cluster, inside the file. */
static int check_place(const struct qcow2 *q, const char *what, uint64_t at, uint64_t offset, struct err *err)
{
	if (at % cluster_size(q) == 0 && at < q->file_size)
		return 0;
	return err_set(err, -EINVAL, "qcow2 '%s': the %s for %" PRIu64 " of the disk is at %" PRIu64 ", which is %s", q->name, what, offset, at,
		       at < q->file_size ? "no begin of a cluster" : "behind the end of the file");
}

static int read_table(struct qcow2 *q, uint64_t at, uint64_t offset, struct err *err)
{
	if (at == q->l2_at)
		return 0;
	int r = check_place(q, "table", at, offset, err);

	q->l2_at = 0;
	if (r == 0)
		r = read_exact(q, q->l2, cluster_size(q), at, err);
	if (r == 0)
		q->l2_at = at;
	return r;
}

/* With extended L2: 32 bits of what is there, 32 of what reads as zeros. Equal neighbours are one piece. */
static int subclusters(const struct qcow2 *q, uint64_t bits, uint64_t in, struct place *p, uint64_t offset, struct err *err)
{
	uint64_t size = cluster_size(q) / SUBCLUSTERS, first = in / size, n = 0;
	uint32_t there = (uint32_t)bits, zero = (uint32_t)(bits >> 32);

	if (there & zero)
		return err_set(err, -EINVAL, "qcow2 '%s': a subcluster near %" PRIu64 " is both there and zero", q->name, offset);
	if (there && !(p->entry & OFFSET_MASK))
		return err_set(err, -EINVAL, "qcow2 '%s': subclusters near %" PRIu64 " of a cluster that is nowhere", q->name, offset);
	bool data = there >> first & 1;

	while (first + n < SUBCLUSTERS && (there >> (first + n) & 1) == data)
		n++;
	p->kind = data ? KIND_DATA : KIND_ZERO;
	p->len = (first + n) * size - in;
	return 0;
}

static int locate(struct qcow2 *q, uint64_t offset, struct place *p, struct err *err)
{
	uint64_t in = offset & (cluster_size(q) - 1), reach_bits = q->cluster_bits + q->l2_bits;
	uint64_t table = q->l1[offset >> reach_bits] & OFFSET_MASK;

	*p = (struct place){ .kind = KIND_ZERO, .len = cluster_size(q) - in };
	if (table == 0) {
		p->len = (1ull << reach_bits) - (offset & ((1ull << reach_bits) - 1));
		return 0;
	}
	int r = read_table(q, table, offset, err);

	if (r < 0)
		return r;
	uint64_t n = (offset >> q->cluster_bits & ((1ull << q->l2_bits) - 1)) * q->entry_words;

	p->entry = be64(&q->l2[n]);
	if (p->entry & ENTRY_COMPRESSED) {
		p->kind = KIND_COMPRESSED;
		return 0;
	}
	if (q->entry_words == 2)
		r = subclusters(q, be64(&q->l2[n + 1]), in, p, offset, err);
	else if ((p->entry & OFFSET_MASK) && !(p->entry & ENTRY_ZERO))
		p->kind = KIND_DATA;
	if (r == 0 && p->kind == KIND_DATA) {
		uint64_t at = p->entry & OFFSET_MASK;

		r = check_place(q, "cluster", at, offset, err);
		p->at = at + in;
	}
	return r;
}

/* ---- compressed clusters ---- */

static bool inflate_cluster(struct qcow2 *q, size_t packed)
{
	z_stream s = { .next_in = q->packed, .avail_in = (uInt)packed, .next_out = q->cluster, .avail_out = (uInt)cluster_size(q) };

	if (inflateInit2(&s, -MAX_WBITS) != Z_OK)
		return false;
	int r = inflate(&s, Z_FINISH);

	inflateEnd(&s);
	/* The end of the packed bytes is known to a sector only: what comes behind the stream is not its own. */
	return s.avail_out == 0 && (r == Z_STREAM_END || r == Z_BUF_ERROR || r == Z_OK);
}

static bool unzstd_cluster(struct qcow2 *q, size_t packed)
{
	ZSTD_inBuffer in = { q->packed, packed, 0 };
	ZSTD_outBuffer out = { q->cluster, cluster_size(q), 0 };

	ZSTD_DCtx_reset(q->zstd, ZSTD_reset_session_only);
	while (out.pos < out.size) {
		size_t before = in.pos + out.pos, r = ZSTD_decompressStream(q->zstd, &out, &in);

		if (ZSTD_isError(r) || in.pos + out.pos == before)
			return false;
	}
	return true;
}

static int unpack(struct qcow2 *q, uint64_t entry, uint64_t offset, struct err *err)
{
	unsigned bits = 62 - (q->cluster_bits - 8);
	uint64_t at = entry & ((1ull << bits) - 1), sectors = (entry & (ENTRY_COMPRESSED - 1)) >> bits;
	uint64_t len = (sectors + 1) * DISK_SOURCE_SECTOR - at % DISK_SOURCE_SECTOR;

	if (entry == q->cluster_entry)
		return 0;
	if (at >= q->file_size)
		return err_set(err, -EINVAL, "qcow2 '%s': the compressed cluster for %" PRIu64 " is at %" PRIu64 ", behind the end of the file",
			       q->name, offset, at);
	len = MIN(len, q->file_size - at); /* the last one need not fill its sector; len <= 2 clusters by its bits */
	q->cluster_entry = 0;
	int r = read_exact(q, q->packed, (size_t)len, at, err);

	if (r < 0)
		return r;
	if (!(q->compression == ZSTD ? unzstd_cluster(q, (size_t)len) : inflate_cluster(q, (size_t)len)))
		return err_set(err, -EINVAL, "qcow2 '%s': the compressed cluster for %" PRIu64 " of the disk, at %" PRIu64 ", is damaged", q->name,
			       offset, at);
	q->cluster_entry = entry;
	return 0;
}

/* ---- the source ---- */

static int qcow2_run(struct disk_source *d, uint64_t offset, uint64_t *ret_len, bool *ret_zero, struct err *err)
{
	struct qcow2 *q = (struct qcow2 *)d;
	struct place p;
	int r = locate(q, offset, &p, err);

	if (r < 0)
		return r;
	*ret_zero = p.kind == KIND_ZERO;
	*ret_len = MIN(p.len, d->size - offset);
	return 0;
}

static int read_piece(struct qcow2 *q, const struct place *p, uint8_t *buf, size_t n, uint64_t offset, struct err *err)
{
	int r = 0;

	switch (p->kind) {
	case KIND_ZERO:
		memset(buf, 0, n);
		break;
	case KIND_DATA:
		r = read_exact(q, buf, n, p->at, err);
		break;
	case KIND_COMPRESSED:
		r = unpack(q, p->entry, offset, err);
		if (r == 0)
			memcpy(buf, q->cluster + (offset & (cluster_size(q) - 1)), n);
		break;
	}
	return r;
}

static int qcow2_read(struct disk_source *d, void *buf, size_t len, uint64_t offset, struct err *err)
{
	struct qcow2 *q = (struct qcow2 *)d;

	for (size_t done = 0; done < len;) {
		uint64_t at = offset + done;
		struct place p;
		int r = locate(q, at, &p, err);
		size_t n = (size_t)MIN((uint64_t)(len - done), p.len);

		if (r == 0)
			r = read_piece(q, &p, (uint8_t *)buf + done, n, at, err);
		if (r < 0)
			return r;
		/* A disk that ends inside a sector. */
		if (at + n > q->disk_size) {
			uint64_t from = MAX(at, q->disk_size);

			memset((uint8_t *)buf + (from - offset), 0, (size_t)(at + n - from));
		}
		done += n;
	}
	return 0;
}

static void qcow2_close(struct disk_source *d)
{
	struct qcow2 *q = (struct qcow2 *)d;

	ZSTD_freeDCtx(q->zstd);
	free(q->packed);
	free(q->cluster);
	free(q->l2);
	free(q->l1);
	free(q->name);
	free(q);
}

static const struct disk_source_ops qcow2_ops = { .run = qcow2_run, .read = qcow2_read, .close = qcow2_close };

int qcow2_open(int fd, const char *name, struct disk_source **ret, struct err *err)
{
	uint8_t b[HEADER_V3 + 8];
	struct header h = { 0 };
	ssize_t n = fd_pread_full(fd, b, sizeof(b), 0);
	off_t end = lseek(fd, 0, SEEK_END);

	if (n < 0 || end < 0)
		return err_errno(err, n < 0 ? (int)n : -errno, "read '%s'", name);
	int r = parse_header(name, b, (size_t)n, &h, err);

	if (r == 0)
		r = check_features(name, &h, err);
	if (r == 0)
		r = check_sizes(name, &h, (uint64_t)end, err);
	if (r < 0)
		return r;
	struct qcow2 *q = calloc(1, sizeof(*q));

	if (!q)
		return err_set(err, -ENOMEM, "no memory to read '%s'", name);
	q->d.ops = &qcow2_ops;
	q->fd = fd;
	q->file_size = (uint64_t)end;
	q->name = strdup(name);
	r = q->name ? load(q, &h, err) : err_set(err, -ENOMEM, "no memory to read '%s'", name);
	if (r < 0) {
		qcow2_close(&q->d);
		return r;
	}
	*ret = &q->d;
	return 0;
}
