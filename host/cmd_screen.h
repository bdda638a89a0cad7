/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `coffer screen` share. */
#pragma once
#include "host/screen.h"
#include "host/vm_open.h"

struct screen_options {
	bool cursor, doubled, tripled, change, lossless, json, help;
	char *output, *scale, *region, *button, *held, *dx, *dy, *paste, *image;
	uint64_t screen, settle, delay, stable, fps;
	double timeout, seconds;
};

/* coffer screen ID record: an exit status. */
int cmd_screen_record(struct vm_handle *vm, const struct screen_options *o);
