/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, logs and hooks of snapshots: see snapshot.h. */
/* syscalls(main): read */
#include "snapshot/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "devices/backend/block.h"
#include "lib/fd.h"
#include "lib/util.h"

static bool is_busy(void *opaque)
{
	struct snapshots *s = opaque;

	return atomic_load(&s->phase) != SNAPSHOT_IDLE;
}

static void on_lead_done(struct loop_fd *w, uint32_t events)
{
	struct snapshots *s = container_of(w, struct snapshots, lead_done);

	(void)events;
	workers_wait(&s->lead); /* it has returned: this empties the descriptor */
	switch ((enum snapshot_phase)atomic_load(&s->phase)) {
	case SNAPSHOT_IDLE:
	case SNAPSHOT_READY:
		break;
	case SNAPSHOT_PRECOPY:
	case SNAPSHOT_FINAL:
	case SNAPSHOT_FINISH:
		snapshots_take_step(s);
		break;
	case SNAPSHOT_LOADING:
		snapshots_on_loaded(s);
		break;
	}
}

void snapshots_init(struct snapshots *s, struct vm *vm, struct machine *m, struct control *c, bool restorable)
{
	memset(s, 0, sizeof(*s));
	s->vm = vm;
	s->machine = m;
	s->control = c;
	s->restorable = restorable;
	s->uffd = -1;
	s->lead.done_fd = s->workers.done_fd = s->server.done_fd = -1;
	s->lead_done.fd = -1;
	s->nwords = (size_t)((mem_pages(&vm->mem) + 63) / 64);
	if (restorable)
		s->uffd = ram_lazy_open_uffd(&s->uffd_err);
}

int snapshots_start(struct snapshots *s, struct err *err)
{
	int r = workers_start(&s->lead, s->vm, 1, "snap", err);

	if (r == 0)
		r = workers_start(&s->workers, s->vm, workers_default(), "work", err);
	if (r == 0 && s->restorable)
		r = workers_start(&s->server, s->vm, 1, "page", err);
	/* They begin beside one another. */
	if (r == 0)
		r = workers_ready(&s->lead, err);
	if (r == 0)
		r = workers_ready(&s->workers, err);
	if (r == 0 && s->restorable)
		r = workers_ready(&s->server, err);
	if (r < 0)
		return r;
	r = loop_add(&s->vm->loop, &s->lead_done, s->lead.done_fd, EPOLLIN, on_lead_done);
	return r < 0 ? err_errno(err, r, "epoll") : 0;
}

void snapshots_hooks(struct snapshots *s, struct control_snapshot_hooks *ret)
{
	*ret = (struct control_snapshot_hooks){
		.snapshot = snapshots_take_hook,
		.disk_attach = snapshots_attach_hook,
		.restore = snapshots_load_hook,
		.answered = snapshots_take_answered,
		.busy = is_busy,
		.opaque = s,
	};
}

uint64_t snapshots_collect(struct snapshots *s, struct err *err)
{
	uint64_t n = 0;

	memset(s->dirty, 0, s->nwords * sizeof(*s->dirty));
	if (mem_dirty_collect(&s->vm->mem, s->dirty, err) < 0)
		return UINT64_MAX;
	for (size_t i = 0; i < s->nwords; i++) {
		s->since[i] |= s->dirty[i];
		n += (uint64_t)__builtin_popcountll(s->dirty[i]);
	}
	return n;
}

/* Zeros that nobody has touched, where they are made: with much memory they are large, and a restore waits for this. */
static int clear_bitmap(const struct snapshots *s, uint64_t **bitmap)
{
	if (*bitmap)
		memset(*bitmap, 0, s->nwords * sizeof(**bitmap));
	else
		*bitmap = calloc(s->nwords, sizeof(**bitmap));
	return *bitmap ? 0 : -ENOMEM;
}

/* What KVM's log may hold from before makes the next diff larger, not wrong: it is not read to be emptied. */
int snapshots_track(struct snapshots *s, struct err *err)
{
	int r = clear_bitmap(s, &s->since);

	if (r == 0 && !s->dirty)
		r = clear_bitmap(s, &s->dirty);
	if (r < 0)
		return err_errno(err, r, "dirty bitmaps");
	r = mem_dirty_start(&s->vm->mem, err);
	if (r == 0)
		r = mem_kvm_log(&s->vm->mem, true, err);
	if (r < 0)
		return r;
	s->last_id = (struct ram_id){ 0 }; /* `since` says nothing of what was before */
	s->tracking = true;
	return 0;
}

void snapshots_close_chain(struct snapshots *s)
{
	while (s->nchain > 0)
		fd_close(s->chain_fd[--s->nchain]);
}

void snapshots_take_free(struct snapshots_take *t)
{
	ram_writer_free(t->writer);
	t->writer = NULL;
	state_file_writer_free(&t->state);
	t->state_fd = fd_close(t->state_fd);
	t->data_fd = fd_close(t->data_fd);
	t->index_fd = fd_close(t->index_fd);
	for (uint32_t i = 0; i < t->ndisks; i++) {
		t->top_data[i] = fd_close(t->top_data[i]);
		t->top_index[i] = fd_close(t->top_index[i]);
		block_sealing_free(t->sealing[i]);
		t->sealing[i] = NULL;
	}
}

void snapshots_finish(struct snapshots *s)
{
	if (!s->vm)
		return;
	if (s->lead_done.added)
		loop_remove(&s->vm->loop, &s->lead_done);
	loop_timer_cancel(&s->vm->loop, &s->cut_wait);
	/* Nobody wants what lead is at any more. */
	ram_writer_cancel(s->take.writer);
	ram_lazy_cancel(s->lazy);
	ram_image_cancel(s->loading);
	workers_finish(&s->lead);
	ram_lazy_stop(s->lazy);
	workers_finish(&s->workers);
	workers_finish(&s->server);
	if (atomic_load(&s->phase) != SNAPSHOT_IDLE && atomic_load(&s->phase) != SNAPSHOT_LOADING)
		snapshots_take_free(&s->take);
	ram_image_close(s->loading);
	snapshots_close_chain(s);
	state_file_close(&s->loading_state);
	fd_close(s->uffd);
	free(s->dirty);
	free(s->since);
	memset(s, 0, sizeof(*s));
}
