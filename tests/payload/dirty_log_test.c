/* SPDX-License-Identifier: Apache-2.0 */
/* KVM's dirty log as snapshots use it: pages that a guest wrote and pages that a device wrote, each told once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "tests/harness/payload.h"

enum { DONE_PORT = 0x10, STEP_PORT = 0x100, WORDS = PAYLOAD_MEMORY / MEM_PAGE_SIZE / 64 };

static void unused_read(void *opaque, uint64_t offset, void *data, uint32_t len)
{
	(void)opaque;
	(void)offset;
	memset(data, 0, len);
}

static void done_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	(void)offset;
	(void)data;
	(void)len;
	vm_request_stop(opaque, VM_STOP_POWEROFF, "done");
}

struct steps {
	struct vm *vm;
	unsigned n;
	int code[2];
	uint64_t pages[2][WORDS];
};

/* Between two writes of the guest, as it waits for its access to this port. */
static void step_write(void *opaque, uint64_t offset, const void *data, uint32_t len)
{
	struct steps *s = opaque;

	(void)offset;
	(void)data;
	(void)len;
	if (s->n < 2)
		s->code[s->n] = mem_dirty_collect(&s->vm->mem, s->pages[s->n], NULL);
	if (s->n++ == 0)
		mem_write(&s->vm->mem, GPA(0x30000), "device", 6);
}

static const struct bus_ops done_ops = { unused_read, done_write };
static const struct bus_ops step_ops = { unused_read, step_write };

static bool has(const uint64_t *pages, uint64_t gpa)
{
	uint64_t page = gpa / MEM_PAGE_SIZE;

	return pages[page / 64] >> (page % 64) & 1;
}

static void pages_written_by_guest_and_device_are_told_once(void **state)
{
	static const uint8_t code[] = {
		0xc7, 0x05, 0x00, 0x00, 0x02, 0x00, 1, 0, 0, 0, /* mov dword [0x20000], 1 */
		0xc7, 0x05, 0xfc, 0xff, 0x1f, 0x00, 1, 0, 0, 0, /* mov dword [last], 1 */
		0x66, 0xba, 0x00, 0x01,                         /* mov dx, STEP_PORT */
		0xee,                                           /* out dx, al */
		0xc7, 0x05, 0x00, 0x10, 0x02, 0x00, 1, 0, 0, 0, /* mov dword [0x21000], 1 */
		0xee,                                           /* out dx, al */
		0xe6, DONE_PORT,                                /* out DONE_PORT, al */
		0xf4,                                           /* hlt */
	};
	struct vm vm;
	struct steps s = { .vm = &vm };
	struct err err = ERR_INIT;

	(void)state;
	payload_require_kvm();
	payload_init(&vm, 1, code, sizeof(code));
	assert_int_equal(bus_add(&vm.bus, BUS_PIO, DONE_PORT, 1, &done_ops, &vm, "done", NULL), 0);
	assert_int_equal(bus_add(&vm.bus, BUS_PIO, STEP_PORT, 1, &step_ops, &s, "step", NULL), 0);
	assert_int_equal(mem_dirty_start(&vm.mem, &err), 0);
	if (mem_kvm_log(&vm.mem, true, &err) < 0)
		fail_msg("%s", err.text);
	payload_run(&vm);
	payload_wait(&vm);
	assert_int_equal(s.n, 2);
	assert_int_equal(s.code[0], 0);
	assert_int_equal(s.code[1], 0);
	assert_true(has(s.pages[0], 0x20000));
	assert_true(has(s.pages[0], PAYLOAD_MEMORY - 1));
	assert_false(has(s.pages[0], 0x21000));
	assert_false(has(s.pages[0], 0x30000));
	assert_false(has(s.pages[1], 0x20000));
	assert_false(has(s.pages[1], PAYLOAD_MEMORY - 1));
	assert_true(has(s.pages[1], 0x21000));
	assert_true(has(s.pages[1], 0x30000));
	/* Switched off and on, it begins anew. */
	assert_int_equal(mem_kvm_log(&vm.mem, false, &err), 0);
	assert_int_equal(mem_kvm_log(&vm.mem, true, &err), 0);
	memset(s.pages, 0, sizeof(s.pages));
	assert_int_equal(mem_dirty_collect(&vm.mem, s.pages[0], &err), 0);
	for (unsigned w = 0; w < WORDS; w++)
		assert_int_equal(s.pages[0][w], 0);
	vm_finish(&vm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_written_by_guest_and_device_are_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
