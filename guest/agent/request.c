/* SPDX-License-Identifier: Apache-2.0 */
/* The request line: see request.h. */
#include "guest/agent/request.h"

#include <errno.h>
#include <string.h>

#include "lib/json.h"
#include "lib/util.h"

enum field_type { FIELD_STRING, FIELD_LIST, FIELD_BOOL, FIELD_INT };

#define OP(name) (1u << REQUEST_##name)

struct field {
	const char *name;
	enum field_type type;
	unsigned ops;
	size_t offset;       /* STRING: const char *; LIST: const char *[]; BOOL: bool; INT: int64_t */
	size_t count_offset; /* LIST: size_t */
	int64_t min, max;    /* INT: the range; LIST: max entries */
};

#define STRING(f, o) { .name = #f, .type = FIELD_STRING, .offset = offsetof(struct request, f), .ops = (o) }
#define BOOL(n, f, o) { .name = n, .type = FIELD_BOOL, .offset = offsetof(struct request, f), .ops = (o) }
#define INT(f, lo, hi, o) { .name = #f, .type = FIELD_INT, .offset = offsetof(struct request, f), .min = lo, .max = hi, .ops = (o) }
#define LIST(f, c, n, o)                                                                                              \
	{ .name = #f, .type = FIELD_LIST, .offset = offsetof(struct request, f), .count_offset = offsetof(struct request, c), \
	  .max = n, .ops = (o) }

/* Where the strings of "op" and "entropy" go until they are looked at. */
struct scratch {
	const char *op, *entropy;
};

static const struct field fields[] = {
	LIST(argv, argc, AGENT_ARGV_MAX, OP(EXEC)),
	LIST(env, nenv, AGENT_ENV_MAX, OP(EXEC) | OP(CONFIGURE)),
	STRING(cwd, OP(EXEC)),
	STRING(user, OP(EXEC)),
	BOOL("tty", tty, OP(EXEC)),
	BOOL("stdin", stdin_open, OP(EXEC)),
	BOOL("detach", detach, OP(EXEC)),
	BOOL("attach", attach, OP(EXEC)),
	INT(rows, 1, UINT16_MAX, OP(EXEC)),
	INT(cols, 1, UINT16_MAX, OP(EXEC)),
	INT(timeout_ms, 0, INT32_MAX, OP(EXEC) | OP(FREEZE) | OP(SESSION)),
	INT(grace_ms, 0, 600000, OP(EXEC) | OP(POWEROFF) | OP(REBOOT)),
	INT(id, 1, INT64_MAX, OP(ATTACH) | OP(KILL)),
	INT(resume, 1, INT64_MAX, OP(EXEC) | OP(ATTACH)),
	INT(received, 0, INT64_MAX, OP(ATTACH)),
	INT(signal, 1, 64, OP(KILL)),
	STRING(path, OP(STAT) | OP(PUT) | OP(GET)),
	STRING(name, OP(GET)),
	BOOL("follow", follow, OP(STAT) | OP(GET)),
	BOOL("mkdir", mkdir, OP(PUT)),
	STRING(owner, OP(PUT)),
	BOOL("keep_owner", keep_owner, OP(PUT)),
	BOOL("anonymous", anonymous, OP(FREEZE)),
	INT(clock_ns, 0, INT64_MAX, OP(CONFIGURE)),
	INT(counter, 0, INT64_MAX, OP(CONFIGURE)),
	INT(counter_khz, 1, REQUEST_COUNTER_KHZ_MAX, OP(CONFIGURE)),
	STRING(hostname, OP(CONFIGURE)),
	STRING(machine_id, OP(CONFIGURE)),
};

static const char *const op_names[] = {
	[REQUEST_PING] = "ping",     [REQUEST_CONFIGURE] = "configure", [REQUEST_EXEC] = "exec",	 [REQUEST_ATTACH] = "attach",
	[REQUEST_PS] = "ps",	     [REQUEST_KILL] = "kill",		[REQUEST_STAT] = "stat",	 [REQUEST_PUT] = "put",
	[REQUEST_GET] = "get",	     [REQUEST_SYNC] = "sync",		[REQUEST_FREEZE] = "freeze",	 [REQUEST_THAW] = "thaw",
	[REQUEST_SESSION] = "session", [REQUEST_POWEROFF] = "poweroff", [REQUEST_REBOOT] = "reboot",
};

