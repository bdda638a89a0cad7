/* SPDX-License-Identifier: Apache-2.0 */
/* `coffer image import`: the command line of image_import.h. */
#include <stdio.h>

#include "host/cmd_image.h"
#include "host/ext4_write.h"
#include "host/image_import.h"
#include "lib/util.h"

struct import_options {
	bool help, replace;
	char *name, *platform, *tag;
	uint64_t size;
};

static const struct opt import_table[] = {
	OPT_STRING(struct import_options, name, "name", 'n', "NAME", "name of the image"),
	OPT_BOOL(struct import_options, replace, "replace", 0, "put it in the place of an image of that name"),
	OPT_STRING(struct import_options, platform, "platform", 0, "OS/ARCH", "container images only: for which machine; " IMAGE_IMPORT_PLATFORM " when not given"),
	OPT_STRING(struct import_options, tag, "tag", 0, "TAG", "container images only: which one, where there are several"),
	OPT_SIZE(struct import_options, size, "size", 0, "SIZE", MIB(1), EXT4_SIZE_MAX, 1,
		 "size of the file system; 16G when not given. Free space takes no disk. Disks and layers of overlaybd have theirs"),
	CMD_OPT_HELP(struct import_options),
	OPT_END,
};

static const struct cmd_help import_help = {
	.usage = "image import PATH|- --name NAME [--replace] [--platform OS/ARCH] [--tag TAG] [--size SIZE]",
	.summary = "make a root disk image of what another program made",
	.text = "PATH is one of:\n"
		"  an OCI image layout, a directory or a tar of one (skopeo, umoci, buildah);\n"
		"  what 'docker save' writes;\n"
		"  a tar of a root file system, also compressed, or such a directory;\n"
		"  a disk, raw or qcow2, with ext4, erofs or squashfs on it or on its only\n"
		"  partition for Linux;\n"
		"  layers of overlaybd: a file, or a directory of them;\n"
		"  '-': one of these files from stdin.\n"
		"Environment, command, directory and user of a container image become the image's\n"
		"defaults. The image appears when it is whole. None of it needs root.\n"
		"Of extended attributes user.*, file capabilities and ACLs are kept, at most 2048 bytes a file;\n"
		"one line says that others were left out.",
	.options = import_table,
	.examples = "skopeo copy docker://debian:12 oci:debian && coffer image import debian --name debian12\n"
		    "docker save app | coffer image import - --name app\n"
		    "coffer image import disk.qcow2 --name vm",
};

int cmd_image_import(int argc, char **argv)
{
	struct import_options o = { 0 };
	struct err err = ERR_INIT, note = ERR_INIT;
	struct cmd_image_watch watch;
	struct image_store store;
	int status, r;
	int first = cmd_parse(&import_help, &o, argc, argv, false, &status);

	if (first < 0)
		return status;
	if (argc - first != 1)
		return cmd_failf("image import: %s", argc == first ? "the path is missing" : "one path at a time");
	if (o.name == NULL)
		return cmd_failf("image import: --name is missing: what shall the image of '%s' be called?", argv[first]);
	r = image_store_init(&store, NULL, &err);
	if (r == 0)
		r = cmd_image_watch_begin(&watch, &err);
	if (r < 0)
		return cmd_fail(&err);
	r = image_import(&store,
			 &(struct image_import_options){ .path = argv[first], .name = o.name, .platform = o.platform, .tag = o.tag,
							 .size = o.size, .replace = o.replace },
			 &watch.progress, &note, &err);
	cmd_image_watch_end(&watch);
	cmd_note(&note);
	if (r < 0) {
		err_prefix(&err, "image import: ");
		return cmd_fail(&err);
	}
	printf("%s\n", o.name);
	return cmd_finish_stdout(0);
}
