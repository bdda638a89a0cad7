/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer snapshot ls, show, verify, flatten, rm: looking after what is stored.
 *
 * Trust: a manifest may be a stranger's, and `show` is how one looks at it: its texts are escaped (lib/text.h), so that none
 * can hide another from the terminal. JSON has them as they are.
 */
#include "host/cmd_snapshots.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/json_get.h"
#include "host/progress.h"
#include "host/restore.h"
#include "host/snapshot_flatten.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

static uint64_t disk_bytes(const struct snapshot_manifest *m)
{
	uint64_t n = 0;

	for (size_t i = 0; i < m->ndisks; i++)
		for (size_t k = 0; k < m->disk[i].nlayers; k++)
			n += snapshot_layer_is_remote(&m->disk[i].layer[k]) ? 0 : m->disk[i].layer[k].size;
	return n;
}

/* What `ram` takes up: it has holes where pages are zero. */
static uint64_t ram_bytes(const struct snapshot *s)
{
	struct stat st;

	return fstatat(s->fd, SNAPSHOT_RAM, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
}

static void format_time(int64_t ms, char *out, size_t len)
{
	time_t when = (time_t)(ms / 1000);
	struct tm tm;

	gmtime_r(&when, &tm);
	strftime(out, len, "%Y-%m-%d %H:%M:%S", &tm);
}

static void escape(char **text)
{
	char *shown = text_escape_dup(*text);

	if (shown == NULL)
		return;
	free(*text);
	*text = shown;
}

/* What the manifest's reader lets be any text. */
static void escape_texts(struct snapshot_manifest *m)
{
	char **const texts[] = { &m->version, &m->parent_path, &m->cmdline, &m->kvm, &m->image, &m->kernel };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		escape(texts[i]);
	for (size_t i = 0; i < m->ndisks; i++) {
		escape(&m->disk[i].path);
		escape(&m->disk[i].image);
	}
}

/* ---- ls ---- */

struct ls_options {
	bool json, help;
};

static const struct opt ls_table[] = {
	OPT_BOOL(struct ls_options, json, "json", 0, "print a JSON array"),
	CMD_OPT_HELP(struct ls_options),
	OPT_END,
};

static const struct cmd_help ls_help = {
	.usage = "snapshot ls [--json]",
	.summary = "list the snapshots of the store",
	.text = "MEMORY is the VM's, RAM and DISKS what is stored of it; layers of disks are shared by\n"
		"snapshots of one VM. PARENT: it is a diff.",
	.options = ls_table,
	.examples = "coffer snapshot ls --json | jq -r '.[].name'",
};

static json_t *summary(const struct snapshot *s)
{
	const struct snapshot_manifest *m = &s->m;

	return json_pack("{s:o s:o s:s s:s s:I s:I s:I s:I s:I s:I s:s}", "name", json_text(s->name), "path", json_text(s->path), "id", m->id,
			 "parent",
			 m->parent_id, "created_ms", (json_int_t)m->created_ms, "cpus", (json_int_t)m->cpus, "memory",
			 (json_int_t)m->memory, "ram_bytes", (json_int_t)ram_bytes(s), "disk_bytes",
					(json_int_t)disk_bytes(m),
			 "zstd_level", (json_int_t)m->level, "image", m->image ? m->image : "");
}

static int ls_json(struct snapshot *s, const struct err *problem, void *arg)
{
	json_array_append_new(arg, problem ? json_pack("{s:o s:o s:o}", "name", json_text(s->name), "path",
						       json_text(s->path), "error", json_text(problem->text)) : summary(s));
	return 0;
}

static int ls_line(struct snapshot *s, const struct err *problem, void *arg)
{
	char when[32];

	(void)arg;
	text_print_column(stdout, s->name, 24, 0);
	printf("  ");
	if (problem) {
		text_print(stdout, problem->text);
		putchar('\n');
		return 0;
	}
	const struct snapshot_manifest *m = &s->m;

	format_time(m->created_ms, when, sizeof(when));
	printf("%-19s %4" PRIu64 " %8s %8s %8s  %-8s ", when, m->cpus, TEXT_SIZE(m->memory), TEXT_SIZE(ram_bytes(s)),
	       TEXT_SIZE(disk_bytes(m)), m->level ? "zstd" : "none");
	text_print_column(stdout, m->image, 12, 24);
	printf(" %.8s\n", m->parent_id);
	return 0;
}

static int cmd_ls(int argc, char **argv)
{
	struct ls_options o = { 0 };
	struct err err = ERR_INIT;
	int status, first = cmd_parse(&ls_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first < argc)
		return cmd_failf("snapshot ls: takes no argument, not '%s'", TEXT_CUT(argv[first]));
	json_t *list = o.json ? json_array() : NULL;

	if (!o.json)
		printf("%-24s  %-19s %4s %8s %8s %8s  %-8s %-12s %s\n", "NAME", "CREATED", "CPUS", "MEMORY", "RAM",
		       "DISKS", "COMPRESS", "IMAGE",
		       "PARENT");
	if (snapshot_store_visit(o.json ? ls_json : ls_line, list, &err) < 0) {
		json_decref(list);
		return cmd_fail(&err);
	}
	return o.json ? cmd_print_json(list, 0) : cmd_finish_stdout(0);
}

/* ---- show, verify ---- */

struct name_options {
	bool json, help;
};

static const struct opt show_table[] = {
	OPT_BOOL(struct name_options, json, "json", 0, "print its manifest"),
	CMD_OPT_HELP(struct name_options),
	OPT_END,
};

static const struct cmd_help show_help = {
	.usage = "snapshot show NAME|DIR [--json]",
	.summary = "say what a snapshot is, and which files of this machine a restore would use",
	.options = show_table,
	.examples = "coffer snapshot show ready",
};

static void show_disk(const struct snapshot_disk *d, size_t number)
{
	printf("disk %zu: %s", number, TEXT_SIZE(d->size));
	if (d->kind == SNAPSHOT_DISK_LAYERS)
		printf(", %zu layers", d->nlayers);
	if (*d->path)
		printf(", %s %s%s%s%s", d->kind == SNAPSHOT_DISK_LAYERS ? "over" : "read-only", d->path,
		       *d->image ? " (image " : "", d->image,
		       *d->image ? ")" : "");
	putchar('\n');
	for (size_t k = 0; k < d->nlayers; k++) {
		const struct snapshot_layer *l = &d->layer[k];

		if (snapshot_layer_is_remote(l))
			printf("  remote: %s of %s\n", TEXT_SIZE(l->size), l->url);
		else
			printf("  %s: %s\n", l->file, TEXT_SIZE(l->size));
	}
}

static int show(const struct snapshot *s)
{
	const struct snapshot_manifest *m = &s->m;
	char when[32];

	format_time(m->created_ms, when, sizeof(when));
	printf("name: ");
	text_print(stdout, s->name);
	printf("\npath: ");
	text_print(stdout, s->path);
	printf("\nid: %s\n", m->id);
	if (m->parent_id[0])
		printf("parent: %s %s\n", m->parent_id, m->parent_path);
	printf("created: %s UTC, by coffer %s\n", when, m->version);
	printf("machine: %" PRIu64 " processors, %s\n", m->cpus, TEXT_SIZE(m->memory));
	printf("processor: %s family %u model %u stepping %u, %s\n", TEXT_CUT(m->cpu.vendor), m->cpu.family, m->cpu.model,
	       m->cpu.stepping, m->kvm);
	printf("memory: %s stored, %s\n", TEXT_SIZE(ram_bytes(s)), m->level ? "zstd" : "not compressed");
	printf("image: %s\nkernel: %s\ncommand line: %s\n", m->image, m->kernel, m->cmdline);
	for (size_t i = 0; i < m->ndevices; i++)
		printf("device: %s\n", m->device[i]);
	for (size_t i = 0; i < m->ndisks; i++)
		show_disk(&m->disk[i], i);
	return cmd_finish_stdout(0);
}

static int cmd_show(int argc, char **argv)
{
	struct name_options o = { 0 };
	struct err err = ERR_INIT;
	struct snapshot s;
	int status, first = cmd_parse(&show_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("snapshot show: which one? 'coffer snapshot ls' lists them");
	if (snapshot_open(argv[first], &s, &err) < 0)
		return cmd_fail(&err);
	if (!o.json) {
		escape_texts(&s.m);
		status = show(&s);
	} else {
		_cleanup_free_ char *text = snapshot_manifest_format(&s.m);

		fputs(text ? text : "", stdout);
		status = cmd_finish_stdout(0);
	}
	snapshot_close(&s);
	return status;
}

static const struct opt verify_table[] = {
	OPT_BOOL(struct name_options, json, "json", 0, "print JSON, damage too"),
	CMD_OPT_HELP(struct name_options),
	OPT_END,
};

static const struct cmd_help verify_help = {
	.usage = "snapshot verify NAME|DIR... [--json]",
	.summary = "read all of a snapshot and compare every checksum",
	.text = "Its parents' memory is read too. Nothing is started. Layers that had not arrived when\n"
		"it was taken are not in it and only named. The exit status is 125 when one is damaged.",
	.options = verify_table,
	.examples = "coffer snapshot verify ready",
};

/* Addresses are in printable characters. */
static json_t *list_remote(const struct snapshot_manifest *m)
{
	json_t *list = json_array();

	for (size_t i = 0; i < m->ndisks; i++)
		for (size_t k = 0; k < m->disk[i].nlayers; k++)
			if (snapshot_layer_is_remote(&m->disk[i].layer[k]))
				json_array_append_new(list, json_string(m->disk[i].layer[k].url));
	return list;
}

static void tell_good(const char *name, const struct snapshot_manifest *m)
{
	text_print(stdout, name);
	printf(": good");
	for (size_t i = 0; i < m->ndisks; i++)
		for (size_t k = 0; k < m->disk[i].nlayers; k++)
			if (snapshot_layer_is_remote(&m->disk[i].layer[k]))
				printf("; layer %zu of disk %zu is remote, not verified: %s", k + 1, i, m->disk[i].layer[k].url);
	putchar('\n');
}

/* `result` NULL: as text. */
static int verify_one(const char *name, struct progress *progress, json_t *result)
{
	struct restore_source src = RESTORE_SOURCE_NONE;
	struct err err = ERR_INIT;
	int r = restore_source_open(name, &src, &err);

	if (r == 0)
		r = restore_source_verify(&src, progress, &err);
	progress_end(progress);
	if (result)
		json_array_append_new(result, json_pack("{s:o s:b s:o* s:o*}", "name", json_text(name), "good", r >= 0, "error",
							r < 0 ? json_text(err.text) : NULL, "remote",
							r >= 0 ? list_remote(&src.snap.m) : NULL));
	else if (r >= 0)
		tell_good(name, &src.snap.m);
	restore_source_close(&src);
	if (r < 0)
		return result ? CMD_EXIT_FAILED : cmd_fail(&err);
	return 0;
}

static int cmd_verify(int argc, char **argv)
{
	struct name_options o = { 0 };
	struct progress progress;
	int status, first = cmd_parse(&verify_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("snapshot verify: which one? 'coffer snapshot ls' lists them");
	json_t *result = o.json ? json_array() : NULL;

	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	status = 0;
	for (int i = first; i < argc; i++) {
		int s = verify_one(argv[i], &progress, result);

		status = s ? s : status;
	}
	return o.json ? cmd_print_json(result, status) : cmd_finish_stdout(status);
}

/* ---- flatten ---- */

struct flatten_options {
	char *to, *compress;
	bool help;
};

static const struct opt flatten_table[] = {
	OPT_STRING(struct flatten_options, to, "to", 0, "NAME|DIR",
		   "make a new one; without it the snapshot itself is replaced"),
	OPT_STRING(struct flatten_options, compress, "compress", 0, "zstd[:LEVEL]|none",
		   "as for snapshot; as it was when not given"),
	CMD_OPT_HELP(struct flatten_options),
	OPT_END,
};

static const struct cmd_help flatten_help = {
	.usage = "snapshot flatten NAME|DIR [--to NAME|DIR] [--compress zstd[:LEVEL]|none]",
	.summary = "make a snapshot that needs no parent and has one layer for each disk",
	.text = "Its contents and its id stay the same, so diffs that have it as their parent go on working.\n"
		"Layers of the image in the store, and a disk below the layers, stay as they are.",
	.options = flatten_table,
	.examples = "coffer snapshot flatten work-20260102-030405\ncoffer snapshot flatten ready --to ready.map --compress none",
};

static int cmd_flatten(int argc, char **argv)
{
	struct flatten_options o = { 0 };
	struct err err = ERR_INIT;
	struct restore_source src;
	struct progress progress;
	int status, first = cmd_parse(&flatten_help, &o, argc, argv, false, &status);
	uint64_t level = 0;

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("snapshot flatten: which one? 'coffer snapshot ls' lists them");
	if (snapshot_level_parse(o.compress, &level, &err) < 0 || restore_source_open(argv[first], &src, &err) < 0)
		return cmd_fail(&err);
	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	int r = snapshot_flatten(&src, o.to, o.compress ? level : src.snap.m.level, &progress, &err);

	progress_end(&progress);
	restore_source_close(&src);
	return r < 0 ? cmd_fail(&err) : 0;
}

/* ---- rm ---- */

struct rm_options {
	bool force, help;
};

static const struct opt rm_table[] = {
	OPT_BOOL(struct rm_options, force, "force", 'f', "also when a diff needs it"),
	CMD_OPT_HELP(struct rm_options),
	OPT_END,
};

static const struct cmd_help rm_help = {
	.usage = "snapshot rm NAME|DIR... [--force]",
	.summary = "remove snapshots",
	.text = "VMs that run from it go on. One that is the parent of a diff in the store is refused.",
	.options = rm_table,
	.examples = "coffer snapshot rm ready",
};

struct children {
	const struct snapshot *of;
	char name[NAME_MAX + 1];
};

static int find_child(struct snapshot *s, const struct err *problem, void *arg)
{
	struct children *c = arg;

	if (problem || strcmp(s->m.parent_id, c->of->m.id) != 0)
		return 0;
	snprintf(c->name, sizeof(c->name), "%s", s->name);
	return 1;
}

/* Another one of the same id (a flattened copy) can take its place. */
static int find_same(struct snapshot *s, const struct err *problem, void *arg)
{
	const struct children *c = arg;

	return !problem && !strcmp(s->m.id, c->of->m.id) && strcmp(s->path, c->of->path) != 0;
}

static int remove_one(const char *name, bool force)
{
	struct snapshot s;
	struct err err = ERR_INIT;
	int r = snapshot_open(name, &s, &err);

	if (r == -EINVAL && force && snapshot_open_damaged(name, &s, NULL) == 0)
		r = 0;
	if (r < 0)
		return cmd_fail(&err);
	struct children c = { .of = &s };

	bool needed = !force && s.m.id[0] && snapshot_store_visit(find_child, &c, NULL) == 1;

	if (needed && snapshot_store_visit(find_same, &c, NULL) != 1)
		r = err_set(&err, -EBUSY,
			    "snapshot '%s' is the parent of '%s': 'coffer snapshot flatten %s' first, or use --force",
					s.name, c.name,
			    c.name);
	if (r == 0)
		r = snapshot_remove(&s, &err);
	snapshot_close(&s);
	return r < 0 ? cmd_fail(&err) : 0;
}

static int cmd_rm(int argc, char **argv)
{
	struct rm_options o = { 0 };
	int status, first = cmd_parse(&rm_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("snapshot rm: which one? 'coffer snapshot ls' lists them");
	status = 0;
	for (int i = first; i < argc; i++) {
		int s = remove_one(argv[i], o.force);

		status = s ? s : status;
	}
	return status;
}

int cmd_snapshots(int argc, char **argv, int *ret_status)
{
	static const struct {
		const char *word;
		int (*run)(int argc, char **argv);
	} commands[] = { { "ls", cmd_ls }, { "show", cmd_show }, { "verify", cmd_verify }, { "flatten", cmd_flatten },
			 { "rm", cmd_rm } };

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[1], commands[i].word)) {
			char name[32];

			snprintf(name, sizeof(name), "snapshot %s", argv[1]);
			argv[1] = name;
			*ret_status = commands[i].run(argc - 1, argv + 1);
			return 1;
		}
	return 0;
}
