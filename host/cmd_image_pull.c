/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image pull` and `coffer image fetch`: the command lines of pull.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/cmd_image.h"
#include "host/pull.h"
#include "host/remote_layers.h"
#include "lib/fd.h"
#include "lib/text.h"
#include "lib/util.h"

struct pull_cmd_options {
	bool help, replace, insecure;
	char *name, *creds_file, *ca_file, *platform, *fetch;
	uint64_t cache_size;
};

static const struct opt pull_table[] = {
	OPT_STRING(struct pull_cmd_options, name, "name", 'n', "NAME", "name of the image (the last part of the address)"),
	OPT_BOOL(struct pull_cmd_options, replace, "replace", 0, "put it in the place of an image of that name"),
	OPT_STRING(struct pull_cmd_options, fetch, "fetch", 0, "lazy|all",
		   "all: download the layers now, and make them the image's own"),
	OPT_SIZE(struct pull_cmd_options, cache_size, "cache-size", 0, "SIZE", MIB(1), UINT64_MAX >> 1, 1,
		 "what the cache of all remote layers may take up; $COFFER_CACHE_SIZE or 20G when not given"),
	OPT_STRING(struct pull_cmd_options, creds_file, "creds-file", 0, "FILE",
		   "credentials: an auth.json, or one line USER:PASSWORD"),
	OPT_STRING(struct pull_cmd_options, ca_file, "ca-file", 0, "FILE", "trust these authorities (PEM), not the system's"),
	OPT_BOOL(struct pull_cmd_options, insecure, "insecure", 0, "speak to the registry by http, without encryption"),
	OPT_STRING(struct pull_cmd_options, platform, "platform", 0, "OS/ARCH", "of several, the image for this one (linux/amd64)"),
	CMD_OPT_HELP(struct pull_cmd_options),
	OPT_END,
};

static const struct cmd_help pull_help = {
	.usage = "image pull docker://HOST[:PORT]/REPOSITORY[:TAG|@DIGEST] [OPTIONS]\nimage pull http(s)://HOST/DIRECTORY/[#NAME] [OPTIONS]",
	.summary = "take an image from a registry or a web server",
	.text = "Layers of overlaybd's kind are not downloaded: VMs read what they need, into a\n"
		"cache that all share, and the rest follows. With --fetch all they are, and the\n"
		"image needs no registry any more; 'coffer image fetch' does that later. Layers\n"
		"that are tars are downloaded and imported. A directory holds an OCI layout.\n"
		"Without --creds-file credentials come from $XDG_RUNTIME_DIR/containers/auth.json,\n"
		"~/.config/containers/auth.json or ~/.docker/config.json. VMs use the files that\n"
		"--creds-file and --ca-file name for as long as they read from there.",
	.options = pull_table,
	.examples = "coffer image pull docker://registry.example.org/team/app:1.2\n"
		    "coffer image pull https://files.example.org/app/ --name app",
};

/* VMs in other directories read it later. */
static int absolute(const char *path, char **ret, struct err *err)
{
	*ret = path != NULL ? realpath(path, NULL) : NULL;
	return path != NULL && *ret == NULL ? err_errno(err, -errno, "open '%s'", path) : 0;
}

int cmd_image_pull(int argc, char **argv)
{
	struct pull_cmd_options c = { 0 };
	struct pull_options o = { 0 };
	struct cmd_image_watch watch;
	struct image_store store;
	struct err err = ERR_INIT, note = ERR_INIT;
	char name[PULL_NAME_SIZE];
	int status, first = cmd_parse(&pull_help, &c, argc, argv, false, &status), r;

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("image pull: %s", argc == first ? "the address is missing" : "one image at a time");
	if (c.fetch != NULL && strcmp(c.fetch, "lazy") != 0 && strcmp(c.fetch, "all") != 0)
		return cmd_failf("image pull: --fetch: '%s' is none of: lazy, all", TEXT_CUT(c.fetch));
	o = (struct pull_options){ .url = argv[first], .name = c.name, .replace = c.replace, .cache_size = c.cache_size,
				   .all = c.fetch != NULL && strcmp(c.fetch, "all") == 0, .platform = c.platform, .access = { .insecure = c.insecure } };
	r = absolute(c.ca_file, &o.access.ca_file, &err);
	if (r == 0)
		r = absolute(c.creds_file, &o.access.creds_file, &err);
	if (r == 0)
		r = remote_layers_cache_size(c.cache_size, &o.cache_size, &err);
	if (r == 0)
		r = image_store_init(&store, NULL, &err);
	if (r == 0)
		r = cmd_image_watch_begin(&watch, &err);
	if (r == 0) {
		r = pull_image(&store, &o, name, &watch.progress, &note, &err);
		cmd_image_watch_end(&watch);
	}
	pull_access_finish(&o.access);
	if (r < 0) {
		err_prefix(&err, "image pull: ");
		return cmd_fail(&err);
	}
	if (note.code != 0)
		err_prefix(&note, "image pull: ");
	cmd_note(&note);
	printf("%s\n", name);
	return cmd_finish_stdout(0);
}

/* ---- fetch ---- */

struct fetch_cmd_options {
	bool help;
	uint64_t cache_size;
};

static const struct opt fetch_table[] = {
	OPT_SIZE(struct fetch_cmd_options, cache_size, "cache-size", 0, "SIZE", MIB(1), UINT64_MAX >> 1, 1,
		 "what the cache of all remote layers may take up; $COFFER_CACHE_SIZE or 20G when not given"),
	CMD_OPT_HELP(struct fetch_cmd_options),
	OPT_END,
};

static const struct cmd_help fetch_help = {
	.usage = "image fetch NAME... [--cache-size SIZE]",
	.summary = "download what is missing of remote images, and make it their own",
	.text = "The layers become files of the image, which needs neither registry nor cache from then\n"
		"on. What the cache has whole is not downloaded again. No VM may use the image meanwhile.",
	.options = fetch_table,
	.examples = "coffer image fetch app",
};

int cmd_image_fetch(int argc, char **argv)
{
	struct fetch_cmd_options c = { 0 };
	struct cmd_image_watch watch;
	struct image_store store;
	struct err err = ERR_INIT;
	uint64_t cache_size;
	int status, first = cmd_parse(&fetch_help, &c, argc, argv, false, &status), r;

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("image fetch: the name is missing");
	for (int i = first; i < argc; i++) {
		status = cmd_image_check_name(argv[0], argv[i]);
		if (status != 0)
			return status;
	}
	r = remote_layers_cache_size(c.cache_size, &cache_size, &err);
	if (r == 0)
		r = image_store_init(&store, NULL, &err);
	if (r == 0)
		r = cmd_image_watch_begin(&watch, &err);
	if (r == 0) {
		for (int i = first; i < argc && r >= 0; i++)
			r = pull_make_local(&store, argv[i], cache_size, &watch.progress, &err);
		cmd_image_watch_end(&watch);
	}
	if (r < 0) {
		err_prefix(&err, "image fetch: ");
		return cmd_fail(&err);
	}
	return 0;
}
