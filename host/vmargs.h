/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's command line and the guest kernel's, from the options of run. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "host/vm_disks.h"
#include "lib/err.h"
#include "lib/opt.h"

enum {
	VMARGS_MAX = 256, /* OPT_LIST_MAX devices of the user's are two words each */
	/* Of the root the layers, each with a table if it is remote, and the socket; of each disk the base or layer below it and the pair
	 * above; two locks, the image, where it says ready. */
	VMARGS_FDS_MAX = 2 * SNAPSHOT_LAYERS_MAX + 1 + 3 * SNAPSHOT_DISKS_MAX + 4,
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
	bool full;                        /* something did not fit and is missing */
};

int vmargs_make(struct launch *l, const struct launch_options *o, struct vmargs **ret, struct err *err);
void vmargs_free(struct vmargs *a); /* NULL too */

/* What every VM has besides disks; ended by NULL. */
extern const char *const vmargs_devices[];
/* Whether the user's devices have one of that kind, which then takes its place. */
bool vmargs_device_replaced(const struct opt_strv *devices, const char *device);
/* Those that Coffer itself talks to cannot be replaced: -EINVAL. */
int vmargs_check_devices(const struct opt_strv *devices, struct err *err);

/* For other ways to start a monitor: one more word; a descriptor that it inherits (-1: nothing happens), and one that it
 * is told of in another way; disks. What does not fit is left out, and vmargs_check says so at the end. */
int vmargs_add(struct vmargs *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void vmargs_add_fd(struct vmargs *a, int fd);
void vmargs_inherit_fd(struct vmargs *a, int fd);
int vmargs_check(const struct vmargs *a, struct err *err);
int vmargs_add_disks(struct vmargs *a, const struct vm_disks *v, bool restore);

/* The guest kernel's command line, to be freed. */
char *vmargs_cmdline(const struct launch *l, const struct launch_options *o);

/* The guest's host name for a VM's id: what it may not contain becomes '-'. */
void vmargs_hostname(const char *id, char *out, size_t len);
