/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPUID of the guest: see cpuid.h.
 *
 * Guest contract: Intel SDM volume 2 "CPUID", AMD APM volume 3 appendix E, KVM Documentation/virt/kvm/x86/cpuid.rst.
 *
 * How it works: KVM's supported list is the host's processor as KVM can virtualise it. On top of it:
 * - topology is ours: one package of nvcpus cores with one thread each, APIC id = vCPU index, the last-level cache
 *   shared by all, the others private. Every leaf that tells it says the same (1, 4, 0xB, 0x1F; AMD: 0x80000001,
 *   0x80000008, 0x8000001D, 0x8000001E);
 * - hidden is what does not work in a guest or cannot be captured: nested virtualisation, the PMU, MONITOR/MWAIT,
 *   thermal and power management, debug store, resource director, SGX, processor trace, IBS;
 * - the TSC is not announced as invariant (0x80000007). With it Linux would time by the TSC alone and take it for
 *   continuous across pause, snapshot and hosts of another frequency, which only kvmclock is;
 * - the hypervisor leaves are KVM's own, and 0x40000010 tells the TSC and APIC bus frequencies as several monitors do.
 *   Leaf 0x15, where an Intel processor has it, says the same by a crystal of 1 GHz, which is KVM's APIC bus clock.
 */
#include "vmm/x86/cpuid.h"

#include <errno.h>
#include <string.h>

#include "lib/util.h"

#define BIT(n) (1u << (n))

enum { KVM_LEAF_BASE = 0x40000000, KVM_LEAF_FEATURES = 0x40000001, KVM_LEAF_TIMING = 0x40000010 };
enum { APIC_BUS_KHZ = 1000000, CRYSTAL_HZ = 1000000000 };
enum { LEVEL_TYPE_SMT = 1 << 8, LEVEL_TYPE_CORE = 2 << 8 };

enum { /* leaf 1 */
	ECX_DTES64 = BIT(2),
	ECX_MONITOR = BIT(3),
	ECX_DS_CPL = BIT(4),
	ECX_VMX = BIT(5),
	ECX_SMX = BIT(6),
	ECX_EST = BIT(7),
	ECX_TM2 = BIT(8),
	ECX_XTPR = BIT(14),
	ECX_PDCM = BIT(15),
	ECX_TSC_DEADLINE = BIT(24),
	ECX_OSXSAVE = BIT(27),
	EDX_DS = BIT(21),
	EDX_ACPI = BIT(22),
	EDX_HTT = BIT(28),
	EDX_TM = BIT(29),
};
#define ECX_HYPERVISOR BIT(31)
#define EDX_PBE BIT(31)

enum { /* leaf 0x80000001, ecx */
	EXT_CMP_LEGACY = BIT(1),
	EXT_SVM = BIT(2),
	EXT_IBS = BIT(10),
	EXT_SKINIT = BIT(12),
	EXT_WDT = BIT(13),
	EXT_LWP = BIT(15),
	EXT_TOPOLOGY = BIT(22),
	EXT_PERFCTR_CORE = BIT(23),
	EXT_PERFCTR_NB = BIT(24),
	EXT_PERFCTR_LLC = BIT(28),
	EXT_MWAITX = BIT(29),
};

enum { FEATURE7_SGX = BIT(2), FEATURE7_RDT_M = BIT(12), FEATURE7_RDT_A = BIT(15), FEATURE7_PT = BIT(25) };
enum { POWER_ARAT = BIT(2), INVARIANT_TSC = BIT(8), OSPKE = BIT(4) };

struct kvm_cpuid_entry2 *cpuid_find(struct kvm_cpuid_entry2 *e, uint32_t n, uint32_t function, uint32_t index)
{
	for (uint32_t i = 0; i < n; i++)
		if (e[i].function == function && (!(e[i].flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) || e[i].index == index))
			return &e[i];
	return NULL;
}

struct list {
	struct kvm_cpuid_entry2 *e;
	uint32_t n, max;
	bool full;
};

static struct kvm_cpuid_entry2 *find(struct list *l, uint32_t function)
{
	return cpuid_find(l->e, l->n, function, 0);
}

static void remove_leaf(struct list *l, uint32_t function)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->n; i++)
		if (l->e[i].function != function)
			l->e[kept++] = l->e[i];
	l->n = kept;
}

static struct kvm_cpuid_entry2 *add(struct list *l, uint32_t function)
{
	if (l->n == l->max) {
		l->full = true;
		return NULL;
	}
	l->e[l->n] = (struct kvm_cpuid_entry2){ .function = function };
	return &l->e[l->n++];
}

