/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The io_uring engine.
 *
 * io_uring carries out operations that the system call filters never see. So the ring is made disabled, restricted,
 * then enabled: only reads, writes, syncs and fallocate, and only on the files registered before; nothing can be
 * registered any more, except, where places were left empty, files for places. A monitor that was taken over can do no more with the ring than it could with the files.
 *
 * How it works: requests wait in a list; kick turns each into a submission entry and makes one system call. What the
 * page cache had is complete when it returns and is finished at once, with the completion event switched off meanwhile.
 * The rest signals event_fd. A request has one operation in flight at a time, so that requests bound the completion
 * ring, which therefore cannot overflow.
 *
 * When the kernel will not take entries (out of memory for the moment), event_fd is signalled so that the main loop
 * comes back. Threads: as block.h. Trust: completions come from the kernel; user_data are our own pointers.
 */
/* syscalls(main): io_uring_enter io_uring_register(1=IORING_REGISTER_FILES_UPDATE) read write */
/* syscalls(vcpu): io_uring_enter write */
#include "devices/backend/block_uring.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

enum { SQ_ENTRIES = 128, REAP_BATCH = 32 };

static struct block_uring *uring_of(struct block_io *io)
{
	return container_of(io, struct block_uring, io);
}

static void append(struct block_uring *u, struct block_request *r)
{
	r->next = NULL;
	if (u->head)
		u->tail->next = r;
	else
		u->head = r;
	u->tail = r;
}

static void uring_submit(struct block_io *io, struct block_request *r)
{
	block_io_begin(r);
	io->inflight++;
	append(uring_of(io), r);
}

static void prepare(struct io_uring_sqe *sqe, struct block_request *r)
{
	struct block_step s;

	block_io_step(r, &s);
	switch (s.kind) {
	case BLOCK_STEP_READ:
		if (s.niov == 1)
			io_uring_prep_read(sqe, r->file, s.iov->iov_base, (unsigned)s.iov->iov_len, s.off);
		else
			io_uring_prep_readv(sqe, r->file, s.iov, (unsigned)s.niov, s.off);
		break;
	case BLOCK_STEP_WRITE:
		if (s.niov == 1)
			io_uring_prep_write(sqe, r->file, s.iov->iov_base, (unsigned)s.iov->iov_len, s.off);
		else
			io_uring_prep_writev(sqe, r->file, s.iov, (unsigned)s.niov, s.off);
		sqe->rw_flags = s.mode;
		break;
	case BLOCK_STEP_SYNC:
		io_uring_prep_fsync(sqe, r->file, IORING_FSYNC_DATASYNC);
		break;
	case BLOCK_STEP_ALLOCATE:
		io_uring_prep_fallocate(sqe, r->file, s.mode, (off_t)s.off, (off_t)s.len);
		break;
	}
	io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, r);
}

/* Move waiting requests into the ring as far as it goes, and start them. wait: until something is complete. */
static void enter(struct block_uring *u, bool wait)
{
	for (;;) {
		struct io_uring_sqe *sqe;
		int r;

		while (u->head && (sqe = io_uring_get_sqe(&u->ring))) {
			struct block_request *req = u->head;

			u->head = req->next;
			prepare(sqe, req);
		}
		if (!wait && io_uring_sq_ready(&u->ring) == 0)
			return;
		r = io_uring_submit_and_wait(&u->ring, wait && !u->head);
		if (r == -EINTR)
			continue;
		if (r < 0) {
			eventfd_write(u->io.event_fd, 1);
			return;
		}
		if (!u->head)
			return;
	}
}

/* Finish what is complete. Returns how many completions there were. */
static unsigned reap(struct block_uring *u)
{
	struct io_uring_cqe *cqe[REAP_BATCH];
	unsigned total = 0, n;

	while ((n = io_uring_peek_batch_cqe(&u->ring, cqe, REAP_BATCH)) > 0) {
		struct { struct block_request *r; int res; } got[REAP_BATCH];

		for (unsigned i = 0; i < n; i++) {
			got[i].r = io_uring_cqe_get_data(cqe[i]);
			got[i].res = cqe[i]->res;
		}
		io_uring_cq_advance(&u->ring, n);
		for (unsigned i = 0; i < n; i++) {
			if (!block_io_took(got[i].r, got[i].res)) {
				append(u, got[i].r);
				continue;
			}
			u->io.inflight--;
			got[i].r->done(got[i].r, got[i].r->result);
		}
		total += n;
	}
	return total;
}

