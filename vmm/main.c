/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-vmm: one virtual machine from start to end.
 *
 * How it works, in this order: read the options; close what was not meant for us; open everything (files, KVM, memory, vCPUs,
 * devices, control socket) and put the kernel into memory; go to jail; start the threads; filter system calls; say
 * "ready"; run until somebody asks for a stop; write the last word to DIR/status. With --restore there is no kernel: the machine
 * stands empty until the control socket's RESTORE fills it.
 *
 * Threads: main runs the event loop; see docs/architecture.md.
 * Trust: options are the caller's. Files named by them are hostile, and everything after "ready" is.
 * Exit status: 0 the guest powered off; 1 it could not be started, with one line on standard error; else VM_EXIT_BASE
 * plus the reason; ISOLATE_EXIT after a forbidden system call.
 */
/* syscalls(main): read close write pwrite64 ftruncate */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices/machine.h"
#include "lib/fd.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/opt.h"
#include "lib/util.h"
#include "snapshot/snapshot.h"
#include "vmm/arch.h"
#include "vmm/boot.h"
#include "vmm/control.h"
#include "vmm/isolate.h"
#include "vmm/kvm.h"
#include "vmm/vm.h"

#define LOCK_FILE "lock"
#define PID_FILE "pid"
#define STATUS_FILE "status"
#define READY_LINE "ready\n"
#define MEMORY_DEFAULT MIB(512)
enum { KEEP_MAX = 1024, STATUS_MAX = 4 * ERR_MAX };

struct vmm_options {
	char *dir, *kernel, *initrd, *cmdline, *log_level;
	uint64_t cpus, memory, ready_fd;
	struct opt_strv devices, keep_fds;
	bool die_with_parent, restore, track, no_seccomp, help, version;
};

static const struct opt option_table[] = {
	OPT_STRING(struct vmm_options, dir, "dir", 0, "DIR", "directory of this VM, becomes the root of its jail (required)"),
	OPT_STRING(struct vmm_options, kernel, "kernel", 0, "FILE", "bzImage or ELF vmlinux (required, but with --restore)"),
	OPT_STRING(struct vmm_options, initrd, "initrd", 0, "FILE", "initramfs"),
	OPT_STRING(struct vmm_options, cmdline, "cmdline", 0, "TEXT", "kernel command line"),
	OPT_BOOL(struct vmm_options, restore, "restore", 0, "boot nothing: wait for a snapshot by the control socket"),
	OPT_BOOL(struct vmm_options, track, "track", 0, "log which memory is written from the start, for diffs after a restore"),
	OPT_U64(struct vmm_options, cpus, "cpus", 0, "N", 1, VM_MAX_VCPUS, "number of virtual CPUs (1)"),
	OPT_SIZE(struct vmm_options, memory, "memory", 0, "SIZE", MEM_MIN, MEM_MAX, MIB(1), "guest memory, a bare number is MiB (512M)"),
	OPT_LIST(struct vmm_options, devices, "device", 0, "NAME[,KEY=VALUE...]", "add a device (repeatable); files are relative to DIR"),
	OPT_U64(struct vmm_options, ready_fd, "ready-fd", 0, "FD", 0, INT32_MAX, "write a line there when the guest is about to run"),
	OPT_LIST(struct vmm_options, keep_fds, "keep-fd", 0, "FD[:FD...]", "leave these descriptors open, for devices and the locks behind them (repeatable)"),
	OPT_STRING(struct vmm_options, log_level, "log-level", 0, "LEVEL", "error, warn, info (default) or debug"),
	OPT_BOOL(struct vmm_options, die_with_parent, "die-with-parent", 0, "end when the process that started this ends"),
	OPT_BOOL(struct vmm_options, no_seccomp, "no-seccomp", 0, "do not filter system calls: for debugging, unsafe"),
	OPT_BOOL(struct vmm_options, help, "help", 'h', "show this"),
	OPT_BOOL(struct vmm_options, version, "version", 0, "show the version"),
	OPT_END,
};

