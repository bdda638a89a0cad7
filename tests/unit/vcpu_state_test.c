/* SPDX-License-Identifier: Apache-2.0 */
/* Without KVM: the table of state, the order of MSRs, the registers at entry, and records that are refused. */
#include <errno.h>
#include <linux/kvm.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "lib/le.h"
#include "lib/util.h"
#include "vmm/arch.h"
#include "vmm/x86/layout.h"
#include "vmm/x86/msr.h"
#include "vmm/x86/regs.h"
#include "vmm/x86/vcpu_state.h"

static size_t position(const char *name, bool restoring)
{
	size_t n;
	const struct vcpu_state_item *items = vcpu_state_items(&n);

	for (size_t i = 0; i < n; i++)
		if (strcmp(items[i].name, name) == 0)
			return restoring ? items[i].restore : i;
	fail_msg("no item %s", name);
	return 0;
}

static void in_order(const char *const *names, size_t n, bool restoring)
{
	for (size_t i = 0; i + 1 < n; i++)
		if (position(names[i], restoring) >= position(names[i + 1], restoring))
			fail_msg("%s does not come before %s", names[i], names[i + 1]);
}

static void test_order_of_saving(void **ctx)
{
	const char *const names[] = { "MP_STATE", "REGS", "SREGS",       "XSAVE", "XCRS",  "DEBUGREGS",  "LAPIC",     "TSC_KHZ",
				      "CPUID",    "MSRS", "VCPU_EVENTS", "PIT2",  "CLOCK", "PIC_MASTER", "PIC_SLAVE", "IOAPIC" };

	(void)ctx;
	in_order(names, ARRAY_SIZE(names), false);
}

static void test_order_of_restoring(void **ctx)
{
	const char *const vcpu[] = { "TSC_KHZ", "CPUID",     "MP_STATE", "REGS", "SREGS",      "XSAVE",
				     "XCRS",    "DEBUGREGS", "LAPIC",    "MSRS", "VCPU_EVENTS" };
	const char *const vm[] = { "PIT2", "CLOCK", "PIC_MASTER", "PIC_SLAVE", "IOAPIC" };

	(void)ctx;
	in_order(vcpu, ARRAY_SIZE(vcpu), true);
	in_order(vm, ARRAY_SIZE(vm), true);
}

static void test_ids_are_unique(void **ctx)
{
	size_t n;
	const struct vcpu_state_item *items = vcpu_state_items(&n);

	(void)ctx;
	for (size_t i = 0; i < n; i++)
		for (size_t k = i + 1; k < n; k++)
			assert_int_not_equal(items[i].id, items[k].id);
}

static void test_tsc_deadline_is_set_last(void **ctx)
{
	uint32_t l[] = { 0x174, 0x6e0, 0x10, 0x277, 0x48 };
	const uint32_t want[] = { 0x174, 0x10, 0x277, 0x48, 0x6e0 };

	(void)ctx;
	msr_order(l, ARRAY_SIZE(l));
	assert_memory_equal(l, want, sizeof(want));
	msr_order(l, 0);
}

static void test_registers_for_linux(void **ctx)
{
	const struct boot_entry e = { .protocol = BOOT_LINUX64, .ip = 0x1000200, .arg = X86_BOOT_PARAMS };
	struct kvm_sregs s = { .apic_base = 0xfee00900 };
	struct kvm_regs r;

	(void)ctx;
	regs_make(&e, &r);
	regs_make_special(&e, &s);
	assert_int_equal(r.rip, 0x1000200);
	assert_int_equal(r.rsi, X86_BOOT_PARAMS);
	assert_int_equal(r.rflags, 2); /* interrupts off */
	assert_int_equal(s.efer, 0x500);
	assert_int_equal(s.cr0 & 0x80000001, 0x80000001);
	assert_int_equal(s.cr3, X86_PML4);
	assert_int_equal(s.cr4, 0x20);
	assert_int_equal(s.cs.l, 1);
	assert_int_equal(s.cs.db, 0);
	assert_int_equal(s.cs.selector, 0x10);
	assert_int_equal(s.ds.selector, 0x18);
	assert_int_equal(s.gdt.base, X86_GDT);
	assert_int_equal(s.apic_base, 0xfee00900); /* KVM's own is kept */
}

