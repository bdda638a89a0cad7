/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tar streams: see tar.h. POSIX.1-2017 pax (ustar and extended headers), with GNU's L, K and base-256 numbers.
 *
 * The reader is a state machine that consumes whatever the piece at hand has: a header block is collected in `block`,
 * an extended header in `pax`; a file's content goes to the sink straight from the piece. What extended headers
 * say is kept in `next`, and `set` tells which of it the following header must take.
 */
#include "lib/tar.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/util.h"

enum { STATE_HEADER, STATE_CONTENT, STATE_EXTENDED, STATE_SKIP, STATE_PADDING, STATE_END };

struct ustar {
	char name[100];
	char mode[8];
	char uid[8];
	char gid[8];
	char size[12];
	char mtime[12];
	char chksum[8];
	char typeflag;
	char linkname[100];
	char magic[6];
	char version[2];
	char uname[32];
	char gname[32];
	char devmajor[8];
	char devminor[8];
	char prefix[155];
	char zero[12];
};
_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a header is one block");

void tar_reader_init(struct tar_reader *r)
{
	memset(r, 0, sizeof(*r));
	r->state = STATE_HEADER;
}

static uint32_t checksum(const unsigned char *block)
{
	uint32_t sum = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++) {
		bool own = i >= offsetof(struct ustar, chksum) && i < offsetof(struct ustar, typeflag);

		sum += own ? ' ' : block[i];
	}
	return sum;
}

