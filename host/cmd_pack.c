/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer pack: an image out of a VM's root disk.
 *
 * A snapshot's disk alone is not what the guest had: the rest was in memory, not written yet, and the file system was in
 * use. So a snapshot is restored into a VM for the moment that it takes, and that one is packed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/guardian.h"
#include "host/pack.h"
#include "host/progress.h"
#include "host/restore_many.h"
#include "host/signals.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

struct pack_options {
	char *to, *message, *compress;
	bool replace, json, help;
};

static const struct opt options[] = {
	OPT_STRING(struct pack_options, to, "to", 0, "NAME", "name of the new image"),
	OPT_STRING(struct pack_options, compress, "compress", 0, "zstd[:LEVEL]|lz4[:LEVEL]|none",
		   "the new layer; a VM decompresses what it reads (" PACK_COMPRESS_DEFAULT ")"),
	OPT_STRING(struct pack_options, message, "message", 0, "TEXT", "what 'coffer image show' says of the layer"),
	OPT_BOOL(struct pack_options, replace, "replace", 0, "take the place of an image of that name, unless a VM uses it"),
	OPT_BOOL(struct pack_options, json, "json", 0, "print a JSON object"),
	CMD_OPT_HELP(struct pack_options),
	OPT_END,
};

static const struct cmd_help help = {
	.usage = "pack ID|SNAPSHOT --to NAME [OPTIONS]",
	.summary = "make an image of what a VM has on its root disk",
	.text = "What the VM has written since it was started becomes one layer on top of its image's; the\n"
		"result is an image like any other, with that one's environment, user and command. Nothing\n"
		"is copied of the layers below. The VM runs on: its file system stands still for the moment of\n"
		"the cut. Running programs and what is in memory (/run) do not become part of an image, and\n"
		"the VM's machine-id neither.",
	.options = options,
	.examples = "coffer run --keep --name work -- true\n"
		    "coffer cp hello.deb work:/root/ && coffer exec work -- dpkg -i /root/hello.deb\n"
		    "coffer pack work --to with-hello --message hello\n"
		    "coffer run --image with-hello -- hello\n"
		    "coffer pack ready --to from-snapshot",
};

struct command {
	struct pack p;
	struct guardian guardian;
	struct launch launch; /* of a snapshot's VM */
	struct progress progress;
	int signal;           /* that ended it */
};

static int print(const struct pack_options *o, const struct pack *p)
{
	if (!o->json) {
		printf("%s: %s changed in a layer of %s, %zu layers, frozen for %.1f ms\n", o->to, TEXT_SIZE(p->data), TEXT_SIZE(p->bytes),
		       p->layers, (double)p->frozen_ns / 1e6);
		return cmd_finish_stdout(0);
	}
	return cmd_print_json(json_pack("{s:s s:s s:I s:I s:I s:I s:f s:f}", "name", o->to, "id", p->id, "layers",
					(json_int_t)p->layers, "size", (json_int_t)p->size, "data_bytes", (json_int_t)p->data,
					"layer_bytes", (json_int_t)p->bytes, "frozen_ms", (double)p->frozen_ns / 1e6, "pause_ms",
					(double)p->pause_ns / 1e6),
			      0);
}

static int pack_id(struct command *c, const char *id, struct err *err)
{
	struct vm_handle vm;
	int r = vm_open(id, &vm, err);

	if (r < 0)
		return r;
	r = pack_vm(&vm, &c->p, err);
	if (r == -ECONNRESET || r == -ECONNREFUSED || r == -ENOENT) {
		struct err why = ERR_INIT;

		if (vm_explain_end(&vm, NULL, &why))
			*err = why;
	}
	c->signal = c->signal ? c->signal : vm.signal;
	vm_close(&vm);
	return r;
}

static int pack_snapshot(struct command *c, struct restore_source *src, struct err *err)
{
	const struct restore_options o = { .command = "coffer pack" };
	int r = restore_source_check(src, err);

	progress_stage(&c->progress, "restoring");
	if (r == 0)
		r = restore_one(&c->launch, src, &o, &c->guardian, c->p.signal_fd, err);
	c->signal = c->launch.signal;
	c->p.from = src->snap.name;
	r = r < 0 ? r : pack_id(c, c->launch.dir.id, err);
	c->p.from = NULL; /* what it names ends before the command */
	return r;
}

/* A VM comes before a snapshot of the same name. */
static int pack_any(struct command *c, const char *name, struct err *err)
{
	struct restore_source src;
	struct err why = ERR_INIT;
	int r = strchr(name, '/') ? -ENOENT : vmdir_check_id(name, &why);

	if (r == 0) {
		struct vm_handle vm;

		r = vm_open(name, &vm, &why);
		if (r == 0) {
			vm_close(&vm);
			return pack_id(c, name, err);
		}
	}
	if (restore_source_open(name, &src, strchr(name, '/') ? err : NULL) < 0) {
		if (!strchr(name, '/'))
			err_set(err, r, "%.400s; and there is no snapshot of that name", why.text);
		return -ENOENT;
	}
	r = pack_snapshot(c, &src, err);
	restore_source_close(&src);
	return r;
}

int cmd_pack(int argc, char **argv)
{
	struct pack_options o = { 0 };
	struct command c = { .guardian = GUARDIAN_NONE };
	struct err err = ERR_INIT;
	sigset_t old;
	int status, first = cmd_parse(&help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("pack: %s: 'coffer ps' lists the VMs, 'coffer snapshot ls' the snapshots",
				 first == argc ? "which VM or snapshot?" : "one at a time");
	if (!o.to)
		return cmd_failf("pack: --to NAME is needed: what is the image to be called?");
	if (o.message && strlen(o.message) > IMAGE_MESSAGE_MAX)
		return cmd_failf("pack: --message has %zu bytes, it can have %d", strlen(o.message), IMAGE_MESSAGE_MAX);
	if (image_name_check(o.to, &err) < 0 || pack_parse_compress(o.compress, &c.p, &err) < 0)
		return cmd_fail(&err);
	launch_init(&c.launch);
	if (guardian_start(&c.guardian, -1, &err) < 0)
		return cmd_fail(&err);
	int signal_fd = signals_open(&old, &err);

	if (signal_fd < 0) {
		guardian_finish(&c.guardian);
		return cmd_fail(&err);
	}
	progress_init(&c.progress, cmd_progress_wanted() ? STDERR_FILENO : -1, signal_fd);
	c.p.to = o.to;
	c.p.message = o.message;
	c.p.replace = o.replace;
	c.p.signal_fd = signal_fd;
	c.p.progress = &c.progress;
	int r = pack_any(&c, argv[first], &err);

	progress_end(&c.progress);
	if (r < 0)
		err_prefix(&err, "pack of '%s': ", argv[first]);
	status = r < 0 ? cmd_fail(&err) : print(&o, &c.p);
	if (r < 0 && c.signal)
		status = CMD_EXIT_SIGNAL + c.signal;
	launch_end(&c.launch, false, NULL);
	guardian_finish(&c.guardian);
	signals_close(signal_fd, &old);
	return status;
}
