/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM state out of a running guest and into a fresh VM: the guest counts in a register and keeps a value in an SSE
 * register; after the restore it goes on from where it was.
 */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/payload.h"
#include "vmm/arch.h"
#include "vmm/vcpu.h"

enum { DONE_PORT = 0x10, COUNTER = 0x3000, FINISH = 0x3004, SSE = 0x3008, MARK = 0x11223344 };

/* Each vCPU counts at COUNTER + 16 * index. */
static const uint8_t code[] = {
	0x0f, 0x20, 0xe0,                         /* mov eax, cr4 */
	0x0d, 0x00, 0x02, 0x00, 0x00,             /* or eax, OSFXSR */
	0x0f, 0x22, 0xe0,                         /* mov cr4, eax */
	0xb8, 0x44, 0x33, 0x22, 0x11,             /* mov eax, MARK */
	0x66, 0x0f, 0x6e, 0xc0,                   /* movd xmm0, eax */
	0xc1, 0xe7, 0x04,                         /* shl edi, 4 */
	0x31, 0xc9,                               /* xor ecx, ecx */
	0x41,                                     /* loop: inc ecx */
	0x89, 0x8f, 0x00, 0x30, 0x00, 0x00,       /* mov [edi + COUNTER], ecx */
	0x83, 0x3d, 0x04, 0x30, 0x00, 0x00, 0x00, /* cmp dword [FINISH], 0 */
	0x74, 0xf0,                               /* je loop */
	0x66, 0x0f, 0x7e, 0x87, 0x08, 0x30, 0x00, 0x00, /* movd [edi + SSE], xmm0 */
	0xe6, DONE_PORT,                          /* out DONE_PORT, al */
	0xf4, 0xeb, 0xfd,                         /* hlt */
};

static void no_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	(void)opaque;
	(void)offset;
	memset(data, 0xff, len);
}

/* The last vCPU to finish stops the VM. */
struct done {
	struct vm *vm;
	_Atomic uint32_t left;
};

static void done_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct done *d = opaque;

	(void)offset;
	(void)data;
	(void)len;
	if (atomic_fetch_sub(&d->left, 1) == 1)
		vm_request_stop(d->vm, VM_STOP_POWEROFF, "done");
}

static const struct bus_ops done_ops = { no_read, done_write };

static void must(long r, const struct err *err)
{
	if (r < 0)
		fail_msg("%s", err->text);
}

static void make(struct vm *vm, struct done *done, uint32_t n)
{
	struct arch_cpu *cpu = malloc(sizeof(*cpu));
	struct err err = ERR_INIT;

	payload_init(vm, n, code, sizeof(code));
	must(arch_cpu_init(cpu, vm->kvm_fd, vm->vm_fd, n, &err), &err);
	for (uint32_t i = 0; i < n; i++)
		must(arch_vcpu_init(cpu, vm->vcpu[i].fd, i, &err), &err);
	free(cpu);
	*done = (struct done){ .vm = vm, .left = n };
	assert_int_equal(bus_add(&vm->bus, BUS_PIO, DONE_PORT, 1, &done_ops, done, "done", NULL), 0);
}

static void fds(const struct vm *vm, uint32_t n, int *ret)
{
	for (uint32_t i = 0; i < n; i++)
		ret[i] = vm->vcpu[i].fd;
}

static void wait_until_all_count(const struct vm *vm, uint32_t n, uint32_t beyond)
{
	for (uint32_t i = 0; i < n; i++)
		while (payload_read32(vm, COUNTER + 16 * i) <= beyond)
			sched_yield();
}

