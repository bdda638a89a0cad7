/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One command in a guest, from the request to the exit status: what run and exec share.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "host/agent_client.h"
#include "host/guardian.h"
#include "host/resume.h"
#include "host/stream.h"
#include "lib/err.h"
#include "lib/opt.h"

enum {
	EXEC_CAPTURE_MAX = 1 << 20,    /* bytes of each stream in --json */
	EXEC_GRACE_MS = 2000,          /* between SIGTERM and SIGKILL at a time-out */
	EXEC_OVERDUE_MS = 15000,       /* after which the agent is not waited for at a time-out */
	EXEC_REPLY_MS = 60000,         /* for the agent's answer */
	EXEC_ENV_MAX = 256,
};

/* The options of run and exec that are about the command. */
struct exec_options {
	struct opt_strv env;
	char *cwd;
	char *user;
	double timeout; /* seconds; 0: none */
	bool interactive, tty, json;
};

struct exec_spec {
	char *const *argv; /* NULL-terminated */
	const char *const *base_env; /* before options->env, e.g. the image's; NULL-terminated or NULL */
	const struct exec_options *options;
	const char *cwd, *user;      /* used where the options say nothing; may be NULL */
	const struct resume_source *resume; /* how the connection is made when the VM comes back; NULL: it is not */
	int signal_fd;
	const struct guardian *guardian;
};

enum exec_end {
	EXEC_STATUS,   /* value: exit status */
	EXEC_SIGNAL,   /* value: signal */
	EXEC_TIMEOUT,
	EXEC_NOEXEC,   /* value: errno */
	EXEC_OOM,      /* value: signal */
	EXEC_KILLED,   /* somebody ended the VM: text in why */
	EXEC_FORCED,   /* the user insisted; value: signal */
	EXEC_OVERDUE,  /* timed out, and the agent did not say so */
	EXEC_LOST,     /* the connection ended: text in why */
	EXEC_FAILED,   /* the request was refused, or the protocol broken: text in why */
};

struct exec_result {
	enum exec_end end;
	int value;
	uint64_t elapsed_ms;
	struct stream out, err;
	struct err why;
};

/* A command that no guest could run, an empty one, is answered here: true, and *ret is filled, as for one that is not found. */
bool exec_refuse(char *const *argv, struct exec_result *ret);
/* Run it over a fresh connection. Always fills *ret, which is to be released by exec_result_finish. */
void exec_run(struct agent_conn *conn, const struct exec_spec *spec, struct exec_result *ret);
void exec_result_finish(struct exec_result *r);

/* The exit status that coffer passes on. */
int exec_status(const struct exec_result *r);
/* The one line there is to say on stderr about a result that the status alone does not explain, or nothing. `what` names the
 * command. */
void exec_explain(const struct exec_result *r, const char *what);
/* Check combinations of options against our own descriptors: 0, or -EINVAL with a text. */
int exec_check_options(const struct exec_options *o, struct err *err);

/* The request, with resume_key unless that is 0; -ENOMEM, or -E2BIG beyond AGENT_REQUEST_MAX. */
int exec_make_request(const struct exec_spec *spec, int64_t resume_key, char **ret, size_t *ret_len, struct err *err);

/* "exit", "signal", "timeout", ... for JSON. */
const char *exec_end_name(enum exec_end end);
