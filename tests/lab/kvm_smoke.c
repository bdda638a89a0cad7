/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that /dev/kvm runs guest code here: one vCPU adds two numbers in real mode, writes the sum to an I/O port
 * and halts. It uses KVM and nothing of Coffer, so a failure says something about the machine alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PORT = 0x3e9, LEFT = 0x21, RIGHT = 0x15, CODE_AT = 0x1000, MEMORY = 0x2000 };

static const unsigned char code[] = {
	0xba, PORT & 0xff, PORT >> 8, /* mov $PORT, %dx */
	0xb0, LEFT,                   /* mov $LEFT, %al */
	0x04, RIGHT,                  /* add $RIGHT, %al */
	0xee,                         /* out %al, (%dx) */
	0xf4,                         /* hlt */
};

static void fail(const char *what)
{
	printf("kvm_smoke: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int call(int fd, unsigned long request, unsigned long arg, const char *what)
{
	int ret = ioctl(fd, request, arg);
	if (ret < 0)
		fail(what);
	return ret;
}

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		fail("/dev/kvm");
	int version = call(kvm, KVM_GET_API_VERSION, 0, "KVM_GET_API_VERSION");
	int vm = call(kvm, KVM_CREATE_VM, 0, "KVM_CREATE_VM");
	char *memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		fail("mmap");
	memcpy(memory + CODE_AT, code, sizeof(code));
	struct kvm_userspace_memory_region slot = { .memory_size = MEMORY, .userspace_addr = (unsigned long)memory };
	call(vm, KVM_SET_USER_MEMORY_REGION, (unsigned long)&slot, "KVM_SET_USER_MEMORY_REGION");
	int vcpu = call(vm, KVM_CREATE_VCPU, 0, "KVM_CREATE_VCPU");
	size_t size = (size_t)call(kvm, KVM_GET_VCPU_MMAP_SIZE, 0, "KVM_GET_VCPU_MMAP_SIZE");
	struct kvm_run *run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	if (run == MAP_FAILED)
		fail("mmap of the vCPU");

	struct kvm_sregs sregs;
	call(vcpu, KVM_GET_SREGS, (unsigned long)&sregs, "KVM_GET_SREGS");
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	call(vcpu, KVM_SET_SREGS, (unsigned long)&sregs, "KVM_SET_SREGS");
	struct kvm_regs regs = { .rip = CODE_AT, .rflags = 2 };
	call(vcpu, KVM_SET_REGS, (unsigned long)&regs, "KVM_SET_REGS");

	unsigned int sum = 0, exits = 0;
	for (;;) {
		call(vcpu, KVM_RUN, 0, "KVM_RUN");
		exits++;
		if (run->exit_reason == KVM_EXIT_HLT)
			break;
		if (run->exit_reason != KVM_EXIT_IO || run->io.port != PORT || run->io.size != 1) {
			printf("kvm_smoke: unexpected exit %u\n", run->exit_reason);
			return 1;
		}
		sum = *((unsigned char *)run + run->io.data_offset);
	}
	if (sum != LEFT + RIGHT) {
		printf("kvm_smoke: the guest says %u, not %d\n", sum, LEFT + RIGHT);
		return 1;
	}
	printf("kvm_smoke: KVM API %d, the guest says %u after %u exits\n", version, sum, exits);
	return 0;
}
