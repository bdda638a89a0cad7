/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers from a hostile side: sealed ones and pairs.
 *
 * Input: what (1 byte: 1 a pair), blocks of 512 bytes of the file (1), whether index and trailer are pulled to a legal
 * place (1: bit 0), header and trailer fields (flags 4, index offset 8, entries 8, disk size 8; twice), then the index.
 * The rest of the files is made here, or no input would pass the magic numbers.
 *
 * What opens must be sound: entries in order inside disk and data, an index that answers for each sector, a disk that
 * can be read; a pair that, once opened, opens again with the same entries and nothing cut off.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "devices/backend/lsmt_index.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "tests/fuzz/fuzz.h"

enum { INDEX_BYTES_MAX = 4096, SECTORS_READ = 4096 };

struct seen {
	struct lsmt_index index;
	uint64_t sectors, data_end, n, sum;
	bool sealed;
	uint64_t next;
};

static int each(void *arg, const struct lsmt_seg *s)
{
	struct seen *v = arg;

	FUZZ_REQUIRE(s->length > 0 && s->offset + s->length <= v->sectors && s->tag == 0);
	if (v->sealed) {
		FUZZ_REQUIRE(s->offset >= v->next);
		FUZZ_REQUIRE(s->zeroed || (s->moffset >= LSMT_HEADER_SECTORS && s->moffset + s->length <= v->data_end));
	}
	v->next = s->offset + s->length;
	v->n++;
	v->sum = v->sum * 31 + s->offset + s->moffset * 7 + s->length * 3 + s->zeroed;
	return lsmt_index_insert(&v->index, s);
}

static void seen_init(struct seen *v, uint64_t virtual_size, uint64_t data_end, bool sealed)
{
	*v = (struct seen){ .sectors = virtual_size / 512, .data_end = data_end, .sealed = sealed };
	FUZZ_REQUIRE(lsmt_index_init(&v->index, 4096, NULL) == 0);
}

/* The index answers for everything, in pieces that lie inside. */
static void seen_finish(struct seen *v)
{
	uint64_t pos = 0;

	for (int i = 0; i < SECTORS_READ && pos < v->sectors; i++) {
		struct lsmt_seg s;

		lsmt_index_lookup(&v->index, pos, v->sectors - pos, &s);
		FUZZ_REQUIRE(s.offset == pos && s.length > 0 && s.length <= v->sectors - pos);
		pos += s.length;
	}
	lsmt_index_finish(&v->index);
}

static void read_head(struct fuzz_input *in, struct lsmt_head *h)
{
	*h = (struct lsmt_head){ .flags = fuzz_u32(in),
				.index_offset = fuzz_u64(in),
				.index_entries = fuzz_u64(in),
				.virtual_size = fuzz_u64(in)};
}

static int make_file(const struct lsmt_head *h, uint64_t size)
{
	int fd = memfd_create("layer", MFD_CLOEXEC);
	uint8_t block[LSMT_BLOCK];

	FUZZ_REQUIRE(fd >= 0);
	lsmt_head_encode(h, block);
	FUZZ_REQUIRE(fd_pwrite_full(fd, block, MIN(size, (uint64_t)LSMT_BLOCK), 0) == 0);
	FUZZ_REQUIRE(ftruncate(fd, (off_t)size) == 0);
	return fd;
}

static void try_sealed(struct lsmt_head *h, struct lsmt_head *t, uint64_t size, bool pull, const uint8_t *index,
		       size_t n, uint8_t *buf)
{
	struct err err = ERR_INIT;
	struct lsmt_sealed l;
	struct lsmt_info info;
	uint8_t block[LSMT_BLOCK];
	struct seen v;
	int64_t got;
	int fd, r;

	if (pull) {
		size = MAX(size, (uint64_t)LSMT_BLOCK);
		t->index_offset = size;
		t->index_entries = n / LSMT_ENTRY_BYTES;
		size += n + LSMT_BLOCK;
	}
	fd = make_file(h, size);
	if (pull)
		FUZZ_REQUIRE(fd_pwrite_full(fd, index, n, (off_t)t->index_offset) == 0);
	lsmt_head_encode(t, block);
	if (size >= 2 * LSMT_BLOCK)
		FUZZ_REQUIRE(fd_pwrite_full(fd, block, sizeof(block), (off_t)(size - LSMT_BLOCK)) == 0);
	r = lsmt_inspect(fd, "layer", &info, &err);
	FUZZ_REQUIRE(r == 0 || (err.code == r && err.text[0]));
	if (lsmt_sealed_open(fd, "layer", &l, NULL) == 0) {
		seen_init(&v, l.head.virtual_size, l.data_end, true);
		got = lsmt_sealed_walk(fd, "layer", &l, buf, each, &v, NULL);
		FUZZ_REQUIRE((got >= 0) == (r == 0));
		if (got >= 0)
			FUZZ_REQUIRE((uint64_t)got == v.n && v.n == info.entries);
		seen_finish(&v);
	} else {
		FUZZ_REQUIRE(r < 0);
	}
	close(fd);
}

static void try_pair(struct lsmt_head *h, struct lsmt_head *x, uint64_t size, bool pull, const uint8_t *index, size_t n,
		     uint8_t *buf)
{
	struct err err = ERR_INIT;
	struct lsmt_pair p, again;
	struct seen v, w;
	struct lsmt_info info;
	int data, log, r;

	if (pull) {
		h->flags = LSMT_FLAG_HEADER | LSMT_FLAG_DATA;
		x->flags = LSMT_FLAG_HEADER;
		x->virtual_size = h->virtual_size;
	}
	data = make_file(h, size);
	log = make_file(x, LSMT_BLOCK);
	FUZZ_REQUIRE(fd_pwrite_full(log, index, n, LSMT_BLOCK) == 0);
	seen_init(&v, h->virtual_size, 0, false);
	r = lsmt_pair_open(data, log, "pair", buf, each, &v, &p, &err);
	FUZZ_REQUIRE(r == 0 || (err.code == r && err.text[0]));
	seen_finish(&v);
	if (r == 0) {
		FUZZ_REQUIRE(p.entries == v.n && p.index_end <= LSMT_BLOCK + n && p.data_end * 512 >= size);
		seen_init(&w, h->virtual_size, 0, false);
		FUZZ_REQUIRE(lsmt_pair_open(data, log, "pair", buf, each, &w, &again, NULL) == 0);
		FUZZ_REQUIRE(!again.torn && again.entries == p.entries && again.index_end == p.index_end &&
			     w.sum == v.sum);
		seen_finish(&w);
		FUZZ_REQUIRE(lsmt_seal_pair(data, log, "pair", &err) == 0);
		FUZZ_REQUIRE(lsmt_inspect(data, "layer", &info, &err) == 0);
		FUZZ_REQUIRE(info.virtual_size == h->virtual_size);
	}
	close(data);
	close(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = { data, size };
	uint8_t *buf = malloc((size_t)LSMT_READ_ENTRIES * LSMT_ENTRY_BYTES);
	uint8_t what = fuzz_u8(&in);
	uint64_t bytes = fuzz_u8(&in) * 512ull;
	bool pull = fuzz_u8(&in) & 1;
	struct lsmt_head h, t;

	FUZZ_REQUIRE(buf);
	read_head(&in, &h);
	read_head(&in, &t);
	(what & 1 ? try_pair : try_sealed)(&h, &t, bytes, pull, in.p, MIN(in.left, (size_t)INDEX_BYTES_MAX), buf);
	free(buf);
	return 0;
}
