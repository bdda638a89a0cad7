/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what KVM holds; shown here so that a test can look at it. The functions are in vmm/arch.h. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vcpu_item_kind {
	VCPU_ITEM_PLAIN,   /* one struct of `size` bytes */
	VCPU_ITEM_XSAVE,   /* at least a struct kvm_xsave, as long as the host says */
	VCPU_ITEM_TSC_KHZ, /* le32 */
	VCPU_ITEM_TSC_OFFSET, /* le64, from the host's counter */
	VCPU_ITEM_CPUID,   /* struct kvm_cpuid_entry2, `size` bytes each */
	VCPU_ITEM_MSRS,    /* struct kvm_msr_entry, `size` bytes each */
	VCPU_ITEM_CHIP,    /* struct kvm_irqchip of number `chip` */
};

struct vcpu_state_item {
	const char *name;
	unsigned long get, set;
	enum vcpu_item_kind kind;
	uint32_t size;
	int capability;   /* 0: always there */
	uint32_t chip;
	uint16_t id;      /* on the wire, never reused */
	uint8_t restore;  /* position in the order of restoring, counted apart for vCPUs and VM */
	bool of_vm;
	bool optional;    /* may be missing on either side */
};

/* In the order of saving. */
const struct vcpu_state_item *vcpu_state_items(size_t *ret_n);

enum { VCPU_STATE_RECORD = 8, VCPU_STATE_OF_VM = 0xffff };
