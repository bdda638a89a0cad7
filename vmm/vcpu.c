/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Virtual CPUs: see vcpu.h.
 *
 * How it works: the loop of a vCPU thread is KVM_RUN, then one look at the exit reason, then the bus. Before each KVM_RUN
 * it reads what main wants, one relaxed load of a line that hardly ever changes.
 *
 * Kick: set immediate_exit in the run area, then send a real-time signal with an empty handler. If the thread is inside
 * KVM_RUN the signal ends it; if it is about to enter, immediate_exit does. The thread clears immediate_exit before
 * it reads `want`, with a full fence in between, so a kick that announces a new wish is never lost.
 *
 * Barrier: a port or memory access that KVM handed to user space is completed only by the next KVM_RUN. Before it
 * parks, a thread therefore enters KVM_RUN with immediate_exit set until that returns EINTR, serving what comes up on the way
 * (the next piece of a split access). A vCPU that hit a fatal exit parks for good and counts as parked.
 *
 * Threads: each vCPU's run area and `dead` belong to its thread. Handlers on the bus take their own locks; main must not hold
 * a device lock when it pauses or stops vCPUs.
 *
 * Trust: everything in an exit but its form comes from the guest; the bus checks it.
 * Limits: VM_MAX_VCPUS; no allocation once the threads run.
 */
/* syscalls(main): futex tgkill(0=SELF) getpid munmap rt_sigprocmask */
/* syscalls(vcpu): ioctl(1=KVM_RUN) ioctl(1=KVM_GET_REGS) ioctl(1=KVM_GET_SREGS) futex rt_sigreturn rt_sigprocmask madvise exit */
#include "vmm/vcpu.h"

#include <errno.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "lib/fd.h"
#include "vmm/vm.h"

/* Deep enough for a device callback with a log line and an error text; a page or two of it is ever touched. */
enum { VCPU_STACK_SIZE = 128 << 10 };

static int kick_signal(void)
{
	return SIGRTMIN;
}

static void on_kick(int sig)
{
	(void)sig;
}

void vcpu_barrier_init(struct vcpu_barrier *b)
{
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->parked_cond, NULL);
	pthread_cond_init(&b->want_cond, NULL);
	atomic_init(&b->want, VCPU_PARK);
	b->parked = 0;
}

void vcpu_barrier_finish(struct vcpu_barrier *b)
{
	pthread_cond_destroy(&b->parked_cond);
	pthread_cond_destroy(&b->want_cond);
	pthread_mutex_destroy(&b->lock);
}

static void count(_Atomic uint64_t *c)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* "rip 0x... rsp 0x... cr0 ..." or nothing when KVM does not say. */
static void describe_registers(const struct vcpu *v, char *buf, size_t len)
{
	struct kvm_regs r;
	struct kvm_sregs s;

	buf[0] = 0;
	if (ioctl(v->fd, KVM_GET_REGS, &r) < 0 || ioctl(v->fd, KVM_GET_SREGS, &s) < 0)
		return;
	snprintf(buf, len, " (rip 0x%llx rsp 0x%llx rflags 0x%llx cs 0x%x cr0 0x%llx cr2 0x%llx cr3 0x%llx cr4 0x%llx "
		 "efer 0x%llx)", r.rip, r.rsp, r.rflags, s.cs.selector, s.cr0, s.cr2, s.cr3, s.cr4, s.efer);
}

static const char *suberror_name(uint32_t suberror)
{
	switch (suberror) {
	case KVM_INTERNAL_ERROR_EMULATION:
		return "an instruction KVM cannot emulate";
	case KVM_INTERNAL_ERROR_SIMUL_EX:
		return "simultaneous exceptions";
	case KVM_INTERNAL_ERROR_DELIVERY_EV:
		return "an exit while delivering an event";
	case KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON:
		return "an unexpected exit reason";
	default:
		return "unknown";
	}
}

