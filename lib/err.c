/* SPDX-License-Identifier: Apache-2.0 */
/* Error objects: see err.h. */
#include "lib/err.h"

#include <stdio.h>
#include <string.h>

#include "lib/text.h"

/* What does not fit here does not fit into an error either. */
enum { RAW_MAX = 2 * ERR_MAX };

/* `fmt` and then `rest`. */
static void set_text(struct err *err, const char *fmt, va_list ap, const char *rest)
{
	char raw[RAW_MAX];
	int n = vsnprintf(raw, sizeof(raw), fmt, ap);
	size_t at = n < 0 ? 0 : (size_t)n;

	if (at < sizeof(raw))
		snprintf(raw + at, sizeof(raw) - at, "%s", rest);
	text_escape(raw, strlen(raw), "", err->text, sizeof(err->text));
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	va_start(ap, fmt);
	set_text(err, fmt, ap, "");
	va_end(ap);
	return code;
}

int err_errno(struct err *err, int code, const char *fmt, ...)
{
	char reason[RAW_MAX / 4];
	va_list ap;

	if (!err)
		return code;
	err->code = code;
	snprintf(reason, sizeof(reason), ": %s", strerror(-code));
	va_start(ap, fmt);
	set_text(err, fmt, ap, reason);
	va_end(ap);
	return code;
}

void err_prefix(struct err *err, const char *fmt, ...)
{
	char old[ERR_MAX];
	va_list ap;

	if (!err)
		return;
	memcpy(old, err->text, sizeof(old));
	va_start(ap, fmt);
	set_text(err, fmt, ap, old);
	va_end(ap);
}
