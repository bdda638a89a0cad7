/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer: the one command. Picks the command from the table below and runs it; everything else is in cmd_*.c.
 *
 * Descriptors 0 to 2 are opened when the caller closed them, so that no socket or disk ever lands there: stdin then
 * reads as empty, and writing results to a closed stdout is an error, as it should be. SIGPIPE is ignored; commands
 * see EPIPE and decide. The soft limit of descriptors is raised to the hard one, also for the monitors, which
 * inherit it: every layer of every disk takes one there, and every clone or shell several here.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/cmd.h"
#include "lib/util.h"

struct command {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
	const char *words; /* its own commands, each between blanks; NULL: none */
};

static int cmd_help_on(int argc, char **argv);

static const struct command commands[] = {
	{ "run", "start a VM and run a command in it", cmd_run, NULL },
	{ "exec", "run a command in a running VM", cmd_exec, NULL },
	{ "cp", "copy files and trees into and out of a VM", cmd_cp, NULL },
	{ "ps", "list the running VMs", cmd_ps, NULL },
	{ "logs", "show a VM's serial console", cmd_logs, NULL },
	{ "pause", "stop a VM's processors", cmd_pause, NULL },
	{ "resume", "let a paused VM go on", cmd_resume, NULL },
	{ "kill", "end a VM and remove what it used", cmd_kill, NULL },
	{ "snapshot", "store a VM's memory and disks, and look after what is stored", cmd_snapshot, " ls show verify flatten rm " },
	{ "restore", "start a VM from a snapshot", cmd_restore, NULL },
	{ "fork", "start many VMs from a running one or a snapshot", cmd_fork, NULL },
	{ "pack", "make an image of what a VM has on its root disk", cmd_pack, NULL },
	{ "pool", "keep machines ready for a snapshot", cmd_pool, NULL },
	{ "vnc", "show a VM's screen to VNC viewers and browsers", cmd_vnc, NULL },
	{ "screen", "look at a VM's screen, click and type on it", cmd_screen, NULL },
	{ "image", "build, look at and remove root disk images", cmd_image, " build import ls show tree diff verify export pull fetch rm prune " },
	{ "doctor", "say whether this machine can run VMs", cmd_doctor, NULL },
	{ "version", "print the version", cmd_version, NULL },
	{ "help", "explain a command", cmd_help_on, NULL },
};

static const char overview[] =
	"\n"
	"Exit status: that of the command in the VM, 128+N when signal N ended it,\n"
	"124 on time-out, 125 when Coffer failed, 126 or 127 when the command could\n"
	"not be run or was not found.\n"
	"\n"
	"Examples:\n"
	"  coffer image build debian\n"
	"  coffer run -- python3 -c 'print(6 * 7)'\n"
	"  coffer run --keep --name work -- true\n"
	"  coffer exec -it work bash\n"
	"  coffer kill work\n"
	"\n"
	"'coffer help COMMAND' says more.\n";

static void print_overview(FILE *out)
{
	fprintf(out, "Usage:\n  coffer COMMAND [OPTIONS] [ARGUMENTS]\n\nRun commands in microVMs.\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		fprintf(out, "  %-10s%s\n", commands[i].name, commands[i].summary);
	fputs(overview, out);
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	return cmd_failf("there is no command '%s': see 'coffer help'", name);
}

static bool has_word(const struct command *c, const char *word)
{
	char text[32];

	return c->words && snprintf(text, sizeof(text), " %s ", word) < (int)sizeof(text) && strstr(c->words, text);
}

static int cmd_help_on(int argc, char **argv)
{
	static char help_option[] = "--help";

	if (argc < 2 || argv[1][0] == '-' || !strcmp(argv[1], "help")) {
		print_overview(stdout);
		return cmd_finish_stdout(0);
	}
	const struct command *c = find_command(argv[1]);

	if (!c)
		return unknown_command(argv[1]);
	if (argc == 2)
		return c->run(2, (char *[]){ argv[1], help_option, NULL });
	if (!has_word(c, argv[2]))
		return cmd_failf("help: %s has no command '%s': see 'coffer help %s'", argv[1], argv[2], argv[1]);
	if (argc > 3)
		return cmd_failf("help: '%s' is one word too many", argv[3]);
	return c->run(3, (char *[]){ argv[1], argv[2], help_option, NULL });
}

int cmd_help_words(const char *command, int argc, char **argv)
{
	char *words[4] = { argv[0], (char *)command };
	int n = argc < 3 ? argc : 3;

	for (int i = 1; i < n; i++)
		words[i + 1] = argv[i];
	return cmd_help_on(n + 1, words);
}

/* See the head of this file: reading from a stdin that was closed is end of file, writing to a closed stdout fails. */
static void open_standard_descriptors(void)
{
	struct stat st;

	for (int fd = 0; fd <= 2; fd++)
		if (fstat(fd, &st) < 0 && open("/dev/null", O_RDONLY) < 0)
			_exit(CMD_EXIT_FAILED);
}

static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	open_standard_descriptors();
	raise_descriptor_limit();
	signal(SIGPIPE, SIG_IGN);
	if (argc < 2) {
		print_overview(stderr);
		return CMD_EXIT_FAILED;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		return cmd_help_on(1, argv);
	if (!strcmp(argv[1], "--version"))
		return cmd_version(1, (char *[]){ argv[1], NULL });
	const struct command *c = find_command(argv[1]);

	return c ? c->run(argc - 1, argv + 1) : unknown_command(argv[1]);
}
