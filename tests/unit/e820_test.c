/* SPDX-License-Identifier: Apache-2.0 */
/* The memory map at the sizes where the hole below 4 GiB matters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/util.h"
#include "vmm/x86/e820.h"
#include "vmm/x86/layout.h"

#define LOW { 0, 0xA0000, E820_TYPE_RAM }
#define TABLES { 0xE0000, 0x100000, E820_TYPE_RESERVED }
#define KVM_PAGES { 0xFFFBC000, 0xFFFC0000, E820_TYPE_RESERVED }

static void compare(uint64_t ram, const struct e820_range *want, int n)
{
	struct e820_range got[E820_MAX_RANGES];

	assert_int_equal(e820_build(ram, got), n);
	for (int i = 0; i < n; i++) {
		assert_int_equal(got[i].start, want[i].start);
		assert_int_equal(got[i].end, want[i].end);
		assert_int_equal(got[i].type, want[i].type);
	}
}

static void below_the_hole(uint64_t ram)
{
	const struct e820_range want[] = { LOW, TABLES, { 0x100000, ram, E820_TYPE_RAM }, KVM_PAGES };

	compare(ram, want, 4);
}

static void around_the_hole(uint64_t ram)
{
	const struct e820_range want[] = { LOW,
					   TABLES,
					   { 0x100000, 0xC0000000, E820_TYPE_RAM },
					   KVM_PAGES,
					   { 0x100000000, 0x100000000 + ram - 0xC0000000, E820_TYPE_RAM } };

	compare(ram, want, 5);
}

static void test_64_mib(void **ctx)
{
	(void)ctx;
	below_the_hole(MIB(64));
}

static void test_3071_mib_ends_below_the_hole(void **ctx)
{
	(void)ctx;
	below_the_hole(MIB(3071));
}

static void test_3072_mib_fills_up_to_the_hole(void **ctx)
{
	(void)ctx;
	below_the_hole(MIB(3072));
}

static void test_3073_mib_puts_one_above(void **ctx)
{
	(void)ctx;
	around_the_hole(MIB(3073));
}

static void test_4096_mib(void **ctx)
{
	(void)ctx;
	around_the_hole(MIB(4096));
}

static void test_8_gib(void **ctx)
{
	(void)ctx;
	around_the_hole(GIB(8));
}

/* Everything the loader puts below 1 MiB for the kernel to read is in RAM, the tables are not, and nothing overlaps. */
static void test_ram_ends_before_the_tables(void **ctx)
{
	struct e820_range r[E820_MAX_RANGES];
	int n = e820_build(MIB(64), r);

	(void)ctx;
	assert_true(X86_CMDLINE + X86_CMDLINE_MAX <= r[0].end);
	for (int i = 0; i < n; i++) {
		if (r[i].type == E820_TYPE_RAM)
			assert_true(r[i].end <= X86_TABLES_START || r[i].start >= X86_TABLES_END);
		if (i > 0)
			assert_true(r[i - 1].end <= r[i].start);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_64_mib),
		cmocka_unit_test(test_3071_mib_ends_below_the_hole),
		cmocka_unit_test(test_3072_mib_fills_up_to_the_hole),
		cmocka_unit_test(test_3073_mib_puts_one_above),
		cmocka_unit_test(test_4096_mib),
		cmocka_unit_test(test_8_gib),
		cmocka_unit_test(test_ram_ends_before_the_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
