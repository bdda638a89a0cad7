/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root file system. Two ways:
 *
 *   direct   (`rw`) the disk is an ext4 that this VM alone writes: it is mounted as it is. What the VM changes is
 *            kept apart below, by the disk's layers. Where the disk is larger than the file system, that grows first.
 *   overlay  a read-only image, and what this VM changes on a disk of its own (or in memory), put together by overlayfs.
 *            Also for an ext4 that the kernel cannot write.
 *
 * In the initramfs: ROOT_DIR/lower is the image, ROOT_DIR/rw the overlay disk with `upper` and `work`, ROOT_DIR/merged the
 * root to be. Then proc, sys, dev and run move into it, it moves over "/", and the files of the initramfs are removed to give
 * their memory back. The lower mounts have no path any more; a->writable_fd leads to the one that can be frozen and must be made
 * read-only before power-off.
 *
 * Growing: what is behind the file system's end on a disk of layers reads as zeros, so tables of inodes need not be zeroed. With
 * `noinit_itable` a resize would do it on the spot, a request for each group; with `init_itable` it leaves that to a thread of the kernel,
 * which the change back to `noinit_itable` ends before it has begun. So nothing is written that nobody asked for.
 *
 * Trust: the image and the overlay disk are hostile, but the parser is the guest kernel's. An overlay disk that is there and cannot be
 * mounted is an error, not a reason for a tmpfs: its data would seem lost.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "lib/fd.h"
#include "lib/le.h"

#define ROOT_DIR "/coffer"
#define LOWER ROOT_DIR "/lower"
#define RW ROOT_DIR "/rw"
#define MERGED ROOT_DIR "/merged"

#ifndef EXT4_IOC_RESIZE_FS
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#endif

enum { DEVICE_WAIT_MS = 10000, DEVICE_POLL_MS = 5, SUPERBLOCK_MAX = 2048, CLEAN_DEPTH = 16 };

/* Devices appear when their driver has looked at them, which may be after its module was loaded. */
static int open_device(const char *path, struct err *err)
{
	struct timespec pause = { .tv_nsec = DEVICE_POLL_MS * 1000000l };

	for (int waited = 0;; waited += DEVICE_POLL_MS) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd >= 0)
			return fd;
		if ((errno != ENOENT && errno != ENXIO) || waited >= DEVICE_WAIT_MS)
			return err_errno(err, -errno, "'%s'", path);
		nanosleep(&pause, NULL);
	}
}

/* The type of file system on a device, by its magic number; NULL: none that is known. */
static const char *detect(int fd, unsigned char b[SUPERBLOCK_MAX])
{
	if (fd_pread_full(fd, b, SUPERBLOCK_MAX, 0) != SUPERBLOCK_MAX)
		return NULL;
	if (le32_load(b) == SQUASHFS_MAGIC)
		return "squashfs";
	if (le32_load(b + 1024) == EROFS_SUPER_MAGIC_V1)
		return "erofs";
	if (le16_load(b + 1024 + 56) == EXT4_SUPER_MAGIC)
		return "ext4";
	return NULL;
}

/* Blocks that an ext4 has, and their size; numbers as they are on the disk. */
static uint64_t ext4_blocks(const unsigned char *b, unsigned *ret_shift)
{
	const unsigned char *sb = b + 1024;
	bool wide = le32_load(sb + 0x60) & 0x80; /* incompatible feature 64BIT */

	*ret_shift = 10 + (le32_load(sb + 0x18) & 7);
	return le32_load(sb + 4) | (wide ? (uint64_t)le32_load(sb + 0x150) << 32 : 0);
}

/* As large as its disk. A file system that stays as it is serves as well, only with less room. */
static void grow(const struct agent *a, int device_fd, const unsigned char *b, int dir_fd)
{
	unsigned shift;
	uint64_t have = ext4_blocks(b, &shift), bytes = 0, want;
	int r;

	if (ioctl(device_fd, BLKGETSIZE64, &bytes) < 0)
		return;
	want = bytes >> shift;
	if (want <= have)
		return;
	mount(NULL, MERGED, NULL, MS_REMOUNT | MS_NOATIME, "init_itable");
	r = ioctl(dir_fd, EXT4_IOC_RESIZE_FS, &want) < 0 ? -errno : 0;
	mount(NULL, MERGED, NULL, MS_REMOUNT | MS_NOATIME, "noinit_itable");
	if (r < 0)
		agent_say(a, "root: it stays at %llu MiB of the disk's %llu: grow the file system: %s",
			  (unsigned long long)(have << shift >> 20), (unsigned long long)(bytes >> 20), strerror(-r));
}

/* 0: MERGED is the root; 1: it must go the other way; or -errno. */
static int mount_direct(struct agent *a, const char *device, struct err *err)
{
	_cleanup_close_ int fd = open_device(device, err);
	unsigned char b[SUPERBLOCK_MAX];
	const char *type;

	if (fd < 0)
		return err_prefix(err, "root disk: "), fd;
	type = detect(fd, b);
	if (!type || strcmp(type, "ext4") != 0)
		return 1;
	/* discard: what the guest deletes takes no room on the host any more */
	if (mount(device, MERGED, type, MS_NOATIME, "discard,noinit_itable") < 0 && mount(device, MERGED, type, MS_NOATIME, NULL) < 0) {
		agent_say(a, "root disk '%s': the kernel cannot write this ext4 (%s): changes go elsewhere", device, strerror(errno));
		return 1;
	}
	a->writable_fd = open(MERGED, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a->writable_fd < 0)
		return err_errno(err, -errno, "root disk '%s': open it", device);
	grow(a, fd, b, a->writable_fd);
	return 0;
}

