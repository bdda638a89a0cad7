/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files in a VM's directory: config.json and status (see vmdir.h).
 *
 * Trust: the directory is the user's own, but status is written by a monitor that a guest may have taken over, and its
 * text may quote the guest: sizes are bounded, types checked, and texts made printable before they reach a terminal.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/json_get.h"
#include "host/vmdir.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { CONFIG_VERSION = 1 };

int vmdir_write_file(int dirfd, const char *name, const void *data, size_t n, struct err *err)
{
	char temp[300];
	_cleanup_close_ int fd = -1;
	int r;

	snprintf(temp, sizeof(temp), ".%.250s.new", name);
	fd = openat(dirfd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_errno(err, -errno, "make '%s'", name);
	r = fd_write_full(fd, data, n);
	if (r == 0 && renameat(dirfd, temp, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, temp, 0);
		return err_errno(err, r, "write '%s'", name);
	}
	return 0;
}

static long read_fd(int fd, const char *name, size_t max, char **ret_data, struct err *err)
{
	struct stat st;
	_cleanup_free_ char *data = malloc(max + 1);

	if (!data)
		return err_set(err, -ENOMEM, "'%s': out of memory", name);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "'%s' is not a file", name);
	ssize_t n = fd_pread_full(fd, data, max + 1, 0);

	if (n < 0)
		return err_errno(err, (int)n, "read '%s'", name);
	if ((size_t)n > max)
		return err_set(err, -EFBIG, "'%s' is larger than %zu bytes", name, max);
	data[n] = 0;
	*ret_data = TAKE_PTR(data);
	return n;
}

long vmdir_read_file(int dirfd, const char *name, size_t max, char **ret_data, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "open '%s'", name);
	return read_fd(fd, name, max, ret_data, err);
}

/* The strings of struct vm_config, by name. */
static const struct {
	const char *key;
	size_t offset;
} strings[] = {
	{ "image", offsetof(struct vm_config, image) },     { "user", offsetof(struct vm_config, user) },
	{ "cwd", offsetof(struct vm_config, cwd) },         { "kernel", offsetof(struct vm_config, kernel) },
	{ "command", offsetof(struct vm_config, command) }, { "display", offsetof(struct vm_config, display) },
};

static char **string_member(const struct vm_config *c, size_t i)
{
	return (char **)((uintptr_t)c + strings[i].offset);
}

int vmdir_write_config(const struct vmdir *d, const struct vm_config *c, struct err *err)
{
	json_t *o = json_pack("{s:i s:s s:I s:I s:I s:b}", "version", CONFIG_VERSION, "id", d->id, "created_ms",
			      (json_int_t)c->created_ms, "cpus", (json_int_t)c->cpus, "memory", (json_int_t)c->memory,
			      "keep", c->keep);

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		const char *v = *string_member(c, i) ? *string_member(c, i) : "";

		/* What is not UTF-8 (a path, the command) is here for people only. */
		json_object_set_new(o, strings[i].key, json_text(v));
	}
	_cleanup_free_ char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;

	json_decref(o);
	if (!text)
		return err_set(err, -ENOMEM, "%s: out of memory", VMDIR_CONFIG);
	int r = vmdir_write_file(d->fd, VMDIR_CONFIG, text, strlen(text), err);

	if (r < 0)
		err_prefix(err, "%s: ", d->path);
	return r;
}

static int take_config(json_t *o, struct vm_config *ret)
{
	json_int_t created, cpus, memory;
	const char *id;
	int version, keep;

	if (json_unpack(o, "{s:i s:s s:I s:I s:I s:b}", "version", &version, "id", &id, "created_ms", &created, "cpus",
			&cpus, "memory", &memory, "keep", &keep) < 0)
		return -EINVAL;
	if (version != CONFIG_VERSION || strlen(id) > VMDIR_ID_MAX || cpus < 0 || memory < 0)
		return -EINVAL;
	ret->created_ms = created;
	ret->cpus = (uint64_t)cpus;
	ret->memory = (uint64_t)memory;
	ret->keep = keep;
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		const char *v = json_string_value(json_object_get(o, strings[i].key));

		if (!v && strcmp(strings[i].key, "display") != 0) /* VMs of earlier versions have none */
			return -EINVAL;
		*string_member(ret, i) = strdup(v ? v : "");
		if (!*string_member(ret, i))
			return -ENOMEM;
	}
	return 0;
}

int vmdir_read_config(int dirfd, struct vm_config *ret, struct err *err)
{
	_cleanup_free_ char *data = NULL;
	struct vm_config c = { 0 };
	json_error_t e;
	long n = vmdir_read_file(dirfd, VMDIR_CONFIG, VMDIR_FILE_MAX, &data, err);

	if (n < 0)
		return (int)n;
	json_t *o = json_loadb(data, (size_t)n, JSON_REJECT_DUPLICATES, &e);

	if (!o)
		return err_set(err, -EINVAL, "'%s' line %d: %s", VMDIR_CONFIG, e.line, e.text);
	int r = take_config(o, &c);

	json_decref(o);
	if (r < 0) {
		vm_config_finish(&c);
		return err_set(err, r, "'%s' is not one of this version", VMDIR_CONFIG);
	}
	*ret = c;
	return 0;
}

void vm_config_finish(struct vm_config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++)
		free(*string_member(c, i));
	*c = (struct vm_config){ 0 };
}

int vmdir_read_status_fd(int fd, struct vm_status *ret, struct err *err)
{
	_cleanup_free_ char *data = NULL;
	long n = read_fd(fd, VMDIR_STATUS, VMDIR_FILE_MAX, &data, err);
	const char *stop, *text;

	if (n < 0)
		return (int)n;
	if (n == 0)
		return err_set(err, -ENOENT, "the monitor left no reason");
	json_t *o = json_loadb(data, (size_t)n, 0, NULL);

	if (!o || json_unpack(o, "{s:s s:s}", "stop", &stop, "text", &text) < 0) {
		json_decref(o);
		return err_set(err, -EINVAL, "'%s' is damaged", VMDIR_STATUS);
	}
	struct err clean = ERR_INIT; /* makes it printable */

	err_set(&clean, 0, "%s", stop);
	snprintf(ret->stop, sizeof(ret->stop), "%.31s", clean.text);
	err_set(&clean, 0, "%s", text);
	snprintf(ret->text, sizeof(ret->text), "%s", clean.text);
	json_decref(o);
	return 0;
}

int vmdir_read_status(int dirfd, struct vm_status *ret, struct err *err)
{
	_cleanup_close_ int fd = openat(dirfd, VMDIR_STATUS, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, -errno, "open '%s'", VMDIR_STATUS);
	return vmdir_read_status_fd(fd, ret, err);
}

void vm_status_describe(const struct vm_status *s, char *out, size_t len)
{
	static const struct {
		const char *stop, *words;
	} known[] = {
		{ "poweroff", "the guest powered off" },
		{ "reboot", "the guest asked for a reboot" },
		{ "panic", "the guest's kernel panicked" },
		{ "killed", "it was killed" },
		{ "saved", "it was stopped by a snapshot" },
		{ "crash", "the virtual machine crashed" },
		{ "error", "the monitor failed" },
	};
	const char *words = "the monitor stopped";

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(s->stop, known[i].stop))
			words = known[i].words;
	if (s->text[0] && strcmp(s->text, words) != 0 && strcmp(s->text, "killed on request") != 0 &&
	    strcmp(s->stop, "saved") != 0)
		snprintf(out, len, "%s (%s)", words, s->text);
	else
		snprintf(out, len, "%s", words);
}
