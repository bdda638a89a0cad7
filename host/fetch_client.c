/* SPDX-License-Identifier: Apache-2.0 */
/* Starting coffer-fetch and asking it for documents: see fetch_client.h. */
#include "host/fetch_client.h"

#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/helper.h"
#include "lib/fd.h"
#include "lib/util.h"

enum { REPLY_MAX = 64 << 10, REQUEST_MAX = 60 << 10 };

pid_t fetch_spawn(const char *mode, int in, int err_fd, const int *keep, size_t nkeep, struct err *err)
{
	const char *const args[] = { mode, NULL };
	const struct helper h = { .program = "coffer-fetch", .env = "COFFER_FETCH", .args = args, .in = in, .err_fd = err_fd, .keep = keep,
				  .nkeep = nkeep };

	return helper_spawn(&h, err);
}

bool fetch_last_line(int log_fd, char *ret, size_t len)
{
	char text[4096], *line, *end;
	struct stat st;
	off_t size = log_fd >= 0 && fstat(log_fd, &st) == 0 ? st.st_size : 0;
	off_t from = size >= (off_t)sizeof(text) ? size - (off_t)sizeof(text) + 1 : 0;
	ssize_t n = size > 0 ? fd_pread_full(log_fd, text, sizeof(text) - 1, from) : 0;

	if (n <= 0)
		return false;
	text[n] = '\0';
	end = strrchr(text, '\n');
	if (end != NULL)
		*end = '\0';
	line = strrchr(text, '\n');
	line = line != NULL ? line + 1 : text;
	/* "coffer-fetch: warn: TEXT" */
	for (int i = 0; i < 2 && strstr(line, ": ") != NULL && (i == 0 || strncmp(line, "warn", 4) == 0 || strncmp(line, "error", 5) == 0); i++)
		line = strstr(line, ": ") + 2;
	snprintf(ret, len, "%s", line);
	return true;
}

static int send_json(int sock, json_t *o, const int *fds, size_t nfds, struct err *err)
{
	char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
	ssize_t r = -EINVAL;

	json_decref(o);
	if (text != NULL && strlen(text) < REQUEST_MAX)
		r = fd_send(sock, text, strlen(text), fds, nfds);
	free(text);
	return r < 0 ? err_errno(err, (int)r, "coffer-fetch") : 0;
}

int fetch_session_open(const struct fetch_auth *auth, size_t nauths, const char *ca_file, struct fetch_session *ret,
		       struct err *err)
{
	_cleanup_close_ int ours = -1, theirs = -1;
	json_t *o = json_object(), *list = json_array();
	int fds[2];
	pid_t pid;
	int r;

	for (size_t i = 0; i < nauths; i++)
		json_array_append_new(list, json_pack("{s:s, s:s*, s:s*}", "origin", auth[i].origin, "user", auth[i].user, "password",
						      auth[i].password));
	json_object_set_new(o, "auth", list);
	if (ca_file != NULL)
		json_object_set_new(o, "ca_file", json_string(ca_file));
	if (json_array_size(list) != nauths) {
		json_decref(o);
		return err_set(err, -EINVAL, "the credentials are not UTF-8");
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		json_decref(o);
		return err_errno(err, -errno, "socketpair");
	}
	ours = fds[0];
	theirs = fds[1];
	pid = fetch_spawn("get", theirs, -1, NULL, 0, err);
	if (pid < 0) {
		json_decref(o);
		return pid;
	}
	r = send_json(ours, o, NULL, 0, err);
	*ret = (struct fetch_session){ .sock = TAKE_FD(ours), .pid = pid };
	if (r < 0)
		fetch_session_close(ret);
	return r;
}

void fetch_session_close(struct fetch_session *s)
{
	s->sock = fd_close(s->sock);
	while (s->pid > 0 && waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
		;
	s->pid = 0;
}

/* A packet, unless the user wants to end before. */
static int receive_one(struct fetch_session *s, struct progress *p, char *buf, json_t **ret, struct err *err)
{
	ssize_t n;

	for (;;) {
		struct pollfd f[] = { { .fd = s->sock, .events = POLLIN }, { .fd = p != NULL ? p->signals : -1, .events = POLLIN } };
		int r;

		if (poll(f, ARRAY_SIZE(f), -1) < 0 && errno != EINTR)
			return err_errno(err, -errno, "poll");
		r = f[1].revents != 0 ? progress_bytes(p, 0, 0, err) : 0;
		if (r < 0)
			return r;
		if (f[0].revents != 0)
			break;
	}
	n = recv(s->sock, buf, REPLY_MAX, 0);
	*ret = n > 0 ? json_loadb(buf, (size_t)n, 0, NULL) : NULL;
	return *ret != NULL ? 0 : err_set(err, -EPIPE, "coffer-fetch has ended");
}

/* The reply. What comes before it is for whoever waits. */
static int receive(struct fetch_session *s, struct progress *p, json_t **ret, struct err *err)
{
	_cleanup_free_ char *buf = malloc(REPLY_MAX);

	if (buf == NULL)
		return err_set(err, -ENOMEM, "no memory");
	for (;;) {
		int r = receive_one(s, p, buf, ret, err);
		const char *waiting = r < 0 ? NULL : json_string_value(json_object_get(*ret, "waiting"));

		if (waiting == NULL)
			return r;
		progress_say(p, waiting);
		json_decref(*ret);
	}
}

static int read_body(int fd, size_t n, char **ret_data, struct err *err)
{
	_cleanup_free_ char *data = malloc(n + 1);

	if (data == NULL)
		return err_set(err, -ENOMEM, "no memory");
	if (fd_pread_full(fd, data, n, 0) != (ssize_t)n)
		return err_set(err, -EIO, "coffer-fetch has sent less than it said");
	data[n] = '\0';
	*ret_data = TAKE_PTR(data);
	return 0;
}

int fetch_document(struct fetch_session *s, const char *url, const char *accept, size_t auth, size_t max, struct progress *p,
		   char **ret_data, size_t *ret_len, char *type, char *digest, struct err *err)
{
	_cleanup_close_ int body = memfd_create("document", MFD_CLOEXEC);
	const char *text;
	json_int_t len;
	json_t *o = NULL;
	int r;

	if (body < 0)
		return err_errno(err, -errno, "memfd");
	r = send_json(s->sock, json_pack("{s:s, s:s, s:i, s:I}", "url", url, "accept", accept, "auth", (int)auth, "max", (json_int_t)max),
		      &body, 1, err);
	if (r == 0)
		r = receive(s, p, &o, err);
	if (r < 0)
		return r;
	r = (int)json_integer_value(json_object_get(o, "result"));
	text = json_string_value(json_object_get(o, "error"));
	len = json_integer_value(json_object_get(o, "bytes"));
	if (r < 0)
		err_set(err, r, "%s", text != NULL ? text : "");
	else if (len < 0 || (size_t)len > max)
		r = err_set(err, -EIO, "coffer-fetch says something senseless");
	else
		r = read_body(body, (size_t)len, ret_data, err);
	if (r == 0) {
		const char *t = json_string_value(json_object_get(o, "type")), *d = json_string_value(json_object_get(o, "digest"));

		*ret_len = (size_t)len;
		if (type != NULL)
			snprintf(type, 128, "%s", t != NULL ? t : "");
		if (digest != NULL)
			snprintf(digest, 80, "%s", d != NULL ? d : "");
	}
	json_decref(o);
	return r;
}