static int mount_image(const char *device, struct err *err)
{
	_cleanup_close_ int fd = open_device(device, err);
	unsigned char b[SUPERBLOCK_MAX];
	const char *type;

	if (fd < 0)
		return err_prefix(err, "root image: "), fd;
	type = detect(fd, b);
	if (!type)
		return err_set(err, -EINVAL, "root image '%s': not an ext4, erofs or squashfs file system", device);
	if (mount(device, LOWER, type, MS_RDONLY | MS_NOATIME, NULL) == 0)
		return 0;
	/* Left with a journal to replay, and the disk cannot be written: what is there without it is consistent enough to read. */
	if (strcmp(type, "ext4") == 0 && mount(device, LOWER, type, MS_RDONLY | MS_NOATIME, "noload") == 0)
		return 0;
	return err_errno(err, -errno, "root image '%s': mount as %s", device, type);
}

static int mount_overlay_disk(struct agent *a, const char *device, struct err *err)
{
	_cleanup_close_ int fd = open_device(device, err);
	unsigned char b[SUPERBLOCK_MAX];
	const char *type;

	if (fd < 0)
		return err_prefix(err, "overlay disk: "), fd;
	type = detect(fd, b);
	if (!type || strcmp(type, "ext4") != 0)
		return err_set(err, -EINVAL, "overlay disk '%s': not an ext4 file system", device);
	/* discard: what the guest deletes becomes a hole in the host's sparse file again */
	if (mount(device, RW, type, MS_NOATIME, "discard") < 0 && mount(device, RW, type, MS_NOATIME, NULL) < 0)
		return err_errno(err, -errno, "overlay disk '%s': mount as ext4", device);
	a->writable_fd = open(RW, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	strcpy(a->overlay, "disk");
	return 0;
}

static int mount_overlay(struct agent *a, const char *device, struct err *err)
{
	struct stat st;
	int rc = 0;

	if (device[0] && strcmp(device, "none") != 0) {
		rc = mount_overlay_disk(a, device, err);
		if (rc != -ENOENT)
			return rc;
		agent_say(a, "%s: changes go to memory and are lost at power-off", err->text);
	}
	if (mount("tmpfs", RW, "tmpfs", MS_NOATIME, "mode=755") < 0 || stat(RW, &st) < 0)
		return err_errno(err, -errno, "mount a tmpfs for changes");
	strcpy(a->overlay, "tmpfs");
	return 0;
}

static int merge(struct err *err)
{
	static const char base[] = "lowerdir=" LOWER ",upperdir=" RW "/upper,workdir=" RW "/work";
	static const char redirect[] = "lowerdir=" LOWER ",upperdir=" RW "/upper,workdir=" RW "/work,redirect_dir=on,index=off,metacopy=off";

	if ((mkdir(RW "/upper", 0755) < 0 && errno != EEXIST) || (mkdir(RW "/work", 0755) < 0 && errno != EEXIST))
		return err_errno(err, -errno, "overlay: make directories on it");
	/* redirect_dir: renaming a directory of the image is one operation, not EXDEV */
	if (mount("overlay", MERGED, "overlay", 0, redirect) == 0 || mount("overlay", MERGED, "overlay", 0, base) == 0)
		return 0;
	return err_errno(err, -errno, "mount overlay%s", errno == ENODEV ? " (the kernel has no overlayfs)" : "");
}

/* Remove the files of the initramfs; what is mounted inside is on another device and stays. */
static void clean(int dir, dev_t dev, int depth)
{
	DIR *d = fdopendir(dir);
	struct dirent *e;

	if (!d) {
		close(dir);
		return;
	}
	while ((e = readdir(d))) {
		struct stat st;
		int fd;

		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != dev)
			continue;
		if (!S_ISDIR(st.st_mode)) {
			unlinkat(dirfd(d), e->d_name, 0);
			continue;
		}
		fd = depth > 0 ? openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
		if (fd >= 0)
			clean(fd, dev, depth - 1);
		unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR); /* fails for mount points and what holds them */
	}
	closedir(d);
}

static int switch_root(struct err *err)
{
	static const char *const moved[] = { "/dev", "/proc", "/sys", "/run" };
	_cleanup_close_ int old = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;
	struct stat st;
	char path[64];

	for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]); i++) {
		snprintf(path, sizeof(path), MERGED "%s", moved[i]);
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return err_errno(err, -errno, "root: make %s", moved[i]);
		if (mount(moved[i], path, NULL, MS_MOVE, NULL) < 0)
			return err_errno(err, -errno, "root: move %s", moved[i]);
	}
	if (chdir(MERGED) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
		return err_errno(err, -errno, "root: enter it");
	if (old >= 0 && fstat(old, &st) == 0 && fstatfs(old, &fs) == 0 && (fs.f_type == RAMFS_MAGIC || fs.f_type == TMPFS_MAGIC)) {
		int fd = TAKE_FD(old);

		clean(fd, st.st_dev, CLEAN_DEPTH);
	}
	return 0;
}

int boot_enter_root(struct agent *a, const struct boot_words *w, struct err *err)
{
	static const char *const dirs[] = { ROOT_DIR, LOWER, RW, MERGED };
	int rc = 0;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (mkdir(dirs[i], 0755) < 0 && errno != EEXIST)
			return err_errno(err, -errno, "make '%s'", dirs[i]);
	rc = w->rw ? mount_direct(a, w->root, err) : 1;
	if (rc > 0) {
		rc = mount_image(w->root, err);
		if (rc == 0)
			rc = mount_overlay(a, w->overlay, err);
		if (rc == 0)
			rc = merge(err);
	}
	if (rc == 0)
		rc = switch_root(err);
	if (rc == 0)
		strcpy(a->root, "disk");
	return rc;
}
