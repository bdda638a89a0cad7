/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a snapshot depends on in its machine: see snapshot_host.h.
 *
 * A guest has looked at its processor and goes on to use what it found, and each KVM module keeps state that only it
 * understands. So vendor, family, model and what CPUID offers must be the same; the stepping may differ.
 */
#include "host/snapshot_host.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/doctor.h"
#include "lib/util.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* Leaves with features, and the registers (a b c d) of each that say nothing about this core or this moment. */
static const struct {
	uint32_t leaf, subleaf, mask[4];
} leaves[] = {
	{ 1, 0, { 0, 0, ~(1u << 27) /* OSXSAVE */, ~(1u << 9) /* APIC */ } },
	{ 7, 0, { 0, ~0u, ~(1u << 4) /* OSPKE */, ~0u } },
	{ 7, 1, { ~0u, 0, 0, ~0u } },
	{ 0xd, 1, { ~0u, 0, 0, 0 } },
	{ 0x80000001, 0, { 0, 0, ~0u, ~0u } },
	{ 0x80000008, 0, { 0, ~0u, 0, 0 } },
};

static void identify_cpu(struct snapshot_cpu *c)
{
	uint32_t word[ARRAY_SIZE(leaves)][4] = { 0 }, a, b, x, d;

	if (!__get_cpuid(0, &a, &b, &x, &d))
		return;
	memcpy(c->vendor, &b, 4);
	memcpy(c->vendor + 4, &d, 4);
	memcpy(c->vendor + 8, &x, 4);
	for (size_t i = 0; i < 12; i++)
		if (c->vendor[i] < 0x20 || c->vendor[i] > 0x7e)
			c->vendor[i] = '?';
	if (!__get_cpuid(1, &a, &b, &x, &d))
		return;
	uint32_t family = a >> 8 & 15, model = a >> 4 & 15;

	if (family == 6 || family == 15)
		model |= a >> 12 & 0xf0;
	if (family == 15)
		family += a >> 20 & 0xff;
	c->family = family;
	c->model = model;
	c->stepping = a & 15;
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		if (!__get_cpuid_count(leaves[i].leaf, leaves[i].subleaf, &word[i][0], &word[i][1], &word[i][2],
				       &word[i][3]))
			continue;
		for (int k = 0; k < 4; k++)
			word[i][k] &= leaves[i].mask[k];
	}
	snapshot_hash(word, sizeof(word), c->features);
}
#else
static void identify_cpu(struct snapshot_cpu *c)
{
	strcpy(c->vendor, "unknown");
}
#endif

void snapshot_host_identify(struct snapshot_cpu *ret_cpu, const char **ret_kvm)
{
	struct doctor_facts f = { 0 };

	*ret_cpu = (struct snapshot_cpu){ 0 };
	identify_cpu(ret_cpu);
	doctor_gather_kvm("", &f);
	*ret_kvm = f.kvm_intel ? "kvm_intel" : f.kvm_amd ? "kvm_amd" : f.kvm_pvm ? "kvm_pvm" : "unknown";
}

int snapshot_host_check(const struct snapshot_cpu *cpu, const char *kvm, const struct snapshot_cpu *here,
			const char *kvm_here, struct err *err)
{
	if (strcmp(cpu->vendor, here->vendor) != 0 || cpu->family != here->family || cpu->model != here->model)
		return err_set(err, -ENOTSUP,
			       "it was taken on another processor (%s family %u model %u, this is %s family %u model %u): restore it on a machine of that kind",
			       cpu->vendor, cpu->family, cpu->model, here->vendor, here->family, here->model);
	if (strcmp(cpu->features, here->features) != 0)
		return err_set(err, -ENOTSUP,
			       "it was taken on a processor that offers other features (%s family %u model %u, stepping %u, here %u): microcode, firmware settings or an outer hypervisor differ",
			       cpu->vendor, cpu->family, cpu->model, cpu->stepping, here->stepping);
	if (strcmp(kvm, kvm_here) != 0)
		return err_set(err, -ENOTSUP,
			       "it was taken with %s, this machine has %s: restore it where that module is loaded", kvm,
					kvm_here);
	return 0;
}
