/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest physical memory: the only code that maps it and the only door to it.
 *
 * Guest contract: RAM from 0 up to MEM_HOLE_START, the rest from MEM_HOLE_END (4 GiB) up. Everything
 * between is for devices.
 * A guest address is a type of its own. Each access checks that [gpa, gpa + len) lies inside one region
 * without overflow, and marks the pages written as dirty. Raw pointers leave only as iovecs made by
 * mem_iov, for the kernel to read or write (readv, io_uring): the holder never dereferences them. Snapshots alone read and
 * fill memory in place (mem_host_pages).
 * Guest memory changes under our feet: read a value once, then check the copy.
 *
 * Without KVM (vm_fd < 0) the same code serves the fake machine of the device tests.
 *
 * Threads: the map is fixed once the guest runs; accesses need no lock; the dirty bitmap is atomic.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "lib/err.h"
#include "lib/le.h"

typedef struct { uint64_t v; } gpa_t;
#define GPA(x) ((gpa_t){ (x) })

enum { MEM_MAX_REGIONS = 2, MEM_PAGE_SHIFT = 12, MEM_PAGE_SIZE = 1 << MEM_PAGE_SHIFT, MEM_LARGE_PAGES = 512 /* 2 MiB */ };
#define MEM_HOLE_START 0xC0000000ull /* 3 GiB */
#define MEM_HOLE_END 0x100000000ull  /* 4 GiB */
#define MEM_MIN (1ull << 20)
#define MEM_IOV_MAX (1u << 30) /* bytes in one iovec */
#define MEM_MAX (1ull << 42) /* 4 TiB, bounded by the dirty bitmap's size, and in practice by the host */

struct mem_region {
	uint64_t gpa; /* page aligned */
	uint64_t size;
	uint8_t *host;            /* private to memory.c */
	uint8_t *reserved;        /* what was mapped, host and the unmapped margins around it */
	_Atomic uint64_t *dirty;  /* one bit a page; NULL while not tracking */
	uint64_t *kvm_dirty;      /* KVM's log is read into it; NULL before mem_kvm_log */
	uint64_t *replaced;       /* bits of pages that are anonymous again; NULL: no file is mapped here */
	unsigned pieces;          /* runs of such pages */
	int file_fd;              /* what is mapped in the rest, -1: nothing */
	uint64_t file_off;        /* where the region's first page would be in it */
};

struct mem {
	struct mem_region region[MEM_MAX_REGIONS]; /* sorted */
	int nregions;
	uint64_t size; /* of RAM, without the hole */
	int vm_fd;     /* borrowed, -1 without KVM */
	_Atomic bool tracking;
	_Atomic bool arriving; /* between mem_uffd_begin and mem_uffd_end */
	bool kvm_logs;         /* KVM's dirty log is on */
	int pagemap_fd;        /* -1: the host does not say which pages are there */
};

/* Reserve and map `size` bytes of anonymous guest RAM (a multiple of the page size, MEM_MIN..MEM_MAX) and, with
 * vm_fd >= 0, give KVM its slots. Memory is not touched: it costs nothing until the guest uses it. */
int mem_init(struct mem *m, int vm_fd, uint64_t size, struct err *err);
/* The same with KVM's dirty log on from the start: switching it on later makes KVM wait for all that may use the slots, milliseconds
 * that a machine which is to be filled in a moment should not take. */
int mem_init_logged(struct mem *m, int vm_fd, uint64_t size, struct err *err);
void mem_finish(struct mem *m); /* accepts zeroed and finished */

/* Does the host have that much memory at all? 0, or -ENOMEM with a text. mem_init does not ask: it only reserves. */
int mem_check_host(uint64_t size, struct err *err);

/* Copy out of and into guest memory: 0 or -EFAULT (nothing is copied then). */
int mem_read(const struct mem *m, gpa_t gpa, void *buf, size_t len);
int mem_write(struct mem *m, gpa_t gpa, const void *buf, size_t len);
int mem_zero(struct mem *m, gpa_t gpa, size_t len);

/* What lies there will be read soon: the processor may fetch its beginning. A hint. */
void mem_prefetch(const struct mem *m, gpa_t gpa);

/* Is [gpa, gpa + len) inside one region? */
bool mem_contains(const struct mem *m, gpa_t gpa, uint64_t len);

/* Ring fields, naturally aligned (else -EFAULT), as single accesses with the ordering a virtqueue needs. */
int mem_load_le16_acquire(const struct mem *m, gpa_t gpa, uint16_t *ret);
int mem_store_le16_release(struct mem *m, gpa_t gpa, uint16_t v);

