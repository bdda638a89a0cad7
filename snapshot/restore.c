/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's start from a snapshot: see snapshot.h.
 *
 * The machine was made empty (coffer-vmm --restore): vCPUs that never ran, memory that nobody touched but for what devices
 * write when they are reset, disks without layers. RESTORE checks everything it can before it changes anything; when it
 * fails later the machine is of no more use, and the monitor ends.
 *
 * Memory first, since loading a device may write to it. Mapping one file is done at once; filling memory, or what diffs changed
 * of a mapped one, is the lead's work, which the end of the VM cuts short; a lazy start returns when the pages can arrive.
 */
/* syscalls(main): close */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "devices/ged.h"
#include "devices/virtio_blk.h"
#include "devices/virtio_vsock.h"
#include "devices/vmgenid.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/snapshot.h"

int snapshots_attach_hook(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err)
{
	struct snapshots *s = opaque;
	bool base = arg[2] & 1, top = arg[3] & 1;
	struct block_stack stack = { .base_fd = -1, .top_data_fd = -1, .top_index_fd = -1 };
	struct device *d;
	char name[24];
	size_t at = 0;
	int r;

	if (s->vm->state != VM_CONFIGURED || !s->restorable)
		return err_set(err, -EINVAL, "a disk's layers are attached before a restore, this VM is %s", vm_state_name(s->vm->state));
	snprintf(name, sizeof(name), "blk%llu", (unsigned long long)arg[0]);
	d = machine_find(s->machine, name);
	if (!d || !virtio_blk_block(d))
		return err_set(err, -ENODEV, "there is no disk %llu", (unsigned long long)arg[0]);
	if (arg[2] > 1 || arg[3] > 1 || nfds != base + arg[1] + 2 * (uint64_t)top || arg[1] > nfds)
		return err_set(err, -EINVAL, "%s: %zu descriptors for %llu layers", name, nfds, (unsigned long long)arg[1]);
	if (base)
		stack.base_fd = fds[at++];
	stack.layer_fd = fds + at;
	stack.nlayers = (int)arg[1];
	at += arg[1];
	if (top) {
		stack.top_data_fd = fds[at];
		stack.top_index_fd = fds[at + 1];
	}
	r = virtio_blk_attach(d, &stack, err);
	if (r == 0)
		for (size_t i = 0; i < nfds; i++)
			fds[i] = -1; /* the disk's now */
	return r;
}

/* What devices wrote when they were reset: memory is to be as if nobody had touched it. */
static int forget_memory(struct mem *m, struct err *err)
{
	for (uint64_t page = 0, run; page < mem_pages(m); page += run) {
		gpa_t at = mem_page_gpa(m, page, &run);
		int r = mem_discard(m, at, run << MEM_PAGE_SHIFT);

		if (r < 0)
			return err_errno(err, r, "memory");
	}
	return 0;
}

static int renew_generation(struct machine *m, struct err *err)
{
	struct device *gen = machine_find(m, "vmgenid0"), *ged = machine_find(m, "ged0");
	int r = 0;

	if (!gen || !ged)
		return 0;
	device_lock(gen);
	r = vmgenid_renew(gen);
	if (r == 0) {
		device_lock(ged);
		ged_notify(ged, GED_EVENT_VMGENID);
		device_unlock(ged);
	}
	device_unlock(gen);
	return r < 0 ? err_errno(err, r, "generation id") : 0;
}

/* Memory is there, or arrives. */
static int go_on(struct snapshots *s, struct state_file *f, struct err *err)
{
	int r = 0;

	/* Devices may write to memory while they load. */
	if (s->load_flags & CONTROL_RESTORE_TRACK)
		r = snapshots_track(s, err);
	if (r == 0)
		r = machine_load(s->machine, f, err);
	if (r == 0)
		r = vm_set_state(s->vm, VM_PAUSED, err);
	if (r == 0)
		r = renew_generation(s->machine, err);
	if (r == 0 && !(s->load_flags & CONTROL_RESTORE_PAUSED))
		r = vm_set_state(s->vm, VM_RUNNING, err);
	s->last_id = f->id;
	return r;
}

/* A machine that was half filled is no machine. */
static void give_up(struct snapshots *s, const struct err *why)
{
	vm_request_stop(s->vm, VM_STOP_ERROR, "restore: %s", why->text);
}

void snapshots_on_loaded(struct snapshots *s)
{
	struct snapshots_take *t = &s->take;
	int r = t->status;

	ram_image_close(s->loading);
	s->loading = NULL;
	snapshots_close_chain(s);
	if (r == 0)
		r = go_on(s, &s->loading_state, &t->err);
	state_file_close(&s->loading_state);
	atomic_store(&s->phase, SNAPSHOT_IDLE);
	control_complete(s->control, r, NULL, 0, r < 0 ? t->err.text : NULL);
	if (r < 0)
		give_up(s, &t->err);
}

static void fill_memory(void *opaque, unsigned i)
{
	struct snapshots *s = opaque;

	(void)i;
	s->take.status = (s->loading_map ? ram_image_map : ram_image_load)(s->loading, &s->vm->mem, &s->workers, &s->take.err);
}

/* A frame is damaged. Whoever waits for it, a vCPU or main itself, can neither be served nor be woken: the process ends here. Any
 * thread. */
static void on_damage(void *opaque, const char *text)
{
	struct snapshots *s = opaque;

	vm_request_stop(s->vm, VM_STOP_ERROR, "memory of the snapshot: %s", text);
	s->fatal(s->fatal_arg);
}

struct request {
	int state_fd;
	struct ram_source chain[RAM_CHAIN_MAX];
	unsigned n;
	enum control_restore_mode mode;
	int *order_in, *order_out; /* NULL: none */
};

