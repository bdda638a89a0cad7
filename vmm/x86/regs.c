/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers at entry: see regs.h.
 *
 * Guest contract: Linux's 64-bit protocol wants long mode with paging, flat segments from the GDT, interrupts off, rsi =
 * boot_params. PVH wants 32-bit protected mode without paging, flat segments, a TSS, interrupts off, ebx = start info.
 * The other processors stay as KVM resets them, waiting for INIT and SIPI.
 */
#include "vmm/x86/regs.h"

#include <string.h>

#include "vmm/x86/layout.h"

enum { CR0_PE = 1 << 0, CR0_ET = 1 << 4, CR0_NE = 1 << 5, CR4_PAE = 1 << 5, EFER_LME = 1 << 8, EFER_LMA = 1 << 10 };
#define CR0_PG 0x80000000ull
enum { RFLAGS_RESERVED = 2 };
enum { TYPE_CODE = 11, TYPE_DATA = 3, TYPE_TSS_BUSY = 11 }; /* code and data: accessed */

void regs_make(const struct boot_entry *entry, struct kvm_regs *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->rip = entry->ip;
	ret->rflags = RFLAGS_RESERVED;
	if (entry->protocol == BOOT_PVH) {
		ret->rbx = entry->arg;
	} else {
		ret->rsi = entry->arg;
		ret->rsp = X86_BOOT_STACK;
	}
}

void regs_make_special(const struct boot_entry *entry, struct kvm_sregs *s)
{
	bool long_mode = entry->protocol == BOOT_LINUX64;
	struct kvm_segment flat = { .limit = 0xffffffff, .selector = X86_SEL_DATA, .type = TYPE_DATA, .present = 1, .s = 1,
				    .g = 1, .db = 1 };
	struct kvm_segment code = flat;

	code.selector = X86_SEL_CODE;
	code.type = TYPE_CODE;
	code.l = long_mode;
	code.db = !long_mode;
	s->cs = code;
	s->ds = s->es = s->fs = s->gs = s->ss = flat;
	s->tr = (struct kvm_segment){ .limit = 0x67, .selector = X86_SEL_TSS, .type = TYPE_TSS_BUSY, .present = 1 };
	s->idt = (struct kvm_dtable){ 0 };
	s->gdt = (struct kvm_dtable){ 0 };
	s->cr0 = CR0_PE | CR0_ET;
	s->cr4 = 0;
	s->cr3 = 0;
	s->efer = 0;
	if (long_mode) {
		s->gdt = (struct kvm_dtable){ .base = X86_GDT, .limit = X86_GDT_SIZE - 1 };
		s->cr0 |= CR0_NE | CR0_PG;
		s->cr4 = CR4_PAE;
		s->cr3 = X86_PML4;
		s->efer = EFER_LME | EFER_LMA;
	}
}
