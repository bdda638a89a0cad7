/* SPDX-License-Identifier: Apache-2.0 */
/* Error objects: see err.h. Over-long texts are cut at ERR_MAX - 1 bytes. */
#include "lib/err.h"

#include <stdio.h>
#include <string.h>

void err_make_printable(char *s)
{
	for (; s && *s; s++) {
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
		if ((unsigned char)s[0] == 0xc2 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xa0)
			s[0] = s[1] = '?';
	}
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	err_make_printable(err->text);
	return code;
}

int err_errno(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, ": %s", strerror(-code));
	err_make_printable(err->text);
	return code;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
	char old[ERR_MAX];
	va_list ap;
	size_t n;

	if (!err)
		return;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	n = strlen(err->text);
	snprintf(err->text + n, sizeof(err->text) - n, "%s", old);
	err_make_printable(err->text);
}
