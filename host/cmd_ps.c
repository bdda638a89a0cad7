/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer ps: the running VMs, the oldest first.
 *
 * Names are collected under the directory's lock; the monitors are asked after that, each with a time-out of its own, so
 * one that hangs delays this command and nobody else.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/cmd.h"
#include "host/control_client.h"
#include "host/json_get.h"
#include "host/vmdir.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

enum { STATUS_MS = 1000 };

struct ps_options {
	bool json, quiet, help;
};

static const struct opt options[] = {
	OPT_BOOL(struct ps_options, quiet, "quiet", 'q', "print the names only"),
	OPT_BOOL(struct ps_options, json, "json", 0, "print a JSON array"),
	CMD_OPT_HELP(struct ps_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "ps [-q | --json]",
	.summary = "list the running VMs",
	.text = "STATE is starting, running, paused, unresponsive when the monitor does not answer, or waiting:\n"
		"reads of its disk wait for the server of a remote layer ('coffer logs --monitor ID' has the\n"
		"reason; in JSON remote_wait_ms, else 0). USED is the memory of the host that the VM occupies\n"
		"now. What cannot be told is '?', and null in JSON.",
	.options = options,
	.examples = "coffer ps\ncoffer ps --json | jq -r '.[] | select(.state == \"paused\") | .id'\ncoffer kill $(coffer ps -q)",
};

struct row {
	struct vm_config config; /* the id alone when `unknown` */
	bool unknown;
	struct err why;          /* why */
	const char *state;
	pid_t pid;
	uint64_t used, uptime_ms, exits, wait_ms;
};

struct rows {
	struct row *row;
	size_t n, size;
	bool no_memory;
};

static void collect(const char *id, int dirfd, void *arg)
{
	struct rows *rows = arg;
	struct row row = { .state = "starting" };

	if (rows->n == rows->size) {
		size_t size = rows->size ? rows->size * 2 : 16;
		struct row *bigger = realloc(rows->row, size * sizeof(*bigger));

		if (!bigger) {
			rows->no_memory = true;
			return;
		}
		rows->row = bigger;
		rows->size = size;
	}
	row.unknown = vmdir_read_config(dirfd, &row.config, &row.why) < 0; /* being made, or damaged */
	snprintf(row.config.id, sizeof(row.config.id), "%s", id);
	rows->row[rows->n++] = row;
}

static int by_age(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->config.created_ms != y->config.created_ms)
		return x->config.created_ms < y->config.created_ms ? -1 : 1;
	return strcmp(x->config.id, y->config.id);
}

static void take_reply(struct row *row, const struct control_reply *reply)
{
	uint64_t state = le64_get(reply->value[CONTROL_V_STATE]);

	row->state = state == VM_RUNNING ? "running" : state == VM_PAUSED ? "paused" : state == VM_STOPPED ? "stopped" : "starting";
	row->pid = (pid_t)le64_get(reply->value[CONTROL_V_PID]);
	row->used = le64_get(reply->value[CONTROL_V_RESIDENT]);
	row->uptime_ms = le64_get(reply->value[CONTROL_V_UPTIME_MS]);
	row->wait_ms = le64_get(reply->value[CONTROL_V_REMOTE_WAIT_MS]);
	row->exits = le64_get(reply->value[CONTROL_V_EXITS]);
}

/* A VM that is being made has no configuration yet, which is worth no word. */
static void warn_unknown(const struct row *row, const char *path)
{
	if (!row->unknown || (row->why.code == -ENOENT && !strcmp(row->state, "starting")))
		return;
	cmd_failf("VM '%s': %s (in %s): 'coffer kill %s' ends it", row->config.id, row->why.text, path, row->config.id);
}

/* false when the VM has ended meanwhile. */
static bool ask(struct row *row)
{
	struct vmdir d;
	struct control_reply reply;
	int live = vmdir_open_any(row->config.id, &d, NULL);

	if (live < 0)
		return false;
	int r = live ? control_call(d.fd, CONTROL_STATUS, 0, control_deadline(STATUS_MS), &reply, NULL) : 0;

	if (live && r == 0)
		take_reply(row, &reply);
	else if (r == -ETIMEDOUT)
		row->state = "unresponsive"; /* else: no socket yet */
	if (live)
		warn_unknown(row, d.path);
	vmdir_close(&d);
	return live;
}

static void print_age(int64_t created_ms)
{
	struct timespec now;
	char text[32];

	clock_gettime(CLOCK_REALTIME, &now);
	long long s = MAX((long long)now.tv_sec - created_ms / 1000, 0LL);

	if (!created_ms)
		snprintf(text, sizeof(text), "-");
	else if (s < 60)
		snprintf(text, sizeof(text), "%llds", s);
	else if (s < 3600)
		snprintf(text, sizeof(text), "%lldm%02llds", s / 60, s % 60);
	else if (s < 86400)
		snprintf(text, sizeof(text), "%lldh%02lldm", s / 3600, s / 60 % 60);
	else
		snprintf(text, sizeof(text), "%lldd%02lldh", s / 86400, s / 3600 % 24);
	printf("%8s", text);
}

