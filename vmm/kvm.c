/* SPDX-License-Identifier: Apache-2.0 */
/* KVM: see kvm.h. */
#include "vmm/kvm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "lib/fd.h"
#include "lib/util.h"
#include "vmm/vm.h"
#include "vmm/x86/layout.h"

/* The only version there has been since Linux 2.6.22. */
enum { API_VERSION = 12 };

struct capability {
	int cap;
	const char *name, *purpose;
};

static int check_capabilities(int kvm_fd, struct err *err)
{
#define ROW(cap, purpose) { KVM_CAP_##cap, "KVM_CAP_" #cap, purpose },
	static const struct capability required[] = { KVM_REQUIRED(ROW) };
#undef ROW

	for (size_t i = 0; i < ARRAY_SIZE(required); i++)
		if (ioctl(kvm_fd, KVM_CHECK_EXTENSION, required[i].cap) <= 0)
			return err_set(err, -ENOTSUP, "this host's KVM lacks %s (%s): run 'coffer doctor'",
				       required[i].name, required[i].purpose);
	return 0;
}

int kvm_open(struct vm *vm, struct err *err)
{
	_cleanup_close_ int fd = open(KVM_DEVICE, O_RDWR | O_CLOEXEC);
	int r;

	if (fd < 0 && errno == ENOENT)
		return err_set(err, -ENOENT, "no %s: this host has no KVM, run 'coffer doctor'", KVM_DEVICE);
	if (fd < 0 && errno == EACCES)
		return err_set(err, -EACCES, "%s: permission denied: add this user to the group 'kvm'", KVM_DEVICE);
	if (fd < 0)
		return err_errno(err, -errno, "%s", KVM_DEVICE);
	r = ioctl(fd, KVM_GET_API_VERSION, 0);
	if (r != API_VERSION)
		return err_set(err, r < 0 ? -errno : -ENOTSUP, "%s: API version %d, not %d: not KVM?", KVM_DEVICE, r,
			       API_VERSION);
	r = check_capabilities(fd, err);
	if (r < 0)
		return r;
	vm->kvm_fd = TAKE_FD(fd);
	return 0;
}

int kvm_create_vm(struct vm *vm, struct err *err)
{
	struct kvm_pit_config pit = { .flags = KVM_PIT_SPEAKER_DUMMY };
	uint64_t identity_map = X86_IDENTITY_MAP;
	_cleanup_close_ int fd = -1;

	do /* may be interrupted by a signal while it waits for other CPUs */
		fd = ioctl(vm->kvm_fd, KVM_CREATE_VM, 0);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return err_errno(err, -errno, "KVM_CREATE_VM");
	if (ioctl(fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map) < 0)
		return err_errno(err, -errno, "KVM_SET_IDENTITY_MAP_ADDR");
	if (ioctl(fd, KVM_SET_TSS_ADDR, (unsigned long)X86_TSS) < 0)
		return err_errno(err, -errno, "KVM_SET_TSS_ADDR");
	if (ioctl(fd, KVM_CREATE_IRQCHIP, 0) < 0)
		return err_errno(err, -errno, "KVM_CREATE_IRQCHIP");
	/* Serves port 0x61 too: the kernel's timer calibration reads it in a loop. */
	if (ioctl(fd, KVM_CREATE_PIT2, &pit) < 0)
		return err_errno(err, -errno, "KVM_CREATE_PIT2");
	vm->vm_fd = TAKE_FD(fd);
	return 0;
}
