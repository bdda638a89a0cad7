/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interrupt lines through KVM: a guest routes one pin of the I/O APIC to itself, halts, and answers each interrupt with a
 * write to a port. Sends of another vCPU's interrupts go the same way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include <sys/ioctl.h>

#include "lib/util.h"
#include "tests/harness/payload.h"
#include "vmm/irq.h"

enum { READY_PORT = 0x30, IRQ_PORT = 0x31, GSI = 5, VECTOR = 0x30, GDT = 0x3000, IDT = 0x4000, HANDLER = 0x11000 };

struct counter {
	_Atomic uint32_t ready, irqs;
};

static void no_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	(void)opaque;
	(void)offset;
	(void)data;
	(void)len;
}

static void on_ready(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct counter *c = opaque;

	(void)data;
	(void)len;
	atomic_fetch_add(offset == 0 ? &c->ready : &c->irqs, 1);
}

static const struct bus_ops ops = { no_read, on_ready };

static const uint8_t handler[] = {
	0x50,                                                       /* push eax */
	0xe6, IRQ_PORT,                                             /* out IRQ_PORT, al */
	0xc7, 0x05, 0xb0, 0x00, 0xe0, 0xfe, 0x00, 0x00, 0x00, 0x00, /* mov dword [0xfee000b0], 0: end of interrupt */
	0x58,                                                       /* pop eax */
	0xcf,                                                       /* iret */
};

/* Flat code and data segments, one interrupt gate. */
static void write_tables(struct vm *vm)
{
	static const uint64_t gdt[] = { 0, 0x00cf9b000000ffff, 0x00cf93000000ffff };
	const uint32_t gate[2] = { 8u << 16 | (HANDLER & 0xffff), (HANDLER & 0xffff0000) | 0x8e00 };

	assert_int_equal(mem_write(&vm->mem, GPA(GDT), gdt, sizeof(gdt)), 0);
	assert_int_equal(mem_write(&vm->mem, GPA(IDT + 8 * VECTOR), gate, sizeof(gate)), 0);
	assert_int_equal(mem_write(&vm->mem, GPA(HANDLER), handler, sizeof(handler)), 0);
	for (uint32_t i = 0; i < vm->nvcpus; i++) {
		struct kvm_sregs s;

		assert_int_equal(ioctl(vm->vcpu[i].fd, KVM_GET_SREGS, &s), 0);
		s.gdt = (struct kvm_dtable){ .base = GDT, .limit = sizeof(gdt) - 1 };
		s.idt = (struct kvm_dtable){ .base = IDT, .limit = 8 * (VECTOR + 1) - 1 };
		assert_int_equal(ioctl(vm->vcpu[i].fd, KVM_SET_SREGS, &s), 0);
	}
}

static void wait_for(const _Atomic uint32_t *v, uint32_t n)
{
	while (*v < n)
		sched_yield();
	assert_int_equal(*v, n);
}

static void start(struct vm *vm, struct counter *c, uint32_t nvcpus, const void *code, size_t len)
{
	memset(c, 0, sizeof(*c));
	payload_init(vm, nvcpus, code, len);
	write_tables(vm);
	assert_int_equal(bus_add(&vm->bus, BUS_PIO, READY_PORT, 2, &ops, c, "counter", NULL), 0);
	payload_run(vm);
}

static const uint8_t pin_guest[] = {
	0xb0, 0xff, 0xe6, 0x21, 0xe6, 0xa1,                                 /* the old controllers are masked */
	0xc7, 0x05, 0xf0, 0x00, 0xe0, 0xfe, 0xff, 0x01, 0x00, 0x00,         /* APIC on, spurious vector 0xff */
	0xc7, 0x05, 0x00, 0x00, 0xc0, 0xfe, 0x11 + 2 * GSI, 0x00, 0x00, 0x00, /* pin's high word: to APIC 0 */
	0xc7, 0x05, 0x10, 0x00, 0xc0, 0xfe, 0x00, 0x00, 0x00, 0x00,
	0xc7, 0x05, 0x00, 0x00, 0xc0, 0xfe, 0x10 + 2 * GSI, 0x00, 0x00, 0x00, /* low word: edge, fixed, VECTOR */
	0xc7, 0x05, 0x10, 0x00, 0xc0, 0xfe, VECTOR, 0x00, 0x00, 0x00,
	0xe6, READY_PORT,                                                   /* out READY_PORT, al */
	0xfb,                                                               /* sti */
	0xf4,                                                               /* again: hlt */
	0xeb, 0xfd,                                                         /* jmp again */
};

