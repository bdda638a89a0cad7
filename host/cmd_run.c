/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer run: boots a VM, runs a command in it, passes on what it says and how it ends, and removes the VM.
 *
 * Who ends what: the monitor dies with this process (parent-death signal; the guardian removes what is left), unless
 * --keep; a signal before the command runs ends the boot; afterwards session.h says what it does. A VM that is kept is
 * nobody's: it may be stopped by a snapshot and restored by others, and the command goes on in it (resume.h).
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/agent_client.h"
#include "host/cmd.h"
#include "host/control_client.h"
#include "host/exec.h"
#include "host/exec_options.h"
#include "host/guardian.h"
#include "host/launch.h"
#include "host/overlay_disk.h"
#include "host/progress.h"
#include "host/restore_many.h"
#include "host/result.h"
#include "host/signals.h"
#include "host/sock.h"
#include "host/user_disk.h"
#include "host/vm_return.h"
#include "host/vmargs.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/util.h"

enum { COMMAND_TEXT_MAX = 200, POWEROFF_MS = 20000 };

struct run_options {
	struct launch_options l;
	struct exec_options e;
	char *from;
	bool prepare, help;
};

static const struct opt options[] = {
	OPT_STRING(struct run_options, from, "from", 0, "NAME|DIR", "restore this snapshot instead of booting: its machine, its disks"),
	OPT_U64(struct run_options, l.cpus, "cpus", 0, "N", 1, VM_MAX_VCPUS, "processors of the VM (1)"),
	OPT_SIZE(struct run_options, l.memory, "memory", 'm', "SIZE", MIB(LAUNCH_MEMORY_MIN_MIB), GIB(1024), MIB(1),
		 "memory of the VM; a bare number is MiB (512M)"),
	OPT_STRING(struct run_options, l.image, "image", 0, "NAME|PATH",
		   "root disk: an image's name, or a file (with a / in it); 'none' runs in the initramfs (debian)"),
	OPT_LIST(struct run_options, l.disks, "disk", 0, "PATH[,ro|,cow]", "further disk: /dev/vdb and so on (/dev/vdc with an image of erofs or squashfs, /dev/vda with none); cow: what the VM writes is its own and goes with it (repeatable, 6 with an image, 8 without)"),
	OPT_SIZE(struct run_options, l.overlay_size, "overlay-size", 0, "SIZE", OVERLAY_DISK_MIN, OVERLAY_DISK_MAX, 1,
		 "size of the root disk, not less than the image's; it takes room as it is written; a bare number is bytes (16G, or the image's if that is larger)"),
	OPT_STRING(struct run_options, l.fetch, "fetch", 0, "WHEN",
		   "of an image's remote layers, fetch what is not read: in the background, never (lazy), before the start (all)"),
	OPT_SECONDS(struct run_options, l.fetch_timeout, "fetch-timeout", 0, "SECONDS",
		    "how long reads of remote layers wait for a server that fails before the guest sees an I/O error (60)"),
	OPT_SIZE(struct run_options, l.cache_size, "cache-size", 0, "SIZE", MIB(1), UINT64_MAX >> 1, 1,
		 "what the cache of all remote layers may take up; $COFFER_CACHE_SIZE or 20G when not given"),
	OPT_STRING(struct run_options, l.tier, "tier", 0, "TIER", "microvm, or vm: with a display, keyboard, pointer and touch screen (microvm)"),
	OPT_STRING(struct run_options, l.display_size, "display", 0, "WIDTHxHEIGHT", "size of the display when it starts (1280x800); makes it a vm"),
	OPT_STRING(struct run_options, l.gpu, "gpu", 0, "KIND", "2d: the display draws what the guest has computed; virgl: it renders 3D for the guest, too (2d)"),
	OPT_STRING(struct run_options, l.kernel, "kernel", 0, "FILE", "kernel: a bzImage or an ELF vmlinux"),
	OPT_STRING(struct run_options, l.initrd, "initrd", 0, "FILE", "initramfs in place of Coffer's own; it must start coffer-agent"),
	OPT_STRING(struct run_options, l.append, "append", 0, "WORDS", "more words for the kernel's command line"),
	EXEC_OPTIONS(struct run_options, e),
	OPT_STRING(struct run_options, l.name, "name", 0, "ID", "name of the VM (random)"),
	OPT_BOOL(struct run_options, l.keep, "keep", 0, "let the VM run on after the command; 'coffer kill' ends it"),
	OPT_BOOL(struct run_options, prepare, "prepare", 0, "only build what the VM needs and is not there yet, then stop"),
	OPT_SECONDS(struct run_options, l.boot_timeout, "boot-timeout", 0, "SECONDS", "how long the guest may take to come up (120)"),
	OPT_LIST(struct run_options, l.devices, "device", 0, "NAME[,KEY=VALUE...]", "further device of the monitor, see coffer-vmm(1); serial, vsock, rng and balloon are there always: one of the last two replaces its own (repeatable)"),
	OPT_STRING(struct run_options, l.log_level, "log-level", 0, "LEVEL", "of the monitor: error, warn, info, debug"),
	OPT_BOOL(struct run_options, l.no_seccomp, "no-seccomp", 0, "run the monitor without system call filters: for debugging only"),
	CMD_OPT_HELP(struct run_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "run [OPTIONS] [--] [COMMAND [ARGUMENT...]]\nrun --from NAME|DIR [OPTIONS] [--] [COMMAND [ARGUMENT...]]",
	.summary = "start a VM and run a command in it",
	.text = "The VM has its own kernel, memory and root disk; what the command writes is gone with\n"
		"it, unless --keep. Without a command: the image's own (coffer image show), else a shell;\n"
		"with stdin, and on the terminal if there is one.\n"
		"\n"
		"stdout and stderr come separately and byte for byte, and the exit status is the\n"
		"command's: 128+N when signal N ended it, 124 after --timeout, 126 and 127 when it could\n"
		"not be executed or was not found, 125 when Coffer failed. Signals are passed on; the\n"
		"third Ctrl-C gives up and removes the VM.",
	.options = options,
	.examples = "coffer run -- uname -a\n"
		    "coffer run --memory 2G --cpus 4 -- sh -c 'nproc; free -m'\n"
		    "tar c src | coffer run -i -- sh -c 'tar x && make -C src'\n"
		    "coffer run --keep --name work -- true\n"
		    "coffer run -it --image ./my-root.img bash\n"
		    "coffer run --from ready -- ./job\n"
		    "coffer run --keep --name desk --image desktop --tier vm --memory 2G -- true",
};

struct run {
	struct run_options o;
	struct launch launch;
	struct exec_result result;
	bool has_result;
	bool moved; /* the VM is another monitor's by now */
	struct err why;
	struct guardian guardian;
	struct progress progress;
	int signal_fd;
	char **argv;
	struct image image; /* when its command is run */
	char id[VMDIR_ID_MAX + 1];
};

/* For people: the words joined, cut with a sign. */
static void command_text(char *const *argv, char *out, size_t size)
{
	static const char dots[] = "...";
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; argv[i] && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i ? " " : "", argv[i]);
	if (n >= size)
		memcpy(out + size - sizeof(dots), dots, sizeof(dots));
}

