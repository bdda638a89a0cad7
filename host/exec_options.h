/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that run and exec share in their option tables. */
#pragma once
#include "host/exec.h"
#include "lib/opt.h"

/* `e` is the member of type struct exec_options in `st`. */
#define EXEC_OPTIONS(st, e)                                                                                       \
	OPT_BOOL(st, e.interactive, "interactive", 'i', "pass on stdin; without it the command reads nothing"),   \
	OPT_BOOL(st, e.tty, "tty", 't', "give the command a terminal"),                                           \
	OPT_LIST(st, e.env, "env", 'e', "NAME=VALUE", "set a variable; NAME alone passes on its value here (repeatable)"), \
	OPT_STRING(st, e.cwd, "cwd", 'w', "DIR", "working directory in the guest"),                               \
	OPT_STRING(st, e.user, "user", 'u', "USER[:GROUP]", "user in the guest, by name or number"),              \
	OPT_SECONDS(st, e.timeout, "timeout", 0, "SECONDS", "end the command after that time (exit status 124); 0: no limit"), \
	OPT_BOOL(st, e.json, "json", 0, "print one JSON object with status, output and times")