struct vmm {
	struct vmm_options opt;
	struct log log;
	struct vm vm;
	struct machine machine;
	struct control control;
	struct control_hooks hooks;
	struct snapshots snapshots;
	struct control_snapshot_hooks snapshot_hooks;
	struct arch_cpu *cpu;   /* until the vCPUs are set up */
	struct loop_fd signals;
	int keep_fd[KEEP_MAX];
	int nkeep;
	int dir_fd, kernel_fd, initrd_fd, lock_fd, pid_fd, status_fd, ready_fd;
	pid_t parent;
};

/* ---- options ---- */

static void print_help(void)
{
	printf("coffer-vmm --dir DIR --kernel FILE [OPTION...]\n\nRuns one virtual machine; usually started by coffer.\n\n");
	opt_print_help(option_table, stdout);
	printf("\nDevices:\n");
	machine_print_devices(stdout);
}

static int keep(struct vmm *v, const char *text, struct err *err)
{
	for (const char *p = text;; p++) {
		char *end;
		unsigned long fd = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : ULONG_MAX;

		if (fd > INT_MAX || (*end && *end != ':') || fcntl((int)fd, F_GETFD) < 0)
			return err_set(err, -EINVAL, "--keep-fd: '%s' is no open descriptor", p);
		if (v->nkeep == KEEP_MAX)
			return err_set(err, -EINVAL, "--keep-fd: %d descriptors at most", KEEP_MAX);
		v->keep_fd[v->nkeep++] = (int)fd;
		if (!*end)
			return 0;
		p = end;
	}
}

static int parse_options(struct vmm *v, int argc, char **argv, struct err *err)
{
	struct vmm_options *o = &v->opt;
	int r;

	*o = (struct vmm_options){ .cpus = 1, .memory = MEMORY_DEFAULT, .ready_fd = UINT64_MAX };
	r = opt_parse_args(option_table, o, argc, argv, false, err);
	if (r < 0)
		return r;
	if (o->help || o->version)
		return 0;
	if (r < argc)
		return err_set(err, -EINVAL, "unexpected operand '%s'", argv[r]);
	if (!o->dir || (!o->kernel && !o->restore))
		return err_set(err, -EINVAL, "--dir and --kernel (or --restore) are required: see --help");
	if (o->restore && (o->kernel || o->initrd || o->cmdline))
		return err_set(err, -EINVAL, "--restore excludes --kernel, --initrd and --cmdline: the snapshot has them in memory");
	if (o->log_level && log_level_parse(o->log_level, &v->log.level) < 0)
		return err_set(err, -EINVAL, "--log-level: '%s' is not error, warn, info or debug", o->log_level);
	if (o->ready_fd != UINT64_MAX)
		v->keep_fd[v->nkeep++] = v->ready_fd = (int)o->ready_fd;
	r = 0;
	for (size_t i = 0; i < o->keep_fds.n && r == 0; i++)
		r = keep(v, o->keep_fds.v[i], err);
	if (r < 0)
		return r;
	return 0;
}

/* ---- the VM's directory ---- */

