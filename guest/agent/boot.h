/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 in the initramfs: everything before the agent serves.
 *
 * A failure on the way never ends it: what could not be done is said on the console and in the ready line, and the agent
 * serves from where it is, so that the host gets a reason instead of silence.
 */
#pragma once
#include "guest/agent/agent.h"

enum { BOOT_WORD_MAX = 256 };

struct boot_words { /* coffer.NAME=VALUE of the kernel command line; "" when absent */
	char root[BOOT_WORD_MAX], overlay[BOOT_WORD_MAX], hostname[BOOT_WORD_MAX], machine_id[BOOT_WORD_MAX], init[BOOT_WORD_MAX],
		display[BOOT_WORD_MAX];
	bool rw; /* the words `rw` and `ro`: may the root disk be written? */
};

/* Pick the words out of a command line. Unknown ones are left alone, too long ones are cut and lead to an error later. */
void boot_parse_cmdline(const char *cmdline, struct boot_words *ret);

/* Mounts, modules, root, names, limits. With coffer.init= it returns in a child, as a service, while PID 1 becomes that
 * program. */
void boot_machine(struct agent *a);

/* modules.c: load what /modules.list names. */
void boot_load_modules(const struct agent *a);

/* root.c: mount and enter the root file system. 0, or -errno with a text when still in the initramfs. */
int boot_enter_root(struct agent *a, const struct boot_words *w, struct err *err);

/* session.c: start and keep a session, SESSION_PROGRAM of the image, in a process of its own; nothing without such a program.
 * display: "WIDTHxHEIGHT". */
#define SESSION_PROGRAM "/usr/lib/coffer/session"
void boot_start_session(struct agent *a, const char *program, const char *display);
/* A process that the kernel may kill when memory is short, unlike us. */
void boot_leave_protection(void);

/* Mount `type` on `path`, made if need be. What is there already is no error. */
int boot_mount(const struct agent *a, const char *type, const char *path, unsigned long flags, const char *data);