static void handle_internal_error(struct vcpu *v)
{
	const struct kvm_run *run = v->run;
	char regs[256], data[4 * 20] = "";
	size_t at = 0;

	/* For an emulation failure data[] holds flags and the instruction's bytes: worth having in a report. */
	for (uint32_t i = 0; i < run->internal.ndata && i < 4; i++)
		at += (size_t)snprintf(data + at, sizeof(data) - at, " 0x%llx", run->internal.data[i]);
	describe_registers(v, regs, sizeof(regs));
	vm_request_stop(v->vm, VM_STOP_CRASH, "vCPU %u: KVM internal error %u: %s, data%s%s", v->index,
			run->internal.suberror, suberror_name(run->internal.suberror), data, regs);
}

static void handle_system_event(struct vcpu *v)
{
	switch (v->run->system_event.type) {
	case KVM_SYSTEM_EVENT_SHUTDOWN:
		vm_request_stop(v->vm, VM_STOP_POWEROFF, "the guest powered off");
		break;
	case KVM_SYSTEM_EVENT_RESET:
		vm_request_stop(v->vm, VM_STOP_REBOOT, "the guest asked for a reset");
		break;
	case KVM_SYSTEM_EVENT_CRASH:
		vm_request_stop(v->vm, VM_STOP_PANIC, "the guest reported a crash");
		break;
	default:
		vm_request_stop(v->vm, VM_STOP_CRASH, "vCPU %u: unknown system event %u", v->index,
				v->run->system_event.type);
		break;
	}
}

/* One access, or `count` of them for a string instruction. */
static void handle_io(struct vcpu *v)
{
	struct kvm_run *run = v->run;
	uint8_t *data = (uint8_t *)run + run->io.data_offset;
	uint32_t size = run->io.size;
	bool write = run->io.direction == KVM_EXIT_IO_OUT;

	for (uint32_t i = 0; i < run->io.count; i++, data += size) {
		bool claimed = write ? bus_write(&v->vm->bus, BUS_PIO, run->io.port, data, size) :
				       bus_read(&v->vm->bus, BUS_PIO, run->io.port, data, size);

		if (!claimed)
			count(&v->unclaimed);
	}
}

static void handle_mmio(struct vcpu *v)
{
	struct kvm_run *run = v->run;
	bool claimed = run->mmio.is_write ?
			       bus_write(&v->vm->bus, BUS_MMIO, run->mmio.phys_addr, run->mmio.data, run->mmio.len) :
			       bus_read(&v->vm->bus, BUS_MMIO, run->mmio.phys_addr, run->mmio.data, run->mmio.len);

	if (!claimed)
		count(&v->unclaimed);
}

/* Returns false when this vCPU cannot go on. */
static bool handle_exit(struct vcpu *v)
{
	struct kvm_run *run = v->run;

	count(&v->exits);
	switch (run->exit_reason) {
	case KVM_EXIT_IO:
		handle_io(v);
		return true;
	case KVM_EXIT_MMIO:
		handle_mmio(v);
		return true;
	case KVM_EXIT_INTR:
		return true;
	case KVM_EXIT_SYSTEM_EVENT:
		handle_system_event(v);
		return false;
	case KVM_EXIT_SHUTDOWN:
		vm_request_stop(v->vm, VM_STOP_CRASH, "vCPU %u: triple fault", v->index);
		return false;
	case KVM_EXIT_FAIL_ENTRY:
		vm_request_stop(v->vm, VM_STOP_CRASH, "vCPU %u: the processor refused to enter the guest, reason 0x%llx",
				v->index, run->fail_entry.hardware_entry_failure_reason);
		return false;
	case KVM_EXIT_INTERNAL_ERROR:
		handle_internal_error(v);
		return false;
	default:
		vm_request_stop(v->vm, VM_STOP_CRASH, "vCPU %u: unknown KVM exit reason %u", v->index, run->exit_reason);
		return false;
	}
}

