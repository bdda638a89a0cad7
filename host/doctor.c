/* SPDX-License-Identifier: Apache-2.0 */
/* Judging a machine: see doctor.h. What the facts are and where they come from: doctor_facts.c. */
#include "host/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/util.h"

#define ELSEWHERE "use a machine with hardware virtualisation, or, in Coffer's source tree, 'tests/lab/lab -- coffer run ...'"
enum { KVM_API_VERSION_WANTED = 12 };
#define MEMORY_LOW MIB(768)

static void set_verdict(struct doctor_report *r, enum doctor_verdict v, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void set_verdict(struct doctor_report *r, enum doctor_verdict v, const char *fmt, ...)
{
	va_list ap;

	r->verdict = v;
	va_start(ap, fmt);
	vsnprintf(r->text, sizeof(r->text), fmt, ap);
	va_end(ap);
}

/* KVM has one module of this kind at a time. */
static bool uses_pvm(const struct doctor_facts *f)
{
	return f->kvm_pvm && !f->kvm_intel && !f->kvm_amd;
}

static bool has_hardware(const struct doctor_facts *f)
{
	if (f->sys_readable && !f->kvm_intel && !f->kvm_amd)
		return false;
	return f->vmx || f->svm;
}

void doctor_judge_kvm(const struct doctor_facts *f, struct doctor_report *r)
{
	if (!f->kvm_present && (f->vmx || f->svm))
		set_verdict(r, DOCTOR_NONE, "no /dev/kvm, though the processor has %s: load the module kvm_%s (in a container: pass /dev/kvm in)",
			    f->vmx ? "vmx" : "svm", f->vmx ? "intel" : "amd");
	else if (!f->kvm_present)
		set_verdict(r, DOCTOR_NONE, "no /dev/kvm and no hardware virtualisation: " ELSEWHERE);
	else if (f->kvm_open_error == EACCES || f->kvm_open_error == EPERM)
		set_verdict(r, DOCTOR_NONE, "/dev/kvm: permission denied: 'sudo usermod -aG kvm %s' and log in again", f->user);
	else if (f->kvm_open_error)
		set_verdict(r, DOCTOR_NONE, "/dev/kvm cannot be opened (%s): " ELSEWHERE, strerror(f->kvm_open_error));
	else if (f->kvm_api != KVM_API_VERSION_WANTED)
		set_verdict(r, DOCTOR_NONE, "/dev/kvm does not speak KVM's API version 12 (answer %d): " ELSEWHERE, f->kvm_api);
	else if (f->kvm_missing[0])
		set_verdict(r, DOCTOR_NONE, "KVM lacks %s: a newer kernel is needed", f->kvm_missing);
	else if (uses_pvm(f))
		set_verdict(r, DOCTOR_PARTIAL, "/dev/kvm is kvm_pvm, which interprets guest kernels: Linux does not boot on it in useful time: "
			    ELSEWHERE);
	else if (!has_hardware(f))
		set_verdict(r, DOCTOR_PARTIAL, "/dev/kvm works without hardware virtualisation (no vmx, no svm): Linux guests are not expected to boot: "
			    ELSEWHERE);
	else
		set_verdict(r, DOCTOR_FULL, "this machine can run VMs");
}

static void add(struct doctor_report *r, const char *name, enum doctor_level level, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static void add(struct doctor_report *r, const char *name, enum doctor_level level, const char *fmt, ...)
{
	va_list ap;

	if (r->nlines == DOCTOR_MAX_LINES)
		return;
	struct doctor_line *l = &r->line[r->nlines++];

	l->name = name;
	l->level = level;
	va_start(ap, fmt);
	vsnprintf(l->text, sizeof(l->text), fmt, ap);
	va_end(ap);
}

static void add_kvm(const struct doctor_facts *f, struct doctor_report *r)
{
	if (!f->kvm_present)
		add(r, "kvm", DOCTOR_BAD, "no /dev/kvm");
	else if (f->kvm_open_error)
		add(r, "kvm", DOCTOR_BAD, "/dev/kvm: %s", strerror(f->kvm_open_error));
	else
		add(r, "kvm", f->kvm_api == KVM_API_VERSION_WANTED ? DOCTOR_OK : DOCTOR_BAD, "/dev/kvm opens, API version %d",
		    f->kvm_api);

	if (!f->kvm_present || f->kvm_open_error)
		add(r, "capabilities", DOCTOR_BAD, "unknown without /dev/kvm");
	else if (f->kvm_missing[0])
		add(r, "capabilities", DOCTOR_BAD, "missing: %s", f->kvm_missing);
	else
		add(r, "capabilities", DOCTOR_OK, "all that the monitor needs");

	const char *flag = f->vmx ? "vmx" : f->svm ? "svm" : "no vmx, no svm";
	/* /dev/kvm is there whichever module made it; with this one the processor's own means are not used. */
	if (f->kvm_present && uses_pvm(f)) {
		add(r, "hardware", DOCTOR_BAD, "%s, but /dev/kvm is kvm_pvm%s: Linux guests do not boot on it in useful time%s", flag,
		    f->vmx ? " and not kvm_intel" : f->svm ? " and not kvm_amd" : "",
		    f->hypervisor ? "; this machine is itself a guest" : "");
		return;
	}
	const char *module = f->kvm_intel ? "kvm_intel" : f->kvm_amd ? "kvm_amd" : f->kvm_pvm ? "kvm_pvm" : f->sys_readable ? "no KVM module" : "modules unknown";

	add(r, "hardware", has_hardware(f) ? DOCTOR_OK : DOCTOR_BAD, "%s, %s%s", flag, module,
	    f->hypervisor ? ", this machine is itself a guest" : "");
}

static void add_error(struct doctor_report *r, const char *name, int error, const char *good, const char *without)
{
	if (error)
		add(r, name, DOCTOR_WARN, "%s: %s", strerror(error), without);
	else
		add(r, name, DOCTOR_OK, "%s", good);
}

void doctor_judge(const struct doctor_facts *f, struct doctor_report *r)
{
	*r = (struct doctor_report){ 0 };
	add_kvm(f, r);
	if (!f->memory_total)
		add(r, "memory", DOCTOR_WARN, "unknown");
	else
		add(r, "memory", f->memory_available < MEMORY_LOW ? DOCTOR_WARN : DOCTOR_OK, "%llu MiB available of %llu MiB",
		    (unsigned long long)(f->memory_available >> 20), (unsigned long long)(f->memory_total >> 20));
	add_error(r, "userfaultfd", f->userfaultfd_error, "works", "snapshots cannot be restored lazily");
	add_error(r, "seccomp", f->seccomp_error, "filters work", "the monitor runs only with --no-seccomp");
	add_error(r, "io_uring", f->io_uring_error, "works", "disks use threads instead");
	if (f->lab_qemu && f->lab_kernel && f->lab_python)
		add(r, "lab", DOCTOR_OK, "possible: qemu-system-x86_64 and a kernel for it are there");
	else
		add(r, "lab", DOCTOR_WARN, "not possible: install%s%s%s", f->lab_qemu ? "" : " qemu-system-x86",
		    f->lab_kernel ? "" : " linux-image-amd64", f->lab_python ? "" : " python3");
	doctor_judge_kvm(f, r);
}

const char *doctor_verdict_name(enum doctor_verdict v)
{
	static const char *const names[] = { "full", "partial", "none" };

	return names[v];
}

const char *doctor_level_name(enum doctor_level l)
{
	static const char *const names[] = { "ok", "warning", "missing" };

	return names[l];
}

int doctor_require_kvm(struct err *err)
{
	struct doctor_facts f = { 0 };
	struct doctor_report r = { 0 };

	doctor_gather_kvm("", &f);
	doctor_judge_kvm(&f, &r);
	return r.verdict == DOCTOR_FULL ? 0 : err_set(err, -ENOTSUP, "%s", r.text);
}
