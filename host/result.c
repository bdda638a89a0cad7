/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON object of run --json and exec --json (coffer(1) describes it).
 *
 * What a command wrote is in it as text where it is UTF-8, else in base64 under another name: no byte is lost or changed.
 */
#include "host/result.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/cmd.h"
#include "host/json_get.h"
#include "lib/fd.h"

static char *base64(const uint8_t *p, size_t n)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *out = malloc((n + 2) / 3 * 4 + 1), *o = out;

	for (size_t i = 0; out && i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);

		*o++ = digits[v >> 18];
		*o++ = digits[v >> 12 & 63];
		*o++ = left > 1 ? digits[v >> 6 & 63] : '=';
		*o++ = left > 2 ? digits[v & 63] : '=';
	}
	if (out)
		*o = 0;
	return out;
}

static void set_stream(json_t *o, const char *name, const struct stream *s)
{
	char key[32];
	json_t *text = s->capture ? json_stringn(s->capture, s->captured) : json_string("");

	if (text) {
		json_object_set_new(o, name, text);
	} else if (s->capture) {
		_cleanup_free_ char *encoded = base64((const uint8_t *)s->capture, s->captured);

		snprintf(key, sizeof(key), "%s_base64", name);
		json_object_set_new(o, key, json_string(encoded ? encoded : ""));
	}
	snprintf(key, sizeof(key), "%s_truncated", name);
	if (s->truncated)
		json_object_set_new(o, key, json_true());
}

int result_print(const char *id, const struct exec_result *result, int status, const struct err *why,
		 const struct result_times *times)
{
	enum exec_end end = result ? result->end : EXEC_FAILED;
	json_t *o = json_pack("{s:s s:i s:s}", "id", id, "status", status, "reason", exec_end_name(end));
	json_t *ms = json_object();

	if (result && (end == EXEC_SIGNAL || end == EXEC_OOM || end == EXEC_FORCED))
		json_object_set_new(o, "signal", json_integer(result->value));
	if (why->text[0])
		json_object_set_new(o, "error", json_text(why->text));
	if (result) {
		set_stream(o, "stdout", &result->out);
		set_stream(o, "stderr", &result->err);
		json_object_set_new(ms, "exec", json_integer((json_int_t)result->elapsed_ms));
	}
	if (times->boot_ms)
		json_object_set_new(ms, "boot", json_integer((json_int_t)times->boot_ms));
	if (times->ready_ms)
		json_object_set_new(ms, "ready", json_integer((json_int_t)times->ready_ms));
	json_object_set_new(ms, "total", json_integer((json_int_t)times->total_ms));
	json_object_set_new(o, "ms", ms);
	_cleanup_free_ char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	json_decref(o);
	if (!text)
		return cmd_failf("out of memory");
	puts(text);
	return cmd_finish_stdout(status);
}
