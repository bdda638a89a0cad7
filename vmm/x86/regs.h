/* SPDX-License-Identifier: Apache-2.0 */
/* The boot processor's registers, as pure functions over what KVM gives at reset. */
#pragma once
#include <linux/kvm.h>

#include "vmm/boot.h"

void regs_make(const struct boot_entry *entry, struct kvm_regs *ret);
void regs_make_special(const struct boot_entry *entry, struct kvm_sregs *inout);
