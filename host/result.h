/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON object that run --json and exec --json end with. */
#pragma once
#include <stdint.h>

#include "host/exec.h"

struct result_times {
	uint64_t boot_ms;  /* from the monitor's start to the agent's ready line; 0: no boot */
	uint64_t ready_ms; /* from the command's start until the guest took commands */
	uint64_t total_ms;
};

/* Print it on stdout. id: the VM's, may be "". result NULL: there was no command (why says what failed). */
int result_print(const char *id, const struct exec_result *result, int status, const struct err *why,
		 const struct result_times *times);
