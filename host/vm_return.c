/* SPDX-License-Identifier: Apache-2.0 */
/* A VM that comes back: see vm_return.h. */
#include "host/vm_return.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/control_client.h"

enum { END_WAIT_MS = 2000 };

struct wait {
	uint64_t say_at; /* 0: said */
};

static int nap(struct wait *w, struct vm_handle *vm, int signal_fd, struct err *err)
{
	/* A raw terminal needs the carriage return, and no other minds. */
	if (w->say_at && control_deadline(0) >= w->say_at) {
		w->say_at = 0;
		fprintf(stderr,
			"coffer: the VM '%s' was stopped by a snapshot: waiting for 'coffer restore --name %s'%s\n",
			vm->dir.id, vm->dir.id, isatty(STDERR_FILENO) ? "\r" : "");
	}
	return vm_nap(vm, signal_fd, VM_AGENT_POLL_MS, err);
}

/* Has it ended, and by a snapshot? Its monitor writes the status just before it goes. */
static bool was_saved(struct vm_handle *vm, int signal_fd, struct err *err)
{
	struct vm_status status;

	for (int waited = 0; !vm_has_ended(vm); waited += VM_AGENT_POLL_MS)
		if (waited >= END_WAIT_MS || vm_nap(vm, signal_fd, VM_AGENT_POLL_MS, err) < 0)
			return false;
	return vm->status_fd >= 0 && vmdir_read_status_fd(vm->status_fd, &status, NULL) == 0 &&
	       !strcmp(status.stop, "saved");
}

/* Until a VM of its name runs. */
static int wait_for_successor(struct wait *w, struct vm_handle *vm, int signal_fd, struct err *err)
{
	uint64_t deadline = control_deadline(VM_RETURN_WAIT_MS);
	struct vm_handle fresh;

	for (;;) {
		struct vmdir d;
		int live = vmdir_open_any(vm->dir.id, &d, NULL);

		if (live >= 0)
			vmdir_close(&d);
		if (live == 1 && vm_open(vm->dir.id, &fresh, NULL) == 0) {
			vm_close(vm);
			*vm = fresh;
			return 0;
		}
		if (control_deadline(0) >= deadline)
			return err_set(err, -ENOTCONN,
				       "the VM '%s' was stopped by a snapshot and was not restored within %d s",
				       vm->dir.id, VM_RETURN_WAIT_MS / 1000);
		int r = nap(w, vm, signal_fd, err);

		if (r < 0)
			return r;
	}
}

/* One that is restored paused, or slowly, is waited for. */
static int connect_patiently(struct wait *w, struct vm_handle *vm, int signal_fd, struct agent_conn **ret,
			     struct err *err)
{
	for (;;) {
		int r = vm_connect_agent(vm, signal_fd, ret, err);

		if (r != -ETIMEDOUT && r != -EBUSY)
			return r;
		r = nap(w, vm, signal_fd, err);
		if (r < 0)
			return r;
	}
}

int vm_return_connect(void *arg, int signal_fd, struct agent_conn **ret, int *ret_signal, struct err *err)
{
	struct vm_handle *vm = arg;
	struct wait w = { .say_at = control_deadline(VM_RETURN_SAY_MS) };

	while (was_saved(vm, signal_fd, err)) {
		int r = wait_for_successor(&w, vm, signal_fd, err);

		if (r == 0) {
			r = connect_patiently(&w, vm, signal_fd, ret, err);
			if (r < 0 && r != -ECANCELED && vm_has_ended(vm))
				continue; /* stopped by another snapshot, perhaps */
		}
		*ret_signal = vm->signal;
		return r;
	}
	*ret_signal = vm->signal;
	return vm->signal ? -ECANCELED : -ENOTCONN;
}

int vm_return_connect_again(void *arg, int signal_fd, struct agent_conn **ret, struct err *err)
{
	return vm_connect_agent(arg, signal_fd, ret, err);
}
