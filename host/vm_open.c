/* SPDX-License-Identifier: Apache-2.0 */
/* A running VM as other commands find it: see vm_open.h. */
#include "host/vm_open.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "host/control_client.h"
#include "host/signals.h"
#include "host/sock.h"
#include "lib/fd.h"

enum { END_WAIT_MS = 2000, STATUS_MS = 3000 };

static int open_status(const struct vmdir *d)
{
	return openat(d->fd, VMDIR_STATUS, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

int vm_open(const char *id, struct vm_handle *ret, struct err *err)
{
	struct vm_handle vm = { .dir = VMDIR_NONE, .status_fd = -1 };
	int r = vmdir_open(id, &vm.dir, err);

	if (r < 0)
		return r;
	struct err why = ERR_INIT;

	r = vmdir_read_config(vm.dir.fd, &vm.config, &why);
	if (r < 0) {
		err_set(err, r, "VM '%s': %.200s (in %.200s): 'coffer kill %s' ends it", id, why.text, vm.dir.path, id);
		vmdir_close(&vm.dir);
		return r;
	}
	vm.status_fd = open_status(&vm.dir);
	vmdir_sweep(NULL, NULL, NULL);
	*ret = vm;
	return 0;
}

void vm_close(struct vm_handle *vm)
{
	fd_close(vm->status_fd);
	vm_config_finish(&vm->config);
	vmdir_close(&vm->dir);
}

bool vm_has_ended(struct vm_handle *vm)
{
	struct vmdir now = VMDIR_NONE;
	bool ended = lockdir_probe(&vm->dir.run, vm->dir.id, &now.fd, NULL) != 1 || !vmdir_same(&now, &vm->dir);

	fd_close(now.fd);
	return ended;
}

int vm_nap(struct vm_handle *vm, int signal_fd, unsigned ms, struct err *err)
{
	struct pollfd p = { .fd = signal_fd, .events = POLLIN };

	poll(&p, 1, (int)ms);
	for (int signal; p.revents && (signal = signals_next(signal_fd)) > 0;)
		if (signals_is_end(signal)) {
			vm->signal = signal;
			return err_set(err, -ECANCELED, "interrupted");
		}
	return 0;
}

int vm_wait_started(struct vm_handle *vm, int signal_fd, uint64_t deadline, struct err *err)
{
	while (faccessat(vm->dir.fd, VMDIR_READY, F_OK, 0) < 0) {
		if (vm_has_ended(vm)) {
			err_set(err, -ENOENT, "the VM '%s' ended while it was starting", vm->dir.id);
			vm_explain_end(vm, NULL, err);
			return -ENOENT;
		}
		if (deadline && control_deadline(0) >= deadline)
			return err_set(err, -ETIMEDOUT, "the VM '%s' is still starting: see 'coffer logs %s'", vm->dir.id, vm->dir.id);
		int r = vm_nap(vm, signal_fd, VM_AGENT_POLL_MS, err);

		if (r < 0)
			return r;
	}
	return 0;
}

int vm_connect_agent(struct vm_handle *vm, int signal_fd, struct agent_conn **ret, struct err *err)
{
	return vm_connect_agent_until(vm, signal_fd, control_deadline(VM_AGENT_WAIT_MS), ret, err);
}

int vm_connect_agent_until(struct vm_handle *vm, int signal_fd, uint64_t deadline, struct agent_conn **ret, struct err *err)
{
	struct control_reply status;
	int r = vm_wait_started(vm, signal_fd, deadline, err);

	if (r < 0)
		return r;
	if (vm->status_fd < 0)
		vm->status_fd = open_status(&vm->dir);
	r = control_call(vm->dir.fd, CONTROL_STATUS, 0, control_deadline(STATUS_MS), &status, err);
	if (r == 0 && le64_get(status.value[CONTROL_V_STATE]) == VM_PAUSED)
		return err_set(err, -EBUSY, "the VM '%s' is paused: 'coffer resume %s'", vm->dir.id, vm->dir.id);
	if (r == 0)
		r = agent_connect(vm->dir.fd, AGENT_PORT, signal_fd, deadline, ret, err);
	if (r < 0) {
		err_prefix(err, "VM '%s': ", vm->dir.id);
		vm_explain_end(vm, NULL, err);
	}
	return r;
}

bool vm_explain_end(struct vm_handle *vm, enum vm_end_kind *ret_kind, struct err *err)
{
	struct err why = ERR_INIT;

	/* The monitor writes its status just before it goes. */
	for (int waited = 0; !vm_has_ended(vm); waited += VM_AGENT_POLL_MS) {
		if (waited >= END_WAIT_MS)
			return false;
		poll(NULL, 0, VM_AGENT_POLL_MS);
	}
	enum vm_end_kind kind = vm_end_explain(vm->dir.fd, vm->status_fd, false, -1, &why);

	if (ret_kind)
		*ret_kind = kind;
	err_set(err, -ENOENT, "the VM '%s' has ended: %.400s", vm->dir.id, why.text);
	return true;
}
