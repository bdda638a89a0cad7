/* SPDX-License-Identifier: Apache-2.0 */
/* The file `state`: see state_file.h. */
/* syscalls(main): fstat newfstatat pread64 */
#include "snapshot/state_file.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "lib/fd.h"
#include "lib/le.h"

static const uint8_t magic[8] = { 'C', 'O', 'F', 'F', 'R', 'S', 'T', 0 };

/* Offsets in the header and in a section's head. */
enum { H_VERSION = 8, H_SECTIONS = 12, H_ID = 16, H_ZERO = 32, H_HASH = 40, S_LENGTH = 32, S_ZERO = 36, S_HASH = 40 };

int state_file_begin(struct state_file_writer *w, size_t size, uint32_t sections, struct err *err)
{
	memset(w, 0, sizeof(*w));
	w->room = STATE_FILE_HEADER + size + (size_t)sections * STATE_FILE_SECTION;
	w->buf = calloc(1, w->room);
	if (!w->buf)
		return err_errno(err, -ENOMEM, "state of %zu bytes", w->room);
	w->len = STATE_FILE_HEADER;
	return 0;
}

int state_file_section(struct state_file_writer *w, const char *name, size_t max, uint8_t **ret, struct err *err)
{
	assert(w->open_at == 0 && strlen(name) < STATE_FILE_NAME);
	if (w->room - w->len < STATE_FILE_SECTION || w->room - w->len - STATE_FILE_SECTION < max ||
	    w->nsections == STATE_FILE_SECTIONS_MAX)
		return err_set(err, -ENOSPC, "state: no room for section '%s'", name);
	w->open_at = w->len;
	memcpy(w->buf + w->len, name, strlen(name));
	*ret = w->buf + w->len + STATE_FILE_SECTION;
	return 0;
}

static uint64_t section_hash(const uint8_t *head, const uint8_t *payload, size_t len)
{
	return XXH3_64bits_withSeed(payload, len, XXH3_64bits(head, S_HASH));
}

void state_file_end_section(struct state_file_writer *w, size_t len)
{
	uint8_t *head = w->buf + w->open_at;

	assert(w->open_at != 0 && len <= w->room - w->open_at - STATE_FILE_SECTION);
	le32_store(head + S_LENGTH, (uint32_t)len);
	w->len = w->open_at + STATE_FILE_SECTION + len;
	w->nsections++;
	w->open_at = 0;
}

void state_file_finish(struct state_file_writer *w, const struct ram_id *id)
{
	memcpy(w->buf, magic, sizeof(magic));
	le32_store(w->buf + H_VERSION, STATE_FILE_VERSION);
	le32_store(w->buf + H_SECTIONS, w->nsections);
	memcpy(w->buf + H_ID, id->b, RAM_ID_SIZE);
	le64_store(w->buf + H_HASH, XXH3_64bits(w->buf, H_HASH));
	for (size_t at = STATE_FILE_HEADER; at < w->len;) {
		uint8_t *head = w->buf + at;
		size_t len = le32_load(head + S_LENGTH);

		le64_store(head + S_HASH, section_hash(head, head + STATE_FILE_SECTION, len));
		at += STATE_FILE_SECTION + len;
	}
}

void state_file_writer_free(struct state_file_writer *w)
{
	free(w->buf);
	memset(w, 0, sizeof(*w));
}

