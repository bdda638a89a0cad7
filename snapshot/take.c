/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a snapshot: see snapshot.h for the phases.
 *
 * Rounds: the first copies everything (full) or what the logs hold (diff); each further one what was written during the one
 * before. They end when little is left, when a round did not make it less, or after ROUNDS_MAX; with ANNOUNCE there is one
 * more after READY. The guest's file systems may be frozen by then, so that one is the last.
 *
 * Dirty logs: a full snapshot of a VM whose logs are off switches them on before it copies. What is taken from the
 * logs goes into `since` too, so that a snapshot that fails in the middle loses nothing for the next diff. One that fails when
 * it was the first has no diff behind it: the logs are on, but there is nothing they are complete from. One without a name
 * (UNNAMED) leaves logs, `since` and last_id to the next diff as if it had not been.
 */
/* syscalls(worker): pwrite64 fdatasync */
/* syscalls(main): getrandom close */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "devices/virtio_blk.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "snapshot/ram_format.h"
#include "snapshot/snapshot.h"

enum {
	ROUNDS_MAX = 6,
	ROUND_ENOUGH = 512, /* pages that are copied in a millisecond or so */
	FDS_FIXED = 3,      /* state, ram, ram.index */
};

/* ---- lead ---- */

/* What is to be copied next. The first time in a diff that is everything since the snapshot before it, with what one that failed
 * in between took from the logs. */
static uint64_t collect(struct snapshots *s)
{
	struct snapshots_take *t = &s->take;
	uint64_t n = snapshots_collect(s, &t->err);

	if (n == UINT64_MAX || !(t->flags & CONTROL_SNAPSHOT_DIFF) || t->rounds > 0)
		return n;
	n = 0;
	for (size_t i = 0; i < s->nwords; i++) {
		s->dirty[i] = s->since[i];
		n += (uint64_t)__builtin_popcountll(s->dirty[i]);
	}
	return n;
}

static void precopy(void *opaque, unsigned i)
{
	struct snapshots *s = opaque;
	struct snapshots_take *t = &s->take;
	uint64_t left = UINT64_MAX;
	int r = 0;

	(void)i;
	if (t->flags & CONTROL_SNAPSHOT_DISKS) {
		t->status = 0;
		return;
	}
	if (s->lazy)
		r = ram_lazy_complete(s->lazy, &t->err);
	if (r == 0 && !(t->flags & CONTROL_SNAPSHOT_DIFF) && t->rounds == 0) {
		memset(s->dirty, 0xff, s->nwords * sizeof(*s->dirty));
		r = ram_writer_put(t->writer, &s->workers, s->dirty, &t->err);
		t->rounds++;
	}
	while (r == 0 && t->was_running && t->rounds < t->rounds_max) {
		uint64_t n = collect(s);

		if (n == UINT64_MAX) {
			r = -EIO;
			break;
		}
		if (n > 0)
			r = ram_writer_put(t->writer, &s->workers, s->dirty, &t->err);
		t->rounds++;
		if (n <= ROUND_ENOUGH || n >= left)
			break;
		left = n;
	}
	t->status = r;
}

static void final(void *opaque, unsigned i)
{
	struct snapshots *s = opaque;
	struct snapshots_take *t = &s->take;

	(void)i;
	if (t->flags & CONTROL_SNAPSHOT_DISKS)
		return;
	t->status = ram_writer_put(t->writer, &s->workers, s->dirty, &t->err);
}

static void finish(void *opaque, unsigned i)
{
	struct snapshots *s = opaque;
	struct snapshots_take *t = &s->take;
	bool memory = !(t->flags & CONTROL_SNAPSHOT_DISKS);
	int r = 0;

	(void)i;
	if (memory)
		r = ram_writer_finish(t->writer, &t->stats, &t->err);
	if (memory && r == 0) {
		state_file_finish(&t->state, &t->id);
		r = fd_pwrite_full(t->state_fd, t->state.buf, t->state.len, 0);
		if (r < 0)
			err_errno(&t->err, r, "write the snapshot's state");
	}
	for (uint32_t d = 0; d < t->ndisks && r == 0; d++)
		r = block_sealing_finish(t->sealing[d], &t->err);
	t->status = r;
}

/* ---- main ---- */

static void id_values(const struct ram_id *id, uint64_t *ret)
{
	ret[0] = le64_load(id->b);
	ret[1] = le64_load(id->b + 8);
}

