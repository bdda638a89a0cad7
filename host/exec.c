/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a guest: see exec.h. */
#include "host/exec.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/cmd.h"
#include "host/session.h"
#include "host/term.h"
#include "lib/fd.h"
#include "lib/loop.h"
#include "lib/text.h"
#include "lib/util.h"

/* ---- the request ---- */

static void put_member(FILE *f, const char *key, const char *value)
{
	fprintf(f, ",\"%s\":", key);
	agent_put_string(f, value);
}

static int check_env_name(const char *entry, struct err *err)
{
	if (*entry && *entry != '=')
		return 0;
	return err_set(err, -EINVAL, "--env: '%s' is not NAME=VALUE", TEXT_CUT(entry));
}

static int put_env_entry(FILE *f, const char *entry, unsigned *n, struct err *err)
{
	const char *eq = strchr(entry, '=');
	const char *ours = eq ? NULL : getenv(entry);

	if (check_env_name(entry, err) < 0)
		return -EINVAL;
	if (!eq && !ours)
		return 0; /* as docker: a name alone passes on our value, if there is one */
	if (*n == EXEC_ENV_MAX)
		return err_set(err, -E2BIG, "--env: more than %d entries", EXEC_ENV_MAX);
	if ((*n)++)
		fputc(',', f);
	if (eq) {
		agent_put_string(f, entry);
		return 0;
	}
	_cleanup_free_ char *both = NULL;

	if (asprintf(&both, "%s=%s", entry, ours) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	agent_put_string(f, both);
	return 0;
}

static int put_env(FILE *f, const struct exec_spec *spec, struct err *err)
{
	unsigned n = 0;
	int r = 0;

	fputs(",\"env\":[", f);
	for (size_t i = 0; spec->base_env && spec->base_env[i] && r == 0; i++)
		if (strchr(spec->base_env[i], '='))
			r = put_env_entry(f, spec->base_env[i], &n, err);
	if (spec->options->tty && r == 0)
		r = put_env_entry(f, "TERM", &n, err);
	for (size_t i = 0; i < spec->options->env.n && r == 0; i++)
		r = put_env_entry(f, spec->options->env.v[i], &n, err);
	fputc(']', f);
	return r;
}

int exec_make_request(const struct exec_spec *spec, int64_t resume_key, char **ret, size_t *ret_len, struct err *err)
{
	const struct exec_options *o = spec->options;
	const char *cwd = o->cwd ? o->cwd : spec->cwd, *user = o->user ? o->user : spec->user;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return err_set(err, -ENOMEM, "out of memory");
	fputs("{\"op\":\"exec\",\"argv\":[", f);
	for (size_t i = 0; spec->argv[i]; i++) {
		if (i)
			fputc(',', f);
		agent_put_string(f, spec->argv[i]);
	}
	fputc(']', f);
	int r = put_env(f, spec, err);

	if (r == 0 && o->user && !*o->user)
		r = err_set(err, -EINVAL, "--user: '' is no user: give a name or a number, or leave it out");
	if (r == 0 && o->cwd && !*o->cwd)
		r = err_set(err, -EINVAL, "--cwd: '' is no directory: give an absolute path, or leave it out");
	if (cwd && *cwd)
		put_member(f, "cwd", cwd);
	if (user && *user)
		put_member(f, "user", user);
	if (o->tty) {
		uint16_t rows = 24, cols = 80;

		term_size(&rows, &cols);
		fprintf(f, ",\"tty\":true,\"rows\":%u,\"cols\":%u", rows, cols);
	}
	if (o->interactive)
		fputs(",\"stdin\":true", f);
	if (resume_key)
		fprintf(f, ",\"resume\":%lld", (long long)resume_key);
	if (o->timeout > 0)
		fprintf(f, ",\"timeout_ms\":%llu,\"grace_ms\":%d", (unsigned long long)MAX(o->timeout * 1000, 1.0),
			EXEC_GRACE_MS);
	fputc('}', f);
	bool failed = ferror(f);

	if ((fclose(f) != 0 || failed) && r == 0)
		r = err_set(err, -ENOMEM, "out of memory");
	if (r == 0 && len + 1 > AGENT_REQUEST_MAX)
		r = err_set(err, -E2BIG, "the command and its environment have %zu bytes, more than %d", len, AGENT_REQUEST_MAX);
	if (r < 0) {
		free(text);
		return r;
	}
	*ret = text;
	*ret_len = len;
	return 0;
}

int exec_check_options(const struct exec_options *o, struct err *err)
{
	if (o->json && o->tty)
		return err_set(err, -EINVAL, "--json and --tty exclude each other: a terminal's output is not a result");
	if (o->tty && o->interactive && !isatty(STDIN_FILENO))
		return err_set(err, -EINVAL, "--tty: stdin is not a terminal: leave out -t, or -i");
	for (size_t i = 0; i < o->env.n; i++) {
		int r = check_env_name(o->env.v[i], err);

		if (r < 0)
			return r;
	}
	if (o->user && !*o->user)
		return err_set(err, -EINVAL, "--user: '' is no user: give a name or a number, or leave it out");
	if (o->cwd && !*o->cwd)
		return err_set(err, -EINVAL, "--cwd: '' is no directory: give an absolute path, or leave it out");
	return 0;
}

/* ---- running ---- */

static void take_kind(const struct session_result *s, struct exec_result *ret)
{
	uint32_t v = s->value;

	ret->value = (int)MIN(v, 255u);
	switch (s->kind) {
	case AGENT_EXIT_STATUS:
		ret->end = EXEC_STATUS;
		if (v <= 255)
			return;
		break;
	case AGENT_EXIT_SIGNAL:
		ret->end = EXEC_SIGNAL;
		if (v >= 1 && v <= 64)
			return;
		break;
	case AGENT_EXIT_TIMEOUT:
		ret->end = EXEC_TIMEOUT;
		return;
	case AGENT_EXIT_NOEXEC:
		ret->end = EXEC_NOEXEC;
		return;
	case AGENT_EXIT_OOM:
		ret->end = EXEC_OOM;
		if (v >= 1 && v <= 64)
			return;
		break;
	default:
		break;
	}
	ret->end = EXEC_FAILED;
	err_set(&ret->why, -EPROTO, "the agent reported an end that makes no sense (kind %u, value %u)", s->kind, v);
}

static int open_streams(const struct exec_spec *spec, struct exec_result *ret)
{
	if (!spec->options->json) {
		stream_open_fd(&ret->out, STDOUT_FILENO);
		stream_open_fd(&ret->err, STDERR_FILENO);
		return 0;
	}
	int r = stream_open_capture(&ret->out, EXEC_CAPTURE_MAX);

	return r < 0 ? r : stream_open_capture(&ret->err, EXEC_CAPTURE_MAX);
}

static void fail(struct exec_result *ret, enum exec_end end)
{
	ret->end = end;
}

/* The session itself; the terminal is the command's for as long as it takes. */
static void run_session(struct agent_conn *conn, const struct exec_spec *spec, int64_t window, struct resume *resume,
			struct exec_result *ret)
{
	const struct exec_options *o = spec->options;
	struct term term = TERM_NONE;
	struct session_result result;
	struct session s = { .conn = conn, .in_fd = o->interactive ? STDIN_FILENO : -1, .out = &ret->out, .err = &ret->err,
			     .signal_fd = spec->signal_fd, .window = (uint64_t)MAX(window, 0), .resume = resume };

	if (o->tty && o->interactive) {
		if (term_raw(&term, STDIN_FILENO, &ret->why) < 0) {
			fail(ret, EXEC_FAILED);
			return;
		}
		guardian_watch_terminal(spec->guardian, &term);
	}
	s.term = o->tty ? &term : NULL;
	if (o->timeout > 0)
		s.deadline_ms = loop_now_ns() / 1000000 + (uint64_t)(o->timeout * 1000) + EXEC_GRACE_MS + EXEC_OVERDUE_MS;
	int r = session_run(&s, &result, &ret->why);

	term_restore(&term);
	if (r < 0) {
		fail(ret, EXEC_FAILED);
		return;
	}
	switch (result.end) {
	case SESSION_ENDED:
		take_kind(&result, ret);
		break;
	case SESSION_LOST:
		fail(ret, EXEC_LOST);
		break;
	case SESSION_FORCED:
		ret->value = result.signal;
		fail(ret, EXEC_FORCED);
		break;
	case SESSION_OVERDUE:
		fail(ret, EXEC_OVERDUE);
		break;
	}
}

bool exec_refuse(char *const *argv, struct exec_result *ret)
{
	if (argv[0][0])
		return false;
	*ret = (struct exec_result){ .out = { .fd = -1, .own_fd = -1 }, .err = { .fd = -1, .own_fd = -1 }, .end = EXEC_NOEXEC,
				     .value = ENOENT };
	err_set(&ret->why, -ENOENT, "the command is empty: name a program");
	return true;
}

/* Ask for the command. *key: what it is to be resumed by; 0 when it cannot be. */
static int request_command(struct agent_conn *conn, const struct exec_spec *spec, int64_t *key, struct agent_line *line,
			   struct err *err)
{
	_cleanup_free_ char *request = NULL;
	uint64_t deadline = loop_now_ns() / 1000000 + EXEC_REPLY_MS;
	struct agent_conn *fresh;
	size_t len = 0;
	int r = exec_make_request(spec, *key, &request, &len, err);

	if (r < 0)
		return r;
	r = agent_request(conn, request, len, deadline, line, err);
	if (r != -EOPNOTSUPP || !*key)
		return r;
	/* An older agent, in a VM that runs for long: as it can. */
	*key = 0;
	r = spec->resume->connect_again(spec->resume->arg, conn->signal_fd, &fresh, err);
	if (r < 0)
		return r;
	agent_replace(conn, fresh);
	conn->signal_fd = spec->signal_fd;
	free(request);
	request = NULL;
	r = exec_make_request(spec, 0, &request, &len, err);
	return r < 0 ? r : agent_request(conn, request, len, deadline, line, err);
}

/* What is needed to resume it. The agent decides whether that is possible. */
static int make_resume(const struct exec_spec *spec, const struct agent_line *line, int64_t key, int64_t *window,
		       struct resume **ret, struct err *err)
{
	int64_t id = 0;
	bool can = false;

	agent_line_bool(line, "resume", &can);
	agent_line_int(line, "id", &id);
	if (!key || !can || id <= 0)
		return 0;
	*window = MIN(*window, (int64_t)AGENT_STDIN_WINDOW);
	*ret = resume_new(spec->resume, id, key);
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

void exec_run(struct agent_conn *conn, const struct exec_spec *spec, struct exec_result *ret)
{
	_cleanup_free_ struct resume *resume = NULL;
	struct agent_line line;
	uint64_t start = loop_now_ns();
	int64_t window = 0, key = spec->resume ? resume_make_key() : 0;

	if (exec_refuse(spec->argv, ret))
		return;
	*ret = (struct exec_result){ .out = { .fd = -1, .own_fd = -1 }, .err = { .fd = -1, .own_fd = -1 } };
	int r = open_streams(spec, ret);

	if (r < 0) {
		err_errno(&ret->why, r, "output");
		fail(ret, EXEC_FAILED);
		return;
	}
	conn->signal_fd = spec->signal_fd;
	r = request_command(conn, spec, &key, &line, &ret->why);
	if (r == 0) {
		agent_line_int(&line, "stdin_window", &window);
		r = make_resume(spec, &line, key, &window, &resume, &ret->why);
	}
	if (r == -ECANCELED && conn->signal) {
		ret->value = conn->signal;
		fail(ret, EXEC_FORCED);
	} else if (r == -ECONNRESET && conn->eof) {
		fail(ret, EXEC_LOST);
	} else if (r < 0) {
		fail(ret, EXEC_FAILED);
	} else {
		run_session(conn, spec, window, resume, ret);
	}
	ret->elapsed_ms = (loop_now_ns() - start) / 1000000;
}

void exec_result_finish(struct exec_result *r)
{
	stream_close(&r->out);
	stream_close(&r->err);
}

/* ---- what it means ---- */

int exec_status(const struct exec_result *r)
{
	int status = CMD_EXIT_FAILED;

	/* Output that could not be written is lost, whatever the command made of its closed stream. */
	if (r->out.error || r->err.error)
		return CMD_EXIT_FAILED;
	switch (r->end) {
	case EXEC_STATUS:
		status = r->value;
		break;
	case EXEC_SIGNAL:
	case EXEC_OOM:
	case EXEC_FORCED:
		status = CMD_EXIT_SIGNAL + r->value;
		break;
	case EXEC_KILLED:
		status = CMD_EXIT_SIGNAL + SIGKILL;
		break;
	case EXEC_TIMEOUT:
	case EXEC_OVERDUE:
		status = CMD_EXIT_TIMEOUT;
		break;
	case EXEC_NOEXEC:
		status = r->value == ENOENT ? CMD_EXIT_NOTFOUND : CMD_EXIT_NOEXEC;
		break;
	case EXEC_LOST:
	case EXEC_FAILED:
		break;
	}
	return status;
}

void exec_explain(const struct exec_result *r, const char *what)
{
	if (r->out.error || r->err.error) {
		cmd_failf("write to %s: %s", r->out.error ? "stdout" : "stderr", strerror(-(r->out.error ? r->out.error : r->err.error)));
		return;
	}
	switch (r->end) {
	case EXEC_STATUS:
	case EXEC_SIGNAL:
		break;
	case EXEC_OOM:
		cmd_failf("%s: the guest ran out of memory and killed it", what);
		break;
	case EXEC_TIMEOUT:
		cmd_failf("%s: ended by its time-out", what);
		break;
	case EXEC_OVERDUE:
		cmd_failf("%s: its time-out passed and the guest does not end it", what);
		break;
	case EXEC_NOEXEC:
		if (r->why.text[0])
			cmd_fail(&r->why);
		else
			cmd_failf("%s: %s", what, r->value == ENOENT ? "not found in the guest" : strerror(r->value));
		break;
	case EXEC_FORCED:
		cmd_failf("%s: given up after signal %d", what, r->value);
		break;
	case EXEC_KILLED:
	case EXEC_LOST:
	case EXEC_FAILED:
		cmd_fail(&r->why);
		break;
	}
}

const char *exec_end_name(enum exec_end end)
{
	switch (end) {
	case EXEC_STATUS:
		return "exit";
	case EXEC_SIGNAL:
		return "signal";
	case EXEC_TIMEOUT:
	case EXEC_OVERDUE:
		return "timeout";
	case EXEC_NOEXEC:
		return "not-executed";
	case EXEC_OOM:
		return "out-of-memory";
	case EXEC_KILLED:
		return "killed";
	case EXEC_FORCED:
		return "interrupted";
	case EXEC_LOST:
		return "lost";
	case EXEC_FAILED:
		break;
	}
	return "failed";
}
