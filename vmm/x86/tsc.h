/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time-stamp counters that keep their distance from the guest's clock and from one another (Linux, Documentation/virt/kvm/
 * devices/vcpu.rst, KVM_VCPU_TSC_OFFSET).
 *
 * Saving reads the counters and the clock one after another, restoring sets them one after another: what passes between is a
 * skew that a guest's watchdog notices. KVM names an exact pair, though: the clock and the host's counter of one moment. With it
 * and each vCPU's offset from the host's counter, the offsets that belong to the restored clock can be computed.
 */
#pragma once
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

bool tsc_has_offset(int vcpu_fd);
int tsc_get_offset(int vcpu_fd, uint64_t *ret); /* 0 or -errno */
/* After KVM_SET_CLOCK: give the vCPU the offset that stands to the clock now as `offset` stood to `saved`. Without an exact pair on
 * either side nothing is done: the counter keeps what its MSR was set to. */
void tsc_align(int vm_fd, int vcpu_fd, const struct kvm_clock_data *saved, uint64_t offset, uint32_t khz);
