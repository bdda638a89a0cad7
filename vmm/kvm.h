/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KVM itself: the device, what it must be able to do, and an empty VM with its in-kernel interrupt chips.
 */
#pragma once
#include "lib/err.h"

struct vm;

#define KVM_DEVICE "/dev/kvm"

/* What the monitor cannot do without: X(capability without KVM_CAP_, what it is for). `coffer doctor` reads it too. */
#define KVM_REQUIRED(X)                                           \
	X(USER_MEMORY, "guest memory")                            \
	X(IRQCHIP, "in-kernel interrupt controllers")             \
	X(PIT2, "in-kernel timer")                                \
	X(SET_TSS_ADDR, "real mode on older processors")          \
	X(SET_IDENTITY_MAP_ADDR, "real mode on older processors") \
	X(IRQFD, "interrupts by eventfd")                         \
	X(IOEVENTFD, "notifications by eventfd")                  \
	X(IMMEDIATE_EXIT, "stopping vCPUs")                       \
	X(EXT_CPUID, "CPUID of the guest")                        \
	X(MP_STATE, "several vCPUs")                              \
	X(VCPU_EVENTS, "vCPU state")                              \
	X(DEBUGREGS, "vCPU state")                                \
	X(XSAVE, "vCPU state")                                    \
	X(ADJUST_CLOCK, "paravirtual clock")

/* Open the device and check the API version and KVM_REQUIRED: sets vm->kvm_fd. 0 or -errno. */
int kvm_open(struct vm *vm, struct err *err);
/* Make the VM, its interrupt controllers and timer: sets vm->vm_fd. 0 or -errno. */
int kvm_create_vm(struct vm *vm, struct err *err);
