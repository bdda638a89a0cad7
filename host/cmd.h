/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every `coffer` command shares: its entry point, how it parses, helps and fails.
 *
 * A command is `int cmd_NAME(int argc, char **argv)`; argv[0] is the command's own name. It returns the
 * program's exit status. Results alone go to stdout; errors are one line on stderr ("coffer: ..."), progress goes
 * to stderr and only when that is a terminal. `coffer help NAME` is `coffer NAME --help`.
 *
 * A command describes itself by one struct cmd_help; cmd_parse answers --help from it:
 *
 *   struct ps_options { bool help, json; };
 *   static const struct opt options[] = {
 *           OPT_BOOL(struct ps_options, json, "json", 0, "print JSON"),
 *           CMD_OPT_HELP(struct ps_options), OPT_END };
 *   static const struct cmd_help help = { .usage = "ps [--json]", .summary = "list the running VMs",
 *           .options = options, .examples = "coffer ps --json | jq -r '.[].id'" };
 *
 *   int cmd_ps(int argc, char **argv)
 *   {
 *           struct ps_options o = { 0 };
 *           int status, first = cmd_parse(&help, &o, argc, argv, false, &status);
 *           if (first < 0)
 *                   return status;
 *           ...
 *   }
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "lib/err.h"
#include "lib/opt.h"

/* Exit statuses besides the guest command's own. */
enum {
	CMD_EXIT_TIMEOUT = 124,  /* --timeout ran out */
	CMD_EXIT_FAILED = 125,   /* Coffer itself could not do it */
	CMD_EXIT_NOEXEC = 126,   /* the guest command exists and cannot be run */
	CMD_EXIT_NOTFOUND = 127, /* there is no such guest command */
	CMD_EXIT_SIGNAL = 128,   /* plus the signal that ended the guest command */
};

struct cmd_help {
	const char *usage;    /* after "coffer "; several forms are separated by '\n' */
	const char *summary;  /* one line, no full stop */
	const char *text;     /* more, wrapped by hand at 80 columns; may be NULL */
	const struct opt *options;
	const char *examples; /* command lines separated by '\n' */
};

#define CMD_OPT_HELP(st) OPT_BOOL(st, help, "help", 'h', "show this help")

/* Parse argv[1..] by help->options (see opt_parse_args). Returns the index of the first operand, or -1 when the
 * command is over: *ret_status is then 0 (help was printed) or CMD_EXIT_FAILED (a line was printed). */
int cmd_parse(const struct cmd_help *help, void *dst, int argc, char **argv, bool stop_at_operand, int *ret_status);
int cmd_parse_line(const struct cmd_help *help, void *dst, int argc, char **argv, struct opt_line *line, int *ret_status);

/* `coffer COMMAND help [WORD]` as `coffer help COMMAND [WORD]`; argv[0] is "help". In main.c. */
int cmd_help_words(const char *command, int argc, char **argv);

void cmd_print_help(const struct cmd_help *help, FILE *out);

/* Print "coffer: TEXT" on stderr; returns CMD_EXIT_FAILED. */
int cmd_fail(const struct err *err);
int cmd_failf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What is worth a line on stderr although all went well; nothing when its code is 0. */
void cmd_note(const struct err *note);

/* Print and release it; NULL is an error. Texts that may be anything become JSON by json_text (json_get.h). Returns `status`,
 * or CMD_EXIT_FAILED as cmd_finish_stdout does. */
int cmd_print_json(json_t *o, int status);

/* Whether progress may be shown: stderr is a terminal that can redraw a line. */
bool cmd_progress_wanted(void);

/* Flush stdout; a failure to write results is a failure of the command (CMD_EXIT_FAILED, one line), but a reader that
 * went away is not worth a line. Returns `status` when all was written. */
int cmd_finish_stdout(int status);

int cmd_run(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_ps(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_kill(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_snapshot(int argc, char **argv);
int cmd_restore(int argc, char **argv);
int cmd_fork(int argc, char **argv);
int cmd_pack(int argc, char **argv);
int cmd_pool(int argc, char **argv);
int cmd_vnc(int argc, char **argv);
int cmd_screen(int argc, char **argv);
