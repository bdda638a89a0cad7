/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vCPU threads with guests of a few instructions: exits, the pause barrier, fatal exits. Wherever a guest ends by
 * itself it writes to DONE_PORT.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "lib/util.h"
#include "tests/harness/payload.h"

enum { DONE_PORT = 0x10, PORT = 0x100, MMIO = 0xd0000000, RESULT = 0x2000 };

/* A device that logs what is written and answers reads with 1, 2, 3, ... */
struct probe {
	struct vm *vm;
	_Atomic uint32_t reads, writes;
	uint64_t last_offset;
	uint32_t last_len;
	uint64_t last_value;
	uint8_t log[8192];
	size_t logged;
};

static void probe_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	struct probe *p = opaque;
	uint64_t v = atomic_fetch_add(&p->reads, 1) + 1;

	p->last_offset = offset;
	p->last_len = len;
	memcpy(data, &v, len);
}

static void probe_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct probe *p = opaque;

	p->last_offset = offset;
	p->last_len = len;
	p->last_value = 0;
	memcpy(&p->last_value, data, len);
	if (p->logged + len <= sizeof(p->log)) {
		memcpy(p->log + p->logged, data, len);
		p->logged += len;
	}
	atomic_fetch_add(&p->writes, 1);
}

static void done_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	(void)offset;
	(void)data;
	(void)len;
	vm_request_stop(opaque, VM_STOP_POWEROFF, "done");
}

static const struct bus_ops probe_ops = { probe_read, probe_write };
static const struct bus_ops done_ops = { probe_read, done_write };

static void add(struct vm *vm, enum bus_space space, uint64_t base, uint64_t size, struct probe *p)
{
	assert_int_equal(bus_add(&vm->bus, space, base, size, &probe_ops, p, "probe", NULL), 0);
}

static void add_done(struct vm *vm)
{
	assert_int_equal(bus_add(&vm->bus, BUS_PIO, DONE_PORT, 1, &done_ops, vm, "done", NULL), 0);
}

static void port_accesses_reach_the_device_in_each_size(void **state)
{
	static const uint8_t code[] = {
		0x66, 0xba, 0x02, 0x01,       /* mov dx, 0x102 */
		0xb8, 0x44, 0x33, 0x22, 0x11, /* mov eax, 0x11223344 */
		0xee,                         /* out dx, al */
		0x66, 0xef,                   /* out dx, ax */
		0xef,                         /* out dx, eax */
		0x31, 0xc0,                   /* xor eax, eax */
		0xed,                         /* in eax, dx */
		0xa3, 0x00, 0x20, 0x00, 0x00, /* mov [RESULT], eax */
		0xe6, DONE_PORT,              /* out DONE_PORT, al */
		0xf4,                         /* hlt */
	};
	struct probe p = { 0 };
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, code, sizeof(code));
	add(&vm, BUS_PIO, PORT, 8, &p);
	add_done(&vm);
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(p.logged, 7);
	assert_memory_equal(p.log, "\x44\x44\x33\x44\x33\x22\x11", 7);
	assert_int_equal(p.last_offset, 2);
	assert_int_equal(p.last_len, 4);
	assert_int_equal(payload_read32(&vm, RESULT), 1);
	assert_true(vcpu_exits(&vm) >= 5);
	assert_int_equal(vcpu_unclaimed(&vm), 0);
	vm_finish(&vm);
}

static void memory_accesses_reach_the_device(void **state)
{
	static const uint8_t code[] = {
		0xa1, 0x04, 0x00, 0x00, 0xd0,                               /* mov eax, [MMIO + 4] */
		0xa3, 0x00, 0x20, 0x00, 0x00,                               /* mov [RESULT], eax */
		0xc7, 0x05, 0x10, 0x00, 0x00, 0xd0, 0xef, 0xbe, 0xad, 0xde, /* mov dword [MMIO + 16], 0xdeadbeef */
		0xe6, DONE_PORT,                                            /* out DONE_PORT, al */
		0xf4,                                                       /* hlt */
	};
	struct probe p = { 0 };
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, code, sizeof(code));
	add(&vm, BUS_MMIO, MMIO, 0x200, &p);
	add_done(&vm);
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(payload_read32(&vm, RESULT), 1);
	assert_int_equal(p.last_offset, 16);
	assert_int_equal(p.last_value, 0xdeadbeef);
	vm_finish(&vm);
}

