/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest memory that arrives while the guest runs: see ram.h.
 *
 * How it works: all of RAM is registered with userfaultfd. The server thread reads faults and brings the chunk of
 * each; the fillers bring those of the recorded order, then all others by address, and let the server go first. A
 * chunk's state (absent, in flight, there) is taken by compare and exchange, so that one thread alone reads it; who
 * faults on a chunk in flight is woken by the copy that is under way. Where 2 MiB and more hold nothing at all, the
 * range is released from userfaultfd instead, so that the kernel can use large pages there; many such blocks at once.
 * Who brings the last chunk wakes the server, which takes userfaultfd away.
 *
 * Damage: the first thread that meets it reports it, and nobody serves anything any more: whoever waits for a page
 * stays where it is until the process ends.
 *
 * Threads: `asked` and `order_out`'s buffer belong to the server. Lock: for ram_lazy_complete to wait by.
 * Trust: the image (see ram_image.c); numbers in order_in; not the descriptor.
 * Limits: each released range splits the mapping until memory is complete; where the kernel refuses, pages are filled
 * with zeros.
 */
/* syscalls(main): eventfd2 pread64 fstat newfstatat close
 * syscalls(worker): poll read close pread64 sched_yield */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram_image.h"

enum chunk_state { ABSENT, IN_FLIGHT, THERE };

enum {
	BLOCK_CHUNKS = (2 << 20) / RAM_CHUNK_SIZE,
	RELEASE_BLOCKS_MAX = 512, /* released at a time: the guest waits meanwhile */
	FAULTS_MAX = 16,
	ORDER_BUFFER = 1024,
	READERS_MAX = WORKERS_MAX + 1,
};

struct ram_lazy {
	struct ram_lazy_config c;
	const struct ram_image *im;
	_Atomic uint8_t *state; /* enum chunk_state of each chunk */
	_Atomic uint64_t left;  /* chunks not there */
	_Atomic uint64_t cursor, order_cursor;
	_Atomic bool serving, stop, damaged, complete;
	int wake_fd;            /* written when one of these changes */
	bool begun;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint32_t *order;
	uint64_t norder;
	unsigned nreaders;
	struct ram_scratch scratch[READERS_MAX];
	uint8_t *chunk[READERS_MAX];
	/* the server's */
	uint8_t *asked; /* a bit for each chunk */
	le32 demanded[ORDER_BUFFER];
	unsigned ndemanded;
};

/* ---- opening ---- */

static int open_device(void)
{
	_cleanup_close_ int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);

	if (dev < 0)
		return -errno;
	int fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC | O_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

int ram_lazy_open_uffd(struct err *err)
{
	struct uffdio_api api = { .api = UFFD_API };
	/* KVM's faults are the kernel's: a descriptor for user mode alone would not do. */
	_cleanup_close_ int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	int r = fd < 0 ? -errno : 0;

	if (r == -EPERM) {
		fd = open_device();
		r = fd < 0 ? fd : 0;
	}
	if (r == -ENOSYS)
		return err_set(err, r, "userfaultfd: this kernel has none: restore without --lazy");
	if (r < 0)
		return err_errno(err, r,
				 "userfaultfd: not allowed (give access to /dev/userfaultfd, or CAP_SYS_PTRACE, or set "
				 "vm.unprivileged_userfaultfd=1; or restore without --lazy)");
	if (ioctl(fd, UFFDIO_API, &api) < 0)
		return err_errno(err, -errno, "userfaultfd: the kernel's interface");
	return TAKE_FD(fd);
}

/* ---- what all threads do ---- */

