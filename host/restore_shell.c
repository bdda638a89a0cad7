/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shell of a VM: a monitor with the machine of a snapshot and nothing in it yet (see restore.h).
 *
 * The monitor opens the files that are only read (images) by their paths; layers come as descriptors when it is ready,
 * since after that it can open nothing. A disk with remote layers has all of them from the start: attaching it waits for what the
 * cache lacks, which is to be in the monitor's log and not behind a request. New tops are made in the shell's own disk directory, so it is ready for any
 * name.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/doctor.h"
#include "host/launch_gpu.h"
#include "host/launch_remote.h"
#include "host/paths.h"
#include "host/restore.h"
#include "host/signals.h"
#include "host/sock.h"
#include "host/vmargs.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { SHELL_READY_MS = 60000, FETCH_MS = 90000, ATTACH_MS = 60000 };

#define READY_LINE "ready\n"

/* ---- disks ---- */

static int add_file(struct launch *l, const struct snapshot_disk *d, struct err *err)
{
	return vm_disks_add_file(&l->disks, d->path, true, d->image, err);
}

/* As at a first start: what the cache has whole is linked, coffer-fetch serves the rest. */
static int open_remote(struct launch *l, const struct snapshot_disk *from, struct vm_disk *d, struct err *err)
{
	const struct launch_options defaults = { 0 };
	size_t n = 0;
	int r = 0;

	for (size_t k = 0; k < from->nlayers && r == 0; k++) {
		const struct snapshot_layer *one = &from->layer[k];

		if (!snapshot_layer_is_remote(one))
			continue;
		if (n++ == 0 && l->remote != NULL)
			r = err_set(err, -ENOTSUP, "more than one disk has remote layers: only the root can");
		else
			r = launch_remote_note(l, one->url, one->sha256, one->size, err);
	}
	return r < 0 || n == 0 ? r : launch_remote_open(l, &defaults, d, err);
}

static int add_layer(struct launch *l, const struct restore_source *src, struct vm_disk *d, size_t number,
		     const struct snapshot_layer *one, struct err *err)
{
	char path[PATH_MAX + SNAPSHOT_FILE_NAME_MAX + 2];
	int fd;

	if (snapshot_layer_is_remote(one))
		return launch_remote_add(l, d, number, "", err);
	fd = snapshot_open_file(&src->snap, one->file, one->size, err);
	snprintf(path, sizeof(path), "%s/%s", src->snap.path, one->file);
	return fd < 0 ? fd : vm_disk_add_layer(d, number, l->dir.disk_dir_fd, fd, path, one, err);
}

static int add_layers(struct launch *l, const struct restore_source *src, size_t number, struct err *err)
{
	const struct snapshot_disk *from = &src->snap.m.disk[number];
	struct vm_disk *d = NULL;
	int r = l->dir.disk_dir_fd >= 0 ? 0 : vmdir_create_disks(&l->dir, err);

	if (r == 0)
		r = vm_disks_add_layers(&l->disks, from->size, *from->path ? from->path : NULL, from->image, &d, err);
	if (r == 0)
		r = open_remote(l, from, d, err);
	for (size_t k = 0; k < from->nlayers && r == 0; k++)
		r = add_layer(l, src, d, number, &from->layer[k], err);
	return r < 0 ? r : vm_disk_add_top(d, number, l->dir.disk_dir_fd, err);
}

static int make_disks(struct launch *l, const struct restore_source *src, struct err *err)
{
	const struct snapshot_manifest *m = &src->snap.m;
	int r = 0;

	for (size_t i = 0; i < m->ndisks && r == 0; i++)
		r = m->disk[i].kind == SNAPSHOT_DISK_LAYERS ? add_layers(l, src, i, err) : add_file(l, &m->disk[i],
												    err);
	return r;
}

static int describe_layers(struct launch *l, const struct restore_source *src, size_t number, struct err *err)
{
	const struct snapshot_disk *from = &src->snap.m.disk[number];
	struct vm_disk *d = NULL;
	int r = vm_disks_add_layers(&l->disks, from->size, *from->path ? from->path : NULL, from->image, &d, err);

	for (size_t k = 0; k < from->nlayers && r == 0; k++)
		r = vm_disk_describe_layer(d, number, &from->layer[k], err);
	return r;
}

int restore_shell_describe(struct launch *l, const struct restore_source *src, struct err *err)
{
	const struct snapshot_manifest *m = &src->snap.m;
	int r = 0;

	for (size_t i = 0; i < m->ndisks && r == 0; i++)
		r = m->disk[i].kind == SNAPSHOT_DISK_LAYERS ? describe_layers(l, src, i, err) : add_file(l, &m->disk[i], err);
	return r;
}

static int attach(struct launch *l, size_t number, struct err *err)
{
	const struct vm_disk *d = l->disks.disk[number];
	int fd[SNAPSHOT_LAYERS_MAX + 3];
	struct control_message q = { .op = CONTROL_DISK_ATTACH, .arg = { number, d->d.nlayers, d->base_fd >= 0, 1 },
				     .fd = fd };
	struct control_reply reply;

	if (d->base_fd >= 0)
		fd[q.nfds++] = d->base_fd;
	for (size_t k = 0; k < d->d.nlayers; k++)
		fd[q.nfds++] = d->layer_fd[k];
	fd[q.nfds++] = d->top_data_fd;
	fd[q.nfds++] = d->top_index_fd;
	return control_call_message(l->dir.fd, &q, control_deadline(ATTACH_MS), &reply, err);
}

