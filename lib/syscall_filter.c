/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of system calls: see syscall_filter.h. */
#include "lib/syscall_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
#define ARCH AUDIT_ARCH_X86_64
#else
#define ARCH AUDIT_ARCH_AARCH64
#endif

enum { X32_BIT = 0x40000000, VALUES_MAX = 32 };

static void put(struct syscall_filter *f, struct sock_filter one)
{
	if (f->n == SYSCALL_FILTER_MAX)
		f->full = true;
	else
		f->insn[f->n++] = one;
}

static void load(struct syscall_filter *f, size_t offset)
{
	put(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void answer(struct syscall_filter *f, uint32_t action)
{
	put(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* If the loaded word is not `value`, leave out the next `skip` instructions. */
static void unless(struct syscall_filter *f, uint32_t value, uint8_t skip)
{
	put(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip));
}

void syscall_filter_begin(struct syscall_filter *f)
{
	f->n = 0;
	f->full = false;
	load(f, offsetof(struct seccomp_data, arch));
	put(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0));
	answer(f, SECCOMP_RET_KILL_PROCESS);
	load(f, offsetof(struct seccomp_data, nr));
#ifdef __x86_64__
	/* The numbers of the x32 ABI are other names for the same calls. */
	put(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
	answer(f, SECCOMP_RET_KILL_PROCESS);
#endif
}

void syscall_filter_calls(struct syscall_filter *f, const int *call, size_t n, uint32_t action)
{
	for (size_t i = 0; i < n; i++) {
		unless(f, (uint32_t)call[i], 1);
		answer(f, action);
	}
}

static size_t argument(unsigned arg)
{
	return offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t); /* little-endian: the low half is first */
}

void syscall_filter_values(struct syscall_filter *f, int call, unsigned arg, const uint32_t *value, size_t n, uint32_t action, uint32_t other)
{
	if (n > VALUES_MAX) {
		f->full = true;
		return;
	}
	unless(f, (uint32_t)call, (uint8_t)(2 + 2 * n));
	load(f, argument(arg));
	for (size_t i = 0; i < n; i++) {
		unless(f, value[i], 1);
		answer(f, action);
	}
	answer(f, other);
}

static void bits_of(struct syscall_filter *f, int call, unsigned arg, uint32_t bits, uint32_t none, uint32_t any)
{
	unless(f, (uint32_t)call, 4);
	load(f, argument(arg));
	put(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0));
	answer(f, none);
	answer(f, any);
}

void syscall_filter_without(struct syscall_filter *f, int call, unsigned arg, uint32_t bits)
{
	bits_of(f, call, arg, bits, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
}

void syscall_filter_with(struct syscall_filter *f, int call, unsigned arg, uint32_t bits)
{
	bits_of(f, call, arg, bits, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
}

int syscall_filter_enter(struct syscall_filter *f, uint32_t other, bool all_threads, struct err *err)
{
	struct sock_fprog program = { .filter = f->insn };

	answer(f, other);
	if (f->full)
		return err_set(err, -E2BIG, "system call filter: more than %d instructions", SYSCALL_FILTER_MAX);
	program.len = (unsigned short)f->n;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0, &program) != 0)
		return err_errno(err, -errno, "system call filter: this kernel needs CONFIG_SECCOMP_FILTER");
	return 0;
}
