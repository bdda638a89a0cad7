/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this machine can run VMs, by facts: what is there, what opens, which capabilities answer. No timing, no
 * guessing from names of machines.
 *
 * Three steps, so that each can be tested: gathering facts, judging them, printing. `coffer run` takes the first two of KVM alone
 * and refuses with the verdict's line.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/err.h"

enum doctor_verdict {
	DOCTOR_FULL,    /* Linux guests run */
	DOCTOR_PARTIAL, /* there is a KVM, good for tiny payloads only (kvm_pvm, or without hardware) */
	DOCTOR_NONE,    /* VMs cannot run */
};

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_BAD };

struct doctor_facts {
	/* KVM */
	bool kvm_present;
	int kvm_open_error;      /* errno of opening it, 0: opened */
	int kvm_api;             /* KVM_GET_API_VERSION */
	char kvm_missing[256];   /* capabilities that are missing, separated by blanks */
	bool sys_readable;       /* /sys/module is there: the three below mean something */
	bool kvm_intel, kvm_amd, kvm_pvm;
	bool vmx, svm;           /* CPU flags */
	bool hypervisor;         /* this machine is a guest itself */
	char user[64];           /* for advice */

	/* the rest */
	uint64_t memory_total, memory_available; /* bytes; 0: unknown */
	int userfaultfd_error;   /* errno, 0: works */
	int seccomp_error;
	int io_uring_error;
	bool lab_qemu, lab_kernel, lab_python;
};

enum { DOCTOR_MAX_LINES = 8 };

struct doctor_line {
	const char *name;        /* "kvm", "capabilities", ... */
	enum doctor_level level;
	char text[ERR_MAX];
};

struct doctor_report {
	enum doctor_verdict verdict;
	char text[ERR_MAX];      /* the verdict in one line, with what to do */
	size_t nlines;
	struct doctor_line line[DOCTOR_MAX_LINES];
};

/* Facts below `root` ("" for the machine itself; a directory in tests). */
void doctor_gather_kvm(const char *root, struct doctor_facts *f);
void doctor_gather_rest(const char *root, struct doctor_facts *f);

/* The verdict from the facts of doctor_gather_kvm; fills verdict and text. */
void doctor_judge_kvm(const struct doctor_facts *f, struct doctor_report *r);
/* All lines and the verdict. */
void doctor_judge(const struct doctor_facts *f, struct doctor_report *r);

const char *doctor_verdict_name(enum doctor_verdict v); /* "full", "partial", "none" */
const char *doctor_level_name(enum doctor_level l);     /* "ok", "warning", "missing" */

/* For commands that start VMs: 0 when the verdict is DOCTOR_FULL, else -ENOTSUP with its line. */
int doctor_require_kvm(struct err *err);
