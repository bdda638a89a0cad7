/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interrupt lines (edge triggered): an eventfd that KVM turns into an interrupt (irqfd).
 *
 * A device raises its line by irq_raise from any thread. Without KVM the eventfd stands alone and the fake
 * machine counts what is written to it.
 */
#pragma once
#include <stdint.h>

#include "lib/err.h"

struct irq_line {
	int fd;       /* eventfd, owned */
	uint32_t gsi;
};

/* vm_fd < 0: no KVM behind it. */
int irq_line_init(struct irq_line *line, int vm_fd, uint32_t gsi, struct err *err);
void irq_line_finish(struct irq_line *line);
void irq_raise(const struct irq_line *line);
