/* SPDX-License-Identifier: Apache-2.0 */
/* What machine_save.c and machine_load.c share. */
#pragma once
#include "devices/machine.h"
#include "snapshot/state.h"

#define SECTION_MACHINE "machine"
#define SECTION_KVM "kvm"
enum { DEVICE_PLACE_SIZE = 16 };

#define MACHINE_SHAPE_STATE(F, A, S, V)                    \
	F(1, 1, u64, memory) /* bytes of RAM */            \
	F(2, 1, u32, nvcpus)                               \
	F(3, 1, u32, ndevices)
STATE_STRUCT(machine_shape, MACHINE_SHAPE_STATE);

void machine_shape_get(const struct machine *m, struct machine_shape_state *ret);
void machine_vcpu_fds(const struct machine *m, int *ret); /* VM_MAX_VCPUS entries */
