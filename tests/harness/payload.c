/* SPDX-License-Identifier: Apache-2.0 */
/* Bare-metal guests: see payload.h. */
#include "tests/harness/payload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vmm/kvm.h"

void payload_require_kvm(void)
{
	if (access(KVM_DEVICE, R_OK | W_OK) < 0)
		skip();
}

enum { CR0_PE = 1, CR4_PSE = 1 << 4, PAGE_DIRECTORY = 0x1000 };
#define CR0_PG 0x80000000u

/* The lab's emulated processors corrupt memory now and then when several of them run guests without paging, so all
 * 4 GiB are mapped one to one in pages of 4 MiB. */
static void write_page_directory(struct vm *vm)
{
	uint32_t entry[1024];

	for (uint32_t i = 0; i < 1024; i++)
		entry[i] = i << 22 | 0x83; /* present, writable, large */
	assert_int_equal(mem_write(&vm->mem, GPA(PAGE_DIRECTORY), entry, sizeof(entry)), 0);
}

static void enter(const struct vcpu *v)
{
	struct kvm_segment code = { .limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1 };
	struct kvm_segment data = code;
	struct kvm_mp_state runnable = { KVM_MP_STATE_RUNNABLE };
	struct kvm_regs regs = {
		.rip = PAYLOAD_START,
		.rdi = v->index,
		.rsp = 0x8000 - v->index * 0x200ull,
		.rflags = 2,
	};
	struct kvm_sregs s;

	data.selector = 16;
	data.type = 3;
	assert_int_equal(ioctl(v->fd, KVM_GET_SREGS, &s), 0);
	s.cs = code;
	s.ds = s.es = s.fs = s.gs = s.ss = data;
	s.idt.limit = 0;
	s.cr3 = PAGE_DIRECTORY;
	s.cr4 |= CR4_PSE;
	s.cr0 |= CR0_PE | CR0_PG;
	assert_int_equal(ioctl(v->fd, KVM_SET_SREGS, &s), 0);
	assert_int_equal(ioctl(v->fd, KVM_SET_REGS, &regs), 0);
	assert_int_equal(ioctl(v->fd, KVM_SET_MP_STATE, &runnable), 0);
}

static void must(int r, const struct err *err)
{
	if (r < 0)
		fail_msg("%s", err->text);
}

void payload_init(struct vm *vm, uint32_t nvcpus, const void *code, size_t len)
{
	struct err err = ERR_INIT;

	must(vm_init(vm, &err), &err);
	must(kvm_open(vm, &err), &err);
	must(kvm_create_vm(vm, &err), &err);
	must(mem_init(&vm->mem, vm->vm_fd, PAYLOAD_MEMORY, &err), &err);
	must(vcpu_create_all(vm, nvcpus, &err), &err);
	assert_int_equal(mem_write(&vm->mem, GPA(PAYLOAD_START), code, len), 0);
	write_page_directory(vm);
	for (uint32_t i = 0; i < nvcpus; i++)
		enter(&vm->vcpu[i]);
}

void payload_run(struct vm *vm)
{
	struct err err = ERR_INIT;

	must(vm_set_state(vm, VM_CONFIGURED, &err), &err);
	must(vcpu_start_all(vm, &err), &err);
	must(vm_set_state(vm, VM_RUNNING, &err), &err);
}

void payload_wait(struct vm *vm)
{
	assert_int_equal(loop_run(&vm->loop), 0);
	assert_int_equal(vm_set_state(vm, VM_STOPPED, NULL), 0);
}

void payload_regs(const struct vm *vm, uint32_t vcpu, struct kvm_regs *ret)
{
	assert_int_equal(ioctl(vm->vcpu[vcpu].fd, KVM_GET_REGS, ret), 0);
}

uint32_t payload_read32(const struct vm *vm, uint64_t gpa)
{
	uint32_t v = 0;

	assert_int_equal(mem_read(&vm->mem, GPA(gpa), &v, sizeof(v)), 0);
	return v;
}