static void a_string_instruction_arrives_whole_and_in_order(void **state)
{
	static const uint8_t code[] = {
		0x66, 0xba, 0x00, 0x01,       /* mov dx, PORT */
		0xbe, 0x00, 0x00, 0x03, 0x00, /* mov esi, 0x30000 */
		0xb9, 0x88, 0x13, 0x00, 0x00, /* mov ecx, 5000 */
		0xfc,                         /* cld */
		0xf3, 0x6e,                   /* rep outsb */
		0xe6, DONE_PORT,              /* out DONE_PORT, al */
		0xf4,                         /* hlt */
	};
	static struct probe p;
	uint8_t text[5000];
	struct vm vm;

	(void)state;
	payload_require_kvm();
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(i * 7 + i / 256);
	memset(&p, 0, sizeof(p));
	payload_init(&vm, 1, code, sizeof(code));
	assert_int_equal(mem_write(&vm.mem, GPA(0x30000), text, sizeof(text)), 0);
	add(&vm, BUS_PIO, PORT, 1, &p);
	add_done(&vm);
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(p.logged, sizeof(text));
	assert_memory_equal(p.log, text, sizeof(text));
	vm_finish(&vm);
}

static void a_string_read_fills_memory(void **state)
{
	static const uint8_t code[] = {
		0x66, 0xba, 0x00, 0x01,       /* mov dx, PORT */
		0xbf, 0x00, 0x20, 0x00, 0x00, /* mov edi, RESULT */
		0xb9, 0x64, 0x00, 0x00, 0x00, /* mov ecx, 100 */
		0xfc,                         /* cld */
		0xf3, 0x6d,                   /* rep insd */
		0xe6, DONE_PORT,              /* out DONE_PORT, al */
		0xf4,                         /* hlt */
	};
	struct probe p = { 0 };
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, code, sizeof(code));
	add(&vm, BUS_PIO, PORT, 4, &p);
	add_done(&vm);
	payload_run(&vm);
	payload_wait(&vm);
	for (uint32_t i = 0; i < 100; i++)
		assert_int_equal(payload_read32(&vm, RESULT + 4 * i), i + 1);
	vm_finish(&vm);
}

static void unclaimed_accesses_read_ones_and_are_counted(void **state)
{
	static const uint8_t code[] = {
		0x66, 0xba, 0x99, 0x09,                                     /* mov dx, 0x999 */
		0x31, 0xc0,                                                 /* xor eax, eax */
		0xed,                                                       /* in eax, dx */
		0xa3, 0x00, 0x20, 0x00, 0x00,                               /* mov [RESULT], eax */
		0xa1, 0x00, 0x00, 0x00, 0xd1,                               /* mov eax, [0xd1000000] */
		0xa3, 0x04, 0x20, 0x00, 0x00,                               /* mov [RESULT + 4], eax */
		0xc7, 0x05, 0x00, 0x00, 0x00, 0xd1, 0x01, 0x00, 0x00, 0x00, /* mov dword [0xd1000000], 1 */
		0xef,                                                       /* out dx, eax */
		0xe6, DONE_PORT,                                            /* out DONE_PORT, al */
		0xf4,                                                       /* hlt */
	};
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, code, sizeof(code));
	add_done(&vm);
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(payload_read32(&vm, RESULT), 0xffffffff);
	assert_int_equal(payload_read32(&vm, RESULT + 4), 0xffffffff);
	assert_int_equal(vcpu_unclaimed(&vm), 4);
	vm_finish(&vm);
}

/*
 * n vCPUs read a device of their own in a tight loop and are paused again and again. A read that the device has
 * answered must have reached the guest's register when the barrier is passed.
 */
