/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all virtio devices share: status, features, queues, notifications, interrupts (virtio 1.2, chapters 2 and 3).
 *
 * Guest contract: status bits are only ever added by the driver; writing 0 resets. FEATURES_OK sticks only when the
 * driver took VERSION_1 and nothing that was not offered; the features are frozen by it. DRIVER_OK needs FEATURES_OK
 * and counts once. A broken rule sets NEEDS_RESET and stops the device's queues until the driver resets it;
 * nothing else happens to the monitor.
 *
 * How it works: vq[] is a view over the saved queue states; virtio_view derives all of it, so that the driver's path
 * and a restore end in the same place. Each queue has an eventfd that main watches; with KVM it is an ioeventfd on
 * the notify register, so a notification never wakes the vCPU's thread in user space.
 *
 * Threads: everything under the device lock; wake-ups run in main.
 * Trust: registers and rings are the guest's, the decoded state is hostile (virtio_check).
 * Snapshot: virtio_common_state. Eventfds are rebuilt; every queue is looked at again on resume and a pending interrupt
 * is raised again, so neither can be lost between the two monitors.
 */
/* syscalls(main, vcpu): write */
/* syscalls(main): read */
#include "devices/virtio.h"

#include <assert.h>
#include <errno.h>
#include <linux/kvm.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "lib/fd.h"
#include "lib/util.h"

#define STATE_SELF struct virtio_common_state
STATE_SCHEMA(virtio_common, 1, VIRTIO_COMMON_STATE);
#undef STATE_SELF

enum {
	DRIVER_BITS = VIRTIO_S_ACKNOWLEDGE | VIRTIO_S_DRIVER | VIRTIO_S_FEATURES_OK | VIRTIO_S_DRIVER_OK | VIRTIO_S_FAILED,
	ISR_QUEUE = 1,
	ISR_CONFIG = 2,
	MAIN_CALL = VIRTIO_MAX_QUEUES, /* the wake[] entry that is no queue's */
};

static const struct virtio_ops *ops_of(const struct virtio_device *vd)
{
	return vd->dev.ops->virtio;
}

uint64_t virtio_offered_features(struct virtio_device *vd)
{
	uint64_t bits = VIRTIO_F_VERSION_1 | VIRTIO_F_INDIRECT_DESC | VIRTIO_F_EVENT_IDX;

	return bits | (ops_of(vd)->features ? ops_of(vd)->features(vd) : 0);
}

static bool features_acceptable(struct virtio_device *vd)
{
	uint64_t f = vd->common.driver_features;

	return (f & VIRTIO_F_VERSION_1) && !(f & ~virtio_offered_features(vd));
}

void virtio_view(struct virtio_device *vd)
{
	bool stopped = !vd->active || vd->dev.quiesced || vd->common.status & VIRTIO_S_NEEDS_RESET;

	for (uint32_t q = 0; q < VIRTIO_MAX_QUEUES; q++)
		vd->vq[q] = (struct virtio_queue){
			.st = &vd->common.queues[q],
			.mem = &vd->dev.vm->mem,
			.max_size = q < vd->nqueues ? ops_of(vd)->queue_size : 0,
			.event_idx = virtio_has(vd, VIRTIO_F_EVENT_IDX),
			.indirect = virtio_has(vd, VIRTIO_F_INDIRECT_DESC),
			.stopped = stopped,
		};
}

static void activate(struct virtio_device *vd)
{
	vd->active = true;
	virtio_view(vd);
	if (ops_of(vd)->activate)
		ops_of(vd)->activate(vd);
	/* A driver may have put requests in, and even announced them, before DRIVER_OK. */
	if (!vd->dev.quiesced)
		for (uint32_t q = 0; q < vd->nqueues; q++)
			virtio_kick(vd, q);
}

void virtio_set_driver_features(struct virtio_device *vd, uint32_t sel, uint32_t bits)
{
	struct virtio_common_state *c = &vd->common;

	if (c->status & VIRTIO_S_FEATURES_OK)
		return;
	if (sel == 0)
		c->driver_features = (c->driver_features & ~0xffffffffull) | bits;
	else if (sel == 1)
		c->driver_features = (c->driver_features & 0xffffffffull) | (uint64_t)bits << 32;
}

void virtio_set_status(struct virtio_device *vd, uint32_t status)
{
	struct virtio_common_state *c = &vd->common;
	uint32_t added = status & ~c->status & DRIVER_BITS;

	if (status == 0) {
		virtio_reset(vd);
		return;
	}
	if (added & VIRTIO_S_FEATURES_OK && !features_acceptable(vd))
		added &= ~(uint32_t)VIRTIO_S_FEATURES_OK;
	if (!((c->status | added) & VIRTIO_S_FEATURES_OK) || c->status & VIRTIO_S_NEEDS_RESET)
		added &= ~(uint32_t)VIRTIO_S_DRIVER_OK;
	c->status |= added;
	if (added & VIRTIO_S_DRIVER_OK)
		activate(vd);
}