/* The descriptor among those kept for us that is this file already, or a new one. */
static int open_lock_file(const struct vmm *v, struct err *err)
{
	_cleanup_close_ int fd = openat(v->dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat mine, kept;

	if (fd < 0 || fstat(fd, &mine) < 0)
		return err_errno(err, -errno, "%s/" LOCK_FILE, v->opt.dir);
	for (int i = 0; i < v->nkeep; i++)
		if (fstat(v->keep_fd[i], &kept) == 0 && kept.st_dev == mine.st_dev && kept.st_ino == mine.st_ino)
			return v->keep_fd[i];
	return TAKE_FD(fd);
}

static int lock_file(int fd, const struct vmm *v, struct err *err)
{
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return err_errno(err, -errno, "lock in %s", v->opt.dir);
	return err_set(err, -EBUSY, "%s is in use: another VM runs there", v->opt.dir);
}

static int open_directory(struct vmm *v, struct err *err)
{
	const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
	char pid[16];
	int r;

	v->dir_fd = open(v->opt.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (v->dir_fd < 0)
		return err_errno(err, -errno, "--dir '%s'", v->opt.dir);
	v->lock_fd = open_lock_file(v, err);
	if (v->lock_fd < 0)
		return v->lock_fd;
	v->pid_fd = openat(v->dir_fd, PID_FILE, flags, 0600);
	if (v->pid_fd < 0)
		return err_errno(err, -errno, "%s/" PID_FILE, v->opt.dir);
	/* The first lock may be shared with whoever started us; the second is ours alone. */
	r = lock_file(v->lock_fd, v, err);
	if (r == 0)
		r = lock_file(v->pid_fd, v, err);
	if (r < 0)
		return r;
	v->status_fd = openat(v->dir_fd, STATUS_FILE, flags | O_TRUNC, 0600);
	if (v->status_fd < 0)
		return err_errno(err, -errno, "%s/" STATUS_FILE, v->opt.dir);
	r = snprintf(pid, sizeof(pid), "%d\n", getpid());
	if (ftruncate(v->pid_fd, 0) < 0 || fd_pwrite_full(v->pid_fd, pid, (size_t)r, 0) < 0)
		return err_errno(err, -errno, "write %s/" PID_FILE, v->opt.dir);
	/* From here on files are named relative to the directory: it will be all there is. */
	if (fchdir(v->dir_fd) < 0)
		return err_errno(err, -errno, "--dir '%s'", v->opt.dir);
	return 0;
}

/* One JSON line: why it ended. */
static void write_status(struct vmm *v)
{
	char buf[STATUS_MAX];
	struct json_writer w;
	int n;

	json_writer_init(&w, buf, sizeof(buf) - 1);
	json_write_object(&w, NULL);
	json_write_string(&w, "stop", vm_stop_name((enum vm_stop)v->vm.stop_reason));
	json_write_string(&w, "text", v->vm.stop_text);
	json_write_object_end(&w);
	n = json_writer_finish(&w);
	if (n < 0)
		return;
	buf[n] = '\n';
	if (fd_pwrite_full(v->status_fd, buf, (size_t)n + 1, 0) < 0)
		log_line(&v->log, LOG_WARN, "the status file cannot be written");
}

/* ---- signals ---- */

static void on_signal(struct loop_fd *w, uint32_t events)
{
	struct vmm *v = container_of(w, struct vmm, signals);
	struct signalfd_siginfo si;

	(void)events;
	if (read(w->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		vm_request_stop(&v->vm, VM_STOP_KILLED, "killed by signal %u", si.ssi_signo);
}

/* Blocked here, before any thread exists, so in all threads: only the loop sees them. */
static int open_signals(struct vmm *v, struct err *err)
{
	sigset_t set;
	int r;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	_cleanup_close_ int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);

	if (fd < 0)
		return err_errno(err, -errno, "signalfd");
	r = loop_add(&v->vm.loop, &v->signals, fd, EPOLLIN, on_signal);
	if (r < 0)
		return err_errno(err, r, "epoll");
	(void)TAKE_FD(fd);
	return 0;
}

/* ---- start ---- */

static int open_vcpus(struct vmm *v, struct err *err)
{
	struct vm *vm = &v->vm;
	uint32_t n = (uint32_t)v->opt.cpus;
	int r;

	v->cpu = malloc(sizeof(*v->cpu));
	if (!v->cpu)
		return err_errno(err, -ENOMEM, "CPUID");
	r = arch_cpu_init(v->cpu, vm->kvm_fd, vm->vm_fd, n, err);
	if (r == 0)
		r = vcpu_create_all(vm, n, err);
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = arch_vcpu_init(v->cpu, vm->vcpu[i].fd, i, err);
	free(v->cpu);
	v->cpu = NULL;
	return r;
}

static int load_kernel(struct vmm *v, struct err *err)
{
	struct boot_device devices[BOOT_MAX_DEVICES];
	struct boot_config c = {
		.kernel_fd = v->kernel_fd,
		.kernel_name = v->opt.kernel,
		.initrd_fd = v->initrd_fd,
		.initrd_name = v->opt.initrd,
		.cmdline = v->opt.cmdline,
		.nvcpus = (uint32_t)v->opt.cpus,
		.device = devices,
		.ndevices = machine_boot_devices(&v->machine, devices),
	};
	struct boot_entry entry;
	int r = boot_load(&v->vm.mem, &c, &entry, err);

	if (r == 0)
		r = arch_vcpu_enter(v->vm.vcpu[0].fd, &entry, err);
	v->kernel_fd = fd_close(v->kernel_fd);
	v->initrd_fd = fd_close(v->initrd_fd);
	return r;
}

static int open_kernel(struct vmm *v, struct err *err)
{
	if (v->opt.restore)
		return 0;
	v->kernel_fd = boot_open_file(v->opt.kernel, "kernel", err);
	if (v->kernel_fd < 0)
		return v->kernel_fd;
	if (!v->opt.initrd)
		return 0;
	v->initrd_fd = boot_open_file(v->opt.initrd, "initrd", err);
	return v->initrd_fd < 0 ? v->initrd_fd : 0;
}

static int open_machine(struct vmm *v, struct err *err)
{
	struct vm *vm = &v->vm;
	int r = kvm_open(vm, err);

	if (r == 0)
		r = kvm_create_vm(vm, err);
	if (r == 0)
		r = (v->opt.track ? mem_init_logged : mem_init)(&vm->mem, vm->vm_fd, v->opt.memory, err);
	if (r == 0)
		r = open_vcpus(v, err);
	return r < 0 ? r : machine_open(&v->machine, vm, &v->opt.devices, err);
}

/* Its threads, main included, may be where no signal and no stop reaches them. */
static void __attribute__((noreturn)) end_at_once(void *arg)
{
	struct vmm *v = arg;

	log_line(&v->log, LOG_ERROR, "%s", v->vm.stop_text);
	write_status(v);
	_exit(VM_EXIT_BASE + VM_STOP_ERROR);
}

/* Everything that needs the host's file system. */
static int open_all(struct vmm *v, struct err *err)
{
	int r;

	r = machine_check(&v->opt.devices, err);
	if (r == 0)
		r = open_kernel(v, err);
	if (r == 0)
		r = mem_check_host(v->opt.memory, err);
	if (r == 0)
		r = open_directory(v, err);
	if (r == 0)
		r = open_signals(v, err);
	if (r == 0)
		r = open_machine(v, err);
	if (r < 0)
		return r;
	machine_control_hooks(&v->machine, &v->hooks);
	snapshots_init(&v->snapshots, &v->vm, &v->machine, &v->control, v->opt.restore);
	v->snapshots.fatal = end_at_once;
	v->snapshots.fatal_arg = v;
	snapshots_hooks(&v->snapshots, &v->snapshot_hooks);
	r = control_init(&v->control, &v->vm, CONTROL_SOCKET, &v->hooks, err);
	v->control.snapshots = &v->snapshot_hooks;
	return r < 0 || v->opt.restore ? r : load_kernel(v, err);
}

static int isolate_vcpu(struct vm *vm, struct err *err)
{
	(void)vm;
	return isolate_thread(ISOLATE_VCPU, err);
}

static int isolate_worker(struct vm *vm, struct err *err)
{
	(void)vm;
	return isolate_thread(ISOLATE_WORKER, err);
}

static int die_with_parent(const struct vmm *v, struct err *err)
{
	if (!v->opt.die_with_parent)
		return 0;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return err_errno(err, -errno, "--die-with-parent");
	return getppid() == v->parent ? 0 : err_set(err, -ECANCELED, "the process that started this has ended");
}

/* No file can be opened after this. */
static int isolate(struct vmm *v, struct err *err)
{
	struct err why = ERR_INIT;
	int r = isolate_jail(&why);

	if (r < 0) {
		if (err)
			*err = why;
		return r;
	}
	if (r == 0)
		log_line(&v->log, LOG_WARN, "%s", why.text);
	/* The capabilities of a new user namespace took the signal away. */
	r = die_with_parent(v, err);
	if (r < 0)
		return r;
	if (v->opt.no_seccomp)
		log_line(&v->log, LOG_WARN, "--no-seccomp: SYSTEM CALLS ARE NOT FILTERED, a guest that breaks out is in this user's account");
	else
		r = isolate_handler(err);
	if (!v->opt.no_seccomp) {
		v->vm.vcpu_isolate = isolate_vcpu;
		v->vm.worker_isolate = isolate_worker;
	}
	if (r >= 0)
		r = machine_start(&v->machine, err);
	if (r >= 0)
		r = snapshots_start(&v->snapshots, err);
	if (r < 0)
		return r;
	r = vcpu_start_all(&v->vm, err);
	if (r == 0 && !v->opt.no_seccomp)
		r = isolate_thread(ISOLATE_MAIN, err);
	return r;
}

static int start(struct vmm *v, struct err *err)
{
	int r = isolate_init(v->keep_fd, v->nkeep, err);

	v->parent = getppid();
	if (r == 0)
		r = die_with_parent(v, err);
	if (r == 0)
		r = vm_init(&v->vm, err);
	v->vm.log = v->log;
	if (r == 0)
		r = open_all(v, err);
	if (r == 0)
		r = vm_set_state(&v->vm, VM_CONFIGURED, err);
	if (r == 0)
		r = isolate(v, err);
	return r;
}

static void say_ready(struct vmm *v)
{
	if (v->ready_fd < 0)
		return;
	if (fd_write_full(v->ready_fd, READY_LINE, strlen(READY_LINE)) < 0)
		log_line(&v->log, LOG_WARN, "--ready-fd %d: nobody reads it", v->ready_fd);
	v->ready_fd = fd_close(v->ready_fd);
}

/* ---- run and end ---- */

static int run(struct vmm *v, struct err *err)
{
	struct vm *vm = &v->vm;
	int r;

	say_ready(v);
	r = v->opt.restore ? 0 : vm_set_state(vm, VM_RUNNING, err);
	if (r < 0)
		return r;
	r = loop_run(&vm->loop);
	if (r < 0)
		vm_request_stop(vm, VM_STOP_ERROR, "event loop: %s", strerror(-r));
	vm_set_state(vm, VM_STOPPED, NULL);
	snapshots_finish(&v->snapshots);
	machine_close(&v->machine); /* what guests wrote reaches the files before anyone hears of the end */
	log_line(&v->log, LOG_INFO, "%s: %s", vm_stop_name((enum vm_stop)vm->stop_reason), vm->stop_text);
	write_status(v);
	control_stopped(&v->control);
	return vm->stop_reason == VM_STOP_POWEROFF ? 0 : VM_EXIT_BASE + vm->stop_reason;
}

/* Accepts any stage of a failed start. */
static void finish(struct vmm *v)
{
	snapshots_finish(&v->snapshots);
	machine_close(&v->machine);
	control_finish(&v->control);
	if (v->signals.added) {
		loop_remove(&v->vm.loop, &v->signals);
		fd_close(v->signals.fd);
	}
	vm_finish(&v->vm);
	fd_close(v->kernel_fd);
	fd_close(v->initrd_fd);
	fd_close(v->status_fd);
	fd_close(v->dir_fd);
	/* The locks go with the process: until then the directory is in use. */
}

int main(int argc, char **argv)
{
	static struct vmm v = {
		.log = { .fd = 2, .level = LOG_INFO, .prefix = "coffer-vmm" },
		.vm = { .kvm_fd = -1, .vm_fd = -1 },
		.dir_fd = -1, .kernel_fd = -1, .initrd_fd = -1, .lock_fd = -1, .pid_fd = -1, .status_fd = -1,
		.ready_fd = -1,
	};
	struct err err = ERR_INIT;
	int r;

	/* Threads share one heap: making another for a thread would open files in /sys, which a filtered thread may not. */
	mallopt(M_ARENA_MAX, 1);
	r = parse_options(&v, argc, argv, &err);
	if (r == 0 && v.opt.help) {
		print_help();
		return 0;
	}
	if (r == 0 && v.opt.version) {
		printf("coffer-vmm %s\n", COFFER_VERSION);
		return 0;
	}
	if (r == 0)
		r = start(&v, &err);
	if (r == 0)
		r = run(&v, &err);
	if (r < 0) {
		log_line(&v.log, LOG_ERROR, "%s", err.text);
		r = 1;
	}
	finish(&v);
	return r;
}
