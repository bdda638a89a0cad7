/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest physical memory: see memory.h.
 *
 * How it works: each region is one anonymous private mapping, reserved but not committed (MAP_NORESERVE), left out of
 * core dumps and of forked children, and aligned as its guest addresses are, so that the host can back both with large
 * pages. `resolve` is the only place where a guest address becomes a pointer; every access goes through it, so there
 * is one bounds check to read. A copy that does not fit is refused whole.
 *
 * The dirty bitmap is made by the first mem_dirty_start and kept until mem_finish, so that a thread that marks a page
 * while tracking is being switched off never writes into freed memory. KVM's own log is read into a buffer of the same
 * shape.
 *
 * A snapshot's file may be mapped in the place of anonymous memory (mem_map_file). Discarding there cannot be left to
 * madvise, which would bring the file's contents back: the pages become anonymous again, and a bitmap remembers which
 * have. Each such run splits the mapping, so their number is bounded; beyond it discarded pages are zeroed and stay in
 * use.
 *
 * A snapshot looks at all of memory. What nobody has touched it can tell from the process's page map instead (bits 61 to 63: of a file,
 * swapped, present; Linux, Documentation/admin-guide/mm/pagemap.rst): most of a large guest's memory is such, and reading a hole of
 * a mapped file would fill the page cache with zeros. /proc/self/pagemap is opened with the memory, before the monitor is isolated.
 *
 * Trust: addresses and lengths come from the guest.
 * Snapshot: contents are captured by the snapshot code; the layout follows from the size alone.
 */
/* syscalls(main, vcpu, worker): madvise mmap(2!PROT_EXEC)
 * syscalls(main, worker): dup close pread64 lseek
 * syscalls(main): ioctl(1=KVM_SET_USER_MEMORY_REGION) ioctl(1=KVM_GET_DIRTY_LOG) ioctl(1=UFFDIO_REGISTER)
 * ioctl(1=UFFDIO_UNREGISTER)
 * syscalls(worker): ioctl(1=KVM_GET_DIRTY_LOG) ioctl(1=UFFDIO_COPY) ioctl(1=UFFDIO_ZEROPAGE) ioctl(1=UFFDIO_WAKE)
 * ioctl(1=UFFDIO_UNREGISTER) */
#include "vmm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <linux/userfaultfd.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { WORD_BITS = 64, WORD_SHIFT = 6, LARGE_PAGE = 2 << 20 };

static size_t bitmap_words(const struct mem_region *r)
{
	return (size_t)(((r->size >> MEM_PAGE_SHIFT) + WORD_BITS - 1) / WORD_BITS);
}

