/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One error object for set-up and control paths.
 *
 * A function that can fail for a reason a user can act on takes `struct err *err` as its last
 * argument and returns a negative errno. The innermost function that knows the reason sets the text;
 * callers may put their own words in front ("disk 0: ..."). The text is one line: it names the
 * thing, the value and, where that is not obvious, what to do. Library code never prints it.
 *
 * Every function accepts err == NULL and then only passes the code through, if it has one.
 */
#pragma once
#include <stdarg.h>
#include <stddef.h>

enum { ERR_MAX = 512 };

struct err {
	int code;           /* negative errno, 0 when unset */
	char text[ERR_MAX]; /* one line of UTF-8 without control characters: escaped, and cut with "..." (text.h) */
};

#define ERR_INIT ((struct err){ 0 })

/* Set the text; returns `code` (a negative errno) so that `return err_set(err, -EINVAL, ...)` reads well. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Set the text and append ": " and the message of `code`. */
int err_errno(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Put words before the text that is there. It returns nothing: the caller has the code, also where err is NULL. */
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
