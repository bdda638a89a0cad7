/* SPDX-License-Identifier: Apache-2.0 */
/* A paused machine as sections: see machine_save.h. */
#include "snapshot/machine_save.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/fd.h"
#include "lib/le.h"
#include "lib/util.h"
#include "snapshot/machine_shape.h"
#include "vmm/arch.h"

#define STATE_SELF struct machine_shape_state
STATE_SCHEMA(machine_shape, 1, MACHINE_SHAPE_STATE);
#undef STATE_SELF

void machine_shape_get(const struct machine *m, struct machine_shape_state *ret)
{
	*ret = (struct machine_shape_state){
		.memory = m->vm->mem.size,
		.nvcpus = m->vm->nvcpus,
		.ndevices = (uint32_t)m->ndevices,
	};
}

void machine_vcpu_fds(const struct machine *m, int *ret)
{
	for (uint32_t i = 0; i < m->vm->nvcpus; i++)
		ret[i] = m->vm->vcpu[i].fd;
}

static int save_shape(struct machine *m, struct state_file_writer *w, struct err *err)
{
	struct machine_shape_state shape;
	size_t n = state_encoded_size(&machine_shape_schema);
	uint8_t *out;
	int r = state_file_section(w, SECTION_MACHINE, n, &out, err);

	if (r < 0)
		return r;
	machine_shape_get(m, &shape);
	state_encode(&machine_shape_schema, &shape, out, n);
	state_file_end_section(w, n);
	return 0;
}

static int save_kvm(struct machine *m, struct state_file_writer *w, size_t bound, struct err *err)
{
	struct vm *vm = m->vm;
	int fds[VM_MAX_VCPUS];
	uint8_t *out;
	long n;
	int r;

	if (vm->vm_fd < 0)
		return 0;
	r = state_file_section(w, SECTION_KVM, bound, &out, err);
	if (r < 0)
		return r;
	machine_vcpu_fds(m, fds);
	n = arch_vm_save(vm->kvm_fd, vm->vm_fd, fds, vm->nvcpus, out, bound, err);
	if (n < 0)
		return (int)n;
	state_file_end_section(w, (size_t)n);
	return 0;
}

static int save_device(struct device *d, struct state_file_writer *w, struct err *err)
{
	size_t n = device_saved_size(d);
	uint8_t *out;
	long len;
	int r = state_file_section(w, d->name, DEVICE_PLACE_SIZE + n, &out, err);

	if (r < 0)
		return r;
	le64_store(out, d->base);
	le32_store(out + 8, d->irq.gsi);
	le32_store(out + 12, 0);
	device_lock(d);
	len = device_save(d, out + DEVICE_PLACE_SIZE, n);
	device_unlock(d);
	if (len < 0)
		return err_errno(err, (int)len, "save %s", d->name);
	state_file_end_section(w, DEVICE_PLACE_SIZE + (size_t)len);
	return 0;
}

size_t machine_state_max(const struct machine *m)
{
	size_t n = STATE_FILE_SIZE_MAX;

	for (size_t i = 0; i < m->ndevices; i++)
		if (m->device[i]->ops->extra)
			n += device_saved_max(m->device[i]);
	return n;
}

void machine_left_out(struct machine *m, char *text, size_t size)
{
	int n = 0;

	text[0] = '\0';
	for (size_t i = 0; i < m->ndevices && n == 0; i++) {
		struct device *d = m->device[i];

		if (!d->ops->left_out)
			continue;
		device_lock(d);
		n = d->ops->left_out(d, text, size);
		device_unlock(d);
	}
}

int machine_save(struct machine *m, struct state_file_writer *ret, struct err *err)
{
	struct vm *vm = m->vm;
	size_t kvm = vm->vm_fd < 0 ? 0 : arch_vm_state_bound(vm->kvm_fd, vm->vm_fd, vm->nvcpus);
	size_t size = state_encoded_size(&machine_shape_schema) + kvm;
	int r;

	for (size_t i = 0; i < m->ndevices; i++)
		size += DEVICE_PLACE_SIZE + device_saved_size(m->device[i]);
	r = state_file_begin(ret, size, (uint32_t)m->ndevices + 2, err);
	if (r == 0)
		r = save_shape(m, ret, err);
	if (r == 0)
		r = save_kvm(m, ret, kvm, err);
	for (size_t i = 0; i < m->ndevices && r == 0; i++)
		r = save_device(m->device[i], ret, err);
	if (r < 0)
		state_file_writer_free(ret);
	return r;
}