/* Append the host view of [gpa, gpa + len) to iov (one element per call, len <= 1 GiB). write marks the pages
 * dirty now; a holder that writes later (asynchronous reads from disk) calls mem_mark_dirty again on completion. */
int mem_iov(struct mem *m, gpa_t gpa, uint32_t len, bool write, struct iovec *ret);
void mem_mark_dirty(struct mem *m, gpa_t gpa, uint64_t len); /* ranges outside memory are ignored */

/* Give [gpa, gpa + len) back to the host: reads as zeros afterwards. Page aligned, else -EINVAL. Where a file is
 * mapped, anonymous memory takes its place, in at most MEM_PIECES_MAX pieces a region; further ones are only filled
 * with zeros. While pages arrive through userfaultfd it does nothing and returns 0. */
enum { MEM_PIECES_MAX = 8192 }; /* each costs two of the 65530 mappings that a process has by default */
int mem_discard(struct mem *m, gpa_t gpa, uint64_t len);

/* Pages of RAM numbered from 0 without the hole, as snapshots know them. */
uint64_t mem_pages(const struct mem *m);
/* The address of page n; [n, n + *ret_run) are contiguous in the guest too. n must be below mem_pages. */
gpa_t mem_page_gpa(const struct mem *m, uint64_t n, uint64_t *ret_run);

/* Put a private mapping of the file in the place of [page, page + npages) of one region: writes stay ours, pages that
 * nobody wrote are shared with whoever maps the same file. Before the guest runs. */
int mem_map_file(struct mem *m, uint64_t page, uint64_t npages, int fd, uint64_t off, struct err *err);

/* Host memory of whole pages of one region, else NULL. For snapshots only: to fill memory that no vCPU and no device uses yet (nothing
 * is marked as dirty), and to write it to a file, where every look may see something else. */
uint8_t *mem_host_pages(const struct mem *m, uint64_t page, uint64_t npages);
/* Which of these pages (of one region, at most MEM_KNOWN_MAX) read as zeros for certain, without a look at them: nobody has touched
 * them, and a file that is mapped there has a hole. Looking would make the host find a page for each. Bits of the pages in `ret`
 * (MEM_KNOWN_MAX / 64 words); a page that is written meanwhile is in the dirty logs. */
enum { MEM_KNOWN_MAX = 256 };
void mem_find_zero(const struct mem *m, uint64_t page, uint64_t npages, uint64_t *ret);
/* All of memory in pages of 2 MiB where the host has them. A hint. */
void mem_prefer_large_pages(struct mem *m);
/* These pages are about to be written whole: let the host make them at once, not one by one. A hint. */
void mem_populate(struct mem *m, uint64_t page, uint64_t npages);

/* Pages that have not been touched arrive through userfaultfd: register all of RAM with it. Until mem_uffd_end
 * discarding does nothing (it is the guest's hint alone). */
int mem_uffd_begin(struct mem *m, int uffd, struct err *err);
void mem_uffd_end(struct mem *m, int uffd);
/* Put whole pages where nobody touched yet, waking who waits for them: 0 or -errno. Pages that are there already stay
 * as they are. The pages must lie in one region, else -EINVAL. */
int mem_uffd_copy(struct mem *m, int uffd, uint64_t page, uint64_t npages, const void *src);
int mem_uffd_zero(struct mem *m, int uffd, uint64_t page, uint64_t npages);
/* Stop asking for these pages: what nobody touched reads as zeros, and the host may use large pages for it. Splits the
 * mapping: for long runs. */
int mem_uffd_release(struct mem *m, int uffd, uint64_t page, uint64_t npages);
/* The page at a host address that userfaultfd reported; -EFAULT when it is none of ours. */
int mem_uffd_page(const struct mem *m, uint64_t host_address, uint64_t *ret_page);

/* Dirty tracking by KVM: switch its log on or off for all slots (no effect without KVM). */
int mem_kvm_log(struct mem *m, bool on, struct err *err);
/* Take (and clear) all dirty bits, KVM's and those of accesses through this file: or-ed into pages (bit n: page n; an
 * array of (mem_pages + 63) / 64 words). A log that was never started has none. On error bits that were taken are in pages. */
int mem_dirty_collect(struct mem *m, uint64_t *pages, struct err *err);

/* Dirty tracking of accesses made through this file alone. */
int mem_dirty_start(struct mem *m, struct err *err);
void mem_dirty_stop(struct mem *m);
