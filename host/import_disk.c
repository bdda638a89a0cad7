/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Disks that become images: see import_disk.h. An image is a file system without partitions. Of a partitioned disk (MBR, GPT) the one
 * partition is taken that can be meant: the only one of GPT's type for roots, else the only one of a type for Linux. The boot
 * loader and everything else stay behind.
 *
 * Trust: tables are hostile: partitions outside the disk and tables too large are refused. Checksums of GPT are not compared: what is
 * read is bounded, and whether it is a file system is seen then.
 */
#include "host/import_disk.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"

enum {
	SECTOR = 512,
	HEAD_NEEDED = 512,
	MBR_TABLE = 446,
	MBR_ENTRY = 16,
	MBR_LINUX = 0x83,
	MBR_GPT = 0xee,
	GPT_ENTRY_MIN = 128,
	GPT_ENTRY_MAX = 4096,
	GPT_ENTRIES_MAX = 1024,
};

/* As they are on disk. */
static const uint8_t guid_linux[16] = { 0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4 };
static const uint8_t guid_root_x86_64[16] = { 0xe3, 0xbc, 0x68, 0x4f, 0xcd, 0xe8, 0xb1, 0x4d, 0x96, 0xe7, 0xfb, 0xca, 0xf9, 0x84, 0xb7, 0x09 };

/* A part of another disk. */
struct part {
	struct disk_source d;
	struct disk_source *whole;
	uint64_t start;
};

static int part_run(struct disk_source *d, uint64_t offset, uint64_t *ret_len, bool *ret_zero, struct err *err)
{
	struct part *p = (struct part *)d;
	int r = disk_source_run(p->whole, p->start + offset, ret_len, ret_zero, err);

	if (r == 0)
		*ret_len = MIN(*ret_len, d->size - offset);
	return r;
}

static int part_read(struct disk_source *d, void *buf, size_t len, uint64_t offset, struct err *err)
{
	struct part *p = (struct part *)d;

	return disk_source_read(p->whole, buf, len, p->start + offset, err);
}

static const struct disk_source_ops part_ops = { .run = part_run, .read = part_read };

/* What was found, with the best kind of it counted. */
struct choice {
	uint64_t start, size; /* bytes */
	unsigned number, rank, n; /* rank: 2 a root, 1 Linux, 0 nothing */
	unsigned partitions;
};

static int consider(struct choice *c, unsigned number, unsigned rank, uint64_t first, uint64_t sectors, uint64_t disk, struct err *err)
{
	c->partitions++;
	if (rank == 0 || rank < c->rank)
		return 0;
	if (sectors == 0 || first > disk / SECTOR || sectors > disk / SECTOR - first)
		return err_set(err, -EINVAL, "partition %u (sectors %" PRIu64 "+%" PRIu64 ") is not inside the disk", number, first,
			       sectors);
	if (rank > c->rank)
		c->n = 0;
	c->rank = rank;
	if (c->n++ == 0) {
		c->number = number;
		c->start = first * SECTOR;
		c->size = sectors * SECTOR;
	}
	return 0;
}

