/* SPDX-License-Identifier: Apache-2.0 */
/* A vCPU at its architectural reset state starts at the reset vector's alias below 1 MiB and resets the machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <sys/ioctl.h>

#include "lib/util.h"
#include "tests/harness/payload.h"
#include "vmm/x86/layout.h"
#include "vmm/x86/reset_vector.h"

enum { GED_BASE = 0x600 };

static void port_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	(void)opaque;
	(void)offset;
	(void)data;
	(void)len;
}

static void port_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	vm_request_stop(opaque, VM_STOP_REBOOT, "%u bytes to %u: %u", len, (unsigned)offset,
			*(const uint8_t *)data);
}

static const struct bus_ops ops = { port_read, port_write };

static void a_jump_to_it_in_real_mode_resets(void **state)
{
	static const uint8_t hlt[] = { 0xf4 };
	const struct boot_device ged = { .hid = BOOT_HID_GED, .base = GED_BASE, .size = GED_REG_SIZE, .pio = true };
	const struct boot_config config = { .device = &ged, .ndevices = 1 };
	struct kvm_regs regs = { .rip = 0, .rflags = 2 };
	struct kvm_sregs sregs;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, hlt, sizeof(hlt));
	assert_int_equal(reset_vector_write(&vm.mem, &config), 0);
	assert_int_equal(bus_add(&vm.bus, BUS_PIO, GED_BASE, GED_REG_SIZE, &ops, &vm, "ged", NULL), 0);
	assert_int_equal(ioctl(vm.vcpu[0].fd, KVM_GET_SREGS, &sregs), 0);
	sregs.cr0 &= ~(uint64_t)0x80000001;
	sregs.cs = (struct kvm_segment){ .base = 0xffff0, .selector = 0xffff, .limit = 0xffff, .type = 11, .present = 1, .s = 1 };
	sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss =
		(struct kvm_segment){ .limit = 0xffff, .type = 3, .present = 1, .s = 1 };
	assert_int_equal(ioctl(vm.vcpu[0].fd, KVM_SET_SREGS, &sregs), 0);
	assert_int_equal(ioctl(vm.vcpu[0].fd, KVM_SET_REGS, &regs), 0);
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(vm.stop_reason, VM_STOP_REBOOT);
	assert_string_equal(vm.stop_text, "1 bytes to 2: 1");
	vm_finish(&vm);
}

static void without_an_event_device_nothing_is_written(void **state)
{
	const struct boot_config config = { 0 };
	uint8_t b = 0xaa;
	struct mem m;

	(void)state;
	assert_int_equal(mem_init(&m, -1, MIB(2), NULL), 0);
	assert_int_equal(reset_vector_write(&m, &config), 0);
	assert_int_equal(mem_read(&m, GPA(X86_RESET_VECTOR), &b, 1), 0);
	assert_int_equal(b, 0);
	mem_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_jump_to_it_in_real_mode_resets),
		cmocka_unit_test(without_an_event_device_nothing_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
