/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time-stamp counters that keep their distance from the guest's clock and from one another (Linux, Documentation/virt/kvm/
 * devices/vcpu.rst, KVM_VCPU_TSC_OFFSET). vmm/counter.h is done here as well.
 *
 * Saving reads the counters and the clock one after another, restoring sets them one after another: what passes between is a
 * skew that a guest's watchdog notices. KVM names an exact pair, though: the clock and the host's counter of one moment. With it
 * and each vCPU's offset from the host's counter, the offsets that belong to the restored clock can be computed. All move by
 * the same number: KVM gives guests of several vCPUs a stable clock only while their offsets are equal.
 */
#pragma once
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

bool tsc_has_offset(int vcpu_fd);
int tsc_get_offset(int vcpu_fd, uint64_t *ret); /* 0 or -errno */
int tsc_set_offset(int vcpu_fd, uint64_t offset);
/* After KVM_SET_CLOCK: what to add to offsets that stood beside `saved`, for counters of `khz`. Without an exact pair on
 * either side -ENOTSUP: the counters keep what their MSRs were set to. */
int tsc_shift(int vm_fd, const struct kvm_clock_data *saved, uint32_t khz, uint64_t *ret);
/* The guest's counters are the host's but for the offset: not scaled. */
bool tsc_is_unscaled(int vm_fd, uint32_t khz);
