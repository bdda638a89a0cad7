/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting coffer-gpu: see launch_gpu.h.
 *
 * It renders on the first of the host's render nodes that this user may open, else in software. $COFFER_RENDER_NODE says which: a path, or
 * "none". It ends when the monitor's end of the socket closes.
 */
#include "host/launch_gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host/helper.h"
#include "host/vm_display.h"
#include "lib/fd.h"

enum { NODE_FIRST = 128, NODE_LAST = 191 }; /* Linux' numbers of render nodes */

/* False: in software. */
static bool find_node(char *path, size_t len)
{
	const char *wanted = getenv("COFFER_RENDER_NODE");

	if (wanted && *wanted) {
		snprintf(path, len, "%s", wanted);
		return strcmp(wanted, "none") != 0;
	}
	for (int i = NODE_FIRST; i <= NODE_LAST; i++) {
		snprintf(path, len, "/dev/dri/renderD%d", i);
		if (access(path, R_OK | W_OK) == 0)
			return true;
	}
	return false;
}

static int start(struct launch *l, struct err *err)
{
	char node[128];
	const char *args[] = { "--render-node", node, NULL };
	_cleanup_close_ int log = launch_open_log(l, err), ours = -1, theirs = -1;
	int s[2];
	pid_t pid;

	if (log < 0)
		return log;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s) < 0)
		return err_errno(err, -errno, "socket for coffer-gpu");
	ours = s[0];
	theirs = s[1];
	pid = helper_spawn(&(struct helper){ .program = "coffer-gpu", .env = "COFFER_GPU", .args = find_node(node, sizeof(node)) ? args : NULL,
					     .in = theirs, .err_fd = log }, err);
	if (pid < 0)
		return pid;
	l->gpu_sock = TAKE_FD(ours);
	return 0;
}

int launch_gpu_add_device(struct launch *l, struct vmargs *a, const char *device, struct err *err)
{
	int r = vmargs_add(a, "--device");

	if (r < 0 || !vm_display_is_3d(device))
		return r < 0 ? r : vmargs_add(a, "%s", device);
	if (l->gpu_sock >= 0)
		return err_set(err, -EINVAL, "--device %s: there is another display", device);
	r = start(l, err);
	if (r == 0)
		r = vmargs_add(a, "%s,worker=%d", device, l->gpu_sock);
	vmargs_add_fd(a, l->gpu_sock);
	return r;
}

void launch_gpu_finish(struct launch *l)
{
	l->gpu_sock = fd_close(l->gpu_sock);
}
