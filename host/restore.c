/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a shell to a VM that takes commands: see restore.h.
 *
 * A guest that wakes up finds its connections gone and another address; the agent listens on any. So the first request
 * may meet the moment in which the guest drops its old connections: it is repeated until the agent has answered.
 */
#include "host/restore.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/file.h"
#include "host/signals.h"
#include "host/snapshot_record.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { RESTORE_MS = 30 * 60 * 1000, SETTLE_MS = 60000, SETTLE_TRY_MS = 3000, SETTLE_POLL_MS = 2 };

/* ---- name and files of the VM ---- */

static int write_config(struct launch *l, const struct restore_source *src, const struct restore_options *o,
			struct err *err)
{
	const struct snapshot_manifest *m = &src->snap.m;
	char display[VM_DISPLAY_TEXT];
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	vm_display_find(m->device, m->ndevices, display);
	struct vm_config c = { .created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, .cpus = m->cpus,
			       .memory = m->memory,
			       .image = m->image, .user = m->user, .cwd = m->cwd, .kernel = m->kernel,
			       .display = display, .command = (char *)(uintptr_t)(o->command ? o->command : ""), .keep = o->keep };

	return vmdir_write_config(&l->dir, &c, err);
}

/* What it is made of, for its own snapshots. */
static int write_record(struct launch *l, const struct restore_source *src, bool track, struct err *err)
{
	struct snapshot_manifest m;
	int r = snapshot_manifest_copy(&src->snap.m, &m);

	if (r < 0)
		return err_set(err, r, "out of memory");
	for (size_t i = 0; i < m.ndisks; i++) {
		for (size_t k = 0; k < m.disk[i].nlayers; k++)
			snapshot_layer_finish(&m.disk[i].layer[k]);
		free(m.disk[i].layer);
		free(m.disk[i].path);
		free(m.disk[i].image);
	}
	free(m.disk);
	m.disk = NULL;
	m.ndisks = 0;
	r = snapshot_record_set_disks(&m, &l->disks, err);
	snprintf(m.parent_id, sizeof(m.parent_id), "%s", track ? src->snap.m.id : "");
	free(m.parent_path);
	/* One without a name cannot be found again. */
	bool named = src->snap.name[0] != '.';

	if (!named)
		m.parent_id[0] = 0;
	m.parent_path = strdup(track && named ? src->snap.path : "");
	if (r == 0)
		r = m.parent_path ? snapshot_record_write(l->dir.fd, &m, err) : err_set(err, -ENOMEM, "out of memory");
	snapshot_manifest_finish(&m);
	return r;
}

