/* SPDX-License-Identifier: Apache-2.0 */
/* coffer pause, resume, kill: each takes names of VMs, or --all. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/cmd.h"
#include "host/control_client.h"
#include "host/restore.h"
#include "host/snapshot_take.h"
#include "host/vmdir.h"
#include "lib/util.h"

enum { NAMES_MAX = 4096, KILL_WAIT_MS = 10000, KILL_POLL_MS = 20 };

struct state_options {
	bool all, no_sync, help;
};

static const struct opt options[] = {
	OPT_BOOL(struct state_options, all, "all", 'a', "all running VMs"),
	CMD_OPT_HELP(struct state_options),
	OPT_END,
};

static const struct opt pause_options[] = {
	OPT_BOOL(struct state_options, all, "all", 'a', "all running VMs"),
	OPT_BOOL(struct state_options, no_sync, "no-sync", 0, "do not flush the guest's file systems first"),
	CMD_OPT_HELP(struct state_options),
	OPT_END,
};

static const struct cmd_help pause_help = {
	.usage = "pause [--no-sync] ID...\npause [--no-sync] --all",
	.summary = "stop a VM's processors",
	.text = "Memory stays, nothing runs, the guest's clock stands still. What the guest has not written to\n"
		"its disks yet is written first. Pausing a paused VM is no error.",
	.options = pause_options,
	.examples = "coffer pause work",
};

static const struct cmd_help resume_help = {
	.usage = "resume ID...\nresume --all",
	.summary = "let a paused VM go on",
	.text = "Resuming a running VM is no error.",
	.options = options,
	.examples = "coffer resume work",
};

static const struct cmd_help kill_help = {
	.usage = "kill ID...\nkill --all",
	.summary = "end a VM and remove what it used",
	.text = "At once, as pulling the plug: nothing in the guest is asked. Disks given by --disk keep what the\n"
		"guest has written to them so far; run 'sync' in the guest first.",
	.options = options,
	.examples = "coffer kill work\ncoffer kill --all",
};

struct names {
	char *name[NAMES_MAX];
	size_t n;
};

static void collect(const char *id, int dirfd, void *arg)
{
	struct names *names = arg;

	(void)dirfd;
	if (names->n < NAMES_MAX && (names->name[names->n] = strdup(id)))
		names->n++;
}

static int do_pause(struct vmdir *d, const struct state_options *o, struct err *err)
{
	struct vm_handle vm = { .dir = *d, .status_fd = -1 }; /* borrowed */
	struct agent_conn *none;
	struct control_reply reply;
	int r = o->no_sync ? 0 : snapshot_flush(&vm, false, &none, err);

	return r < 0 ? r : control_call(d->fd, CONTROL_PAUSE, 0, control_deadline(CONTROL_REPLY_MS), &reply, err);
}

static int do_resume(struct vmdir *d, const struct state_options *o, struct err *err)
{
	struct control_reply reply;
	int r = control_call(d->fd, CONTROL_RESUME, 0, control_deadline(CONTROL_REPLY_MS), &reply, err);

	(void)o;
	return r < 0 ? r : restore_settle_resumed(d, err);
}

/* Until it is gone: one that is still starting has no control socket yet, and a `coffer run` that started it removes its
 * directory itself. */
static int do_kill(struct vmdir *d, const struct state_options *o, struct err *err)
{
	(void)o;
	for (int waited = 0;; waited += KILL_POLL_MS) {
		int r = control_end_monitor(d->fd, err);

		if (r == 0)
			r = vmdir_remove(d, err);
		if (r != -EBUSY || waited >= KILL_WAIT_MS)
			return r;
		poll(NULL, 0, KILL_POLL_MS);
	}
}

typedef int state_fn(struct vmdir *d, const struct state_options *o, struct err *err);

static int on_one(const char *id, state_fn *fn, const struct state_options *o)
{
	struct vmdir d;
	struct err err = ERR_INIT;
	int r = vmdir_open(id, &d, &err);

	if (r < 0)
		return cmd_fail(&err);
	r = fn(&d, o, &err);
	vmdir_close(&d);
	if (r == -ECONNREFUSED || r == -ENOENT)
		return cmd_failf("the VM '%s' is still starting, or has just ended", id);
	if (r < 0) {
		err_prefix(&err, "VM '%s': ", id);
		return cmd_fail(&err);
	}
	return 0;
}

static int on_all(state_fn *fn, const struct state_options *o)
{
	struct names *names = calloc(1, sizeof(*names));
	struct err err = ERR_INIT;
	int status = 0;

	if (!names)
		return cmd_failf("out of memory");
	if (vmdir_sweep(collect, names, &err) < 0)
		status = cmd_fail(&err);
	for (size_t i = 0; i < names->n; i++) {
		int s = on_one(names->name[i], fn, o);

		status = s ? s : status;
		free(names->name[i]);
	}
	free(names);
	return status;
}

static int state_command(const struct cmd_help *help, state_fn *fn, int argc, char **argv)
{
	struct state_options o = { 0 };
	int status, first = cmd_parse(help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (o.all && first < argc)
		return cmd_failf("%s: either --all or names", argv[0]);
	if (o.all)
		return on_all(fn, &o);
	if (first == argc)
		return cmd_failf("%s: which VM? 'coffer ps' lists them", argv[0]);
	status = 0;
	for (int i = first; i < argc; i++) {
		int s = on_one(argv[i], fn, &o);

		status = s ? s : status;
	}
	vmdir_sweep(NULL, NULL, NULL);
	return status;
}

int cmd_pause(int argc, char **argv)
{
	return state_command(&pause_help, do_pause, argc, argv);
}

int cmd_resume(int argc, char **argv)
{
	return state_command(&resume_help, do_resume, argc, argv);
}

int cmd_kill(int argc, char **argv)
{
	return state_command(&kill_help, do_kill, argc, argv);
}
