/* SPDX-License-Identifier: Apache-2.0 */
/* coffer doctor: the facts of doctor.h, one line each, and the verdict. */
#include <stdio.h>

#include "host/cmd.h"
#include "host/doctor.h"
#include "host/json_get.h"
#include "lib/text.h"

struct doctor_options {
	bool json, verdict, help;
};

static const struct opt options[] = {
	OPT_BOOL(struct doctor_options, verdict, "verdict", 0, "print one word only: full, partial or none"),
	OPT_BOOL(struct doctor_options, json, "json", 0, "print JSON"),
	CMD_OPT_HELP(struct doctor_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "doctor [--verdict | --json]",
	.summary = "say whether this machine can run VMs",
	.text = "One line for each thing that was looked at, and a verdict:\n"
		"  full     Linux guests run here\n"
		"  partial  there is a /dev/kvm that runs tiny test payloads, but no Linux\n"
		"  none     VMs cannot run\n"
		"The exit status is 0 for full and 1 otherwise.",
	.options = options,
	.examples = "coffer doctor\ncoffer doctor --json | jq -r .verdict",
};

static int print_json(const struct doctor_report *r)
{
	json_t *checks = json_array();

	for (size_t i = 0; i < r->nlines; i++)
		json_array_append_new(checks, json_pack("{s:s s:s s:o}", "name", r->line[i].name, "level",
							doctor_level_name(r->line[i].level), "text", json_text(r->line[i].text)));
	return cmd_print_json(json_pack("{s:s s:o s:o}", "verdict", doctor_verdict_name(r->verdict), "text", json_text(r->text), "checks",
					checks),
			      r->verdict == DOCTOR_FULL ? 0 : 1);
}

static void print_line(const char *name, const char *level, const char *text)
{
	printf("%-13s %-8s ", name, level);
	text_print(stdout, text);
	putchar('\n');
}

static void print_text(const struct doctor_report *r)
{
	for (size_t i = 0; i < r->nlines; i++)
		print_line(r->line[i].name, doctor_level_name(r->line[i].level), r->line[i].text);
	print_line("verdict", doctor_verdict_name(r->verdict), r->text);
}

int cmd_doctor(int argc, char **argv)
{
	struct doctor_options o = { 0 };
	struct doctor_facts facts = { 0 };
	struct doctor_report report;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first < argc)
		return cmd_failf("doctor: takes no argument, not '%s'", argv[first]);
	if (o.verdict && o.json)
		return cmd_failf("doctor: either --verdict or --json");
	doctor_gather_kvm("", &facts);
	doctor_gather_rest("", &facts);
	doctor_judge(&facts, &report);
	if (o.json)
		return print_json(&report);
	if (o.verdict)
		puts(doctor_verdict_name(report.verdict));
	else
		print_text(&report);
	return cmd_finish_stdout(report.verdict == DOCTOR_FULL ? 0 : 1);
}