/* What is run when no command is given. An image that cannot be used is told when the VM is started. */
static char **default_argv(struct run *run)
{
	static const char *const shell[] = { "sh", "-c", "if command -v bash >/dev/null; then exec bash -l; fi; exec sh -l", NULL };
	const char *image = run->o.l.image ? run->o.l.image : LAUNCH_DEFAULT_IMAGE;

	run->o.e.interactive = true;
	run->o.e.tty = run->o.e.tty || (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !run->o.e.json);
	if (!run->o.from && strcmp(image, LAUNCH_NO_IMAGE) != 0 && image_resolve(image, &run->image, NULL) == 0 &&
	    run->image.cmd && run->image.cmd[0])
		return run->image.cmd;
	return (char **)(uintptr_t)shell;
}

/* A user's disk must not lose what its file system in the guest has not written yet. */
static void power_off(struct run *run)
{
	static const char request[] = "{\"op\":\"poweroff\",\"grace_ms\":1000}";
	struct agent_conn *c;
	struct agent_line line;
	uint64_t deadline = control_deadline(POWEROFF_MS);

	if (agent_connect(run->launch.dir.fd, AGENT_PORT, -1, deadline, &c, NULL) < 0)
		return;
	if (agent_request(c, request, sizeof(request) - 1, deadline, &line, NULL) == 0) {
		struct pollfd p = { .fd = run->launch.pidfd, .events = POLLIN };

		sock_poll(&p, 1, deadline);
	}
	agent_close(c);
}

/* The connection to the agent broke or was not made: the end of the VM, if it has ended, is the better reason. */
static void explain_loss(struct run *run, struct err *err)
{
	enum vm_end_kind kind;

	if (!launch_explain_end(&run->launch, &kind, err))
		return;
	err_prefix(err, "the VM ended before the command did: ");
	if (run->has_result && kind == VM_END_KILLED)
		run->result.end = EXEC_KILLED;
}

