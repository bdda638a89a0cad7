/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests of a few instructions through the real boot path: an ELF file made here is loaded by boot_load, entered as its
 * format wants, says something on COM1 and powers off by the ACPI sleep register.
 */
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "tests/harness/payload.h"
#include "devices/device.h"
#include "vmm/arch.h"
#include "vmm/kvm.h"
#include "vmm/vcpu.h"
#include "vmm/x86/layout.h"

enum { CODE_AT = 0x200, CODE_MAX = 256, NOTE_AT = 0x180 };
#define BASE 0x100000u
#define RESULT 0x180000u

/* mov dx, 0x3f8; mov al, c; out dx, al; then 0x34 (S5 with SLP_EN) to port 0x600; hlt. The same in 32 and 64 bits. */
#define SAY_AND_POWER_OFF(c) 0x66, 0xba, 0xf8, 0x03, 0xb0, c, 0xee, 0x66, 0xba, 0x00, 0x06, 0xb0, 0x34, 0xee, 0xf4, 0xeb, 0xfd

struct fixture {
	struct vm vm;
	struct device *serial, *ged;
	char dir[40], log[64];
	int kernel_fd, initrd_fd;
	struct boot_entry entry;
};

static int setup(void **ctx)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	f.kernel_fd = f.initrd_fd = -1;
	snprintf(f.dir, sizeof(f.dir), "/tmp/boot_payload.XXXXXX");
	if (!mkdtemp(f.dir))
		return -1;
	snprintf(f.log, sizeof(f.log), "%s/log", f.dir);
	*ctx = &f;
	return 0;
}

static int teardown(void **ctx)
{
	struct fixture *f = *ctx;
	char old[80];

	device_destroy(f->serial);
	device_destroy(f->ged);
	if (f->vm.vcpu)
		vm_finish(&f->vm);
	fd_close(f->kernel_fd);
	fd_close(f->initrd_fd);
	unlink(f->log);
	snprintf(old, sizeof(old), "%s.1", f->log);
	unlink(old);
	rmdir(f->dir);
	return 0;
}

static void make_elf(struct fixture *f, const uint8_t *code, size_t len, bool pvh)
{
	struct {
		Elf64_Ehdr e;
		Elf64_Phdr p[2];
	} h = {
		.e = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		       .e_type = ET_EXEC,
		       .e_machine = EM_X86_64,
		       .e_entry = BASE,
		       .e_phoff = sizeof(Elf64_Ehdr),
		       .e_phentsize = sizeof(Elf64_Phdr),
		       .e_phnum = pvh ? 2 : 1 },
		.p = { { .p_type = PT_LOAD, .p_offset = CODE_AT, .p_filesz = CODE_MAX, .p_memsz = 1 << 20, .p_paddr = BASE },
		       { .p_type = PT_NOTE, .p_offset = NOTE_AT, .p_filesz = 20, .p_align = 4 } },
	};
	const uint32_t note[] = { 4, 4, 18, 0x006e6558, BASE }; /* "Xen", PHYS32_ENTRY */
	uint8_t file[CODE_AT + CODE_MAX] = { 0 };

	assert_true(len <= CODE_MAX);
	memcpy(file, &h, sizeof(h));
	memcpy(file + NOTE_AT, note, sizeof(note));
	memcpy(file + CODE_AT, code, len);
	f->kernel_fd = memfd_create("payload", MFD_CLOEXEC);
	assert_int_equal(fd_write_full(f->kernel_fd, file, sizeof(file)), 0);
}

static void must(int r, const struct err *err)
{
	if (r < 0)
		fail_msg("%s", err->text);
}

static struct device *add(struct fixture *f, const char *name, const char *options)
{
	const struct device_place place = { 0 };
	struct err err = ERR_INIT;
	struct device *d = NULL;

	must(device_create(&f->vm, device_find(name), &place, options, &d, &err), &err);
	return d;
}

/* Boot the ELF file to its end. */
static void run(struct fixture *f, uint32_t nvcpus)
{
	struct boot_config c = { .kernel_fd = f->kernel_fd, .kernel_name = "payload", .initrd_fd = f->initrd_fd,
				 .initrd_name = "initrd", .cmdline = "hello", .nvcpus = nvcpus };
	struct arch_cpu *cpu = malloc(sizeof(*cpu));
	struct err err = ERR_INIT;
	char options[96];

	must(vm_init(&f->vm, &err), &err);
	must(kvm_open(&f->vm, &err), &err);
	must(kvm_create_vm(&f->vm, &err), &err);
	must(mem_init(&f->vm.mem, f->vm.vm_fd, MIB(8), &err), &err);
	must(arch_cpu_init(cpu, f->vm.kvm_fd, f->vm.vm_fd, nvcpus, &err), &err);
	must(vcpu_create_all(&f->vm, nvcpus, &err), &err);
	for (uint32_t i = 0; i < nvcpus; i++)
		must(arch_vcpu_init(cpu, f->vm.vcpu[i].fd, i, &err), &err);
	free(cpu);
	snprintf(options, sizeof(options), "log=%s", f->log);
	f->serial = add(f, "serial", options);
	f->ged = add(f, "ged", NULL);
	must(boot_load(&f->vm.mem, &c, &f->entry, &err), &err);
	must(arch_vcpu_enter(f->vm.vcpu[0].fd, &f->entry, &err), &err);
	payload_run(&f->vm);
	payload_wait(&f->vm);
}

