/* SPDX-License-Identifier: Apache-2.0 */
/* Time-stamp counters and the guest's clock: see tsc.h. */
/* syscalls(main): ioctl(1=KVM_HAS_DEVICE_ATTR) ioctl(1=KVM_GET_DEVICE_ATTR) ioctl(1=KVM_SET_DEVICE_ATTR)
 * ioctl(1=KVM_GET_CLOCK) ioctl(1=KVM_GET_TSC_KHZ) */
#include "vmm/x86/tsc.h"

#include <errno.h>
#include <stddef.h>
#include <sys/ioctl.h>

#include "vmm/counter.h"

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

int tsc_set_offset(int vcpu_fd, uint64_t offset)
{
	return offset_attr(vcpu_fd, KVM_SET_DEVICE_ATTR, &offset);
}

bool tsc_is_unscaled(int vm_fd, uint32_t khz)
{
	return ioctl(vm_fd, KVM_GET_TSC_KHZ) == (int)khz;
}

int tsc_shift(int vm_fd, const struct kvm_clock_data *saved, uint32_t khz, uint64_t *ret)
{
	struct kvm_clock_data now = { 0 };

	if (!(saved->flags & KVM_CLOCK_HOST_TSC) || ioctl(vm_fd, KVM_GET_CLOCK, &now) < 0 || !(now.flags & KVM_CLOCK_HOST_TSC))
		return -ENOTSUP;
	/* The clock's step from then to now in ticks. It is short or negative; all sums are modulo 2^64, as the counter is. */
	*ret = (uint64_t)((__int128)(int64_t)(now.clock - saved->clock) * khz / 1000000) + saved->host_tsc - now.host_tsc;
	return 0;
}

void counter_learn(struct guest_counter *c, int vm_fd, const int *vcpu_fd, uint32_t nvcpus)
{
	uint64_t offset;
	int khz;

	*c = (struct guest_counter){ 0 };
	if (nvcpus == 0 || tsc_get_offset(vcpu_fd[0], &c->offset) < 0)
		return;
	khz = ioctl(vcpu_fd[0], KVM_GET_TSC_KHZ);
	if (khz <= 0 || !tsc_is_unscaled(vm_fd, (uint32_t)khz))
		return;
	for (uint32_t i = 1; i < nvcpus; i++)
		if (tsc_get_offset(vcpu_fd[i], &offset) < 0 || offset != c->offset || ioctl(vcpu_fd[i], KVM_GET_TSC_KHZ) != khz)
			return;
	c->khz = (uint32_t)khz;
}

int counter_now(const struct guest_counter *c, int vm_fd, struct counter_moment *ret)
{
	const uint32_t both = KVM_CLOCK_HOST_TSC | KVM_CLOCK_REALTIME;
	struct kvm_clock_data now = { 0 };

	if (c->khz == 0 || ioctl(vm_fd, KVM_GET_CLOCK, &now) < 0 || (now.flags & both) != both)
		return -ENOTSUP;
	*ret = (struct counter_moment){ .realtime_ns = now.realtime, .value = now.host_tsc + c->offset, .khz = c->khz };
	return 0;
}
