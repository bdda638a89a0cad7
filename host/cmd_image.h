/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of `coffer image`, each in its file, and what they share. */
#pragma once
#include <signal.h>
#include <stdio.h>

#include "host/cmd.h"
#include "host/image.h"
#include "host/progress.h"

int cmd_image_build(int argc, char **argv);
int cmd_image_import(int argc, char **argv);
int cmd_image_ls(int argc, char **argv);
int cmd_image_show(int argc, char **argv);
int cmd_image_tree(int argc, char **argv);
int cmd_image_diff(int argc, char **argv);
int cmd_image_verify(int argc, char **argv);
int cmd_image_export(int argc, char **argv);
int cmd_image_pull(int argc, char **argv);
int cmd_image_fetch(int argc, char **argv);
int cmd_image_prune(int argc, char **argv);

/* Resolve and lock an image (image_open): the descriptor, or -errno and *image is empty. */
int cmd_image_hold(const char *name, struct image *image, struct err *err);

/* For verbs that take no path: 0, or the exit status when it is one and that was said. */
int cmd_image_check_name(const char *verb, const char *name);

/* Something long: progress, and signals that end it. */
struct cmd_image_watch {
	struct progress progress;
	sigset_t old;
	int signals;
};
int cmd_image_watch_begin(struct cmd_image_watch *w, struct err *err);
void cmd_image_watch_end(struct cmd_image_watch *w);