static void answer(struct snapshots *s, int status)
{
	struct snapshots_take *t = &s->take;
	uint64_t v[CONTROL_NVALUES] = { 0 };

	if (status == 0) {
		id_values(&t->id, v + CONTROL_SV_ID_LOW);
		id_values(&t->parent, v + CONTROL_SV_PARENT_LOW);
		v[CONTROL_SV_PAUSE_NS] = t->pause_ns;
		v[CONTROL_SV_TOTAL_NS] = loop_now_ns() - t->start_ns;
		v[CONTROL_SV_ROUNDS] = t->rounds;
		v[CONTROL_SV_PAGES] = t->stats.pages;
		v[CONTROL_SV_RAM_BYTES] = t->stats.bytes;
		v[CONTROL_SV_FINAL_PAGES] = t->final_pages;
	}
	snapshots_take_free(t);
	atomic_store(&s->phase, SNAPSHOT_IDLE);
	control_complete(s->control, status, v, ARRAY_SIZE(v), status < 0 ? t->err.text : t->left_out);
}

static int resume_if_ran(struct snapshots *s, struct err *err)
{
	if (!s->take.was_running || s->take.flags & CONTROL_SNAPSHOT_STOP || s->vm->state != VM_PAUSED)
		return 0;
	return vm_set_state(s->vm, VM_RUNNING, err);
}

/* The VM goes on, whatever failed. */
static void fail(struct snapshots *s)
{
	struct err err = ERR_INIT;

	s->take.flags &= ~(uint32_t)CONTROL_SNAPSHOT_STOP;
	if (resume_if_ran(s, &err) < 0)
		vm_request_stop(s->vm, VM_STOP_ERROR, "the VM cannot go on after a failed snapshot: %s", err.text);
	answer(s, s->take.status);
}

static void done(struct snapshots *s)
{
	struct snapshots_take *t = &s->take;
	bool stop = t->flags & CONTROL_SNAPSHOT_STOP;

	bool unnamed = t->flags & CONTROL_SNAPSHOT_UNNAMED;

	if (t->flags & CONTROL_SNAPSHOT_DISKS) {
		answer(s, 0);
		return;
	}

	/* The next diff begins at the cut: what was written after it is in the logs. */
	if (!unnamed) {
		memset(s->since, 0, s->nwords * sizeof(*s->since));
		s->last_id = t->id;
	}
	if (unnamed ? !t->was_tracking : !(t->flags & CONTROL_SNAPSHOT_TRACK)) {
		mem_kvm_log(&s->vm->mem, false, NULL);
		mem_dirty_stop(&s->vm->mem);
		s->tracking = false;
	}
	answer(s, 0);
	if (stop)
		vm_request_stop(s->vm, VM_STOP_SAVED, "ended by the snapshot that was taken");
}

static int seal_disks(struct snapshots *s)
{
	struct snapshots_take *t = &s->take;
	int r = 0;

	for (uint32_t d = 0; d < t->ndisks && r == 0; d++) {
		struct device *dev = t->disk[d];

		device_lock(dev);
		r = block_layers_seal(virtio_blk_block(dev), t->top_data[d], t->top_index[d], &t->sealing[d], &t->err);
		device_unlock(dev);
		if (r < 0)
			err_prefix(&t->err, "%s: ", dev->name);
		else
			t->top_data[d] = t->top_index[d] = -1;
	}
	return r;
}

/* Everything that must be of one moment. */
static int cut(struct snapshots *s)
{
	struct snapshots_take *t = &s->take;
	uint64_t n;
	int r = 0;

	t->pause_start_ns = loop_now_ns();
	if (s->vm->state == VM_RUNNING)
		r = vm_set_state(s->vm, VM_PAUSED, &t->err);
	if (r < 0)
		return r;
	if (t->flags & CONTROL_SNAPSHOT_DISKS)
		return seal_disks(s);
	n = collect(s);
	if (n == UINT64_MAX)
		return -EIO;
	t->final_pages = n;
	machine_left_out(s->machine, t->left_out, sizeof(t->left_out));
	r = machine_save(s->machine, &t->state, &t->err);
	return r < 0 ? r : seal_disks(s);
}

static void begin_phase(struct snapshots *s, enum snapshot_phase phase, workers_fn *fn)
{
	atomic_store(&s->phase, phase);
	workers_begin(&s->lead, fn, s);
}