/* ---- the monitor ---- */

static int make_args(struct launch *l, const struct restore_source *src, const struct restore_options *o, int ready_fd,
		     struct vmargs *a, struct err *err)
{
	const struct snapshot_manifest *m = &src->snap.m;
	char vmm[PATH_MAX];
	int r = paths_program("coffer-vmm", "COFFER_VMM", vmm, sizeof(vmm), err);

	if (r < 0)
		return r;
	vmargs_add(a, "%s", vmm);
	vmargs_add(a, "--dir=%s", l->dir.path);
	vmargs_add(a, "--restore");
	if (o->track)
		vmargs_add(a, "--track");
	vmargs_add(a, "--cpus=%llu", (unsigned long long)m->cpus);
	vmargs_add(a, "--memory=%lluM", (unsigned long long)(m->memory >> 20));
	vmargs_add(a, "--ready-fd=%d", ready_fd);
	r = vmargs_add_disks(a, &l->disks, true);
	for (size_t i = 0; i < m->ndevices && r == 0; i++)
		r = launch_gpu_add_device(l, a, m->device[i], err);
	if (r < 0 && r != -ENOMEM)
		return r;
	if (o->log_level)
		vmargs_add(a, "--log-level=%s", o->log_level);
	if (o->no_seccomp)
		vmargs_add(a, "--no-seccomp");
	if (!o->keep)
		vmargs_add(a, "--die-with-parent");
	vmargs_add_fd(a, l->dir.lock_fd);
	vmargs_add_fd(a, l->dir.disk_lock_fd);
	vmargs_add_fd(a, l->image_fd);
	vmargs_inherit_fd(a, ready_fd);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	return vmargs_check(a, err);
}

static int spawn(struct launch *l, const struct restore_source *src, const struct restore_options *o,
		 const struct guardian *g, struct err *err)
{
	int ready[2];
	struct vmargs *a = calloc(1, sizeof(*a));

	if (!a || pipe2(ready, O_CLOEXEC) < 0) {
		free(a);
		return err_errno(err, -errno, "pipe");
	}
	int r = make_args(l, src, o, ready[1], a, err);

	if (r == 0)
		r = launch_spawn(l, a, o->keep, g, err);
	vmargs_free(a);
	launch_remote_finish(l); /* the fetcher and the monitor have what they need */
	launch_gpu_finish(l);
	fd_close(ready[1]);
	l->ready_sock = ready[0];
	return r;
}

int restore_shell_start(struct launch *l, const struct restore_source *src, const struct restore_options *o,
			const struct guardian *g, struct err *err)
{
	int r = vmdir_create_shell(&l->dir, err);

	if (r == 0)
		r = make_disks(l, src, err);
	return r < 0 ? r : spawn(l, src, o, g, err);
}

static int take_ready_line(struct launch *l, struct err *err)
{
	char line[sizeof(READY_LINE)];
	enum vm_end_kind kind;
	ssize_t n = read(l->ready_sock, line, sizeof(line));

	if (n == (ssize_t)strlen(READY_LINE) && !memcmp(line, READY_LINE, (size_t)n))
		return 0;
	return launch_explain_end(l, &kind, err) ? -EIO : err_set(err, -EPROTO,
								  "the monitor does not say that it is ready");
}

/* Attaching its disk may wait for as long as coffer-fetch tries to get what is not there. */
static bool has_remote(const struct launch *l)
{
	for (size_t i = 0; i < l->disks.n; i++)
		if (l->disks.disk[i]->remote_sock >= 0)
			return true;
	return false;
}

int restore_shell_wait(struct launch *l, const struct restore_source *src, int signal_fd, struct err *err)
{
	uint64_t deadline = control_deadline(SHELL_READY_MS + (has_remote(l) ? FETCH_MS : 0));

	for (;;) {
		struct pollfd p[] = { { .fd = l->ready_sock, .events = POLLIN }, { .fd = signal_fd,
										   .events = POLLIN } };
		int r = sock_poll(p, ARRAY_SIZE(p), deadline);

		if (r < 0)
			return err_errno(err, r, "wait for the monitor");
		if (r == 0)
			return err_set(err, -ETIMEDOUT, "the monitor is not ready in time");
		for (int signal; p[1].revents && (signal = signals_next(signal_fd)) > 0;)
			if (signals_is_end(signal)) {
				l->signal = signal;
				return err_set(err, -ECANCELED, "interrupted");
			}
		if (p[0].revents)
			break;
	}
	int r = take_ready_line(l, err);

	l->ready_sock = fd_close(l->ready_sock);
	for (size_t i = 0; i < l->disks.n && r == 0; i++)
		if (l->disks.disk[i]->d.kind == SNAPSHOT_DISK_LAYERS && vm_disk_is_attached_later(l->disks.disk[i], true))
			r = attach(l, i, err);
	if (r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET) {
		struct err why = ERR_INIT;
		enum vm_end_kind kind;

		if (launch_explain_end(l, &kind, &why))
			*err = why;
	}
	if (r < 0)
		err_prefix(err, "snapshot '%s': ", src->snap.name);
	return r;
}