static void said(struct fixture *f, const char *want)
{
	char got[64] = { 0 };
	int fd;

	device_destroy(f->serial); /* writes out what is left */
	f->serial = NULL;
	fd = open(f->log, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(fd_read_full(fd, got, sizeof(got) - 1) >= 0);
	fd_close(fd);
	assert_string_equal(got, want);
}

static uint64_t result(struct fixture *f, uint32_t at)
{
	uint64_t v;

	assert_int_equal(mem_read(&f->vm.mem, GPA(RESULT + at), &v, sizeof(v)), 0);
	return v;
}

static void pvh_payload_speaks_and_powers_off(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t code[] = {
		0x89, 0x1d, 0x00, 0x00, 0x18, 0x00, /* mov [RESULT], ebx */
		0x8b, 0x03,                         /* mov eax, [ebx]: the magic of hvm_start_info */
		0xa3, 0x08, 0x00, 0x18, 0x00,       /* mov [RESULT + 8], eax */
		SAY_AND_POWER_OFF('C'),
	};

	payload_require_kvm();
	make_elf(f, code, sizeof(code), true);
	run(f, 1);
	assert_int_equal(f->vm.stop_reason, VM_STOP_POWEROFF);
	said(f, "C");
	assert_int_equal(result(f, 0), X86_START_INFO);
	assert_int_equal(result(f, 8), 0x336ec578);
}

static void elf64_payload_runs_in_long_mode(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t code[] = {
		0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* mov rax, 0x1122334455667788 */
		0x48, 0xa3, 0x00, 0x00, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, /* mov [RESULT], rax */
		0x48, 0x89, 0xf0,                                           /* mov rax, rsi */
		0x48, 0xa3, 0x08, 0x00, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, /* mov [RESULT + 8], rax */
		0x50, 0x58,                                                 /* push rax; pop rax */
		0x66, 0x8c, 0xd8, 0x8e, 0xd8,                               /* mov ax, ds; mov ds, ax: from the GDT */
		SAY_AND_POWER_OFF('L'),
	};

	payload_require_kvm();
	make_elf(f, code, sizeof(code), false);
	run(f, 1);
	assert_int_equal(f->vm.stop_reason, VM_STOP_POWEROFF);
	said(f, "L");
	assert_int_equal(result(f, 0), 0x1122334455667788);
	assert_int_equal(result(f, 8), X86_BOOT_PARAMS);
}

static void cpuid_in_the_guest_tells_the_hypervisor_and_the_topology(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t code[] = {
		0xb8, 0x00, 0x00, 0x00, 0x40, 0x0f, 0xa2, /* mov eax, 0x40000000; cpuid */
		0x89, 0x1d, 0x00, 0x00, 0x18, 0x00,       /* mov [RESULT], ebx */
		0xa3, 0x08, 0x00, 0x18, 0x00,             /* mov [RESULT + 8], eax */
		0xb8, 0x01, 0x00, 0x00, 0x00, 0x0f, 0xa2, /* mov eax, 1; cpuid */
		0x89, 0x1d, 0x10, 0x00, 0x18, 0x00,       /* mov [RESULT + 16], ebx */
		0x89, 0x0d, 0x18, 0x00, 0x18, 0x00,       /* mov [RESULT + 24], ecx */
		SAY_AND_POWER_OFF('.'),
	};

	payload_require_kvm();
	make_elf(f, code, sizeof(code), true);
	run(f, 6);
	assert_int_equal(result(f, 0), 0x4b4d564b); /* "KVMK" */
	assert_int_equal(result(f, 8), 0x40000010);
	assert_int_equal(result(f, 16) >> 16, 6); /* of 6, APIC id 0 */
	assert_true(result(f, 24) & 1u << 31);
}

static void reset_register_stops_with_reboot(void **ctx)
{
	struct fixture *f = *ctx;
	const uint8_t code[] = { 0x66, 0xba, 0x02, 0x06, 0xb0, 0x01, 0xee, 0xf4, 0xeb, 0xfd };

	payload_require_kvm();
	make_elf(f, code, sizeof(code), true);
	run(f, 1);
	assert_int_equal(f->vm.stop_reason, VM_STOP_REBOOT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(pvh_payload_speaks_and_powers_off),
		T(elf64_payload_runs_in_long_mode),
		T(cpuid_in_the_guest_tells_the_hypervisor_and_the_topology),
		T(reset_register_stops_with_reboot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
