/* SPDX-License-Identifier: Apache-2.0 */
/* coffer cp: files and trees into and out of a VM. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/copy.h"
#include "host/signals.h"
#include "host/vm_open.h"

struct cp_options {
	bool archive, help;
};

static const struct opt options[] = {
	OPT_BOOL(struct cp_options, archive, "archive", 'a', "keep numeric users and groups too"),
	CMD_OPT_HELP(struct cp_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "cp [-a] PATH ID:PATH\ncp [-a] ID:PATH PATH",
	.summary = "copy files and trees into and out of a VM",
	.text = "As cp -R: into the target when that is a directory, else under its name; a directory that exists\n"
		"is merged into. Modes and times are kept; what is made belongs to root in the guest and to you\n"
		"here, unless -a. A symbolic link named on the command line is followed, links inside a tree are\n"
		"copied as links. '-' in place of the PATH here is a tar stream at stdin or stdout. A PATH\n"
		"here with a colon in it is written with a slash: ./a:b",
	.options = options,
	.examples = "coffer cp src/ work:/src\n"
		    "coffer cp work:/src/build/app .\n"
		    "coffer cp work:/var/log - | tar tv",
};

/* "ID:PATH": the path, with *ret_id the text before the colon; NULL for a path of the host. */
static const char *split_remote(const char *arg, char *ret_id, size_t size)
{
	const char *colon = strchr(arg, ':'), *slash = strchr(arg, '/');

	if (!colon || colon == arg || (slash && slash < colon) || (size_t)(colon - arg) >= size)
		return NULL;
	memcpy(ret_id, arg, (size_t)(colon - arg));
	ret_id[colon - arg] = 0;
	return colon + 1;
}

struct context {
	struct vm_handle vm;
	int signal_fd;
};

static int connect_vm(void *arg, struct agent_conn **ret, struct err *err)
{
	struct context *x = arg;

	return vm_connect_agent(&x->vm, x->signal_fd, ret, err);
}

static int copy(struct context *x, const struct cp_options *o, const char *source, const char *target, bool in, struct err *err)
{
	struct progress progress;
	struct copy_guest g = { .connect = connect_vm, .arg = x, .keep_owner = o->archive, .progress = &progress };

	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, x->signal_fd);
	progress_stage(&progress, "copying");
	int r = in ? copy_in(&g, source, target, err) : copy_out(&g, source, target, err);

	progress_end(&progress);
	if (r == -ECONNRESET || r == -EPIPE)
		vm_explain_end(&x->vm, NULL, err);
	return r;
}

int cmd_cp(int argc, char **argv)
{
	struct cp_options o = { 0 };
	struct context x = { .signal_fd = -1 };
	struct err err = ERR_INIT;
	char from_id[256], to_id[256];
	sigset_t old;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 2)
		return cmd_failf("cp: needs a source and a target, one of them as ID:PATH");
	const char *from = split_remote(argv[first], from_id, sizeof(from_id));
	const char *to = split_remote(argv[first + 1], to_id, sizeof(to_id));

	if (!from == !to)
		return cmd_failf(from ? "cp: between two VMs: copy to a place here first" :
				 "cp: one of the two must be in a VM: ID:PATH");
	if (!*(from ? from : to))
		return cmd_failf("cp: which path in the VM? '%s' has none after the colon", from ? argv[first] : argv[first + 1]);
	if (vm_open(from ? from_id : to_id, &x.vm, &err) < 0)
		return cmd_fail(&err);
	x.signal_fd = signals_open(&old, &err);
	int r = x.signal_fd < 0 ? x.signal_fd : copy(&x, &o, from ? from : argv[first], from ? argv[first + 1] : to, !from, &err);

	signals_close(x.signal_fd, &old);
	vm_close(&x.vm);
	if (r == -EINTR || r == -ECANCELED)
		return CMD_EXIT_SIGNAL + SIGINT;
	if (r < 0) {
		err_prefix(&err, "cp: ");
		return cmd_fail(&err);
	}
	return 0;
}
