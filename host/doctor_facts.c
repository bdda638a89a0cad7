/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facts that doctor.c judges.
 *
 * CPU flags come from the CPUID instruction: /proc/cpuinfo takes milliseconds on a large machine, and every `coffer run`
 * asks. Facts that are files are looked up below `root`; facts that are system calls are asked of the running kernel.
 */
#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <linux/io_uring.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/doctor.h"
#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/kvm.h"

static bool exists(const char *root, const char *path)
{
	char full[PATH_MAX];

	snprintf(full, sizeof(full), "%s%s", root, path);
	return access(full, F_OK) == 0;
}

static void gather_cpu(struct doctor_facts *f)
{
#if defined(__x86_64__)
	unsigned a, b, c, d;

	if (__get_cpuid(1, &a, &b, &c, &d)) {
		f->vmx = c & (1u << 5);
		f->hypervisor = c & (1u << 31);
	}
	if (__get_cpuid(0x80000001, &a, &b, &c, &d))
		f->svm = c & (1u << 2);
#else
	(void)f;
#endif
}

static void gather_capabilities(int kvm, struct doctor_facts *f)
{
#define ROW(cap, purpose) { KVM_CAP_##cap, #cap },
	static const struct {
		int cap;
		const char *name;
	} required[] = { KVM_REQUIRED(ROW) };
#undef ROW

	f->kvm_api = ioctl(kvm, KVM_GET_API_VERSION, 0);
	for (size_t i = 0; i < ARRAY_SIZE(required); i++) {
		size_t n = strlen(f->kvm_missing);

		if (ioctl(kvm, KVM_CHECK_EXTENSION, required[i].cap) <= 0)
			snprintf(f->kvm_missing + n, sizeof(f->kvm_missing) - n, "%sKVM_CAP_%s", n ? " " : "", required[i].name);
	}
}

void doctor_gather_kvm(const char *root, struct doctor_facts *f)
{
	const struct passwd *pw = getpwuid(getuid());
	char path[PATH_MAX];

	snprintf(f->user, sizeof(f->user), "%s", pw ? pw->pw_name : "$USER");
	gather_cpu(f);
	f->sys_readable = exists(root, "/sys/module");
	f->kvm_intel = exists(root, "/sys/module/kvm_intel");
	f->kvm_amd = exists(root, "/sys/module/kvm_amd");
	f->kvm_pvm = exists(root, "/sys/module/kvm_pvm");
	snprintf(path, sizeof(path), "%s%s", root, KVM_DEVICE);
	_cleanup_close_ int kvm = open(path, O_RDWR | O_CLOEXEC);

	f->kvm_open_error = kvm < 0 ? errno : 0;
	f->kvm_present = kvm >= 0 || (f->kvm_open_error != ENOENT && f->kvm_open_error != ENOTDIR);
	if (kvm >= 0)
		gather_capabilities(kvm, f);
}

/* "NAME:   123 kB" -> bytes; leaves *ret alone when the line is another one. */
static void take_memory(const char *line, const char *name, uint64_t *ret)
{
	size_t n = strlen(name);

	if (!strncmp(line, name, n) && line[n] == ':')
		*ret = KIB(strtoull(line + n + 1, NULL, 10));
}

static void gather_memory(const char *root, struct doctor_facts *f)
{
	char path[PATH_MAX], line[256];

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	FILE *file = fopen(path, "re");

	if (!file)
		return;
	while (fgets(line, sizeof(line), file)) {
		take_memory(line, "MemTotal", &f->memory_total);
		take_memory(line, "MemAvailable", &f->memory_available);
	}
	fclose(file);
}

static int probe_userfaultfd(void)
{
	/* 1: UFFD_USER_MODE_ONLY, which needs no privilege. */
	_cleanup_close_ int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1);

	return fd < 0 ? errno : 0;
}

static int probe_seccomp(void)
{
	uint32_t action = SECCOMP_RET_TRAP;

	return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0 ? errno : 0;
}

static int probe_io_uring(void)
{
	struct io_uring_params p = { 0 };
	_cleanup_close_ int fd = (int)syscall(SYS_io_uring_setup, 4, &p);

	return fd < 0 ? errno : 0;
}

/* Whether a file of /boot is the kernel of the lab: Debian's full one. */
static bool find_lab_kernel(const char *root)
{
	char path[PATH_MAX];
	bool found = false;

	snprintf(path, sizeof(path), "%s/boot", root);
	DIR *dir = opendir(path);

	if (!dir)
		return false;
	for (struct dirent *e; !found && (e = readdir(dir));)
		found = fnmatch("vmlinuz-*-amd64", e->d_name, 0) == 0 && fnmatch("*-cloud-amd64", e->d_name, 0) != 0 &&
			fnmatch("*-rt-amd64", e->d_name, 0) != 0;
	closedir(dir);
	return found;
}

void doctor_gather_rest(const char *root, struct doctor_facts *f)
{
	gather_memory(root, f);
	f->userfaultfd_error = probe_userfaultfd();
	f->seccomp_error = probe_seccomp();
	f->io_uring_error = probe_io_uring();
	f->lab_qemu = exists(root, "/usr/bin/qemu-system-x86_64");
	f->lab_python = exists(root, "/usr/bin/python3");
	f->lab_kernel = find_lab_kernel(root);
}