void virtio_set_queue_ready(struct virtio_device *vd, uint32_t q, bool ready)
{
	struct virtio_queue_state *st;

	if (q >= vd->nqueues || vd->common.queues[q].ready == ready)
		return;
	st = &vd->common.queues[q];
	if (ready) {
		if (vd->active) /* queues are final once the device runs */
			return;
		if (vq_validate(&vd->vq[q]) < 0) {
			virtio_fail(vd, "a queue with a bad size or address was enabled");
			return;
		}
		st->next_avail = st->next_used = st->signalled_used = 0;
		st->signalled_valid = 1;
		st->ready = 1;
		return;
	}
	/* The driver may free the ring and its buffers as soon as it sees 0: nothing may be under way any more. */
	if (vd->active && ops_of(vd)->queue_stop)
		ops_of(vd)->queue_stop(vd, q);
	st->ready = 0;
}

void virtio_reset(struct virtio_device *vd)
{
	struct virtio_common_state *c = &vd->common;
	uint32_t generation = c->config_generation;

	if (vd->active) {
		vd->active = false;
		virtio_view(vd);
		if (ops_of(vd)->deactivate)
			ops_of(vd)->deactivate(vd);
	}
	memset(c, 0, sizeof(*c));
	c->config_generation = generation;
	virtio_view(vd);
	if (vd->dev.ops->reset)
		vd->dev.ops->reset(&vd->dev);
}

void virtio_notify(struct virtio_device *vd, uint32_t q)
{
	if (virtio_queue_live(vd, q) && ops_of(vd)->queue_ready)
		ops_of(vd)->queue_ready(vd, q);
}

static void interrupt(struct virtio_device *vd, uint32_t cause)
{
	vd->common.interrupt_status |= cause;
	/* Also when the bit is set already: the line is an edge, and a driver may acknowledge late. */
	irq_raise(&vd->dev.irq);
}

void virtio_signal_queue(struct virtio_device *vd, uint32_t q)
{
	if (vq_needs_interrupt(&vd->vq[q]))
		interrupt(vd, ISR_QUEUE);
}

void virtio_signal_config(struct virtio_device *vd)
{
	vd->common.config_generation++;
	if (vd->common.status & VIRTIO_S_DRIVER_OK)
		interrupt(vd, ISR_CONFIG);
}

void virtio_fail(struct virtio_device *vd, const char *reason)
{
	if (vd->common.status & VIRTIO_S_NEEDS_RESET)
		return;
	vd->common.status |= VIRTIO_S_NEEDS_RESET;
	virtio_view(vd);
	log_limited(&vd->dev.vm->log, &vd->dev.log_limit, LOG_WARN, "%s: guest driver error: %s", vd->dev.name,
		    reason);
	virtio_signal_config(vd);
}

static void wake_up(const struct virtio_wake *w)
{
	static const uint64_t one = 1;

	if (w->fd > 0) {
		ssize_t ignored = write(w->fd, &one, sizeof(one));

		(void)ignored; /* EAGAIN: the counter is full, so main will wake anyway */
	}
}

void virtio_kick(struct virtio_device *vd, uint32_t q)
{
	if (q < vd->nqueues)
		wake_up(&vd->wake[q]);
}

void virtio_main_call(struct virtio_device *vd)
{
	if (!ops_of(vd)->main_work)
		return;
	if (vd->dev.vm->vm_fd >= 0)
		wake_up(&vd->wake[MAIN_CALL]);
	else
		ops_of(vd)->main_work(vd);
}

static void on_wake(struct loop_fd *watch, uint32_t events)
{
	struct virtio_wake *w = container_of(watch, struct virtio_wake, watch);
	struct virtio_device *vd = w->vd;
	uint64_t count;
	ssize_t ignored = read(w->fd, &count, sizeof(count)); /* before the work: a later kick counts again */

	(void)ignored;
	(void)events;
	device_lock(&vd->dev);
	if (w->q == MAIN_CALL) {
		if (ops_of(vd)->main_work)
			ops_of(vd)->main_work(vd);
	} else {
		virtio_notify(vd, w->q);
	}
	device_unlock(&vd->dev);
}

