/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading archives: two readers, one after the other. The first takes away the compression (libarchive; gzip:
 * gunzip.c), the second is libarchive again, is given what that yields and knows the tar formats only. Between them the
 * SHA-256 of the archive without compression is computed, of all of it: also of what comes after the end that the tar
 * says it has.
 *
 * Trust: the archive is hostile, and libarchive is believed nothing but memory safety, which the jail stands in for:
 * sizes, offsets and names are checked before they are sent, and once more by whoever gets them.
 */
#include "host/import/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/import/gunzip.h"
#include "host/import/record.h"
#include "host/posix_acl.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { INPUT_BUFFER = 256 << 10, PIECE = 1 << 20, PROGRESS_STEP = 4 << 20, OUT_BUFFER = 64 << 10 };

struct reader {
	const struct import_job *o;
	struct archive *outer, *tar; /* outer: NULL when it is gzip, or nothing */
	struct gunzip gunzip;
	uint64_t read, shown; /* bytes of the input; of what was told */
	uint64_t plain;       /* bytes without compression */
	uint64_t spool, entries;
	struct sha256_ctx sha;
	int failed; /* -errno that the callback of the tar reader met; its text is in `why` */
	struct err why;
	size_t out_used;
	uint8_t input[INPUT_BUFFER], piece[PIECE], out[OUT_BUFFER];
};

/* ---- sending ---- */

static int flush(struct reader *r, struct err *err)
{
	int e = fd_write_full(IMPORT_RECORDS_FD, r->out, r->out_used);

	r->out_used = 0;
	return e < 0 ? err_errno(err, e, "send") : 0;
}

static int send(struct reader *r, const void *data, size_t n, struct err *err)
{
	const uint8_t *p = data;

	while (n > 0) {
		size_t now = MIN(n, sizeof(r->out) - r->out_used);

		memcpy(r->out + r->out_used, p, now);
		r->out_used += now;
		p += now;
		n -= now;
		if (r->out_used == sizeof(r->out) && flush(r, err) < 0)
			return err->code;
	}
	return 0;
}

static int send_record(struct reader *r, struct import_record *record, const char *name, const char *target,
		       struct err *err)
{
	int e;

	record->name_len = name == NULL ? 0 : (uint32_t)strlen(name);
	record->target_len = target == NULL ? 0 : (uint32_t)strlen(target);
	e = send(r, record, sizeof(*record), err);
	if (e == 0)
		e = send(r, name, record->name_len, err);
	return e < 0 ? e : send(r, target, record->target_len, err);
}

void import_send_error(const struct err *err)
{
	struct import_record record = { .type = IMPORT_ERROR,
					.mode = (uint32_t)-err->code,
					.name_len = (uint32_t)strlen(err->text) };

	if (fd_write_full(IMPORT_RECORDS_FD, &record, sizeof(record)) == 0)
		(void)fd_write_full(IMPORT_RECORDS_FD, err->text, record.name_len);
}

static int show_progress(struct reader *r, struct err *err)
{
	struct import_record record = { .type = IMPORT_PROGRESS, .size = r->read };
	int e;

	r->shown = r->read + r->plain;
	e = send_record(r, &record, NULL, NULL, err);
	return e < 0 ? e : flush(r, err);
}

/* ---- reading ---- */

static int fail_archive(struct archive *a, const char *what, struct err *err)
{
	const char *text = archive_error_string(a);
	int e = archive_errno(a);

	/* What liblzma says at an end that is none. */
	if (text != NULL && strstr(text, "No progress is possible") != NULL)
		text = "truncated xz input: the archive is cut off";
	return err_set(err, e == ENOMEM ? -ENOMEM : -EINVAL, "%s: %s", what,
		       text != NULL ? text : "it is damaged or cut off");
}

