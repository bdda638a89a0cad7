/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image`: its verbs, and what they share. */
#include "host/cmd_image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/image_store.h"
#include "host/signals.h"
#include "lib/text.h"
#include "lib/util.h"

/* ---- shared ---- */

static void say(const char *line)
{
	cmd_failf("%s", line);
}

int cmd_image_watch_begin(struct cmd_image_watch *w, struct err *err)
{
	w->signals = signals_open(&w->old, err);
	if (w->signals < 0)
		return w->signals;
	progress_init(&w->progress, cmd_progress_wanted() ? STDERR_FILENO : -1, w->signals);
	w->progress.say = say;
	return 0;
}

void cmd_image_watch_end(struct cmd_image_watch *w)
{
	progress_end(&w->progress);
	signals_close(w->signals, &w->old);
}

int cmd_image_hold(const char *name, struct image *image, struct err *err)
{
	int r = image_resolve(name, image, err), fd;

	if (r < 0)
		return r;
	fd = image_open(image, err);
	if (fd < 0)
		image_finish(image);
	return fd;
}

int cmd_image_check_name(const char *verb, const char *name)
{
	return strchr(name, '/') == NULL ?
		       0 :
		       cmd_failf("%s: '%s' is a path: wanted is a name of the store, see 'coffer image ls'", verb, TEXT_CUT(name));
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

struct verb {
	const char *name, *full;
	int (*run)(int, char **);
};

/* A verb is one line here, one in image_help, and one word in main.c. */
static const struct verb verbs[] = {
	{ "build", "image build", cmd_image_build },
	{ "import", "image import", cmd_image_import },
	{ "ls", "image ls", cmd_image_ls },
	{ "show", "image show", cmd_image_show },
	{ "tree", "image tree", cmd_image_tree },
	{ "diff", "image diff", cmd_image_diff },
	{ "verify", "image verify", cmd_image_verify },
	{ "export", "image export", cmd_image_export },
	{ "pull", "image pull", cmd_image_pull },
	{ "fetch", "image fetch", cmd_image_fetch },
	{ "rm", "image rm", rm },
	{ "prune", "image prune", cmd_image_prune },
};

struct image_options {
	bool help;
};

static const struct opt image_table[] = { CMD_OPT_HELP(struct image_options), OPT_END };

static const struct cmd_help image_help = {
	.usage = "image build debian|DIR|TAR|- [OPTIONS]\n"
		 "image import PATH --name NAME [OPTIONS]\n"
		 "image ls [--json]\n"
		 "image show NAME [--json]\n"
		 "image tree [--json]\n"
		 "image diff A B [--json]\n"
		 "image verify [NAME...] [--json]\n"
		 "image export NAME -o FILE|- [--format FORMAT]\n"
		 "image pull URL [OPTIONS]\n"
		 "image fetch NAME...\n"
		 "image rm NAME...\n"
		 "image prune [--cache] [--dry-run]",
	.summary = "build, look at and remove root disk images",
	.text = "Images are in $XDG_DATA_HOME/coffer/images, else, as root, in\n"
		"/var/lib/coffer/images, else in ~/.local/share/coffer/images.\n"
		"'coffer image help VERB' says more about each.",
	.options = image_table,
	.examples = "coffer image build debian\ncoffer image ls",
};

/* "build, ls, ..." */
static const char *list_verbs(char *out, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(verbs) && n < len; i++)
		n += (size_t)snprintf(out + n, len - n, "%s%s", i > 0 ? ", " : "", verbs[i].name);
	return out;
}

int cmd_image(int argc, char **argv)
{
	struct image_options o = { 0 };
	char list[256];
	int status, first = cmd_parse(&image_help, &o, argc, argv, true, &status);

	if (first < 0)
		return status;
	if (first == argc)
		return cmd_failf("image: wanted is one of: %s (see 'coffer image --help')", list_verbs(list, sizeof(list)));
	if (strcmp(argv[first], "help") == 0)
		return cmd_help_words("image", argc - first, argv + first);
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(argv[first], verbs[i].name) != 0)
			continue;
		argv[first] = (char *)verbs[i].full; /* what errors begin with */
		return verbs[i].run(argc - first, argv + first);
	}
	return cmd_failf("image: '%s' is none of: %s", TEXT_CUT(argv[first]), list_verbs(list, sizeof(list)));
}
