/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's command line: see vmargs.h. */
#include "host/vmargs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/launch.h"
#include "host/launch_gpu.h"
#include "host/paths.h"
#include "lib/fd.h"
#include "lib/util.h"

/* What every guest gets: messages on the serial port, but few (each byte is an exit: without `quiet` the boot takes almost
 * twice as long in the lab); an end when it panics; a generator of random numbers that is ready at once; no search
 * for hardware that is not there. Words that are often seen in such lists and made no difference (tsc=, no_timer_check,
 * cryptomgr.notests, rcu_expedited, audit=0) are left out. */
static const char base_cmdline[] =
	"console=ttyS0 quiet panic=-1 reboot=a random.trust_cpu=on 8250.nr_uarts=1 pci=off i8042.noaux i8042.nokbd i8042.nopnp";

/* With a display messages go there, too. The console's cursor does not blink, which would be a frame each time for nobody. */
static const char display_cmdline[] = "console=tty0 vt.global_cursor_default=0 ";

const char *const vmargs_devices[] = { "serial,log=" VMDIR_CONSOLE, "vsock,path=" VMDIR_VSOCK, "rng", "balloon", NULL };

bool vmargs_device_replaced(const struct opt_strv *devices, const char *device)
{
	size_t n = strcspn(device, ",");

	for (size_t i = 0; i < devices->n; i++)
		if (strcspn(devices->v[i], ",") == n && !memcmp(devices->v[i], device, n))
			return true;
	return false;
}

int vmargs_check_devices(const struct opt_strv *devices, struct err *err)
{
	static const char *const own[] = { "serial", "vsock" };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (vmargs_device_replaced(devices, own[i]))
			return err_set(err, -EINVAL, "--device %s: every VM has its own already, which Coffer uses", own[i]);
	return 0;
}

_Static_assert((int)VMARGS_FDS_MAX <= 1024, "the monitor keeps as many");
_Static_assert(3 * (int)SNAPSHOT_DISKS_MAX + 6 <= (int)OPT_LIST_MAX, "the monitor takes as many --keep-fd, a disk's layers in one");

static void add(struct vmargs *a, const char *word)
{
	if (a->argc == VMARGS_MAX)
		a->full = true;
	else
		a->argv[a->argc++] = word;
}

static int add_owned(struct vmargs *a, char *word)
{
	if (!word)
		return -ENOMEM;
	if (a->nowned == VMARGS_MAX) {
		a->full = true;
		free(word);
		return -E2BIG;
	}
	a->owned[a->nowned++] = word;
	add(a, word);
	return 0;
}

int vmargs_add(struct vmargs *a, const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;

	va_start(ap, fmt);
	if (vasprintf(&s, fmt, ap) < 0)
		s = NULL;
	va_end(ap);
	return add_owned(a, s);
}

void vmargs_add_fd(struct vmargs *a, int fd)
{
	if (fd >= 0 && vmargs_add(a, "--keep-fd=%d", fd) == 0)
		vmargs_inherit_fd(a, fd);
}

void vmargs_inherit_fd(struct vmargs *a, int fd)
{
	if (a->nfds == VMARGS_FDS_MAX)
		a->full = true;
	else
		a->fd[a->nfds++] = fd;
}

int vmargs_check(const struct vmargs *a, struct err *err)
{
	return a->full ? err_set(err, -E2BIG, "too many options, devices or disks for the monitor") : 0;
}

void vmargs_hostname(const char *id, char *out, size_t len)
{
	snprintf(out, len, "%s", id);
	for (char *p = out; *p; p++)
		if (*p == '_')
			*p = '-';
}

char *vmargs_cmdline(const struct launch *l, const struct launch_options *o)
{
	char host[VMDIR_ID_MAX + 1], display[VM_DISPLAY_TEXT + 32] = "", *line = NULL;
	const char *root = l->direct	       ? " coffer.root=/dev/vda rw" :
			   l->image_fd >= 0 ? " coffer.root=/dev/vda coffer.overlay=/dev/vdb" :
					      "";

	vmargs_hostname(l->dir.id, host, sizeof(host));
	if (o->display.width)
		snprintf(display, sizeof(display), " coffer.display=%ux%u", o->display.width, o->display.height);
	if (asprintf(&line, "%s%s coffer.hostname=%s%s%s%s%s", o->display.width ? display_cmdline : "", base_cmdline, host, root,
		     display, o->append ? " " : "", o->append ? o->append : "") < 0)
		return NULL;
	return line;
}

