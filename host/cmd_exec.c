/* SPDX-License-Identifier: Apache-2.0 */
/* coffer exec: runs a command in a VM that is up. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/exec.h"
#include "host/exec_options.h"
#include "host/guardian.h"
#include "host/result.h"
#include "host/signals.h"
#include "host/vm_open.h"
#include "host/vm_return.h"
#include "lib/fd.h"
#include "lib/loop.h"

struct exec_command {
	struct exec_options e;
	bool help;
};

static const struct opt options[] = {
	EXEC_OPTIONS(struct exec_command, e),
	CMD_OPT_HELP(struct exec_command),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "exec [OPTIONS] ID [--] COMMAND [ARGUMENT...]",
	.summary = "run a command in a running VM",
	.text = "Streams, signals and the exit status are as for 'coffer run'. The third Ctrl-C kills the\n"
		"command and everything it started; the VM runs on.\n"
		"\n"
		"When the VM is stopped by 'coffer snapshot --stop' and restored under the same name within\n"
		"a minute, the command and its streams go on as if nothing had been.",
	.options = options,
	.examples = "coffer exec work make -C /src\n"
		    "coffer exec -it work bash\n"
		    "echo hello | coffer exec -i work sh -c 'cat >/tmp/hello'\n"
		    "coffer exec --user www-data --cwd /srv --timeout 30 work ./job",
};

/* Run it in an opened VM. */
static int run_in(struct vm_handle *vm, const struct exec_command *o, char **argv, int signal_fd, const struct guardian *g)
{
	struct resume_source source = { .connect = vm_return_connect, .connect_again = vm_return_connect_again,
					.arg = vm };
	struct exec_spec spec = { .argv = argv, .options = &o->e, .cwd = vm->config.cwd, .user = vm->config.user,
				  .signal_fd = signal_fd, .guardian = g, .resume = &source };
	struct result_times times = { 0 };
	struct exec_result result;
	struct agent_conn *c;
	struct err err = ERR_INIT;
	enum vm_end_kind kind;
	uint64_t start = loop_now_ns();
	int r = vm_connect_agent(vm, signal_fd, &c, &err);

	if (r < 0) {
		int status = cmd_fail(&err);

		if (vm->signal)
			status = CMD_EXIT_SIGNAL + vm->signal;
		return o->e.json ? result_print(vm->dir.id, NULL, status, &err, &times) : status;
	}
	exec_run(c, &spec, &result);
	agent_close(c);
	if (result.end == EXEC_LOST && vm_explain_end(vm, &kind, &result.why) && kind == VM_END_KILLED)
		result.end = EXEC_KILLED;
	exec_explain(&result, argv[0]);
	int status = exec_status(&result);

	times.total_ms = (loop_now_ns() - start) / 1000000;
	if (o->e.json)
		status = result_print(vm->dir.id, &result, status, &result.why, &times);
	exec_result_finish(&result);
	return status;
}

int cmd_exec(int argc, char **argv)
{
	struct exec_command o = { 0 };
	struct guardian guardian = GUARDIAN_NONE;
	struct vm_handle vm;
	struct err err = ERR_INIT;
	sigset_t old;
	int status, first = cmd_parse(&help, &o, argc, argv, true, &status);

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("exec: which VM? 'coffer ps' lists them");
	const char *id = argv[first++];

	if (first < argc && !strcmp(argv[first], "--"))
		first++;
	if (first == argc)
		return cmd_failf("exec: what is to be run in '%s'?", id);
	if (exec_check_options(&o.e, &err) < 0 || vm_open(id, &vm, &err) < 0)
		return cmd_fail(&err);
	/* Only a raw terminal needs somebody to put it back. */
	if (o.e.tty && o.e.interactive && guardian_start(&guardian, STDIN_FILENO, &err) < 0)
		status = cmd_fail(&err);
	else {
		int signal_fd = signals_open(&old, &err);

		status = signal_fd < 0 ? cmd_fail(&err) : run_in(&vm, &o, argv + first, signal_fd, &guardian);
		signals_close(signal_fd, &old);
	}
	guardian_finish(&guardian);
	vm_close(&vm);
	return status;
}