static void set_immediate_exit(struct vcpu *v, uint8_t on)
{
	__atomic_store_n(&v->run->immediate_exit, on, __ATOMIC_RELAXED);
}

/* One turn in the guest. Returns 1 after an exit that was served, 0 when it was interrupted, -1 when the vCPU is dead. */
static int run_once(struct vcpu *v)
{
	if (ioctl(v->fd, KVM_RUN, 0) == 0)
		return handle_exit(v) ? 1 : -1;
	/* EAGAIN: a processor that waited for its start-up signal got it. */
	if (errno == EINTR || errno == EAGAIN)
		return 0;
	char regs[256];
	int e = errno;

	describe_registers(v, regs, sizeof(regs));
	vm_request_stop(v->vm, VM_STOP_ERROR, "vCPU %u: KVM_RUN: %s%s", v->index, strerror(e), regs);
	return -1;
}

/* Leave no access half done: see the top of the file. */
static int complete_pending(struct vcpu *v)
{
	int r;

	do {
		set_immediate_exit(v, 1);
		r = run_once(v);
	} while (r > 0);
	return r;
}

/* Wait until main wants this vCPU to run (true) or to end (false). */
static bool park(struct vcpu *v)
{
	struct vcpu_barrier *b = &v->vm->barrier;
	int want;

	pthread_mutex_lock(&b->lock);
	v->parked = true;
	b->parked++;
	pthread_cond_signal(&b->parked_cond);
	while ((want = atomic_load(&b->want)) == VCPU_PARK || (v->dead && want != VCPU_QUIT))
		pthread_cond_wait(&b->want_cond, &b->lock);
	v->parked = false;
	b->parked--;
	pthread_mutex_unlock(&b->lock);
	return want == VCPU_RUN;
}

static void *vcpu_main(void *arg)
{
	struct vcpu *v = arg;
	struct vm *vm = v->vm;
	struct vcpu_barrier *b = &vm->barrier;
	char name[16];
	struct err err = ERR_INIT;

	snprintf(name, sizeof(name), "vcpu%u", v->index);
	prctl(PR_SET_NAME, name);
	if (vm->vcpu_isolate && vm->vcpu_isolate(vm, &err) < 0) {
		vm_request_stop(vm, VM_STOP_ERROR, "vCPU %u: %s", v->index, err.text);
		v->dead = true;
	}
	while (park(v)) {
		set_immediate_exit(v, 0);
		/* Between clearing the flag and reading the wish: see Kick above. */
		atomic_thread_fence(memory_order_seq_cst);
		int r = 1;

		while (r >= 0 && atomic_load_explicit(&b->want, memory_order_relaxed) == VCPU_RUN) {
			r = run_once(v);
			if (r == 0) {
				set_immediate_exit(v, 0);
				atomic_thread_fence(memory_order_seq_cst);
			}
		}
		if (r > 0)
			r = complete_pending(v);
		if (r < 0)
			v->dead = true;
	}
	return NULL;
}

int vcpu_create_all(struct vm *vm, uint32_t n, struct err *err)
{
	int size;

	if (n < 1 || n > VM_MAX_VCPUS)
		return err_set(err, -EINVAL, "%u vCPUs: use 1 to %d", n, VM_MAX_VCPUS);
	size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (size < (int)sizeof(struct kvm_run))
		return err_errno(err, size < 0 ? -errno : -EINVAL, "KVM_GET_VCPU_MMAP_SIZE");
	vm->vcpu = aligned_alloc(_Alignof(struct vcpu), n * sizeof(*vm->vcpu));
	if (!vm->vcpu)
		return err_errno(err, -ENOMEM, "%u vCPUs", n);
	memset(vm->vcpu, 0, n * sizeof(*vm->vcpu));
	for (uint32_t i = 0; i < n; i++) {
		struct vcpu *v = &vm->vcpu[i];

		v->vm = vm;
		v->index = i;
		v->fd = ioctl(vm->vm_fd, KVM_CREATE_VCPU, (unsigned long)i);
		if (v->fd < 0)
			return err_errno(err, -errno, "vCPU %u: KVM_CREATE_VCPU", i);
		vm->nvcpus = i + 1;
		void *p = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, 0);

		if (p == MAP_FAILED)
			return err_errno(err, -errno, "vCPU %u: map its run area", i);
		v->run = p;
		v->run_size = (size_t)size;
	}
	return 0;
}