static int read_gpt(struct disk_source *d, struct choice *c, struct err *err)
{
	uint8_t head[SECTOR], entry[GPT_ENTRY_MIN];
	uint64_t at;
	uint32_t n, size;
	int r;

	if (d->size < 2 * SECTOR)
		return err_set(err, -EINVAL, "it is too short for its partition table");
	r = disk_source_read(d, head, sizeof(head), SECTOR, err);
	if (r < 0)
		return r;
	at = le64_load(head + 72);
	n = le32_load(head + 80);
	size = le32_load(head + 84);
	if (memcmp(head, "EFI PART", 8) != 0 || size < GPT_ENTRY_MIN || size > GPT_ENTRY_MAX || n > GPT_ENTRIES_MAX ||
	    at > d->size / SECTOR || (uint64_t)n * size > d->size - at * SECTOR)
		return err_set(err, -EINVAL, "its GPT is damaged, or for sectors that have not %d bytes", SECTOR);
	for (uint32_t i = 0; i < n; i++) {
		static const uint8_t none[16];
		uint64_t first, last;

		r = disk_source_read(d, entry, sizeof(entry), at * SECTOR + (uint64_t)i * size, err);
		if (r < 0)
			return r;
		if (memcmp(entry, none, sizeof(none)) == 0)
			continue;
		first = le64_load(entry + 32);
		last = le64_load(entry + 40);
		r = consider(c, i + 1,
			     memcmp(entry, guid_root_x86_64, 16) == 0 ? 2 :
			     memcmp(entry, guid_linux, 16) == 0	      ? 1 :
								       0,
			     first, last >= first && last < UINT64_MAX ? last - first + 1 : 0, d->size, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_tables(struct disk_source *d, const uint8_t *head, struct choice *c, struct err *err)
{
	for (unsigned i = 0; i < 4; i++) {
		const uint8_t *e = head + MBR_TABLE + i * MBR_ENTRY;
		int r;

		if (e[4] == MBR_GPT)
			return read_gpt(d, c, err);
		if (e[4] == 0)
			continue;
		r = consider(c, i + 1, e[4] == MBR_LINUX, le32_load(e + 8), le32_load(e + 12), d->size, err);
		if (r < 0)
			return r;
	}
	return 0;
}

static bool has_table(const uint8_t *head)
{
	if (head[510] != 0x55 || head[511] != 0xaa)
		return false;
	for (unsigned i = 0; i < 4; i++) /* a boot sector of something else has other bytes here */
		if (head[MBR_TABLE + i * MBR_ENTRY] & 0x7f)
			return false;
	return true;
}

bool import_disk_is(const uint8_t *head, size_t len)
{
	return qcow2_is(head, len) || (len >= IMAGE_SNIFF && image_format_sniff(head) != IMAGE_FORMAT_UNKNOWN) ||
	       (len >= HEAD_NEEDED && has_table(head));
}

static int read_head(struct disk_source *d, uint8_t head[IMAGE_SNIFF], struct err *err)
{
	memset(head, 0, IMAGE_SNIFF);
	return disk_source_read(d, head, (size_t)MIN(d->size, (uint64_t)IMAGE_SNIFF), 0, err);
}

static int copy(struct disk_source *d, const char *name, int out, enum image_format *ret_format, struct progress *p,
		struct err *note, struct err *err)
{
	struct part part = { .d = { .ops = &part_ops }, .whole = d };
	struct choice c = { 0 };
	uint8_t head[IMAGE_SNIFF];
	int r = read_head(d, head, err);

	if (r < 0)
		return r;
	*ret_format = image_format_sniff(head);
	if (*ret_format != IMAGE_FORMAT_UNKNOWN) {
		r = image_format_check(head, d->size, err);
		return r < 0 ? (err_prefix(err, "'%s': ", name), r) : disk_source_copy(d, out, p, err);
	}
	if (!has_table(head))
		return err_set(err, -EINVAL, "'%s' has neither a file system that guests can have as root (ext4, erofs, squashfs) nor partitions",
			       name);
	r = read_tables(d, head, &c, err);
	if (r < 0)
		return err_prefix(err, "'%s': ", name), r;
	if (c.n != 1)
		return err_set(err, -EINVAL, "'%s' has %u partitions, %u of them for Linux: which is the root? Import that one alone", name,
			       c.partitions, c.n);
	part.start = c.start;
	part.d.size = c.size;
	r = read_head(&part.d, head, err);
	if (r < 0)
		return r;
	*ret_format = image_format_sniff(head);
	if (*ret_format == IMAGE_FORMAT_UNKNOWN)
		return err_set(err, -EINVAL, "'%s': partition %u has no ext4, erofs or squashfs", name, c.number);
	if (image_format_check(head, part.d.size, err) < 0)
		return err_prefix(err, "'%s': partition %u: ", name, c.number), -EINVAL;
	err_set(note, -EAGAIN, "of '%s', which has %u partition%s, partition %u was taken (%" PRIu64 " MiB, %s)", name, c.partitions,
		c.partitions > 1 ? "s" : "", c.number, c.size >> 20, image_format_name(*ret_format));
	return disk_source_copy(&part.d, out, p, err);
}

int import_disk_copy(int fd, const char *name, int out, enum image_format *ret_format, struct progress *p, struct err *note,
		     struct err *err)
{
	struct disk_source *d;
	int r = disk_source_open(fd, name, &d, err);

	if (r < 0)
		return r;
	progress_stage(p, "copying the disk");
	r = copy(d, name, out, ret_format, p, note, err);
	disk_source_close(d);
	return r;
}
