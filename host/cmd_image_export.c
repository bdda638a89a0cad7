/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image export`: the command line of image_export.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd_image.h"
#include "host/image_export.h"
#include "lib/fd.h"
#include "lib/text.h"

struct export_options {
	bool help;
	char *output, *format;
};

static const struct opt export_table[] = {
	OPT_STRING(struct export_options, output, "output", 'o', "PATH", "where to; '-' is stdout"),
	OPT_STRING(struct export_options, format, "format", 0, "FORMAT", "raw (when not given): the disk as it is, a sparse file; oci: a directory, an OCI image layout"),
	CMD_OPT_HELP(struct export_options),
	OPT_END,
};

static const struct cmd_help export_help = {
	.usage = "image export NAME -o PATH|- [--format FORMAT]",
	.summary = "write an image as a file of another kind",
	.text = "PATH must not exist, and appears when it is whole.",
	.options = export_table,
	.examples = "coffer image export debian -o disk.raw\ncoffer image export app -o - | zstd >app.raw.zst\n"
		    "coffer image export app --format oci -o app\n"
		    "skopeo copy --preserve-digests oci:app docker://registry.example/app",
};

static const struct image_export_format *find_format(const char *name)
{
	const struct image_export_format *f = image_export_formats;

	while (f->name != NULL && strcmp(f->name, name) != 0)
		f++;
	return f->name != NULL ? f : NULL;
}

static int fail_format(const char *name)
{
	char list[256] = "";
	size_t n = 0;

	for (const struct image_export_format *f = image_export_formats; f->name != NULL && n < sizeof(list); f++)
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", n > 0 ? ", " : "", f->name);
	return cmd_failf("image export: --format '%s' is none of: %s", TEXT_CUT(name), list);
}

static int export(const struct image_export_format *f, const char *name, const char *path)
{
	struct cmd_image_watch watch;
	struct err err = ERR_INIT;
	struct image image;
	_cleanup_close_ int lock = cmd_image_hold(name, &image, &err);
	int r = lock < 0 ? lock : cmd_image_watch_begin(&watch, &err);

	if (r < 0)
		return cmd_fail(&err);
	r = f->run(&image, path, STDOUT_FILENO, &watch.progress, &err);
	cmd_image_watch_end(&watch);
	image_finish(&image);
	if (r < 0) {
		err_prefix(&err, "image export: ");
		return cmd_fail(&err);
	}
	return 0;
}

int cmd_image_export(int argc, char **argv)
{
	struct export_options o = { 0 };
	const struct image_export_format *f;
	int status, first = cmd_parse(&export_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("image export: %s", argc == first ? "the name is missing" : "one image at a time");
	if (o.output == NULL)
		return cmd_failf("image export: -o is missing: where shall it go?");
	f = find_format(o.format != NULL ? o.format : image_export_formats[0].name);
	if (f == NULL)
		return fail_format(o.format);
	if (strcmp(o.output, "-") == 0 && !f->to_pipe)
		return cmd_failf("image export: '%s' cannot go to stdout: name a path with -o", f->name);
	if (strcmp(o.output, "-") == 0 && isatty(STDOUT_FILENO))
		return cmd_failf("image export: stdout is a terminal: send it to a file or a program");
	return export(f, argv[first], o.output);
}
