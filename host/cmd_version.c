/* SPDX-License-Identifier: Apache-2.0 */
/* coffer version */
#include <stdio.h>

#include "guest/proto.h"
#include "host/cmd.h"
#include "vmm/control.h"

struct version_options {
	bool json, help;
};

static const struct opt options[] = {
	OPT_BOOL(struct version_options, json, "json", 0, "print JSON"),
	CMD_OPT_HELP(struct version_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "version [--json]",
	.summary = "print the version",
	.options = options,
	.examples = "coffer version",
};

int cmd_version(int argc, char **argv)
{
	struct version_options o = { 0 };
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first < argc)
		return cmd_failf("version: takes no argument, not '%s'", argv[first]);
	if (o.json)
		printf("{\"version\": \"%s\", \"agent_protocol\": %d, \"control_protocol\": %d}\n", COFFER_VERSION,
		       AGENT_PROTO_VERSION, CONTROL_VERSION);
	else
		printf("coffer %s\n", COFFER_VERSION);
	return cmd_finish_stdout(0);
}
