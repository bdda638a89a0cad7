/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bare-metal guest of a few instructions on any /dev/kvm.
 *
 * Every vCPU starts at PAYLOAD_START in flat 32-bit protected mode, interrupts off, with its index in edi and a
 * stack of its own; no interrupt table (any exception is a triple fault). Tests skip where there is no KVM.
 */
#pragma once
#include <linux/kvm.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/vm.h"

enum { PAYLOAD_START = 0x10000, PAYLOAD_MEMORY = 2 << 20 };

/* skip() when this machine has no KVM (also inside the lab's absence). */
void payload_require_kvm(void);
/* A VM in CREATED state with the code loaded: add bus ranges, then payload_run. */
void payload_init(struct vm *vm, uint32_t nvcpus, const void *code, size_t len);
/* CREATED -> CONFIGURED -> RUNNING. */
void payload_run(struct vm *vm);
/* Until somebody asked for a stop; then STOPPED. */
void payload_wait(struct vm *vm);
void payload_regs(const struct vm *vm, uint32_t vcpu, struct kvm_regs *ret);
uint32_t payload_read32(const struct vm *vm, uint64_t gpa);