static void set(struct list *l, uint32_t function, uint32_t eax, uint32_t ebx, uint32_t ecx, uint32_t edx)
{
	struct kvm_cpuid_entry2 *e = find(l, function);

	if (!e)
		e = add(l, function);
	if (!e)
		return;
	e->eax = eax;
	e->ebx = ebx;
	e->ecx = ecx;
	e->edx = edx;
}

static void add_level(struct list *l, uint32_t function, uint32_t index, uint32_t shift, uint32_t count, uint32_t type)
{
	struct kvm_cpuid_entry2 *e = add(l, function);

	if (!e)
		return;
	e->flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
	e->index = index;
	e->eax = shift;
	e->ebx = count;
	e->ecx = type | index;
}

/* Bits of an APIC id that number the cores of the package. */
static uint32_t id_bits(uint32_t nvcpus)
{
	uint32_t bits = 0;

	while (1u << bits < nvcpus)
		bits++;
	return bits;
}

static bool is_vendor(struct list *l, const char *vendor)
{
	const struct kvm_cpuid_entry2 *e = find(l, 0);

	return e && memcmp(&e->ebx, vendor, 4) == 0 && memcmp(&e->edx, vendor + 4, 4) == 0 &&
	       memcmp(&e->ecx, vendor + 8, 4) == 0;
}

static bool is_amd(struct list *l)
{
	return is_vendor(l, "AuthenticAMD") || is_vendor(l, "HygonGenuine");
}

static uint32_t max_basic(struct list *l)
{
	const struct kvm_cpuid_entry2 *e = find(l, 0);

	return e ? e->eax : 0;
}

static void make_features(struct list *l, const struct cpuid_params *p)
{
	struct kvm_cpuid_entry2 *e = find(l, 1);

	if (e) {
		e->ecx &= ~(uint32_t)(ECX_DTES64 | ECX_MONITOR | ECX_DS_CPL | ECX_VMX | ECX_SMX | ECX_EST | ECX_TM2 | ECX_XTPR |
				      ECX_PDCM | ECX_TSC_DEADLINE | ECX_OSXSAVE);
		e->ecx |= ECX_HYPERVISOR | (p->tsc_deadline ? ECX_TSC_DEADLINE : 0);
		e->edx &= ~(EDX_DS | EDX_ACPI | EDX_HTT | EDX_TM | EDX_PBE);
		e->edx |= p->nvcpus > 1 ? EDX_HTT : 0;
		/* Logical processors in the package; the APIC id above it is per vCPU. */
		e->ebx = (e->ebx & 0xffff) | p->nvcpus << 16;
	}
	e = find(l, 7);
	if (e) {
		e->ebx &= ~(uint32_t)(FEATURE7_SGX | FEATURE7_RDT_M | FEATURE7_RDT_A | FEATURE7_PT);
		e->ecx &= ~(uint32_t)OSPKE; /* follows CR4, kept by KVM */
	}
	e = find(l, 6);
	if (e)
		*e = (struct kvm_cpuid_entry2){ .function = 6, .flags = e->flags, .eax = e->eax & POWER_ARAT };
	e = find(l, 0x80000007);
	if (e)
		e->edx &= ~(uint32_t)INVARIANT_TSC;
	e = find(l, 0x80000001);
	if (e) {
		e->ecx &= ~(uint32_t)(EXT_CMP_LEGACY | EXT_SVM | EXT_IBS | EXT_SKINIT | EXT_WDT | EXT_LWP | EXT_PERFCTR_CORE |
				      EXT_PERFCTR_NB | EXT_PERFCTR_LLC | EXT_MWAITX);
		if (is_amd(l) && p->nvcpus > 1)
			e->ecx |= EXT_CMP_LEGACY;
	}
}

static void hide_leaves(struct list *l)
{
	static const uint32_t hidden[] = {
		0x5,        /* MONITOR */
		0x9,        /* direct cache access */
		0xa,        /* Intel PMU */
		0xf, 0x10,  /* resource director */
		0x12,       /* SGX */
		0x14,       /* processor trace */
		0x1c,       /* last branch records */
		0x23,       /* Intel PMU, extended */
		0x8000000a, /* SVM */
		0x8000001b, /* IBS */
		0x8000001c, /* lightweight profiling */
		0x8000001f, /* memory encryption */
		0x80000022, /* AMD PMU */
		0x80000026, /* AMD extended topology: 0xB tells it */
	};

	for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
		remove_leaf(l, hidden[i]);
}

static void make_topology_leaf(struct list *l, uint32_t function, uint32_t nvcpus)
{
	remove_leaf(l, function);
	if (function > max_basic(l))
		return;
	add_level(l, function, 0, 0, 1, LEVEL_TYPE_SMT);
	add_level(l, function, 1, id_bits(nvcpus), nvcpus, LEVEL_TYPE_CORE);
	add_level(l, function, 2, 0, 0, 0);
}

