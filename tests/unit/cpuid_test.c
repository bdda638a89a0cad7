/* SPDX-License-Identifier: Apache-2.0 */
/* The guest's CPUID from made-up lists of what KVM supports: an Intel and an AMD host. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/util.h"
#include "vmm/x86/cpuid.h"

enum { MAX = 64 };

struct list {
	struct kvm_cpuid_entry2 e[MAX];
	uint32_t n;
};

static struct kvm_cpuid_entry2 *put(struct list *l, uint32_t function, int index, uint32_t eax, uint32_t ebx, uint32_t ecx,
				    uint32_t edx)
{
	struct kvm_cpuid_entry2 *e = &l->e[l->n++];

	*e = (struct kvm_cpuid_entry2){ .function = function, .eax = eax, .ebx = ebx, .ecx = ecx, .edx = edx };
	if (index >= 0) {
		e->index = (uint32_t)index;
		e->flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
	}
	return e;
}

static void put_vendor(struct list *l, const char *name, uint32_t max)
{
	struct kvm_cpuid_entry2 *e = put(l, 0, -1, max, 0, 0, 0);

	memcpy(&e->ebx, name, 4);
	memcpy(&e->edx, name + 4, 4);
	memcpy(&e->ecx, name + 8, 4);
}

static void put_kvm(struct list *l)
{
	struct kvm_cpuid_entry2 *e = put(l, 0x40000000, -1, 0x40000001, 0, 0, 0);

	memcpy(&e->ebx, "KVMKVMKVM\0\0\0", 12);
	put(l, 0x40000001, -1, 0x01007afb, 0, 0, 0);
}

/* Host values are all ones where the guest must not see them. */
static struct list intel(void)
{
	struct list l = { .n = 0 };

	put_vendor(&l, "GenuineIntel", 0x1f);
	put(&l, 1, -1, 0x000806f8, 0xff2008ff, ~0u, ~0u);
	put(&l, 4, 0, 0xfc004121, 1, 2, 3); /* L1d */
	put(&l, 4, 1, 0xfc004122, 1, 2, 3); /* L1i */
	put(&l, 4, 2, 0xfc01c143, 1, 2, 3); /* L2 */
	put(&l, 4, 3, 0xfffc0163, 1, 2, 3); /* L3 */
	put(&l, 4, 4, 0, 0, 0, 0);
	put(&l, 5, -1, ~0u, ~0u, ~0u, ~0u);
	put(&l, 6, -1, ~0u, ~0u, ~0u, ~0u);
	put(&l, 7, 0, 0, ~0u, ~0u, ~0u);
	put(&l, 0xa, -1, ~0u, ~0u, ~0u, ~0u);
	put(&l, 0xb, 0, 1, 2, 0x100, 77);
	put(&l, 0xb, 1, 7, 64, 0x201, 77);
	put(&l, 0x1f, 0, 1, 2, 0x100, 77);
	put(&l, 0x80000001, -1, 0, 0, 0x121, 0x2c100800);
	put(&l, 0x80000007, -1, 0, 0, 0, 0x100);
	put(&l, 0x80000008, -1, 0x302e, 0, 0, 0);
	put_kvm(&l);
	return l;
}

static struct list amd(void)
{
	struct list l = { .n = 0 };

	put_vendor(&l, "AuthenticAMD", 0x10);
	put(&l, 1, -1, 0x00a10f11, 0xff2008ff, ~0u, ~0u);
	put(&l, 7, 0, 0, ~0u, ~0u, ~0u);
	put(&l, 0x80000000, -1, 0x80000028, 0, 0, 0);
	put(&l, 0x80000001, -1, 0, 0, ~0u, ~0u);
	put(&l, 0x80000007, -1, 0, 0, 0, 0x3ff);
	put(&l, 0x80000008, -1, 0x3030, 0, 0x707f, 0x10007);
	put(&l, 0x8000000a, -1, 1, 0x8000, 0, ~0u);
	put(&l, 0x8000001d, 0, 0x00004121, 1, 2, 3);
	put(&l, 0x8000001d, 3, 0x003fc163, 1, 2, 3);
	put(&l, 0x8000001e, -1, 77, 77, 77, 77);
	put(&l, 0x80000022, -1, 1, 6, 0, 0);
	put(&l, 0x80000026, 0, 1, 2, 0x100, 77);
	put_kvm(&l);
	return l;
}

static struct list made(struct list l, uint32_t nvcpus, uint32_t index)
{
	const struct cpuid_params p = { .nvcpus = nvcpus, .tsc_deadline = true };

	assert_int_equal(cpuid_make(l.e, &l.n, MAX, &p, NULL), 0);
	cpuid_make_vcpu(l.e, l.n, index, 2500000);
	return l;
}