static void fail_with(struct snapshots *s, int status, const char *text)
{
	s->take.status = err_set(&s->take.err, status, "%s", text);
	fail(s);
}

static void on_cut_wait(struct loop_timer *timer)
{
	fail_with(container_of(timer, struct snapshots, cut_wait), -ETIMEDOUT,
		  "the command did not say in time when to stop the guest; the VM goes on");
}

static void announce(struct snapshots *s)
{
	s->take.announced = true;
	atomic_store(&s->phase, SNAPSHOT_READY);
	loop_timer_set(&s->vm->loop, &s->cut_wait, loop_now_ns() + s->take.cut_wait_ms * 1000000, on_cut_wait);
	if (control_stage(s->control, CONTROL_STAGE_READY) < 0)
		snapshots_take_answered(s, false);
}

void snapshots_take_answered(void *opaque, bool yes)
{
	struct snapshots *s = opaque;

	if (atomic_load(&s->phase) != SNAPSHOT_READY)
		return;
	loop_timer_cancel(&s->vm->loop, &s->cut_wait);
	if (!yes) {
		fail_with(s, -ECANCELED, "the command that asked for the snapshot is gone");
		return;
	}
	s->take.rounds_max = s->take.rounds + 1;
	begin_phase(s, SNAPSHOT_PRECOPY, precopy);
}

void snapshots_take_step(struct snapshots *s)
{
	struct snapshots_take *t = &s->take;

	if (t->status < 0) {
		fail(s);
		return;
	}
	switch ((enum snapshot_phase)atomic_load(&s->phase)) {
	case SNAPSHOT_PRECOPY:
		if (t->flags & CONTROL_SNAPSHOT_ANNOUNCE && !t->announced) {
			announce(s);
			break;
		}
		t->status = cut(s);
		if (t->status < 0)
			fail(s);
		else
			begin_phase(s, SNAPSHOT_FINAL, final);
		break;
	case SNAPSHOT_FINAL:
		t->status = resume_if_ran(s, &t->err);
		t->pause_ns = loop_now_ns() - t->pause_start_ns;
		if (t->status < 0) {
			fail(s);
			break;
		}
		if (t->flags & CONTROL_SNAPSHOT_ANNOUNCE)
			control_stage(s->control, CONTROL_STAGE_CUT);
		begin_phase(s, SNAPSHOT_FINISH, finish);
		break;
	case SNAPSHOT_FINISH:
		done(s);
		break;
	case SNAPSHOT_IDLE:
	case SNAPSHOT_READY:
	case SNAPSHOT_LOADING:
		break;
	}
}

/* Which disks go into a snapshot: those of layers that can be written. Others must be read-only. For a cut of disks alone, those
 * whose bits are in `mask`. */
static int find_disks(struct snapshots *s, uint64_t mask, struct err *err)
{
	struct snapshots_take *t = &s->take;
	unsigned number = 0;

	for (size_t i = 0; i < s->machine->ndevices; i++) {
		struct device *d = s->machine->device[i];
		const struct block *b = virtio_blk_block(d);

		if (!b)
			continue;
		bool wanted = number < 64 && mask >> number & 1;

		number++;
		if (b->ro || !wanted)
			continue;
		if (!block_is_layers(b))
			return err_set(err, -ENOTSUP, "%s is written in place and cannot be part of a snapshot", d->name);
		if (t->ndisks == CONTROL_DISKS_MAX)
			return err_set(err, -ENOSPC, "more than %d disks", CONTROL_DISKS_MAX);
		t->disk[t->ndisks++] = d;
	}
	return 0;
}

static size_t fds_fixed(const struct snapshots_take *t)
{
	return t->flags & CONTROL_SNAPSHOT_DISKS ? 0 : FDS_FIXED;
}