static void test_registers_for_pvh(void **ctx)
{
	const struct boot_entry e = { .protocol = BOOT_PVH, .ip = 0x100000, .arg = X86_START_INFO };
	struct kvm_sregs s = { .efer = 0x500, .cr4 = ~0ull };
	struct kvm_regs r;

	(void)ctx;
	regs_make(&e, &r);
	regs_make_special(&e, &s);
	assert_int_equal(r.rip, 0x100000);
	assert_int_equal(r.rbx, X86_START_INFO);
	assert_int_equal(r.rflags, 2);
	assert_int_equal(s.cr0 & 0x80000001, 1);
	assert_int_equal(s.cr4, 0);
	assert_int_equal(s.efer, 0);
	assert_int_equal(s.cs.l, 0);
	assert_int_equal(s.cs.db, 1);
	assert_int_equal(s.cs.limit, 0xffffffff);
	assert_int_equal(s.tr.limit, 0x67);
}

static size_t put(uint8_t *p, uint16_t id, uint16_t vcpu, uint32_t len)
{
	le16_store(p, id);
	le16_store(p + 2, vcpu);
	le32_store(p + 4, len);
	return VCPU_STATE_RECORD + len;
}

static void refuses(const uint8_t *buf, size_t len, const char *words)
{
	const int fd[2] = { -1, -1 };
	struct err err = ERR_INIT;

	assert_true(arch_vm_restore(-1, -1, fd, 2, buf, len, &err) < 0);
	if (!strstr(err.text, words))
		fail_msg("'%s' does not say '%s'", err.text, words);
}

static void test_hostile_records_are_refused(void **ctx)
{
	static uint8_t buf[256 << 10];
	size_t n;

	(void)ctx;
	refuses(buf, 0, "REGS of vCPU 0 is missing");
	refuses(buf, 7, "cut off");
	n = put(buf, 99, 0, 0);
	refuses(buf, n, "unknown item 99");
	n = put(buf, 2, 0, sizeof(struct kvm_regs));
	refuses(buf, n - 1, "cut off");
	refuses(buf, n, "SREGS of vCPU 0 is missing");
	n += put(buf + n, 2, 0, sizeof(struct kvm_regs));
	refuses(buf, n, "REGS of vCPU 0 is there twice");
	put(buf, 2, 0, UINT32_MAX);
	refuses(buf, n, "cut off");
	n = put(buf, 2, 2, sizeof(struct kvm_regs));
	refuses(buf, n, "REGS of vCPU 2, this VM has 2");
	n = put(buf, 2, VCPU_STATE_OF_VM, sizeof(struct kvm_regs));
	refuses(buf, n, "REGS of vCPU 65535");
	n = put(buf, 36, 0, sizeof(struct kvm_irqchip));
	refuses(buf, n, "IOAPIC of vCPU 0");
	n = put(buf, 2, 0, sizeof(struct kvm_regs) - 1);
	refuses(buf, n, "REGS of vCPU 0 has");
	n = put(buf, 4, 0, 4088);
	refuses(buf, n, "XSAVE of vCPU 0 has 4088 bytes");
	n = put(buf, 4, 0, 65536 + 8);
	refuses(buf, n, "XSAVE of vCPU 0 has");
	n = put(buf, 9, 0, 39);
	refuses(buf, n, "CPUID of vCPU 0 has 39 bytes");
	n = put(buf, 9, 0, 40 * (ARCH_CPUID_MAX + 1));
	refuses(buf, n, "CPUID of vCPU 0 has");
	n = put(buf, 10, 0, 16 * (MSR_MAX + 1));
	refuses(buf, n, "MSRS of vCPU 0 has");
	n = put(buf, 10, 0, 0);
	refuses(buf, n, "MSRS of vCPU 0 has 0 bytes");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_of_saving),
		cmocka_unit_test(test_order_of_restoring),
		cmocka_unit_test(test_ids_are_unique),
		cmocka_unit_test(test_tsc_deadline_is_set_last),
		cmocka_unit_test(test_registers_for_linux),
		cmocka_unit_test(test_registers_for_pvh),
		cmocka_unit_test(test_hostile_records_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
