/* SPDX-License-Identifier: Apache-2.0 */
/* Model specific registers: at boot, and which to capture. */
#pragma once
#include <stdint.h>

#include "lib/err.h"

enum { MSR_MAX = 1024, MSR_IA32_TSC = 0x10, MSR_IA32_TSC_DEADLINE = 0x6e0 };

/* Before the first instruction: memory type and fast strings. 0 or -errno. */
int msr_set_boot(int vcpu_fd, struct err *err);

/* The indices to capture, in the order to set them: KVM's own list plus the MTRRs it leaves out, the TSC before its
 * deadline. Returns how many (<= MSR_MAX) or -errno. */
int msr_list(int kvm_fd, uint32_t index[MSR_MAX], struct err *err);
/* The ordering step alone: n entries in place. */
void msr_order(uint32_t *index, uint32_t n);
