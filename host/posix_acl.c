/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POSIX ACLs: see posix_acl.h. The attribute (linux/posix_acl_xattr.h) is a version, u32 2, and entries of a tag (u16), permissions
 * (u16) and an id (u32), little-endian, in the order of their tags.
 *
 * Trust: both text and bytes are an archive's, and hostile.
 */
#include "host/posix_acl.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/le.h"
#include "lib/util.h"

enum { VERSION = 2, FIELDS = 4 };
enum { USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, GROUP = 8, MASK = 16, OTHER = 32 };

#define NO_ID UINT32_MAX

struct entry {
	uint16_t tag, perm;
	uint32_t id;
};

struct field {
	const char *p;
	size_t n;
};

static bool is_word(struct field f, const char *word)
{
	return f.n > 0 && (f.n == 1 ? *f.p == *word : f.n == strlen(word) && memcmp(f.p, word, f.n) == 0);
}

static bool get_id(struct field f, uint32_t *ret)
{
	uint64_t v = 0;

	for (size_t i = 0; i < f.n; i++) {
		if (f.p[i] < '0' || f.p[i] > '9')
			return false;
		v = v * 10 + (uint64_t)(f.p[i] - '0');
		if (v >= NO_ID)
			return false;
	}
	*ret = (uint32_t)v;
	return f.n > 0;
}

static int get_perm(struct field f, uint16_t *ret)
{
	*ret = 0;
	for (size_t i = 0; i < f.n; i++) {
		const char *at = f.p[i] == '\0' ? NULL : strchr("xwr", f.p[i]);

		if (at == NULL && f.p[i] != '-')
			return -EINVAL;
		if (at != NULL)
			*ret |= (uint16_t)(1 << (at - (const char *)"xwr"));
	}
	return f.n > 0 ? 0 : -EINVAL;
}

static struct field trim(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	while (p < end && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	return (struct field){ p, (size_t)(end - p) };
}

/* One line of the text: "[default:]TAG:[NAME]:PERM[:ID]". */
static int parse_entry(struct field line, posix_acl_find *find, void *arg, struct entry *ret)
{
	struct field f[FIELDS + 1] = { { 0 } };
	const char *p = line.p, *end = line.p + line.n;
	size_t n = 0, k;
	bool named;

	for (; n < ARRAY_SIZE(f); p++) {
		const char *colon = memchr(p, ':', (size_t)(end - p));

		f[n++] = trim(p, colon != NULL ? colon : end);
		if (colon == NULL)
			break;
		p = colon;
	}
	k = is_word(f[0], "default");
	/* "mask:rwx" and "other:r--" are written, too. */
	if (n == k + 2 && (is_word(f[k], "mask") || is_word(f[k], "other")))
		f[k + 2] = f[k + 1], f[k + 1].n = 0, n++;
	if (n < k + 3 || get_perm(f[k + 2], &ret->perm) < 0)
		return -EINVAL;
	named = f[k + 1].n > 0;
	ret->id = NO_ID;
	if (is_word(f[k], "user"))
		ret->tag = named ? USER : USER_OBJ;
	else if (is_word(f[k], "group"))
		ret->tag = named ? GROUP : GROUP_OBJ;
	else if (!named && (is_word(f[k], "mask") || is_word(f[k], "other")))
		ret->tag = *f[k].p == 'm' ? MASK : OTHER;
	else
		return -EINVAL;
	if (!named || (n > k + 3 && get_id(f[k + 3], &ret->id)) || get_id(f[k + 1], &ret->id))
		return 0;
	return find != NULL && find(arg, ret->tag == GROUP, f[k + 1].p, f[k + 1].n, &ret->id) ? 0 : -ENOENT;
}

const char *posix_acl_attribute(const char *text_name)
{
	if (strcmp(text_name, POSIX_ACL_TEXT_ACCESS) == 0)
		return POSIX_ACL_ACCESS;
	return strcmp(text_name, POSIX_ACL_TEXT_DEFAULT) == 0 ? POSIX_ACL_DEFAULT : NULL;
}

static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->tag != y->tag ? (x->tag > y->tag) - (x->tag < y->tag) : (x->id > y->id) - (x->id < y->id);
}

int posix_acl_from_text(const char *text, size_t len, posix_acl_find *find, void *arg, uint8_t ret[POSIX_ACL_SIZE_MAX])
{
	struct entry list[POSIX_ACL_ENTRIES_MAX];
	const char *end = text + len;
	size_t n = 0;
	int r;

	for (const char *p = text, *next; p < end; p = next + 1) {
		const char *hash;
		struct field line;

		for (next = p; next < end && *next != ',' && *next != '\n';)
			next++;
		hash = memchr(p, '#', (size_t)(next - p));
		line = trim(p, hash != NULL ? hash : next);
		if (line.n == 0)
			continue;
		r = n == ARRAY_SIZE(list) ? -EINVAL : parse_entry(line, find, arg, &list[n]);
		if (r < 0)
			return r;
		n++;
	}
	if (n == 0)
		return 0;
	qsort(list, n, sizeof(list[0]), compare);
	le32_store(ret, VERSION);
	for (size_t i = 0; i < n; i++) {
		uint8_t *e = ret + POSIX_ACL_HEAD + i * POSIX_ACL_ENTRY;

		le16_store(e, list[i].tag);
		le16_store(e + 2, list[i].perm);
		le32_store(e + 4, list[i].id);
	}
	len = POSIX_ACL_HEAD + n * POSIX_ACL_ENTRY;
	return posix_acl_is_valid(ret, len, NULL) ? (int)len : -EINVAL;
}

bool posix_acl_is_valid(const void *value, size_t size, uint32_t *ret_mode)
{
	const uint8_t *p = value;
	uint32_t mode = 0;
	unsigned have = 0;

	if (size < POSIX_ACL_HEAD || (size - POSIX_ACL_HEAD) % POSIX_ACL_ENTRY != 0 || size > POSIX_ACL_SIZE_MAX ||
	    le32_load(p) != VERSION)
		return false;
	for (size_t at = POSIX_ACL_HEAD; at < size; at += POSIX_ACL_ENTRY) {
		struct entry e = { le16_load(p + at), le16_load(p + at + 2), le32_load(p + at + 4) };
		bool named = e.tag == USER || e.tag == GROUP;

		if (e.tag == 0 || (e.tag & (e.tag - 1)) != 0 || e.tag > OTHER || e.perm > 7)
			return false;
		/* After those of smaller tags; the others once. */
		if (have >= (named ? 2u * e.tag : e.tag) || (named && e.id == NO_ID))
			return false;
		have |= e.tag;
		if (e.tag == USER_OBJ || e.tag == OTHER)
			mode |= (uint32_t)e.perm << (e.tag == USER_OBJ ? 6 : 0);
		else if (e.tag == GROUP_OBJ || e.tag == MASK) /* the mask in place of the group, whose entry comes before it */
			mode = (mode & ~070u) | (uint32_t)e.perm << 3;
	}
	if ((have & (USER_OBJ | GROUP_OBJ | OTHER)) != (USER_OBJ | GROUP_OBJ | OTHER) || ((have & (USER | GROUP)) && !(have & MASK)))
		return false;
	if (ret_mode != NULL)
		*ret_mode = mode;
	return true;
}
