/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A system call filter, put together at run time: for the helper processes, whose libraries decide what they call. (The monitor's
 * filters are made at build time from comments: vmm/isolate.c.)
 *
 * Rules are looked at in the order they were added; the first that fits decides. Calls of other architectures, x32 included, end the process
 * in any case. Actions are the kernel's SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS and SECCOMP_RET_ERRNO | errno. Only the low
 * 32 bits of arguments are looked at, which is all of an int.
 */
#pragma once
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum { SYSCALL_FILTER_MAX = 512 };

struct syscall_filter {
	struct sock_filter insn[SYSCALL_FILTER_MAX];
	size_t n;
	bool full; /* something did not fit: entering it fails */
};

void syscall_filter_begin(struct syscall_filter *f);
/* Each of these calls. */
void syscall_filter_calls(struct syscall_filter *f, const int *call, size_t n, uint32_t action);
/* The call with one of these values (at most 32) for argument `arg`; with any other: `other`. */
void syscall_filter_values(struct syscall_filter *f, int call, unsigned arg, const uint32_t *value, size_t n, uint32_t action, uint32_t other);
/* The call: allowed without any of these bits in argument `arg`, otherwise the end. */
void syscall_filter_without(struct syscall_filter *f, int call, unsigned arg, uint32_t bits);
/* The call: allowed with any of these bits in argument `arg`, otherwise the end. */
void syscall_filter_with(struct syscall_filter *f, int call, unsigned arg, uint32_t bits);
/* From now on, for this thread or for all; `other` for calls without a rule. No new privileges: privileges.h. 0 or -errno with a text. */
int syscall_filter_enter(struct syscall_filter *f, uint32_t other, bool all_threads, struct err *err);
