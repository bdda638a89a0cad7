/* SPDX-License-Identifier: Apache-2.0 */
/* Time-stamp counters and the guest's clock: see tsc.h. */
/* syscalls(main): ioctl(1=KVM_HAS_DEVICE_ATTR) ioctl(1=KVM_GET_DEVICE_ATTR) ioctl(1=KVM_SET_DEVICE_ATTR) */
#include "vmm/x86/tsc.h"

#include <errno.h>
#include <stddef.h>
#include <sys/ioctl.h>

static int offset_attr(int vcpu_fd, unsigned long request, uint64_t *value)
{
	struct kvm_device_attr a = {
		.group = KVM_VCPU_TSC_CTRL, .attr = KVM_VCPU_TSC_OFFSET, .addr = (uint64_t)(uintptr_t)value
	};

	return ioctl(vcpu_fd, request, &a) < 0 ? -errno : 0;
}

bool tsc_has_offset(int vcpu_fd)
{
	return offset_attr(vcpu_fd, KVM_HAS_DEVICE_ATTR, NULL) == 0;
}

int tsc_get_offset(int vcpu_fd, uint64_t *ret)
{
	return offset_attr(vcpu_fd, KVM_GET_DEVICE_ATTR, ret);
}

void tsc_align(int vm_fd, int vcpu_fd, const struct kvm_clock_data *saved, uint64_t offset, uint32_t khz)
{
	struct kvm_clock_data now = { 0 };
	uint64_t ticks;

	if (!(saved->flags & KVM_CLOCK_HOST_TSC) || ioctl(vm_fd, KVM_GET_CLOCK, &now) < 0 || !(now.flags & KVM_CLOCK_HOST_TSC))
		return;
	/* The clock's step from then to now in ticks. It is short or negative; all sums are modulo 2^64, as the counter is. */
	ticks = (uint64_t)((__int128)(int64_t)(now.clock - saved->clock) * khz / 1000000);
	offset += ticks + saved->host_tsc - now.host_tsc;
	offset_attr(vcpu_fd, KVM_SET_DEVICE_ATTR, &offset);
}
