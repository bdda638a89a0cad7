/* SPDX-License-Identifier: Apache-2.0 */
/* What a snapshot depends on in the machine it was taken on: its processor and its KVM. */
#pragma once
#include "host/snapshot_manifest.h"
#include "lib/err.h"

/* This machine's. `kvm` is static text. */
void snapshot_host_identify(struct snapshot_cpu *ret_cpu, const char **ret_kvm);

/* 0, or -ENOTSUP: a snapshot made with `cpu` and `kvm` cannot be restored on a machine of `here` and `kvm_here`, and
 * why. */
int snapshot_host_check(const struct snapshot_cpu *cpu, const char *kvm, const struct snapshot_cpu *here,
			const char *kvm_here, struct err *err);