static void uring_kick(struct block_io *io)
{
	struct block_uring *u = uring_of(io);

	if (io->inflight == 0)
		return;
	io_uring_cq_eventfd_toggle(&u->ring, false);
	do
		enter(u, false);
	while (reap(u) && u->head);
	io_uring_cq_eventfd_toggle(&u->ring, true);
	/* One that completed between the last look and the switch signalled nothing. */
	if (io_uring_cq_ready(&u->ring))
		eventfd_write(io->event_fd, 1);
}

static void uring_complete(struct block_io *io)
{
	eventfd_t v;

	eventfd_read(io->event_fd, &v);
	reap(uring_of(io));
	uring_kick(io);
}

static void uring_drain(struct block_io *io)
{
	struct block_uring *u = uring_of(io);

	while (io->inflight) {
		if (!reap(u))
			enter(u, true);
	}
}

static int uring_set_file(struct block_io *io, unsigned index, int fd)
{
	struct io_uring_files_update up = { .offset = index, .fds = (uint64_t)(uintptr_t)&fd };

	if (syscall(SYS_io_uring_register, uring_of(io)->ring.ring_fd, IORING_REGISTER_FILES_UPDATE, &up, 1) < 0)
		return -errno;
	return 0;
}

static void uring_close(struct block_io *io)
{
	struct block_uring *u = uring_of(io);

	if (u->ring.ring_fd >= 0)
		io_uring_queue_exit(&u->ring);
	free(u);
}

static const struct block_io_ops uring_ops = {
	.submit = uring_submit,
	.kick = uring_kick,
	.complete = uring_complete,
	.drain = uring_drain,
	.set_file = uring_set_file,
	.close = uring_close,
};

static int restrict_ring(int fd, bool may_update)
{
	struct io_uring_restriction res[] = {
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READ },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_READV },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITE },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_WRITEV },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_FSYNC },
		{ .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_FALLOCATE },
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_FIXED_FILE },
		{ .opcode = IORING_RESTRICTION_SQE_FLAGS_REQUIRED, .sqe_flags = IOSQE_FIXED_FILE },
		{ .opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_FILES_UPDATE }, /* the last */
	};

	/* By system call: liburing 2.3's shared library lacks the two wrappers. */
	if (syscall(SYS_io_uring_register, fd, IORING_REGISTER_RESTRICTIONS, res, ARRAY_SIZE(res) - !may_update) < 0)
		return -errno;
	return 0;
}

int block_uring_open(const int *files, int nfiles, int event_fd, uint32_t depth, struct block_io **ret, struct err *err)
{
	struct io_uring_params p = {
		.flags = IORING_SETUP_R_DISABLED | IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
		.cq_entries = MAX(depth, (uint32_t)SQ_ENTRIES),
	};
	struct block_uring *u = calloc(1, sizeof(*u));
	bool empty_places = false;
	int r;

	if (!u)
		return err_errno(err, -ENOMEM, "io_uring");
	u->io.ops = &uring_ops;
	u->io.event_fd = event_fd;
	r = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &p);
	if (r < 0) {
		free(u);
		return err_errno(err, r, "io_uring_setup");
	}
	for (int i = 0; i < nfiles; i++)
		empty_places |= files[i] < 0;
	r = io_uring_register_files(&u->ring, files, (unsigned)nfiles);
	if (r >= 0)
		r = io_uring_register_eventfd(&u->ring, event_fd);
	if (r >= 0)
		r = restrict_ring(u->ring.ring_fd, empty_places);
	if (r >= 0 && syscall(SYS_io_uring_register, u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) < 0)
		r = -errno;
	if (r < 0) {
		uring_close(&u->io);
		return err_errno(err, r, "io_uring_register");
	}
	*ret = &u->io;
	return 0;
}
