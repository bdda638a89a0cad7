/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The display's memory: see display.h.
 *
 * How it works: one memfd, sealed against growing and shrinking, so that no page that a client has mapped can ever go
 * away under it. Blocks are a sorted array; the first gap that is large enough is taken. Freed pages are given back to
 * the host at once (MADV_REMOVE), which also makes them zero for the next.
 *
 * Trust: clients get another description of the file, opened for reading before the monitor is isolated: what is mapped
 * through it can never be written, nor made writable (mmap(2), mprotect(2): EACCES). F_SEAL_FUTURE_WRITE would say the
 * same of the file itself, but then pages could not be given back and no process could be made that renders. To open
 * the file anew needs its mode, which is 0, and /proc; a helper in a jail has no /proc, no open and no fchmod. The VM's
 * owner and root can, as they can change the guest in any other way: pixels are the guest's own, and nothing here
 * believes them.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/backend/display_state.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { PAGE = 4096 };

int display_memory_open(struct display_memory *m, uint64_t size, struct err *err)
{
	char path[64];

	*m = (struct display_memory){.fd = -1, .readonly_fd = -1};
	if (size == 0 || size % PAGE || size > INT64_MAX)
		return err_set(err, -EINVAL, "display memory of %llu bytes: a multiple of %d is needed",
			       (unsigned long long)size, PAGE);
	m->fd = memfd_create("coffer-display", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (m->fd < 0)
		return err_errno(err, -errno, "display memory");
	if (ftruncate(m->fd, (off_t)size) < 0)
		return err_errno(err, -errno, "display memory of %llu MiB", (unsigned long long)(size >> 20));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", m->fd);
	m->readonly_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (m->readonly_fd < 0)
		return err_errno(err, -errno, "display memory for reading: open '%s'", path);
	if (fchmod(m->fd, 0) < 0)
		return err_errno(err, -errno, "display memory: its mode");
	if (fcntl(m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return err_errno(err, -errno, "display memory: seals");
	m->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, m->fd, 0);
	if (m->map == MAP_FAILED) {
		m->map = NULL;
		return err_errno(err, -errno, "display memory of %llu MiB: map", (unsigned long long)(size >> 20));
	}
	m->size = size;
	return 0;
}

void display_memory_finish(struct display_memory *m)
{
	if (m->map)
		munmap(m->map, m->size);
	if (m->fd > 0)
		fd_close(m->fd);
	if (m->readonly_fd > 0)
		fd_close(m->readonly_fd);
	memset(m, 0, sizeof(*m));
}

int64_t display_alloc(struct display *d, uint64_t size)
{
	struct display_memory *m = &d->memory;
	uint64_t at = 0;
	uint32_t i;

	if (size == 0 || size > m->size || m->n == DISPLAY_BLOCKS_MAX)
		return -ENOMEM;
	size = ALIGN_UP(size, PAGE);
	for (i = 0; i < m->n; i++) {
		if (m->block[i].offset - at >= size)
			break;
		at = m->block[i].offset + m->block[i].size;
	}
	if (m->size - at < size)
		return -ENOMEM;
	memmove(&m->block[i + 1], &m->block[i], (m->n - i) * sizeof(m->block[0]));
	m->block[i] = (struct display_block){at, size};
	m->n++;
	m->used += size;
	return (int64_t)at;
}

/* The last block that begins at or before offset, or -1. */
static int64_t find(const struct display_memory *m, uint64_t offset)
{
	uint32_t low = 0, high = m->n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (m->block[mid].offset <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	return (int64_t)low - 1;
}

void display_free(struct display *d, uint64_t offset)
{
	struct display_memory *m = &d->memory;
	int64_t i = find(m, offset);

	assert(i >= 0 && m->block[i].offset == offset);
	if (madvise(m->map + offset, m->block[i].size, MADV_REMOVE) < 0)
		memset(m->map + offset, 0, m->block[i].size);
	m->used -= m->block[i].size;
	m->n--;
	memmove(&m->block[i], &m->block[i + 1], (m->n - (uint32_t)i) * sizeof(m->block[0]));
}

uint8_t *display_bytes(const struct display *d, uint64_t offset, uint64_t len)
{
	const struct display_memory *m = &d->memory;
	int64_t i = find(m, offset);

	if (i < 0 || offset - m->block[i].offset > m->block[i].size ||
	    len > m->block[i].size - (offset - m->block[i].offset))
		return NULL;
	return m->map + offset;
}

uint64_t display_memory_size(const struct display *d)
{
	return d->memory.size;
}

uint64_t display_memory_used(const struct display *d)
{
	return d->memory.used;
}

int display_memory_fd(const struct display *d)
{
	return d->memory.fd;
}