static int check_request(struct snapshots *s, const uint64_t arg[4], size_t nfds, struct err *err)
{
	struct snapshots_take *t = &s->take;
	const uint64_t known = CONTROL_SNAPSHOT_DIFF | CONTROL_SNAPSHOT_STOP | CONTROL_SNAPSHOT_TRACK |
			       CONTROL_SNAPSHOT_ANNOUNCE | CONTROL_SNAPSHOT_UNNAMED | CONTROL_SNAPSHOT_DISKS;
	bool disks = arg[0] & CONTROL_SNAPSHOT_DISKS;
	int r;

	if (s->vm->state != VM_RUNNING && s->vm->state != VM_PAUSED)
		return err_set(err, -EINVAL, "a %s VM has nothing to save", vm_state_name(s->vm->state));
	if (disks && arg[0] & ~(uint64_t)(CONTROL_SNAPSHOT_DISKS | CONTROL_SNAPSHOT_ANNOUNCE))
		return err_set(err, -EINVAL, "snapshot: flags 0x%llx are not for a cut of disks", (unsigned long long)arg[0]);
	if (arg[0] & ~known || (!disks && arg[1] > RAM_LEVEL_MAX))
		return err_set(err, -EINVAL, "snapshot: unknown flags 0x%llx or level %llu", (unsigned long long)arg[0],
			       (unsigned long long)arg[1]);
	if (arg[3] > CONTROL_CUT_WAIT_MS)
		return err_set(err, -EINVAL, "snapshot: %llu ms are too long to wait for the cut, %d is the most",
			       (unsigned long long)arg[3], CONTROL_CUT_WAIT_MS);
	if (arg[0] & CONTROL_SNAPSHOT_DIFF && (!s->tracking || ram_id_is_none(&s->last_id)))
		return err_set(err, -EINVAL, "snapshot: there is none before it that a diff could follow: take a full one first");
	r = find_disks(s, disks ? arg[1] : UINT64_MAX, err);
	if (r < 0)
		return r;
	if (disks && t->ndisks == 0)
		return err_set(err, -EINVAL, "snapshot: there are no disks 0x%llx that can be written", (unsigned long long)arg[1]);
	if (arg[2] != t->ndisks || nfds != fds_fixed(t) + 2 * (size_t)t->ndisks)
		return err_set(err, -EINVAL, "snapshot: %zu descriptors for %llu disks, this VM has %u that can be written", nfds,
			       (unsigned long long)arg[2], t->ndisks);
	return 0;
}

static int take_descriptors(struct snapshots_take *t, int *fds)
{
	int *top = fds + fds_fixed(t);

	if (fds_fixed(t)) {
		t->state_fd = TAKE_FD(fds[0]);
		t->data_fd = TAKE_FD(fds[1]);
		t->index_fd = TAKE_FD(fds[2]);
	}
	for (uint32_t d = 0; d < t->ndisks; d++) {
		t->top_data[d] = TAKE_FD(top[2 * d]);
		t->top_index[d] = TAKE_FD(top[2 * d + 1]);
	}
	return 0;
}

int snapshots_take_hook(void *opaque, const uint64_t arg[4], int *fds, size_t nfds, struct err *err)
{
	struct snapshots *s = opaque;
	struct snapshots_take *t = &s->take;
	int r;

	*t = (struct snapshots_take){ .flags = (uint32_t)arg[0], .was_running = s->vm->state == VM_RUNNING,
				     .was_tracking = s->tracking, .rounds_max = ROUNDS_MAX, .err = ERR_INIT,
				     .cut_wait_ms = arg[3] ? arg[3] : CONTROL_CUT_WAIT_MS,
				     .start_ns = loop_now_ns(), .state_fd = -1, .data_fd = -1, .index_fd = -1 };
	r = check_request(s, arg, nfds, err);
	if (r < 0)
		return r;
	if (t->flags & CONTROL_SNAPSHOT_DISKS) {
		take_descriptors(t, fds);
		begin_phase(s, SNAPSHOT_PRECOPY, precopy);
		return 1;
	}
	if (getrandom(t->id.b, sizeof(t->id.b), 0) != sizeof(t->id.b))
		return err_errno(err, -EIO, "getrandom");
	if (t->flags & CONTROL_SNAPSHOT_DIFF)
		t->parent = s->last_id;
	if (!s->tracking) {
		r = snapshots_track(s, err);
		if (r < 0)
			return r;
	}
	take_descriptors(t, fds);
	struct ram_writer_config c = { .mem = &s->vm->mem, .data_fd = t->data_fd, .index_fd = t->index_fd, .level = (int)arg[1],
				       .id = t->id, .parent = t->parent };

	r = ram_writer_new(&c, &t->writer, err);
	if (r < 0) {
		snapshots_take_free(t);
		return r;
	}
	begin_phase(s, SNAPSHOT_PRECOPY, precopy);
	return 1;
}
