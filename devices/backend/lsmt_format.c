/* SPDX-License-Identifier: Apache-2.0 */
/* Header and trailer blocks and index entries of LSMT layers: see lsmt_format.h. */
/* syscalls(main): fcntl(1=F_GETFL) fstat newfstatat pread64 */
#include "devices/backend/lsmt_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/fd.h"

#define MAGIC0 0x00020100544d534cull /* "LSMT", 0, 1, 2, 0 */
static const uint8_t magic1[16] = { 0x65, 0x7e, 0x63, 0xd2, 0x94, 0x44, 0x08, 0x4c,
				    0xa2, 0xd2, 0xc8, 0xec, 0x4f, 0xcf, 0xae, 0x8a };
#define NIL_UUID "00000000-0000-0000-0000-000000000000"

/* Places in a header or trailer block. */
enum {
	AT_MAGIC1 = 8, AT_SIZE = 24, AT_FLAGS = 28, AT_INDEX_OFFSET = 32, AT_INDEX_ENTRIES = 40, AT_VIRTUAL = 48,
	AT_UUID = 56, AT_PARENT = 93, AT_VERSION = 132, AT_SUB_VERSION = 133, HEAD_BYTES = 390,
};

void lsmt_entry_encode(const struct lsmt_seg *s, uint8_t ret[LSMT_ENTRY_BYTES])
{
	le64_store(ret, s->offset | (uint64_t)s->length << 50);
	le64_store(ret + 8, (s->zeroed ? 0 : s->moffset) | (uint64_t)s->zeroed << 55 | (uint64_t)s->tag << 56);
}

void lsmt_entry_decode(const uint8_t p[LSMT_ENTRY_BYTES], struct lsmt_seg *ret)
{
	uint64_t low = le64_load(p), high = le64_load(p + 8);

	*ret = (struct lsmt_seg){
		.offset = low & LSMT_OFFSET_MAX,
		.length = (uint32_t)(low >> 50),
		.moffset = high & LSMT_MOFFSET_MAX,
		.zeroed = high >> 55 & 1,
		.tag = (uint8_t)(high >> 56),
	};
}

const char *lsmt_seg_fault(const struct lsmt_seg *s, uint64_t sectors, uint64_t data_end)
{
	if (s->length == 0)
		return "is empty";
	if (s->offset >= sectors || s->length > sectors - s->offset)
		return "lies outside the disk";
	if (s->zeroed)
		return NULL;
	if (s->moffset < LSMT_HEADER_SECTORS || s->moffset >= data_end || s->length > data_end - s->moffset)
		return "has its data outside the file's data";
	return NULL;
}

void lsmt_head_encode(const struct lsmt_head *h, uint8_t ret[LSMT_BLOCK])
{
	memset(ret, 0, LSMT_BLOCK);
	le64_store(ret, MAGIC0);
	memcpy(ret + AT_MAGIC1, magic1, sizeof(magic1));
	le32_store(ret + AT_SIZE, HEAD_BYTES);
	le32_store(ret + AT_FLAGS, h->flags);
	le64_store(ret + AT_INDEX_OFFSET, h->index_offset);
	le64_store(ret + AT_INDEX_ENTRIES, h->index_entries);
	le64_store(ret + AT_VIRTUAL, h->virtual_size);
	memcpy(ret + AT_UUID, h->uuid[0] ? h->uuid : NIL_UUID, LSMT_UUID_LEN);
	memcpy(ret + AT_PARENT, h->parent_uuid[0] ? h->parent_uuid : NIL_UUID, LSMT_UUID_LEN);
	ret[AT_VERSION] = 1;
	ret[AT_SUB_VERSION] = 1;
}

