/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build-time program: turns the collected system call rules into BPF filters, as a header.
 *
 * The filters are made here by libseccomp, once, so that the monitor installs ready instructions at start and
 * carries no filter compiler. Rules come from the `syscalls(ROLE)` comments by scripts/seccomp-rules.py, as
 * calls of the macros below. What no rule allows traps: the handler in isolate.c names the call and ends the
 * process.
 *
 * SELF stands for the monitor's process id, unknown here: the filter compares with SECCOMP_SELF_MAGIC and
 * isolate.c puts the real number in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <linux/userfaultfd.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/filter.h>

#include "vmm/seccomp/self.h"

enum role { ROLE_main, ROLE_vcpu, ROLE_worker, ROLE_COUNT };
enum { MAX_INSNS = 4096, SYSCALL_NAMES = 512 };

#define SELF SECCOMP_SELF_MAGIC

struct rule {
	const char *name;
	enum role role;
	int arg;       /* -1: no condition */
	int clear;     /* bits must be clear rather than equal */
	uint32_t value;
};

#define RULE(r, n) { #n, ROLE_##r, -1, 0, 0 },
#define RULE_EQ(r, n, a, v) { #n, ROLE_##r, a, 0, (uint32_t)(v) },
#define RULE_CLEAR(r, n, a, v) { #n, ROLE_##r, a, 1, (uint32_t)(v) },
static const struct rule rules[] = {
#include "seccomp_rules.inc"
};

static const char *const role_names[ROLE_COUNT] = { "main", "vcpu", "worker" };

static void fail(const char *what, const char *name, int code)
{
	fprintf(stderr, "seccomp: %s '%s': %s\n", what, name, strerror(-code));
	exit(1);
}

static void add_rule(scmp_filter_ctx ctx, const struct rule *r)
{
	int nr = seccomp_syscall_resolve_name(r->name);
	int code;

	if (nr == __NR_SCMP_ERROR)
		fail("no system call named", r->name, -ENOSYS);
	if (nr < 0)
		return; /* exists elsewhere, not on this architecture */
	if (r->arg < 0)
		code = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
	else if (r->clear)
		code = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_CMP((unsigned)r->arg, SCMP_CMP_MASKED_EQ, r->value, 0));
	else
		code = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 1,
					SCMP_CMP((unsigned)r->arg, SCMP_CMP_MASKED_EQ, 0xffffffff, r->value));
	if (code < 0 && code != -EEXIST)
		fail("rule for", r->name, code);
}

static void print_filter(enum role role)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_TRAP);
	struct sock_filter insns[MAX_INSNS];
	FILE *tmp = tmpfile();
	int code;

	if (!ctx || !tmp)
		fail("cannot begin filter", role_names[role], -ENOMEM);
	seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (rules[i].role == role)
			add_rule(ctx, &rules[i]);
	code = seccomp_export_bpf(ctx, fileno(tmp));
	if (code < 0)
		fail("export", role_names[role], code);
	seccomp_release(ctx);
	rewind(tmp);
	size_t n = fread(insns, sizeof(insns[0]), MAX_INSNS, tmp);

	fclose(tmp);
	if (n == 0 || n == MAX_INSNS)
		fail("size of filter", role_names[role], -E2BIG);
	printf("static const struct sock_filter seccomp_%s[] = {\n", role_names[role]);
	for (size_t i = 0; i < n; i++)
		printf("\t{ 0x%04x, %u, %u, 0x%08x },\n", insns[i].code, insns[i].jt, insns[i].jf, insns[i].k);
	printf("};\n");
}

static void print_names(void)
{
	printf("static const char *const seccomp_names[%d] = {\n", SYSCALL_NAMES);
	for (int nr = 0; nr < SYSCALL_NAMES; nr++) {
		char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, nr);

		if (name)
			printf("\t[%d] = \"%s\",\n", nr, name);
		free(name);
	}
	printf("};\n");
}

int main(void)
{
	printf("/* Generated from the syscalls() comments in the sources. */\n");
	for (int r = 0; r < ROLE_COUNT; r++)
		print_filter((enum role)r);
	print_names();
	return 0;
}
