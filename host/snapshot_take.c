/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a snapshot of a running VM: see snapshot_take.h for the order. The layers of disks: snapshot_layers.c.
 *
 * Here are the guest's part (through its agent), the check that a diff has something to be against, the request to the
 * monitor, and what the manifest says. The manifest begins as the VM's record (machine.json) and gets what this snapshot
 * adds: id and parent as the monitor tells them, sums of files, layers, this machine. The record is behind the monitor
 * when an earlier command was killed after the cut; so ids are the monitor's, and layers are looked for.
 *
 * Who may: one command at a time, by the flock of snapshot.lock in the VM's directory, until the record names what was taken.
 *
 * Trust: the guest may have taken over agent and monitor. Both are waited for with limits, and what they say goes into the
 * manifest only as numbers, or as what the files themselves are found to be.
 */
#include "host/snapshot_take.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/snapshot_host.h"
#include "host/snapshot_layers.h"
#include "host/snapshot_record.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"
#include "snapshot/ram.h"

enum { FLUSH_MS = 60000, STATUS_MS = 3000 };

#define SNAPSHOT_LOCK "snapshot.lock"

/* ---- the guest ---- */

static bool takes_commands(struct vm_handle *vm)
{
	struct control_reply status;

	return faccessat(vm->dir.fd, VMDIR_READY, F_OK, 0) == 0 &&
	       (control_call(vm->dir.fd, CONTROL_STATUS, 0, control_deadline(STATUS_MS), &status, NULL) < 0 ||
		le64_get(status.value[CONTROL_V_STATE]) != VM_PAUSED);
}

int snapshot_flush(struct vm_handle *vm, bool freeze, struct agent_conn **ret_conn, struct err *err)
{
	static const char *const requests[] = { "{\"op\":\"sync\"}", "{\"op\":\"freeze\"}" };
	struct agent_conn *c;
	struct agent_line line;

	*ret_conn = NULL;
	if (!takes_commands(vm))
		return 0;
	uint64_t deadline = control_deadline(FLUSH_MS);
	int r = agent_connect(vm->dir.fd, AGENT_PORT, -1, deadline, &c, err);

	if (r == 0) {
		r = agent_request(c, requests[freeze], strlen(requests[freeze]), deadline, &line, err);
		if (r == 0 && freeze)
			*ret_conn = c;
		else
			agent_close(c);
	}
	if (r < 0)
		err_prefix(err, "the guest's file systems cannot be %s (--no-sync does without): ",
			   freeze ? "frozen" : "flushed");
	return r;
}

/* ---- what it is a diff of ---- */

static int check_parent(const struct snapshot_manifest *record, struct err *err)
{
	struct snapshot s = SNAPSHOT_NONE, parent;
	char last[PATH_MAX];
	unsigned n = 1;

	if (!record->parent_id[0])
		return err_set(err, -EINVAL,
			       "there is no earlier snapshot of it that a diff could be against (a clone of a running VM has none, one of a snapshot has): take one without --diff first");
	/* The record as if it were the diff: the same look-up as a restore will do. */
	snprintf(s.name, sizeof(s.name), "%s", "new");
	snprintf(s.path, sizeof(s.path), "/new");
	s.m = *record;
	int r = snapshot_open_parent(&s, &parent, NULL);

	if (r < 0)
		return err_set(err, -ENOENT,
			       "its last snapshot (id %s, '%s') is not there any more: take one without --diff",
			       record->parent_id, record->parent_path);
	snprintf(last, sizeof(last), "%s", parent.path);
	while (r == 0 && parent.m.parent_id[0]) {
		struct snapshot next;

		r = snapshot_open_parent(&parent, &next, err);
		snapshot_close(&parent);
		if (r == 0)
			parent = next;
		if (r == 0 && ++n >= RAM_CHAIN_MAX) {
			snapshot_close(&parent);
			return err_set(err, -EMLINK, "its last snapshot is the %dth of a chain, and more cannot be: "
				       "'coffer snapshot flatten %s' makes them one, or take one without --diff",
				       RAM_CHAIN_MAX, last);
		}
	}
	if (r == 0)
		snapshot_close(&parent);
	return r;
}

/* ---- the monitor ---- */

/* What is done while the monitor is at it. */
struct watch {
	struct vm_handle *vm;
	struct snapshot_take *t;
	int ram_fd;
	struct agent_conn *frozen; /* file systems are, until it is closed */
	uint64_t frozen_at_ns;
};