const char *request_op_name(enum request_op op)
{
	return op_names[op];
}

static int malformed(const struct json *j, struct err *err)
{
	return err_set(err, -EINVAL, "request: not valid JSON at byte %zu: %s", j->error_pos, j->error ? j->error : "unexpected value");
}

static int read_list(struct json *j, const struct field *f, struct request *r, struct err *err)
{
	const char **list = (const char **)((char *)r + f->offset);
	size_t n = 0;
	struct json_token t;

	if (json_next(j, &t) != JSON_TOKEN_ARRAY)
		return j->error ? malformed(j, err) : err_set(err, -EINVAL, "request: '%s' must be an array of strings", f->name);
	while (json_next(j, &t) == JSON_TOKEN_STRING) {
		if (n == (size_t)f->max)
			return err_set(err, -E2BIG, "request: '%s' has more than %lld entries", f->name, (long long)f->max);
		list[n++] = t.s;
	}
	if (t.type != JSON_TOKEN_ARRAY_END)
		return j->error ? malformed(j, err) : err_set(err, -EINVAL, "request: '%s' must be an array of strings", f->name);
	list[n] = NULL;
	*(size_t *)((char *)r + f->count_offset) = n;
	return 0;
}

static int read_value(struct json *j, const struct field *f, struct request *r, struct err *err)
{
	char *dst = (char *)r + f->offset;
	struct json_token t;

	if (f->type == FIELD_LIST)
		return read_list(j, f, r, err);
	if (json_next(j, &t) == JSON_TOKEN_ERROR)
		return malformed(j, err);
	if (f->type == FIELD_STRING) {
		if (t.type != JSON_TOKEN_STRING)
			return err_set(err, -EINVAL, "request: '%s' must be a string", f->name);
		*(const char **)dst = t.s;
	} else if (f->type == FIELD_BOOL) {
		if (t.type != JSON_TOKEN_TRUE && t.type != JSON_TOKEN_FALSE)
			return err_set(err, -EINVAL, "request: '%s' must be true or false", f->name);
		*(bool *)dst = t.type == JSON_TOKEN_TRUE;
	} else {
		if (t.type != JSON_TOKEN_NUMBER || !t.is_int || t.i < f->min || t.i > f->max)
			return err_set(err, -EINVAL, "request: '%s' must be an integer from %lld to %lld", f->name, (long long)f->min,
				       (long long)f->max);
		*(int64_t *)dst = t.i;
	}
	return 0;
}

/* "op" and "entropy" are strings that do not stay strings. */
static int read_special(struct json *j, const char **dst, const char *name, struct err *err)
{
	struct json_token t;

	if (*dst)
		return err_set(err, -EINVAL, "request: '%s' is given twice", name);
	if (json_next(j, &t) == JSON_TOKEN_ERROR)
		return malformed(j, err);
	if (t.type != JSON_TOKEN_STRING)
		return err_set(err, -EINVAL, "request: '%s' must be a string", name);
	*dst = t.s;
	return 0;
}

/* Collects the bit of each field in *ret_set. */
static int read_object(struct json *j, struct request *r, struct scratch *s, uint32_t *ret_set, struct err *err)
{
	struct json_token t;

	_Static_assert(ARRAY_SIZE(fields) <= 32, "one bit per field");
	if (json_next(j, &t) != JSON_TOKEN_OBJECT)
		return j->error ? malformed(j, err) : err_set(err, -EINVAL, "request: must be a JSON object");
	while (json_next(j, &t) == JSON_TOKEN_KEY) {
		size_t i = 0;
		int rc;

		if (json_token_is(&t, "op")) {
			rc = read_special(j, &s->op, "op", err);
		} else if (json_token_is(&t, "entropy")) {
			rc = read_special(j, &s->entropy, "entropy", err);
		} else {
			while (i < ARRAY_SIZE(fields) && !json_token_is(&t, fields[i].name))
				i++;
			if (i == ARRAY_SIZE(fields))
				return err_set(err, -EOPNOTSUPP, "request: field '%.64s' is not known", t.s);
			if (*ret_set & 1u << i)
				return err_set(err, -EINVAL, "request: '%s' is given twice", fields[i].name);
			*ret_set |= 1u << i;
			rc = read_value(j, &fields[i], r, err);
		}
		if (rc < 0)
			return rc;
	}
	if (t.type != JSON_TOKEN_OBJECT_END || json_next(j, &t) != JSON_TOKEN_END)
		return malformed(j, err);
	return 0;
}

