/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest physical memory: see memory.h.
 *
 * How it works: each region is one anonymous private mapping, reserved but not committed (MAP_NORESERVE), left out of
 * core dumps and of forked children, and aligned as its guest addresses are, so that the host can back both with
 * large pages. `resolve` is the only place where a guest address becomes a pointer; every access
 * goes through it, so there is one bounds check to read. A copy that does not fit is refused whole.
 *
 * The dirty bitmap is made by the first mem_dirty_start and kept until mem_finish, so that a thread that marks a page
 * while tracking is being switched off never writes into freed memory.
 *
 * Trust: addresses and lengths come from the guest.
 * Snapshot: contents are captured by the snapshot code; the layout follows from the size alone.
 */
/* syscalls(main, vcpu, worker): madvise */
#include "vmm/memory.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>

#include "lib/util.h"

enum { WORD_BITS = 64, WORD_SHIFT = 6, LARGE_PAGE = 2 << 20 };

static size_t bitmap_words(const struct mem_region *r)
{
	return (size_t)(((r->size >> MEM_PAGE_SHIFT) + WORD_BITS - 1) / WORD_BITS);
}

static int map_region(struct mem *m, uint64_t gpa, uint64_t size, struct err *err)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	struct mem_region *r = &m->region[m->nregions];
	uint8_t *all = mmap(NULL, size + LARGE_PAGE, PROT_NONE, flags, -1, 0);

	if (all == MAP_FAILED)
		return err_errno(err, -errno, "memory: reserve %llu MiB", (unsigned long long)(size >> 20));
	uint8_t *p = (uint8_t *)ALIGN_UP((uintptr_t)all, (uintptr_t)LARGE_PAGE);

	*r = (struct mem_region){ .gpa = gpa, .size = size, .host = p, .reserved = all };
	m->nregions++;
	if (mmap(p, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == MAP_FAILED)
		return err_errno(err, -errno, "memory: map %llu MiB", (unsigned long long)(size >> 20));
	/* Guest contents belong neither in the monitor's core dump nor in a child; both are a courtesy. */
	madvise(p, size, MADV_DONTDUMP);
	madvise(p, size, MADV_DONTFORK);
	if (m->vm_fd < 0)
		return 0;
	struct kvm_userspace_memory_region slot = {
		.slot = (uint32_t)m->nregions - 1,
		.guest_phys_addr = gpa,
		.memory_size = size,
		.userspace_addr = (uint64_t)(uintptr_t)p,
	};
	if (ioctl(m->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0)
		return err_errno(err, -errno, "memory: KVM slot of %llu MiB at 0x%llx",
				 (unsigned long long)(size >> 20), (unsigned long long)gpa);
	return 0;
}

int mem_init(struct mem *m, int vm_fd, uint64_t size, struct err *err)
{
	int r;

	memset(m, 0, sizeof(*m));
	m->vm_fd = vm_fd;
	if (size < MEM_MIN || size > MEM_MAX)
		return err_set(err, -EINVAL, "memory: %llu bytes is out of range: use %llu MiB to %llu MiB",
			       (unsigned long long)size, MEM_MIN >> 20, MEM_MAX >> 20);
	if (size % MEM_PAGE_SIZE)
		return err_set(err, -EINVAL, "memory: %llu bytes is not a multiple of %d", (unsigned long long)size,
			       MEM_PAGE_SIZE);
	m->size = size;
	r = map_region(m, 0, MIN(size, MEM_HOLE_START), err);
	if (r == 0 && size > MEM_HOLE_START)
		r = map_region(m, MEM_HOLE_END, size - MEM_HOLE_START, err);
	if (r < 0)
		mem_finish(m);
	return r;
}

void mem_finish(struct mem *m)
{
	for (int i = 0; i < m->nregions; i++) {
		struct mem_region *r = &m->region[i];

		if (r->reserved)
			munmap(r->reserved, r->size + LARGE_PAGE);
		if (r->dirty)
			munmap((void *)r->dirty, bitmap_words(r) * sizeof(uint64_t));
	}
	memset(m, 0, sizeof(*m));
	m->vm_fd = -1;
}

int mem_check_host(uint64_t size, struct err *err)
{
	struct sysinfo si;

	if (sysinfo(&si) < 0)
		return err_errno(err, -errno, "memory: sysinfo");
	uint64_t host = (uint64_t)si.totalram * si.mem_unit;

	if (size > host)
		return err_set(err, -ENOMEM, "memory: %llu MiB asked, this host has %llu MiB: ask for less",
			       (unsigned long long)(size >> 20), (unsigned long long)(host >> 20));
	return 0;
}

/* The region that holds all of [gpa, gpa + len), its offset in *ret_off; NULL if there is none. */
static struct mem_region *resolve(const struct mem *m, uint64_t gpa, uint64_t len, uint64_t *ret_off)
{
	for (int i = 0; i < m->nregions; i++) {
		const struct mem_region *r = &m->region[i];
		uint64_t off = gpa - r->gpa; /* wraps to a huge value below the region */

		if (off < r->size && len <= r->size - off) {
			*ret_off = off;
			return (struct mem_region *)r;
		}
	}
	return NULL;
}

static void mark(const struct mem *m, struct mem_region *r, uint64_t off, uint64_t len)
{
	if (!atomic_load_explicit(&m->tracking, memory_order_acquire) || len == 0)
		return;
	/* Unconditionally: testing the bit first could overtake the write to the page, and a snapshot that takes the bits
	 * in between would lose it. */
	for (uint64_t page = off >> MEM_PAGE_SHIFT; page <= (off + len - 1) >> MEM_PAGE_SHIFT; page++)
		atomic_fetch_or(&r->dirty[page >> WORD_SHIFT], 1ull << (page % WORD_BITS));
}

int mem_read(const struct mem *m, gpa_t gpa, void *buf, size_t len)
{
	uint64_t off;
	const struct mem_region *r = resolve(m, gpa.v, len, &off);

	if (!r)
		return -EFAULT;
	memcpy(buf, r->host + off, len);
	return 0;
}

/* Marking comes after the write: a snapshot that takes the bits in between finds the page again next time, whereas
 * a bit taken before its write would be lost. */
int mem_write(struct mem *m, gpa_t gpa, const void *buf, size_t len)
{
	uint64_t off;
	struct mem_region *r = resolve(m, gpa.v, len, &off);

	if (!r)
		return -EFAULT;
	memcpy(r->host + off, buf, len);
	mark(m, r, off, len);
	return 0;
}

int mem_zero(struct mem *m, gpa_t gpa, size_t len)
{
	uint64_t off;
	struct mem_region *r = resolve(m, gpa.v, len, &off);

	if (!r)
		return -EFAULT;
	memset(r->host + off, 0, len);
	mark(m, r, off, len);
	return 0;
}

bool mem_contains(const struct mem *m, gpa_t gpa, uint64_t len)
{
	uint64_t off;

	return resolve(m, gpa.v, len, &off) != NULL;
}

int mem_load_le16_acquire(const struct mem *m, gpa_t gpa, uint16_t *ret)
{
	uint64_t off;
	const struct mem_region *r = resolve(m, gpa.v, sizeof(uint16_t), &off);

	if (!r || gpa.v % sizeof(uint16_t))
		return -EFAULT;
	*ret = le16toh(__atomic_load_n((const uint16_t *)(const void *)(r->host + off), __ATOMIC_ACQUIRE));
	return 0;
}

int mem_store_le16_release(struct mem *m, gpa_t gpa, uint16_t v)
{
	uint64_t off;
	struct mem_region *r = resolve(m, gpa.v, sizeof(uint16_t), &off);

	if (!r || gpa.v % sizeof(uint16_t))
		return -EFAULT;
	__atomic_store_n((uint16_t *)(void *)(r->host + off), htole16(v), __ATOMIC_RELEASE);
	mark(m, r, off, sizeof(uint16_t));
	return 0;
}

int mem_iov(struct mem *m, gpa_t gpa, uint32_t len, bool write, struct iovec *ret)
{
	uint64_t off;
	struct mem_region *r = len <= MEM_IOV_MAX ? resolve(m, gpa.v, len, &off) : NULL;

	if (!r)
		return -EFAULT;
	if (write)
		mark(m, r, off, len);
	*ret = (struct iovec){ .iov_base = r->host + off, .iov_len = len };
	return 0;
}

void mem_mark_dirty(struct mem *m, gpa_t gpa, uint64_t len)
{
	uint64_t off;
	struct mem_region *r = resolve(m, gpa.v, len, &off);

	if (r)
		mark(m, r, off, len);
}

int mem_discard(struct mem *m, gpa_t gpa, uint64_t len)
{
	uint64_t off;
	struct mem_region *r;

	if (gpa.v % MEM_PAGE_SIZE || len % MEM_PAGE_SIZE)
		return -EINVAL;
	r = resolve(m, gpa.v, len, &off);
	if (!r)
		return -EFAULT;
	if (len == 0)
		return 0;
	if (madvise(r->host + off, len, MADV_DONTNEED) < 0)
		return -errno;
	mark(m, r, off, len);
	return 0;
}

int mem_dirty_start(struct mem *m, struct err *err)
{
	for (int i = 0; i < m->nregions; i++) {
		struct mem_region *r = &m->region[i];
		size_t words = bitmap_words(r);

		if (r->dirty) {
			for (size_t w = 0; w < words; w++)
				atomic_store_explicit(&r->dirty[w], 0, memory_order_relaxed);
			continue;
		}
		void *p = mmap(NULL, words * sizeof(uint64_t), PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return err_errno(err, -errno, "memory: dirty bitmap of %zu KiB",
					 words * sizeof(uint64_t) >> 10);
		r->dirty = p;
	}
	atomic_store_explicit(&m->tracking, true, memory_order_release);
	return 0;
}

void mem_dirty_stop(struct mem *m)
{
	atomic_store(&m->tracking, false);
}

void mem_dirty_take(struct mem *m, int i, uint64_t *bitmap)
{
	struct mem_region *r = &m->region[i];
	size_t words = bitmap_words(r);

	for (size_t w = 0; w < words; w++)
		bitmap[w] = r->dirty ? atomic_exchange(&r->dirty[w], 0) : 0;
}