static void check_barrier(enum bus_space space, uint32_t n, const void *code, size_t len)
{
	static struct probe p[VM_MAX_VCPUS];
	struct vm vm;

	payload_require_kvm();
	memset(p, 0, sizeof(p));
	payload_init(&vm, n, code, len);
	for (uint32_t i = 0; i < n; i++)
		add(&vm, space, (space == BUS_PIO ? PORT : MMIO) + 8ull * i, 8, &p[i]);
	payload_run(&vm);
	for (int round = 0; round < 12; round++) {
		/* Every vCPU gets on in every round. */
		for (uint32_t i = 0; i < n; i++) {
			uint32_t before = p[i].reads;

			while (p[i].reads == before)
				sched_yield();
		}
		assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
		for (uint32_t i = 0; i < n; i++) {
			struct kvm_regs regs;

			payload_regs(&vm, i, &regs);
			assert_int_equal(regs.rax, p[i].reads);
		}
		assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	}
	assert_int_equal(vm_set_state(&vm, VM_STOPPED, NULL), 0);
	assert_int_equal(vm.stop_reason, VM_STOP_NONE);
	vm_finish(&vm);
}

static const uint8_t port_loop[] = {
	0x8d, 0x14, 0xfd, 0x00, 0x01, 0x00, 0x00, /* lea edx, [edi * 8 + PORT] */
	0xed,                                     /* in eax, dx */
	0xeb, 0xfd,                               /* jmp -1 */
};
static const uint8_t mmio_loop[] = {
	0x8d, 0x14, 0xfd, 0x00, 0x00, 0x00, 0xd0, /* lea edx, [edi * 8 + MMIO] */
	0x8b, 0x02,                               /* mov eax, [edx] */
	0xeb, 0xfc,                               /* jmp -2 */
};

static void a_pause_in_port_reads_completes_them_on_one_vcpu(void **state)
{
	(void)state;
	check_barrier(BUS_PIO, 1, port_loop, sizeof(port_loop));
}

static void a_pause_in_port_reads_completes_them_on_four_vcpus(void **state)
{
	(void)state;
	check_barrier(BUS_PIO, 4, port_loop, sizeof(port_loop));
}

static void a_pause_in_memory_reads_completes_them_on_four_vcpus(void **state)
{
	(void)state;
	check_barrier(BUS_MMIO, 4, mmio_loop, sizeof(mmio_loop));
}

static void a_pause_in_a_string_write_loses_and_repeats_nothing(void **state)
{
	static const uint8_t code[] = {
		0x66, 0xba, 0x00, 0x01,       /* mov dx, PORT */
		0xbe, 0x00, 0x00, 0x03, 0x00, /* again: mov esi, 0x30000 */
		0xb9, 0x00, 0x40, 0x00, 0x00, /* mov ecx, 16384 */
		0xfc,                         /* cld */
		0xf3, 0x6e,                   /* rep outsb */
		0xff, 0x05, 0x00, 0x20, 0, 0, /* inc dword [RESULT] */
		0xeb, 0xeb,                   /* jmp again */
	};
	static struct probe p;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	memset(&p, 0, sizeof(p));
	payload_init(&vm, 1, code, sizeof(code));
	add(&vm, BUS_PIO, PORT, 1, &p);
	payload_run(&vm);
	for (int round = 0; round < 20; round++) {
		uint32_t before = p.writes;
		struct kvm_regs regs;

		while (p.writes == before)
			sched_yield();
		assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
		payload_regs(&vm, 0, &regs);
		/* Bytes that left = whole rounds + how far this one is, wherever in it the vCPU stopped. */
		uint32_t whole = payload_read32(&vm, RESULT);
		uint32_t part = regs.rip >= PAYLOAD_START + 14 && regs.rip < PAYLOAD_START + 23 ?
					16384 - (uint32_t)regs.rcx : 0;

		assert_int_equal(p.writes, whole * 16384 + part);
		assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	}
	vm_finish(&vm);
}

static void spinning_and_halted_vcpus_can_be_paused_and_stopped(void **state)
{
	static const uint8_t code[] = {
		0xf7, 0xc7, 0x01, 0x00, 0x00, 0x00, /* test edi, 1 */
		0x74, 0x03,                         /* jz spin */
		0xf4,                               /* halt: hlt */
		0xeb, 0xfd,                         /* jmp halt */
		0xeb, 0xfe,                         /* spin: jmp spin */
	};
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 8, code, sizeof(code));
	payload_run(&vm);
	for (int i = 0; i < 20; i++) {
		assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
		assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	}
	assert_int_equal(vm_set_state(&vm, VM_STOPPED, NULL), 0);
	assert_int_equal(vm.stop_reason, VM_STOP_NONE);
	vm_finish(&vm);
}