static int read_request(const uint64_t arg[4], int *fds, size_t nfds, struct request *ret, struct err *err)
{
	const uint64_t known = CONTROL_RESTORE_PAUSED | CONTROL_RESTORE_TRACK | CONTROL_RESTORE_ORDER_IN | CONTROL_RESTORE_ORDER_OUT;
	bool in = arg[3] & CONTROL_RESTORE_ORDER_IN, out = arg[3] & CONTROL_RESTORE_ORDER_OUT;
	size_t at = 1;

	if (arg[0] > CONTROL_RESTORE_LAZY || arg[3] & ~known)
		return err_set(err, -EINVAL, "restore: unknown mode %llu or flags 0x%llx", (unsigned long long)arg[0],
			       (unsigned long long)arg[3]);
	if (arg[1] < 1 || arg[1] > RAM_CHAIN_MAX)
		return err_set(err, -EINVAL, "restore: a chain of %llu snapshots: 1 to %d are possible, flatten it",
			       (unsigned long long)arg[1], RAM_CHAIN_MAX);
	if (nfds != 1 + 2 * arg[1] + in + out)
		return err_set(err, -EINVAL, "restore: %zu descriptors for a chain of %llu", nfds, (unsigned long long)arg[1]);
	*ret = (struct request){ .state_fd = fds[0], .n = (unsigned)arg[1], .mode = (enum control_restore_mode)arg[0] };
	for (unsigned i = 0; i < ret->n; i++, at += 2)
		ret->chain[i] = (struct ram_source){ .data_fd = fds[at], .index_fd = fds[at + 1] };
	if (in)
		ret->order_in = &fds[at++];
	if (out)
		ret->order_out = &fds[at];
	return 0;
}

/* The lead's, while main serves requests: one may be to end. */
static int begin_filling(struct snapshots *s, struct ram_image *image, struct state_file *f, bool map)
{
	s->loading_state = *f;
	*f = (struct state_file){ 0 };
	s->loading = image;
	s->loading_map = map;
	s->take = (struct snapshots_take){ .err = ERR_INIT };
	atomic_store(&s->phase, SNAPSHOT_LOADING);
	workers_begin(&s->lead, fill_memory, s);
	return 1;
}

/* Everything is checked, and the machine is as it was made. */
static int fill(struct snapshots *s, struct request *q, struct ram_image *image, struct state_file *f, struct err *err)
{
	struct mem *m = &s->vm->mem;
	int r = 0;

	switch (q->mode) {
	case CONTROL_RESTORE_MAP:
		if (q->n > 1)
			return begin_filling(s, image, f, true);
		r = ram_image_map(image, m, &s->workers, err);
		ram_image_close(image);
		snapshots_close_chain(s);
		return r < 0 ? r : go_on(s, f, err);
	case CONTROL_RESTORE_EAGER:
		return begin_filling(s, image, f, false);
	case CONTROL_RESTORE_LAZY:
		break;
	}
	struct ram_lazy_config c = {
		.image = image, .mem = m, .server = &s->server, .fillers = &s->workers, .uffd = TAKE_FD(s->uffd),
		.order_in = q->order_in ? TAKE_FD(*q->order_in) : -1, .order_out = q->order_out ? TAKE_FD(*q->order_out) : -1,
		.on_damage = on_damage, .arg = s,
	};

	r = ram_lazy_start(&c, &s->lazy, err);
	return r < 0 ? r : go_on(s, f, err);
}

/* The image reads through them as long as it lives. */
static void keep_chain(struct snapshots *s, int *fds, const struct request *q)
{
	for (unsigned i = 0; i < 2 * q->n; i++)
		s->chain_fd[i] = TAKE_FD(fds[1 + i]);
	s->nchain = 2 * q->n;
}

static int set_cid(struct machine *m, uint64_t cid, struct err *err)
{
	struct device *d = machine_find(m, "vsock0");

	return d ? virtio_vsock_set_cid(d, cid, err) : err_set(err, -ENODEV, "restore: a CID for a machine without vsock");
}

int snapshots_load_hook(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err)
{
	struct snapshots *s = opaque;
	struct ram_image *image = NULL;
	struct state_file f = { 0 };
	struct request q = { 0 };
	struct ram_id id;
	int r;

	if (!s->restorable || s->vm->state != VM_CONFIGURED)
		return err_set(err, -EINVAL, "this machine is not one that waits for a restore");
	r = read_request(arg, fds, nfds, &q, err);
	if (r < 0)
		return r;
	if (q.mode == CONTROL_RESTORE_LAZY && s->uffd < 0)
		return err_set(err, -ENOTSUP, "lazy restore: %s", s->uffd_err.text);
	r = state_file_open(&f, q.state_fd, machine_state_max(s->machine), err);
	if (r == 0)
		r = machine_load_check(s->machine, &f, err);
	if (r == 0)
		r = ram_image_open(q.chain, q.n, s->vm->mem.size, &image, err);
	if (r == 0) {
		id = ram_image_id(image);
		if (memcmp(id.b, f.id.b, RAM_ID_SIZE) != 0)
			r = err_set(err, -EINVAL, "state and ram.index are of two different snapshots");
	}
	if (r < 0) {
		ram_image_close(image);
		state_file_close(&f);
		return r;
	}
	s->load_flags = arg[3];
	keep_chain(s, fds, &q);
	r = arg[2] ? set_cid(s->machine, arg[2], err) : 0;
	if (r == 0)
		r = forget_memory(&s->vm->mem, err);
	if (r == 0)
		r = fill(s, &q, image, &f, err);
	else
		ram_image_close(image);
	state_file_close(&f);
	if (r < 0)
		give_up(s, err);
	return r;
}