static void wake_server(struct ram_lazy *l)
{
	uint64_t one = 1;

	while (write(l->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void tell_waiting(struct ram_lazy *l)
{
	pthread_mutex_lock(&l->lock);
	pthread_cond_broadcast(&l->changed);
	pthread_mutex_unlock(&l->lock);
}

static void damage(struct ram_lazy *l, const char *text)
{
	if (atomic_exchange(&l->damaged, true))
		return;
	l->c.on_damage(l->c.arg, text);
	wake_server(l);
	tell_waiting(l);
}

static bool is_over(const struct ram_lazy *l)
{
	return atomic_load(&l->stop) || atomic_load(&l->damaged);
}

/* n chunks more are there. */
static void count_there(struct ram_lazy *l, uint64_t n)
{
	if (atomic_fetch_sub(&l->left, n) == n)
		wake_server(l);
}

static uint64_t pages_of(const struct ram_lazy *l, uint64_t chunk)
{
	return MIN((uint64_t)RAM_CHUNK_PAGES, mem_pages(l->c.mem) - chunk * RAM_CHUNK_PAGES);
}

static bool block_is_empty(const struct ram_lazy *l, uint64_t first)
{
	for (uint64_t chunk = first; chunk < MIN(first + BLOCK_CHUNKS, l->im->chunks); chunk++)
		if (l->im->first[chunk])
			return false;
	return true;
}

/* One thread alone brings an empty block: the state of its first chunk is that of all. */
static bool claim_block(struct ram_lazy *l, uint64_t first)
{
	uint8_t absent = ABSENT;

	return block_is_empty(l, first) && atomic_compare_exchange_strong(&l->state[first], &absent, IN_FLIGHT);
}

/* Release an empty block and empty ones after it in the same region. */
static void bring_blocks(struct ram_lazy *l, uint64_t first)
{
	uint64_t end = first, page = first * RAM_CHUNK_PAGES, run;

	mem_page_gpa(l->c.mem, page, &run);
	uint64_t limit =
	    first + MIN((run + RAM_CHUNK_PAGES - 1) / RAM_CHUNK_PAGES, (uint64_t)RELEASE_BLOCKS_MAX * BLOCK_CHUNKS);

	while (end < limit && claim_block(l, end))
		end = MIN(end + BLOCK_CHUNKS, limit);
	if (end == first)
		return;
	uint64_t n = MIN((end - first) * RAM_CHUNK_PAGES, run);

	if (mem_uffd_release(l->c.mem, l->c.uffd, page, n) < 0 && mem_uffd_zero(l->c.mem, l->c.uffd, page, n) < 0) {
		damage(l, "ram: userfaultfd: cannot place zero pages");
		return;
	}
	for (uint64_t block = first; block < end; block += BLOCK_CHUNKS)
		atomic_store(&l->state[block], THERE);
	count_there(l, end - first);
}

/* Runs of pages with contents and without, each by one call. */
static int place(struct ram_lazy *l, uint64_t chunk, uint16_t present, const uint8_t *buf)
{
	uint64_t page = chunk * RAM_CHUNK_PAGES;
	unsigned pages = (unsigned)pages_of(l, chunk), n;
	int r = 0;

	for (unsigned at = 0; at < pages && r == 0; at += n) {
		bool full = present >> at & 1;

		for (n = 1; at + n < pages && (present >> (at + n) & 1) == full; n++)
			;
		r = full ? mem_uffd_copy(l->c.mem, l->c.uffd, page + at, n, buf + at * MEM_PAGE_SIZE)
			 : mem_uffd_zero(l->c.mem, l->c.uffd, page + at, n);
	}
	return r;
}

static void bring_chunk(struct ram_lazy *l, unsigned reader, uint64_t chunk)
{
	struct err err = ERR_INIT;
	uint8_t absent = ABSENT;
	uint16_t present = 0, zero;
	int r = 0;

	if (!atomic_compare_exchange_strong(&l->state[chunk], &absent, IN_FLIGHT))
		return;
	if (l->im->first[chunk])
		r = ram_chunk_read(l->im, l->im->n, chunk, &l->scratch[reader], l->chunk[reader], &present, &zero,
				   &err);
	if (r == 0 && is_over(l))
		return;
	if (r == 0) {
		r = place(l, chunk, present, l->chunk[reader]);
		if (r < 0)
			err_errno(&err, r, "ram: chunk %llu: userfaultfd", (unsigned long long)chunk);
	}
	if (r < 0) {
		damage(l, err.text);
		return;
	}
	atomic_store(&l->state[chunk], THERE);
	count_there(l, 1);
}

static void bring(struct ram_lazy *l, unsigned reader, uint64_t chunk)
{
	uint64_t block = ALIGN_DOWN(chunk, (uint64_t)BLOCK_CHUNKS);

	if (block_is_empty(l, block))
		bring_blocks(l, block);
	else
		bring_chunk(l, reader, chunk);
}

/* ---- the background ---- */

static void let_server_go_first(const struct ram_lazy *l)
{
	if (atomic_load(&l->serving))
		sched_yield();
}

static void fill_block(struct ram_lazy *l, unsigned reader, uint64_t block)
{
	if (block_is_empty(l, block)) {
		bring_blocks(l, block);
		return;
	}
	for (uint64_t chunk = block; chunk < MIN(block + BLOCK_CHUNKS, l->im->chunks) && !is_over(l); chunk++) {
		let_server_go_first(l);
		bring_chunk(l, reader, chunk);
	}
}

static void fill(void *arg, unsigned i)
{
	struct ram_lazy *l = arg;

	for (uint64_t k; !is_over(l) && (k = atomic_fetch_add(&l->order_cursor, 1)) < l->norder;) {
		let_server_go_first(l);
		bring(l, i, l->order[k]);
	}
	for (uint64_t block; !is_over(l) && (block = atomic_fetch_add(&l->cursor, BLOCK_CHUNKS)) < l->im->chunks;) {
		let_server_go_first(l);
		fill_block(l, i, block);
	}
}

/* ---- the server ---- */

static void flush_order(struct ram_lazy *l)
{
	/* The order is a hint for the next run: one that cannot be written is shorter. */
	if (l->ndemanded)
		fd_write_full(l->c.order_out, l->demanded, l->ndemanded * sizeof(l->demanded[0]));
	l->ndemanded = 0;
}

static void note(struct ram_lazy *l, uint64_t chunk)
{
	uint8_t bit = (uint8_t)(1u << (chunk % 8));

	if (l->c.order_out < 0 || !l->im->first[chunk] || l->asked[chunk / 8] & bit)
		return;
	l->asked[chunk / 8] |= bit;
	l->demanded[l->ndemanded++] = le32_make((uint32_t)chunk);
	if (l->ndemanded == ORDER_BUFFER)
		flush_order(l);
}

static void serve_fault(struct ram_lazy *l, const struct uffd_msg *msg)
{
	uint64_t page;

	if (msg->event != UFFD_EVENT_PAGEFAULT)
		return;
	if (mem_uffd_page(l->c.mem, msg->arg.pagefault.address, &page) < 0) {
		damage(l, "ram: userfaultfd reported an address outside guest memory");
		return;
	}
	uint64_t chunk = page / RAM_CHUNK_PAGES;

	bring(l, l->nreaders - 1, chunk);
	note(l, chunk);
}

static void serve_faults(struct ram_lazy *l)
{
	struct uffd_msg msg[FAULTS_MAX];
	ssize_t n;

	atomic_store(&l->serving, true);
	while (!is_over(l) && (n = read(l->c.uffd, msg, sizeof(msg))) > 0)
		for (size_t k = 0; k < (size_t)n / sizeof(msg[0]); k++)
			serve_fault(l, &msg[k]);
	atomic_store(&l->serving, false);
}

static void finish(struct ram_lazy *l)
{
	mem_uffd_end(l->c.mem, l->c.uffd);
	l->c.uffd = fd_close(l->c.uffd);
	atomic_store(&l->complete, true);
	tell_waiting(l);
}

static void serve(void *arg, unsigned i)
{
	struct ram_lazy *l = arg;
	struct pollfd p[] = { { .fd = l->c.uffd, .events = POLLIN }, { .fd = l->wake_fd, .events = POLLIN } };

	(void)i;
	while (!is_over(l) && atomic_load(&l->left) > 0) {
		if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
			damage(l, "ram: waiting for page faults failed");
		else if (p[0].revents & (POLLERR | POLLNVAL))
			damage(l, "ram: userfaultfd failed");
		else if (p[0].revents & POLLIN)
			serve_faults(l);
	}
	flush_order(l);
	if (!is_over(l))
		finish(l);
}

/* ---- begin and end ---- */

static int read_order(struct ram_lazy *l, struct err *err)
{
	struct stat st;
	uint64_t n = 0;

	if (l->c.order_in < 0)
		return 0;
	if (fstat(l->c.order_in, &st) < 0)
		return err_errno(err, -errno, "order of pages");
	n = MIN((uint64_t)st.st_size / sizeof(uint32_t), l->im->chunks);
	l->order = malloc((size_t)n * sizeof(uint32_t) + 1);
	if (!l->order)
		return err_errno(err, -ENOMEM, "order of pages");
	ssize_t got = fd_pread_full(l->c.order_in, l->order, (size_t)n * sizeof(uint32_t), 0);

	if (got < 0)
		return err_errno(err, (int)got, "order of pages: read");
	for (size_t k = 0; k < (size_t)got / sizeof(uint32_t); k++) {
		uint32_t chunk = le32_load(&l->order[k]);

		if (chunk < l->im->chunks)
			l->order[l->norder++] = chunk;
	}
	l->c.order_in = fd_close(l->c.order_in);
	return 0;
}

static int make_buffers(struct ram_lazy *l, struct err *err)
{
	int r = 0;

	l->nreaders = (l->c.fillers ? l->c.fillers->n : 0) + 1;
	for (unsigned i = 0; i < l->nreaders && r == 0; i++) {
		r = ram_scratch_init(&l->scratch[i]);
		l->chunk[i] = malloc(RAM_CHUNK_SIZE);
		if (!l->chunk[i])
			r = -ENOMEM;
	}
	l->state = calloc(l->im->chunks, sizeof(*l->state));
	l->asked = calloc(l->im->chunks / 8 + 1, 1);
	if (!l->state || !l->asked)
		r = -ENOMEM;
	if (r < 0)
		return err_errno(err, r, "ram: buffers of %u threads", l->nreaders);
	l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return l->wake_fd < 0 ? err_errno(err, -errno, "eventfd") : 0;
}

static int start(struct ram_lazy *l, struct err *err)
{
	int r = make_buffers(l, err);

	if (l->im->size != l->c.mem->size)
		return err_set(err, -EINVAL, "ram: %llu bytes of memory, the machine has %llu",
			       (unsigned long long)l->im->size, (unsigned long long)l->c.mem->size);
	if (r == 0)
		r = read_order(l, err);
	if (r == 0)
		r = mem_uffd_begin(l->c.mem, l->c.uffd, err);
	if (r < 0)
		return r;
	l->begun = true;
	workers_begin(l->c.server, serve, l);
	if (l->c.fillers)
		workers_begin(l->c.fillers, fill, l);
	return 0;
}

int ram_lazy_start(const struct ram_lazy_config *c, struct ram_lazy **ret, struct err *err)
{
	struct ram_lazy *l = calloc(1, sizeof(*l));

	if (!l) {
		ram_image_close(c->image);
		fd_close(c->uffd);
		fd_close(c->order_in);
		fd_close(c->order_out);
		return err_errno(err, -ENOMEM, "ram");
	}
	l->c = *c;
	l->im = c->image;
	l->left = c->image->chunks;
	l->wake_fd = -1;
	pthread_mutex_init(&l->lock, NULL);
	pthread_cond_init(&l->changed, NULL);
	int r = start(l, err);

	if (r < 0)
		ram_lazy_stop(l);
	else
		*ret = l;
	return r;
}

int ram_lazy_complete(struct ram_lazy *l, struct err *err)
{
	pthread_mutex_lock(&l->lock);
	while (!atomic_load(&l->complete) && !is_over(l))
		pthread_cond_wait(&l->changed, &l->lock);
	pthread_mutex_unlock(&l->lock);
	if (atomic_load(&l->complete))
		return 0;
	return atomic_load(&l->damaged) ? err_set(err, -EIO, "ram: damaged, it cannot be read")
					: err_set(err, -ECANCELED, "ram: no longer being read");
}

void ram_lazy_cancel(struct ram_lazy *l)
{
	if (!l)
		return;
	atomic_store(&l->stop, true);
	if (l->begun) {
		wake_server(l);
		tell_waiting(l);
	}
}

void ram_lazy_stop(struct ram_lazy *l)
{
	if (!l)
		return;
	ram_lazy_cancel(l);
	if (l->begun) {
		if (l->c.fillers)
			workers_wait(l->c.fillers);
		workers_wait(l->c.server);
		if (!atomic_load(&l->complete))
			mem_uffd_end(l->c.mem, l->c.uffd);
	}
	fd_close(l->c.uffd);
	fd_close(l->c.order_in);
	fd_close(l->c.order_out);
	fd_close(l->wake_fd);
	for (unsigned i = 0; i < l->nreaders; i++) {
		ram_scratch_finish(&l->scratch[i]);
		free(l->chunk[i]);
	}
	pthread_cond_destroy(&l->changed);
	pthread_mutex_destroy(&l->lock);
	ram_image_close(l->c.image);
	free(l->order);
	free((void *)l->state);
	free(l->asked);
	free(l);
}