/* Octal digits between blanks and NULs, or base-256 when the first byte's top bit is set. 0 or -EINVAL. */
static int parse_number(const char *s, size_t n, int64_t *ret)
{
	const unsigned char *u = (const unsigned char *)s;
	uint64_t v = 0;
	size_t i = 0;

	if (u[0] & 0x80) {
		bool negative = u[0] == 0xff;

		if (u[0] != 0x80 && !negative)
			return -EINVAL;
		for (i = 1; i < n; i++) {
			if (n - i > 8 ? u[i] != (negative ? 0xff : 0) : false)
				return -EINVAL;
			v = v << 8 | u[i];
		}
		if (n <= 8 && negative)
			v |= ~(uint64_t)0 << (8 * (n - 1));
		if ((int64_t)v < 0 && !negative)
			return -EINVAL;
		*ret = (int64_t)v;
		return 0;
	}
	while (i < n && s[i] == ' ')
		i++;
	for (; i < n && s[i] >= '0' && s[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(s[i] - '0'); /* 12 digits at most: 36 bits */
	if (i < n && s[i] != ' ' && s[i] != '\0') /* what follows the end mark means nothing */
		return -EINVAL;
	*ret = (int64_t)v;
	return 0;
}

static int parse_decimal(const char *s, size_t n, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (n == 0)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		unsigned d = (unsigned)(s[i] - '0');

		if (d > 9 || v > (max - d) / 10)
			return -EINVAL;
		v = v * 10 + d;
	}
	*ret = v;
	return 0;
}

/* "[-]seconds[.fraction]" */
static int parse_time(const char *s, size_t n, int64_t *ret_s, uint32_t *ret_ns)
{
	bool negative = n > 0 && s[0] == '-';
	const char *dot = memchr(s, '.', n);
	size_t whole = dot ? (size_t)(dot - s) : n;
	uint64_t seconds, ns = 0, unit = 100000000;

	if (parse_decimal(s + negative, whole - negative, INT64_MAX / 2, &seconds) < 0)
		return -EINVAL;
	for (size_t i = whole + 1; i < n; i++, unit /= 10) {
		if (s[i] < '0' || s[i] > '9')
			return -EINVAL;
		ns += (uint64_t)(s[i] - '0') * unit;
	}
	*ret_s = negative ? -(int64_t)seconds : (int64_t)seconds;
	*ret_ns = (uint32_t)ns;
	if (negative && ns) {
		*ret_s -= 1;
		*ret_ns = (uint32_t)(1000000000 - ns);
	}
	return 0;
}

/* Store a name: not empty unless allowed, no NUL inside, shorter than TAR_PATH_MAX. */
static int store_path(char *dst, const char *s, size_t n, struct err *err)
{
	if (n >= TAR_PATH_MAX)
		return err_set(err, -ENAMETOOLONG, "tar: a name of %zu bytes; the limit is %d", n, TAR_PATH_MAX - 1);
	if (memchr(s, '\0', n))
		return err_set(err, -EINVAL, "tar: a name with a NUL byte in an extended header");
	memcpy(dst, s, n);
	dst[n] = '\0';
	return 0;
}

static bool key_is(const char *key, size_t n, const char *s)
{
	return strlen(s) == n && memcmp(key, s, n) == 0;
}

/* "SCHILY.xattr.NAME": pass NAME on. */
static int pax_xattr(const struct tar_sink *sink, void *arg, const char *name, size_t name_n, const char *v, size_t n,
		     struct err *err)
{
	char terminated[256];

	if (!sink->xattr)
		return 0;
	if (name_n == 0 || name_n >= sizeof(terminated) || memchr(name, '\0', name_n))
		return err_set(err, -EINVAL, "tar: extended header: an attribute's name is empty or too long");
	memcpy(terminated, name, name_n);
	terminated[name_n] = '\0';
	return sink->xattr(arg, terminated, v, n, err);
}

static int pax_record(struct tar_reader *r, const char *key, size_t key_n, const char *v, size_t n, const struct tar_sink *sink,
		      void *arg, struct err *err)
{
	uint64_t u;
	int rc = 0;

	if (key_is(key, key_n, "path")) {
		r->set |= TAR_LONG_PATH;
		return store_path(r->next.name, v, n, err);
	}
	if (key_is(key, key_n, "linkpath")) {
		r->set |= TAR_LONG_LINK;
		return store_path(r->next.link, v, n, err);
	}
	if (key_is(key, key_n, "size")) {
		r->set |= TAR_LONG_SIZE;
		rc = parse_decimal(v, n, INT64_MAX, &r->next.size);
	} else if (key_is(key, key_n, "mtime")) {
		r->set |= TAR_LONG_MTIME;
		rc = parse_time(v, n, &r->next.mtime_s, &r->next.mtime_ns);
	} else if (key_is(key, key_n, "uid") || key_is(key, key_n, "gid")) {
		bool uid = key[0] == 'u';

		r->set |= uid ? TAR_LONG_UID : TAR_LONG_GID;
		rc = parse_decimal(v, n, UINT32_MAX - 1, &u);
		if (rc == 0 && uid)
			r->next.uid = (uint32_t)u;
		else if (rc == 0)
			r->next.gid = (uint32_t)u;
	} else if (key_n > 11 && memcmp(key, "GNU.sparse.", 11) == 0) {
		return err_set(err, -EOPNOTSUPP, "tar: sparse files are not supported; write the archive without --sparse");
	} else if (key_n > 13 && memcmp(key, "SCHILY.xattr.", 13) == 0) {
		return pax_xattr(sink, arg, key + 13, key_n - 13, v, n, err);
	} else if (key_is(key, key_n, TAR_ACL "access") || key_is(key, key_n, TAR_ACL "default")) {
		return pax_xattr(sink, arg, key, key_n, v, n, err);
	}
	if (rc < 0)
		return err_set(err, rc, "tar: extended header: malformed value of '%.*s'", (int)MIN(key_n, (size_t)32), key);
	return 0;
}

/* Records "LENGTH KEY=VALUE\n", LENGTH being that of the whole record. */
static int pax_parse(struct tar_reader *r, const struct tar_sink *sink, void *arg, struct err *err)
{
	const char *p = r->pax, *end = p + r->have;

	while (p < end) {
		const char *space = memchr(p, ' ', (size_t)(end - p)), *key, *eq, *stop;
		uint64_t len;
		int rc;

		if (!space || parse_decimal(p, (size_t)(space - p), TAR_PAX_MAX, &len) < 0 || len > (size_t)(end - p) ||
		    len < (size_t)(space - p) + 4 || p[len - 1] != '\n')
			return err_set(err, -EINVAL, "tar: malformed extended header");
		key = space + 1;
		stop = p + len - 1;
		eq = memchr(key, '=', (size_t)(stop - key));
		if (!eq || eq == key)
			return err_set(err, -EINVAL, "tar: malformed extended header");
		rc = pax_record(r, key, (size_t)(eq - key), eq + 1, (size_t)(stop - eq - 1), sink, arg, err);
		if (rc < 0)
			return rc;
		p += len;
	}
	return 0;
}

static int extended_done(struct tar_reader *r, const struct tar_sink *sink, void *arg, struct err *err)
{
	size_t n = r->have;

	if (r->special == 'x')
		return pax_parse(r, sink, arg, err);
	while (n > 0 && r->pax[n - 1] == '\0') /* GNU counts the NUL */
		n--;
	if (r->special == 'L') {
		r->set |= TAR_LONG_PATH;
		return store_path(r->next.name, r->pax, n, err);
	}
	r->set |= TAR_LONG_LINK;
	return store_path(r->next.link, r->pax, n, err);
}

/* Name and link name of a header, from it or from what came before it. */
static int header_names(struct tar_reader *r, const struct ustar *h, struct err *err)
{
	struct tar_entry *e = &r->e;
	size_t n = 0;

	if (r->set & TAR_LONG_PATH) {
		snprintf(e->name, sizeof(e->name), "%s", r->next.name);
	} else {
		if (memcmp(h->magic, "ustar\0", 6) == 0 && h->prefix[0]) {
			n = strnlen(h->prefix, sizeof(h->prefix));
			memcpy(e->name, h->prefix, n);
			e->name[n++] = '/';
		}
		memcpy(e->name + n, h->name, strnlen(h->name, sizeof(h->name)));
		e->name[n + strnlen(h->name, sizeof(h->name))] = '\0';
	}
	n = strlen(e->name);
	if (n > 0 && e->name[n - 1] == '/' && e->type == TAR_FILE)
		e->type = TAR_DIR; /* how old programs mark them */
	while (n > 1 && e->name[n - 1] == '/')
		e->name[--n] = '\0';
	if (n == 0)
		return err_set(err, -EINVAL, "tar: an entry without a name");
	if (r->set & TAR_LONG_LINK) {
		snprintf(e->link, sizeof(e->link), "%s", r->next.link);
	} else {
		n = strnlen(h->linkname, sizeof(h->linkname));
		memcpy(e->link, h->linkname, n);
		e->link[n] = '\0';
	}
	return 0;
}

static int header_numbers(struct tar_reader *r, const struct ustar *h, struct err *err)
{
	struct tar_entry *e = &r->e;
	int64_t mode, uid, gid, size, mtime;

	if (parse_number(h->mode, sizeof(h->mode), &mode) < 0 || parse_number(h->uid, sizeof(h->uid), &uid) < 0 ||
	    parse_number(h->gid, sizeof(h->gid), &gid) < 0 || parse_number(h->size, sizeof(h->size), &size) < 0 ||
	    parse_number(h->mtime, sizeof(h->mtime), &mtime) < 0 || size < 0)
		return err_set(err, -EINVAL, "tar: malformed number in the header of '%s'", e->name);
	e->mode = (uint32_t)mode & 07777;
	e->size = r->set & TAR_LONG_SIZE ? r->next.size : (uint64_t)size;
	e->mtime_s = r->set & TAR_LONG_MTIME ? r->next.mtime_s : mtime;
	e->mtime_ns = r->set & TAR_LONG_MTIME ? r->next.mtime_ns : 0;
	if (r->set & TAR_LONG_UID)
		uid = r->next.uid;
	if (r->set & TAR_LONG_GID)
		gid = r->next.gid;
	if (uid < 0 || uid >= UINT32_MAX || gid < 0 || gid >= UINT32_MAX)
		return err_set(err, -EINVAL, "tar: '%s': owner %lld:%lld does not exist on Linux", e->name, (long long)uid,
			       (long long)gid);
	e->uid = (uint32_t)uid;
	e->gid = (uint32_t)gid;
	return 0;
}

static unsigned padding_of(uint64_t size)
{
	return (unsigned)(-size & (TAR_BLOCK - 1));
}

static int entry_end(struct tar_reader *r, const struct tar_sink *sink, void *arg, struct err *err)
{
	r->set = 0;
	r->state = r->padding ? STATE_PADDING : STATE_HEADER;
	return sink->end(arg, err);
}

/* An extended or global header: collect or skip its content. */
static int special_header(struct tar_reader *r, const struct ustar *h, struct err *err)
{
	int64_t size;

	if (parse_number(h->size, sizeof(h->size), &size) < 0 || size < 0)
		return err_set(err, -EINVAL, "tar: malformed size of an extended header");
	r->special = (unsigned char)h->typeflag;
	r->left = (uint64_t)size;
	r->padding = padding_of(r->left);
	r->have = 0;
	if (h->typeflag == 'g') {
		r->state = STATE_SKIP;
		return 0;
	}
	if (r->left > TAR_PAX_MAX)
		return err_set(err, -E2BIG, "tar: an extended header of %llu bytes; the limit is %d", (unsigned long long)r->left,
			       TAR_PAX_MAX);
	r->state = STATE_EXTENDED;
	return 0;
}

static int device_header(struct tar_reader *r, const struct ustar *h, const struct tar_sink *sink, void *arg, struct err *err)
{
	int64_t major, minor;
	int rc = header_names(r, h, err);

	if (rc == 0)
		rc = header_numbers(r, h, err);
	if (rc < 0)
		return rc;
	if (parse_number(h->devmajor, sizeof(h->devmajor), &major) < 0 || major < 0 || major > UINT32_MAX ||
	    parse_number(h->devminor, sizeof(h->devminor), &minor) < 0 || minor < 0 || minor > UINT32_MAX || r->e.size != 0)
		return err_set(err, -EINVAL, "tar: '%s': malformed device", r->e.name);
	r->padding = 0;
	rc = sink->device(arg, &r->e, h->typeflag == '4', (uint32_t)major, (uint32_t)minor, err);
	return rc < 0 ? rc : entry_end(r, sink, arg, err);
}

static int header(struct tar_reader *r, const struct tar_sink *sink, void *arg, struct err *err)
{
	static const unsigned char empty[TAR_BLOCK];
	const struct ustar *h = (const struct ustar *)r->block;
	int64_t sum;
	int rc;

	if (memcmp(r->block, empty, TAR_BLOCK) == 0) {
		if (++r->zeros == 2)
			r->state = STATE_END;
		return 0;
	}
	r->zeros = 0;
	if (parse_number(h->chksum, sizeof(h->chksum), &sum) < 0 || sum != checksum(r->block))
		return err_set(err, -EINVAL, "tar: not a tar header (wrong checksum) where one must be");
	switch (h->typeflag) {
	case 'x':
	case 'g':
	case 'L':
	case 'K': return special_header(r, h, err);
	case '0':
	case '7':
	case '\0': r->e.type = TAR_FILE; break;
	case '1': r->e.type = TAR_HARDLINK; break;
	case '2': r->e.type = TAR_SYMLINK; break;
	case '5': r->e.type = TAR_DIR; break;
	case '6': r->e.type = TAR_FIFO; break;
	default:
		if (sink->device && (h->typeflag == '3' || h->typeflag == '4'))
			return device_header(r, h, sink, arg, err);
		rc = header_names(r, h, err);
		return rc < 0 ? rc : err_set(err, -EOPNOTSUPP, "tar: '%s': entries of type '%c' are not supported", r->e.name,
					     h->typeflag);
	}
	rc = header_names(r, h, err);
	if (rc == 0)
		rc = header_numbers(r, h, err);
	if (rc < 0)
		return rc;
	if (r->e.type != TAR_FILE && r->e.size != 0)
		return err_set(err, -EINVAL, "tar: '%s': only files have content", r->e.name);
	if ((r->e.type == TAR_HARDLINK || r->e.type == TAR_SYMLINK) && !r->e.link[0])
		return err_set(err, -EINVAL, "tar: '%s': a link to nothing", r->e.name);
	r->left = r->e.size;
	r->padding = padding_of(r->left);
	rc = sink->entry(arg, &r->e, err);
	if (rc < 0)
		return rc;
	if (r->left == 0)
		return entry_end(r, sink, arg, err);
	r->state = STATE_CONTENT;
	return 0;
}

/* Take up to `n` bytes in the present state; returns how many, or -errno. */
static ssize_t step(struct tar_reader *r, const char *p, size_t n, const struct tar_sink *sink, void *arg, struct err *err)
{
	size_t take;
	int rc = 0;

	switch (r->state) {
	case STATE_HEADER:
		take = MIN(n, TAR_BLOCK - r->have);
		memcpy(r->block + r->have, p, take);
		r->have += take;
		if (r->have == TAR_BLOCK) {
			r->have = 0;
			rc = header(r, sink, arg, err);
		}
		break;
	case STATE_CONTENT:
		take = (size_t)MIN((uint64_t)n, r->left);
		r->left -= take;
		rc = sink->data(arg, p, take, err);
		if (rc == 0 && r->left == 0)
			rc = entry_end(r, sink, arg, err);
		break;
	case STATE_EXTENDED:
		take = (size_t)MIN((uint64_t)n, r->left);
		memcpy(r->pax + r->have, p, take);
		r->have += take;
		r->left -= take;
		if (r->left == 0) {
			rc = extended_done(r, sink, arg, err);
			r->have = 0;
			r->state = r->padding ? STATE_PADDING : STATE_HEADER;
		}
		break;
	case STATE_SKIP:
		take = (size_t)MIN((uint64_t)n, r->left);
		r->left -= take;
		if (r->left == 0)
			r->state = r->padding ? STATE_PADDING : STATE_HEADER;
		break;
	case STATE_PADDING:
		take = MIN(n, (size_t)r->padding);
		r->padding -= (uint32_t)take;
		if (r->padding == 0)
			r->state = STATE_HEADER;
		break;
	default: take = n;
	}
	return rc < 0 ? rc : (ssize_t)take;
}

int tar_reader_feed(struct tar_reader *r, const void *data, size_t n, const struct tar_sink *sink, void *arg, struct err *err)
{
	const char *p = data;

	while (n > 0) {
		ssize_t took = step(r, p, n, sink, arg, err);

		if (took < 0)
			return (int)took;
		p += took;
		n -= (size_t)took;
	}
	return 0;
}

int tar_reader_finish(const struct tar_reader *r, struct err *err)
{
	if (r->state == STATE_END || (r->state == STATE_HEADER && r->have == 0 && r->set == 0))
		return 0;
	return err_set(err, -EINVAL, "tar: the stream ends in the middle of an entry");
}

/* ---- writer ---- */

static void put_octal(char *dst, size_t n, uint64_t v)
{
	dst[n - 1] = '\0';
	for (size_t i = n - 1; i-- > 0; v >>= 3)
		dst[i] = (char)('0' + (v & 7));
}

/* Append "LENGTH KEY=VALUE\n"; the length counts its own digits. The buffer is large enough (TAR_HEADER_MAX). */
static size_t put_record(char *dst, const char *key, const char *value)
{
	size_t body = strlen(key) + strlen(value) + 3, len = body + 1;
	char digits[24];

	for (;;) {
		size_t n = (size_t)snprintf(digits, sizeof(digits), "%zu", len);

		if (n + body == len)
			break;
		len = n + body;
	}
	return (size_t)sprintf(dst, "%s %s=%s\n", digits, key, value);
}

static void put_block(char *dst, const char *name, char type, const char *link, const struct tar_entry *e, uint64_t size)
{
	struct ustar *h = (struct ustar *)dst;

	memset(h, 0, sizeof(*h));
	memcpy(h->name, name, strnlen(name, sizeof(h->name)));
	memcpy(h->linkname, link, strnlen(link, sizeof(h->linkname)));
	put_octal(h->mode, sizeof(h->mode), e->mode & 07777);
	put_octal(h->uid, sizeof(h->uid), MIN(e->uid, 07777777u));
	put_octal(h->gid, sizeof(h->gid), MIN(e->gid, 07777777u));
	put_octal(h->size, sizeof(h->size), MIN(size, (uint64_t)077777777777));
	put_octal(h->mtime, sizeof(h->mtime), (uint64_t)MIN(MAX(e->mtime_s, (int64_t)0), (int64_t)077777777777));
	h->typeflag = type;
	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	put_octal(h->chksum, 7, checksum((unsigned char *)dst));
	h->chksum[7] = ' ';
}

ssize_t tar_header_make(const struct tar_entry *e, void *buf, size_t size)
{
	static const char types[] = { [TAR_FILE] = '0', [TAR_DIR] = '5', [TAR_SYMLINK] = '2', [TAR_HARDLINK] = '1', [TAR_FIFO] = '6' };
	char *out = buf, *pax = out + TAR_BLOCK, value[64];
	char name[TAR_PATH_MAX + 1];
	size_t n = 0, pos = 0, name_n = strnlen(e->name, TAR_PATH_MAX), link_n = strnlen(e->link, TAR_PATH_MAX);

	if (size < TAR_HEADER_MAX)
		return -ENOSPC;
	if (name_n == TAR_PATH_MAX || link_n == TAR_PATH_MAX || name_n == 0)
		return -ENAMETOOLONG;
	memcpy(name, e->name, name_n + 1);
	if (e->type == TAR_DIR && name[name_n - 1] != '/') {
		name[name_n++] = '/';
		name[name_n] = '\0';
	}
	if (name_n > sizeof(((struct ustar *)0)->name))
		n += put_record(pax + n, "path", name);
	if (link_n > sizeof(((struct ustar *)0)->linkname))
		n += put_record(pax + n, "linkpath", e->link);
	if (e->size > 077777777777) {
		snprintf(value, sizeof(value), "%llu", (unsigned long long)e->size);
		n += put_record(pax + n, "size", value);
	}
	if (e->uid > 07777777 || e->gid > 07777777) {
		snprintf(value, sizeof(value), "%u", e->uid);
		n += put_record(pax + n, "uid", value);
		snprintf(value, sizeof(value), "%u", e->gid);
		n += put_record(pax + n, "gid", value);
	}
	if (e->mtime_ns || e->mtime_s < 0 || e->mtime_s > 077777777777) {
		bool back = e->mtime_s < 0 && e->mtime_ns; /* -1.5 is stored as -2 s + 500000000 ns */
		long long s = back ? (long long)e->mtime_s + 1 : (long long)e->mtime_s;
		uint32_t ns = back ? 1000000000 - e->mtime_ns : e->mtime_ns;

		snprintf(value, sizeof(value), "%s%lld.%09u", back && s == 0 ? "-" : "", s, ns);
		n += put_record(pax + n, "mtime", value);
	}
	if (n > 0) {
		struct tar_entry x = { .mode = 0644, .mtime_s = e->mtime_s };

		put_block(out, "PaxHeader", 'x', "", &x, n);
		memset(pax + n, 0, padding_of(n));
		pos = TAR_BLOCK + n + padding_of(n);
	}
	put_block(out + pos, name, types[e->type], e->type == TAR_SYMLINK || e->type == TAR_HARDLINK ? e->link : "", e, e->size);
	return (ssize_t)(pos + TAR_BLOCK);
}