int virtio_open(struct virtio_device *vd, struct err *err)
{
	const struct virtio_ops *ops = ops_of(vd);
	uint32_t n = ops->nqueues ? ops->nqueues(vd) : ops->nqueues_max;

	assert(ops->nqueues_max <= VIRTIO_MAX_QUEUES && ops->config_size <= VIRTIO_MAX_CONFIG);
	assert(IS_POWER_OF_2(ops->queue_size) && ops->queue_size <= VQ_MAX_SIZE);
	if (n > ops->nqueues_max)
		return err_set(err, -EINVAL, "%u queues, the limit is %u", n, ops->nqueues_max);
	vd->nqueues = n;
	return 0;
}

static int open_wake(struct virtio_device *vd, uint32_t i, struct err *err)
{
	struct virtio_wake *w = &vd->wake[i];
	struct vm *vm = vd->dev.vm;
	int r;

	w->vd = vd;
	w->q = i;
	w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->fd < 0)
		return err_errno(err, -errno, "eventfd");
	r = loop_add(&vm->loop, &w->watch, w->fd, EPOLLIN, on_wake);
	if (r < 0)
		return err_errno(err, r, "epoll");
	if (vm->vm_fd < 0 || i == MAIN_CALL)
		return 0;
	struct kvm_ioeventfd arg = {
		.addr = vd->dev.base + VIRTIO_MMIO_QUEUE_NOTIFY,
		.len = 4,
		.fd = w->fd,
		.datamatch = i,
		.flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
	};
	if (ioctl(vm->vm_fd, KVM_IOEVENTFD, &arg) < 0)
		return err_errno(err, -errno, "KVM_IOEVENTFD for queue %u", i);
	return 0;
}

int virtio_plug(struct virtio_device *vd, struct err *err)
{
	int r = open_wake(vd, MAIN_CALL, err);

	for (uint32_t q = 0; q < vd->nqueues && r == 0; q++)
		r = open_wake(vd, q, err);
	return r;
}

void virtio_close(struct virtio_device *vd)
{
	if (vd->active) {
		vd->active = false;
		virtio_view(vd);
		if (ops_of(vd)->deactivate)
			ops_of(vd)->deactivate(vd);
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(vd->wake); i++) {
		struct virtio_wake *w = &vd->wake[i];

		loop_remove(&vd->dev.vm->loop, &w->watch);
		if (w->fd > 0)
			fd_close(w->fd); /* ends the ioeventfd with the VM's own descriptor */
		w->fd = -1;
	}
}

void virtio_resume(struct virtio_device *vd)
{
	if (vd->common.interrupt_status)
		irq_raise(&vd->dev.irq);
	for (uint32_t q = 0; q < vd->nqueues; q++)
		virtio_notify(vd, q);
}

static int check_queue(struct virtio_device *vd, uint32_t q, struct err *err)
{
	const struct virtio_queue_state *st = &vd->common.queues[q];

	if (q >= vd->nqueues) {
		if (st->ready || st->size || st->desc || st->avail || st->used)
			return err_set(err, -EINVAL, "queue %u is in use, but the device has %u queues", q,
				       vd->nqueues);
		return 0;
	}
	if (st->ready > 1 || st->signalled_valid > 1)
		return err_set(err, -EINVAL, "queue %u: a flag is neither 0 nor 1", q);
	if (st->ready && vq_validate(&vd->vq[q]) < 0)
		return err_set(err, -EINVAL, "queue %u: size %u or an address is impossible", q, st->size);
	return 0;
}

int virtio_check(struct virtio_device *vd, struct err *err)
{
	const struct virtio_common_state *c = &vd->common;
	uint64_t surplus = c->driver_features & ~virtio_offered_features(vd);

	virtio_view(vd);
	if (c->status & ~(uint32_t)(DRIVER_BITS | VIRTIO_S_NEEDS_RESET))
		return err_set(err, -EINVAL, "status 0x%x is impossible", c->status);
	if (c->status & VIRTIO_S_FEATURES_OK && !features_acceptable(vd))
		return err_set(err, -EINVAL, "the guest uses features 0x%llx that this device does not offer here",
			       (unsigned long long)surplus);
	if (c->status & VIRTIO_S_DRIVER_OK && !(c->status & VIRTIO_S_FEATURES_OK))
		return err_set(err, -EINVAL, "status 0x%x has DRIVER_OK without FEATURES_OK", c->status);
	if (c->interrupt_status & ~(uint32_t)(ISR_QUEUE | ISR_CONFIG))
		return err_set(err, -EINVAL, "interrupt status 0x%x is impossible", c->interrupt_status);
	for (uint32_t q = 0; q < VIRTIO_MAX_QUEUES; q++) {
		int r = check_queue(vd, q, err);

		if (r < 0)
			return r;
	}
	return 0;
}

void virtio_loaded(struct virtio_device *vd)
{
	if (vd->common.status & VIRTIO_S_DRIVER_OK)
		activate(vd);
}
