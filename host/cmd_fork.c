/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer fork: many VMs out of one, running or stored.
 *
 * A running VM is snapshotted first, without compression and without a name: the clones map its memory and link its
 * layers, so its directory can go as soon as they run.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/guardian.h"
#include "host/progress.h"
#include "host/restore_many.h"
#include "host/signals.h"
#include "host/snapshot_take.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { CLONES_MAX = 1000 };

struct fork_options {
	uint64_t n;
	char *prefix;
	bool json, no_sync, help;
};

static const struct opt options[] = {
	OPT_U64(struct fork_options, n, "number", 'n', "N", 1, CLONES_MAX, "how many (1)"),
	OPT_STRING(struct fork_options, prefix, "prefix", 0, "PREFIX",
		   "name them PREFIX1, PREFIX2 and so on (random names)"),
	OPT_BOOL(struct fork_options, no_sync, "no-sync", 0, "do not flush the file systems of a running VM first"),
	OPT_BOOL(struct fork_options, json, "json", 0, "print a JSON array of the names"),
	CMD_OPT_HELP(struct fork_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "fork ID|NAME|DIR [-n N] [--prefix PREFIX]",
	.summary = "start many VMs from a running one or from a snapshot",
	.text = "A running VM goes on. The clones share what they do not change: memory and disks.\n"
		"Each has its own clock, entropy, host name, machine-id and vsock address before it takes\n"
		"commands. All of them run, or none. A VM's name goes before a snapshot's.",
	.options = options,
	.examples = "coffer fork work -n 10\ncoffer fork ready -n 100 --prefix task-",
};

/* The draft, as a snapshot that is open. */
static int as_snapshot(struct snapshot_take *t, struct snapshot *ret, struct err *err)
{
	struct snapshot s = SNAPSHOT_NONE;

	s.fd = fcntl(t->draft.fd, F_DUPFD_CLOEXEC, 3);
	if (s.fd < 0)
		return err_errno(err, -errno, "dup");
	snprintf(s.name, sizeof(s.name), "%s", t->draft.temp);
	snprintf(s.path, sizeof(s.path), "%s/%s", t->draft.dir, t->draft.temp);
	s.m = t->m;
	t->m = (struct snapshot_manifest){ 0 };
	*ret = s;
	return 0;
}

static int from_vm(const char *id, const struct fork_options *o, struct snapshot_take *t, struct restore_source *src,
		   struct err *err)
{
	struct vm_handle vm;
	struct snapshot s;
	int r = vm_open(id, &vm, err);

	if (r < 0)
		return r;
	t->no_sync = o->no_sync;
	r = snapshot_take(&vm, t, err);
	if (r == 0)
		r = snapshot_take_remember(&vm, t, err);
	vm_close(&vm);
	if (r == 0)
		r = as_snapshot(t, &s, err);
	else
		err_prefix(err, "fork of '%s': ", id);
	return r < 0 ? r : restore_source_take(&s, src, err);
}

static int open_source(const char *name, const struct fork_options *o, struct snapshot_take *t,
		       struct restore_source *src, struct err *err)
{
	struct vmdir d;

	if (!strchr(name, '/') && vmdir_check_id(name, NULL) == 0) {
		int live = vmdir_open_any(name, &d, NULL);

		if (live >= 0)
			vmdir_close(&d);
		if (live == 1)
			return from_vm(name, o, t, src, err);
	}
	int r = restore_source_open(name, src, err);

	return r == -ENOENT && !strchr(name, '/') ? err_set(err, r,
							    "there is neither a VM nor a snapshot '%s': see 'coffer ps' and 'coffer snapshot ls'", name) : r;
}

static int print(const struct fork_options *o, char (*ids)[VMDIR_ID_MAX + 1])
{
	json_t *list = o->json ? json_array() : NULL;

	for (size_t i = 0; i < o->n; i++)
		if (o->json)
			json_array_append_new(list, json_string(ids[i]));
		else
			puts(ids[i]);
	return o->json ? cmd_print_json(list, 0) : cmd_finish_stdout(0);
}

static int make(const char *name, const struct fork_options *o, struct launch *l, const struct guardian *g,
		struct progress *progress, int signal_fd, struct err *err)
{
	struct snapshot_take t = { .draft = SNAPSHOT_DRAFT_NONE, .lock = -1, .progress = progress };
	struct restore_source src = RESTORE_SOURCE_NONE;
	int r = open_source(name, o, &t, &src, err);
	struct restore_options ro = { .keep = true, .track = t.draft.fd < 0, .command = "(clone)" };

	progress_stage(progress, "restoring");
	if (r == 0)
		r = restore_source_check(&src, err);
	if (r == 0)
		r = restore_many(l, o->n, &src, &ro, o->prefix, g, signal_fd, err);
	progress_end(progress);
	if (r == 0)
		cmd_note(&t.note);
	restore_source_close(&src);
	snapshot_take_finish(&t);
	return r;
}

static int run(const char *name, const struct fork_options *o)
{
	struct guardian guardian = GUARDIAN_NONE;
	struct progress progress;
	struct err err = ERR_INIT;
	_cleanup_free_ struct launch *l = calloc(o->n, sizeof(*l));
	_cleanup_free_ char (*ids)[VMDIR_ID_MAX + 1] = calloc(o->n, sizeof(*ids));
	sigset_t old;

	if (!l || !ids)
		return cmd_failf("fork: out of memory");
	if (guardian_start(&guardian, -1, &err) < 0)
		return cmd_fail(&err);
	int signal_fd = signals_open(&old, &err), r = signal_fd;

	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	for (size_t i = 0; i < o->n; i++)
		launch_init(&l[i]);
	if (r >= 0)
		r = make(name, o, l, &guardian, &progress, signal_fd, &err);
	progress_end(&progress);
	if (r == 0)
		guardian_forget_monitor(&guardian, 0);
	for (size_t i = 0; i < o->n; i++) {
		snprintf(ids[i], sizeof(ids[i]), "%s", l[i].dir.id);
		launch_end(&l[i], r == 0, NULL);
	}
	guardian_finish(&guardian);
	signals_close(signal_fd, &old);
	return r < 0 ? cmd_fail(&err) : print(o, ids);
}

int cmd_fork(int argc, char **argv)
{
	struct fork_options o = { .n = 1 };
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("fork: %s: 'coffer ps' and 'coffer snapshot ls' list what there is",
				 first == argc ? "of what?" : "one VM or snapshot at a time");
	if (o.prefix) {
		struct err err = ERR_INIT;
		char longest[VMDIR_ID_MAX + 64];

		snprintf(longest, sizeof(longest), "%.*s%llu", VMDIR_ID_MAX + 1, o.prefix, (unsigned long long)o.n);
		if (vmdir_check_id(longest, &err) < 0)
			return cmd_failf("fork: --prefix '%s': %s", o.prefix, err.text);
	}
	return run(argv[first], &o);
}
