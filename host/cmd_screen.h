/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `coffer screen` share. */
#pragma once
#include <jansson.h>

#include "host/screen.h"
#include "host/vm_open.h"

struct screen_options {
	bool cursor, doubled, tripled, change, ready, lossless, json, help;
	char *output, *scale, *region, *button, *held, *dx, *dy, *paste, *image;
	uint64_t screen, settle, delay, stable, fps;
	double timeout, seconds;
};

struct screen_call {
	const char *action;
	struct vm_handle *vm;
	struct screen *s;
	const struct screen_options *o;
	int argc; /* after the action */
	char **argv;
	json_t *result;    /* with --json */
	uint64_t deadline; /* of the connection to the agent; 0: none */
	int signal;        /* that ended the action, with -ECANCELED */
	struct err err;
};

/* Each: 0 or -errno with a text in c->err. */
int cmd_screen_do_shot(struct screen_call *c);
int cmd_screen_do_size(struct screen_call *c);
int cmd_screen_do_position(struct screen_call *c);
int cmd_screen_do_click(struct screen_call *c);
int cmd_screen_do_move(struct screen_call *c);
int cmd_screen_do_drag(struct screen_call *c);
int cmd_screen_do_button(struct screen_call *c);
int cmd_screen_do_scroll(struct screen_call *c);
int cmd_screen_do_type(struct screen_call *c);
int cmd_screen_do_key(struct screen_call *c);
int cmd_screen_do_hold(struct screen_call *c);
int cmd_screen_do_wait(struct screen_call *c);

/* coffer screen ID record: an exit status. */
int cmd_screen_record(struct screen_call *c);
