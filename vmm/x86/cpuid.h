/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's CPUID, made from what KVM supports. Pure functions over a list of entries. */
#pragma once
#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/err.h"

struct cpuid_params {
	uint32_t nvcpus;   /* 1..VM_MAX_VCPUS */
	bool tsc_deadline; /* KVM has the deadline timer */
};

/* Turn KVM's supported list (*n entries, room for max) into what every vCPU sees, with the values of vCPU 0. 0 or -errno. */
int cpuid_make(struct kvm_cpuid_entry2 *e, uint32_t *n, uint32_t max, const struct cpuid_params *p, struct err *err);

/* What differs by vCPU (its APIC id) and what only its descriptor knows (tsc_khz, 0: unknown). */
void cpuid_make_vcpu(struct kvm_cpuid_entry2 *e, uint32_t n, uint32_t index, uint32_t tsc_khz);

struct kvm_cpuid_entry2 *cpuid_find(struct kvm_cpuid_entry2 *e, uint32_t n, uint32_t function, uint32_t index);
