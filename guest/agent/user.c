/* SPDX-License-Identifier: Apache-2.0 */
/* Users and groups: see user.h. */
#include "guest/agent/user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/opt.h"

struct lines {
	int fd;
	size_t pos, len;
	char buf[USER_LINE_MAX];
};

/* The next line, NUL-terminated in place; NULL at the end. Over-long lines are skipped. */
static char *next_line(struct lines *l)
{
	bool skip = false;

	for (;;) {
		char *start = l->buf + l->pos, *end = memchr(start, '\n', l->len - l->pos);
		ssize_t n;

		if (end) {
			*end = '\0';
			l->pos = (size_t)(end - l->buf) + 1;
			if (skip) {
				skip = false;
				continue;
			}
			return start;
		}
		memmove(l->buf, start, l->len - l->pos);
		l->len -= l->pos;
		l->pos = 0;
		if (l->len == sizeof(l->buf) - 1) {
			skip = true;
			l->len = 0;
		}
		n = fd_read_full(l->fd, l->buf + l->len, sizeof(l->buf) - 1 - l->len);
		if (n <= 0) { /* the last line may lack its newline */
			l->buf[l->len] = '\0';
			l->pos = l->len;
			start = l->buf;
			l->len = l->pos = 0;
			return *start && !skip && n == 0 ? start : NULL;
		}
		l->len += (size_t)n;
	}
}

/* Split at ':' in place. Returns the number of fields. */
static size_t split(char *line, char *field[], size_t max)
{
	size_t n = 0;

	while (line && n < max) {
		field[n++] = line;
		line = strchr(line, ':');
		if (line)
			*line++ = '\0';
	}
	return n;
}

static bool parse_id(const char *s, uint32_t *ret)
{
	uint64_t v;

	if (strlen(s) > 10 || strspn(s, "0123456789") != strlen(s) || opt_parse_u64(s, &v) < 0 || v >= UINT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static void copy(char *dst, size_t size, const char *s)
{
	size_t n = strlen(s);

	if (n < size)
		memcpy(dst, s, n + 1);
}

/* Fill in the entry of the user called `who`, or else with that number. 1: found, 0: not, or -errno. */
static int find_user(const char *path, const char *who, struct user *u)
{
	struct lines l = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
	uint32_t id = 0, uid, gid;
	bool numeric = parse_id(who, &id), found = false;
	char *f[7], *line;

	if (l.fd < 0)
		return errno == ENOENT ? 0 : -errno;
	while ((line = next_line(&l))) {
		size_t n = split(line, f, 7);
		bool by_name;

		if (n < 6 || !*f[0] || strlen(f[0]) >= USER_NAME_MAX || !parse_id(f[2], &uid) || !parse_id(f[3], &gid))
			continue;
		by_name = strcmp(f[0], who) == 0;
		if (!by_name && (!numeric || uid != id || found))
			continue;
		found = true;
		u->uid = uid;
		u->gid = gid;
		copy(u->name, sizeof(u->name), f[0]);
		copy(u->home, sizeof(u->home), f[5][0] == '/' ? f[5] : "/");
		copy(u->shell, sizeof(u->shell), n == 7 ? f[6] : "");
		if (by_name)
			break;
	}
	fd_close(l.fd);
	return found;
}

static bool lists(char *members, const char *name)
{
	size_t n = strlen(name);

	for (char *m = members; m; m = strchr(m, ',') ? strchr(m, ',') + 1 : NULL)
		if (strncmp(m, name, n) == 0 && (m[n] == ',' || m[n] == '\0'))
			return true;
	return false;
}

/* `who` given: store that group's number in *ret_gid. Otherwise: collect those that list u->name. 1: found, 0: not. */
static int find_groups(const char *path, const char *who, struct user *u, gid_t *ret_gid)
{
	struct lines l = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
	char *f[4], *line;
	bool found = false;
	uint32_t gid;

	if (l.fd < 0)
		return errno == ENOENT ? 0 : -errno;
	while (!found && (line = next_line(&l))) {
		size_t n = split(line, f, 4);

		if (n < 3 || !parse_id(f[2], &gid))
			continue;
		if (who && strcmp(f[0], who) == 0) {
			*ret_gid = gid;
			found = true;
		} else if (!who && n == 4 && gid != u->gid && u->ngroups < USER_GROUPS_MAX && lists(f[3], u->name)) {
			u->groups[u->ngroups++] = gid;
		}
	}
	fd_close(l.fd);
	return found;
}

int user_lookup(const char *passwd_path, const char *group_path, const char *spec, struct user *ret, struct err *err)
{
	const char *colon = strchr(spec, ':'), *group = colon ? colon + 1 : NULL;
	size_t n = colon ? (size_t)(colon - spec) : strlen(spec);
	struct user u = { .home = "/" };
	char who[USER_NAME_MAX];
	uint32_t id;
	int rc;

	if (n == 0 || n >= sizeof(who) || (group && !*group))
		return err_set(err, -EINVAL, "user '%.200s': must be NAME or UID, and :GROUP or :GID after it", spec);
	memcpy(who, spec, n);
	who[n] = '\0';
	rc = find_user(passwd_path, who, &u);
	if (rc < 0)
		return err_errno(err, rc, "user '%s': read %s", spec, passwd_path);
	if (rc == 0) {
		if (!parse_id(who, &id))
			return err_set(err, -ENOENT, "user '%s' is not in %s", who, passwd_path);
		u.uid = id;
	}
	if (group) {
		rc = find_groups(group_path, group, &u, &u.gid);
		if (rc == 0 && parse_id(group, &id)) {
			u.gid = id;
			rc = 1;
		}
		if (rc == 0)
			return err_set(err, -ENOENT, "group '%.200s' is not in %s", group, group_path);
	} else {
		u.groups[u.ngroups++] = u.gid;
		rc = u.name[0] ? find_groups(group_path, NULL, &u, NULL) : 0;
	}
	if (rc < 0)
		return err_errno(err, rc, "user '%s': read %s", spec, group_path);
	*ret = u;
	return 0;
}
