/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A paused machine as the sections of a `state` file, and back.
 *
 * Sections: "machine" (its shape), "kvm" (vCPUs, interrupt chips, clocks: vmm/arch.h), then one for each device, named
 * as the device ("blk0"), in the machine's order: le64 base address, le32 interrupt, le32 zero, and the device's own blob.
 *
 * Trust: what is loaded is hostile. Shape and places are compared with the machine that is there; KVM and the devices
 * check their own.
 */
#pragma once
#include "devices/machine.h"
#include "snapshot/state_file.h"
#include "vmm/vm.h"

/* What a state saved now leaves out: of the first device that leaves out anything; "" when none does. */
void machine_left_out(struct machine *m, char *text, size_t size);
/* The VM is paused. Fills *ret, which the caller finishes with the id and frees. 0 or -errno with a text. */
int machine_save(struct machine *m, struct state_file_writer *ret, struct err *err);

/* No state of this machine is a larger file: STATE_FILE_SIZE_MAX, and what devices with an extra part may have beyond. */
size_t machine_state_max(const struct machine *m);

/* Before memory is filled: is the file for a machine of this shape? 0 or -EINVAL with what differs. */
int machine_load_check(struct machine *m, const struct state_file *f, struct err *err);
/* Memory is filled, the vCPUs exist and have not run. Afterwards the machine is as it was saved, all devices quiesced, and each knows
 * that it is in a new process. */
int machine_load(struct machine *m, const struct state_file *f, struct err *err);
