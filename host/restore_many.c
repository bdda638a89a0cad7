/* SPDX-License-Identifier: Apache-2.0 */
/* All steps of a restore, for one VM or many: see restore_many.h. */
#include "host/restore_many.h"

#include <errno.h>
#include <stdio.h>

#include "host/doctor.h"
#include "host/pool.h"
#include "lib/fd.h"

static int check_machine(struct err *err)
{
	int r = doctor_require_kvm(err);

	if (r == 0)
		vmdir_sweep(NULL, NULL, NULL); /* what cannot be removed is for `coffer ps` to tell */
	return r;
}

/* *ret: it is ready; else it has been started and is to be waited for. */
static int get_shell(struct launch *l, const struct restore_source *src, const struct restore_options *o,
		     const struct guardian *g, bool *ret, struct err *err)
{
	*ret = pool_take(l, src, o) == 1;
	if (*ret) {
		guardian_watch_monitor(g, l->pid, l->pidfd);
		return 0;
	}
	return restore_shell_start(l, src, o, g, err);
}

int restore_one(struct launch *l, const struct restore_source *src, const struct restore_options *o,
		const struct guardian *g, int signal_fd, struct err *err)
{
	bool ready = false;
	int r = check_machine(err);

	if (r == 0)
		r = get_shell(l, src, o, g, &ready, err);
	if (r == 0 && !ready)
		r = restore_shell_wait(l, src, signal_fd, err);
	if (r == 0)
		r = restore_run(l, src, o, err);
	return r < 0 || o->paused ? r : restore_settle(l, signal_fd, err);
}

int restore_many(struct launch *l, size_t n, const struct restore_source *src, const struct restore_options *o,
		 const char *prefix,
		 const struct guardian *g, int signal_fd, struct err *err)
{
	_cleanup_free_ bool *ready = calloc(n, sizeof(*ready));
	struct restore_options one = *o;
	char name[VMDIR_ID_MAX + 32];
	int r = ready ? check_machine(err) : -ENOMEM;

	if (!ready)
		err_set(err, r, "out of memory");
	/* Each step for all: monitors start, and guests settle, side by side. */
	for (size_t i = 0; i < n && r == 0; i++)
		r = get_shell(&l[i], src, o, g, &ready[i], err);
	for (size_t i = 0; i < n && r == 0; i++) {
		if (!ready[i])
			r = restore_shell_wait(&l[i], src, signal_fd, err);
		snprintf(name, sizeof(name), "%.*s%zu", VMDIR_ID_MAX, prefix ? prefix : "", i + 1);
		one.id = prefix ? name : NULL;
		if (r == 0)
			r = restore_run(&l[i], src, &one, err);
	}
	for (size_t i = 0; i < n && r == 0 && !o->paused; i++)
		r = restore_settle(&l[i], signal_fd, err);
	for (size_t i = 0; i < n && r < 0; i++)
		launch_end(&l[i], false, NULL);
	return r;
}