/* A VM whose reads wait runs, but whoever wonders why nothing happens looks here. */
static const char *shown_state(const struct row *r)
{
	return r->wait_ms > 0 && !strcmp(r->state, "running") ? "waiting" : r->state;
}

static void print_table(const struct rows *rows)
{
	int width = 8;

	for (size_t i = 0; i < rows->n; i++)
		width = MAX(width, (int)strlen(rows->row[i].config.id));
	printf("%-*s  %-12s %4s %8s %8s %8s  %-12s %s\n", width, "ID", "STATE", "CPUS", "MEMORY", "USED", "AGE", "IMAGE", "COMMAND");
	for (size_t i = 0; i < rows->n; i++) {
		const struct row *r = &rows->row[i];

		if (r->unknown) {
			printf("%-*s  %-12s %4s %8s %8s %8s  %-12s %s\n", width, r->config.id, shown_state(r), "?", "?", TEXT_SIZE(r->used), "?",
			       "?", "?");
			continue;
		}
		printf("%-*s  %-12s %4llu %8s %8s ", width, r->config.id, shown_state(r), (unsigned long long)r->config.cpus,
		       TEXT_SIZE(r->config.memory), TEXT_SIZE(r->used));
		print_age(r->config.created_ms);
		printf("  ");
		text_print_column(stdout, r->config.image, 12, 24);
		putchar(' ');
		text_print_column(stdout, r->config.command, 0, 60);
		putchar('\n');
	}
}

/* What is not known is null. */
static json_t *row_json(const struct row *r)
{
	const struct vm_config *c = &r->config;
	json_t *o = json_pack("{s:s s:s s:I s:I s:I s:I s:I}", "id", c->id, "state", r->state, "pid", (json_int_t)r->pid, "used",
			      (json_int_t)r->used, "uptime_ms", (json_int_t)r->uptime_ms, "exits", (json_int_t)r->exits,
			      "remote_wait_ms", (json_int_t)r->wait_ms);
	json_t *more = r->unknown ? json_pack("{s:n s:n s:n s:n s:n s:n s:n s:n}", "cpus", "memory", "created_ms", "image", "kernel",
					      "command", "keep", "display") :
				    json_pack("{s:I s:I s:I s:o s:o s:o s:b s:o}", "cpus", (json_int_t)c->cpus, "memory",
					      (json_int_t)c->memory, "created_ms", (json_int_t)c->created_ms, "image",
					      json_text(c->image), "kernel", json_text(c->kernel), "command", json_text(c->command),
					      "keep", c->keep, "display", c->display[0] ? json_text(c->display) : json_null());

	json_object_update(o, more);
	json_decref(more);
	return o;
}

static int print_json(const struct rows *rows)
{
	json_t *list = json_array();

	for (size_t i = 0; i < rows->n; i++)
		json_array_append_new(list, row_json(&rows->row[i]));
	return cmd_print_json(list, 0);
}

static int print(const struct ps_options *o, const struct rows *rows)
{
	if (o->json)
		return print_json(rows);
	if (o->quiet)
		for (size_t i = 0; i < rows->n; i++)
			puts(rows->row[i].config.id);
	else
		print_table(rows);
	return 0;
}

int cmd_ps(int argc, char **argv)
{
	struct ps_options o = { 0 };
	struct rows rows = { 0 };
	struct err err = ERR_INIT;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);
	size_t kept = 0;

	if (first < 0)
		return status;
	if (first < argc)
		return cmd_failf("ps: takes no argument, not '%s'", TEXT_CUT(argv[first]));
	if (o.quiet && o.json)
		return cmd_failf("ps: either --quiet or --json");
	/* What cannot be removed is worth a word, and no reason not to list what runs. */
	int swept = vmdir_sweep(collect, &rows, &err);

	for (size_t i = 0; i < rows.n; i++) {
		if (ask(&rows.row[i]))
			rows.row[kept++] = rows.row[i];
		else
			vm_config_finish(&rows.row[i].config);
	}
	rows.n = kept;
	if (rows.n > 0)
		qsort(rows.row, rows.n, sizeof(*rows.row), by_age);
	status = 0;
	if (rows.no_memory)
		status = cmd_failf("ps: out of memory");
	else if (swept == 0 || rows.n > 0)
		status = print(&o, &rows);
	if (swept < 0)
		status = cmd_fail(&err);
	for (size_t i = 0; i < rows.n; i++)
		vm_config_finish(&rows.row[i].config);
	free(rows.row);
	return cmd_finish_stdout(status);
}