/* Zeros, which cost nothing until they are written. NULL when there is no memory. */
static void *new_bitmap(const struct mem_region *r)
{
	void *p = mmap(NULL, bitmap_words(r) * sizeof(uint64_t), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void free_bitmap(const struct mem_region *r, void *p)
{
	if (p)
		munmap(p, bitmap_words(r) * sizeof(uint64_t));
}

/* Guest contents belong neither in the monitor's core dump nor in a child; both are a courtesy. */
static void keep_private(void *p, size_t size)
{
	madvise(p, size, MADV_DONTDUMP);
	madvise(p, size, MADV_DONTFORK);
}

static int set_slot(struct mem *m, int i, uint32_t flags)
{
	const struct mem_region *r = &m->region[i];
	struct kvm_userspace_memory_region slot = {
		.slot = (uint32_t)i,
		.flags = flags,
		.guest_phys_addr = r->gpa,
		.memory_size = r->size,
		.userspace_addr = (uint64_t)(uintptr_t)r->host,
	};

	return ioctl(m->vm_fd, KVM_SET_USER_MEMORY_REGION, &slot) < 0 ? -errno : 0;
}

static int map_region(struct mem *m, uint64_t gpa, uint64_t size, struct err *err)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
	struct mem_region *r = &m->region[m->nregions];
	uint8_t *all = mmap(NULL, size + LARGE_PAGE, PROT_NONE, flags, -1, 0);

	if (all == MAP_FAILED)
		return err_errno(err, -errno, "memory: reserve %llu MiB", (unsigned long long)(size >> 20));
	uint8_t *p = (uint8_t *)ALIGN_UP((uintptr_t)all, (uintptr_t)LARGE_PAGE);

	*r = (struct mem_region){ .gpa = gpa, .size = size, .host = p, .reserved = all, .file_fd = -1 };
	m->nregions++;
	if (mmap(p, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0) == MAP_FAILED)
		return err_errno(err, -errno, "memory: map %llu MiB", (unsigned long long)(size >> 20));
	keep_private(p, size);
	if (m->vm_fd < 0)
		return 0;
	int code = set_slot(m, m->nregions - 1, m->kvm_logs ? KVM_MEM_LOG_DIRTY_PAGES : 0);

	return code < 0 ? err_errno(err, code, "memory: KVM slot of %llu MiB at 0x%llx",
				    (unsigned long long)(size >> 20), (unsigned long long)gpa)
			: 0;
}

static int init(struct mem *m, int vm_fd, uint64_t size, bool logged, struct err *err)
{
	int r;

	memset(m, 0, sizeof(*m));
	m->vm_fd = vm_fd;
	m->pagemap_fd = -1;
	m->kvm_logs = logged && vm_fd >= 0;
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
	else
		m->pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	return r;
}

int mem_init(struct mem *m, int vm_fd, uint64_t size, struct err *err)
{
	return init(m, vm_fd, size, false, err);
}

int mem_init_logged(struct mem *m, int vm_fd, uint64_t size, struct err *err)
{
	return init(m, vm_fd, size, true, err);
}

void mem_finish(struct mem *m)
{
	for (int i = 0; i < m->nregions; i++) {
		struct mem_region *r = &m->region[i];

		if (r->reserved)
			munmap(r->reserved, r->size + LARGE_PAGE);
		free_bitmap(r, (void *)r->dirty);
		free_bitmap(r, r->kvm_dirty);
		free_bitmap(r, r->replaced);
		fd_close(r->file_fd);
	}
	if (m->nregions > 0)
		fd_close(m->pagemap_fd);
	memset(m, 0, sizeof(*m));
	m->vm_fd = m->pagemap_fd = -1;
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
	/* Unconditionally: testing the bit first could overtake the write to the page, and a snapshot that takes the
	 * bits in between would lose it. */
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

void mem_prefetch(const struct mem *m, gpa_t gpa)
{
	/* Enough until the hardware has seen which way it goes, and the address is translated meanwhile. More is slower: lines that are on their
	 * way occupy what the copy of now needs. */
	enum { LINE = 64, BEGINNING = 128 };
	uint64_t off;
	const struct mem_region *r = resolve(m, gpa.v, BEGINNING, &off);

	for (uint64_t i = 0; r && i < BEGINNING; i += LINE)
		__builtin_prefetch(r->host + off + i);
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

static bool is_replaced(const struct mem_region *r, uint64_t page)
{
	return page < r->size >> MEM_PAGE_SHIFT && r->replaced[page >> WORD_SHIFT] >> (page % WORD_BITS) & 1;
}

/* Anonymous memory for the pages [from, to), of which none is that yet. */
static bool replace(struct mem_region *r, uint64_t from, uint64_t to)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
	bool before = from > 0 && is_replaced(r, from - 1), after = is_replaced(r, to);
	uint8_t *p = r->host + (from << MEM_PAGE_SHIFT);
	size_t len = (size_t)(to - from) << MEM_PAGE_SHIFT;

	if (!before && !after && r->pieces >= MEM_PIECES_MAX)
		return false;
	if (mmap(p, len, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
		return false;
	keep_private(p, len);
	r->pieces += 1u - before - after;
	for (uint64_t page = from; page < to; page++)
		r->replaced[page >> WORD_SHIFT] |= 1ull << (page % WORD_BITS);
	return true;
}

/* Discard pages of a region where a file is mapped, run by run of pages that are alike. */
static void discard_mapped(struct mem_region *r, uint64_t from, uint64_t to)
{
	while (from < to) {
		bool anonymous = is_replaced(r, from);
		uint64_t end = from + 1;
		uint8_t *p = r->host + (from << MEM_PAGE_SHIFT);

		while (end < to && is_replaced(r, end) == anonymous)
			end++;
		size_t len = (size_t)(end - from) << MEM_PAGE_SHIFT;

		if (anonymous ? madvise(p, len, MADV_DONTNEED) < 0 : !replace(r, from, end))
			memset(p, 0, len);
		from = end;
	}
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
	if (len == 0 || atomic_load(&m->arriving))
		return 0;
	if (r->replaced)
		discard_mapped(r, off >> MEM_PAGE_SHIFT, (off + len) >> MEM_PAGE_SHIFT);
	else if (madvise(r->host + off, len, MADV_DONTNEED) < 0)
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
		r->dirty = new_bitmap(r);
		if (!r->dirty)
			return err_errno(err, -ENOMEM, "memory: dirty bitmap of %zu KiB",
					 words * sizeof(uint64_t) >> 10);
	}
	atomic_store_explicit(&m->tracking, true, memory_order_release);
	return 0;
}

void mem_dirty_stop(struct mem *m)
{
	atomic_store(&m->tracking, false);
}

uint64_t mem_pages(const struct mem *m)
{
	return m->size >> MEM_PAGE_SHIFT;
}

/* The region of page n of RAM, what follows in it, and the page's number there; NULL beyond the end. */
static struct mem_region *region_of(const struct mem *m, uint64_t n, uint64_t *ret_page, uint64_t *ret_run)
{
	for (int i = 0; i < m->nregions; i++) {
		uint64_t pages = m->region[i].size >> MEM_PAGE_SHIFT;

		if (n < pages) {
			*ret_page = n;
			*ret_run = pages - n;
			return (struct mem_region *)&m->region[i];
		}
		n -= pages;
	}
	return NULL;
}

gpa_t mem_page_gpa(const struct mem *m, uint64_t n, uint64_t *ret_run)
{
	uint64_t page = 0;
	const struct mem_region *r = region_of(m, n, &page, ret_run);

	return GPA(r ? r->gpa + (page << MEM_PAGE_SHIFT) : UINT64_MAX);
}

uint8_t *mem_host_pages(const struct mem *m, uint64_t n, uint64_t npages)
{
	uint64_t page, run;
	const struct mem_region *r = region_of(m, n, &page, &run);

	return r && npages <= run ? r->host + (page << MEM_PAGE_SHIFT) : NULL;
}

int mem_map_file(struct mem *m, uint64_t n, uint64_t npages, int fd, uint64_t off, struct err *err)
{
	uint64_t page, run;
	struct mem_region *r = region_of(m, n, &page, &run);

	if (!r || npages == 0 || npages > run)
		return err_set(err, -EINVAL, "memory: pages %llu to %llu are not in one region", (unsigned long long)n,
			       (unsigned long long)n + npages);
	bool fresh = !r->replaced, whole = npages == r->size >> MEM_PAGE_SHIFT;

	if (fresh) {
		r->replaced = new_bitmap(r);
		if (!r->replaced)
			return err_errno(err, -ENOMEM, "memory: bitmap of mapped pages");
		if (!whole) {
			memset(r->replaced, 0xff, bitmap_words(r) * sizeof(uint64_t));
			r->pieces = 1;
		}
	}
	uint8_t *p = r->host + (page << MEM_PAGE_SHIFT);
	size_t len = (size_t)npages << MEM_PAGE_SHIFT;

	if (mmap(p, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, fd, (off_t)off) == MAP_FAILED)
		return err_errno(err, -errno, "memory: map %zu MiB of a file", len >> 20);
	keep_private(p, len);
	fd_close(r->file_fd);
	/* Of two files in one region nobody asks for holes. */
	r->file_fd = fresh && whole ? dup(fd) : -1;
	r->file_off = off;
	if (!fresh || !whole)
		for (uint64_t i = page; i < page + npages; i++)
			r->replaced[i >> WORD_SHIFT] &= ~(1ull << (i % WORD_BITS));
	return 0;
}

static void set_bits(uint64_t *bits, uint64_t from, uint64_t to)
{
	for (; from < to; from++)
		bits[from / WORD_BITS] |= 1ull << (from % WORD_BITS);
}

/* Pages [page, page + n) of a mapped file that are holes in it. */
static void find_holes(const struct mem_region *r, uint64_t page, uint64_t n, uint64_t *ret)
{
	uint64_t base = r->file_off + (page << MEM_PAGE_SHIFT), len = n << MEM_PAGE_SHIFT, at = 0;

	while (at < len && r->file_fd >= 0) {
		off_t data = lseek(r->file_fd, (off_t)(base + at), SEEK_DATA), hole;

		/* ENXIO: no data behind it. */
		if (data < 0 && errno != ENXIO)
			return;
		uint64_t end = data < 0 ? len : MIN((uint64_t)data - base, len);

		set_bits(ret, (at + MEM_PAGE_SIZE - 1) >> MEM_PAGE_SHIFT, end >> MEM_PAGE_SHIFT);
		if (end == len)
			return;
		hole = lseek(r->file_fd, data, SEEK_HOLE);
		if (hole < 0)
			return;
		at = (uint64_t)hole - base;
	}
}

void mem_find_zero(const struct mem *m, uint64_t n, uint64_t npages, uint64_t *ret)
{
	const uint64_t present = 1ull << 63, swapped = 1ull << 62, of_file = 1ull << 61;
	uint64_t page, run, map[MEM_KNOWN_MAX], hole[MEM_KNOWN_MAX / WORD_BITS] = { 0 };
	const struct mem_region *r = region_of(m, n, &page, &run);
	size_t len = npages * sizeof(map[0]);

	memset(ret, 0, MEM_KNOWN_MAX / 8);
	if (!r || npages > MIN(run, (uint64_t)MEM_KNOWN_MAX) || m->pagemap_fd < 0 || atomic_load(&m->arriving))
		return;
	uint64_t host = ((uintptr_t)r->host >> MEM_PAGE_SHIFT) + page;

	if (fd_pread_full(m->pagemap_fd, map, len, (off_t)(host * sizeof(map[0]))) != (ssize_t)len)
		return;
	if (r->replaced)
		find_holes(r, page, npages, hole);
	for (uint64_t i = 0; i < npages; i++) {
		bool file = r->replaced && !is_replaced(r, page + i);
		bool ours = map[i] & swapped || (map[i] & present && !(file && map[i] & of_file));

		if (!ours && (!file || hole[i / WORD_BITS] >> (i % WORD_BITS) & 1))
			ret[i / WORD_BITS] |= 1ull << (i % WORD_BITS);
	}
}

void mem_populate(struct mem *m, uint64_t page, uint64_t npages)
{
	uint8_t *p = mem_host_pages(m, page, npages);

	if (!p)
		return;
	/* Before Linux 5.14 there is no such thing, and faults do it page by page. */
	madvise(p, npages << MEM_PAGE_SHIFT, MADV_POPULATE_WRITE);
}

void mem_prefer_large_pages(struct mem *m)
{
	for (int i = 0; i < m->nregions; i++)
		madvise(m->region[i].host, m->region[i].size, MADV_HUGEPAGE);
}

int mem_uffd_begin(struct mem *m, int uffd, struct err *err)
{
	const uint64_t need = 1ull << _UFFDIO_COPY | 1ull << _UFFDIO_ZEROPAGE | 1ull << _UFFDIO_WAKE;

	for (int i = 0; i < m->nregions; i++) {
		const struct mem_region *r = &m->region[i];
		struct uffdio_register reg = {
			.range = { .start = (uintptr_t)r->host, .len = r->size },
			.mode = UFFDIO_REGISTER_MODE_MISSING,
		};
		int code = ioctl(uffd, UFFDIO_REGISTER, &reg) < 0 ? -errno : 0;

		if (code == 0 && (reg.ioctls & need) == need)
			continue;
		mem_uffd_end(m, uffd);
		return err_errno(err, code < 0 ? code : -ENOTSUP, "memory: register with userfaultfd");
	}
	atomic_store(&m->arriving, true);
	return 0;
}

void mem_uffd_end(struct mem *m, int uffd)
{
	for (int i = 0; i < m->nregions; i++) {
		struct uffdio_range range = { .start = (uintptr_t)m->region[i].host, .len = m->region[i].size };

		ioctl(uffd, UFFDIO_UNREGISTER, &range);
	}
	atomic_store(&m->arriving, false);
}

/* UFFDIO_COPY, or UFFDIO_ZEROPAGE without src, for a part; *ret_done is how many bytes are there now. */
static int uffd_fill(int uffd, uint8_t *dst, const uint8_t *src, uint64_t len, uint64_t *ret_done)
{
	struct uffdio_copy copy = { .dst = (uintptr_t)dst, .src = (uintptr_t)src, .len = len };
	struct uffdio_zeropage zero = { .range = { .start = (uintptr_t)dst, .len = len } };
	struct uffdio_range wake = { .start = (uintptr_t)dst, .len = MEM_PAGE_SIZE };
	int r = (src ? ioctl(uffd, UFFDIO_COPY, &copy) : ioctl(uffd, UFFDIO_ZEROPAGE, &zero)) < 0 ? -errno : 0;
	int64_t done = src ? copy.copy : zero.zeropage;

	if (r == 0) {
		*ret_done = len;
		return 0;
	}
	if (r == -EAGAIN && done > 0) {
		*ret_done = (uint64_t)done;
		return 0;
	}
	if (r != -EEXIST)
		return r;
	/* Whoever put it there has woken those who waited then; one may have come since. */
	ioctl(uffd, UFFDIO_WAKE, &wake);
	*ret_done = MEM_PAGE_SIZE;
	return 0;
}

static int uffd_fill_all(struct mem *m, int uffd, uint64_t page, uint64_t npages, const uint8_t *src)
{
	uint8_t *dst = mem_host_pages(m, page, npages);
	uint64_t len = npages << MEM_PAGE_SHIFT, done = 0;
	int r = dst ? 0 : -EINVAL;

	for (uint64_t n; r == 0 && done < len; done += n) {
		n = 0;
		r = uffd_fill(uffd, dst + done, src ? src + done : NULL, len - done, &n);
		/* The map is being changed, by a discard of another part: it will be over at once. */
		if (r == -EAGAIN)
			r = 0;
	}
	return r;
}

int mem_uffd_copy(struct mem *m, int uffd, uint64_t page, uint64_t npages, const void *src)
{
	return uffd_fill_all(m, uffd, page, npages, src);
}

int mem_uffd_zero(struct mem *m, int uffd, uint64_t page, uint64_t npages)
{
	return uffd_fill_all(m, uffd, page, npages, NULL);
}

int mem_uffd_release(struct mem *m, int uffd, uint64_t page, uint64_t npages)
{
	uint8_t *p = mem_host_pages(m, page, npages);
	struct uffdio_range range = { .start = (uintptr_t)p, .len = npages << MEM_PAGE_SHIFT };

	if (!p)
		return -EINVAL;
	return ioctl(uffd, UFFDIO_UNREGISTER, &range) < 0 ? -errno : 0;
}

int mem_uffd_page(const struct mem *m, uint64_t host_address, uint64_t *ret_page)
{
	uint64_t before = 0;

	for (int i = 0; i < m->nregions; i++) {
		const struct mem_region *r = &m->region[i];
		uint64_t off = host_address - (uintptr_t)r->host;

		if (off < r->size) {
			*ret_page = before + (off >> MEM_PAGE_SHIFT);
			return 0;
		}
		before += r->size >> MEM_PAGE_SHIFT;
	}
	return -EFAULT;
}

int mem_kvm_log(struct mem *m, bool on, struct err *err)
{
	if (m->vm_fd < 0)
		return 0;
	for (int i = 0; i < m->nregions; i++) {
		struct mem_region *r = &m->region[i];

		if (!r->kvm_dirty)
			r->kvm_dirty = new_bitmap(r);
		if (!r->kvm_dirty)
			return err_errno(err, -ENOMEM, "memory: bitmap of KVM's dirty log");
		int code = m->kvm_logs == on ? 0 : set_slot(m, i, on ? KVM_MEM_LOG_DIRTY_PAGES : 0);

		if (code < 0)
			return err_errno(err, code, "memory: switch KVM's dirty log %s", on ? "on" : "off");
	}
	m->kvm_logs = on;
	return 0;
}

int mem_dirty_collect(struct mem *m, uint64_t *pages, struct err *err)
{
	for (int i = 0; i < m->nregions; i++) {
		struct mem_region *r = &m->region[i];
		struct kvm_dirty_log log = { .slot = (uint32_t)i, .dirty_bitmap = r->kvm_dirty };
		size_t words = bitmap_words(r);

		if (m->kvm_logs && ioctl(m->vm_fd, KVM_GET_DIRTY_LOG, &log) < 0)
			return err_errno(err, -errno, "memory: read KVM's dirty log of slot %d", i);
		for (size_t w = 0; w < words; w++) {
			if (m->kvm_logs)
				pages[w] |= r->kvm_dirty[w];
			/* Most are zero, and an exchange would take the cache line away from who marks. */
			if (r->dirty && atomic_load_explicit(&r->dirty[w], memory_order_relaxed))
				pages[w] |= atomic_exchange(&r->dirty[w], 0);
		}
		/* Where a second region follows, the first ends at MEM_HOLE_START: at a whole word. */
		pages += words;
	}
	return 0;
}