static ssize_t more_input(void *arg, const void **ret, struct err *err)
{
	struct reader *r = arg;
	size_t want = (size_t)MIN(r->o->size - r->read, (uint64_t)INPUT_BUFFER);
	ssize_t n = fd_pread_full(IMPORT_INPUT_FD, r->input, want, (off_t)(r->o->offset + r->read));

	if (n < 0 || (size_t)n != want)
		return err_set(err, n < 0 ? (int)n : -EIO, "the file cannot be read, or became shorter");
	r->read += want;
	*ret = r->input;
	return n;
}

static la_ssize_t read_input(struct archive *a, void *arg, const void **ret)
{
	struct err err = ERR_INIT;
	ssize_t n = more_input(arg, ret, &err);

	if (n < 0)
		archive_set_error(a, (int)-n, "%s", err.text);
	return n < 0 ? -1 : n;
}

/* Bytes without compression: how many, 0 at the end, -errno. */
static ssize_t read_plain(struct reader *r, struct err *err)
{
	la_ssize_t n = r->o->size == 0 ? 0 :
		       r->gunzip.open  ? gunzip_read(&r->gunzip, r->piece, sizeof(r->piece), err)
				       : archive_read_data(r->outer, r->piece, sizeof(r->piece));

	if (n < 0 && r->gunzip.open)
		return n;
	if (n < 0)
		return fail_archive(r->outer, "the compression", err);
	r->plain += (uint64_t)n;
	sha256_update(&r->sha, (size_t)n, r->piece);
	if (r->plain > r->o->bytes_max)
		return err_set(err, -EFBIG,
			       "it has more than %" PRIu64 " MiB when it is decompressed: give a larger --size",
			       r->o->bytes_max >> 20);
	if (r->read + r->plain - r->shown >= PROGRESS_STEP && show_progress(r, err) < 0)
		return err->code;
	return n;
}

static la_ssize_t read_tar(struct archive *a, void *arg, const void **ret)
{
	struct reader *r = arg;
	ssize_t n = read_plain(r, &r->why);

	*ret = r->piece;
	if (n >= 0)
		return n;
	r->failed = (int)n;
	archive_set_error(a, (int)-n, "%s", r->why.text);
	return -1;
}

static int open_outer(struct reader *r, struct err *err)
{
	struct archive_entry *entry;
	struct archive *a;
	uint8_t head[2];
	int e;

	if (r->o->size == 0) /* what libarchive does not take: a layer of nothing */
		return 0;
	if (r->o->size >= sizeof(head) &&
	    fd_pread_full(IMPORT_INPUT_FD, head, sizeof(head), (off_t)r->o->offset) == sizeof(head) &&
	    head[0] == 0x1f && head[1] == 0x8b)
		return gunzip_open(&r->gunzip, more_input, r, err);
	a = r->outer = archive_read_new();
	if (a == NULL)
		return err_set(err, -ENOMEM, "no memory");
	archive_read_support_filter_none(a);
	archive_read_support_filter_bzip2(a);
	archive_read_support_filter_xz(a);
	archive_read_support_filter_lzma(a);
	archive_read_support_filter_zstd(a);
	archive_read_support_filter_lz4(a);
	archive_read_support_format_raw(a);
	e = archive_read_open(a, r, NULL, read_input, NULL);
	if (e == ARCHIVE_OK)
		e = archive_read_next_header(a, &entry);
	return e < ARCHIVE_WARN || e == ARCHIVE_EOF ? fail_archive(a, "the compression", err) : 0;
}

/* ---- members ---- */

