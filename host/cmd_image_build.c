/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image build`: the command line of image_build.h. */
#include <stdio.h>

#include "host/cmd_image.h"
#include "host/ext4_write.h"
#include "host/image_build.h"
#include "lib/util.h"

struct build_options {
	bool help, replace, root_owner, cached;
	char *name, *suite, *mirror;
	uint64_t size;
	struct opt_strv include, with;
};

static const struct opt build_table[] = {
	OPT_STRING(struct build_options, name, "name", 'n', "NAME", "name of the image (for debian and desktop: the same word)"),
	OPT_SIZE(struct build_options, size, "size", 0, "SIZE", MIB(1), EXT4_SIZE_MAX, 1,
		 "size of the file system; 16G when not given. Free space takes no disk"),
	OPT_BOOL(struct build_options, replace, "replace", 0, "put it in the place of an image of that name"),
	OPT_BOOL(struct build_options, root_owner, "root-owner", 0, "let everything belong to root, whatever the source says"),
	OPT_STRING(struct build_options, suite, "suite", 0, "NAME", "debian, desktop: the release; bookworm when not given"),
	OPT_STRING(struct build_options, mirror, "mirror", 0, "URL", "debian, desktop: where to take packages from; the host's own mirrors when not given"),
	OPT_LIST(struct build_options, include, "include", 0, "PKGS", "debian, desktop: more packages, separated by commas"),
	OPT_LIST(struct build_options, with, "with", 0, "PROGRAM", "desktop: a program that not every desktop has: firefox-esr"),
	OPT_BOOL(struct build_options, cached, "cached", 0, "debian, desktop: take the packages of the last such build, without a mirror"),
	CMD_OPT_HELP(struct build_options),
	OPT_END,
};

static const struct cmd_help build_help = {
	.usage = "image build debian|desktop [--name NAME] [--suite NAME] [--mirror URL] [--include PKGS]\nimage build DIR|TAR|- --name NAME",
	.summary = "make a root disk image",
	.text = "The source is Debian's packages (minbase with python3, git and ca-certificates; for desktop with\n"
		"an X session for 'coffer run --tier vm': a terminal, an editor, a file manager), a directory,\n"
		"or a tar, also a compressed one ('-': from stdin). The image appears when it is whole. None of\n"
		"it needs root.",
	.options = build_table,
	.examples = "coffer image build desktop --with firefox-esr\n"
		    "coffer image build debian --include build-essential --name dev\n"
		    "docker export CONTAINER | coffer image build - --name app",
};

int cmd_image_build(int argc, char **argv)
{
	struct build_options o = { 0 };
	struct err err = ERR_INIT, note = ERR_INIT;
	struct image_store store;
	struct cmd_image_watch watch;
	int status, r;
	int first = cmd_parse(&build_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("image build: %s: wanted is one of: debian, desktop, DIR, TAR, -",
				 argc == first ? "the source is missing" : "more than one source");
	r = image_store_init(&store, NULL, &err);
	if (r == 0)
		r = cmd_image_watch_begin(&watch, &err);
	if (r < 0)
		return cmd_fail(&err);
	r = image_build(&store,
			&(struct image_build_options){ .source = argv[first], .name = o.name, .size = o.size, .replace = o.replace,
						       .root_owner = o.root_owner, .suite = o.suite, .mirror = o.mirror,
						       .include = o.include, .with = o.with, .cached = o.cached },
			&watch.progress, &note, &err);
	cmd_image_watch_end(&watch);
	cmd_note(&note);
	if (r < 0) {
		err_prefix(&err, "image build: ");
		return cmd_fail(&err);
	}
	printf("%s\n", o.name != NULL ? o.name : argv[first]);
	return cmd_finish_stdout(0);
}
