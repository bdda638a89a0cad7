/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's command line and the guest kernel's, from the options of run. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "host/vm_disks.h"
#include "lib/err.h"

enum {
	VMARGS_MAX = 200,
	VMARGS_FDS_MAX = 8,
	VMARGS_CMDLINE_MAX = 2047, /* what Linux takes, without the zero at the end */
};

struct launch;
struct launch_options;

struct vmargs {
	const char *argv[VMARGS_MAX + 1]; /* NULL-terminated */
	size_t argc;
	char *owned[VMARGS_MAX];          /* those of them that are to be freed */
	size_t nowned;
	int fd[VMARGS_FDS_MAX];           /* what it inherits */
	size_t nfds;
};

int vmargs_make(struct launch *l, const struct launch_options *o, struct vmargs **ret, struct err *err);
void vmargs_free(struct vmargs *a); /* NULL too */

/* What every VM has besides disks; ended by NULL. */
extern const char *const vmargs_devices[];

/* For other ways to start a monitor: one more word; a descriptor that it inherits (-1: nothing happens); disks. */
int vmargs_add(struct vmargs *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void vmargs_add_fd(struct vmargs *a, int fd);
int vmargs_add_disks(struct vmargs *a, const struct vm_disks *v, bool restore);

/* The guest kernel's command line, to be freed. */
char *vmargs_cmdline(const struct launch *l, const struct launch_options *o);

/* The guest's host name for a VM's id: what it may not contain becomes '-'. */
void vmargs_hostname(const char *id, char *out, size_t len);
