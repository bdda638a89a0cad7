/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model specific registers: see msr.h.
 *
 * KVM_GET_MSR_INDEX_LIST names what the host's KVM wants to see saved, except the MTRRs, which it keeps but
 * does not name.
 */
#include "vmm/x86/msr.h"

#include <errno.h>
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "lib/fd.h"
#include "lib/util.h"

enum {
	MSR_MISC_ENABLE = 0x1a0,
	MSR_MTRR_DEF_TYPE = 0x2ff,
	MSR_MTRR_VAR0 = 0x200,
	MTRR_VAR_COUNT = 8,
	MISC_FAST_STRINGS = 1,
	MTRR_ENABLE_WB = 1 << 11 | 6,
};

static const uint32_t mtrr_fixed[] = { 0x250, 0x258, 0x259, 0x268, 0x269, 0x26a, 0x26b, 0x26c, 0x26d, 0x26e, 0x26f };

int msr_set_boot(int vcpu_fd, struct err *err)
{
	union {
		struct kvm_msrs msrs;
		uint8_t room[sizeof(struct kvm_msrs) + 2 * sizeof(struct kvm_msr_entry)];
	} u = { .msrs.nmsrs = 2 };
	struct kvm_msr_entry *e = u.msrs.entries;
	int n;

	e[0] = (struct kvm_msr_entry){ .index = MSR_MISC_ENABLE, .data = MISC_FAST_STRINGS };
	e[1] = (struct kvm_msr_entry){ .index = MSR_MTRR_DEF_TYPE, .data = MTRR_ENABLE_WB };
	n = ioctl(vcpu_fd, KVM_SET_MSRS, &u);
	if (n < 0)
		return err_errno(err, -errno, "KVM_SET_MSRS");
	if (n < (int)u.msrs.nmsrs)
		return err_set(err, -ENOTSUP, "KVM refuses to set MSR 0x%x", e[n].index);
	return 0;
}

void msr_order(uint32_t *index, uint32_t n)
{
	for (uint32_t i = 0; i + 1 < n; i++)
		if (index[i] == MSR_IA32_TSC_DEADLINE) {
			memmove(&index[i], &index[i + 1], (n - i - 1) * sizeof(index[0]));
			index[n - 1] = MSR_IA32_TSC_DEADLINE;
			return;
		}
}

static bool contains(const uint32_t *index, uint32_t n, uint32_t msr)
{
	for (uint32_t i = 0; i < n; i++)
		if (index[i] == msr)
			return true;
	return false;
}

static uint32_t add(uint32_t *index, uint32_t n, uint32_t msr)
{
	if (n < MSR_MAX && !contains(index, n, msr))
		index[n++] = msr;
	return n;
}

int msr_list(int kvm_fd, uint32_t index[MSR_MAX], struct err *err)
{
	_cleanup_free_ struct kvm_msr_list *l = calloc(1, sizeof(*l) + sizeof(l->indices[0]) * MSR_MAX);
	uint32_t n;

	if (!l)
		return err_errno(err, -ENOMEM, "MSR list");
	l->nmsrs = MSR_MAX;
	if (ioctl(kvm_fd, KVM_GET_MSR_INDEX_LIST, l) < 0)
		return err_errno(err, -errno, "KVM_GET_MSR_INDEX_LIST");
	n = MIN(l->nmsrs, (uint32_t)MSR_MAX);
	memcpy(index, l->indices, n * sizeof(index[0]));
	for (size_t i = 0; i < ARRAY_SIZE(mtrr_fixed); i++)
		n = add(index, n, mtrr_fixed[i]);
	for (uint32_t i = 0; i < 2 * MTRR_VAR_COUNT; i++)
		n = add(index, n, MSR_MTRR_VAR0 + i);
	n = add(index, n, MSR_MTRR_DEF_TYPE);
	msr_order(index, n);
	return (int)n;
}