static void each_raise_is_one_interrupt(void **state)
{
	struct irq_line line = { .fd = -1 };
	struct counter c;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	start(&vm, &c, 1, pin_guest, sizeof(pin_guest));
	assert_int_equal(irq_line_init(&line, vm.vm_fd, GSI, NULL), 0);
	wait_for(&c.ready, 1);
	for (uint32_t i = 1; i <= 20; i++) {
		irq_raise(&line);
		wait_for(&c.irqs, i);
	}
	irq_line_finish(&line);
	vm_finish(&vm);
}

static void an_interrupt_raised_while_paused_arrives_on_resume(void **state)
{
	struct irq_line line = { .fd = -1 };
	struct counter c;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	start(&vm, &c, 1, pin_guest, sizeof(pin_guest));
	assert_int_equal(irq_line_init(&line, vm.vm_fd, GSI, NULL), 0);
	wait_for(&c.ready, 1);
	for (uint32_t i = 1; i <= 5; i++) {
		assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
		irq_raise(&line);
		assert_int_equal(c.irqs, i - 1);
		assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
		wait_for(&c.irqs, i);
	}
	irq_line_finish(&line);
	vm_finish(&vm);
}

static void a_line_that_is_closed_interrupts_no_more(void **state)
{
	struct irq_line a = { .fd = -1 }, b = { .fd = -1 };
	struct counter c;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	start(&vm, &c, 1, pin_guest, sizeof(pin_guest));
	assert_int_equal(irq_line_init(&a, vm.vm_fd, GSI, NULL), 0);
	irq_line_finish(&a);
	irq_line_finish(&a);
	irq_raise(&a);
	assert_int_equal(irq_line_init(&b, vm.vm_fd, GSI, NULL), 0); /* the pin can be taken again */
	wait_for(&c.ready, 1);
	irq_raise(&b);
	wait_for(&c.irqs, 1);
	irq_line_finish(&b);
	vm_finish(&vm);
}

static void a_vcpu_interrupts_a_halted_other(void **state)
{
	static const uint8_t code[] = {
		0xc7, 0x05, 0xf0, 0x00, 0xe0, 0xfe, 0xff, 0x01, 0x00, 0x00, /* APIC on */
		0x85, 0xff,                                                 /* test edi, edi */
		0x75, 0x1e,                                                 /* jnz target */
		0x83, 0x3d, 0x00, 0x20, 0x00, 0x00, 0x00,                   /* wait: cmp dword [0x2000], 0 */
		0x74, 0xf7,                                                 /* jz wait */
		0xff, 0x0d, 0x00, 0x20, 0x00, 0x00,                         /* dec dword [0x2000] */
		/* one fixed interrupt to all but itself */
		0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, VECTOR, 0x40, 0x0c, 0x00,
		0xeb, 0xe5,                                                 /* jmp wait */
		0xf4, 0xeb, 0xfd,                                           /* never */
		0xe6, READY_PORT,                                           /* target: out READY_PORT, al */
		0xfb,                                                       /* sti */
		0xf4,                                                       /* again: hlt */
		0xeb, 0xfd,                                                 /* jmp again */
	};
	struct counter c;
	uint32_t one = 1;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	start(&vm, &c, 3, code, sizeof(code));
	wait_for(&c.ready, 2);
	for (uint32_t i = 1; i <= 10; i++) {
		assert_int_equal(mem_write(&vm.mem, GPA(0x2000), &one, sizeof(one)), 0);
		wait_for(&c.irqs, 2 * i);
	}
	vm_finish(&vm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_raise_is_one_interrupt),
		cmocka_unit_test(an_interrupt_raised_while_paused_arrives_on_resume),
		cmocka_unit_test(a_line_that_is_closed_interrupts_no_more),
		cmocka_unit_test(a_vcpu_interrupts_a_halted_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
