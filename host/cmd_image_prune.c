/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image prune`: the command line of image_prune.h. */
#include <stdio.h>

#include "host/cmd_image.h"
#include "host/image_prune.h"
#include "lib/text.h"

struct prune_options {
	bool help, dry_run, cache;
};

static const struct opt prune_table[] = {
	OPT_BOOL(struct prune_options, dry_run, "dry-run", 0, "only print what would go"),
	OPT_BOOL(struct prune_options, cache, "cache", 0, "cached parts of remote layers too that no image or snapshot has"),
	CMD_OPT_HELP(struct prune_options),
	OPT_END,
};

static const struct cmd_help prune_help = {
	.usage = "image prune [--cache] [--dry-run]",
	.summary = "remove what nothing needs any more",
	.text = "These are leftovers of builds that were killed, and templates of empty disks that no VM\n"
		"uses. Images stay. Cached parts of remote layers are bounded by --cache-size and stay\n"
		"too, as other stores may use them and registries may be gone; --cache removes those that\n"
		"no image or snapshot of this store has.",
	.options = prune_table,
	.examples = "coffer image prune --dry-run",
};

static void each(void *arg, const char *path, uint64_t bytes)
{
	uint64_t *sum = arg;

	*sum += bytes;
	printf("%9s  ", TEXT_SIZE(bytes));
	text_print(stdout, path);
	putchar('\n');
}

int cmd_image_prune(int argc, char **argv)
{
	struct prune_options o = { 0 };
	struct image_store store;
	struct err err = ERR_INIT;
	uint64_t sum = 0;
	int r, status, first = cmd_parse(&prune_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (first < argc)
		return cmd_failf("image prune: '%s' is one argument too many", TEXT_CUT(argv[first]));
	r = image_store_init(&store, NULL, &err);
	if (r == 0)
		r = image_prune(&store, o.dry_run, o.cache, each, &sum, &err);
	printf("%s %s\n", TEXT_SIZE(sum), o.dry_run ? "would be freed" : "freed");
	if (r < 0) {
		err_prefix(&err, "image prune: ");
		return cmd_fail(&err);
	}
	return cmd_finish_stdout(0);
}
