/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interrupt lines: see irq.h.
 *
 * The eventfd is non-blocking: a counter at its maximum means that the interrupt is pending anyway. Closing it takes
 * it away from KVM too.
 */
/* syscalls(main, vcpu, worker): write */
#include "vmm/irq.h"

#include <errno.h>
#include <linux/kvm.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/fd.h"

int irq_line_init(struct irq_line *line, int vm_fd, uint32_t gsi, struct err *err)
{
	_cleanup_close_ int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return err_errno(err, -errno, "interrupt %u: eventfd", gsi);
	if (vm_fd >= 0) {
		struct kvm_irqfd arg = { .fd = (uint32_t)fd, .gsi = gsi };

		if (ioctl(vm_fd, KVM_IRQFD, &arg) < 0)
			return err_errno(err, -errno, "interrupt %u: KVM_IRQFD", gsi);
	}
	*line = (struct irq_line){ .fd = TAKE_FD(fd), .gsi = gsi };
	return 0;
}

void irq_line_finish(struct irq_line *line)
{
	/* A zeroed line has no descriptor; 0 is never an eventfd of ours. */
	if (line->fd > 0)
		fd_close(line->fd);
	line->fd = -1;
}

void irq_raise(const struct irq_line *line)
{
	static const uint64_t one = 1;

	if (line->fd > 0) {
		ssize_t ignored = write(line->fd, &one, sizeof(one));

		(void)ignored;
	}
}
