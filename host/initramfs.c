/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building the initramfs.
 *
 * The archive is made in memory on every call, since copying a few MiB out of the page cache takes about as
 * long as asking whether any of it changed, and is named by the SHA-256 of its bytes. If the cache has that name the
 * copy is dropped, else it is written and renamed. Equal archives are one file, so that guests which boot at the
 * same time share its pages. It is not compressed: the guest would take longer to unpack it than the host
 * takes to copy it.
 *
 * Old archives are removed when a new one is written and they have not been used for CACHE_DAYS.
 */
#include "host/initramfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "host/cpio.h"
#include "host/file.h"
#include "host/modules.h"
#include "host/sha256.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum {
	AGENT_SIZE_MAX = 64 << 20,
	VERSION_MAX = 64,
	CACHE_DAYS = 30,
	BZIMAGE_MAGIC_AT = 0x202,
	BZIMAGE_VERSION_AT = 0x20e, /* 16 bits: where the version string is, less 0x200 */
	BZIMAGE_HEAD_SIZE = 64 << 10,
};

/* What a guest needs before its root disk is mounted, in an order that has the devices found early. */
static const struct module_want wants[] = {
	{ .name = "virtio_mmio", .required = true },
	{ .name = "virtio_blk", .required = true },
	{ .name = "vmw_vsock_virtio_transport", .required = true },
	{ .name = "virtio_console" },
	{ .name = "virtio_rng" },
	{ .name = "virtio_balloon" },
	{ .name = "crc32c_intel" }, /* libcrc32c asks for "crc32c" by name only, so no table has it as a dependency */
	{ .name = "crc32c_generic" },
	{ .name = "ext4", .required = true },
	{ .name = "erofs" },
	{ .name = "overlay", .required = true },
	{ .name = "button" },
	{ .name = "evdev" },
	{ .name = "pvpanic_mmio" },
};

#define DRAW "a guest with a display needs it: take Debian's linux-image-amd64 or the kernel of 'make guest-kernel'"
static const struct module_want display_wants[] = {
	{ .name = "virtio_gpu", .required = true, .need = DRAW },
	{ .name = "virtio_input", .required = true, .need = DRAW },
	{ .name = "evdev", .required = true, .need = DRAW },
};

/* The version is a directory name, so it may hold nothing but what kernel versions are made of. */
static bool version_is_valid(const char *v)
{
	size_t n = strlen(v);

	if (n == 0 || n >= VERSION_MAX || v[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)v[i]) && strchr(".-_+~", v[i]) == NULL)
			return false;
	return true;
}

/* The first word of the bzImage's version string, or what follows "vmlinux-" in the name of an ELF file, or "". */
static int kernel_version(const char *path, char ret[VERSION_MAX], struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	_cleanup_free_ uint8_t *head = NULL;
	const char *base = strrchr(path, '/');
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return err_errno(err, -errno, "kernel: open '%s'", path);
	if (fstat(fd, &st) < 0)
		return err_errno(err, -errno, "kernel: stat '%s'", path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL, "kernel: '%s' is not a regular file", path);
	head = malloc(BZIMAGE_HEAD_SIZE + 1);
	if (head == NULL)
		return err_set(err, -ENOMEM, "kernel: no memory");
	n = fd_read_full(fd, head, BZIMAGE_HEAD_SIZE);
	if (n < 0)
		return err_errno(err, (int)n, "kernel: read '%s'", path);
	head[n] = '\0';
	ret[0] = '\0';
	if (n > BZIMAGE_VERSION_AT + 2 && memcmp(head + BZIMAGE_MAGIC_AT, "HdrS", 4) == 0) {
		size_t at = head[BZIMAGE_VERSION_AT] | (size_t)head[BZIMAGE_VERSION_AT + 1] << 8;
		size_t len;

		if (at == 0 || at + 0x200 >= (size_t)n)
			return err_set(err, -EINVAL, "kernel: '%s' has no version in its header", path);
		at += 0x200;
		len = strcspn((char *)head + at, " \t\n");
		if (len >= VERSION_MAX)
			return err_set(err, -EINVAL, "kernel: the version in the header of '%s' is too long", path);
		memcpy(ret, head + at, len);
		ret[len] = '\0';
		if (!version_is_valid(ret))
			return err_set(err, -EINVAL, "kernel: the version in the header of '%s' is not a version", path);
		return 0;
	}
	if (n < 4 || memcmp(head, "\177ELF", 4) != 0)
		return err_set(err, -EINVAL, "kernel: '%s' is neither a bzImage nor an ELF file", path);
	base = base == NULL ? path : base + 1;
	if (strncmp(base, "vmlinux-", 8) == 0 && version_is_valid(base + 8))
		snprintf(ret, VERSION_MAX, "%s", base + 8);
	return 0;
}

/* The directory with the modules of `version`; *ret is empty when there is none. */
static int find_modules(const char *kernel_path, const char *version, char ret[PATH_MAX], struct err *err)
{
	const char *slash = strrchr(kernel_path, '/');
	const char *base = slash == NULL ? kernel_path : slash + 1;
	char beside[PATH_MAX], *candidates[] = { beside, ret };
	int n, m;

	n = snprintf(beside, sizeof(beside), "%.*s../lib/modules/%s", (int)(base - kernel_path), kernel_path, version);
	m = snprintf(ret, PATH_MAX, "/lib/modules/%s", version);
	if (n >= PATH_MAX || m >= PATH_MAX)
		return err_set(err, -ENAMETOOLONG, "kernel: the path '%.80s...' is too long", kernel_path);
	for (size_t i = 0; i < ARRAY_SIZE(candidates); i++) {
		char table[PATH_MAX];

		if (snprintf(table, sizeof(table), "%s/modules.dep", candidates[i]) < (int)sizeof(table) &&
		    access(table, F_OK) == 0) {
			if (candidates[i] != ret)
				memcpy(ret, candidates[i], strlen(candidates[i]) + 1);
			return 0;
		}
	}
	ret[0] = '\0';
	if (strncmp(base, "vmlinuz-", 8) == 0 && strcmp(base + 8, version) == 0)
		return err_set(err, -ENOENT,
			       "kernel: '%s' needs its modules, and there is no /lib/modules/%s/modules.dep: install the package of that kernel",
			       kernel_path, version);
	return 0;
}