/* Leaf 4 and its AMD twin describe one cache per index: who shares it is in eax[25:14]. */
static void make_caches(struct list *l, uint32_t function, uint32_t nvcpus)
{
	uint32_t ids = 1u << id_bits(nvcpus);

	for (uint32_t i = 0; i < l->n; i++) {
		struct kvm_cpuid_entry2 *e = &l->e[i];
		uint32_t type = e->eax & 0x1f, level = e->eax >> 5 & 7;

		if (e->function != function || type == 0)
			continue;
		e->eax &= 0x3fff;
		if (level >= 3)
			e->eax |= (function == 4 ? ids - 1 : nvcpus - 1) << 14;
		if (function == 4) /* core ids the package has room for */
			e->eax |= (ids - 1) << 26;
	}
}

static void make_topology(struct list *l, uint32_t nvcpus)
{
	struct kvm_cpuid_entry2 *e;

	make_topology_leaf(l, 0xb, nvcpus);
	make_topology_leaf(l, 0x1f, nvcpus);
	make_caches(l, 4, nvcpus);
	make_caches(l, 0x8000001d, nvcpus);
	e = find(l, 0x80000008);
	if (e) {
		e->ecx = is_amd(l) ? (nvcpus - 1) | id_bits(nvcpus) << 12 : 0;
		e->edx = 0;
	}
	e = find(l, 0x80000001);
	if (is_amd(l) && e && e->ecx & EXT_TOPOLOGY)
		set(l, 0x8000001e, 0, 0, 0, 0); /* APIC id 0, core 0 with one thread, node 0 of one */
	else
		remove_leaf(l, 0x8000001e);
}

static void make_hypervisor(struct list *l)
{
	const struct kvm_cpuid_entry2 *features = find(l, KVM_LEAF_FEATURES);
	uint32_t eax = features ? features->eax : 0, edx = features ? features->edx : 0;
	uint32_t name[3];

	memcpy(name, "KVMKVMKVM\0\0\0", sizeof(name));
	set(l, KVM_LEAF_BASE, KVM_LEAF_TIMING, name[0], name[1], name[2]);
	set(l, KVM_LEAF_FEATURES, eax, 0, 0, edx);
	set(l, KVM_LEAF_TIMING, 0, APIC_BUS_KHZ, 0, 0); /* eax: see cpuid_make_vcpu */
	if (is_vendor(l, "GenuineIntel") && max_basic(l) >= 0x15)
		set(l, 0x15, 0, 0, 0, 0);
	else
		remove_leaf(l, 0x15);
	if (is_vendor(l, "GenuineIntel") && max_basic(l) >= 0x16)
		set(l, 0x16, 0, 0, 0, 0);
	else
		remove_leaf(l, 0x16);
}

int cpuid_make(struct kvm_cpuid_entry2 *e, uint32_t *n, uint32_t max, const struct cpuid_params *p, struct err *err)
{
	struct list l = { .e = e, .n = *n, .max = max };

	if (!find(&l, 0) || !find(&l, 1))
		return err_set(err, -ENOTSUP, "CPUID: KVM supports no leaf 0 or 1");
	make_features(&l, p);
	hide_leaves(&l);
	make_topology(&l, p->nvcpus);
	make_hypervisor(&l);
	if (l.full)
		return err_set(err, -E2BIG, "CPUID: more than %u entries", max);
	*n = l.n;
	return 0;
}

void cpuid_make_vcpu(struct kvm_cpuid_entry2 *e, uint32_t n, uint32_t index, uint32_t tsc_khz)
{
	for (uint32_t i = 0; i < n; i++) {
		struct kvm_cpuid_entry2 *c = &e[i];

		switch (c->function) {
		case 0x1:
			c->ebx = (c->ebx & 0x00ffffff) | index << 24;
			break;
		case 0xb:
		case 0x1f:
			c->edx = index;
			break;
		case 0x15: /* TSC = crystal * ebx / eax */
			c->eax = tsc_khz ? CRYSTAL_HZ / 1000 : 0;
			c->ebx = tsc_khz;
			c->ecx = tsc_khz ? CRYSTAL_HZ : 0;
			break;
		case 0x16:
			c->eax = c->ebx = tsc_khz / 1000;
			c->ecx = tsc_khz ? 100 : 0;
			break;
		case KVM_LEAF_TIMING:
			c->eax = tsc_khz;
			break;
		case 0x8000001e:
			c->eax = index;
			c->ebx = index;
			break;
		default:
			break;
		}
	}
}
