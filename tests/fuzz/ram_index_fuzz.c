/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ram.index` and `ram` as a hostile snapshot might hold them.
 *
 * Input: a byte of flags, then the index's length in 2 bytes, the index, and what lies in `ram` from RAM_DATA_START
 * on. Flags: bit 0: all checksums are made right first, so that what they protect is reached; bit 1: a good full image
 * is given as parent; bit 2: the data header is left out. What can be opened is verified, loaded and flattened; what
 * loads must come back from the flattened image, and what can be verified must load.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram_format.h"
#include "tests/fuzz/fuzz.h"

enum { FIX = 1, PARENT = 2, NO_HEADER = 4, SIZE = (1 << 20) + 3 * MEM_PAGE_SIZE };

static const struct ram_id parent_id = { { 7, 7 } };

struct files {
	int data, index;
};

static struct files make_files(void)
{
	struct files f = { memfd_create("ram", MFD_CLOEXEC), memfd_create("index", MFD_CLOEXEC) };

	FUZZ_REQUIRE(f.data >= 0 && f.index >= 0);
	return f;
}

static void close_files(struct files *f)
{
	fd_close(f->data);
	fd_close(f->index);
}

static struct files make_parent(void)
{
	struct files f = make_files();
	struct mem m;
	struct err err = ERR_INIT;
	struct ram_writer *w = NULL;
	uint64_t pages[SIZE / MEM_PAGE_SIZE / 64 + 1];

	memset(pages, 0xff, sizeof(pages));
	FUZZ_REQUIRE(mem_init(&m, -1, SIZE, &err) == 0);
	for (unsigned i = 0; i < 100; i += 3)
		mem_write(&m, GPA(i * MEM_PAGE_SIZE), "parent", 6);
	struct ram_writer_config c = { .mem = &m, .data_fd = f.data, .index_fd = f.index, .id = parent_id };

	FUZZ_REQUIRE(ram_writer_new(&c, &w, &err) == 0);
	FUZZ_REQUIRE(ram_writer_put(w, NULL, pages, &err) == 0);
	FUZZ_REQUIRE(ram_writer_finish(w, NULL, &err) == 0);
	ram_writer_free(w);
	mem_finish(&m);
	return f;
}

/* The stored bytes' hash as the reader makes it, for records whose frame lies in the data. */
static void fix_record(struct ram_record *rec, const uint8_t *data, size_t n, bool identity)
{
	uint64_t off = le64_get(rec->offset) - RAM_DATA_START;
	uint32_t len = le32_get(rec->length);

	if (off > n || !le16_get(rec->present))
		return;
	if (!identity && len <= n - off)
		rec->hash = le64_make(ram_hash(data + off, len));
	else if (identity && n - off >= RAM_CHUNK_SIZE)
		rec->hash = le64_make(ram_hash_pages(data + off, le16_get(rec->present)));
}

static void fix_index(uint8_t *index, size_t len, const uint8_t *data, size_t n)
{
	struct ram_index_header h;
	size_t records = (len - sizeof(h)) / sizeof(struct ram_record);

	memcpy(&h, index, sizeof(h));
	for (size_t k = 0; k < records; k++) {
		struct ram_record rec;

		memcpy(&rec, index + sizeof(h) + k * sizeof(rec), sizeof(rec));
		fix_record(&rec, data, n, le32_get(h.encoding) == RAM_RAW && le32_get(h.kind) == RAM_FULL);
		memcpy(index + sizeof(h) + k * sizeof(rec), &rec, sizeof(rec));
	}
	h.records_hash = le64_make(ram_hash(index + sizeof(h), len - sizeof(h)));
	h.hash = le64_make(ram_hash(&h, offsetof(struct ram_index_header, hash)));
	memcpy(index, &h, sizeof(h));
}

/* The header that fits to the index. */
static void write_header(int fd, const uint8_t *index)
{
	struct ram_index_header h;
	struct ram_data_header d = { .magic = RAM_DATA_MAGIC };

	memcpy(&h, index, sizeof(h));
	d.version = h.version;
	d.header_size = le32_make(sizeof(d));
	d.id = h.id;
	d.encoding = h.encoding;
	d.kind = h.kind;
	d.mem_size = le64_make(SIZE);
	d.page_size = le32_make(MEM_PAGE_SIZE);
	d.hash = le64_make(ram_hash(&d, offsetof(struct ram_data_header, hash)));
	FUZZ_REQUIRE(fd_pwrite_full(fd, &d, sizeof(d), 0) == 0);
}

static void same_memory(const struct mem *a, const struct mem *b)
{
	uint8_t x[MEM_PAGE_SIZE], y[MEM_PAGE_SIZE];

	for (uint64_t at = 0; at < SIZE; at += MEM_PAGE_SIZE) {
		FUZZ_REQUIRE(mem_read(a, GPA(at), x, sizeof(x)) == 0 && mem_read(b, GPA(at), y, sizeof(y)) == 0);
		FUZZ_REQUIRE(memcmp(x, y, sizeof(x)) == 0);
	}
}

static void check_flat(struct ram_image *im, const struct mem *want)
{
	struct files f = make_files();
	struct ram_source source = { f.data, f.index };
	struct ram_image *flat = NULL;
	struct mem m;
	struct err err = ERR_INIT;
	const struct ram_id id = { { 9 } };

	FUZZ_REQUIRE(ram_image_flatten(im, f.data, f.index, 1, &id, &err) == 0);
	FUZZ_REQUIRE(ram_image_open(&source, 1, SIZE, &flat, &err) == 0);
	FUZZ_REQUIRE(mem_init(&m, -1, SIZE, &err) == 0);
	FUZZ_REQUIRE(ram_image_load(flat, &m, NULL, &err) == 0);
	same_memory(&m, want);
	mem_finish(&m);
	ram_image_close(flat);
	close_files(&f);
}

static void use(struct ram_image *im)
{
	struct mem m, mapped;
	struct err err = ERR_INIT;
	int verified = ram_image_verify(im, NULL, NULL, &err), loaded;

	FUZZ_REQUIRE(verified == 0 || err.text[0]);
	FUZZ_REQUIRE(mem_init(&m, -1, SIZE, &err) == 0);
	FUZZ_REQUIRE(mem_init(&mapped, -1, SIZE, &err) == 0);
	loaded = ram_image_load(im, &m, NULL, &err);
	FUZZ_REQUIRE(loaded == 0 || (err.text[0] && verified < 0));
	if (loaded == 0)
		check_flat(im, &m);
	if (ram_image_map(im, &mapped, NULL, &err) == 0 && verified == 0)
		same_memory(&m, &mapped);
	mem_finish(&mapped);
	mem_finish(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct files parent = { -1, -1 };
	struct fuzz_input in = { data, size };
	struct ram_image *im = NULL;
	struct err err = ERR_INIT;
	uint8_t flags = fuzz_u8(&in);
	size_t len = fuzz_u16(&in);

	if (parent.data < 0)
		parent = make_parent();
	len = MIN(len, in.left);
	const uint8_t *frames = in.p + len;
	size_t n = in.left - len;
	_cleanup_free_ uint8_t *index = malloc(len + 1);
	struct files f = make_files();

	FUZZ_REQUIRE(index);
	memcpy(index, in.p, len);
	if (flags & FIX && len >= sizeof(struct ram_index_header))
		fix_index(index, len, frames, n);
	FUZZ_REQUIRE(fd_pwrite_full(f.index, index, len, 0) == 0);
	if (!(flags & NO_HEADER) && len >= sizeof(struct ram_index_header))
		write_header(f.data, index);
	FUZZ_REQUIRE(fd_pwrite_full(f.data, frames, n, RAM_DATA_START) == 0);
	/* As long as the index says, so that a small input can stand for a large file. */
	if (len >= sizeof(struct ram_index_header)) {
		uint64_t want = le64_load(index + offsetof(struct ram_index_header, data_size));

		if (want <= RAM_DATA_START + 2 * SIZE)
			FUZZ_REQUIRE(ftruncate(f.data, (off_t)want) == 0);
	}
	struct ram_source chain[] = { { f.data, f.index }, { parent.data, parent.index } };

	if (ram_image_open(chain, flags & PARENT ? 2 : 1, SIZE, &im, &err) == 0)
		use(im);
	else
		FUZZ_REQUIRE(err.text[0] && !im);
	ram_image_close(im);
	close_files(&f);
	return 0;
}