/* All layers in one word: there may be more than the monitor takes words. */
static int add_layers(struct vmargs *a, const struct vm_disk *d)
{
	char *text = NULL;
	size_t len, n = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return -ENOMEM;
	for (size_t k = 0; k < d->d.nlayers; k++)
		for (int table = 0; table < 2; table++) {
			int fd = table ? d->table_fd[k] : d->layer_fd[k];

			if (fd < 0)
				continue;
			fprintf(f, "%s%d", n++ ? ":" : "--keep-fd=", fd);
			vmargs_inherit_fd(a, fd);
		}
	if (fclose(f) != 0 || n == 0) {
		free(text);
		return n ? -ENOMEM : 0;
	}
	return add_owned(a, text);
}

int vmargs_add_disks(struct vmargs *a, const struct vm_disks *v, bool restore)
{
	for (size_t i = 0; i < v->n; i++) {
		const struct vm_disk *d = v->disk[i];

		add(a, "--device");
		int r = add_owned(a, vm_disk_device(d, restore));

		if (r < 0)
			return r;
		if (vm_disk_is_attached_later(d, restore))
			continue;
		r = add_layers(a, d);
		if (r < 0)
			return r;
		vmargs_add_fd(a, d->remote_sock);
		if (d->d.kind == SNAPSHOT_DISK_LAYERS)
			vmargs_add_fd(a, d->base_fd);
		vmargs_add_fd(a, d->top_data_fd);
		vmargs_add_fd(a, d->top_index_fd);
	}
	return 0;
}

static int add_cmdline(struct vmargs *a, const struct launch *l, const struct launch_options *o, struct err *err)
{
	char *line = vmargs_cmdline(l, o);
	size_t n = line ? strlen(line) : 0;

	add(a, "--cmdline");
	int r = add_owned(a, line);

	if (r == 0 && n > VMARGS_CMDLINE_MAX && o->append)
		return err_set(err, -E2BIG, "--append: the kernel's command line would have %zu bytes, it can have %d: leave out %zu of these %zu",
			       n, VMARGS_CMDLINE_MAX, n - VMARGS_CMDLINE_MAX, strlen(o->append));
	return r;
}

static int fill(struct vmargs *a, struct launch *l, const struct launch_options *o, struct err *err)
{
	char vmm[PATH_MAX];
	int r = paths_program("coffer-vmm", "COFFER_VMM", vmm, sizeof(vmm), err);

	if (r < 0)
		return r;
	r = vmargs_add(a, "%s", vmm);
	if (r == 0)
		r = vmargs_add(a, "--dir=%s", l->dir.path);
	if (r == 0)
		r = vmargs_add(a, "--kernel=%s", l->kernel);
	if (r == 0)
		r = vmargs_add(a, "--initrd=%s", l->initrd);
	if (r == 0)
		r = vmargs_add(a, "--cpus=%llu", (unsigned long long)o->cpus);
	if (r == 0)
		r = vmargs_add(a, "--memory=%lluM", (unsigned long long)(o->memory >> 20));
	if (r == 0)
		r = add_cmdline(a, l, o, err);
	if (r == 0)
		r = vmargs_add_disks(a, &l->disks, false);
	for (size_t i = 0; vmargs_devices[i]; i++) {
		if (vmargs_device_replaced(&o->devices, vmargs_devices[i]))
			continue;
		add(a, "--device");
		add(a, vmargs_devices[i]);
	}
	for (size_t i = 0; i < o->devices.n && r == 0; i++)
		r = launch_gpu_add_device(l, a, o->devices.v[i], err);
	if (o->log_level) {
		add(a, "--log-level");
		add(a, o->log_level);
	}
	if (o->no_seccomp)
		add(a, "--no-seccomp");
	if (!o->keep)
		add(a, "--die-with-parent");
	vmargs_add_fd(a, l->dir.lock_fd);
	vmargs_add_fd(a, l->dir.disk_lock_fd);
	vmargs_add_fd(a, l->image_fd);
	return r;
}

int vmargs_make(struct launch *l, const struct launch_options *o, struct vmargs **ret, struct err *err)
{
	struct vmargs *a = calloc(1, sizeof(*a));
	int r = a ? fill(a, l, o, err) : -ENOMEM;

	if (r == 0 || (a && a->full))
		r = vmargs_check(a, err);
	if (r == -ENOMEM)
		err_set(err, r, "out of memory");
	if (r < 0) {
		vmargs_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void vmargs_free(struct vmargs *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->nowned; i++)
		free(a->owned[i]);
	free(a);
}
