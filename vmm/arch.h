/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a CPU needs before it runs, and how its state is captured. Architecture-neutral face of vmm/x86/ (cpuid,
 * msr, regs, vcpu_state).
 *
 *   arch_cpu_init(&cpu, kvm_fd, vm_fd, n, err)      once, after the interrupt chip exists
 *   arch_vcpu_init(&cpu, vcpu_fd, i, err)           each vCPU: identity, model registers, interrupt pins
 *   boot_load(...)                                  see boot.h
 *   arch_vcpu_enter(vcpu_fd[0], &entry, err)        registers of the boot processor
 *
 * A restored VM calls arch_vm_restore instead of the last three: its vCPUs must exist and not have run.
 */
#pragma once
#include <linux/kvm.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"
#include "vmm/boot.h"

enum { ARCH_CPUID_MAX = 256 };

/* One per VM, made once: what KVM supports, asked for a single time. */
struct arch_cpu {
	uint32_t nvcpus;
	uint32_t tsc_khz;       /* 0: unknown */
	uint32_t tsc_deadline;  /* KVM has the deadline timer */
	uint32_t ncpuid;
	struct kvm_cpuid_entry2 cpuid[ARCH_CPUID_MAX]; /* as the vCPU with APIC id 0 sees it */
};

int arch_cpu_init(struct arch_cpu *cpu, int kvm_fd, int vm_fd, uint32_t nvcpus, struct err *err);
int arch_vcpu_init(const struct arch_cpu *cpu, int vcpu_fd, uint32_t index, struct err *err);
int arch_vcpu_enter(int vcpu_fd, const struct boot_entry *entry, struct err *err);

/*
 * Capture and restore of everything KVM holds, in the order that works (see x86/vcpu_state.c), as a run of
 * records: le16 item, le16 vCPU (0xffff: of the VM), le32 length, payload. All vCPUs must be parked, outside
 * KVM_RUN, with no port or memory access half done.
 *
 * Save: bytes written, or -ENOSPC when buf is short, or -errno with a text. arch_vm_state_bound is a size that is
 * always enough. Restore refuses unknown, doubled, missing or mis-sized records before it sets anything.
 */
size_t arch_vm_state_bound(int kvm_fd, int vm_fd, uint32_t nvcpus);
long arch_vm_save(int kvm_fd, int vm_fd, const int *vcpu_fd, uint32_t nvcpus, void *buf, size_t len, struct err *err);
int arch_vm_restore(int kvm_fd, int vm_fd, const int *vcpu_fd, uint32_t nvcpus, const void *buf, size_t len,
		    struct err *err);