static void goes_on_in_a_fresh_vm(uint32_t n)
{
	static struct vm a, b;
	struct done done;
	static uint8_t memory[PAYLOAD_MEMORY];
	int fd[VM_MAX_VCPUS];
	struct err err = ERR_INIT;
	uint32_t at[VM_MAX_VCPUS];
	const uint32_t one = 1;
	uint8_t *state;
	size_t bound;
	long len;

	make(&a, &done, n);
	payload_run(&a);
	wait_until_all_count(&a, n, 1000);
	must(vm_set_state(&a, VM_PAUSED, &err), &err);
	fds(&a, n, fd);
	bound = arch_vm_state_bound(a.kvm_fd, a.vm_fd, n);
	state = malloc(bound);
	len = arch_vm_save(a.kvm_fd, a.vm_fd, fd, n, state, bound, &err);
	must(len, &err);
	assert_int_equal(mem_read(&a.mem, GPA(0), memory, sizeof(memory)), 0);
	for (uint32_t i = 0; i < n; i++)
		at[i] = payload_read32(&a, COUNTER + 16 * i);
	/* A buffer one byte short is refused, not overrun. */
	assert_true(arch_vm_save(a.kvm_fd, a.vm_fd, fd, n, state, (size_t)len - 1, NULL) < 0);
	must(arch_vm_save(a.kvm_fd, a.vm_fd, fd, n, state, bound, &err), &err);
	assert_int_equal(vm_set_state(&a, VM_STOPPED, NULL), 0);
	vm_finish(&a);

	make(&b, &done, n);
	assert_int_equal(mem_write(&b.mem, GPA(0), memory, sizeof(memory)), 0);
	fds(&b, n, fd);
	must(arch_vm_restore(b.kvm_fd, b.vm_fd, fd, n, state, (size_t)len, &err), &err);
	free(state);
	payload_run(&b);
	for (uint32_t i = 0; i < n; i++)
		while (payload_read32(&b, COUNTER + 16 * i) < at[i] + 1000)
			sched_yield();
	assert_int_equal(mem_write(&b.mem, GPA(FINISH), &one, sizeof(one)), 0);
	payload_wait(&b);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(payload_read32(&b, SSE + 16 * i), MARK);
	vm_finish(&b);
}

static void one_vcpu_goes_on_in_a_fresh_vm(void **ctx)
{
	(void)ctx;
	payload_require_kvm();
	goes_on_in_a_fresh_vm(1);
}

static void four_vcpus_go_on_in_a_fresh_vm(void **ctx)
{
	(void)ctx;
	payload_require_kvm();
	goes_on_in_a_fresh_vm(4);
}

/* What was restored is what is read again: every byte but clocks and counters that run. */
static void saved_again_it_is_the_same(void **ctx)
{
	static struct vm a, b;
	struct done done;
	struct err err = ERR_INIT;
	uint8_t *first, *second;
	int fd[1];
	size_t bound;
	long n, m;

	(void)ctx;
	payload_require_kvm();
	make(&a, &done, 1);
	payload_run(&a);
	wait_until_all_count(&a, 1, 1000);
	must(vm_set_state(&a, VM_PAUSED, &err), &err);
	fds(&a, 1, fd);
	bound = arch_vm_state_bound(a.kvm_fd, a.vm_fd, 1);
	first = malloc(bound);
	second = malloc(bound);
	n = arch_vm_save(a.kvm_fd, a.vm_fd, fd, 1, first, bound, &err);
	must(n, &err);
	assert_int_equal(vm_set_state(&a, VM_STOPPED, NULL), 0);
	vm_finish(&a);
	make(&b, &done, 1);
	fds(&b, 1, fd);
	must(arch_vm_restore(b.kvm_fd, b.vm_fd, fd, 1, first, (size_t)n, &err), &err);
	m = arch_vm_save(b.kvm_fd, b.vm_fd, fd, 1, second, bound, &err);
	must(m, &err);
	assert_int_equal(n, m);
	for (long at = 0; at < n;) {
		uint16_t item = le16_load(first + at);
		uint32_t len = le32_load(first + at + 4);

		assert_memory_equal(first + at, second + at, 8);
		/* REGS, SREGS, XSAVE, XCRS, DEBUGREGS, TSC_KHZ, CPUID, VCPU_EVENTS, PIC and IOAPIC */
		if ((item >= 2 && item <= 6) || item == 8 || item == 9 || item == 11 || item >= 34)
			if (memcmp(first + at + 8, second + at + 8, len) != 0)
				fail_msg("item %u differs", item);
		at += 8 + (long)len;
	}
	free(first);
	free(second);
	vm_finish(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_vcpu_goes_on_in_a_fresh_vm),
		cmocka_unit_test(four_vcpus_go_on_in_a_fresh_vm),
		cmocka_unit_test(saved_again_it_is_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