static int show(void *opaque, struct err *err)
{
	const struct watch *w = opaque;
	struct stat st;

	return fstat(w->ram_fd, &st) == 0 ? progress_bytes(w->t->progress, (uint64_t)st.st_blocks * 512, 0, err) : 0;
}

/* The agent ends a freeze that lasts too long: then this is no snapshot of a frozen guest. */
static int thaw(struct watch *w, struct err *err)
{
	int r = 0;

	if (w->frozen && agent_fill(w->frozen, NULL) < 0)
		r = err_set(err, -ETIMEDOUT, "the guest let its file systems go on before the moment of the snapshot: try again");
	if (w->frozen)
		w->t->frozen_ns = loop_now_ns() - w->frozen_at_ns;
	agent_close(w->frozen);
	w->frozen = NULL;
	return r;
}

static int at_stage(void *opaque, enum control_stage stage, struct err *err)
{
	struct watch *w = opaque;

	if (stage == CONTROL_STAGE_CUT)
		return thaw(w, err);
	int r = snapshot_flush(w->vm, w->t->freeze, &w->frozen, err);

	w->frozen_at_ns = loop_now_ns();
	return r;
}

static void put_id(char out[SNAPSHOT_ID_LEN + 1], const struct control_reply *reply, int low)
{
	uint64_t word[2] = { le64_get(reply->value[low]), le64_get(reply->value[low + 1]) };

	out[0] = 0;
	for (int i = 0; i < RAM_ID_SIZE && (word[0] || word[1]); i++)
		sprintf(out + 2 * i, "%02x", (unsigned)(word[i / 8] >> i % 8 * 8 & 0xff));
}

static int make_files(const struct snapshot_draft *d, int fd[3], struct err *err)
{
	static const char *const names[] = { SNAPSHOT_STATE, SNAPSHOT_RAM, SNAPSHOT_RAM_INDEX };

	for (int i = 0; i < 3; i++) {
		fd[i] = snapshot_draft_create(d, names[i], err);
		if (fd[i] < 0)
			return fd[i];
	}
	return 0;
}

/* Its reply fills *t. */
static int call_monitor(struct vm_handle *vm, struct snapshot_take *t, const int file[3],
			const struct snapshot_layers *layers, struct err *err)
{
	int fd[3 + 2 * SNAPSHOT_DISKS_MAX];
	struct watch w = { .vm = vm, .t = t, .ram_fd = file[1] };
	struct control_message q = { .op = CONTROL_SNAPSHOT, .fd = fd, .tick = show, .stage = at_stage, .opaque = &w };
	bool announce = !t->no_sync && !t->stop && takes_commands(vm);
	struct control_reply reply;

	memcpy(fd, file, 3 * sizeof(*fd));
	q.nfds = 3 + snapshot_layers_new_pairs(layers, fd + 3);
	q.arg[0] = (t->diff ? CONTROL_SNAPSHOT_DIFF : 0) | (t->track && !t->stop ? CONTROL_SNAPSHOT_TRACK : 0) |
		   (announce ? CONTROL_SNAPSHOT_ANNOUNCE : 0) | (t->to ? 0 : CONTROL_SNAPSHOT_UNNAMED);
	q.arg[1] = t->level;
	q.arg[2] = (q.nfds - 3) / 2;
	int r = control_call_message(vm->dir.fd, &q, 0, &reply, err);

	agent_close(w.frozen);
	if (r < 0)
		return r;
	put_id(t->m.id, &reply, CONTROL_SV_ID_LOW);
	char parent[SNAPSHOT_ID_LEN + 1];

	put_id(parent, &reply, CONTROL_SV_PARENT_LOW);
	if (!t->m.id[0])
		return err_set(err, -EPROTO, "the monitor gave the snapshot no id");
	/* Where that one is only the record knows; a parent of another id is looked for in the store. */
	if (strcmp(parent, t->m.parent_id) != 0) {
		snprintf(t->m.parent_id, sizeof(t->m.parent_id), "%s", parent);
		free(t->m.parent_path);
		t->m.parent_path = strdup("");
		if (t->diff)
			r = t->m.parent_path ? check_parent(&t->m, err) : -ENOMEM;
	}
	t->pause_ns = le64_get(reply.value[CONTROL_SV_PAUSE_NS]);
	t->total_ns = le64_get(reply.value[CONTROL_SV_TOTAL_NS]);
	t->rounds = le64_get(reply.value[CONTROL_SV_ROUNDS]);
	t->pages = le64_get(reply.value[CONTROL_SV_PAGES]);
	t->final_pages = le64_get(reply.value[CONTROL_SV_FINAL_PAGES]);
	t->ram_bytes = le64_get(reply.value[CONTROL_SV_RAM_BYTES]);
	if (reply.text[0])
		err_set(&t->note, -ENODATA, "%s", reply.text);
	return r;
}