static bool fits(const char *s)
{
	return s != NULL && *s != '\0' && strlen(s) <= IMPORT_NAME_MAX;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

/* [at, at + n) of the contents that begin at `start` in the spool; whole blocks of zeros stay holes. */
static int put_data(const uint8_t *p, size_t n, uint64_t start, uint64_t at, uint64_t *last_block, uint64_t *stored,
		    struct err *err)
{
	while (n > 0) {
		size_t now = (size_t)MIN((uint64_t)n, IMPORT_ALIGN - at % IMPORT_ALIGN);
		int e = 0;

		if (!is_zero(p, now)) {
			if (at / IMPORT_ALIGN != *last_block)
				*stored += IMPORT_ALIGN;
			*last_block = at / IMPORT_ALIGN;
			/* In runs: a write for each block would be slow. */
			while (now < n && !is_zero(p + now, (size_t)MIN(n - now, (size_t)IMPORT_ALIGN))) {
				size_t more = MIN(n - now, (size_t)IMPORT_ALIGN);

				now += more;
				*stored += IMPORT_ALIGN;
				*last_block = (at + now - 1) / IMPORT_ALIGN;
			}
			e = fd_pwrite_full(IMPORT_SPOOL_FD, p, now, (off_t)(start + at));
		}
		if (e < 0)
			return err_errno(err, e, "write the contents");
		p += now;
		n -= now;
		at += now;
	}
	return 0;
}

static int take_data(struct reader *r, const char *name, struct import_record *record, struct err *err)
{
	uint64_t end = 0, last_block = UINT64_MAX, stored = 0;
	const void *data;
	la_int64_t at;
	size_t n;
	int e, w;

	record->offset = r->spool;
	while ((e = archive_read_data_block(r->tar, &data, &n, &at)) == ARCHIVE_OK || e == ARCHIVE_WARN) {
		if (n == 0)
			continue;
		if (at < 0 || (uint64_t)at < end || (uint64_t)at > record->size || n > record->size - (uint64_t)at)
			return err_set(err, -EINVAL, "'%.200s': its map of holes is damaged", name);
		w = put_data(data, n, r->spool, (uint64_t)at, &last_block, &stored, err);
		if (w < 0)
			return w;
		end = (uint64_t)at + n;
	}
	if (e != ARCHIVE_EOF)
		return r->failed < 0 ? (*err = r->why, r->failed) : fail_archive(r->tar, name, err);
	r->spool += ALIGN_UP(record->size, (uint64_t)IMPORT_ALIGN);
	record->holes = record->size - MIN(stored, record->size);
	return 0;
}

static int send_xattr(struct reader *r, const char *name, const void *value, size_t size, struct err *err)
{
	struct import_xattr x = { .name_len = (uint32_t)strlen(name), .value_len = (uint32_t)size };
	int e = send(r, &x, sizeof(x), err);

	if (e == 0)
		e = send(r, name, x.name_len, err);
	return e < 0 ? e : send(r, value, size, err);
}

/* ACLs, which libarchive has apart from the other attributes, as what they are in a file system. */
struct acl {
	const char *name;
	size_t size;
	uint8_t value[IMPORT_XATTR_VALUE_MAX]; /* or its text, with names */
};

static int take_acl(struct archive_entry *entry, int type, const char *name, struct acl *ret, struct err *err)
{
	ssize_t len = 0;
	char *text;
	int n;

	ret->name = NULL;
	if (!(archive_entry_acl_types(entry) & type))
		return 0;
	text = archive_entry_acl_to_text(entry, &len, type | ARCHIVE_ENTRY_ACL_STYLE_EXTRA_ID);
	n = text == NULL || len < 0 ? -ENOENT : posix_acl_from_text(text, (size_t)len, NULL, NULL, ret->value);
	if (n == -ENOENT && text != NULL && len > 0 && len <= (ssize_t)sizeof(ret->value)) {
		memcpy(ret->value, text, (size_t)len); /* what ids the names are, is to be found out */
		name = type == ARCHIVE_ENTRY_ACL_TYPE_ACCESS ? POSIX_ACL_TEXT_ACCESS : POSIX_ACL_TEXT_DEFAULT;
		n = (int)len;
	}
	free(text);
	if (n == -EINVAL)
		return err_set(err, n, "'%.200s': '%s': that is no ACL", archive_entry_pathname(entry), name);
	ret->name = n < 0 ? POSIX_ACL_WITHOUT_IDS : n > 0 ? name : NULL;
	ret->size = n < 0 ? 0 : (size_t)n;
	return 0;
}

static int send_xattrs(struct reader *r, struct archive_entry *entry, uint32_t n, struct err *err)
{
	archive_entry_xattr_reset(entry);
	for (uint32_t i = 0; i < n; i++) {
		const void *value;
		const char *name;
		size_t size;
		int e;

		if (archive_entry_xattr_next(entry, &name, &value, &size) != ARCHIVE_OK)
			return err_set(err, -EINVAL, "attributes of '%.200s'", archive_entry_pathname(entry));
		if (name == NULL || *name == '\0' || strlen(name) > IMPORT_XATTR_NAME_MAX ||
		    size > IMPORT_XATTR_VALUE_MAX)
			return err_set(
				err, -E2BIG, "'%.200s': attribute '%.80s' has %zu bytes; at most %d are possible",
				archive_entry_pathname(entry), name != NULL ? name : "", size, IMPORT_XATTR_VALUE_MAX);
		e = send_xattr(r, name, value, size, err);
		if (e < 0)
			return e;
	}
	return 0;
}

static int take_numbers(struct archive_entry *entry, const char *name, struct import_record *record, struct err *err)
{
	int64_t uid = archive_entry_uid(entry), gid = archive_entry_gid(entry), size = archive_entry_size(entry);

	if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
		return err_set(err, -EINVAL, "'%.200s' belongs to %" PRId64 ":%" PRId64 ", which are no ids", name, uid,
			       gid);
	record->mode = (uint32_t)archive_entry_mode(entry);
	record->uid = (uint32_t)uid;
	record->gid = (uint32_t)gid;
	record->mtime_s = archive_entry_mtime(entry);
	record->mtime_ns = (uint32_t)archive_entry_mtime_nsec(entry);
	record->major = (uint32_t)archive_entry_rdevmajor(entry);
	record->minor = (uint32_t)archive_entry_rdevminor(entry);
	if (!S_ISREG(record->mode))
		return 0;
	if (size < 0 || (uint64_t)size > IMPORT_FILE_MAX)
		return err_set(err, -EFBIG, "'%.200s' has %" PRId64 " bytes; at most %llu are possible", name, size,
			       IMPORT_FILE_MAX);
	record->size = (uint64_t)size;
	return 0;
}

static int take_member(struct reader *r, struct archive_entry *entry, struct err *err)
{
	const char *name = archive_entry_pathname(entry), *link = archive_entry_hardlink(entry);
	struct import_record record = { .type = link != NULL ? IMPORT_LINK : IMPORT_ENTRY };
	struct acl acl[2];
	uint32_t xattrs;
	int e;

	if (++r->entries > r->o->entries_max)
		return err_set(err, -EFBIG, "it has more than %" PRIu64 " members", r->o->entries_max);
	if (!fits(name))
		return err_set(err, -EINVAL, "member %" PRIu64 " has no name, or one of more than %d bytes: '%.100s'",
			       r->entries, IMPORT_NAME_MAX, name != NULL ? name : "");
	if (link != NULL)
		return fits(link) ? send_record(r, &record, name, link, err)
				  : err_set(err, -EINVAL, "'%.200s' is a hard link without a target", name);
	e = take_numbers(entry, name, &record, err);
	if (e < 0)
		return e;
	if (S_ISREG(record.mode)) {
		if (record.size > IMPORT_SPOOL_MAX - MIN(r->spool, IMPORT_SPOOL_MAX))
			return err_set(err, -EFBIG, "'%.200s': the files have more than %llu bytes together", name,
				       IMPORT_SPOOL_MAX);
		e = take_data(r, name, &record, err);
		if (e < 0)
			return e;
	} else if (S_ISLNK(record.mode)) {
		link = archive_entry_symlink(entry);
		if (!fits(link))
			return err_set(err, -EINVAL,
				       "'%.200s' is a symbolic link to nothing, or to a path of more than %d bytes",
				       name, IMPORT_NAME_MAX);
	}
	e = take_acl(entry, ARCHIVE_ENTRY_ACL_TYPE_ACCESS, POSIX_ACL_ACCESS, &acl[0], err);
	if (e == 0)
		e = take_acl(entry, ARCHIVE_ENTRY_ACL_TYPE_DEFAULT, POSIX_ACL_DEFAULT, &acl[1], err);
	if (e < 0)
		return e;
	xattrs = (uint32_t)archive_entry_xattr_count(entry);
	record.nxattrs = xattrs + (acl[0].name != NULL) + (acl[1].name != NULL);
	if (xattrs > IMPORT_XATTRS_MAX || record.nxattrs > IMPORT_XATTRS_MAX)
		return err_set(err, -E2BIG, "'%.200s' has %u attributes; at most %d are possible", name, record.nxattrs,
			       IMPORT_XATTRS_MAX);
	e = send_record(r, &record, name, S_ISLNK(record.mode) ? link : NULL, err);
	if (e == 0)
		e = send_xattrs(r, entry, xattrs, err);
	for (size_t k = 0; e == 0 && k < ARRAY_SIZE(acl); k++)
		if (acl[k].name != NULL)
			e = send_xattr(r, acl[k].name, acl[k].value, acl[k].size, err);
	return e;
}

static int take_members(struct reader *r, struct err *err)
{
	struct archive_entry *entry;
	int e;

	r->tar = archive_read_new();
	if (r->tar == NULL)
		return err_set(err, -ENOMEM, "no memory");
	archive_read_support_filter_none(r->tar);
	archive_read_support_format_tar(r->tar);
	archive_read_support_format_empty(r->tar);
	e = archive_read_open(r->tar, r, NULL, read_tar, NULL);
	while (e == ARCHIVE_OK || e == ARCHIVE_WARN) {
		e = archive_read_next_header(r->tar, &entry);
		if (e != ARCHIVE_OK && e != ARCHIVE_WARN)
			break;
		if (take_member(r, entry, err) < 0)
			return err->code;
	}
	if (e == ARCHIVE_EOF)
		return 0;
	return r->failed < 0 ? (*err = r->why, r->failed) : fail_archive(r->tar, "no tar, or a damaged one", err);
}

/* ---- the whole ---- */

static int finish(struct reader *r, struct err *err)
{
	struct import_record record = { .type = IMPORT_END };
	char hex[SHA256_HEX_SIZE];
	int e;

	sha256_end_hex(&r->sha, hex);
	record.size = r->plain;
	record.offset = r->spool;
	e = send_record(r, &record, hex, NULL, err);
	return e < 0 ? e : flush(r, err);
}

int import_archive(const struct import_job *job, struct err *err)
{
	bool members = job->mode == IMPORT_MEMBERS;
	struct reader *r = calloc(1, sizeof(*r));
	ssize_t n;
	int e;

	if (r == NULL)
		return err_set(err, -ENOMEM, "no memory");
	r->o = job;
	r->spool = job->spool;
	sha256_init(&r->sha);
	e = open_outer(r, err);
	if (e == 0 && members)
		e = take_members(r, err);
	while (e == 0 && (n = read_plain(r, err)) != 0) {
		e = n < 0 ? (int)n : 0;
		if (e < 0 || members)
			continue;
		e = fd_pwrite_full(IMPORT_SPOOL_FD, r->piece, (size_t)n, (off_t)r->spool);
		if (e < 0)
			err_errno(err, e, "write the work file");
		r->spool += (uint64_t)n;
	}
	if (e == 0)
		e = finish(r, err);
	archive_read_free(r->tar);
	archive_read_free(r->outer);
	gunzip_close(&r->gunzip);
	free(r);
	return e;
}