static const struct kvm_cpuid_entry2 *leaf(struct list *l, uint32_t function, uint32_t index)
{
	const struct kvm_cpuid_entry2 *e = cpuid_find(l->e, l->n, function, index);

	if (!e)
		fail_msg("no leaf 0x%x.%u", function, index);
	return e;
}

static uint32_t log2_up(uint32_t n)
{
	uint32_t bits = 0;

	while (1u << bits < n)
		bits++;
	return bits;
}

static void test_extended_topology_for_1_to_32(void **ctx)
{
	(void)ctx;
	for (uint32_t n = 1; n <= 32; n++)
		for (uint32_t i = 0; i < n; i++)
			for (uint32_t f = 0xb; f <= 0x1f; f += 0x14) {
				struct list l = made(intel(), n, i);

				assert_int_equal(leaf(&l, f, 0)->eax, 0);
				assert_int_equal(leaf(&l, f, 0)->ebx, 1);
				assert_int_equal(leaf(&l, f, 0)->ecx, 0x100);
				assert_int_equal(leaf(&l, f, 1)->eax, log2_up(n));
				assert_int_equal(leaf(&l, f, 1)->ebx, n);
				assert_int_equal(leaf(&l, f, 1)->ecx, 0x201);
				assert_int_equal(leaf(&l, f, 2)->ecx, 2);
				for (uint32_t k = 0; k < 3; k++)
					assert_int_equal(leaf(&l, f, k)->edx, i);
				assert_null(cpuid_find(l.e, l.n, f, 3));
			}
}

static void test_leaf_1_names_the_processor(void **ctx)
{
	struct list l = made(intel(), 6, 5);

	(void)ctx;
	assert_int_equal(leaf(&l, 1, 0)->ebx, 5u << 24 | 6 << 16 | 0x08ff);
	assert_true(leaf(&l, 1, 0)->edx & 1 << 28);
	l = made(intel(), 1, 0);
	assert_int_equal(leaf(&l, 1, 0)->ebx, 1 << 16 | 0x08ff);
	assert_false(leaf(&l, 1, 0)->edx & 1 << 28);
}

static void test_intel_caches_private_but_the_last(void **ctx)
{
	struct list l = made(intel(), 6, 0);

	(void)ctx;
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(leaf(&l, 4, i)->eax >> 14 & 0xfff, 0);
	assert_int_equal(leaf(&l, 4, 3)->eax >> 14 & 0xfff, 7);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(leaf(&l, 4, i)->eax >> 26, 7);
	assert_int_equal(leaf(&l, 4, 3)->eax & 0x3fff, 0x163);
	assert_int_equal(leaf(&l, 4, 4)->eax, 0);
}

static void test_amd_topology(void **ctx)
{
	(void)ctx;
	for (uint32_t n = 1; n <= 32; n++) {
		struct list l = made(amd(), n, n - 1);

		assert_int_equal(leaf(&l, 0x80000008, 0)->ecx, (n - 1) | log2_up(n) << 12);
		assert_int_equal(leaf(&l, 0x80000008, 0)->eax, 0x3030);
		assert_int_equal(leaf(&l, 0x8000001e, 0)->eax, n - 1);
		assert_int_equal(leaf(&l, 0x8000001e, 0)->ebx, n - 1);
		assert_int_equal(leaf(&l, 0x8000001e, 0)->ecx, 0);
		assert_int_equal(leaf(&l, 0x8000001d, 0)->eax >> 14 & 0xfff, 0);
		assert_int_equal(leaf(&l, 0x8000001d, 3)->eax >> 14 & 0xfff, n - 1);
		assert_int_equal(leaf(&l, 0xb, 1)->ebx, n);
		assert_int_equal(!!(leaf(&l, 0x80000001, 0)->ecx & 2), n > 1);
		assert_null(cpuid_find(l.e, l.n, 0x80000026, 0));
		assert_null(cpuid_find(l.e, l.n, 0x1f, 0));
	}
}

static void test_amd_without_topology_extension_has_no_leaf_1e(void **ctx)
{
	struct list l = amd();

	(void)ctx;
	cpuid_find(l.e, l.n, 0x80000001, 0)->ecx &= ~(1u << 22);
	l = made(l, 4, 0);
	assert_null(cpuid_find(l.e, l.n, 0x8000001e, 0));
}

static void test_hypervisor_leaves(void **ctx)
{
	struct list l = made(amd(), 2, 1);
	const struct kvm_cpuid_entry2 *e = leaf(&l, 0x40000000, 0);

	(void)ctx;
	assert_int_equal(e->eax, 0x40000010);
	assert_memory_equal(&e->ebx, "KVMKVMKVM\0\0\0", 12);
	assert_int_equal(leaf(&l, 0x40000001, 0)->eax, 0x01007afb);
	assert_int_equal(leaf(&l, 0x40000010, 0)->eax, 2500000);
	assert_int_equal(leaf(&l, 0x40000010, 0)->ebx, 1000000);
	assert_true(leaf(&l, 1, 0)->ecx & 1u << 31);
}