/* As everybody else finds it. Our locks would keep the name from a VM that comes back. */
static bool open_kept(struct run *run, struct vm_handle *vm)
{
	run->launch.dir.lock_fd = fd_close(run->launch.dir.lock_fd);
	run->launch.dir.disk_lock_fd = fd_close(run->launch.dir.disk_lock_fd);
	return vm_open(run->id, vm, NULL) == 0;
}

/* The command in the guest that is up. Sets result or why. Returns the exit status. */
static int run_command(struct run *run)
{
	struct vm_handle vm;
	struct resume_source source = { .connect = vm_return_connect, .connect_again = vm_return_connect_again,
					.arg = &vm };
	bool opened = run->o.l.keep && open_kept(run, &vm);
	struct agent_conn *c;
	struct exec_spec spec = { .argv = run->argv, .options = &run->o.e, .cwd = run->launch.image.cwd,
				  .user = run->launch.image.user, .signal_fd = run->signal_fd, .guardian = &run->guardian,
				  .resume = opened ? &source : NULL };

	if (agent_connect(run->launch.dir.fd, AGENT_PORT, run->signal_fd, control_deadline(EXEC_REPLY_MS), &c, &run->why) < 0) {
		explain_loss(run, &run->why);
		if (opened)
			vm_close(&vm);
		return cmd_fail(&run->why);
	}
	exec_run(c, &spec, &run->result);
	agent_close(c);
	run->has_result = true;
	if (opened) {
		run->moved = !vmdir_same(&vm.dir, &run->launch.dir);
		vm_close(&vm);
	}
	if (run->result.end == EXEC_LOST)
		explain_loss(run, &run->result.why);
	run->why = run->result.why;
	exec_explain(&run->result, run->argv[0]);
	return exec_status(&run->result);
}

static int boot(struct run *run, const char *text)
{
	int r = launch_start(&run->launch, &run->o.l, text, &run->guardian, &run->progress, &run->why);

	snprintf(run->id, sizeof(run->id), "%s", run->launch.dir.id);
	if (r < 0)
		return r;
	progress_stage(&run->progress, "booting");
	return launch_wait(&run->launch, &run->o.l, run->signal_fd, &run->why);
}

static int restore(struct run *run, const char *text)
{
	const struct restore_options o = { .id = run->o.l.name, .command = text, .keep = run->o.l.keep, .track = run->o.l.keep,
					   .no_seccomp = run->o.l.no_seccomp, .log_level = run->o.l.log_level };
	struct restore_source src;
	int r = restore_source_open(run->o.from, &src, &run->why);

	if (r < 0)
		return r;
	progress_stage(&run->progress, "restoring");
	r = restore_source_check(&src, &run->why);
	if (r == 0)
		r = restore_one(&run->launch, &src, &o, &run->guardian, run->signal_fd, &run->why);
	restore_source_close(&src);
	snprintf(run->id, sizeof(run->id), "%s", run->launch.dir.id);
	return r;
}

static int start_and_run(struct run *run)
{
	char text[COMMAND_TEXT_MAX];

	if (exec_refuse(run->argv, &run->result)) {
		run->has_result = true;
		run->why = run->result.why;
		exec_explain(&run->result, run->argv[0]);
		return exec_status(&run->result);
	}
	command_text(run->argv, text, sizeof(text));
	int r = run->o.from ? restore(run, text) : boot(run, text);

	progress_end(&run->progress);
	if (r < 0) {
		cmd_fail(&run->why);
		return run->launch.signal ? CMD_EXIT_SIGNAL + run->launch.signal : CMD_EXIT_FAILED;
	}
	/* From here on a VM that is to be kept stays when we are killed; before it would be of no use to anybody. */
	if (run->o.l.keep)
		guardian_forget_monitor(&run->guardian, 0);
	return run_command(run);
}

/* Options that say what the snapshot says already. */
static int check_from(const struct run_options *o, struct err *err)
{
	const struct {
		const char *name;
		bool given;
	} no[] = {
		{ "cpus", o->l.cpus }, { "memory", o->l.memory }, { "image", o->l.image }, { "disk", o->l.disks.n },
		{ "overlay-size", o->l.overlay_size }, { "kernel", o->l.kernel }, { "initrd", o->l.initrd }, { "append", o->l.append },
		{ "fetch", o->l.fetch }, { "fetch-timeout", o->l.fetch_timeout > 0 }, { "cache-size", o->l.cache_size },
		{ "device", o->l.devices.n }, { "tier", o->l.tier }, { "display", o->l.display_size }, { "gpu", o->l.gpu }, { "boot-timeout", o->l.boot_timeout > 0 }, { "prepare", o->prepare },
	};

	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		if (no[i].given)
			return err_set(err, -EINVAL, "run: --%s cannot be combined with --from: the snapshot decides that", no[i].name);
	return o->l.name ? vmdir_check_id(o->l.name, err) : 0;
}