int vcpu_start_all(struct vm *vm, struct err *err)
{
	struct sigaction sa = { .sa_handler = on_kick };
	pthread_attr_t attr;
	int r;

	if (sigaction(kick_signal(), &sa, NULL) < 0)
		return err_errno(err, -errno, "sigaction");
	r = -pthread_attr_init(&attr);
	if (r == 0)
		r = -pthread_attr_setstacksize(&attr, VCPU_STACK_SIZE);
	for (uint32_t i = 0; r == 0 && i < vm->nvcpus; i++) {
		r = -pthread_create(&vm->vcpu[i].thread, &attr, vcpu_main, &vm->vcpu[i]);
		if (r < 0)
			err_errno(err, r, "vCPU %u: start its thread", i);
		else
			vm->vcpu[i].started = true;
	}
	pthread_attr_destroy(&attr);
	return r;
}

void vcpu_kick(struct vcpu *v)
{
	set_immediate_exit(v, 1);
	pthread_kill(v->thread, kick_signal());
}

/* Returns with the lock held and every started vCPU told. */
static void announce(struct vm *vm, enum vcpu_want want)
{
	struct vcpu_barrier *b = &vm->barrier;

	pthread_mutex_lock(&b->lock);
	atomic_store(&b->want, want);
	if (want != VCPU_PARK)
		pthread_cond_broadcast(&b->want_cond);
	if (want == VCPU_RUN)
		return;
	for (uint32_t i = 0; i < vm->nvcpus; i++)
		if (vm->vcpu[i].started && !vm->vcpu[i].parked)
			vcpu_kick(&vm->vcpu[i]);
}

void vcpu_pause_all(struct vm *vm)
{
	struct vcpu_barrier *b = &vm->barrier;
	uint32_t n = 0;

	for (uint32_t i = 0; i < vm->nvcpus; i++)
		n += vm->vcpu[i].started;
	announce(vm, VCPU_PARK);
	while (b->parked < n)
		pthread_cond_wait(&b->parked_cond, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

void vcpu_resume_all(struct vm *vm)
{
	announce(vm, VCPU_RUN);
	pthread_mutex_unlock(&vm->barrier.lock);
}

void vcpu_stop_all(struct vm *vm)
{
	announce(vm, VCPU_QUIT);
	pthread_mutex_unlock(&vm->barrier.lock);
	for (uint32_t i = 0; i < vm->nvcpus; i++)
		if (vm->vcpu[i].started) {
			pthread_join(vm->vcpu[i].thread, NULL);
			vm->vcpu[i].started = false;
		}
}

void vcpu_finish_all(struct vm *vm)
{
	if (vm->nvcpus)
		vcpu_stop_all(vm);
	for (uint32_t i = 0; i < vm->nvcpus; i++) {
		if (vm->vcpu[i].run)
			munmap(vm->vcpu[i].run, vm->vcpu[i].run_size);
		fd_close(vm->vcpu[i].fd);
	}
	free(vm->vcpu);
	vm->vcpu = NULL;
	vm->nvcpus = 0;
}

uint64_t vcpu_exits(const struct vm *vm)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < vm->nvcpus; i++)
		n += atomic_load_explicit(&vm->vcpu[i].exits, memory_order_relaxed);
	return n;
}

uint64_t vcpu_unclaimed(const struct vm *vm)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < vm->nvcpus; i++)
		n += atomic_load_explicit(&vm->vcpu[i].unclaimed, memory_order_relaxed);
	return n;
}