static int find_op(struct request *r, const char *name, struct err *err)
{
	if (!name)
		return err_set(err, -EINVAL, "request: 'op' is missing");
	for (size_t i = 0; i < ARRAY_SIZE(op_names); i++)
		if (strcmp(name, op_names[i]) == 0) {
			r->op = (enum request_op)i;
			return 0;
		}
	return err_set(err, -EOPNOTSUPP, "request: operation '%.64s' is not known", name);
}

static int need(const void *p, const char *name, struct err *err)
{
	return p ? 0 : err_set(err, -EINVAL, "request: '%s' is missing", name);
}

static int check_path(const char *path, const char *name, struct err *err)
{
	if (path && path[0] != '/')
		return err_set(err, -EINVAL, "request: '%s' must be an absolute path, not '%.200s'", name, path);
	return 0;
}

static int check_env(const struct request *r, struct err *err)
{
	size_t bytes = 0;

	for (size_t i = 0; i < r->nenv; i++) {
		const char *eq = strchr(r->env[i], '=');

		if (!eq || eq == r->env[i])
			return err_set(err, -EINVAL, "request: 'env' entry '%.64s' is not NAME=value", r->env[i]);
		bytes += strlen(r->env[i]) + 1;
	}
	if (r->op == REQUEST_CONFIGURE && (r->nenv > AGENT_DEFAULT_ENV_MAX || bytes > AGENT_DEFAULT_ENV_BYTES))
		return err_set(err, -E2BIG, "request: 'env' has %zu entries of %zu bytes; the limits are %d and %d", r->nenv, bytes,
			       AGENT_DEFAULT_ENV_MAX, AGENT_DEFAULT_ENV_BYTES);
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

static int read_entropy(struct request *r, const char *hex, struct err *err)
{
	size_t n = strlen(hex);

	if (n % 2 || n / 2 < REQUEST_ENTROPY_MIN || n / 2 > REQUEST_ENTROPY_MAX)
		return err_set(err, -EINVAL, "request: 'entropy' must have %d to %d bytes in hexadecimal", REQUEST_ENTROPY_MIN,
			       REQUEST_ENTROPY_MAX);
	for (size_t i = 0; i < n / 2; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return err_set(err, -EINVAL, "request: 'entropy' has a character that is not a hexadecimal digit");
		r->entropy[i] = (uint8_t)(hi << 4 | lo);
	}
	r->nentropy = n / 2;
	return 0;
}

static int check_configure(const struct request *r, struct err *err)
{
	if (r->has_counter != (r->counter_khz != 0) || (r->has_counter && !r->has_clock))
		return err_set(err, -EINVAL, "request: 'counter' and 'counter_khz' belong to one another and to 'clock_ns'");
	if (r->hostname) {
		size_t n = strlen(r->hostname);

		if (n == 0 || n > REQUEST_HOSTNAME_MAX ||
		    strspn(r->hostname, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") != n)
			return err_set(err, -EINVAL, "request: 'hostname' must be 1 to %d of A-Z a-z 0-9 . -", REQUEST_HOSTNAME_MAX);
	}
	if (r->machine_id && (strlen(r->machine_id) != AGENT_MACHINE_ID || strspn(r->machine_id, "0123456789abcdef") != AGENT_MACHINE_ID))
		return err_set(err, -EINVAL, "request: 'machine_id' must be %d lower-case hexadecimal digits", AGENT_MACHINE_ID);
	return 0;
}

/* What one operation needs of its fields, beyond their ranges. */
static int check_op(struct request *r, struct err *err)
{
	int rc = 0;

	switch (r->op) {
	case REQUEST_EXEC:
		if (r->argc == 0)
			return err_set(err, -EINVAL, "request: 'argv' must have at least one entry, the program");
		if (!r->argv[0][0])
			return err_set(err, -EINVAL, "request: the first entry of 'argv', the program, is empty");
		if (!r->attach && !r->detach)
			return err_set(err, -EINVAL, "request: 'attach' can be false only with 'detach'");
		if (r->resume && r->detach)
			return err_set(err, -EINVAL, "request: 'detach' and 'resume' exclude each other");
		return check_path(r->cwd, "cwd", err);
	case REQUEST_CONFIGURE: return check_configure(r, err);
	case REQUEST_ATTACH:
		if (r->received && !r->resume)
			return err_set(err, -EINVAL, "request: 'received' belongs to 'resume'");
		return r->id ? 0 : need(NULL, "id", err);
	case REQUEST_KILL: return r->id && r->signal ? 0 : need(NULL, r->id ? "signal" : "id", err);
	case REQUEST_GET:
		if (r->name && (!r->name[0] || strchr(r->name, '/') || strcmp(r->name, "..") == 0))
			return err_set(err, -EINVAL, "request: 'name' must be one path component, not '%.200s'", r->name);
		rc = need(r->path, "path", err);
		return rc < 0 ? rc : check_path(r->path, "path", err);
	case REQUEST_PUT:
		if (r->owner && r->keep_owner)
			return err_set(err, -EINVAL, "request: 'owner' and 'keep_owner' exclude each other");
		rc = need(r->path, "path", err);
		return rc < 0 ? rc : check_path(r->path, "path", err);
	case REQUEST_STAT:
		rc = need(r->path, "path", err);
		return rc < 0 ? rc : check_path(r->path, "path", err);
	case REQUEST_POWEROFF:
	case REQUEST_REBOOT:
		if (r->grace_ms > 60000)
			return err_set(err, -EINVAL, "request: 'grace_ms' must be an integer from 0 to 60000");
		return 0;
	case REQUEST_PING:
	case REQUEST_PS:
	case REQUEST_SYNC:
	case REQUEST_FREEZE:
	case REQUEST_THAW:
	case REQUEST_SESSION: return 0;
	}
	return 0;
}

static void set_defaults(struct request *r, uint32_t set)
{
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		const char *name = fields[i].name;

		if (set & 1u << i) {
			r->has_env |= strcmp(name, "env") == 0;
			r->has_clock |= strcmp(name, "clock_ns") == 0;
			r->has_counter |= strcmp(name, "counter") == 0;
			continue;
		}
		if (strcmp(name, "rows") == 0)
			r->rows = 24;
		else if (strcmp(name, "cols") == 0)
			r->cols = 80;
		else if (strcmp(name, "grace_ms") == 0)
			r->grace_ms = r->op == REQUEST_EXEC ? 2000 : 3000;
		else if (strcmp(name, "attach") == 0)
			r->attach = true;
		else if (strcmp(name, "follow") == 0)
			r->follow = r->op == REQUEST_STAT;
	}
}

int request_parse(struct request *r, char *text, size_t len, struct err *err)
{
	struct scratch s = { 0 };
	uint32_t set = 0;
	struct json j;
	int rc;

	memset(r, 0, sizeof(*r));
	json_init(&j, text, len);
	rc = read_object(&j, r, &s, &set, err);
	if (rc == 0)
		rc = find_op(r, s.op, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		if ((set & 1u << i) && !(fields[i].ops & 1u << r->op))
			return err_set(err, -EOPNOTSUPP, "request: '%s' does not take the field '%s'", op_names[r->op], fields[i].name);
	if (s.entropy && r->op != REQUEST_CONFIGURE)
		return err_set(err, -EOPNOTSUPP, "request: '%s' does not take the field 'entropy'", op_names[r->op]);
	set_defaults(r, set);
	rc = check_env(r, err);
	if (rc == 0 && s.entropy)
		rc = read_entropy(r, s.entropy, err);
	return rc < 0 ? rc : check_op(r, err);
}
