/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-agent: runs in the guest and does there what the host asks (docs/agent-protocol.md).
 *
 * As PID 1 it takes no options: the kernel command line speaks. Otherwise it is told whether it serves a guest that
 * has its own init (--service) or a Unix socket (--listen-unix), and whether there is a session to keep.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest/agent/boot.h"
#include "guest/agent/cgroup.h"
#include "guest/agent/supervisor.h"

static int usage(FILE *out, int status)
{
	fputs("usage: coffer-agent --service [--cgroup DIR] [--session PROGRAM]\n"
	      "       coffer-agent --listen-unix PATH [--ready-unix PATH] [--cgroup DIR] [--session PROGRAM]\n"
	      "       coffer-agent --version\n"
	      "\n"
	      "Serves the host's requests in a guest. As PID 1 it takes no options.\n"
	      "\n"
	      "  --service           serve on vsock in a guest that has its own init\n"
	      "  --listen-unix PATH  serve on a Unix socket; the machine is left alone\n"
	      "  --ready-unix PATH   connect there when ready and say so\n"
	      "  --cgroup DIR        make a control group (v2) for each command below DIR\n"
	      "  --session PROGRAM   start this desktop's session, and again when it ends\n",
	      out);
	return status;
}

/* -1: go on, otherwise the exit status. */
static int parse(struct agent *a, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const char **value = NULL;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return usage(stdout, 0);
		if (strcmp(argv[i], "--version") == 0) {
			puts("coffer-agent " COFFER_VERSION);
			return 0;
		}
		if (strcmp(argv[i], "--service") == 0) {
			a->mode = AGENT_SERVICE;
			continue;
		}
		if (strcmp(argv[i], "--listen-unix") == 0)
			value = &a->listen_path;
		else if (strcmp(argv[i], "--ready-unix") == 0)
			value = &a->ready_path;
		else if (strcmp(argv[i], "--cgroup") == 0)
			value = &a->cgroup_path;
		else if (strcmp(argv[i], "--session") == 0)
			value = &a->session_path;
		if (!value) {
			fprintf(stderr, "coffer-agent: option '%s' is not known; see coffer-agent --help\n", argv[i]);
			return 1;
		}
		if (++i == argc) {
			fprintf(stderr, "coffer-agent: option '%s' needs a value\n", argv[i - 1]);
			return 1;
		}
		*value = argv[i];
	}
	if (a->listen_path)
		a->mode = AGENT_UNIX;
	else if (a->mode == AGENT_INIT || a->ready_path)
		return usage(stderr, 1);
	return -1;
}

/* Descriptors 0, 1 and 2 must be taken, or a command's pipes could end up there. */
static void fill_standard_fds(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd < 3);
	if (fd >= 3)
		close(fd);
}

int main(int argc, char **argv)
{
	static const char service_cgroup[] = "/sys/fs/cgroup/coffer";
	struct agent a = { .mode = AGENT_INIT, .console = 2, .writable_fd = -1, .cgroup_fd = -1, .root = "service", .overlay = "none" };
	struct err err = ERR_INIT;
	int status;

	/* The kernel hands words of its command line that nobody knows to init: they are no options of ours. */
	if (getpid() == 1 && (argc == 1 || strncmp(argv[1], "--", 2) != 0)) {
		boot_machine(&a);
	} else {
		status = parse(&a, argc, argv);
		if (status >= 0)
			return status;
		fill_standard_fds();
		if (a.mode == AGENT_SERVICE && !a.cgroup_path)
			a.cgroup_path = service_cgroup;
		if (a.cgroup_path)
			a.cgroup_fd = cgroup_open_base(a.cgroup_path, &err);
		if (a.cgroup_path && a.cgroup_fd < 0)
			agent_say(&a, "%s; commands get none", err.text);
		if (a.session_path)
			boot_start_session(&a, a.session_path, "");
	}
	status = supervisor_run(&a);
	if (a.listen_path)
		unlink(a.listen_path);
	return status;
}
