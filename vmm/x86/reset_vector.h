/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where real firmware starts after a reset. A kernel that wants to reboot and knows no better way jumps there in real
 * mode: Linux does so on a hardware-reduced machine without EFI unless its command line says reboot=.
 */
#pragma once
#include "vmm/boot.h"

/* A few instructions that reset the machine through the event device; nothing when there is none. 0 or -errno. */
int reset_vector_write(struct mem *m, const struct boot_config *config);