static int take_strings(struct launch *l, const struct snapshot_manifest *m, struct err *err)
{
	struct {
		char **to;
		const char *from;
	} strings[] = { { &l->image.user, m->user }, { &l->image.cwd, m->cwd } };

	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		free(*strings[i].to);
		*strings[i].to = *strings[i].from ? strdup(strings[i].from) : NULL;
		if (*strings[i].from && !*strings[i].to)
			return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

/* ---- memory ---- */

/* Pages in the order in which the first lazy restore wanted them: used from the second on. Without a cache it is
 * slower. The flock goes to the monitor with the descriptor: one records at a time, and an empty file that nobody holds
 * is of one that died early. */
static void open_order(const char *id, int *ret_in, int *ret_out)
{
	char dir[PATH_MAX - 64], path[PATH_MAX];
	struct stat st;

	*ret_in = *ret_out = -1;
	if (file_cache_dir("order", dir, sizeof(dir), NULL) < 0)
		return;
	snprintf(path, sizeof(path), "%s/%s", dir, id);
	_cleanup_close_ int out = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	/* Its size counts only once it is locked. */
	if (out >= 0 && flock(out, LOCK_EX | LOCK_NB) == 0 && fstat(out, &st) == 0 && st.st_size == 0)
		*ret_out = TAKE_FD(out);
	else
		*ret_in = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Memory that is mapped is not read now: it must not change under the guest. */
static int check_sealed(const struct restore_source *src, struct err *err)
{
	struct stat st;

	if (fstat(src->ram_fd[src->nchain - 1], &st) < 0)
		return err_errno(err, -errno, SNAPSHOT_RAM);
	if (st.st_mode & 0222)
		return err_set(err, -EPERM,
			       "its memory can be written by others while the VM uses it (mode %03o of '" SNAPSHOT_RAM "'): 'chmod a-w' it after 'coffer snapshot verify', or restore with --eager",
			       (unsigned)st.st_mode & 0777);
	return 0;
}

static int random_cid(uint64_t *ret)
{
	uint32_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return -errno;
	*ret = 3 + random % (0x80000000u - 3);
	return 0;
}

static int call_restore(struct launch *l, const struct restore_source *src, const struct restore_options *o,
			struct err *err)
{
	static const enum control_restore_mode modes[] = { [RESTORE_MAP] = CONTROL_RESTORE_MAP,
							   [RESTORE_EAGER] = CONTROL_RESTORE_EAGER,
							   [RESTORE_LAZY] = CONTROL_RESTORE_LAZY };
	enum restore_mode mode = o->mode == RESTORE_AUTO ? restore_choose_mode(src) : o->mode;
	_cleanup_close_ int in = -1, out = -1;
	int fd[2 * RAM_CHAIN_MAX + 3];
	struct control_message q = { .op = CONTROL_RESTORE, .fd = fd };
	struct control_reply reply;
	int r = 0;

	if (mode == RESTORE_MAP)
		r = src->compressed ? err_set(err, -EINVAL,
					      "its memory is compressed and cannot be mapped: use --lazy or --eager, or flatten it with --compress none") :
				      check_sealed(src, err);
	if (r == 0 && random_cid(&q.arg[2]) < 0)
		r = err_errno(err, -errno, "getrandom");
	if (r < 0)
		return r;
	fd[q.nfds++] = src->state_fd;
	for (unsigned i = 0; i < src->nchain; i++) {
		fd[q.nfds++] = src->ram_fd[i];
		fd[q.nfds++] = src->index_fd[i];
	}
	q.arg[0] = modes[mode];
	q.arg[1] = src->nchain;
	q.arg[3] = (o->paused ? CONTROL_RESTORE_PAUSED : 0) | (o->track ? CONTROL_RESTORE_TRACK : 0);
	if (mode == RESTORE_LAZY)
		open_order(src->snap.m.id, &in, &out);
	if (in >= 0) {
		fd[q.nfds++] = in;
		q.arg[3] |= CONTROL_RESTORE_ORDER_IN;
	}
	if (out >= 0) {
		fd[q.nfds++] = out;
		q.arg[3] |= CONTROL_RESTORE_ORDER_OUT;
	}
	return control_call_message(l->dir.fd, &q, control_deadline(RESTORE_MS), &reply, err);
}

int restore_run(struct launch *l, const struct restore_source *src, const struct restore_options *o, struct err *err)
{
	int r = write_config(l, src, o, err);

	if (r == 0 && l->foreign)
		r = restore_shell_describe(l, src, err);
	if (r == 0)
		r = write_record(l, src, o->track, err);
	if (r == 0)
		r = take_strings(l, &src->snap.m, err);
	if (r == 0 && o->paused)
		r = vmdir_write_file(l->dir.fd, VMDIR_UNSETTLED, "", 0, err);
	/* From here on other commands see it. */
	if (r == 0)
		r = vmdir_rename(&l->dir, o->id, err);
	if (r < 0)
		return r;
	r = call_restore(l, src, o, err);
	vm_disks_finish(&l->disks);
	if (r < 0) {
		struct err why = ERR_INIT;
		enum vm_end_kind kind;

		if ((r == -ECONNRESET || r == -ECONNREFUSED) && launch_explain_end(l, &kind, &why))
			*err = why;
		err_prefix(err, "snapshot '%s': ", src->snap.name);
		return r;
	}
	l->ready_ns = loop_now_ns();
	l->has_root = src->snap.m.ndisks > 0 && strcmp(src->snap.m.image, LAUNCH_NO_IMAGE) != 0;
	l->status_fd = openat(l->dir.fd, VMDIR_STATUS, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return 0;
}

/* ---- the guest ---- */

static bool worth_another_try(int r)
{
	return r == -ECONNREFUSED || r == -ECONNRESET || r == -ETIMEDOUT || r == -EPIPE || r == -EAGAIN || r == -ENOENT;
}

int restore_settle(struct launch *l, int signal_fd, struct err *err)
{
	uint64_t deadline = control_deadline(SETTLE_MS);
	struct err why = ERR_INIT;
	enum vm_end_kind kind;
	int r;

	for (;;) {
		r = launch_configure(l, false, signal_fd, control_deadline(SETTLE_TRY_MS), &why);
		if (r == 0 || !worth_another_try(r) || control_deadline(0) >= deadline)
			break;
		if (l->pidfd >= 0) {
			struct pollfd p = { .fd = l->pidfd, .events = POLLIN };

			if (poll(&p, 1, SETTLE_POLL_MS) == 1)
				break;
		}
	}
	if (r == 0)
		r = vmdir_write_file(l->dir.fd, VMDIR_READY, "", 0, &why);
	if (r < 0) {
		if (err)
			*err = why;
		if (l->pidfd >= 0 && r != -ECANCELED && launch_explain_end(l, &kind, &why) && err)
			*err = why;
		return r;
	}
	unlinkat(l->dir.fd, VMDIR_UNSETTLED, 0);
	l->configured_ns = loop_now_ns();
	return 0;
}

int restore_settle_resumed(struct vmdir *dir, struct err *err)
{
	struct launch l;
	struct snapshot_manifest m;

	if (faccessat(dir->fd, VMDIR_UNSETTLED, F_OK, 0) < 0)
		return 0;
	int r = snapshot_record_read(dir->fd, &m, err);

	if (r < 0)
		return r;
	launch_init(&l);
	l.dir = *dir; /* borrowed */
	l.has_root = m.ndisks > 0 && strcmp(m.image, LAUNCH_NO_IMAGE) != 0;
	snapshot_manifest_finish(&m);
	return restore_settle(&l, -1, err);
}
