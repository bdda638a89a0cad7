/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image build|ls|rm`: the command lines of image_build.h and image_store.h. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/ext4_write.h"
#include "host/image_build.h"
#include "host/image_store.h"
#include "host/signals.h"
#include "lib/util.h"

/* ---- build ---- */

struct build_options {
	bool help, replace, root_owner, cached;
	char *name, *suite, *mirror;
	uint64_t size;
	struct opt_strv include;
};

static const struct opt build_table[] = {
	OPT_STRING(struct build_options, name, "name", 'n', "NAME", "name of the image (for debian: debian)"),
	OPT_SIZE(struct build_options, size, "size", 0, "SIZE", MIB(1), EXT4_SIZE_MAX, 1,
		 "size of the file system; 16G when not given. Free space takes no disk"),
	OPT_BOOL(struct build_options, replace, "replace", 0, "put it in the place of an image of that name"),
	OPT_BOOL(struct build_options, root_owner, "root-owner", 0, "let everything belong to root, whatever the source says"),
	OPT_STRING(struct build_options, suite, "suite", 0, "NAME", "debian: the release; bookworm when not given"),
	OPT_STRING(struct build_options, mirror, "mirror", 0, "URL", "debian: where to take packages from; the host's own mirrors when not given"),
	OPT_LIST(struct build_options, include, "include", 0, "PKGS", "debian: more packages, separated by commas"),
	OPT_BOOL(struct build_options, cached, "cached", 0, "debian: take the packages of the last such build, without a mirror"),
	CMD_OPT_HELP(struct build_options),
	OPT_END,
};

static const struct cmd_help build_help = {
	.usage = "image build debian [--name NAME] [--suite NAME] [--mirror URL] [--include PKGS]\nimage build DIR|TAR|- --name NAME",
	.summary = "make a root disk image",
	.text = "The source is Debian's packages (minbase with python3, git and ca-certificates),\n"
		"a directory, or a tar, also a compressed one ('-': from stdin). The image appears\n"
		"when it is whole. None of it needs root.",
	.options = build_table,
	.examples = "coffer image build debian --include build-essential --name dev\n"
		    "docker export CONTAINER | coffer image build - --name app",
};

static int build(int argc, char **argv)
{
	struct build_options o = { 0 };
	struct err err = ERR_INIT, note = ERR_INIT;
	struct image_store store;
	struct progress progress;
	sigset_t old;
	int status, signals, r;
	int first = cmd_parse(&build_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("image build: %s: wanted is one of: debian, DIR, TAR, -",
				 argc == first ? "the source is missing" : "more than one source");
	r = image_store_init(&store, NULL, &err);
	if (r < 0)
		return cmd_fail(&err);
	signals = signals_open(&old, &err);
	if (signals < 0)
		return cmd_fail(&err);
	progress_init(&progress, cmd_progress_wanted() ? STDERR_FILENO : -1, signals);
	r = image_build(&store,
			&(struct image_build_options){ .source = argv[first], .name = o.name, .size = o.size, .replace = o.replace,
						       .root_owner = o.root_owner, .suite = o.suite, .mirror = o.mirror,
						       .include = o.include, .cached = o.cached },
			&progress, &note, &err);
	signals_close(signals, &old);
	if (note.code != 0)
		fprintf(stderr, "coffer: %s\n", note.text);
	if (r < 0) {
		err_prefix(&err, "image build: ");
		return cmd_fail(&err);
	}
	printf("%s\n", o.name != NULL ? o.name : IMAGE_DEBIAN);
	return cmd_finish_stdout(0);
}

/* ---- ls ---- */

struct ls_options {
	bool help, json;
};

static const struct opt ls_table[] = {
	OPT_BOOL(struct ls_options, json, "json", 0, "print JSON"),
	CMD_OPT_HELP(struct ls_options),
	OPT_END,
};

static const struct cmd_help ls_help = {
	.usage = "image ls [--json]",
	.summary = "list the root disk images",
	.text = "SIZE is that of the file system, DISK what it takes up on this machine.",
	.options = ls_table,
	.examples = "coffer image ls --json | jq -r '.[].name'",
};

static void format_time(int64_t t, const char *format, char *out, size_t len)
{
	time_t when = (time_t)t;
	struct tm tm;

	gmtime_r(&when, &tm);
	strftime(out, len, format, &tm);
}

static int print_json(const struct image_entry *list, size_t n)
{
	json_t *array = json_array();
	char *text;

	for (size_t i = 0; i < n; i++) {
		const struct image_entry *e = &list[i];
		char when[32];
		json_t *o;

		format_time(e->image.created, "%Y-%m-%dT%H:%M:%SZ", when, sizeof(when));
		if (e->problem.code != 0)
			o = json_pack("{s:s, s:s}", "name", e->image.name, "error", e->problem.text);
		else
			o = json_pack("{s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:s}", "name", e->image.name, "path", e->image.path,
				      "format", image_format_name(e->image.format), "size", (json_int_t)e->image.size, "disk",
				      (json_int_t)e->disk, "id", e->image.id, "created", when, "source",
				      e->image.source);
		if (o == NULL || json_array_append_new(array, o) < 0)
			return cmd_failf("image ls: '%s' cannot be shown as JSON", e->image.name);
	}
	text = json_dumps(array, JSON_INDENT(2));
	json_decref(array);
	if (text == NULL)
		return cmd_failf("image ls: no memory");
	puts(text);
	free(text);
	return 0;
}

/* Text of a manifest on a terminal. */
static void print_text(const char *s)
{
	for (; *s != '\0'; s++)
		putchar((unsigned char)*s < ' ' || *s == 0x7f ? '?' : *s);
}

static void print_table(const struct image_entry *list, size_t n)
{
	int width = 4;

	for (size_t i = 0; i < n; i++)
		width = MAX(width, (int)strlen(list[i].image.name));
	if (n > 0)
		printf("%-*s  %-8s  %9s  %9s  %-16s  %s\n", width, "NAME", "FORMAT", "SIZE", "DISK", "CREATED", "SOURCE");
	for (size_t i = 0; i < n; i++) {
		const struct image_entry *e = &list[i];
		char when[32];

		if (e->problem.code != 0) {
			printf("%-*s  unusable: ", width, e->image.name);
			print_text(e->problem.text);
		} else {
			format_time(e->image.created, "%Y-%m-%d %H:%M", when, sizeof(when));
			printf("%-*s  %-8s  %5" PRIu64 " MiB  %5" PRIu64 " MiB  %s  ", width, e->image.name,
			       image_format_name(e->image.format), e->image.size >> 20, e->disk >> 20, when);
			print_text(e->image.source);
		}
		putchar('\n');
	}
}

static int ls(int argc, char **argv)
{
	struct ls_options o = { 0 };
	struct err err = ERR_INIT;
	struct image_entry *list;
	struct image_store store;
	size_t n;
	int status, first = cmd_parse(&ls_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first < argc)
		return cmd_failf("image ls: '%s' is one argument too many", argv[first]);
	if (image_store_init(&store, NULL, &err) < 0 || image_store_list(&store, &list, &n, &err) < 0)
		return cmd_fail(&err);
	status = 0;
	if (o.json)
		status = print_json(list, n);
	else
		print_table(list, n);
	image_store_list_free(list, n);
	return cmd_finish_stdout(status);
}

/* ---- rm ---- */

struct rm_options {
	bool help;
};

static const struct opt rm_table[] = { CMD_OPT_HELP(struct rm_options), OPT_END };

static const struct cmd_help rm_help = {
	.usage = "image rm NAME...",
	.summary = "remove root disk images that no VM uses",
	.options = rm_table,
	.examples = "coffer image rm dev",
};

static int rm(int argc, char **argv)
{
	struct rm_options o = { 0 };
	struct image_store store;
	struct err err = ERR_INIT;
	int status, first = cmd_parse(&rm_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("image rm: the name is missing");
	if (image_store_init(&store, NULL, &err) < 0)
		return cmd_fail(&err);
	status = 0;
	for (int i = first; i < argc; i++) {
		err = ERR_INIT;
		if (image_store_remove(&store, argv[i], &err) < 0)
			status = cmd_fail(&err);
	}
	return status;
}

/* ---- image ---- */

struct image_options {
	bool help;
};

static const struct opt image_table[] = { CMD_OPT_HELP(struct image_options), OPT_END };

static const struct cmd_help image_help = {
	.usage = "image build debian|DIR|TAR|- [OPTIONS]\nimage ls [--json]\nimage rm NAME...",
	.summary = "build, list and remove root disk images",
	.text = "Images are in $XDG_DATA_HOME/coffer/images, else, as root, in\n"
		"/var/lib/coffer/images, else in ~/.local/share/coffer/images.\n"
		"'coffer image build --help' has the options of a build.",
	.options = image_table,
	.examples = "coffer image build debian\ncoffer image ls",
};

int cmd_image(int argc, char **argv)
{
	static const struct {
		const char *name, *full;
		int (*run)(int, char **);
	} commands[] = { { "build", "image build", build }, { "ls", "image ls", ls }, { "rm", "image rm", rm } };
	struct image_options o = { 0 };
	int status, first = cmd_parse(&image_help, &o, argc, argv, true, &status);

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("image: wanted is one of: build, ls, rm (see 'coffer image --help')");
	for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[first], commands[i].name) != 0)
			continue;
		argv[first] = (char *)commands[i].full; /* what errors begin with */
		return commands[i].run(argc - first, argv + first);
	}
	return cmd_failf("image: '%s' is none of: build, ls, rm", argv[first]);
}