static int add_modules(struct cpio *c, const char *dir, bool display, struct err *err)
{
	char name[MODULE_NAME_MAX], path[MODULE_NAME_MAX + 32], text[MODULES_MAX * sizeof(path)];
	struct module_want all[ARRAY_SIZE(wants) + ARRAY_SIZE(display_wants)];
	struct module_list list = { .n = 0 };
	size_t used = 0, n;

	memcpy(all, wants, sizeof(wants));
	memcpy(all + ARRAY_SIZE(wants), display_wants, sizeof(display_wants));
	int r = modules_collect(dir, all, display ? ARRAY_SIZE(all) : ARRAY_SIZE(wants), &list, err);

	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < list.n; i++) {
		_cleanup_free_ uint8_t *data = NULL;
		size_t size;

		if (module_name(list.path[i], name) < 0) {
			r = err_set(err, -EINVAL, "%s: '%s' is not a module", dir, TEXT_CUT(list.path[i]));
			break;
		}
		snprintf(path, sizeof(path), "lib/modules/%s.ko", name);
		used += (size_t)snprintf(text + used, sizeof(text) - used, "/%s\n", path);
		r = module_read(dir, list.path[i], &data, &size, err);
		if (r == 0) {
			r = cpio_add_file(c, path, 0644, data, size);
			if (r < 0)
				err_errno(err, r, "initramfs: add %s", path);
		}
	}
	n = list.n;
	module_list_finish(&list);
	if (r < 0)
		return r;
	r = cpio_add_file(c, &INITRAMFS_MODULES_LIST[1], 0644, text, used);
	return r < 0 ? err_errno(err, r, "initramfs: add the list of modules") : (int)n;
}

static int make_archive(struct cpio *c, const char *agent_path, const char *modules_dir, bool display, struct err *err)
{
	static const char *const dirs[] = { "dev", "proc", "sys", "lib", "lib/modules" };
	_cleanup_free_ uint8_t *agent = NULL;
	size_t agent_size;
	int modules = 0;
	int r = file_read(agent_path, AGENT_SIZE_MAX, &agent, &agent_size, err);

	if (r < 0)
		return err_prefix(err, "guest agent: "), r;
	if (agent_size < 4 || memcmp(agent, "\177ELF", 4) != 0)
		return err_set(err, -EINVAL, "guest agent: '%s' is not an ELF file", agent_path);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(dirs); i++)
		r = cpio_add_dir(c, dirs[i], 0755);
	if (r == 0)
		r = cpio_add_chardev(c, "dev/console", 0600, 5, 1); /* the kernel opens it for init */
	if (r == 0)
		r = cpio_add_file(c, "init", 0755, agent, agent_size);
	if (r == 0 && *modules_dir != '\0') {
		modules = add_modules(c, modules_dir, display, err);
		if (modules < 0)
			return modules;
	}
	if (r == 0)
		r = cpio_end(c);
	return r < 0 ? err_errno(err, r, "initramfs") : modules;
}

static void remove_unused(const char *cache)
{
	time_t limit = time(NULL) - CACHE_DAYS * 86400;
	DIR *dir = opendir(cache);
	struct dirent *e;
	struct stat st;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.' && fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    S_ISREG(st.st_mode) && st.st_mtime < limit)
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir != NULL)
		closedir(dir);
}

int initramfs_build(const char *agent_path, const char *kernel_path, bool display, char *out_path, size_t out_len,
		    struct err *err)
{
	char version[VERSION_MAX] = "", modules_dir[PATH_MAX] = "", cache[PATH_MAX], hex[SHA256_HEX_SIZE];
	struct sha256_ctx hash;
	struct cpio c = { 0 };
	struct stat st;
	int r = 0, modules, n;

	if (kernel_path != NULL)
		r = kernel_version(kernel_path, version, err);
	if (r == 0 && *version != '\0')
		r = find_modules(kernel_path, version, modules_dir, err);
	if (r == 0)
		r = file_cache_dir("initramfs", cache, sizeof(cache), err);
	if (r < 0)
		return r;

	modules = make_archive(&c, agent_path, modules_dir, display, err);
	if (modules < 0) {
		cpio_finish(&c);
		return modules;
	}
	sha256_init(&hash);
	sha256_update(&hash, c.size, c.data);
	sha256_end_hex(&hash, hex);
	n = snprintf(out_path, out_len, "%s/%.32s.cpio", cache, hex);
	if (n < 0 || (size_t)n >= out_len) {
		cpio_finish(&c);
		return err_set(err, -ENAMETOOLONG, "the path of the cache '%s' is too long", cache);
	}
	if (stat(out_path, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size == c.size) {
		if (st.st_mtime < time(NULL) - 86400)
			utimensat(AT_FDCWD, out_path, NULL, 0); /* still used */
	} else {
		r = file_write_atomic(out_path, c.data, c.size, 0600, true, err);
		remove_unused(cache);
	}
	cpio_finish(&c);
	return r < 0 ? r : modules;
}