/* Anything that is not one, and the nil one, is none. */
static void read_uuid(const uint8_t *p, char ret[LSMT_UUID_LEN + 1])
{
	ret[0] = 0;
	for (int i = 0; i < LSMT_UUID_LEN; i++) {
		bool dash = i == 8 || i == 13 || i == 18 || i == 23;
		bool hex = (p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f') || (p[i] >= 'A' && p[i] <= 'F');

		if (dash ? p[i] != '-' : !hex)
			return;
	}
	if (memcmp(p, NIL_UUID, LSMT_UUID_LEN) == 0)
		return;
	memcpy(ret, p, LSMT_UUID_LEN);
	ret[LSMT_UUID_LEN] = 0;
}

int lsmt_head_decode(const uint8_t b[LSMT_BLOCK], const char *name, const char *what, struct lsmt_head *ret,
		     struct err *err)
{
	struct lsmt_head h = {
		.flags = le32_load(b + AT_FLAGS),
		.index_offset = le64_load(b + AT_INDEX_OFFSET),
		.index_entries = le64_load(b + AT_INDEX_ENTRIES),
		.virtual_size = le64_load(b + AT_VIRTUAL),
	};

	if (le64_load(b) != MAGIC0 || memcmp(b + AT_MAGIC1, magic1, sizeof(magic1)) != 0)
		return err_set(err, -EINVAL, "%s: not an LSMT layer: no magic number in its %s", name, what);
	if (le32_load(b + AT_SIZE) != HEAD_BYTES)
		return err_set(err, -EINVAL, "%s: its %s says it has %u bytes, not %d", name, what,
			       le32_load(b + AT_SIZE), HEAD_BYTES);
	if (b[AT_VERSION] != 1)
		return err_set(err, -ENOTSUP, "%s: LSMT version %u in its %s: only 1 is known", name, b[AT_VERSION],
			       what);
	if (h.virtual_size == 0 || h.virtual_size % 512 || h.virtual_size > LSMT_VIRTUAL_MAX)
		return err_set(err, -EINVAL,
			       "%s: its %s gives a disk size of %" PRIu64 " bytes, which is no size of a disk", name,
			       what, h.virtual_size);
	if (h.flags & (LSMT_FLAG_GC | LSMT_FLAG_SPARSE))
		return err_set(err, -ENOTSUP, "%s: flags %#x in its %s: sparse and collected layers are not supported",
			       name, h.flags, what);
	read_uuid(b + AT_UUID, h.uuid);
	read_uuid(b + AT_PARENT, h.parent_uuid);
	*ret = h;
	return 0;
}

int lsmt_head_read(int fd, uint64_t off, const char *name, const char *what, struct lsmt_head *ret, struct err *err)
{
	uint8_t block[LSMT_BLOCK];
	ssize_t n = fd_pread_full(fd, block, sizeof(block), (off_t)off);

	if (n < 0)
		return err_errno(err, (int)n, "%s: read its %s", name, what);
	if (n != (ssize_t)sizeof(block))
		return err_set(err, -EINVAL, "%s: too short for a %s", name, what);
	return lsmt_head_decode(block, name, what, ret, err);
}

int lsmt_check_fd(int fd, bool write, const char *name, uint64_t *ret_size, struct err *err)
{
	int flags = fcntl(fd, F_GETFL), mode = flags & O_ACCMODE;
	struct stat st;

	if (flags < 0 || fstat(fd, &st) < 0)
		return err_errno(err, -errno, "%s: descriptor %d", name, fd);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "%s: descriptor %d is not a regular file", name, fd);
	if (write ? mode != O_RDWR : (mode != O_RDWR && mode != O_RDONLY))
		return err_set(err, -EINVAL, "%s: descriptor %d is not open for %s", name, fd,
			       write ? "reading and writing" : "reading");
	if (flags & (write ? O_APPEND | O_DIRECT | O_PATH : O_DIRECT | O_PATH))
		return err_set(err, -EINVAL, "%s: descriptor %d is open with O_APPEND, O_DIRECT or O_PATH", name, fd);
	*ret_size = (uint64_t)st.st_size;
	return 0;
}
