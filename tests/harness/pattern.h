/* SPDX-License-Identifier: Apache-2.0 */
/* A display without a VM for a test: tests/tools/display_pattern as a child process. Failures abort with the reason. */
#pragma once
#include <stdio.h>
#include <sys/types.h>

struct pattern_process {
	char dir[64]; /* where display.sock is */
	int dir_fd;
	pid_t pid;
	FILE *to, *from;
};

void pattern_start(struct pattern_process *p, unsigned width, unsigned height);
void pattern_stop(struct pattern_process *p);

/* One command, until it is answered; aborts when that is not "ok". Lines that came before the answer are lost. */
void pattern_command(struct pattern_process *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same without waiting for the answer. */
void pattern_say(struct pattern_process *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Its next line, without the newline. */
const char *pattern_line(struct pattern_process *p, char *buf, size_t len);
