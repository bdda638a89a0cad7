/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-gpu: renders for one VM, apart from its monitor. Not for users: `coffer` starts it.
 *
 *   coffer-gpu [--render-node PATH]     the monitor is at the other end of stdin
 *
 * It is a program of its own because virglrenderer, Mesa and a compiler read what a hostile guest sends. A mistake in them can do no more
 * than draw wrong pixels on this VM's screen, or end this process, after which the guest has no 3D and the display goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/gpu/jail.h"
#include "host/gpu/serve.h"
#include "lib/log.h"
#include "lib/opt.h"

struct gpu_options {
	char *render_node;
	bool help;
};

static const struct opt gpu_options[] = {
	OPT_STRING(struct gpu_options, render_node, "render-node", 0, "PATH", "render on this device (/dev/dri/renderD128) instead of in software"),
	OPT_BOOL(struct gpu_options, help, "help", 'h', "show this"),
	OPT_END,
};

static void print_help(FILE *out)
{
	fprintf(out, "coffer-gpu [OPTION...] <SOCKET\n\nRenders for one VM; coffer starts it for 'run --gpu virgl'.\n\n");
	opt_print_help(gpu_options, out);
}

/* Nothing of the user's reaches Mesa, and it writes no cache. */
static int clear_environment(void)
{
	return clearenv() != 0 || setenv("MESA_SHADER_CACHE_DISABLE", "true", 1) != 0 || setenv("HOME", "/", 1) != 0 ? -1 : 0;
}

static int serve(const struct gpu_options *o, const struct log *log, struct err *err)
{
	struct serve_gpu *s = calloc(1, sizeof(*s)); /* until the process ends: the renderer keeps pointers into it */
	struct err why = ERR_INIT;
	int node = -1, r;

	if (!s)
		return err_errno(err, -ENOMEM, "start");
	s->sock = STDIN_FILENO;
	r = serve_gpu_start(s, err);
	if (r < 0)
		return r;
	r = gpu_jail_enter(o->render_node, &why);
	if (r == 0)
		log_line(log, LOG_WARN, "%s", why.text);
	if (r >= 0 && o->render_node) {
		node = open(o->render_node, O_RDWR | O_CLOEXEC);
		r = node < 0 ? err_errno(&why, -errno, "--render-node '%s'", o->render_node) : 0;
	}
	if (r >= 0)
		r = renderer_open(&s->renderer, node, &s->ready, &why);
	if (r >= 0)
		r = gpu_jail_filter(s->renderer.limit, &why);
	r = serve_gpu_run(s, r < 0 ? &why : NULL, err);
	return r;
}

int main(int argc, char **argv)
{
	const struct log log = { .fd = STDERR_FILENO, .level = LOG_INFO, .prefix = "coffer-gpu" };
	struct gpu_options o = { 0 };
	struct err err = ERR_INIT;
	int r = opt_parse_args(gpu_options, &o, argc, argv, false, &err);

	if (r == argc && o.help) {
		print_help(stdout);
		return 0;
	}
	if (r >= 0 && r < argc)
		r = err_set(&err, -EINVAL, "unexpected operand '%s'", argv[r]);
	if (r >= 0 && clear_environment() < 0)
		r = err_set(&err, -ENOMEM, "environment");
	if (r >= 0)
		r = serve(&o, &log, &err);
	if (r < 0)
		log_line(&log, LOG_ERROR, "%s", err.text);
	_exit(r < 0 ? 125 : 0); /* without the renderer's end, which would have to be allowed files again */
}
