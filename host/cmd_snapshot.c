/* SPDX-License-Identifier: Apache-2.0 */
/* coffer snapshot: takes one of a running VM. Its subcommands (ls, show, ...) are in cmd_snapshots.c. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/cmd_snapshots.h"
#include "host/control_client.h"
#include "host/json_get.h"
#include "host/snapshot_take.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"
#include "snapshot/ram.h"

enum { LEVEL_DEFAULT = 3 };

struct take_options {
	char *to, *compress;
	bool diff, stop, freeze, no_sync, json, help;
};

static const struct opt options[] = {
	OPT_STRING(struct take_options, to, "to", 0, "NAME|DIR",
		   "its name in the store, or its directory (with a / in it); ID-DATE-TIME when not given"),
	OPT_BOOL(struct take_options, diff, "diff", 0,
		 "store only the memory that changed since the VM's last snapshot or restore"),
	OPT_STRING(struct take_options, compress, "compress", 0, "zstd[:LEVEL]|none",
		   "memory: zstd is smaller, none (the default) can be mapped and shared by many VMs"),
	OPT_BOOL(struct take_options, stop, "stop", 0, "end the VM when the snapshot is complete"),
	OPT_BOOL(struct take_options, freeze, "freeze", 0,
		 "the guest's root file system is frozen for the moment of the snapshot: programs that write wait"),
	OPT_BOOL(struct take_options, no_sync, "no-sync", 0, "do not flush the guest's file systems first"),
	OPT_BOOL(struct take_options, json, "json", 0, "print a JSON object"),
	CMD_OPT_HELP(struct take_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "snapshot ID [OPTIONS]\nsnapshot ls|show|verify|flatten|rm ...",
	.summary = "store a VM's memory and disks, or look after what is stored",
	.text = "The VM goes on afterwards, and stands still only for what is changed while it is saved.\n"
		"A snapshot is one directory; it becomes visible when it is complete. It stays\n"
		"usable when the VM, or the snapshot the VM was restored from, is removed; a diff\n"
		"needs its parent.\n"
		"\n"
		"'coffer snapshot help ls' and so on explain the others. A VM with such a name:\n"
		"'coffer snapshot -- ls'.",
	.options = options,
	.examples = "coffer snapshot work --to ready\n"
		    "coffer snapshot work --to /srv/snapshots/monday --compress zstd --stop\n"
		    "coffer snapshot work --diff\n"
		    "coffer restore ready",
};

int snapshot_level_parse(const char *text, uint64_t *ret, struct err *err)
{
	if (!text || !strcmp(text, "none")) {
		*ret = 0;
		return 0;
	}
	if (!strcmp(text, "zstd")) {
		*ret = LEVEL_DEFAULT;
		return 0;
	}
	if (!strncmp(text, "zstd:", 5) && opt_parse_u64(text + 5, ret) == 0 && *ret >= 1 && *ret <= RAM_LEVEL_MAX)
		return 0;
	return err_set(err, -EINVAL, "--compress '%s': the form is none, zstd or zstd:LEVEL with LEVEL from 1 to %d",
		       text, RAM_LEVEL_MAX);
}

static void default_name(const char *id, char *out, size_t len)
{
	time_t now = time(NULL);
	struct tm tm;
	char when[32];

	gmtime_r(&now, &tm);
	strftime(when, sizeof(when), "%Y%m%d-%H%M%S", &tm);
	snprintf(out, len, "%s-%s", id, when);
}

static int print(const struct take_options *o, const struct snapshot_take *t)
{
	double pause_ms = (double)t->pause_ns / 1e6, total_s = (double)t->total_ns / 1e9;
	double frozen_ms = (double)t->frozen_ns / 1e6;
	uint64_t memory = t->pages * 4096;

	if (!o->json) {
		cmd_note(&t->note);
		text_print(stdout, t->draft.name);
		printf(": %s of memory in %s, %s of disks, %.1f s, paused for %.1f ms", TEXT_SIZE(memory), TEXT_SIZE(t->ram_bytes),
		       TEXT_SIZE(t->disk_bytes), total_s, pause_ms);
		if (t->frozen_ns)
			printf(", frozen for %.1f ms", frozen_ms);
		putchar('\n');
		return cmd_finish_stdout(0);
	}
	char path[PATH_MAX + NAME_MAX + 2];

	snprintf(path, sizeof(path), "%s/%s", t->draft.dir, t->draft.name);
	return cmd_print_json(json_pack("{s:o s:o s:s s:s s:f s:f s:f s:I s:I s:I s:I s:I s:s?}", "name", json_text(t->draft.name), "path",
					json_text(path), "id", t->m.id, "parent", t->m.parent_id, "pause_ms", pause_ms, "frozen_ms",
					frozen_ms, "total_ms", (double)t->total_ns / 1e6, "rounds", (json_int_t)t->rounds, "pages",
					(json_int_t)t->pages, "pages_in_pause", (json_int_t)t->final_pages, "memory_bytes",
					(json_int_t)t->ram_bytes, "disk_bytes", (json_int_t)t->disk_bytes, "left_out",
					t->note.code ? t->note.text : NULL),
			      0);
}

static int end_vm(struct vm_handle *vm, struct err *err)
{
	int r = control_end_saved(vm->dir.fd, err);

	return r < 0 ? r : vmdir_remove(&vm->dir, err);
}

static int take(struct vm_handle *vm, const struct take_options *o, struct snapshot_take *t, struct err *err)
{
	char name[VMDIR_ID_MAX + 40];

	default_name(vm->dir.id, name, sizeof(name));
	t->to = o->to ? o->to : name;
	int r = snapshot_take(vm, t, err);

	if (r < 0)
		return r;
	progress_stage(t->progress, "writing to disk");
	r = snapshot_draft_publish(&t->draft, &t->m, false, err);
	if (r < 0) {
		snapshot_take_resume(vm, t);
		return r;
	}
	return o->stop ? end_vm(vm, err) : snapshot_take_remember(vm, t, err);
}

int cmd_snapshot(int argc, char **argv)
{
	struct take_options o = { 0 };
	struct err err = ERR_INIT;
	struct progress progress;
	struct vm_handle vm;
	int status, first = argc > 1 ? cmd_snapshots(argc, argv, &status) : 0;

	if (!first && argc > 1 && !strcmp(argv[1], "help"))
		return cmd_help_words("snapshot", argc - 1, argv + 1);
	if (first)
		return status;
	first = cmd_parse(&help, &o, argc, argv, false, &status);
	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("snapshot: %s: 'coffer ps' lists the VMs",
				 first == argc ? "of which VM?" : "one VM at a time, its snapshot's name is --to NAME");
	if (o.freeze && o.no_sync)
		return cmd_failf("snapshot: either --freeze or --no-sync");
	struct snapshot_take t = { .diff = o.diff, .freeze = o.freeze, .no_sync = o.no_sync, .stop = o.stop,
				   .track = true, .lock = -1, .progress = &progress };

	if (snapshot_level_parse(o.compress, &t.level, &err) < 0 || vm_open(argv[first], &vm, &err) < 0)
		return cmd_fail(&err);
	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	int r = take(&vm, &o, &t, &err);

	progress_end(&progress);
	if (r < 0) {
		struct err why = ERR_INIT;

		if ((r == -ECONNRESET || r == -ECONNREFUSED || r == -ENOENT) && vm_explain_end(&vm, NULL, &why))
			err = why;
		else
			err_prefix(&err, "snapshot of '%s': ", argv[first]);
		status = cmd_fail(&err);
	} else {
		status = print(&o, &t);
	}
	snapshot_take_finish(&t);
	vm_close(&vm);
	return status;
}
