/* SPDX-License-Identifier: Apache-2.0 */
/* coffer restore: a VM out of a snapshot, which runs on its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/guardian.h"
#include "host/json_get.h"
#include "host/progress.h"
#include "host/restore_many.h"
#include "host/signals.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

struct restore_command {
	struct restore_options r;
	char *name, *log_level;
	bool lazy, eager, map, verify, json, help;
};

static const struct opt options[] = {
	OPT_BOOL(struct restore_command, map, "map", 0,
		 "map the stored memory: at once, shared by all VMs that do (not for compressed ones)"),
	OPT_BOOL(struct restore_command, lazy, "lazy", 0,
		 "load memory as it is wanted, and the rest in the background"),
	OPT_BOOL(struct restore_command, eager, "eager", 0, "load all memory first"),
	OPT_STRING(struct restore_command, name, "name", 0, "ID", "name of the VM (random)"),
	OPT_BOOL(struct restore_command, r.paused, "paused", 0, "do not let it run; 'coffer resume' does"),
	OPT_BOOL(struct restore_command, verify, "verify", 0,
		 "read all of the snapshot and compare every checksum first"),
	OPT_BOOL(struct restore_command, json, "json", 0, "print a JSON object"),
	OPT_STRING(struct restore_command, log_level, "log-level", 0, "LEVEL",
		   "of the monitor: error, warn, info, debug"),
	OPT_BOOL(struct restore_command, r.no_seccomp, "no-seccomp", 0,
		 "run the monitor without system call filters: for debugging only"),
	CMD_OPT_HELP(struct restore_command),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "restore NAME|DIR [OPTIONS]",
	.summary = "start a VM from a snapshot",
	.text = "The VM runs as one started by 'coffer run --keep'; its name is printed when it takes\n"
		"commands. Clock, entropy, host name, machine-id and vsock address are its own. Without\n"
		"--map, --lazy or --eager: map, or for compressed memory lazy where the host allows it.",
	.options = options,
	.examples = "coffer restore ready --name work\ncoffer exec work date\ncoffer run --from ready -- date",
};

static int print(const struct launch *l, const struct restore_source *src, const struct restore_command *c)
{
	if (!c->json) {
		puts(l->dir.id);
		return cmd_finish_stdout(0);
	}
	enum restore_mode mode = c->r.mode == RESTORE_AUTO ? restore_choose_mode(src) : c->r.mode;
	double loaded = (double)(l->ready_ns - l->start_ns) / 1e6;
	json_t *j = json_pack("{s:s s:o s:s s:s s:b s:f s:f}", "id", l->dir.id, "snapshot", json_text(src->snap.name),
			      "snapshot_id", src->snap.m.id,
			      "mode", restore_mode_name(mode), "pool", l->foreign, "restored_ms", loaded, "ready_ms",
			      l->configured_ns ? (double)(l->configured_ns - l->start_ns) / 1e6 : loaded);

	return cmd_print_json(j, 0);
}

static int restore(struct launch *l, struct restore_source *src, const struct restore_command *c,
		   const struct guardian *g,
		   struct progress *progress, int signal_fd, struct err *err)
{
	int r = 0;

	if (c->verify)
		r = restore_source_verify(src, progress, err);
	progress_stage(progress, "restoring");
	if (r == 0)
		r = restore_source_check(src, err);
	return r < 0 ? r : restore_one(l, src, &c->r, g, signal_fd, err);
}

static int run(const char *name, struct restore_command *c)
{
	struct guardian guardian = GUARDIAN_NONE;
	struct restore_source src;
	struct progress progress;
	struct launch l;
	struct err err = ERR_INIT;
	sigset_t old;
	int status;

	launch_init(&l);
	if (restore_source_open(name, &src, &err) < 0 || guardian_start(&guardian, -1, &err) < 0)
		return cmd_fail(&err);
	int signal_fd = signals_open(&old, &err);

	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	int r = signal_fd < 0 ? signal_fd : restore(&l, &src, c, &guardian, &progress, signal_fd, &err);

	progress_end(&progress);
	if (r == 0)
		guardian_forget_monitor(&guardian, 0);
	status = r == 0 ? print(&l, &src, c) : cmd_fail(&err);
	if (r < 0 && l.signal)
		status = CMD_EXIT_SIGNAL + l.signal;
	launch_end(&l, r == 0, NULL);
	restore_source_close(&src);
	guardian_finish(&guardian);
	signals_close(signal_fd, &old);
	return status;
}

int cmd_restore(int argc, char **argv)
{
	struct restore_command c = { .r = { .keep = true, .track = true } };
	struct err err = ERR_INIT;
	int status, first = cmd_parse(&help, &c, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("restore: %s: 'coffer snapshot ls' lists the snapshots",
				 first == argc ? "which snapshot?" : "one snapshot at a time");
	if (c.lazy + c.eager + c.map > 1)
		return cmd_failf("restore: only one of --map, --lazy, --eager");
	c.r.mode = c.lazy ? RESTORE_LAZY : c.eager ? RESTORE_EAGER : c.map ? RESTORE_MAP : RESTORE_AUTO;
	c.r.id = c.name;
	c.r.log_level = c.log_level;
	c.r.command = "(restored)";
	if (c.name && vmdir_check_id(c.name, &err) < 0)
		return cmd_fail(&err);
	return run(argv[first], &c);
}
