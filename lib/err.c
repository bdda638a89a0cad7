/* SPDX-License-Identifier: Apache-2.0 */
/* Error objects: see err.h. Over-long texts are cut at ERR_MAX - 1 bytes. */
#include "lib/err.h"

#include <stdio.h>
#include <string.h>

void err_make_bytes_printable(char *p, size_t n, const char *keep)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)p[i], next = i + 1 < n ? (unsigned char)p[i + 1] : 0;

		if ((c < 0x20 && (c == 0 || !strchr(keep, c))) || c == 0x7f)
			p[i] = '?';
		if (c == 0xc2 && next >= 0x80 && next < 0xa0)
			p[i] = p[i + 1] = '?';
	}
}

void err_make_printable(char *s)
{
	if (s)
		err_make_bytes_printable(s, strlen(s), "");
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