static int read_header(struct state_file *f, struct err *err)
{
	const uint8_t *p = f->buf;

	if (f->len < STATE_FILE_HEADER || memcmp(p, magic, sizeof(magic)) != 0)
		return err_set(err, -EINVAL, "state: this is no state of a snapshot (%zu bytes)", f->len);
	if (le32_load(p + H_VERSION) > STATE_FILE_VERSION && le64_load(p + H_HASH) == XXH3_64bits(p, H_HASH))
		return err_set(err, -ENOTSUP, "state: version %u is newer than this program's %d: use a newer release",
			       le32_load(p + H_VERSION), STATE_FILE_VERSION);
	if (le64_load(p + H_HASH) != XXH3_64bits(p, H_HASH) || le32_load(p + H_VERSION) != STATE_FILE_VERSION ||
	    le64_load(p + H_ZERO) != 0)
		return err_set(err, -EINVAL, "state: the header is damaged (checksum)");
	f->nparts = le32_load(p + H_SECTIONS);
	if (f->nparts > STATE_FILE_SECTIONS_MAX)
		return err_set(err, -EINVAL, "state: %u sections, %d are possible", f->nparts, STATE_FILE_SECTIONS_MAX);
	memcpy(f->id.b, p + H_ID, RAM_ID_SIZE);
	return 0;
}

static int read_section(struct state_file *f, uint32_t i, size_t *at, struct err *err)
{
	const uint8_t *head = f->buf + *at;
	struct state_file_part *part = &f->part[i];
	uint32_t len;

	if (f->len - *at < STATE_FILE_SECTION)
		return err_set(err, -EINVAL, "state: cut off at section %u of %u", i + 1, f->nparts);
	memcpy(part->name, head, STATE_FILE_NAME);
	/* Until the hash was right it is printed, never compared. */
	part->name[STATE_FILE_NAME - 1] = 0;
	len = le32_load(head + S_LENGTH);
	if (len > f->len - *at - STATE_FILE_SECTION)
		return err_set(err, -EINVAL, "state: cut off in section %u of %u", i + 1, f->nparts);
	part->data = head + STATE_FILE_SECTION;
	part->len = len;
	if (le64_load(head + S_HASH) != section_hash(head, part->data, len) || head[STATE_FILE_NAME - 1] != 0 ||
	    le32_load(head + S_ZERO) != 0)
		return err_set(err, -EINVAL, "state: section %u of %u is damaged (checksum)", i + 1, f->nparts);
	for (uint32_t k = 0; k < i; k++)
		if (strcmp(f->part[k].name, part->name) == 0)
			return err_set(err, -EINVAL, "state: section '%s' is there twice", part->name);
	*at += STATE_FILE_SECTION + len;
	return 0;
}

int state_file_parse(struct state_file *f, uint8_t *buf, size_t len, struct err *err)
{
	size_t at = STATE_FILE_HEADER;
	int r;

	memset(f, 0, sizeof(*f));
	f->buf = buf;
	f->len = len;
	r = read_header(f, err);
	for (uint32_t i = 0; i < f->nparts && r == 0; i++)
		r = read_section(f, i, &at, err);
	if (r == 0 && at != len)
		r = err_set(err, -EINVAL, "state: %zu bytes left over", len - at);
	if (r < 0)
		state_file_close(f);
	return r;
}

int state_file_open(struct state_file *f, int fd, size_t max, struct err *err)
{
	_cleanup_free_ uint8_t *buf = NULL;
	struct stat st;
	ssize_t n;

	memset(f, 0, sizeof(*f));
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "state");
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > max)
		return err_set(err, -EINVAL, "state: not a file of at most %zu MiB", max >> 20);
	buf = malloc((size_t)st.st_size + 1);
	if (!buf)
		return err_errno(err, -ENOMEM, "state");
	n = fd_pread_full(fd, buf, (size_t)st.st_size, 0);
	if (n < 0)
		return err_errno(err, (int)n, "read state");
	return state_file_parse(f, TAKE_PTR(buf), (size_t)n, err);
}

const struct state_file_part *state_file_find(const struct state_file *f, const char *name)
{
	for (uint32_t i = 0; i < f->nparts; i++)
		if (strcmp(f->part[i].name, name) == 0)
			return &f->part[i];
	return NULL;
}

void state_file_close(struct state_file *f)
{
	free(f->buf);
	memset(f, 0, sizeof(*f));
}