static void test_tsc_frequency_leaf_on_intel(void **ctx)
{
	struct list l = made(intel(), 1, 0);
	const struct kvm_cpuid_entry2 *e = leaf(&l, 0x15, 0);

	(void)ctx;
	assert_int_equal((uint64_t)e->ecx * e->ebx / e->eax, 2500000000ull);
	assert_int_equal(leaf(&l, 0x16, 0)->eax, 2500);
	l = made(amd(), 1, 0);
	assert_null(cpuid_find(l.e, l.n, 0x15, 0));
}

static void test_unknown_frequency_is_not_invented(void **ctx)
{
	struct list l = made(intel(), 1, 0);

	(void)ctx;
	cpuid_make_vcpu(l.e, l.n, 0, 0);
	assert_int_equal(leaf(&l, 0x15, 0)->eax, 0);
	assert_int_equal(leaf(&l, 0x15, 0)->ebx, 0);
	assert_int_equal(leaf(&l, 0x40000010, 0)->eax, 0);
}

static void test_hidden_features(void **ctx)
{
	struct list l = made(intel(), 2, 0);
	uint32_t ecx = leaf(&l, 1, 0)->ecx;

	(void)ctx;
	assert_false(ecx & 1 << 3);  /* MONITOR */
	assert_false(ecx & 1 << 5);  /* VMX */
	assert_false(ecx & 1 << 15); /* PDCM */
	assert_true(ecx & 1 << 21);  /* x2APIC */
	assert_true(ecx & 1 << 24);  /* TSC deadline */
	assert_int_equal(leaf(&l, 6, 0)->eax, 4);
	assert_int_equal(leaf(&l, 6, 0)->ecx, 0);
	assert_false(leaf(&l, 7, 0)->ebx & (1 << 2 | 1 << 12 | 1 << 15 | 1 << 25));
	assert_null(cpuid_find(l.e, l.n, 5, 0));
	assert_null(cpuid_find(l.e, l.n, 0xa, 0));
	assert_int_equal(leaf(&l, 0x80000007, 0)->edx, 0);
	l = made(amd(), 2, 0);
	assert_false(leaf(&l, 0x80000001, 0)->ecx & (1 << 2 | 1 << 10 | 1 << 23 | 1 << 24 | 1 << 28 | 1 << 29));
	assert_false(leaf(&l, 0x80000007, 0)->edx & 1 << 8);
	assert_null(cpuid_find(l.e, l.n, 0x8000000a, 0));
	assert_null(cpuid_find(l.e, l.n, 0x80000022, 0));
}

static void test_deadline_timer_only_if_kvm_has_it(void **ctx)
{
	struct list l = intel();
	const struct cpuid_params p = { .nvcpus = 1, .tsc_deadline = false };

	(void)ctx;
	assert_int_equal(cpuid_make(l.e, &l.n, MAX, &p, NULL), 0);
	assert_false(leaf(&l, 1, 0)->ecx & 1 << 24);
}

static void test_no_leaf_is_there_twice(void **ctx)
{
	struct list l = made(intel(), 4, 0);

	(void)ctx;
	for (uint32_t i = 0; i < l.n; i++)
		for (uint32_t k = i + 1; k < l.n; k++)
			assert_false(l.e[i].function == l.e[k].function && l.e[i].index == l.e[k].index);
}

static void test_full_list_is_an_error(void **ctx)
{
	struct list l = intel();
	const struct cpuid_params p = { .nvcpus = 1 };
	struct err err = ERR_INIT;

	(void)ctx;
	l.n -= 2;
	assert_int_equal(cpuid_make(l.e, &l.n, l.n, &p, &err), -E2BIG);
	l.n = 0;
	assert_int_equal(cpuid_make(l.e, &l.n, MAX, &p, &err), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_extended_topology_for_1_to_32),
		cmocka_unit_test(test_leaf_1_names_the_processor),
		cmocka_unit_test(test_intel_caches_private_but_the_last),
		cmocka_unit_test(test_amd_topology),
		cmocka_unit_test(test_amd_without_topology_extension_has_no_leaf_1e),
		cmocka_unit_test(test_hypervisor_leaves),
		cmocka_unit_test(test_tsc_frequency_leaf_on_intel),
		cmocka_unit_test(test_unknown_frequency_is_not_invented),
		cmocka_unit_test(test_hidden_features),
		cmocka_unit_test(test_deadline_timer_only_if_kvm_has_it),
		cmocka_unit_test(test_no_leaf_is_there_twice),
		cmocka_unit_test(test_full_list_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
