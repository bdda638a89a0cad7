/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vCPUs of x86 before their first instruction: see arch.h.
 *
 * How it works: KVM's reset values are kept wherever they will do. Set are CPUID, the memory type (write-back by default:
 * there is no firmware to do it), fast strings, the interrupt pins as firmware leaves them (LINT0 external, LINT1 NMI),
 * and the boot processor's registers and FPU.
 */
#include "vmm/arch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "vmm/vm.h"
#include "vmm/x86/cpuid.h"
#include "vmm/x86/msr.h"
#include "vmm/x86/regs.h"

enum { LVT_LINT0 = 0x350, LVT_LINT1 = 0x360, DELIVERY_NMI = 4 << 8, DELIVERY_EXTINT = 7 << 8 };
enum { FPU_CONTROL = 0x37f, MXCSR_DEFAULT = 0x1f80 };

static int get_supported(struct arch_cpu *cpu, int kvm_fd, struct err *err)
{
	_cleanup_free_ struct kvm_cpuid2 *c = calloc(1, sizeof(*c) + sizeof(c->entries[0]) * ARCH_CPUID_MAX);

	if (!c)
		return err_errno(err, -ENOMEM, "CPUID");
	c->nent = ARCH_CPUID_MAX;
	if (ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, c) < 0)
		return err_errno(err, -errno, "KVM_GET_SUPPORTED_CPUID");
	cpu->ncpuid = MIN(c->nent, (uint32_t)ARCH_CPUID_MAX);
	memcpy(cpu->cpuid, c->entries, cpu->ncpuid * sizeof(c->entries[0]));
	return 0;
}

int arch_cpu_init(struct arch_cpu *cpu, int kvm_fd, int vm_fd, uint32_t nvcpus, struct err *err)
{
	struct kvm_enable_cap no_pmu = { .cap = KVM_CAP_PMU_CAPABILITY, .args = { KVM_PMU_CAP_DISABLE } };
	int r;

	memset(cpu, 0, sizeof(*cpu));
	if (nvcpus < 1 || nvcpus > VM_MAX_VCPUS)
		return err_set(err, -EINVAL, "%u vCPUs asked: use 1 to %d", nvcpus, VM_MAX_VCPUS);
	cpu->nvcpus = nvcpus;
	cpu->tsc_deadline = ioctl(kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_TSC_DEADLINE_TIMER) > 0;
	/* Older kernels cannot; the guest does not see the counters in CPUID either way. */
	if (ioctl(kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_PMU_CAPABILITY) & KVM_PMU_CAP_DISABLE)
		ioctl(vm_fd, KVM_ENABLE_CAP, &no_pmu);
	r = get_supported(cpu, kvm_fd, err);
	if (r < 0)
		return r;
	const struct cpuid_params p = { .nvcpus = nvcpus, .tsc_deadline = cpu->tsc_deadline };

	return cpuid_make(cpu->cpuid, &cpu->ncpuid, ARCH_CPUID_MAX, &p, err);
}

static int set_cpuid(const struct arch_cpu *cpu, int vcpu_fd, uint32_t index, struct err *err)
{
	_cleanup_free_ struct kvm_cpuid2 *c = calloc(1, sizeof(*c) + sizeof(c->entries[0]) * ARCH_CPUID_MAX);
	int khz = ioctl(vcpu_fd, KVM_GET_TSC_KHZ);

	if (!c)
		return err_errno(err, -ENOMEM, "vCPU %u: CPUID", index);
	c->nent = cpu->ncpuid;
	memcpy(c->entries, cpu->cpuid, cpu->ncpuid * sizeof(c->entries[0]));
	cpuid_make_vcpu(c->entries, c->nent, index, khz > 0 ? (uint32_t)khz : 0);
	if (ioctl(vcpu_fd, KVM_SET_CPUID2, c) < 0)
		return err_errno(err, -errno, "vCPU %u: KVM_SET_CPUID2", index);
	return 0;
}

static int set_lint(int vcpu_fd, uint32_t index, struct err *err)
{
	struct kvm_lapic_state lapic;

	if (ioctl(vcpu_fd, KVM_GET_LAPIC, &lapic) < 0)
		return err_errno(err, -errno, "vCPU %u: KVM_GET_LAPIC", index);
	le32_store(lapic.regs + LVT_LINT0, DELIVERY_EXTINT);
	le32_store(lapic.regs + LVT_LINT1, DELIVERY_NMI);
	if (ioctl(vcpu_fd, KVM_SET_LAPIC, &lapic) < 0)
		return err_errno(err, -errno, "vCPU %u: KVM_SET_LAPIC", index);
	return 0;
}

int arch_vcpu_init(const struct arch_cpu *cpu, int vcpu_fd, uint32_t index, struct err *err)
{
	int r = set_cpuid(cpu, vcpu_fd, index, err);

	if (r == 0)
		r = msr_set_boot(vcpu_fd, err);
	if (r == 0)
		r = set_lint(vcpu_fd, index, err);
	return r;
}

int arch_vcpu_enter(int vcpu_fd, const struct boot_entry *entry, struct err *err)
{
	struct kvm_fpu fpu = { .fcw = FPU_CONTROL, .mxcsr = MXCSR_DEFAULT };
	struct kvm_sregs sregs;
	struct kvm_regs regs;

	if (ioctl(vcpu_fd, KVM_GET_SREGS, &sregs) < 0)
		return err_errno(err, -errno, "KVM_GET_SREGS");
	regs_make_special(entry, &sregs);
	regs_make(entry, &regs);
	if (ioctl(vcpu_fd, KVM_SET_SREGS, &sregs) < 0)
		return err_errno(err, -errno, "KVM_SET_SREGS");
	if (ioctl(vcpu_fd, KVM_SET_REGS, &regs) < 0)
		return err_errno(err, -errno, "KVM_SET_REGS");
	if (ioctl(vcpu_fd, KVM_SET_FPU, &fpu) < 0)
		return err_errno(err, -errno, "KVM_SET_FPU");
	return 0;
}