/* ---- the manifest ---- */

static int describe_files(struct snapshot_take *t, const int fd[3], struct err *err)
{
	struct stat st = { 0 };
	int r = snapshot_hash_file(fd[0], SNAPSHOT_STATE, &t->m.state.size, t->m.state.hash, err);

	if (r == 0)
		r = snapshot_hash_file(fd[2], SNAPSHOT_RAM_INDEX, &t->m.ram_index.size, t->m.ram_index.hash, err);
	if (r == 0 && fstat(fd[1], &st) < 0)
		r = err_errno(err, -errno, SNAPSHOT_RAM);
	if (r < 0)
		return r;
	t->m.ram.size = (uint64_t)st.st_size;
	/* Nobody writes them again; a restore that maps `ram` relies on it. */
	for (int i = 0; i < 3; i++)
		if (fchmod(fd[i], 0400) < 0)
			return err_errno(err, -errno, "chmod");
	return 0;
}

static int replace_string(char **s, const char *value, struct err *err)
{
	free(*s);
	*s = strdup(value);
	return *s ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* From the record: what is not known by the monitor's reply. */
static int describe_machine(struct snapshot_take *t, const struct vm_handle *vm, struct err *err)
{
	struct timespec now;
	const char *kvm;
	int r;

	clock_gettime(CLOCK_REALTIME, &now);
	t->m.what = SNAPSHOT_WHAT_SNAPSHOT;
	t->m.created_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
	t->m.level = t->level;
	snapshot_host_identify(&t->m.cpu, &kvm);
	r = replace_string(&t->m.version, COFFER_VERSION, err);
	if (r == 0)
		r = replace_string(&t->m.kvm, kvm, err);
	if (r == 0)
		r = replace_string(&t->m.hostname, vm->dir.id, err);
	if (r < 0)
		return r;
	if (!t->diff) {
		t->m.parent_id[0] = 0;
		return replace_string(&t->m.parent_path, "", err);
	}
	_cleanup_free_ char *path = t->m.parent_path;

	t->m.parent_path = NULL;
	return replace_string(&t->m.parent_path, path && *path ? snapshot_draft_parent_path(&t->draft, path) : "", err);
}

/* Before anything is done: can it be captured at all? */
static int check_record(const struct snapshot_manifest *m, struct err *err)
{
	for (size_t i = 0; i < m->ndisks; i++)
		if (m->disk[i].kind == SNAPSHOT_DISK_RAW)
			return err_set(err, -ENOTSUP,
				       "its disk '%s' is written in place and cannot be captured: start the VM with --disk '%s,cow' or '%s,ro'",
				       m->disk[i].path, m->disk[i].path, m->disk[i].path);
	for (size_t i = 0; i < m->ndisks; i++)
		for (size_t k = 0; k < m->disk[i].nlayers; k++)
			if (m->disk[i].layer[k].index_hash == 0 && !m->disk[i].layer[k].url)
				return err_set(err, -ENOTSUP,
					       "layers of its image '%s' had not all arrived when a version of Coffer started it that did not note where they are: start it anew",
					       m->disk[i].image);
	for (size_t i = 0; i < m->ndevices; i++)
		if (!snapshot_device_is_plain(m->device[i]))
			return err_set(err, -ENOTSUP,
				       "its --device '%s' names a file of this machine and cannot be captured: start the VM without it", m->device[i]);
	return 0;
}

/* One that was paused before stays so when this fails. */
static int pause_vm(struct vm_handle *vm, struct snapshot_take *t, struct err *err)
{
	struct control_reply reply;
	int r = control_call(vm->dir.fd, CONTROL_STATUS, 0, control_deadline(CONTROL_REPLY_MS), &reply, err);

	if (r < 0 || le64_get(reply.value[CONTROL_V_STATE]) == VM_PAUSED)
		return r;
	r = control_call(vm->dir.fd, CONTROL_PAUSE, 0, control_deadline(CONTROL_REPLY_MS), &reply, err);
	t->paused = r == 0;
	return r;
}

void snapshot_take_resume(struct vm_handle *vm, struct snapshot_take *t)
{
	struct control_reply reply;

	if (t->paused)
		control_call(vm->dir.fd, CONTROL_RESUME, 0, control_deadline(CONTROL_REPLY_MS), &reply, NULL);
	t->paused = false;
}

static int with_draft(struct vm_handle *vm, struct snapshot_take *t, struct snapshot_layers *layers, int fd[3],
		      struct err *err)
{
	struct agent_conn *frozen = NULL;
	int r = make_files(&t->draft, fd, err);

	if (r == 0)
		r = snapshot_layers_prepare(layers, &t->draft, err);
	if (r == 0 && !t->no_sync) {
		progress_stage(t->progress, "flushing the guest's disks");
		r = snapshot_flush(vm, t->freeze && t->stop, &frozen, err);
	}
	if (r == 0 && t->stop)
		r = pause_vm(vm, t, err);
	if (r == 0) {
		progress_stage(t->progress, "saving memory");
		r = call_monitor(vm, t, fd, layers, err);
	}
	agent_close(frozen); /* which thaws */
	if (r == 0) {
		progress_stage(t->progress, "saving disks");
		r = describe_files(t, fd, err);
	}
	if (r == 0)
		r = snapshot_layers_collect(layers, &t->draft, &t->m, &t->disk_bytes, err);
	if (r == 0)
		r = describe_machine(t, vm, err);
	if (r < 0)
		snapshot_take_resume(vm, t);
	return r;
}

int snapshot_lock_vm(struct vm_handle *vm, struct err *err)
{
	_cleanup_close_ int fd = openat(vm->dir.fd, SNAPSHOT_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, -errno, "'%s/" SNAPSHOT_LOCK "'", vm->dir.path);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return err_set(err, -EBUSY, "another command takes a snapshot of it");
	return TAKE_FD(fd);
}

int snapshot_take(struct vm_handle *vm, struct snapshot_take *t, struct err *err)
{
	struct snapshot_layers layers = SNAPSHOT_LAYERS_NONE;
	int fd[3] = { -1, -1, -1 };
	int r = t->lock = snapshot_lock_vm(vm, err);

	r = MIN(r, 0);
	t->paused = false;
	t->draft = SNAPSHOT_DRAFT_NONE;
	t->m = (struct snapshot_manifest){ 0 };
	if (r == 0)
		r = snapshot_record_read(vm->dir.fd, &t->m, err);
	if (r == 0)
		r = check_record(&t->m, err);
	if (r == 0 && t->diff)
		r = check_parent(&t->m, err);
	if (r == 0)
		r = snapshot_draft_begin(t->to, false, &t->draft, err);
	if (r == 0)
		r = snapshot_layers_open(&layers, &vm->dir, &t->m, t->stop, err);
	if (r == 0)
		r = with_draft(vm, t, &layers, fd, err);
	snapshot_layers_close(&layers);
	for (int i = 0; i < 3; i++)
		fd_close(fd[i]);
	if (r < 0)
		snapshot_take_finish(t);
	return r;
}

static int remember(struct vm_handle *vm, const struct snapshot_take *t, struct err *err)
{
	struct snapshot_manifest m;
	char path[PATH_MAX + NAME_MAX + 2];
	int r = snapshot_record_read(vm->dir.fd, &m, err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s/%s", t->draft.dir, t->draft.name);
	/* A later diff will be against this one; one without a name is not there for that, and diffs go on as before. */
	if (t->to) {
		snprintf(m.parent_id, sizeof(m.parent_id), "%s", t->m.id);
		r = replace_string(&m.parent_path, path, err);
	}
	if (r == 0)
		r = snapshot_layers_remember(&m, &t->m, &vm->dir, err);
	if (r == 0)
		r = snapshot_record_write(vm->dir.fd, &m, err);
	snapshot_manifest_finish(&m);
	return r;
}

int snapshot_take_remember(struct vm_handle *vm, struct snapshot_take *t, struct err *err)
{
	int r = remember(vm, t, err);

	t->lock = fd_close(t->lock);
	return r;
}

void snapshot_take_finish(struct snapshot_take *t)
{
	t->lock = fd_close(t->lock);
	snapshot_draft_end(&t->draft);
	snapshot_manifest_finish(&t->m);
}
