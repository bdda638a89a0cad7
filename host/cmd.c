/* SPDX-License-Identifier: Apache-2.0 */
/* What every command shares: see cmd.h. */
#include "host/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/text.h"

/* The bool that CMD_OPT_HELP put into the table, or NULL. */
static const bool *help_flag(const struct opt *table, const void *options)
{
	for (const struct opt *o = table; o && o->type != OPT_TYPE_END; o++)
		if (o->type == OPT_TYPE_BOOL && !strcmp(o->name, "help"))
			return (const bool *)((const char *)options + o->offset);
	return NULL;
}

int cmd_parse(const struct cmd_help *help, void *dst, int argc, char **argv, bool stop_at_operand, int *ret_status)
{
	struct opt_line line = { .stop_at_operand = stop_at_operand };

	return cmd_parse_line(help, dst, argc, argv, &line, ret_status);
}

int cmd_parse_line(const struct cmd_help *help, void *dst, int argc, char **argv, struct opt_line *line, int *ret_status)
{
	struct err err = ERR_INIT;
	int first = opt_parse_line(help->options, dst, argc, argv, line, &err);
	const bool *wanted = help_flag(help->options, dst);

	if (wanted && *wanted) {
		cmd_print_help(help, stdout);
		*ret_status = cmd_finish_stdout(0);
		return -1;
	}
	if (first < 0) {
		err_prefix(&err, "%s: ", argv[0]);
		*ret_status = cmd_fail(&err);
		return -1;
	}
	return first;
}

/* Every line of `text` after `indent`. */
static void print_lines(FILE *out, const char *indent, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		if (n)
			fprintf(out, "%s%.*s\n", indent, (int)n, text);
		else
			fputc('\n', out);
		text += n + (text[n] == '\n');
	}
}

void cmd_print_help(const struct cmd_help *help, FILE *out)
{
	fprintf(out, "Usage:\n");
	print_lines(out, "  coffer ", help->usage);
	fprintf(out, "\n%c%s.\n", help->summary[0] >= 'a' && help->summary[0] <= 'z' ? help->summary[0] - 'a' + 'A' :
		help->summary[0], help->summary + 1);
	if (help->text) {
		fputc('\n', out);
		print_lines(out, "", help->text);
	}
	if (help->options) {
		fprintf(out, "\nOptions:\n");
		opt_print_help(help->options, out);
	}
	if (help->examples) {
		fprintf(out, "\nExamples:\n");
		print_lines(out, "  ", help->examples);
	}
}

int cmd_fail(const struct err *err)
{
	fputs("coffer: ", stderr);
	text_print(stderr, err->text[0] ? err->text : "unknown error");
	fputc('\n', stderr);
	return CMD_EXIT_FAILED;
}

int cmd_failf(const char *fmt, ...)
{
	char text[2 * ERR_MAX]; /* err_set cuts it */
	struct err err = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	err_set(&err, -EINVAL, "%s", text);
	return cmd_fail(&err);
}

void cmd_note(const struct err *note)
{
	if (note->code != 0)
		cmd_fail(note);
}

int cmd_print_json(json_t *o, int status)
{
	_cleanup_free_ char *text = o ? json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;

	json_decref(o);
	if (!text)
		return cmd_failf("out of memory");
	puts(text);
	return cmd_finish_stdout(status);
}

bool cmd_progress_wanted(void)
{
	const char *term = getenv("TERM");

	return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

int cmd_finish_stdout(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (errno == EPIPE)
		return CMD_EXIT_FAILED;
	return cmd_failf("write to stdout: %s", strerror(errno));
}