static uint64_t ms_between(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (to_ns - from_ns) / 1000000 : 0;
}

/* A VM that was not made is known by the name that was asked for. */
static const char *result_id(const struct run *run)
{
	const char *name = run->o.l.name;

	return !run->id[0] && name && vmdir_check_id(name, NULL) == 0 ? name : run->id;
}

static int finish(struct run *run, int status)
{
	struct err err = ERR_INIT;
	struct result_times times = { .boot_ms = ms_between(run->launch.spawned_ns, run->launch.ready_ns),
				      .ready_ms = ms_between(run->launch.start_ns, run->launch.configured_ns) };
	bool keep = run->o.l.keep && run->launch.configured_ns;
	bool runs_on = keep && (!run->launch.reaped || run->moved);

	if (!keep && run->launch.read_write_disks && run->has_result && run->result.end <= EXEC_OOM)
		power_off(run);
	if (launch_end(&run->launch, keep, &err) < 0)
		status = cmd_fail(&err);
	if (keep && !runs_on) /* what its monitor left; by now the name may be another VM's */
		vmdir_sweep(NULL, NULL, NULL);
	if (runs_on && cmd_progress_wanted())
		fprintf(stderr, "coffer: the VM %s runs on; 'coffer kill %s' ends it\n", run->id, run->id);
	times.total_ms = ms_between(run->launch.start_ns, loop_now_ns());
	if (run->o.e.json)
		status = result_print(result_id(run), run->has_result ? &run->result : NULL, status, &run->why, &times);
	exec_result_finish(&run->result);
	return status;
}

static int prepare(struct run *run)
{
	int r;

	launch_init(&run->launch);
	progress_init(&run->progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	r = launch_prepare(&run->launch, &run->o.l, &run->progress, &run->why);
	progress_end(&run->progress);
	launch_end(&run->launch, false, NULL);
	return r < 0 ? cmd_fail(&run->why) : 0;
}

int cmd_run(int argc, char **argv)
{
	struct run run = { .guardian = GUARDIAN_NONE, .signal_fd = -1,
			   .result = { .out = { .fd = -1, .own_fd = -1 }, .err = { .fd = -1, .own_fd = -1 } } };
	struct err err = ERR_INIT;
	sigset_t old;
	int status, first = cmd_parse(&help, &run.o, argc, argv, true, &status);

	if (first < 0)
		return status;
	if (run.o.from && check_from(&run.o, &err) < 0)
		return cmd_fail(&err);
	run.o.l.cpus = run.o.l.cpus ? run.o.l.cpus : 1;
	run.o.l.memory = run.o.l.memory ? run.o.l.memory : MIB(512);
	if (user_disk_check(&run.o.l.disks, !run.o.l.image || strcmp(run.o.l.image, LAUNCH_NO_IMAGE) != 0, &err) < 0)
		return cmd_fail(&err);
	if (vmargs_check_devices(&run.o.l.devices, &err) < 0 ||
	    vm_display_parse(run.o.l.tier, run.o.l.display_size, run.o.l.gpu, &run.o.l.display, &err) < 0 ||
	    vm_display_add_devices(&run.o.l.display, &run.o.l.devices, &err) < 0)
		return cmd_fail(&err);
	if (run.o.prepare)
		return prepare(&run);
	run.argv = first < argc ? argv + first : default_argv(&run);
	if (exec_check_options(&run.o.e, &err) < 0)
		return cmd_fail(&err);
	launch_init(&run.launch);
	if (guardian_start(&run.guardian, isatty(STDIN_FILENO) ? STDIN_FILENO : -1, &err) < 0)
		return cmd_fail(&err);
	run.signal_fd = signals_open(&old, &err);
	if (run.signal_fd < 0) {
		guardian_finish(&run.guardian);
		return cmd_fail(&err);
	}
	run.launch.signal_fd = run.signal_fd;
	progress_init(&run.progress, cmd_progress_wanted() ? STDERR_FILENO : -1, -1);
	status = finish(&run, start_and_run(&run));
	guardian_finish(&run.guardian);
	signals_close(run.signal_fd, &old);
	image_finish(&run.image);
	return status;
}
