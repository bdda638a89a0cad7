/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The least that a start from a snapshot can cost: what bench/restore.c compares with.
 *
 *   floor RAM OFFSET MIB ENTRY
 *
 * Opens /dev/kvm, makes a VM with interrupt chips, timer and one vCPU, maps MIB of the file RAM from OFFSET as its memory, sets
 * registers for 32-bit protected mode at ENTRY, runs until the guest's first port access, and says so with one byte on standard output.
 */
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/memory.h"
#include "vmm/x86/layout.h"

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void add_memory(int vm, uint32_t slot, uint64_t gpa, uint64_t size, int fd, uint64_t offset)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, (off_t)offset);
	struct kvm_userspace_memory_region r = { .slot = slot, .guest_phys_addr = gpa, .memory_size = size,
						 .userspace_addr = (uintptr_t)p };

	must(p != MAP_FAILED, "mmap");
	must(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &r) == 0, "memory slot");
}

static void set_registers(int vcpu, uint64_t entry)
{
	struct kvm_regs regs = { .rip = entry, .rflags = 2 };
	struct kvm_sregs s;

	must(ioctl(vcpu, KVM_GET_SREGS, &s) == 0, "KVM_GET_SREGS");
	s.cs = (struct kvm_segment){ .limit = 0xffffffff, .selector = 8, .type = 11, .present = 1, .db = 1, .s = 1, .g = 1 };
	s.ds = s.es = s.ss = (struct kvm_segment){ .limit = 0xffffffff, .selector = 16, .type = 3, .present = 1, .db = 1, .s = 1, .g = 1 };
	s.cr0 |= 1;
	must(ioctl(vcpu, KVM_SET_SREGS, &s) == 0, "KVM_SET_SREGS");
	must(ioctl(vcpu, KVM_SET_REGS, &regs) == 0, "KVM_SET_REGS");
}

int main(int argc, char **argv)
{
	struct kvm_pit_config pit = { .flags = 0 };
	uint64_t identity = X86_IDENTITY_MAP, size, offset;
	int kvm, vm, vcpu, ram, n;
	struct kvm_run *run;

	must(argc == 5, "usage");
	offset = strtoull(argv[2], NULL, 10);
	size = strtoull(argv[3], NULL, 10) << 20;
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	ram = open(argv[1], O_RDONLY | O_CLOEXEC);
	must(kvm >= 0 && ram >= 0, "open");
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	must(vm >= 0, "KVM_CREATE_VM");
	must(ioctl(vm, KVM_SET_IDENTITY_MAP_ADDR, &identity) == 0, "identity map");
	must(ioctl(vm, KVM_SET_TSS_ADDR, (unsigned long)X86_TSS) == 0, "TSS");
	must(ioctl(vm, KVM_CREATE_IRQCHIP, 0) == 0, "interrupt chips");
	must(ioctl(vm, KVM_CREATE_PIT2, &pit) == 0, "timer");
	add_memory(vm, 0, 0, size < MEM_HOLE_START ? size : MEM_HOLE_START, ram, offset);
	if (size > MEM_HOLE_START)
		add_memory(vm, 1, MEM_HOLE_END, size - MEM_HOLE_START, ram, offset + MEM_HOLE_START);
	vcpu = ioctl(vm, KVM_CREATE_VCPU, 0UL);
	n = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	must(vcpu >= 0 && n > 0, "vCPU");
	run = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	must(run != MAP_FAILED, "run area");
	set_registers(vcpu, strtoull(argv[4], NULL, 0));
	do
		must(ioctl(vcpu, KVM_RUN, 0) == 0, "KVM_RUN");
	while (run->exit_reason == KVM_EXIT_INTR);
	must(run->exit_reason == KVM_EXIT_IO && write(1, "F", 1) == 1, "the guest's first port access");
	return 0;
}
