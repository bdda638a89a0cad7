/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct vm and its lifecycle: see vm.h.
 *
 * A pause that a participant refuses is undone: those already paused are resumed in reverse order, then the vCPUs, and
 * the VM is running as before.
 */
/* syscalls(main, vcpu, worker): write */
#include "vmm/vm.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/fd.h"

int vm_init(struct vm *vm, struct err *err)
{
	memset(vm, 0, sizeof(*vm));
	vm->kvm_fd = vm->vm_fd = -1;
	vm->mem.vm_fd = -1;
	vm->log.fd = -1;
	vm->state = VM_CREATED;
	vcpu_barrier_init(&vm->barrier);
	return loop_init(&vm->loop, err);
}

void vm_finish(struct vm *vm)
{
	vcpu_finish_all(vm);
	if (vm->vm_fd > 0)
		fd_close(vm->vm_fd);
	if (vm->kvm_fd > 0)
		fd_close(vm->kvm_fd);
	vm->kvm_fd = vm->vm_fd = -1;
	mem_finish(&vm->mem);
	loop_finish(&vm->loop);
	vcpu_barrier_finish(&vm->barrier);
	vm->state = VM_STOPPED;
}

const char *vm_state_name(enum vm_state s)
{
	switch (s) {
	case VM_CREATED:
		return "created";
	case VM_CONFIGURED:
		return "configured";
	case VM_RUNNING:
		return "running";
	case VM_PAUSED:
		return "paused";
	case VM_STOPPED:
		return "stopped";
	}
	return "unknown";
}

const char *vm_stop_name(enum vm_stop r)
{
	switch (r) {
	case VM_STOP_NONE:
		return "none";
	case VM_STOP_POWEROFF:
		return "poweroff";
	case VM_STOP_REBOOT:
		return "reboot";
	case VM_STOP_PANIC:
		return "panic";
	case VM_STOP_KILLED:
		return "killed";
	case VM_STOP_CRASH:
		return "crash";
	case VM_STOP_ERROR:
		return "error";
	case VM_STOP_SAVED:
		return "saved";
	}
	return "unknown";
}

static bool allowed(enum vm_state from, enum vm_state to)
{
	switch (to) {
	case VM_CREATED:
		return false;
	case VM_CONFIGURED:
		return from == VM_CREATED;
	case VM_RUNNING:
		return from == VM_CONFIGURED || from == VM_PAUSED;
	case VM_PAUSED:
		return from == VM_RUNNING || from == VM_CONFIGURED;
	case VM_STOPPED:
		return from != VM_STOPPED;
	}
	return false;
}

static void resume_participants(struct vm *vm, int n)
{
	while (n-- > 0)
		vm->participant[n].resume(vm->participant[n].opaque);
}

static int pause_all(struct vm *vm, struct err *err)
{
	vcpu_pause_all(vm);
	for (int i = 0; i < vm->nparticipants; i++) {
		int r = vm->participant[i].pause(vm->participant[i].opaque);

		if (r < 0) {
			resume_participants(vm, i);
			vcpu_resume_all(vm);
			return err_errno(err, r, "pause: participant %d of %d", i + 1, vm->nparticipants);
		}
	}
	return 0;
}

static void learn_counter(struct vm *vm)
{
	int fd[VM_MAX_VCPUS];

	for (uint32_t i = 0; i < vm->nvcpus; i++)
		fd[i] = vm->vcpu[i].fd;
	counter_learn(&vm->counter, vm->vm_fd, fd, vm->nvcpus);
}

int vm_set_state(struct vm *vm, enum vm_state to, struct err *err)
{
	enum vm_state from = vm->state;
	int r = 0;

	if (!allowed(from, to))
		return err_set(err, -EINVAL, "a %s VM cannot become %s", vm_state_name(from), vm_state_name(to));
	switch (to) {
	case VM_CREATED:
		break;
	case VM_CONFIGURED:
		bus_freeze(&vm->bus);
		break;
	case VM_RUNNING:
		if (from == VM_PAUSED)
			resume_participants(vm, vm->nparticipants);
		learn_counter(vm);
		vcpu_resume_all(vm);
		break;
	case VM_PAUSED:
		r = pause_all(vm, err);
		break;
	case VM_STOPPED:
		vcpu_stop_all(vm);
		break;
	}
	if (r == 0)
		vm->state = to;
	return r;
}

int vm_add_participant(struct vm *vm, const struct vm_participant *p, struct err *err)
{
	if (vm->nparticipants == VM_MAX_PARTICIPANTS)
		return err_set(err, -ENOSPC, "more than %d participants in a VM", VM_MAX_PARTICIPANTS);
	vm->participant[vm->nparticipants++] = *p;
	return 0;
}

void vm_request_stop(struct vm *vm, enum vm_stop reason, const char *fmt, ...)
{
	va_list ap;

	if (atomic_exchange(&vm->stop_claimed, true))
		return;
	va_start(ap, fmt);
	vsnprintf(vm->stop_text, sizeof(vm->stop_text), fmt, ap);
	va_end(ap);
	/* The text is complete before the reason shows: the reason is what readers look at first. */
	atomic_store_explicit(&vm->stop_reason, (int)reason, memory_order_release);
	loop_stop(&vm->loop);
}