static void a_kick_alone_changes_nothing(void **state)
{
	struct probe p = { 0 };
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, port_loop, sizeof(port_loop));
	add(&vm, BUS_PIO, PORT, 8, &p);
	payload_run(&vm);
	for (int i = 0; i < 50; i++) {
		uint32_t before = p.reads;

		vcpu_kick(&vm.vcpu[0]);
		while (p.reads == before)
			sched_yield();
	}
	assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
	vcpu_kick(&vm.vcpu[0]); /* also while it is parked */
	assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	uint32_t before = p.reads;

	while (p.reads == before)
		sched_yield();
	vm_finish(&vm);
}

static void thirty_two_vcpus_run_and_one_more_is_refused(void **state)
{
	static const uint8_t code[] = {
		0xf0, 0xff, 0x05, 0x00, 0x20, 0x00, 0x00, /* lock inc dword [RESULT] */
		0xf4,                                     /* hlt */
	};
	struct err err = ERR_INIT;
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, VM_MAX_VCPUS, code, sizeof(code));
	payload_run(&vm);
	while (payload_read32(&vm, RESULT) < VM_MAX_VCPUS)
		sched_yield();
	vm_finish(&vm);
	assert_int_equal(vm_init(&vm, NULL), 0);
	assert_int_equal(vcpu_create_all(&vm, 0, &err), -EINVAL);
	assert_int_equal(vcpu_create_all(&vm, VM_MAX_VCPUS + 1, &err), -EINVAL);
	assert_non_null(strstr(err.text, "33"));
	vm_finish(&vm);
}

static void a_triple_fault_is_a_crash_and_the_rest_can_be_stopped(void **state)
{
	static const uint8_t code[] = {
		0x85, 0xff, /* test edi, edi */
		0x74, 0x02, /* jz fault */
		0xeb, 0xfe, /* jmp . */
		0x0f, 0x0b, /* fault: ud2, without an interrupt table */
	};
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 2, code, sizeof(code));
	payload_run(&vm);
	assert_int_equal(loop_run(&vm.loop), 0);
	assert_int_equal(vm.stop_reason, VM_STOP_CRASH);
	assert_string_equal(vm.stop_text, "vCPU 0: triple fault");
	/* The dead one counts as parked; waking all does not revive it. */
	assert_int_equal(vm_set_state(&vm, VM_PAUSED, NULL), 0);
	assert_int_equal(vm_set_state(&vm, VM_RUNNING, NULL), 0);
	assert_int_equal(vm_set_state(&vm, VM_STOPPED, NULL), 0);
	vm_finish(&vm);
}

static int refuse(struct vm *vm, struct err *err)
{
	(void)vm;
	return err_set(err, -EPERM, "no isolation");
}

static void a_thread_that_cannot_be_isolated_never_runs_the_guest(void **state)
{
	struct probe p = { 0 };
	struct vm vm;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, port_loop, sizeof(port_loop));
	add(&vm, BUS_PIO, PORT, 8, &p);
	vm.vcpu_isolate = refuse;
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(vm.stop_reason, VM_STOP_ERROR);
	assert_string_equal(vm.stop_text, "vCPU 0: no isolation");
	assert_int_equal(p.reads, 0);
	vm_finish(&vm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(port_accesses_reach_the_device_in_each_size),
		cmocka_unit_test(memory_accesses_reach_the_device),
		cmocka_unit_test(a_string_instruction_arrives_whole_and_in_order),
		cmocka_unit_test(a_string_read_fills_memory),
		cmocka_unit_test(unclaimed_accesses_read_ones_and_are_counted),
		cmocka_unit_test(a_pause_in_port_reads_completes_them_on_one_vcpu),
		cmocka_unit_test(a_pause_in_port_reads_completes_them_on_four_vcpus),
		cmocka_unit_test(a_pause_in_memory_reads_completes_them_on_four_vcpus),
		cmocka_unit_test(a_pause_in_a_string_write_loses_and_repeats_nothing),
		cmocka_unit_test(spinning_and_halted_vcpus_can_be_paused_and_stopped),
		cmocka_unit_test(a_kick_alone_changes_nothing),
		cmocka_unit_test(thirty_two_vcpus_run_and_one_more_is_refused),
		cmocka_unit_test(a_triple_fault_is_a_crash_and_the_rest_can_be_stopped),
		cmocka_unit_test(a_thread_that_cannot_be_isolated_never_runs_the_guest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
