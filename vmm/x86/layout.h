/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things lie in an x86 guest's physical memory. One page of constants, in address order.
 *
 * Below 0xA0000 everything is RAM to the guest: what boot puts there is read once by the kernel's entry code, which
 * reserves or copies it. 0xA0000 to 0xE0000 is the old video window: RAM behind it, never announced. From 0xE0000
 * to 1 MiB are the tables, announced as reserved. A kernel starts at 1 MiB or above.
 */
#pragma once
#include "vmm/boot.h"

#define X86_GDT 0x500ull
#define X86_GDT_SIZE 48u
#define X86_START_INFO 0x6000ull    /* PVH: hvm_start_info, module list, memory map; one page */
#define X86_BOOT_PARAMS 0x7000ull   /* the "zero page" */
#define X86_BOOT_STACK 0x8ff0ull    /* grows down to 0x8000 */
#define X86_PML4 0x9000ull
#define X86_PDPT 0xa000ull
#define X86_PD 0xb000ull            /* up to 4 pages: 4 GiB in 2 MiB steps */
#define X86_SETUP_DATA 0xf000ull    /* random seed for the kernel */
#define X86_CMDLINE 0x20000ull
#define X86_CMDLINE_MAX 0x10000ull  /* bytes, with the terminating zero */
#define X86_LOW_RAM_END 0xA0000ull
#define X86_TABLES_START BOOT_VMGENID_GPA /* the guest's map calls everything from here to 1 MiB reserved */
#define X86_RSDP 0xE1000ull         /* tables follow it */
#define X86_RESET_VECTOR 0xFFFF0ull /* where a kernel jumps that reboots the old way */
#define X86_TABLES_END 0x100000ull
#define X86_KERNEL_MIN 0x100000ull

#define X86_IOAPIC 0xFEC00000u
#define X86_LAPIC 0xFEE00000u
#define X86_IDENTITY_MAP 0xFFFBC000u /* KVM's own pages, given by vmm/kvm.c */
#define X86_TSS 0xFFFBD000u          /* three pages */
#define X86_KVM_PAGES_END 0xFFFC0000ull

/* Selectors of the boot GDT, as Linux's 64-bit protocol wants them */
enum { X86_SEL_CODE = 0x10, X86_SEL_DATA = 0x18, X86_SEL_TSS = 0x20 };
