/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sections into a machine that has not run: see machine_save.h.
 *
 * Order: KVM's state (its own order: vmm/x86/vcpu_state.c), then the devices in the machine's order, then each is told
 * that its peers are gone. The generation id is renewed by the caller, after everything else.
 */
#include <errno.h>
#include <string.h>

#include "lib/le.h"
#include "lib/util.h"
#include "snapshot/machine_shape.h"
#include "snapshot/machine_save.h"
#include "vmm/arch.h"

static const struct state_file_part *need(const struct state_file *f, const char *name, struct err *err)
{
	const struct state_file_part *p = state_file_find(f, name);

	if (!p)
		err_set(err, -EINVAL, "state: section '%s' is missing", name);
	return p;
}

static int check_shape(struct machine *m, const struct state_file *f, struct err *err)
{
	const struct state_file_part *p = need(f, SECTION_MACHINE, err);
	struct machine_shape_state here, saved;
	int r;

	if (!p)
		return -EINVAL;
	machine_shape_get(m, &here);
	saved = here;
	r = state_decode(&machine_shape_schema, &saved, p->data, p->len, err);
	if (r < 0)
		return err_prefix(err, "state: "), r;
	if (saved.memory != here.memory)
		return err_set(err, -EINVAL, "state: saved with %llu MiB of memory, this machine has %llu",
			       (unsigned long long)(saved.memory >> 20), (unsigned long long)(here.memory >> 20));
	if (saved.nvcpus != here.nvcpus)
		return err_set(err, -EINVAL, "state: saved with %u vCPUs, this machine has %u", saved.nvcpus, here.nvcpus);
	if (saved.ndevices != here.ndevices)
		return err_set(err, -EINVAL, "state: saved with %u devices, this machine has %u", saved.ndevices, here.ndevices);
	return 0;
}

static int check_device(const struct device *d, const struct state_file *f, struct err *err)
{
	const struct state_file_part *p = need(f, d->name, err);

	if (!p)
		return -EINVAL;
	if (p->len < DEVICE_PLACE_SIZE || le32_load(p->data + 12) != 0)
		return err_set(err, -EINVAL, "state: section '%s' is too short", d->name);
	if (le64_load(p->data) != d->base || le32_load(p->data + 8) != d->irq.gsi)
		return err_set(err, -EINVAL, "state: %s was at 0x%llx with interrupt %u, here it is at 0x%llx with %u", d->name,
			       (unsigned long long)le64_load(p->data), le32_load(p->data + 8), (unsigned long long)d->base,
			       d->irq.gsi);
	return 0;
}

int machine_load_check(struct machine *m, const struct state_file *f, struct err *err)
{
	bool has_kvm = m->vm->vm_fd >= 0;
	int r = check_shape(m, f, err);

	for (size_t i = 0; i < m->ndevices && r == 0; i++)
		r = check_device(m->device[i], f, err);
	if (r == 0 && has_kvm && !need(f, SECTION_KVM, err))
		r = -EINVAL;
	if (r == 0 && f->nparts != m->ndevices + 1 + has_kvm)
		r = err_set(err, -EINVAL, "state: %u sections, this machine has %zu", f->nparts, m->ndevices + 1 + has_kvm);
	return r;
}

static int load_kvm(struct machine *m, const struct state_file *f, struct err *err)
{
	const struct state_file_part *p = state_file_find(f, SECTION_KVM);
	struct vm *vm = m->vm;
	int fds[VM_MAX_VCPUS];

	if (!p)
		return 0;
	machine_vcpu_fds(m, fds);
	return arch_vm_restore(vm->kvm_fd, vm->vm_fd, fds, vm->nvcpus, p->data, p->len, err);
}

int machine_load(struct machine *m, const struct state_file *f, struct err *err)
{
	int r = machine_load_check(m, f, err);

	if (r == 0)
		r = load_kvm(m, f, err);
	for (size_t i = 0; i < m->ndevices && r == 0; i++) {
		struct device *d = m->device[i];
		const struct state_file_part *p = state_file_find(f, d->name);

		r = device_load(d, p->data + DEVICE_PLACE_SIZE, p->len - DEVICE_PLACE_SIZE, err);
		if (r < 0) {
			err_prefix(err, "state: ");
			break;
		}
		if (d->ops->restored) {
			device_lock(d);
			d->ops->restored(d);
			device_unlock(d);
		}
	}
	return r;
}
