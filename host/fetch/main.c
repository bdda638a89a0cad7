/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coffer-fetch: the process that speaks HTTP, so that neither `coffer` nor a monitor does. Not for users: `coffer` starts it.
 *
 *   coffer-fetch serve   chunks of blobs for monitors, until the last of their sockets closes; configuration on stdin (serve_config.c)
 *   coffer-fetch get     documents for `coffer image pull`; stdin is the socket (get.c)
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/fetch/get.h"
#include "host/fetch/jail.h"
#include "host/fetch/serve.h"
#include "lib/fd.h"

enum { CONFIG_MAX = 4 << 20 };

static const char usage[] = "Usage: coffer-fetch serve|get\n\n"
			    "Fetches parts of images over HTTP for coffer, which starts it; see 'coffer image\n"
			    "pull' and docs/remote.md. What to do comes on stdin.\n";

static int enter_jail(const struct serve *s, struct err *err)
{
	const char *ca_files[SERVE_AUTHS + 1];

	ca_files[0] = s->ca_file;
	for (uint32_t i = 0; i < s->nauths; i++)
		ca_files[i + 1] = s->auth[i].ca_file;
	return jail_enter(s->cache.fd, ca_files, s->nauths + 1, err);
}

static int serve(const struct log *log)
{
	struct serve *s = calloc(1, sizeof(*s));
	_cleanup_free_ char *text = malloc(CONFIG_MAX);
	struct err err = ERR_INIT;
	ssize_t n;
	int r;

	if (s == NULL || text == NULL) {
		free(s);
		log_line(log, LOG_ERROR, "no memory");
		return 1;
	}
	s->log = *log;
	s->cache.fd = -1;
	n = fd_read_full(STDIN_FILENO, text, CONFIG_MAX);
	r = n < 0 ? err_errno(&err, (int)n, "read the configuration") : serve_configure(s, text, (size_t)n, &err);
	if (r == 0)
		r = enter_jail(s, &err);
	if (r == 0)
		r = serve_run(s);
	if (r < 0)
		log_line(log, LOG_ERROR, "%s", err.code != 0 ? err.text : strerror(-r));
	serve_finish(s);
	free(s);
	return r < 0;
}

int main(int argc, char **argv)
{
	const struct log log = { .fd = STDERR_FILENO, .level = LOG_INFO, .prefix = "coffer-fetch" };

	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		return serve(&log);
	if (argc == 2 && strcmp(argv[1], "get") == 0)
		return get_run(STDIN_FILENO, &log) < 0;
	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return fputs(usage, stdout) == EOF;
	fputs(usage, stderr);
	return 2;
}
