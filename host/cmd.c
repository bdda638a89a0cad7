/* SPDX-License-Identifier: Apache-2.0 */
/* What every command shares: see cmd.h. */
#include "host/cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	struct err err = ERR_INIT;
	int first = opt_parse_args(help->options, dst, argc, argv, stop_at_operand, &err);
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
	fprintf(stderr, "coffer: %s\n", err->text[0] ? err->text : "unknown error");
	return CMD_EXIT_FAILED;
}

int cmd_failf(const char *fmt, ...)
{
	struct err err = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err.text, sizeof(err.text), fmt, ap);
	va_end(ap);
	return cmd_fail(&err);
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
